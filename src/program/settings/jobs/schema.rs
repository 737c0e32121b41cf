//! The jobs file as typed, and its JSON Schema.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::json;
use toml::{Spanned, Table};

use super::super::goal_args::Typed;
use super::{JobTable, JobsFile, MachineTable};
use habitat_base::units::{Usd, UsdPerHour};
use habitat_planning::deadline::Deadline;
use habitat_planning::plan::{Confidence, Quota};
use habitat_reports::launch::Launch;

/// A file of `habitat-tui plan-jobs`. Amounts and durations are strings as typed ("24h", "1.28M", "$900"), or numbers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "habitat-tui jobs", extend("required" = ["job"]))]
pub struct TopTable {
    /// Latest finish of every job: "24h", "Friday 18:00", "2026-12-04".
    #[serde(with = "Typed")]
    pub deadline: Option<Deadline>,
    /// Maximum total cost of all jobs, in US dollars.
    #[serde(with = "Typed")]
    pub budget: Option<Usd>,
    /// Maximum cost per hour of all jobs that run at the same time, in US dollars.
    #[serde(with = "Typed")]
    pub max_usd_per_hour: Option<UsdPerHour>,
    /// Price of each hour after the deadline, which jobs may then miss.
    #[serde(with = "Typed")]
    pub late_usd_per_hour: Option<UsdPerHour>,
    /// Price of each hour until all jobs have ended.
    #[serde(with = "Typed")]
    pub hour_value: Option<UsdPerHour>,
    /// End of the time range that must meet the deadlines.
    pub confidence: Option<Confidence>,
    /// Whether jobs on rented machines may wait for others.
    pub wait: bool,
    /// Whether jobs rent what the machines of the file cannot do.
    pub rent: bool,
    /// Most GPUs at once of all jobs, by provider.
    pub quota: Vec<Quota>,
    /// The jobs.
    #[schemars(with = "Vec<JobTable>")]
    pub(super) job: Vec<Spanned<Table>>,
    /// Your own machines.
    #[schemars(with = "Vec<MachineTable>")]
    pub(super) machine: Vec<Spanned<MachineTable>>,
    /// How all jobs start (`plan-jobs --export`).
    pub launch: Launch,
}

impl JobsFile {
    /// JSON Schema of the format, of the draft that editors of TOML know.
    pub fn json_schema() -> serde_json::Value {
        // Most are null, which TOML does not have.
        let without_defaults = RecursiveTransform(|schema: &mut Schema| drop(schema.remove("default")));
        let settings = SchemaSettings::draft07().with_transform(without_defaults);
        settings.into_generator().into_root_schema_for::<TopTable>().to_value()
    }
}

/// Completes the schema of a job by rules across keys.
pub(super) fn complete(schema: &mut Schema) {
    schema.insert("required".to_owned(), json!(["name", "profile"]));
    let works = [&["samples"][..], &["steps"], &["epochs", "dataset"], &["tokens"]];
    schema.insert("oneOf".to_owned(), works.map(|keys| json!({"required": keys})).to_vec().into());
    // A job of several has one part.
    schema.get_mut("properties").and_then(|keys| keys.as_object_mut()?.remove("max_parts"));
}
