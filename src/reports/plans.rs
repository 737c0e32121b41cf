//! Plan as tables and as JSON (`habitat-plan`, version 2).

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::beside::{self, BesideJson, FallbackJson, LongerJson};
use super::parts::{self, PartJson, UsesJson, part};
use super::table::{Cell, Column, Table};
use super::words::Note;
use super::words::assumed::{Assumed, assumed};
use habitat_base::units::{Hours, KilogramsCo2e, KilowattHours, Range, Usd};
use habitat_planning::plan::{Data, Limits, Plan, PlanStatus, Rejection, RejectionKind, SolverReport, Switch, Total};

/// Output of `plan --json`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "habitat-tui plan")]
pub struct PlanJson<'a> {
    /// Always `habitat-plan`.
    pub format: &'static str,
    /// Version of the format, 2.
    pub version: u32,
    /// `optimal`, `gap_limit`, `time_limit` or `infeasible`.
    #[schemars(with = "String")]
    pub status: PlanStatus,
    /// Name of the workload.
    pub workload: &'a str,
    /// Whether the steps include waiting for the host: `as-recorded` or `keeps-up`.
    pub host: &'static str,
    /// Work in samples; absent if the batch size is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_samples: Option<f64>,
    /// Work in steps of one GPU, if it is not known in samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_steps: Option<f64>,
    /// Requested number of samples per optimizer step on all GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_batch_size: Option<u64>,
    /// Requested deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_hours: Option<f64>,
    /// End of the hours that has to meet the deadline and by which plans are compared: `expected` (the middle) or
    /// `high`.
    pub confidence: &'static str,
    /// Requested budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// Limits on offers.
    pub limits: &'a Limits,
    /// Data and their location; absent if transfer and storage are free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a Data>,
    /// Parts to run one after another; empty without a plan.
    pub parts: Vec<PartJson<'a>>,
    /// Totals of all parts; absent without a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<TotalJson>,
    /// Offer that takes over from spot machines in time for the deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<&'a Switch>,
    /// The next best offers.
    pub alternatives: Vec<PartJson<'a>>,
    /// Offers that the user would have to accept first, best first.
    pub beside: Vec<BesideJson<'a>>,
    /// Outcome if an accepted risk of the only part comes true; absent for a firm offer and for several parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackJson>,
    /// An offer that costs a little more than the plan and takes at most half the time. If the goal is the earliest
    /// finish: one that takes a little longer and costs at most half. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bargain: Option<PartJson<'a>>,
    /// The cheapest plan, if it takes over 60 days and gave way to this one, which takes at most half the time for at
    /// most a quarter more. Only without a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longer: Option<LongerJson>,
    /// The own machines of `--own` with all the work within the limits, most GPUs first; absent without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<PartJson<'a>>,
    /// One of them with a larger global batch than the recorded one, if that is clearly faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub larger_batch: Option<PartJson<'a>>,
    /// Rejected offers with their reasons.
    pub rejected: Vec<RejectedJson<'a>>,
    /// Reasons why no plan exists, and changes that would allow one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Note>,
    /// Assumptions with their sources.
    pub assumptions: Vec<Assumed>,
    /// The solver.
    pub solver: &'a SolverReport,
    /// Warnings on times and costs; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Note>,
    /// Fallbacks that affect the result.
    pub notes: Vec<Note>,
}

/// A rejected offer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RejectedJson<'a> {
    /// Name of the offer.
    offer: &'a str,
    /// Kind of reason.
    #[schemars(with = "String")]
    kind: RejectionKind,
    /// The reason, with the numbers.
    reason: Note,
}

impl<'a> RejectedJson<'a> {
    fn new(rejection: &'a Rejection) -> Self {
        let Rejection { offer, reason } = rejection;
        Self { offer: offer.as_str(), kind: reason.kind(), reason: Note::new(reason) }
    }
}

/// A plan's time, cost and emissions.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TotalJson {
    /// Elapsed hours.
    pub hours: Range<f64>,
    /// Cost.
    pub cost_usd: Range<f64>,
    /// Breakdown of the cost; the entries add up to it.
    pub cost_by_usd: UsesJson,
    /// Energy, in kWh; absent if unknown for any part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_kwh: Option<Range<f64>>,
    /// Emissions, in kg of CO2 equivalent; absent if unknown for any part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub co2_kg: Option<Range<f64>>,
}

impl TotalJson {
    pub(super) fn new(total: &Total) -> Self {
        Self {
            hours: total.hours.map(Hours::get),
            cost_usd: total.cost.map(Usd::get),
            cost_by_usd: UsesJson::new(&total.cost_by),
            energy_kwh: total.footprint.energy.map(|energy| energy.map(KilowattHours::get)),
            co2_kg: total.footprint.emissions.map(|emitted| emitted.map(KilogramsCo2e::get)),
        }
    }
}

/// Builds the JSON form.
pub fn json<'a>(plan: &'a Plan, workload: &'a str) -> PlanJson<'a> {
    PlanJson {
        format: "habitat-plan",
        version: 2,
        status: plan.status,
        workload,
        host: plan.host.name(),
        work_samples: plan.work.samples(),
        work_steps: plan.work.steps(),
        global_batch_size: plan.goal.global_batch,
        deadline_hours: plan.goal.deadline.map(Into::into),
        confidence: plan.goal.confidence.name(),
        budget_usd: plan.goal.budget.map(Into::into),
        limits: &plan.goal.limits,
        data: plan.goal.data.as_ref(),
        parts: plan.parts.iter().map(part).collect(),
        total: plan.total.as_ref().map(TotalJson::new),
        switch: plan.switch.as_ref(),
        alternatives: plan.alternatives.iter().map(part).collect(),
        beside: beside::json(plan),
        fallback: plan.fallback.as_ref().map(|it| FallbackJson::new(it.setback, it.then.as_ref())),
        bargain: plan.bargain.as_ref().map(part),
        longer: plan.longer.as_ref().map(LongerJson::new),
        own: plan.own.iter().map(part).collect(),
        larger_batch: plan.larger_batch.as_ref().map(part),
        rejected: plan.rejected.iter().map(RejectedJson::new).collect(),
        reasons: Note::all(&plan.reasons),
        assumptions: assumed(&plan.goal),
        solver: &plan.solver,
        warnings: Note::all(&plan.warnings),
        notes: Note::all(&plan.notes),
    }
}

/// A row for each part of a plan with its number, then for each alternative.
pub(crate) fn table(plan: &Plan) -> Table {
    let mut table = parts::table(&plan.parts);
    table.rows.extend(parts::table(&plan.alternatives).rows);
    table.columns.insert(0, Column::text("part", "part"));
    for (index, row) in table.rows.iter_mut().enumerate() {
        let number = (index < plan.parts.len()).then_some(index + 1);
        row.insert(0, number.map_or_else(|| Cell::new("alternative", "alternative"), Cell::text));
    }
    table
}

/// Writes the batch sizes of each part as a Markdown list.
///
/// # Errors
/// Write errors of `out`.
pub(crate) fn write_batches(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let words = plan.parts.iter().enumerate().filter_map(|(index, part)| Some((index + 1, parts::batch_words(part)?)));
    for (index, (part, words)) in words.enumerate() {
        let above = if index == 0 { "\n" } else { "" };
        writeln!(out, "{above}- part {part}: {words}")?;
    }
    Ok(())
}
