//! A plan as TOML: the file that `e` on the plan screen and `plan --toml` write.
//!
//! The content is the tree of the JSON form, in tables: `[plan]`, `[workload]`, `[limits]`,
//! `[[assumption]]`, `[[part]]`, `[totals]`, `[[alternative]]`, `[[rejected]]`, `[solver]`. Times are in
//! hours, moments in ISO 8601 with zone, money in decimal strings that no reader rounds.

use serde::Serialize;

use super::plans::{AssumedJson, PartJson, RejectedJson, SolverJson, TotalJson, tree};
use crate::plan::Plan;
use crate::predict::Predictions;

#[derive(Serialize)]
struct File<'a> {
    plan: Head<'a>,
    workload: WorkloadTable<'a>,
    limits: Limits<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<TotalJson<String>>,
    solver: SolverJson<'a>,
    #[serde(rename = "part", skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PartJson<'a, String>>,
    #[serde(rename = "alternative", skip_serializing_if = "Vec::is_empty")]
    alternatives: Vec<PartJson<'a, String>>,
    #[serde(rename = "assumption")]
    assumptions: Vec<AssumedJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rejected: Vec<RejectedJson<'a>>,
}

#[derive(Serialize)]
struct Head<'a> {
    format: &'static str,
    version: u32,
    status: &'static str,
    created: String,
    tool: &'static str,
    currency: &'static str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    reasons: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
}

#[derive(Serialize)]
struct WorkloadTable<'a> {
    name: &'a str,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    precision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter_count: Option<u64>,
    host: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_on: Option<String>,
}

#[derive(Serialize)]
struct Limits<'a> {
    objective: &'a crate::plan::Objective,
    confidence: crate::plan::Confidence,
    max_parts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_hours: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_usd: Option<String>,
    #[serde(flatten)]
    offers: &'a crate::plan::Limits,
}

/// The file's text; `created` is the moment of its making.
///
/// # Errors
/// None for plans of this program; the serialiser's own otherwise.
pub fn toml(plan: &Plan, predictions: &Predictions, created: jiff::Timestamp) -> Result<String, toml::ser::Error> {
    let workload = &predictions.workload;
    let tree = tree::<String>(plan, &workload.name);
    let file = File {
        plan: Head {
            format: tree.format,
            version: tree.version,
            status: tree.status,
            created: created.to_string(),
            tool: concat!("habitat-tui ", env!("CARGO_PKG_VERSION")),
            currency: "USD",
            reasons: tree.reasons,
            warnings: tree.warnings,
            notes: tree.notes,
        },
        workload: WorkloadTable {
            name: tree.workload,
            mode: workload.mode.to_string(),
            samples: tree.work_samples,
            steps: tree.work_steps,
            batch_size: workload.batch_size,
            sequence_length: workload.sequence_length,
            precision: workload.precision.map(crate::predict::Precision::name),
            parameter_count: workload.parameter_count,
            host: tree.host,
            recorded_on: predictions.origin.as_ref().and_then(|origin| origin.gpu.as_ref()).map(ToString::to_string),
        },
        limits: Limits {
            objective: &plan.goal.objective,
            confidence: plan.goal.confidence,
            max_parts: plan.goal.max_parts,
            deadline_hours: tree.deadline_hours,
            budget_usd: tree.budget_usd,
            offers: &plan.goal.limits,
        },
        totals: tree.total,
        solver: tree.solver,
        parts: tree.parts,
        alternatives: tree.alternatives,
        assumptions: tree.assumptions,
        rejected: tree.rejected,
    };
    let made = concat!("# Made by habitat-tui ", env!("CARGO_PKG_VERSION"));
    Ok(format!("{made}. Hours and US dollars; low, mid and high of every range.\n{}", toml::to_string(&file)?))
}
