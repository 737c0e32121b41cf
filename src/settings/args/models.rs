//! Arguments of `models`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    /// The GPU to measure on.
    #[arg(long, value_name = "GPU")]
    pub to: String,
    /// How many operators.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub count: u32,
    /// Write tables to fill in into this folder.
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// Replace tables that are there.
    #[arg(long, requires = "csv")]
    pub force: bool,
    /// Folder of weights in place of the shipped models.
    #[arg(long, value_name = "DIR", env = "HABITAT_TUI_MODELS")]
    pub models: Option<PathBuf>,
    /// Folder of operators measured already, in place of measured/ beside the settings.
    #[arg(long, value_name = "DIR")]
    pub measured: Option<PathBuf>,
}
