//! Arguments of `prices`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::civil::Date;

use super::{FileArgs, PagerArgs, TableForm};
use crate::settings::values;

/// Arguments of `prices`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PricesArgs {
    /// What to do; without one, list.
    #[command(subcommand)]
    pub command: Option<PricesCommand>,
    /// Of the list.
    #[command(flatten)]
    pub list: PricesListArgs,
}

/// What can be done with prices.
#[derive(Debug, Subcommand)]
pub enum PricesCommand {
    /// List the providers: where their prices are from, how old they are, how many are in doubt.
    List(PricesListArgs),
    /// Fetch prices, and write them into the configuration folder.
    ///
    /// Without --from it fetches the public catalog of SkyPilot, a file a provider; nothing is ever
    /// fetched but by this command. Takes catalogs of SkyPilot (CSV), rows of gpuhunt (CSV, JSON
    /// lines) and price files (TOML). A file that cannot be used leaves the prices of its provider
    /// as they are, and the others are done; the exit code is 2 then. So does a catalog that has
    /// lost most offers of its provider, or has a date in the future. A download that breaks off is
    /// taken up by the next run.
    Update(PricesUpdateArgs),
}

/// Arguments of `prices list`.
#[derive(Debug, Args)]
pub struct PricesListArgs {
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

/// Arguments of `prices update`.
#[derive(Debug, Args)]
pub struct PricesUpdateArgs {
    /// Where the prices are: an address ({provider} in it stands for each provider), a file, or a
    /// folder of files. A file's name begins with its provider (lambda.csv).
    #[arg(long, value_name = "URL|FILE|DIR")]
    pub from: Option<PathBuf>,
    /// Only this provider (may be repeated); of one file, the provider that it is of.
    #[arg(long, value_name = "NAME")]
    pub provider: Vec<String>,
    /// Date of the prices, as 2026-11-20. Without it: when the server says the file changed, else
    /// the day of the download; files on disk have none.
    #[arg(long, value_name = "DATE")]
    pub as_of: Option<Date>,
    /// Give up when nothing arrives for so long.
    #[arg(long, value_name = "SECONDS", default_value = "30s", value_parser = values::seconds)]
    pub timeout: std::time::Duration,
    /// Give up a file that is not there whole after so long.
    #[arg(long, value_name = "SECONDS", default_value = "10m", value_parser = values::seconds)]
    pub max_time: std::time::Duration,
    /// Most bytes of one file.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub max_size: u64,
    /// Replace files of prices that were written by hand.
    #[arg(long)]
    pub force: bool,
    /// Take a catalog although most offers of its provider would be gone.
    #[arg(long)]
    pub accept_loss: bool,
    /// Show what would change, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
