//! Arguments of commands that measure or suggest measurements: `calibrate`, `collect` and `models suggest`.

use crate::settings::choices::choice;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{FileArgs, InputArgs, ModelArgs, RecordedArgs};
use habitat_base::units::most;
use habitat_planning::values;
use habitat_prediction::scale::ModelParallel;
use habitat_prediction::{Precision, Sharding};
use habitat_step::profile::Sample;

/// Arguments of `calibrate`.
///
/// Takes about half a minute and changes no GPU settings. Later predictions for this GPU use the measurements instead
/// of published figures.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// CUDA device number of the GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// Catalog entry of the GPU, instead of the one for the driver's name.
    #[arg(long, value_name = "GPU")]
    pub gpu: Option<String>,
    /// Write to this file instead of the user's catalog folder, where predictions find it.
    #[arg(short, long, value_name = "FILE", conflicts_with = "dry_run")]
    pub output: Option<PathBuf>,
    /// Measure and print, but write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Overwrite FILE if it exists.
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Measure even if other programs use the GPU.
    #[arg(long)]
    pub in_use: bool,
    /// A Python with cuBLASLt among its packages (for example one with PyTorch).
    #[arg(long, value_name = "PYTHON")]
    pub python: Option<PathBuf>,
    /// As JSON (habitat-calibration, version 1, along with the catalog's figures).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `calibrate-scaling`.
