//! Plan for several jobs as a table, as text and as JSON (`habitat-jobs-plan`, version 2).

mod json;

use std::io::{self, Write};

use super::parts;
use super::plan_form::PlanFormError;
use super::table::{Cell, Column, Table};
use super::timeline::{self, Lane};
use super::words;
use super::words::assumed::assumed;
use super::{format, predictions, uses};
use crate::theme::Role;
use habitat_base::text;
use habitat_base::units::{Hours, Range, UsdPerHour};
use habitat_planning::plan::jobs::{Aim, JobsPlan, PlannedJob};
use habitat_planning::plan::{Confidence, PlanStatus, Total};

pub use json::JobsJson;
pub(crate) use json::json;

/// Columns of [`table`] that hold for each job of a group.
const OF_EACH: [usize; 3] = [2, 10, 13];

/// A row for each job, in the order of the file.
pub(crate) fn table(plan: &JobsPlan) -> Table {
    let on = if plan.aim == Aim::Cost { "offer" } else { "machine" };
    let mut table = Table::new(&[
        Column::text("job", "job").cut_to(8),
        Column::text(on, on).cut_to(12),
        Column::text("GPUs", "gpus").dropped(2),
        Column::number("start", "start_hours"),
        Column::number("", "start_hours_low"),
        Column::number("", "start_hours_high"),
        Column::number("end", "end_hours"),
        Column::number("", "end_hours_low"),
        Column::number("", "end_hours_high"),
        Column::number("deadline", "deadline_hours").dropped(3),
        Column::number("cost", "cost_usd"),
        Column::number("", "cost_usd_low"),
        Column::number("", "cost_usd_high"),
        Column::number("price", "price_usd_per_hour").dropped(4),
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
            Cell::maybe(due(job), |deadline| Cell::new(format::hours(deadline), deadline.get())),
            Cell::new(format::usd_with_range(&part.cost), part.cost.mid.get()),
            whole(part.cost.low.get()),
            whole(part.cost.high.get()),
            Cell::new(format::price(part.price()), part.price().get()),
        ]);
    }
    table
}

/// Indices of the jobs by machine and in order of time; copies that are planned alike are together.
pub fn groups(plan: &JobsPlan) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..plan.jobs.len()).collect();
    let place = |job: usize| (&plan.jobs[job].machine, plan.jobs[job].start.mid);
    order.sort_by(|a, b| place(*a).0.cmp(place(*b).0).then(place(*a).1.total_cmp(&place(*b).1)));
    order.chunk_by(|a, b| are_copies(&plan.jobs[*a], &plan.jobs[*b])).map(<[usize]>::to_vec).collect()
}

/// Whether a job is the copy after another one, and has the same plan.
fn are_copies(one: &PlannedJob, next: &PlannedJob) -> bool {
    let of = |job: &PlannedJob| {
        let (stem, number) = job.name.rsplit_once(' ')?;
        Some((stem.to_owned(), number.parse::<u64>().ok()?))
    };
    let follows = of(one).zip(of(next)).is_some_and(|(one, next)| one.0 == next.0 && one.1 + 1 == next.1);
    let same = one.part == next.part
        && one.notes == next.notes
        && (one.start, one.end) == (next.start, next.end)
        && due(one) == due(next);
    follows && one.machine.is_none() && next.machine.is_none() && same
}

/// Name of a job, or of several copies: `sweep 1–11`.
fn name(plan: &JobsPlan, group: &[usize]) -> String {
    let names = [group.first(), group.last()].map(|job| job.map_or("", |job| plan.jobs[*job].name.as_str()));
    let last = names[1].rsplit_once(' ').map_or(names[1], |(_, number)| number);
    if group.len() < 2 { names[0].to_owned() } else { format!("{}–{last}", names[0]) }
}

/// A figure of each job of a group: `11 × $2`.
fn of_each(group: &[usize], figure: &str) -> String {
    if group.len() < 2 { figure.to_owned() } else { format!("{} × {figure}", group.len()) }
}

