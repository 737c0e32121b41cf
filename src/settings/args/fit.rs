//! Arguments of `fit` and `sweep`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::FitLogArgs;
use crate::settings::values;

/// Arguments of `fit`: a log of runs, or what else to fit.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct FitArgs {
    /// What to fit, where it is no log.
    #[command(subcommand)]
    pub command: Option<FitCommand>,
    /// The log.
    #[command(flatten)]
    pub log: Option<FitLogArgs>,
}

/// Models that are fitted in seconds to what the user has.
#[derive(Debug, Subcommand)]
pub enum FitCommand {
    /// Lines of kernels, layers and steps from recorded steps (Li et al., MICRO 2023), for
    /// --method kernel-wise, layer-wise and end-to-end.
    #[command(name = "kernelwise")]
    KernelWise(FitKernelWiseArgs),
    /// The black-box model from tables of operator kinds and step times (PROFET's form), for
    /// predict and plan --black-box and --method black-box.
    #[command(name = "black-box")]
    BlackBox(FitBlackBoxArgs),
}

/// Arguments of `fit kernelwise`.
#[derive(Debug, Args)]
pub struct FitKernelWiseArgs {
    /// Profiles or traces of recorded steps, or folders of profiles. Several networks make
    /// the ranges; three GPUs or more let lines go to other GPUs.
    #[arg(value_name = "PROFILES", required_unless_present = "tables")]
    pub profiles: Vec<PathBuf>,
    /// Folder of operator tables (linear, bmm, conv2d, softmax, layernorm, elementwise: .csv,
    /// .csv.gz), for the kinds of layers that no step has.
    #[arg(long, value_name = "DIR")]
    pub tables: Option<PathBuf>,
    /// The file to write (.json, .json.gz or .json.zst).
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the file if it is there.
    #[arg(long)]
    pub force: bool,
    /// Say what was fitted as JSON (habitat-fit-kernel-wise, version 1).
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `fit black-box`.
#[derive(Debug, Args)]
pub struct FitBlackBoxArgs {
    /// Folder with anchor_*.csv and latencies.csv (.csv, .csv.gz or .csv.zst); three networks
    /// or more.
    #[arg(value_name = "TABLES")]
    pub tables: PathBuf,
    /// Folder to write blackbox.json to (default: where predictions look for it).
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace the model that is there.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// What to vary.
    #[command(subcommand)]
    pub command: SweepCommand,
}

/// Hypothetical versions of a GPU.
#[derive(Debug, Subcommand)]
pub enum SweepCommand {
    /// The step time over the memory bandwidth of a GPU that is otherwise as it is, and where
    /// more of it no longer pays.
    Bandwidth(SweepBandwidthArgs),
}

/// Arguments of `sweep bandwidth`.
#[derive(Debug, Args)]
pub struct SweepBandwidthArgs {
    /// A profile, trace or op list; without it, the embedded sample.
    pub file: Option<PathBuf>,
    /// The GPU.
    #[arg(long, value_name = "GPU", default_value = "titan-rtx")]
    pub gpu: String,
    /// The lowest bandwidth, GB/s.
    #[arg(long, value_name = "GB/S", default_value = "200", value_parser = values::gigabytes)]
    pub from: f64,
    /// The highest bandwidth, GB/s.
    #[arg(long, value_name = "GB/S", default_value = "1200", value_parser = values::gigabytes)]
    pub to: f64,
    /// Steps between points, GB/s.
    #[arg(long, value_name = "GB/S", default_value = "100", value_parser = values::gigabytes)]
    pub by: f64,
    /// Lines that `fit kernelwise` wrote (default: kernelwise.json in the folder of weights,
    /// else the shipped ones).
    #[arg(long, value_name = "FILE")]
    pub kernel_wise: Option<PathBuf>,
    /// Folder of weights, where kernelwise.json is looked for.
    #[arg(long, value_name = "DIR", env = "HABITAT_TUI_MODELS")]
    pub models: Option<PathBuf>,
    /// As JSON (habitat-bandwidth-sweep, version 1).
    #[arg(long)]
    pub json: bool,
}
