//! The settings file, `config.toml` in the configuration folder. Flags and environment variables take precedence;
//! unknown keys are errors.
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
//! no_marketplace = true     # no hosts on peer-to-peer markets
//! max_usd_per_hour = 20
//! spot_losses_per_hour = 0.1
//!
//! [[plan.quota]]            # most GPUs at once; region, gpu and tier are optional
//! provider = "aws"
//! region = "us-east"
//! gpus = 8
//!
//! [launch]                  # how exported plans start; the flags of `plan` have the same names
//! command = "python train.py"
//! partition = "gpu"
//! env = { WANDB_PROJECT = "demo" }
//! mounts = { "/checkpoints" = "s3://bucket/run" }
//!
//! [keys]                    # an action and its keys; `habitat-tui config --keys` lists all
//! "app.quit" = ["q"]
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::goal_args::GoalArgs;
use habitat_reports::launch::{Launch, LaunchError};

/// Contents of the file; a missing key is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SettingsFile {
    /// Theme by name.
    pub theme: Option<String>,
    /// `none`, `16`, `256`, `true` or `auto`.
    pub color: Option<String>,
    /// ASCII characters only.
    pub ascii: Option<bool>,
    /// Whether to capture the mouse.
    pub mouse: Option<bool>,
    /// Folder of trained networks.
    pub models: Option<PathBuf>,
    /// Defaults of plans.
    pub plan: GoalArgs,
    /// How plans start.
    pub launch: Launch,
    /// Key bindings by action.
    pub keys: BTreeMap<String, Vec<String>>,
}

/// Error in the settings file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Invalid TOML, an unknown key or a value of the wrong type; with the line.
    #[error("{0}")]
    Form(String),
    /// A value out of range.
    #[error("plan.{key}: {problem}")]
    Value {
        /// The key in `[plan]`.
        key: &'static str,
        /// The problem.
        problem: std::borrow::Cow<'static, str>,
    },
    /// A key that only a single job can have.
    #[error("plan.{0}: is specific to a job; pass it on the command line, or set it in a jobs file (`plan-jobs`)")]
    OneJob(&'static str),
    /// A value of `[launch]`.
    #[error("launch: {0}")]
    Launch(#[from] LaunchError),
}

impl SettingsFile {
    /// Parses the file's text.
    ///
    /// # Errors
    /// [`SettingsError`] with the line or the key, and the problem.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let file: Self =
            toml::from_str(text).map_err(|error| SettingsError::Form(error.to_string().trim_end().to_owned()))?;
        if let Some(key) = file.plan.of_one_job().next() {
            return Err(SettingsError::OneJob(key));
        }
        file.launch.check()?;
        file.plan.check().map_err(|(key, problem)| SettingsError::Value { key, problem })?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_planning::pricing::Tier;

    #[test]
    fn the_example_of_the_header_reads() {
        let file = SettingsFile::parse(&super::super::example(include_str!("file.rs"))).unwrap();
        assert_eq!(file.plan.tiers, Some(vec![Tier::OnDemand, Tier::Spot]));
        assert_eq!(file.plan.quota[0].to_string(), "8 at aws, us-east");
        assert_eq!(file.keys["app.quit"], ["q"]);
    }

    #[test]
    fn unknown_keys_and_bad_values_are_named() {
        let said = |text: &str| SettingsFile::parse(text).unwrap_err().to_string();
        assert!(said("colour = 1").contains("colour"));
        assert!(said("[plan]\nmax_usd_per_hour = -1").contains("max_usd_per_hour"));
        assert!(said("[plan]\nmax_machines = 0").contains("plan.max_machines"));
        assert!(said("[plan]\nnetwork_gbit_per_second = 0").contains("plan.network_gbit_per_second"));
        assert!(said("[plan]\nsharding = \"some\"").contains("zero3"));
        assert!(said("[plan]\nmax_parts = 9").contains("plan.max_parts"));
        assert!(said("[plan]\nspot_losses_per_hour = -1").contains("spot_losses_per_hour"));
        // Keys of a single job belong on the command line.
        assert!(said("[plan]\nbudget = 100").contains("budget"));
    }
}