///
/// Needs the same job on one and on several GPUs of one machine, data parallel with the same batch per GPU. Pass the
/// result to plans as --scaling-factor: software with slow gradient exchange has the same overhead on every machine.
///
/// For language models, --runs takes the steps of any layouts instead, and gives --layout-factors for all other layouts
/// on these machines; FILE is then one micro-batch on one GPU, recorded or from `trace-shapes --config`.
#[derive(Debug, Args)]
pub struct CalibrateScalingArgs {
    /// The step recorded on one GPU of that machine.
    pub file: PathBuf,
    /// Measured steps of layouts: a CSV table with the columns machines, gpus (of a machine) and `step_ms`, and, as they
    /// apply, tensor, pipeline, chunks, context, expert, sharding, recompute (true or false), `global_batch` and
    /// `network_gbit`.
    #[arg(long, value_name = "FILE", requires = "to", conflicts_with_all = ["gpus", "step_ms"])]
    pub runs: Option<PathBuf>,
    /// GPU of the runs.
    #[arg(long, value_name = "GPU", requires = "runs")]
    pub to: Option<String>,
    /// Precision of the runs, if FILE is in another.
    #[arg(long, value_parser = choice::<Precision>(), ignore_case = true, requires = "runs")]
    pub precision: Option<Precision>,
    /// Facts about it.
    #[command(flatten)]
    pub recorded: RecordedArgs,
    /// Number of GPUs of the measured run.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(2, most::GPUS.into()), required_unless_present = "runs")]
    pub gpus: Option<u32>,
    /// Step time of that run, milliseconds.
    #[arg(long, value_name = "MS", value_parser = values::count, required_unless_present = "runs")]
    pub step_ms: Option<f64>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Output file.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `compare-speed`.
#[derive(Debug, Args)]
pub struct CompareSpeedArgs {
    /// A micro-batch on one GPU, and how it is predicted.
    #[command(flatten)]
    pub input: InputArgs,
    /// GPU of the job, if it is not the recording's.
    #[arg(long = "to", alias = "gpu", value_name = "GPU")]
    pub to: Option<String>,
    /// GPUs of each machine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within::<u32>(1, most::GPUS.into()), help_heading = "Job")]
    pub gpus: u32,
    /// Machines.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within::<u32>(1, most::MACHINES.into()), help_heading = "Job")]
    pub machines: u32,
    /// Line rate of each machine's network, in Gbit/s.
    #[arg(long, value_name = "GBIT/S", value_parser = values::network, help_heading = "Job")]
    pub network_gbit: Option<f64>,
    /// Training state that is sharded across GPUs.
    #[arg(long, value_parser = choice::<Sharding>(), help_heading = "Job")]
    pub sharding: Option<Sharding>,
    /// Degree of tensor parallelism.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Job")]
    pub tensor_parallel: u32,
    /// Pipeline stages.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Job")]
    pub pipeline_parallel: u32,
    /// Chunks of layers on each pipeline stage.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Job")]
    pub virtual_stages: u32,
    /// GPUs that share each sequence.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Job")]
    pub context_parallel: u32,
    /// GPUs that share the experts of each layer.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Job")]
    pub expert_parallel: u32,
    /// Samples of an update on all GPUs.
    #[arg(long, value_name = "N", value_parser = values::batch_size, help_heading = "Job")]
    pub global_batch: Option<u64>,
    /// Measured tokens per second on all GPUs.
    #[arg(long, value_name = "RATE", value_parser = values::count, help_heading = "Speed", group = "speed")]
    pub tokens_per_second: Option<f64>,
    /// Measured samples per second on all GPUs.
    #[arg(long, value_name = "RATE", value_parser = values::count, help_heading = "Speed", group = "speed")]
    pub samples_per_second: Option<f64>,
    /// Measured model FLOPs of one GPU per second, in TFLOP/s: three forward passes of the step's products and attention,
    /// recomputation not counted.
    #[arg(long, value_name = "TFLOP/S", value_parser = values::count, help_heading = "Speed", group = "speed")]
    pub tflops: Option<f64>,
    /// The same as a percentage of the GPU's peak in the precision of the step, without sparsity.
    #[arg(long, value_name = "PERCENT", value_parser = values::count, help_heading = "Speed", group = "speed")]
    pub mfu: Option<f64>,
    /// Measured time of an update, milliseconds.
    #[arg(long, value_name = "MS", value_parser = values::count, help_heading = "Speed", group = "speed")]
    pub step_ms: Option<f64>,
    /// As JSON (habitat-speed, version 1).
    #[arg(long)]
    pub json: bool,
    /// Output file.
    #[command(flatten)]
    pub file_args: FileArgs,
}

impl CompareSpeedArgs {
    /// Division of the model.
    pub const fn parallel(&self) -> ModelParallel {
        ModelParallel {
            tensor: self.tensor_parallel,
            pipeline: self.pipeline_parallel,
            context: self.context_parallel,
            chunks: self.virtual_stages,
            expert: self.expert_parallel,
            recompute: false,
        }
    }
}

/// Arguments of `collect`.
///
/// Writes each row as soon as it is measured; run the same command again to resume after an interruption. `predict
/// --measured FILE` corrects the models for this GPU with these rows; `habitat-lab train --collected FILE` trains on
/// them.
#[derive(Debug, Args)]
pub struct CollectArgs {
    /// Total time to spend (30s, 10m, 2h).
    #[arg(long, value_name = "TIME", value_parser = values::wait)]
    pub budget: Duration,
    /// CSV file to write or to resume.
    #[arg(short, long, value_name = "FILE", default_value = "operators.csv")]
    pub output: PathBuf,
    /// Python with PyTorch.
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub python: PathBuf,
    /// Random seed for the list of operators and their order.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Device number of the GPU in PyTorch.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device_number: u32,
    /// Catalog entry of the GPU, instead of the one for its name.
    #[arg(long, value_name = "GPU")]
    pub gpu: Option<String>,
    /// Device; cpu only tests the program, and its rows are not used for training.
    #[arg(long, value_enum, default_value_t = CollectDevice::Cuda)]
    pub device: CollectDevice,
    /// Small sizes only, to test the program.
    #[arg(long)]
    pub tiny: bool,
}

/// Device to run operators on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CollectDevice {
    /// A GPU.
    Cuda,
    /// The CPU.
    Cpu,
}

/// Arguments of `models`.
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// The command.
    #[command(subcommand)]
    pub command: ModelsCommand,
}

/// Commands about the predictors.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List operators of a step whose measurement on a GPU would improve its predictions there.
    Suggest(SuggestArgs),
}

/// Arguments of `models suggest`.
#[derive(Debug, Args)]
pub struct SuggestArgs {
    /// A profile, trace or op list (default: the embedded sample).
    pub file: Option<PathBuf>,
    /// Embedded sample to use without FILE.
    #[arg(long, value_name = "NAME", value_parser = choice::<Sample>(), conflicts_with = "file")]
    pub sample: Option<Sample>,
    /// The GPU to measure on.
    #[arg(long, value_name = "GPU")]
    pub to: String,
    /// Number of operators.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = values::within::<u32>(1, 200))]
    pub count: u32,
    /// Write tables to fill in to this folder.
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// Overwrite existing tables.
    #[arg(long, requires = "csv")]
    pub force: bool,
    /// Models for predictions.
    #[command(flatten)]
    pub models: ModelArgs,
}
