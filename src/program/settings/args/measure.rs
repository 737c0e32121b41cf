//! Arguments of the commands that measure, and that say what to measure: `calibrate`, `collect`
//! and `models suggest`.

use crate::settings::choices::choice;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{FileArgs, ModelArgs, RecordedArgs};
use habitat_base::units::most;
use habitat_planning::values;
use habitat_step::profile::Sample;

/// Arguments of `calibrate`.
///
/// Takes about half a minute and changes no setting of the GPU. What was measured stands in for
/// published figures in every later prediction for this GPU.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// The GPU's number, as CUDA counts.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// The catalog's entry for it, in place of the one that the driver's name gives.
    #[arg(long, value_name = "GPU")]
    pub gpu: Option<String>,
    /// Write there, not among the user's catalog files (where predictions find it).
    #[arg(short, long, value_name = "FILE", conflicts_with = "dry_run")]
    pub output: Option<PathBuf>,
    /// Measure and print, write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Replace FILE where it is there.
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Measure although other programs use the GPU.
    #[arg(long)]
    pub in_use: bool,
    /// A Python whose packages have cuBLASLt (one with PyTorch, for example).
    #[arg(long, value_name = "PYTHON")]
    pub python: Option<PathBuf>,
    /// As JSON (habitat-calibration, version 1, with the catalog's figures beside).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `calibrate-scaling`.
///
/// The same job, the same batch on each GPU, data parallel on one machine. Plans take what this
/// prints as --scaling-factor: software that exchanges gradients badly does so on every machine.
#[derive(Debug, Args)]
pub struct CalibrateScalingArgs {
    /// The step recorded on one GPU of that machine.
    pub file: PathBuf,
    /// What is known of it.
    #[command(flatten)]
    pub recorded: RecordedArgs,
    /// GPUs of the run that was measured.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(2, most::GPUS.into()))]
    pub gpus: u32,
    /// Its time of one step, in milliseconds.
    #[arg(long, value_name = "MS", value_parser = values::count)]
    pub step_ms: f64,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `collect`.
///
/// Rows are written as they are made: what is interrupted goes on where it was with the same
/// command. `predict --measured FILE` corrects the models for this GPU by
/// them; `habitat-lab train --collected FILE` trains on them.
#[derive(Debug, Args)]
pub struct CollectArgs {
    /// How long it may take in all (30s, 10m, 2h).
    #[arg(long, value_name = "TIME", value_parser = values::wait)]
    pub budget: Duration,
    /// The CSV file to write, or to go on with.
    #[arg(short, long, value_name = "FILE", default_value = "operators.csv")]
    pub output: PathBuf,
    /// Python with PyTorch.
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub python: PathBuf,
    /// Of the operators and their order: the same seed gives the same list.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// The GPU's number, as PyTorch counts.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device_number: u32,
    /// The catalog's entry for the GPU, in place of the one that its name gives.
    #[arg(long, value_name = "GPU")]
    pub gpu: Option<String>,
    /// What to run on; cpu is a check of the program, whose rows no model is trained on.
    #[arg(long, value_enum, default_value_t = CollectDevice::Cuda)]
    pub device: CollectDevice,
    /// Small sizes only, as a check of the program.
    #[arg(long)]
    pub tiny: bool,
}

/// Where operators are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CollectDevice {
    /// A GPU.
    Cuda,
    /// The processor.
    Cpu,
}

/// Arguments of `models`.
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ModelsCommand,
}

/// Commands about the predictors.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Say which operators of a step to measure on a GPU to predict it better there.
    Suggest(SuggestArgs),
}

/// Arguments of `models suggest`.
#[derive(Debug, Args)]
pub struct SuggestArgs {
    /// A profile, trace or op list; without it, the embedded sample.
    pub file: Option<PathBuf>,
    /// The embedded sample to read if FILE is not given.
    #[arg(long, value_name = "NAME", value_parser = choice::<Sample>(), conflicts_with = "file")]
    pub sample: Option<Sample>,
    /// The GPU to measure on.
    #[arg(long, value_name = "GPU")]
    pub to: String,
    /// How many operators.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = values::within::<u32>(1, 200))]
    pub count: u32,
    /// Write tables to fill in into this folder.
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// Replace tables that are there.
    #[arg(long, requires = "csv")]
    pub force: bool,
    /// The models to predict with.
    #[command(flatten)]
    pub models: ModelArgs,
}
