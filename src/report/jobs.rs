//! A plan for several jobs as a table, as text and as JSON (`habitat-jobs-plan`, version 1).

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::plans::{self, AssumedJson, PartJson, SolverJson, TotalJson};
use super::table::{Cell, Column, Table};
use super::{format, predictions};
use crate::plan::jobs::{Aim, JobsPlan, PlannedJob};
use crate::plan::{PlanStatus, Quota};
use crate::units::{Hours, Range};

/// What `plan-jobs --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "habitat-tui plan-jobs")]
pub struct JobsJson<'a> {
    /// Always `habitat-jobs-plan`.
    pub format: &'static str,
    /// Version of the form, 1.
    pub version: u32,
    /// `optimal`, `gap_limit`, `time_limit` or `infeasible`; `time_limit` without jobs: nothing was
    /// found, and it is not known whether there is a plan.
    pub status: &'static str,
    /// What is minimised: `cost` of all jobs, or `makespan`, the hours until the last is done, at
    /// the end of the range that the confidence asks for.
    pub aim: &'static str,
    /// Which end of the hours meets the deadlines: `expected` (the middle) or `high`.
    pub confidence: &'static str,
    /// Latest finish of each job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_hours: Option<f64>,
    /// Most to spend on all jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// Most to spend an hour on all jobs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usd_per_hour: Option<f64>,
    /// Most GPUs at once, of all jobs together.
    #[serde(skip_serializing_if = "<[Quota]>::is_empty")]
    pub quotas: &'a [Quota],
    /// Whether jobs that rent may wait for one another; absent where not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
    /// The jobs, in the order of the file; empty where there is no plan.
    pub jobs: Vec<JobJson<'a>>,
    /// Hours until the last job is done, and the cost of all; absent where there is no plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<TotalJson>,
    /// What no plan within the limits is below: dollars, or hours of the makespan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<f64>,
    /// Why there is no plan, and what would make one.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub reasons: &'a [String],
    /// Which solver answered.
    pub solver: SolverJson<'a>,
    /// What is to be known of the times; absent where there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<&'a str>,
    /// Fall-backs the reader should know.
    pub notes: &'a [String],
}

/// One job of the plan.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JobJson<'a> {
    /// Its name.
    pub name: &'a str,
    /// The machine that runs it; absent where it is rented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<&'a str>,
    /// Hours from the start at which it begins.
    pub start_hours: Range<f64>,
    /// Hours from the start at which it is done.
    pub end_hours: Range<f64>,
    /// Its deadline, its own or the shared one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_hours: Option<f64>,
    /// What runs it.
    pub part: PartJson<'a>,
    /// What is assumed for it, with its source.
    pub assumptions: Vec<AssumedJson>,
    /// What is to be known of it.
    pub notes: &'a [String],
}

/// The JSON form.
pub fn json(plan: &JobsPlan) -> JobsJson<'_> {
    let shared = &plan.shared;
    JobsJson {
        format: "habitat-jobs-plan",
        version: 1,
        status: plans::status(plan.status),
        aim: if plan.aim == Aim::Cost { "cost" } else { "makespan" },
        confidence: shared.confidence.name(),
        deadline_hours: shared.deadline.map(Into::into),
        budget_usd: shared.budget.map(Into::into),
        max_usd_per_hour: shared.max_price.map(Into::into),
        quotas: &shared.quotas,
        wait: shared.wait,
        jobs: plan.jobs.iter().map(job).collect(),
        total: plan.total.as_ref().map(TotalJson::new),
        lower_bound: plan.bound,
        reasons: &plan.reasons,
        solver: SolverJson {
            name: &plan.solver.name,
            configurations: plan.solver.configurations,
            gap: plan.solver.gap,
        },
        warnings: plan.warnings.iter().map(|warning| warning.text.as_str()).collect(),
        notes: &plan.notes,
    }
}

fn job(job: &PlannedJob) -> JobJson<'_> {
    JobJson {
        name: &job.name,
        machine: job.machine.as_deref(),
        start_hours: job.start.map(Hours::get),
        end_hours: job.end.map(Hours::get),
        deadline_hours: job.deadline.map(Into::into),
        part: plans::part(&job.part),
        assumptions: plans::assumed(&job.assumptions),
        notes: &job.notes,
    }
}

