//! Arguments of `import`.

use std::path::PathBuf;

use clap::Args;

use super::WorkloadArgs;

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// One trace (.json, .json.gz, .json.zst), Nsight Systems export (.sqlite) or XPlane
    /// (.xplane.pb), or one a rank; or one op list.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// The profile to write (.habitat.json, .habitat.json.gz or .habitat.json.zst).
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the file if it is there.
    #[arg(long)]
    pub force: bool,
    /// Read the shapes only: for traces without GPU kernels.
    #[arg(long)]
    pub shapes_only: bool,
    /// Read at most this many steps.
    #[arg(long, value_name = "N")]
    pub max_steps: Option<usize>,
    /// Of a recording of Nsight Systems or XPlane, the GPU by its number there (default: all).
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// The program's own range (`record_function`, NVTX) that is one step.
    #[arg(long, value_name = "NAME")]
    pub step_range: Option<String>,
    /// What the profile says of the workload.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Print what was found as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
