//! Arguments of `import`.

use std::path::PathBuf;

use clap::Args;

use crate::predict::{Mode, Precision};
use crate::settings::values;

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
    /// A name for the workload (default: the trace's file name).
    #[arg(long)]
    pub name: Option<String>,
    /// Training or inference, in place of what the trace shows.
    #[arg(long, value_parser = values::mode)]
    pub mode: Option<Mode>,
    /// Samples of one step on one GPU.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub batch_size: Option<u64>,
    /// Tokens of one sample.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub sequence_length: Option<u64>,
    /// Parameters of the model.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub parameters: Option<u64>,
    /// What the step ran in: fp32, tf32, amp-fp16, amp-bf16, fp16, bf16, fp8.
    #[arg(long, value_parser = values::precision)]
    pub precision: Option<Precision>,
    /// The GPU it was recorded on, in place of what the trace says.
    #[arg(long, value_name = "GPU")]
    pub origin: Option<String>,
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
    /// Print what was found as JSON.
    #[arg(long)]
    pub json: bool,
}
