//! What a user can say of a recorded workload, shared by the commands that make a profile.

use clap::Args;

use crate::predict::{Mode, Precision};
use crate::settings::values;

/// Facts about the workload, in place of what is seen.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArgs {
    /// A name for the workload (default: the script's or the file's).
    #[arg(long)]
    pub name: Option<String>,
    /// Training or inference, in place of what is seen.
    #[arg(long, value_parser = values::mode)]
    pub mode: Option<Mode>,
    /// Samples of one step on one GPU, in place of what is seen.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub batch_size: Option<u64>,
    /// Tokens of one sample, in place of what is seen.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub sequence_length: Option<u64>,
    /// Parameters of the model, in place of what is seen.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub parameters: Option<u64>,
    /// What the step runs in (fp32, tf32, amp-fp16, amp-bf16, fp16, bf16, fp8), in place of
    /// what is seen.
    #[arg(long, value_parser = values::precision)]
    pub precision: Option<Precision>,
    /// The GPU it was recorded on, in place of what is seen.
    #[arg(long, value_name = "GPU")]
    pub origin: Option<String>,
}
