//! Arguments of `diff`.

use std::path::PathBuf;

use clap::Args;

use super::{FileArgs, PagerArgs, TableForm};
use crate::profile::breakdown::GroupBy;
use crate::settings::values;

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The recording to compare with: a profile, a trace, or any file that the screens open.
    pub first: PathBuf,
    /// The recording that is compared, such as that of today.
    pub second: PathBuf,
    /// What is matched with each other.
    #[arg(long, value_enum, default_value_t = GroupBy::Operation)]
    pub by: GroupBy,
    /// Every part, not those alone that make most of the difference (JSON and CSV always have all).
    #[arg(long)]
    pub all: bool,
    /// End with exit code 3 where the second step is longer than the first by more than this (5%). It
    /// goes by the measured times, whether or not they may differ by chance.
    #[arg(long, value_name = "PERCENT", value_parser = values::percent, allow_hyphen_values = true)]
    pub fail_over: Option<f64>,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}
