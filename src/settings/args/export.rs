//! Arguments of `export`.

use std::path::PathBuf;

use clap::Args;

use crate::settings::values;

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A profile or a PyTorch profiler trace with measured times; without it, the embedded
    /// sample.
    pub file: Option<PathBuf>,
    /// As a black box: kinds of operators with their total times, step time, batch size and
    /// GPU; no shapes, names or modules.
    #[arg(long, required = true)]
    pub black_box: bool,
    /// The GPU it was recorded on, in place of what the file says.
    #[arg(long, value_name = "GPU")]
    pub origin: Option<String>,
    /// Samples of one step on one GPU, where the file does not say.
    #[arg(long, value_name = "N", value_parser = values::whole)]
    pub batch_size: Option<u64>,
    /// The file to write (*.blackbox.json); without it, standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there.
    #[arg(long, requires = "output")]
    pub force: bool,
}
