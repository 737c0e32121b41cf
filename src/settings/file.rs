//! The settings file, `config.toml` in the configuration folder. Flags and environment
//! variables win over it; unknown keys are refused.
//!
//! ```toml
//! theme = "dark"
//! color = "auto"            # none, 16, 256, true, auto
//! ascii = false
//! mouse = true
//! models = "/data/models"   # trained networks, for --method habitat-mlp
//!
//! [plan]                    # defaults of `plan` and of the plan screen
//! tiers = ["on-demand", "spot"]
//! exclude_providers = ["vast"]
//! max_usd_per_hour = 20
//! spot_losses_per_hour = 0.1
//!
//! [keys]                    # an action and its keys; `habitat-tui config --keys` lists all
//! "app.quit" = ["q"]
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::pricing::Tier;
use crate::units::{Hours, UsdPerHour};

/// What the file says; a key left out is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SettingsFile {
    /// Theme by name.
    pub theme: Option<String>,
    /// `none`, `16`, `256`, `true` or `auto`.
    pub color: Option<String>,
    /// ASCII characters only.
    pub ascii: Option<bool>,
    /// Whether the mouse is used.
    pub mouse: Option<bool>,
    /// Folder of trained networks.
    pub models: Option<PathBuf>,
    /// Defaults of plans.
    pub plan: PlanDefaults,
    /// Key bindings by action.
    pub keys: BTreeMap<String, Vec<String>>,
}

/// The `[plan]` table.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlanDefaults {
    /// Ways to pay.
    pub tiers: Option<Vec<Tier>>,
    /// Only these providers.
    pub providers: Option<Vec<String>>,
    /// Never these providers.
    pub exclude_providers: Option<Vec<String>>,
    /// Only regions that begin so.
    pub regions: Option<Vec<String>>,
    /// Most dollars an hour.
    pub max_usd_per_hour: Option<UsdPerHour>,
    /// Parts that may follow one another.
    pub max_parts: Option<u32>,
    /// Use GPUs of which it is not known whether the step fits.
    pub allow_unknown_memory: Option<bool>,
    /// Boot and set-up.
    pub setup_hours: Option<Hours>,
    /// Losses of a spot machine in an hour.
    pub spot_losses_per_hour: Option<f64>,
    /// Time between checkpoints.
    pub checkpoint_interval_hours: Option<Hours>,
    /// All-reduce bandwidth inside a machine, measured.
    pub allreduce_gbps: Option<f64>,
}

impl SettingsFile {
    /// Reads the file's text.
    ///
    /// # Errors
    /// The line, the key and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        for (key, rate) in [
            ("plan.spot_losses_per_hour", file.plan.spot_losses_per_hour),
            ("plan.allreduce_gbps", file.plan.allreduce_gbps),
        ] {
            if rate.is_some_and(|rate| !rate.is_finite() || rate < 0.0) {
                return Err(format!("{key}: it must be a finite number of 0 or more"));
            }
        }
        if file.plan.max_parts.is_some_and(|parts| !(1..=3).contains(&parts)) {
            return Err("plan.max_parts: it must be 1, 2 or 3".to_owned());
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_header_reads() {
        let header = include_str!("file.rs");
        let example: Vec<&str> = header
            .lines()
            .skip_while(|line| !line.starts_with("//! ```toml"))
            .skip(1)
            .take_while(|line| !line.starts_with("//! ```"))
            .map(|line| line.trim_start_matches("//!").trim_start())
            .collect();
        let file = SettingsFile::parse(&example.join("\n")).unwrap();
        assert_eq!(file.plan.tiers, Some(vec![Tier::OnDemand, Tier::Spot]));
        assert_eq!(file.keys["app.quit"], ["q"]);
    }

    #[test]
    fn unknown_keys_and_bad_values_are_named() {
        assert!(SettingsFile::parse("colour = 1").unwrap_err().contains("colour"));
        assert!(SettingsFile::parse("[plan]\nmax_usd_per_hour = -1").unwrap_err().contains("max_usd_per_hour"));
        assert!(SettingsFile::parse("[plan]\nmax_parts = 9").unwrap_err().contains("plan.max_parts"));
        assert!(SettingsFile::parse("[plan]\nspot_losses_per_hour = -1").unwrap_err().contains("spot_losses_per_hour"));
    }
}