/// Bar of each group, in the order of [`groups`].
fn lanes(plan: &JobsPlan) -> Vec<Lane> {
    let axis = timeline::axis(plan.jobs.iter().map(|job| job.end.high), plan.jobs.iter().filter_map(due));
    let bar = |job: &PlannedJob| Lane {
        range: Some([job.end.low.get(), job.end.high.get()]),
        deadline: due(job).map(Hours::get),
        ..uses::lane(&job.part, job.start.mid.get(), axis)
    };
    groups(plan).into_iter().map(|group| bar(&plan.jobs[group[0]])).collect()
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

/// All jobs over time, a bar for each of [`groups`]: the machine, the end, and the slack to the deadline.
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
    for (group, lane) in groups(plan).into_iter().zip(lanes) {
        let job = &plan.jobs[group[0]];
        table.push(vec![
            Cell::text(text::clean(&name(plan, &group), 60)),
            Cell::lane(lane),
            Cell::text(if job.start.mid == Hours::ZERO { "0 h".to_owned() } else { format::hours(job.start.mid) }),
            Cell::text(format::hours(plan.shared.confidence.end(&job.end))),
            slack_words(plan, job).map_or_else(Cell::unknown, Cell::text),
            Cell::text(of_each(&group, &format::usd(job.part.cost.mid))),
            uses::range_cell(&job.part.cost),
            Cell::styled(Role::Muted, place_words(job)),
        ]);
    }
    table
}

/// Deadline of a job, whether it has to meet it or not; the earliest one.
fn due(job: &PlannedJob) -> Option<Hours> {
    job.soft_deadlines.iter().map(|soft| soft.deadline).chain(job.deadline).min_by(Hours::total_cmp)
}

/// Hours by which a job ends after the earliest deadline that it may miss; `None` if it does not.
fn late(plan: &JobsPlan, job: &PlannedJob) -> Option<Hours> {
    Some(job.late(due(job)?, plan.shared.confidence)).filter(|late| late.get() > 1e-6)
}

/// Shared deadline in words, with the price of missing it.
pub fn deadline_words(deadline: Hours, late: Option<UsdPerHour>) -> String {
    let late = late.map(|price| format!(", late at {}", format::price(price))).unwrap_or_default();
    format!("deadline {}{late}", format::hours(deadline))
}

/// Slack of a job, or its delay.
fn slack_words(plan: &JobsPlan, job: &PlannedJob) -> Option<String> {
    match late(plan, job) {
        Some(late) => Some(format!("late {}", format::hours(late))),
        None => slack(plan, job).map(format::hours),
    }
}

/// Time from a job's end to its deadline; `None` without a deadline.
fn slack(plan: &JobsPlan, job: &PlannedJob) -> Option<Hours> {
    // The check of the plan ensures that no deadline is missed by more than rounding.
    let end = plan.shared.confidence.end(&job.end);
    due(job).map(|deadline| deadline.checked_sub(end).unwrap_or_default())
}

