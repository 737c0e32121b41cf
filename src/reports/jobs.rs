//! Plan for several jobs as a table, as text and as JSON (`habitat-jobs-plan`, version 2).

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::parts::{self, PartJson};
use super::plan_form::PlanFormError;
use super::plans::TotalJson;
use super::table::{Cell, Column, Table};
use super::timeline::{self, Lane};
use super::words::assumed::{Assumed, assumed};
use super::words::{self, Told};
use super::{format, predictions, uses};
use crate::theme::Role;
use habitat_base::text;
use habitat_base::units::{Hours, Range};
use habitat_planning::plan::jobs::{Aim, JobsPlan, PlannedJob};
use habitat_planning::plan::{Confidence, PlanStatus, Quota, SolverReport, Total};
use habitat_planning::pricing::region;

/// Output of `plan-jobs --json`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "habitat-tui plan-jobs")]
pub struct JobsJson<'a> {
    /// Always `habitat-jobs-plan`.
    pub format: &'static str,
    /// Version of the format, 2.
    pub version: u32,
    /// `optimal`, `gap_limit`, `time_limit` or `infeasible`. `time_limit` without jobs: none found in time, so it is
    /// unknown whether a plan exists.
    #[schemars(with = "String")]
    pub status: PlanStatus,
    /// Objective: `cost` of all jobs, or `makespan`, the hours until the last job ends, at the end of the range that
    /// the confidence selects.
    pub aim: &'static str,
    /// End of the hours that has to meet the deadlines: `expected` (the middle) or `high`.
    pub confidence: &'static str,
    /// Latest finish of each job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_hours: Option<f64>,
    /// Budget for all jobs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// Most dollars per hour for all jobs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usd_per_hour: Option<f64>,
    /// Limits on GPUs used at the same time by all jobs together.
    #[serde(skip_serializing_if = "<[Quota]>::is_empty")]
    pub quotas: &'a [Quota],
    /// Whether jobs on rented machines may wait for one another; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
    /// The jobs, in the order of the file; empty without a plan.
    pub jobs: Vec<JobJson<'a>>,
    /// Hours until the last job ends, and the cost of all jobs; absent without a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<TotalJson>,
    /// Lower bound of the objective: dollars, or hours of the makespan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<f64>,
    /// Reasons why no plan exists, and changes that would allow one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Told>,
    /// The solver.
    pub solver: &'a SolverReport,
    /// Warnings on the predicted times; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Told>,
    /// Fallbacks that affect the result.
    pub notes: Vec<Told>,
}

/// One job of the plan.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JobJson<'a> {
    /// Name of the job.
    pub name: &'a str,
    /// Own machine that runs it; absent if it is rented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<&'a str>,
    /// Start, in hours from the start of the first job.
    pub start_hours: Range<f64>,
    /// End, in hours from the start of the first job.
    pub end_hours: Range<f64>,
    /// Weight of its end among plans of equal cost or makespan; absent if 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// Jobs that end before it starts; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<&'a str>,
    /// Deadline of the job or the shared one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_hours: Option<f64>,
    /// Offer and GPUs that run it.
    pub part: PartJson<'a>,
    /// Assumptions about the job, with their sources.
    pub assumptions: Vec<Assumed>,
    /// Notes on the job.
    pub notes: Vec<Told>,
}

/// Builds the JSON form.
pub(crate) fn json(plan: &JobsPlan) -> JobsJson<'_> {
    let shared = &plan.shared;
    JobsJson {
        format: "habitat-jobs-plan",
        version: 2,
        status: plan.status,
        aim: if plan.aim == Aim::Cost { "cost" } else { "makespan" },
        confidence: shared.confidence.name(),
        deadline_hours: shared.deadline.map(Into::into),
        budget_usd: shared.budget.map(Into::into),
        max_usd_per_hour: shared.max_price.map(Into::into),
        quotas: &shared.quotas,
        wait: shared.wait,
        jobs: plan.jobs.iter().map(|of| job(plan, of)).collect(),
        total: plan.total.as_ref().map(TotalJson::new),
        lower_bound: plan.bound,
        reasons: Told::all(&plan.reasons),
        solver: &plan.solver,
        warnings: Told::all(&plan.warnings),
        notes: Told::all(&plan.notes),
    }
}

