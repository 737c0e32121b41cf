//! Arguments about black boxes: operator kinds and their total times, nothing else shown.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `models evaluate black-box`.
#[derive(Debug, Args)]
pub struct BlackBoxEvaluateArgs {
    /// Folder with anchor_*.csv (and latencies.csv for the interpolation), as PROFET's data.
    #[arg(conflicts_with_all = ["train", "test"])]
    pub dir: Option<PathBuf>,
    /// Fit on this folder, and judge on that of --test.
    #[arg(long, value_name = "DIR", requires = "test")]
    pub train: Option<PathBuf>,
    /// The folder to judge on.
    #[arg(long, value_name = "DIR", requires = "train")]
    pub test: Option<PathBuf>,
    /// Also leave out whole families of networks (VGG, ResNet, Inception …).
    #[arg(long)]
    pub families: bool,
    /// Also fit and judge PROFET's predictor as published: least squares, forest, network and
    /// their median (minutes).
    #[arg(long)]
    pub published: bool,
}
