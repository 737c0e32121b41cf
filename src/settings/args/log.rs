//! Arguments of `fit LOG`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::predict::runlog::Form;

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
    #[arg(long, value_enum, help_heading = "Columns")]
    pub unit: Option<UnitArg>,
    /// Predict runs, batch size x iterations as 256x10000, or the one number that the form needs.
    #[arg(long, value_name = "BATCHxITERATIONS", value_delimiter = ',', value_parser = run_size)]
    pub at: Vec<RunSize>,
    /// What a run's time is made of.
    #[arg(long, value_enum, default_value_t = FormArg::Auto)]
    pub form: FormArg,
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
        let value = crate::settings::values::count(text).ok().filter(|value| *value > 0.0);
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

/// `--form`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum FormArg {
    /// What the columns that vary can tell.
    #[default]
    Auto,
    /// a·batch·iterations + b·batch + c·iterations + d.
    Full,
    /// b·batch + d.
    Batch,
    /// c·iterations + d.
    Iterations,
}

impl From<FormArg> for Option<Form> {
    fn from(arg: FormArg) -> Self {
        match arg {
            FormArg::Auto => None,
            FormArg::Full => Some(Form::Full),
            FormArg::Batch => Some(Form::Batch),
            FormArg::Iterations => Some(Form::Iterations),
        }
    }
}

/// `--unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnitArg {
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
    /// Minutes.
    Min,
    /// Hours.
    H,
}