fn job<'a>(plan: &'a JobsPlan, job: &'a PlannedJob) -> JobJson<'a> {
    JobJson {
        name: &job.name,
        machine: job.machine.as_deref(),
        start_hours: job.start.map(Hours::get),
        end_hours: job.end.map(Hours::get),
        priority: Some(job.priority).filter(|priority| *priority != 1.0),
        after: waits_for(plan, job).collect(),
        deadline_hours: job.deadline.map(Into::into),
        part: parts::part(&job.part),
        assumptions: assumed(&job.goal),
        notes: Told::all(&job.notes),
    }
}

/// A row for each job, in the order of the file.
pub(crate) fn table(plan: &JobsPlan) -> Table {
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
            job.machine.as_ref().map_or_else(|| Cell::text(&part.offer.id), Cell::text),
            Cell::text(format!("{} × {}", part.all_gpus(), part.gpu)),
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
            Cell::new(format::price(part.price()), part.price().get()),
        ]);
    }
    table
}

/// Indices of the jobs in order of time, grouped by machine.
pub fn order(plan: &JobsPlan) -> Vec<usize> {
    let mut order: Vec<usize> = (0..plan.jobs.len()).collect();
    let place = |job: usize| (&plan.jobs[job].machine, plan.jobs[job].start.mid);
    order.sort_by(|a, b| place(*a).0.cmp(place(*b).0).then(place(*a).1.total_cmp(&place(*b).1)));
    order
}

/// Bar of each job, in the order of [`order`].
fn lanes(plan: &JobsPlan) -> Vec<Lane> {
    let axis =
        timeline::axis(plan.jobs.iter().map(|job| job.end.high), plan.jobs.iter().filter_map(|job| job.deadline));
    let bar = |job: &PlannedJob| Lane {
        range: Some([job.end.low.get(), job.end.high.get()]),
        deadline: job.deadline.map(Hours::get),
        ..uses::lane(&job.part, job.start.mid.get(), axis)
    };
    order(plan).into_iter().map(|job| bar(&plan.jobs[job])).collect()
}

/// Legend of the bars, with the number of deadlines outside the axis.
pub fn legend(plan: &JobsPlan, ascii: bool) -> String {
    let lanes = lanes(plan);
    let signs = Some(timeline::legend(&lanes, ascii, true)).filter(|signs| !signs.is_empty());
    let far = lanes.iter().filter(|lane| lane.deadline.is_some_and(|deadline| deadline > lane.axis)).count();
    let far = match far {
        0 => None,
        1 => Some("1 deadline is beyond the chart".to_owned()),
        far => Some(format!("{far} deadlines are beyond the chart")),
    };
    signs.into_iter().chain(far).collect::<Vec<_>>().join(" · ")
}

/// All jobs over time, one bar each in the order of [`order`]: the machine, the end, and the slack to the deadline.
pub fn gantt(plan: &JobsPlan) -> Table {
    let lanes = lanes(plan);
    let heading = timeline::heading(lanes.first().map_or(0.0, |lane| lane.axis));
    let latest = plan.shared.confidence == Confidence::High;
    let mut table = Table::new(&[
        Column::words("job", 14, 0),
        Column { heading: heading.into(), ..Column::graphic("", 16, 2) },
        Column::figures("start", 5),
        Column::figures(if latest { "end ≤" } else { "end" }, 0),
        Column::figures("slack", 1),
        Column::figures("cost", 0),
        Column::figures("low–high, $", 6),
        Column::words("on", 12, 4),
    ]);
    for (job, lane) in order(plan).into_iter().zip(lanes) {
        let job = &plan.jobs[job];
        table.push(vec![
            Cell::text(text::clean(&job.name, 60)),
            Cell::lane(lane),
            Cell::text(if job.start.mid == Hours::ZERO { "0 h".to_owned() } else { format::hours(job.start.mid) }),
            Cell::text(format::hours(plan.shared.confidence.end(&job.end))),
            slack(plan, job).map_or_else(Cell::unknown, |slack| Cell::text(format::hours(slack))),
            Cell::text(format::usd(job.part.cost.mid)),
            uses::range_cell(&job.part.cost),
            Cell::styled(Role::Muted, place_words(job)),
        ]);
    }
    table
}

