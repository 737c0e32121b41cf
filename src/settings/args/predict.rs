//! Arguments of `predict` and `plan`.

use std::path::PathBuf;

use clap::Args;

use super::{BlackBoxArgs, GoalArgs, InputArgs, TableForm};

/// Arguments of `predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// In place of a recorded step.
    #[command(flatten)]
    pub black_box: BlackBoxArgs,
    /// GPUs to predict for (all of the catalog without it).
    #[arg(long = "to", value_name = "GPU", value_delimiter = ',')]
    pub to: Vec<String>,
    /// Every operation too.
    #[arg(long)]
    pub operations: bool,
    /// What every method says, what each was found to err by, and which is taken.
    #[arg(long, conflicts_with_all = ["operations", "black_box"])]
    pub all_methods: bool,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// In place of a recorded step.
    #[command(flatten)]
    pub black_box: BlackBoxArgs,
    /// The goal.
    #[command(flatten)]
    pub goal: GoalArgs,
    /// As JSON.
    #[arg(long, help_heading = "Output", conflicts_with = "toml")]
    pub json: bool,
    /// As TOML.
    #[arg(long, help_heading = "Output")]
    pub toml: bool,
    /// Write to this file in place of standard output (TOML unless --json).
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there.
    #[arg(long, help_heading = "Output")]
    pub force: bool,
    /// List every rejected offer (the text form shows a few).
    #[arg(long, help_heading = "Output")]
    pub all: bool,
}
