//! Arguments of `jobs`, `join` and `history`.

use clap::Args;

use super::TableArgs;

/// Arguments of `jobs`.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// Remove these finished jobs from the list, with their reports and histories.
    ///
    /// Their profiles and outputs stay. A job that started on another machine needs --force: it may still run there.
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with_all = ["json", "csv", "markdown", "output"])]
    pub remove: Vec<String>,
    /// As lines of JSON, one for each job.
    #[arg(long, conflicts_with_all = ["json", "csv", "markdown", "output", "remove"], help_heading = "Output")]
    pub json_lines: bool,
    /// How the table is written.
    #[command(flatten)]
    pub table: TableArgs,
}

/// Arguments of `join`.
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// The job, as `jobs` names it (default: the latest that runs, else the latest).
    pub name: Option<String>,
    /// Print what happens as lines of JSON instead of opening the screens, until the job ends.
    ///
    /// Needs no terminal. When the reader stops, the job goes on.
    #[arg(long, help_heading = "Output")]
    pub json_lines: bool,
}

/// Arguments of `history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The job, as `jobs` names it (default: the latest that runs, else the latest).
    pub name: Option<String>,
    /// The last steps one by one, in a table.
    #[arg(long)]
    pub steps: bool,
    /// As lines of JSON, one for each minute or step (--steps), and those to come until the job ends.
    #[arg(long, conflicts_with_all = ["json", "csv", "markdown", "output"], help_heading = "Output")]
    pub json_lines: bool,
    /// How the table is written.
    #[command(flatten)]
    pub table: TableArgs,
}