/// Time from a job's end to its deadline; `None` without a deadline.
fn slack(plan: &JobsPlan, job: &PlannedJob) -> Option<Hours> {
    // The check of the plan ensures that no deadline is missed by more than rounding.
    let end = plan.shared.confidence.end(&job.end);
    job.deadline.map(|deadline| deadline.checked_sub(end).unwrap_or_default())
}

/// Machine of a job, in words.
fn place_words(job: &PlannedJob) -> String {
    let part = &job.part;
    if let Some(machine) = &job.machine {
        return text::clean(machine, 60);
    }
    let (provider, region) =
        (text::clean(&part.offer.provider, 24), text::clean(region::shown(&part.offer.region), 40));
    format!("{}, {provider} {region}, {}", parts::gpu_words(part), part.offer.tier)
}

/// A time after the start of the first job.
fn after(time: &Range<Hours>) -> String {
    format!("after {}", format::hours_with_range(time))
}

/// Details of a job, as labels and texts.
pub fn details(plan: &JobsPlan, job: &PlannedJob) -> Vec<(String, String)> {
    let (part, line) = (&job.part, |label: &str, text: String| (label.to_owned(), text));
    let on = if job.machine.is_some() { "machine" } else { "offer" };
    let at = job.machine.as_ref().map_or_else(|| part.offer.id.to_string(), Clone::clone);
    let mut lines = vec![
        line(on, format!("{}: {}", text::clean(&at, 120), parts::gpu_words(part))),
        line("start", if job.start.high == Hours::ZERO { "at once".to_owned() } else { after(&job.start) }),
        line("end", after(&job.end)),
    ];
    if job.earliest.get() > 0.0 {
        lines.push(line("not before", format::hours(job.earliest)));
    }
    let names: Vec<String> = waits_for(plan, job).map(|name| text::clean(name, 60)).collect();
    if !names.is_empty() {
        lines.push(line("after", names.join(", ")));
    }
    if let (Some(deadline), Some(slack)) = (job.deadline, slack(plan, job)) {
        lines.push(line(
            "deadline",
            format!("after {}, {} later than the planned end", format::hours(deadline), format::hours(slack)),
        ));
    }
    lines.push(line("cost", format!("{} at {}", format::usd_with_range(&part.cost), format::price(part.price()))));
    let made_of = part.cost_by.iter().map(|(what, cost)| format!("{} {}", what.words(), format::usd_with_range(&cost)));
    lines.extend(made_of.enumerate().map(|(at, words)| line(if at == 0 { "of it" } else { "" }, words)));
    lines.push(line("time", format::hours_with_range(&part.hours)));
    let taken =
        part.hours_by.iter().map(|(what, hours)| format!("{} {}", what.words(), format::hours_with_range(&hours)));
    lines.extend(taken.enumerate().map(|(at, words)| line(if at == 0 { "of it" } else { "" }, words)));
    lines.push(line("energy", parts::footprint_words(&part.footprint)));
    lines.extend(parts::batch_words(part).map(|words| line("batch", words)));
    lines.extend(words::of_all(&part.notes).map(|note| line("", text::clean(&note, 400))));
    lines.extend(words::of_all(&job.notes).map(|note| line("note", text::clean(&note, 400))));
    lines.extend(
        assumed(&job.goal).iter().map(|of| line("assumed", format!("{}: {} ({})", of.name, of.value, of.source))),
    );
    lines
}

/// Names of the jobs that end before a job starts.
fn waits_for<'a>(plan: &'a JobsPlan, job: &'a PlannedJob) -> impl Iterator<Item = &'a str> {
    job.after.iter().filter_map(|other| Some(plan.jobs.get(*other)?.name.as_str()))
}

