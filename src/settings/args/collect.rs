//! Arguments of `collect`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::settings::values;

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
    /// The catalog's entry for the GPU, in place of the one told by its name.
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
