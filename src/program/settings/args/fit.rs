//! Arguments of `fit`.

use crate::settings::choices::choice;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use habitat_base::units::TimeUnit;
use habitat_planning::values;
use habitat_prediction::runlog::Form;

/// Arguments of `fit`: a log of runs, or what else to fit.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct FitArgs {
    /// What to fit, where it is no log.
    #[command(subcommand)]
    pub command: Option<FitCommand>,
    /// The log.
    #[command(flatten)]
    pub log: Option<FitLogArgs>,
}

/// Models that are fitted in seconds to what the user has.
#[derive(Debug, Subcommand)]
pub enum FitCommand {
    /// Linear models of kernels, layers and steps from recorded steps (Li et al., MICRO 2023), for
    /// --method kernel-wise, layer-wise and end-to-end.
    #[command(name = "kernelwise")]
    KernelWise(FitKernelWiseArgs),
    /// The black-box model from tables of operator kinds and step times (PROFET's form), for
    /// predict and plan --black-box and --method black-box.
    #[command(name = "black-box")]
    BlackBox(FitBlackBoxArgs),
}

/// Arguments of `fit kernelwise`.
#[derive(Debug, Args)]
pub struct FitKernelWiseArgs {
    /// Profiles or traces of recorded steps, or folders of profiles. Several networks make
    /// the ranges; with three GPUs or more they predict other GPUs too.
    #[arg(value_name = "PROFILES", required_unless_present = "tables")]
    pub profiles: Vec<PathBuf>,
    /// Folder of operator tables (linear, bmm, conv2d, softmax, layernorm, elementwise: .csv,
    /// .csv.gz), for the kinds of layers that no step has.
    #[arg(long, value_name = "DIR")]
    pub tables: Option<PathBuf>,
    /// The file to write (.json, .json.gz or .json.zst).
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the file if it is there.
    #[arg(long)]
    pub force: bool,
    /// Say what was fitted as JSON (habitat-fit-kernel-wise, version 1).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `fit black-box`.
#[derive(Debug, Args)]
pub struct FitBlackBoxArgs {
    /// Folder with anchor_*.csv and latencies.csv (.csv, .csv.gz or .csv.zst); three networks
    /// or more.
    #[arg(value_name = "TABLES")]
    pub tables: PathBuf,
    /// Folder to write blackbox.json to (default: where predictions look for it).
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace the model that is there.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `fit LOG`.
#[derive(Debug, Args)]
pub struct FitLogArgs {
    /// A log of runs: CSV (.gz, .zst) with a time and a batch size, iterations or both a row.
    pub log: PathBuf,
    /// The column of times (time, seconds, duration, elapsed … without it).
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub time: Option<String>,
    /// The column of batch sizes (batch, batchsize, bs without it).
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub batch: Option<String>,
    /// The column of iterations (iterations, iters, steps, epochs … without it).
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub iterations: Option<String>,
    /// The column of GPUs or machines, each of which gets a model of its own.
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub gpu: Option<String>,
    /// The unit of the times, where the heading does not end with it.
    #[arg(long, value_parser = choice::<TimeUnit>(), help_heading = "Columns")]
    pub unit: Option<TimeUnit>,
    /// Predict runs, batch size x iterations as 256x10000, or the one number that the form needs.
    #[arg(long, value_name = "BATCHxITERATIONS", value_delimiter = ',', value_parser = run_size)]
    pub at: Vec<RunSize>,
    /// What a run's time is made of: full (a·batch·iterations + b·batch + c·iterations + d),
    /// batch (b·batch + d), iterations (c·iterations + d), or auto (what the columns that vary
    /// can show).
    #[arg(long, value_name = "FORM", value_parser = form, default_value = "auto")]
    pub form: FormChoice,
    /// Fit seconds, not relative errors: long runs decide.
    #[arg(long)]
    pub absolute: bool,
    /// As JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// A run to predict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunSize {
    /// Batch size and iterations.
    Both(f64, f64),
    /// The one that the form needs.
    One(f64),
}

fn run_size(text: &str) -> Result<RunSize, String> {
    let number = |text: &str| {
        let value = values::count(text).ok().filter(|value| *value > 0.0);
        value.ok_or_else(|| {
            format!(
                "{text:?} is not a valid count above zero; write 256x10000, or one number for a form in one variable"
            )
        })
    };
    match text.split_once(['x', 'X', '×']) {
        Some((batch, iterations)) => Ok(RunSize::Both(number(batch)?, number(iterations)?)),
        None => Ok(RunSize::One(number(text)?)),
    }
}

/// A form, or `None` for what the columns can show.
pub type FormChoice = Option<Form>;

fn form(text: &str) -> Result<FormChoice, String> {
    match text {
        "auto" => Ok(None),
        "full" => Ok(Some(Form::Full)),
        "batch" => Ok(Some(Form::Batch)),
        "iterations" => Ok(Some(Form::Iterations)),
        _ => Err("write auto, full, batch or iterations".to_owned()),
    }
}