/// Number of jobs, cost of all, and hours until the last one ends.
pub fn headline(plan: &JobsPlan, total: &Total) -> String {
    let count = plan.jobs.len();
    let jobs = if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") };
    let (cost, hours) = (format::usd_with_range(&total.cost), format::hours_with_range(&total.hours));
    format!("{jobs}: {cost}; the last ends after {hours}")
}

/// Message without a plan, before the reasons.
pub const NO_PLAN: &str = "No plan for all jobs within these limits.";

/// Output format of a plan for several jobs, as in `plan-jobs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobsForm {
    /// The whole plan, for programs.
    Json,
    /// A row for each job.
    Csv,
    /// The same table, for people.
    Markdown,
    /// The whole plan, for people.
    Text,
}

impl JobsForm {
    /// All formats, in the order of the dialog.
    pub const ALL: [Self; 4] = [Self::Json, Self::Csv, Self::Markdown, Self::Text];

    /// Name on screen.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Csv => "CSV",
            Self::Markdown => "Markdown",
            Self::Text => "text",
        }
    }

    /// Default file name.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Json => "jobs-plan.json",
            Self::Csv => "jobs-plan.csv",
            Self::Markdown => "jobs-plan.md",
            Self::Text => "jobs-plan.txt",
        }
    }

    /// Formats the plan.
    ///
    /// # Errors
    /// Serialisation and write errors.
    pub fn text(self, plan: &JobsPlan) -> Result<String, PlanFormError> {
        let mut out = Vec::new();
        match self {
            Self::Json => {
                let json = serde_json::to_string_pretty(&json(plan))?;
                writeln!(out, "{}", text::json_escaped(&json))?;
            }
            Self::Csv => table(plan).write_csv(&mut out)?,
            Self::Markdown => table(plan).write_markdown(&mut out)?,
            Self::Text => write(plan, &mut out)?,
        }
        Ok(String::from_utf8(out).map_err(io::Error::other)?)
    }
}

/// Quality of the plan, in words.
pub fn status_words(plan: &JobsPlan) -> String {
    let best = if plan.aim == Aim::Cost { "lowest cost" } else { "earliest end" };
    match (plan.status, plan.solver.gap) {
        (PlanStatus::Optimal, _) => format!("{best} possible"),
        (PlanStatus::Infeasible, _) => "no plan meets the limits".to_owned(),
        (_, Some(gap)) => format!("at most {} above the {best} possible", format::percent(gap)),
        (_, None) => "best found within the time limit".to_owned(),
    }
}

/// Writes the plan job by job, or the reasons why there is none.
///
/// # Errors
/// Write errors of `out`.
pub fn write(plan: &JobsPlan, out: &mut dyn Write) -> io::Result<()> {
    predictions::write_warnings(&plan.warnings, out)?;
    let Some(total) = &plan.total else {
        writeln!(out, "{NO_PLAN}")?;
        for reason in words::of_all(&plan.reasons) {
            writeln!(out, "  {reason}")?;
        }
        return Ok(());
    };
    writeln!(out, "{} ({})", headline(plan, total), status_words(plan))?;
    let mut table = table(plan);
    table.rows = order(plan).into_iter().map(|job| table.rows[job].clone()).collect();
    table.write_text(out)?;
    writeln!(out)?;
    gantt(plan).write_text(out)?;
    let legend = legend(plan, false);
    if !legend.is_empty() {
        writeln!(out, "  {legend}")?;
    }
    writeln!(out)?;
    for job in &plan.jobs {
        let batch = parts::batch_words(&job.part);
        let words: Vec<String> = batch.into_iter().chain(words::of_all(&job.part.notes)).collect();
        writeln!(out, "  {}: {}", job.name, words.join("; "))?;
    }
    for job in &plan.jobs {
        for note in words::of_all(&job.notes) {
            writeln!(out, "note: {}: {note}", job.name)?;
        }
    }
    for note in words::of_all(&plan.notes) {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}