/// A row for each job, in the order of the file.
pub fn table(plan: &JobsPlan) -> Table {
    let on = if plan.aim == Aim::Cost { "offer" } else { "machine" };
    let mut table = Table::new(&[
        Column::text("job", "job"),
        Column::text(on, on),
        Column::text("GPUs", "gpus"),
        Column::number("start", "start_hours"),
        Column::number("", "start_hours_low"),
        Column::number("", "start_hours_high"),
        Column::number("end", "end_hours"),
        Column::number("", "end_hours_low"),
        Column::number("", "end_hours_high"),
        Column::number("deadline", "deadline_hours"),
        Column::number("cost", "cost_usd"),
        Column::number("", "cost_usd_low"),
        Column::number("", "cost_usd_high"),
        Column::number("price", "price_usd_per_hour"),
    ]);
    for job in &plan.jobs {
        let part = &job.part;
        let whole = |value: f64| Cell::text(value);
        table.push(vec![
            Cell::text(&job.name),
            job.machine.as_ref().map_or_else(|| Cell::text(&part.offer), Cell::text),
            Cell::text(format!("{} × {}", part.gpu_count, part.gpu)),
            Cell::new(format::hours_with_range(&job.start), job.start.mid.get()),
            whole(job.start.low.get()),
            whole(job.start.high.get()),
            Cell::new(format::hours_with_range(&job.end), job.end.mid.get()),
            whole(job.end.low.get()),
            whole(job.end.high.get()),
            Cell::maybe(job.deadline, |deadline| Cell::new(format::hours(deadline), deadline.get())),
            Cell::new(format::usd_with_range(&part.cost), part.cost.mid.get()),
            whole(part.cost.low.get()),
            whole(part.cost.high.get()),
            Cell::new(format::price(part.price), part.price.get()),
        ]);
    }
    table
}

/// How good the plan is known to be, in words.
fn status_words(plan: &JobsPlan) -> String {
    let best = if plan.aim == Aim::Cost { "lowest cost" } else { "earliest end" };
    match (plan.status, plan.solver.gap) {
        (PlanStatus::Optimal, _) => format!("{best} possible"),
        (PlanStatus::Infeasible, _) => "no plan meets the limits".to_owned(),
        (_, Some(gap)) => format!("at most {} above the {best} possible", format::percent(gap)),
        (_, None) => "the best found in the time allowed".to_owned(),
    }
}

/// The plan, job by job, or why there is none.
///
/// # Errors
/// Those of the writer.
pub fn write(plan: &JobsPlan, out: &mut dyn Write) -> io::Result<()> {
    predictions::write_warnings(&plan.warnings, out)?;
    let Some(total) = &plan.total else {
        writeln!(out, "No plan for all jobs within these limits.")?;
        for reason in &plan.reasons {
            writeln!(out, "  {reason}")?;
        }
        return Ok(());
    };
    let (count, status) = (plan.jobs.len(), status_words(plan));
    let jobs = if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") };
    let (cost, hours) = (format::usd_with_range(&total.cost), format::hours_with_range(&total.hours));
    writeln!(out, "{jobs}: {cost}; the last is done after {hours} ({status})")?;
    let mut table = table(plan);
    // In the order in which things happen: machine by machine.
    if plan.aim == Aim::Makespan {
        let mut order: Vec<usize> = (0..count).collect();
        let place = |job: usize| (&plan.jobs[job].machine, plan.jobs[job].start.mid);
        order.sort_by(|a, b| place(*a).0.cmp(place(*b).0).then(place(*a).1.total_cmp(&place(*b).1)));
        table.rows = order.into_iter().map(|job| table.rows[job].clone()).collect();
    }
    table.write_text(out)?;
    for job in &plan.jobs {
        let batch = plans::batch_words(&job.part);
        let words: Vec<&str> = batch.iter().chain(&job.part.notes).map(String::as_str).collect();
        writeln!(out, "  {}: {}", job.name, words.join("; "))?;
    }
    for job in &plan.jobs {
        for note in &job.notes {
            writeln!(out, "note: {}: {note}", job.name)?;
        }
    }
    for note in &plan.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}
