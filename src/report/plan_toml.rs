//! A plan as TOML: the file that `e` on the plan screen and `plan --toml` write.
//!
//! The content is that of the JSON form, in tables: `[plan]`, `[workload]`, `[limits]`,
//! `[[assumption]]`, `[[part]]`, `[totals]`, `[[alternative]]`, `[[rejected]]`, `[solver]`. Times are in
//! hours, moments in ISO 8601 with zone, money in decimal strings that no reader rounds.

use serde::Serialize;

use super::offers::TrustJson;
use super::plans::{rejection, status};
use crate::plan::{Part, Plan};
use crate::predict::Predictions;
use crate::units::Range;

#[derive(Serialize)]
struct File<'a> {
    plan: Head<'a>,
    workload: WorkloadTable<'a>,
    limits: Limits<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    totals: Option<Totals>,
    solver: Solver<'a>,
    #[serde(rename = "part", skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PartTable<'a>>,
    #[serde(rename = "alternative", skip_serializing_if = "Vec::is_empty")]
    alternatives: Vec<PartTable<'a>>,
    #[serde(rename = "assumption")]
    assumptions: Vec<Assumption>,
    #[serde(rename = "rejected", skip_serializing_if = "Vec::is_empty")]
    rejected: Vec<Rejected<'a>>,
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

#[derive(Serialize)]
struct Assumption {
    name: &'static str,
    value: String,
    source: &'static str,
}

#[derive(Serialize)]
struct PartTable<'a> {
    offer: &'a str,
    provider: &'a str,
    region: &'a str,
    instance_type: &'a str,
    gpu: &'a str,
    gpu_count: u32,
    nodes: u32,
    tier: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    global_batch_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<f64>,
    price_usd_per_hour: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_as_of: Option<String>,
    #[serde(flatten)]
    trust: TrustJson,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
    step_time_us: Range<f64>,
    hours: Range<f64>,
    cost_usd: Range<String>,
}

#[derive(Serialize)]
struct Totals {
    hours: Range<f64>,
    cost_usd: Range<String>,
}

#[derive(Serialize)]
struct Solver<'a> {
    name: &'a str,
    configurations: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<f64>,
}

#[derive(Serialize)]
struct Rejected<'a> {
    offer: &'a str,
    kind: &'static str,
    reason: &'a str,
}

/// The file's text; `created` is the moment of its making.
///
/// # Errors
/// None for plans of this program; the serialiser's own otherwise.
pub fn toml(plan: &Plan, predictions: &Predictions, created: jiff::Timestamp) -> Result<String, toml::ser::Error> {
    let workload = &predictions.workload;
    let file = File {
        plan: Head {
            format: "habitat-plan",
            version: 1,
            status: status(plan.status),
            created: created.to_string(),
            tool: concat!("habitat-tui ", env!("CARGO_PKG_VERSION")),
            currency: "USD",
            reasons: &plan.reasons,
            warnings: plan.warnings.iter().map(|warning| warning.text.as_str()).collect(),
            notes: &plan.notes,
        },
        workload: WorkloadTable {
            name: &workload.name,
            mode: workload.mode.to_string(),
            samples: plan.work.samples(),
            steps: plan.work.steps(),
            batch_size: workload.batch_size,
            sequence_length: workload.sequence_length,
            precision: workload.precision.map(crate::predict::Precision::name),
            parameter_count: workload.parameter_count,
            recorded_on: predictions.origin.as_ref().and_then(|origin| origin.gpu.as_ref()).map(ToString::to_string),
        },
        limits: Limits {
            objective: &plan.goal.objective,
            confidence: plan.goal.confidence,
            max_parts: plan.goal.max_parts,
            deadline_hours: plan.goal.deadline.map(Into::into),
            budget_usd: plan.goal.budget.map(|budget| money(budget.get())),
            offers: &plan.goal.limits,
        },
        totals: plan.total.as_ref().map(|total| Totals { hours: numbers(total.hours), cost_usd: amounts(total.cost) }),
        solver: Solver { name: &plan.solver.name, configurations: plan.solver.configurations, gap: plan.solver.gap },
        parts: plan.parts.iter().map(part).collect(),
        alternatives: plan.alternatives.iter().map(part).collect(),
        assumptions: plan
            .goal
            .assumptions
            .describe()
            .into_iter()
            .map(|assumed| Assumption { name: assumed.name, value: assumed.value, source: assumed.source })
            .collect(),
        rejected: plan
            .rejected
            .iter()
            .map(|rejected| Rejected {
                offer: rejected.offer.as_str(),
                kind: rejection(rejected.kind),
                reason: &rejected.reason,
            })
            .collect(),
    };
    let mut text = format!(
        "# Made by habitat-tui {}. Hours and US dollars; low, mid and high of every range.\n",
        env!("CARGO_PKG_VERSION")
    );
    text.push_str(&toml::to_string(&file)?);
    Ok(text)
}

fn part(part: &Part) -> PartTable<'_> {
    PartTable {
        offer: part.offer.as_str(),
        provider: &part.provider,
        region: &part.region,
        instance_type: &part.instance_type,
        gpu: part.gpu.as_str(),
        gpu_count: part.gpu_count,
        nodes: part.nodes,
        tier: part.tier.to_string(),
        batch_size: part.batch_size,
        global_batch_size: part.global_batch_size,
        samples: part.work.samples(),
        steps: part.work.steps(),
        price_usd_per_hour: money(part.price.get()),
        price_as_of: part.price_as_of.map(|date| date.to_string()),
        trust: (&part.trust).into(),
        notes: &part.notes,
        step_time_us: part.step_time_us,
        hours: numbers(part.hours),
        cost_usd: amounts(part.cost),
    }
}

fn numbers(range: Range<crate::units::Hours>) -> Range<f64> {
    range.map(crate::units::Hours::get)
}

fn amounts(range: Range<crate::units::Usd>) -> Range<String> {
    range.map(|amount| money(amount.get()))
}

/// Six decimals, trailing zeros beyond the cents left out.
fn money(amount: f64) -> String {
    let text = format!("{amount:.6}");
    let cents = text.len() - 4;
    let kept = text.trim_end_matches('0').len().max(cents);
    text[..kept].to_owned()
}

#[cfg(test)]
mod tests {
    use super::money;

    #[test]
    fn money_keeps_cents_and_what_follows_them() {
        assert_eq!(money(12.0), "12.00");
        assert_eq!(money(0.5089), "0.5089");
        assert_eq!(money(1234.5), "1234.50");
        assert_eq!(money(0.000_000_1), "0.00");
    }
}
