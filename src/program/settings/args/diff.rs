//! Arguments of `diff`.

use crate::settings::choices::choice;
use std::path::PathBuf;

use clap::Args;

use super::{FileArgs, PagerArgs, TableForm};
use habitat_planning::values;
use habitat_step::profile::breakdown::GroupBy;

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The earlier recording: a profile, a trace, or any file that the screens open.
    pub first: PathBuf,
    /// The recording to compare with it, such as today's.
    pub second: PathBuf,
    /// Parts to match between the recordings.
    #[arg(long, value_parser = choice::<GroupBy>(), default_value = GroupBy::Operation.name())]
    pub by: GroupBy,
    /// Show every part, not only those with most of the difference (JSON and CSV always have all).
    #[arg(long)]
    pub all: bool,
    /// Exit with code 3 if the second step is longer than the first by more than this, such as 5%. Noise is not taken
    /// into account.
    #[arg(long, value_name = "PERCENT", value_parser = values::percent, allow_hyphen_values = true)]
    pub fail_over: Option<f64>,
    /// Also write the verdict of --fail-over as a test report (`JUnit`), which CI systems show.
    #[arg(long, value_name = "FILE", help_heading = "Output", requires = "fail_over")]
    pub junit: Option<PathBuf>,
    /// Output format.
    #[command(flatten)]
    pub form: TableForm,
    /// Also write a report to share: one HTML file, without scripts or network.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// Output file.
    #[command(flatten)]
    pub file_args: FileArgs,
}
