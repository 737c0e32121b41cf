//! Arguments that say what is to be done, and within which limits.

use clap::{Args, ValueEnum};

use crate::pricing::Tier;
use crate::settings::values;
use crate::units::{Hours, Usd, UsdPerHour};

/// How much is to be done, within which limits.
#[derive(Debug, Clone, Default, Args)]
pub struct GoalArgs {
    /// Work in samples (1.28M).
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    pub samples: Option<f64>,
    /// Work in steps of the recorded batch size.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    pub steps: Option<u64>,
    /// Work in passes over a data set of --dataset samples.
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work", requires = "dataset")]
    pub epochs: Option<f64>,
    /// Samples of the data set, for --epochs.
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", requires = "epochs")]
    pub dataset: Option<f64>,
    /// Work in tokens (needs the sequence length).
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    pub tokens: Option<f64>,
    /// Latest finish (24h, "1d 12h"), set-up included.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Limits")]
    pub deadline: Option<Hours>,
    /// Most to spend in all, in US dollars.
    #[arg(long, value_name = "USD", value_parser = values::usd, allow_hyphen_values = true, help_heading = "Limits")]
    pub budget: Option<Usd>,
    /// Most to spend an hour, in US dollars.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Limits")]
    pub max_price: Option<UsdPerHour>,
    /// What is best within the limits.
    #[arg(long, value_enum, help_heading = "Limits")]
    pub objective: Option<ObjectiveArg>,
    /// What an hour of waiting is worth, in US dollars: minimise cost plus this.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Limits", conflicts_with = "objective")]
    pub hour_value: Option<UsdPerHour>,
    /// Whether the expected time or the upper end of its range has to meet the deadline.
    #[arg(long, value_enum, help_heading = "Limits")]
    pub confidence: Option<ConfidenceArg>,
    /// Parts that may follow one another (2 allows "spot, then on demand").
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3), help_heading = "Limits")]
    pub max_parts: Option<u32>,
    /// Ways to pay: on-demand, spot, reserved, owned.
    #[arg(long, value_name = "TIER", value_delimiter = ',', value_parser = values::tier, help_heading = "Offers")]
    pub tiers: Vec<Tier>,
    /// Only these GPUs.
    #[arg(long = "gpus", value_name = "GPU", value_delimiter = ',', help_heading = "Offers")]
    pub gpus: Vec<String>,
    /// Only these providers.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Offers")]
    pub providers: Vec<String>,
    /// Never these providers.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Offers")]
    pub exclude_providers: Vec<String>,
    /// Only regions whose names begin so.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', help_heading = "Offers")]
    pub regions: Vec<String>,
    /// Fewest GPUs.
    #[arg(long, value_name = "N", help_heading = "Offers")]
    pub min_gpus: Option<u32>,
    /// Most GPUs.
    #[arg(long, value_name = "N", help_heading = "Offers")]
    pub max_gpus: Option<u32>,
    /// Use GPUs of which it is not known whether the step fits in their memory.
    #[arg(long, help_heading = "Offers")]
    pub allow_unknown_memory: bool,
    /// Boot and set-up before useful work.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub setup: Option<Hours>,
    /// Losses of a spot machine in an hour.
    #[arg(long, value_name = "RATE", value_parser = values::count, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub spot_losses_per_hour: Option<f64>,
    /// Time between checkpoints.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub checkpoint_interval: Option<Hours>,
    /// All-reduce bandwidth inside a machine that you measured, in GB/s.
    #[arg(long, value_name = "GBPS", value_parser = values::gigabytes, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub allreduce_gbps: Option<f64>,
}

/// `--objective`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectiveArg {
    /// Lowest cost.
    Cost,
    /// Earliest finish.
    Time,
}

/// `--confidence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConfidenceArg {
    /// The expected time meets the deadline.
    Expected,
    /// The upper end of the range meets the deadline.
    High,
}
