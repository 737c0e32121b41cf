//! Arguments of `prices`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jiff::civil::Date;

use super::TableArgs;
use habitat_planning::values;

/// Arguments of `prices`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PricesArgs {
    /// The command (default: list).
    #[command(subcommand)]
    pub command: Option<PricesCommand>,
    /// How the list is written.
    #[command(flatten)]
    pub list: TableArgs,
}

/// Commands about prices.
#[derive(Debug, Subcommand)]
pub enum PricesCommand {
    /// List providers: sources of their prices, age, and number of doubtful ones.
    List(TableArgs),
    /// Fetch prices to the configuration folder.
    ///
    /// Without --from it fetches SkyPilot's public catalog, one file per provider; no other command fetches anything.
    /// Accepts SkyPilot catalogs (CSV), gpuhunt rows (CSV, JSON lines) and price files (TOML). If a file is not usable,
    /// prices of its provider stay unchanged, the others are updated, and the exit code is 2. This includes a catalog
    /// that has lost most offers of its provider, or that has a date in the future. The next run resumes an interrupted
    /// download.
    Update(PricesUpdateArgs),
}

/// Arguments of `prices update`.
#[derive(Debug, Args)]
pub struct PricesUpdateArgs {
    /// Source of the prices: a URL ({provider} in it is replaced by each provider), a file, or a folder of files. File
    /// names begin with the provider (lambda.csv).
    #[arg(long, value_name = "URL|FILE|DIR")]
    pub from: Option<PathBuf>,
    /// Only this provider (repeatable); for a single file, its provider.
    #[arg(long, value_name = "NAME")]
    pub provider: Vec<String>,
    /// Date of the prices, such as 2026-11-20 (default: the server's last change of the file, else the day of the
    /// download; none for local files).
    #[arg(long, value_name = "DATE")]
    pub as_of: Option<Date>,
    /// Give up if no data arrives for this long.
    #[arg(long, value_name = "SECONDS", default_value = "30s", value_parser = values::seconds)]
    pub timeout: std::time::Duration,
    /// Give up if a file takes longer than this.
    #[arg(long, value_name = "SECONDS", default_value = "10m", value_parser = values::seconds)]
    pub max_time: std::time::Duration,
    /// Maximum size of one file in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub max_size: u64,
    /// Overwrite price files that were written by hand.
    #[arg(long)]
    pub force: bool,
    /// Accept a catalog even if most offers of its provider would be lost.
    #[arg(long)]
    pub accept_loss: bool,
    /// Show changes, but write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}
