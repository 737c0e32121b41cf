//! Arguments of `calibrate`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `calibrate`.
///
/// Takes about half a minute and changes no setting of the GPU. What was measured stands in for
/// published figures in every later prediction for this GPU.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// The GPU's number, as CUDA counts.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: u32,
    /// The catalog's entry for it, in place of the one told by the driver's name.
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
