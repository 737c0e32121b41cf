//! Arguments of the commands that print what the program knows.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Forms of a table.
#[derive(Debug, Clone, Copy, Default, Args)]
#[group(multiple = false)]
pub struct TableForm {
    /// As JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// As CSV.
    #[arg(long, help_heading = "Output")]
    pub csv: bool,
    /// As a Markdown table.
    #[arg(long, help_heading = "Output")]
    pub markdown: bool,
}

impl TableForm {
    /// Whether it is none of them: text for people.
    pub const fn is_text(self) -> bool {
        !(self.json || self.csv || self.markdown)
    }
}

/// Arguments of `gpus`.
#[derive(Debug, Args)]
pub struct GpusArgs {
    /// Only GPUs with this in slug, name or architecture.
    pub filter: Option<String>,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
    /// Print the catalog file of one GPU, to start your own from.
    #[arg(long, value_name = "GPU", conflicts_with_all = ["filter", "json", "csv", "markdown"])]
    pub toml: Option<String>,
}

/// Arguments of `offers`.
#[derive(Debug, Args)]
pub struct OffersArgs {
    /// Only offers with this in provider, region (or where it is), instance type or GPU.
    pub filter: Option<String>,
    /// Only this GPU.
    #[arg(long)]
    pub gpu: Option<String>,
    /// No offers of hosts on peer-to-peer markets.
    #[arg(long)]
    pub no_marketplace: bool,
    /// Offers that plans do not use as well, with the reason.
    #[arg(long)]
    pub all: bool,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Which form.
    #[arg(value_enum, default_value_t = SchemaArg::Profile)]
    pub of: SchemaArg,
}

/// Forms that have a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaArg {
    /// `*.habitat.json`.
    Profile,
    /// What `predict --json` prints.
    Predictions,
    /// What `predict --all-methods --json` prints.
    Comparison,
    /// What `predict --difference --json` prints.
    Difference,
    /// What `diff --json` prints.
    Diff,
    /// What `plan --json` prints.
    Plan,
    /// What `plan-jobs --json` prints.
    PlanJobs,
    /// `*.blackbox.json`.
    BlackBox,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files to check: profiles (.json…); catalog and price files, calibrations, plans, jobs, themes, settings (.toml).
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell.
    pub shell: clap_complete::Shell,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print the key bindings in the form of the settings file.
    #[arg(long)]
    pub keys: bool,
}