/// Machine of a job, in words.
fn place_words(job: &PlannedJob) -> String {
    let part = &job.part;
    if let Some(machine) = &job.machine {
        return text::clean(machine, 60);
    }
    let (provider, region) =
        (text::clean(&part.offer.provider, 24), text::clean(words::price::region(&part.offer.region), 40));
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
    if let (Some(deadline), Some(slack)) = (due(job), slack(plan, job)) {
        let end = match plan.shared.confidence {
            Confidence::Expected => "expected end",
            Confidence::High => "latest end",
        };
        let against = match late(plan, job) {
            Some(late) => format!("{} before the {end}", format::hours(late)),
            None => format!("{} after the {end}", format::hours(slack)),
        };
        lines.push(line("deadline", format!("after {}, {against}", format::hours(deadline))));
    }
    let time = job.time_cost(plan.shared.confidence);
    for soft in &job.soft_deadlines {
        let words = format!("{} after {}", format::price(soft.usd_per_hour), format::hours(soft.deadline));
        lines.push(line("if late", words));
    }
    if time.late.get() > 0.0 {
        lines.push(line("late", format!("costs {}, beside the cost of the job", format::usd(time.late))));
    }
    if let Some(price) = job.hour_value {
        let words = format!("{} at {} until its end", format::usd(time.waiting), format::price(price));
        lines.push(line("waiting", words));
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
    format!("{jobs}: {cost}; the last ends after {hours}{}", time_words(plan))
}

/// Dollars of the time until jobs end, as the end of a sentence; empty without a price of time.
fn time_words(plan: &JobsPlan) -> String {
    let Some(time) = &plan.time_cost else { return String::new() };
    let count = plan.jobs.iter().filter(|job| !job.soft_deadlines.is_empty() && late(plan, job).is_some()).count();
    let late = match count {
        0 => None,
        1 => Some(format!("1 late job costs {}", format::usd(time.late))),
        _ => Some(format!("{count} late jobs cost {}", format::usd(time.late))),
    };
    let waiting = (time.waiting.get() > 0.0).then(|| format!("waiting costs {}", format::usd(time.waiting)));
    [Some(String::new()), late, waiting].into_iter().flatten().collect::<Vec<_>>().join("; ")
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
            Self::Text => write(plan, None, &mut out)?,
        }
        Ok(String::from_utf8(out).map_err(io::Error::other)?)
    }
}

/// Quality of the plan, in words.
pub fn status_words(plan: &JobsPlan) -> String {
    let best = match (plan.aim, &plan.time_cost) {
        (Aim::Cost, None) => "lowest cost",
        (Aim::Cost, Some(_)) => "lowest cost with time",
        (Aim::Makespan, _) => "earliest end",
    };
    // Of plans of equal cost, searches keep the one that ends first among those that they see.
    let end = if best == "lowest cost" { " · earliest end found, not proved" } else { "" };
    match (plan.status, plan.solver.gap) {
        (PlanStatus::Optimal, _) => format!("{best} possible, proved{end}"),
        (PlanStatus::Infeasible, _) => "no plan meets the limits".to_owned(),
        (_, Some(gap)) => format!("at most {} above the {best} possible", format::percent(gap)),
        (_, None) => "best found within the time limit".to_owned(),
    }
}

/// Writes the plan job by job, in lines of at most `width` cells if there is a limit, or the reasons why there is none.
///
/// # Errors
/// Write errors of `out`.
pub fn write(plan: &JobsPlan, width: Option<u16>, out: &mut dyn Write) -> io::Result<()> {
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
    let row = |group: Vec<usize>| {
        let mut row = table.rows[group[0]].clone();
        row[0].text = name(plan, &group);
        for at in OF_EACH {
            row[at].text = of_each(&group, &row[at].text);
        }
        row
    };
    table.rows = groups(plan).into_iter().map(row).collect();
    table.write_lines(width, out)?;
    writeln!(out)?;
    gantt(plan).write_fitted(width, out)?;
    let legend = legend(plan, false);
    if !legend.is_empty() {
        writeln!(out, "  {legend}")?;
    }
    writeln!(out)?;
    // In the order of the file.
    let mut groups = groups(plan);
    groups.sort_by_key(|group| group[0]);
    for group in &groups {
        let part = &plan.jobs[group[0]].part;
        let words: Vec<String> = parts::batch_words(part).into_iter().chain(words::of_all(&part.notes)).collect();
        writeln!(out, "  {}: {}", name(plan, group), words.join("; "))?;
    }
    for group in &groups {
        for note in words::of_all(&plan.jobs[group[0]].notes) {
            writeln!(out, "note: {}: {note}", name(plan, group))?;
        }
    }
    for note in words::of_all(&plan.notes) {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}
