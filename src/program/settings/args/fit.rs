//! Arguments of `fit`.

use crate::settings::choices::choice;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use habitat_base::units::TimeUnit;
use habitat_planning::values;
use habitat_prediction::runlog::Form;

/// Arguments of `fit`: a log of runs, or a subcommand.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct FitArgs {
    /// The model to fit, if not to a log.
    #[command(subcommand)]
    pub command: Option<FitCommand>,
    /// The log.
    #[command(flatten)]
    pub log: Option<FitLogArgs>,
}

/// Models that are fitted to the user's data within seconds.
#[derive(Debug, Subcommand)]
pub enum FitCommand {
    /// Fit linear models of kernels, layers and steps to recorded steps (Li et al., MICRO 2023), for --method
    /// kernel-wise, layer-wise and end-to-end.
    #[command(name = "kernelwise")]
    KernelWise(FitKernelWiseArgs),
    /// Fit the black-box model to tables of operator kinds and step times (PROFET's format), for predict and plan
    /// --black-box and --method black-box.
    #[command(name = "black-box")]
    BlackBox(FitBlackBoxArgs),
}

/// Arguments of `fit kernelwise`.
#[derive(Debug, Args)]
pub struct FitKernelWiseArgs {
    /// Profiles or traces of recorded steps, or folders of profiles. Ranges need several networks; predictions for
    /// other GPUs need at least three GPUs.
    #[arg(value_name = "PROFILES", required_unless_present = "tables")]
    pub profiles: Vec<PathBuf>,
    /// Folder of operator tables (linear, bmm, conv2d, softmax, layernorm, elementwise: .csv, .csv.gz), for kinds of
    /// layers that no step contains.
    #[arg(long, value_name = "DIR")]
    pub tables: Option<PathBuf>,
    /// Output file (.json, .json.gz or .json.zst).
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Overwrite an existing file.
    #[arg(long)]
    pub force: bool,
    /// Print the result of the fit as JSON (habitat-fit-kernel-wise, version 1).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `fit black-box`.
#[derive(Debug, Args)]
pub struct FitBlackBoxArgs {
    /// Folder with anchor_*.csv and latencies.csv (.csv, .csv.gz or .csv.zst), of at least three networks.
    #[arg(value_name = "TABLES")]
    pub tables: PathBuf,
    /// Output folder for blackbox.json (default: where predictions look for it).
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Overwrite an existing model.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `fit LOG`.
#[derive(Debug, Args)]
pub struct FitLogArgs {
    /// A log of runs: CSV (.gz, .zst), each row with a time and a batch size, iterations or both.
    pub log: PathBuf,
    /// Column of times (default: time, seconds, duration, elapsed …).
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub time: Option<String>,
    /// Column of batch sizes (default: batch, batchsize, bs).
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub batch: Option<String>,
    /// Column of iterations (default: iterations, iters, steps, epochs …).
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub iterations: Option<String>,
    /// Column of GPUs or machines; each gets its own model.
    #[arg(long, value_name = "COLUMN", help_heading = "Columns")]
    pub gpu: Option<String>,
    /// Unit of the times, if the header does not end with it.
    #[arg(long, value_parser = choice::<TimeUnit>(), help_heading = "Columns")]
    pub unit: Option<TimeUnit>,
    /// Predict these runs: batch size x iterations, such as 256x10000, or the single variable of the form.
    #[arg(long, value_name = "BATCHxITERATIONS", value_delimiter = ',', value_parser = run_size)]
    pub at: Vec<RunSize>,
    /// Form of the model of run time: full (a·batch·iterations + b·batch + c·iterations + d), batch (b·batch + d),
    /// iterations (c·iterations + d), or auto (according to the columns that vary).
    #[arg(long, value_name = "FORM", value_parser = form, default_value = "auto")]
    pub form: FormChoice,
    /// Minimise errors in seconds instead of relative errors, which gives long runs more weight.
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
    /// The single variable of the form.
    One(f64),
}

fn run_size(text: &str) -> Result<RunSize, String> {
    let number = |text: &str| {
        let value = values::count(text).ok().filter(|value| *value > 0.0);
        value.ok_or_else(|| {
            format!(
                "{text:?} is not a valid count above zero; expected 256x10000, or one number for a form in one variable"
            )
        })
    };
    match text.split_once(['x', 'X', '×']) {
        Some((batch, iterations)) => Ok(RunSize::Both(number(batch)?, number(iterations)?)),
        None => Ok(RunSize::One(number(text)?)),
    }
}

/// A form, or `None` for automatic choice.
pub type FormChoice = Option<Form>;

fn form(text: &str) -> Result<FormChoice, String> {
    match text {
        "auto" => Ok(None),
        "full" => Ok(Some(Form::Full)),
        "batch" => Ok(Some(Form::Batch)),
        "iterations" => Ok(Some(Form::Iterations)),
        _ => Err("expected auto, full, batch or iterations".to_owned()),
    }
}
