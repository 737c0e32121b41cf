//! Plans with spot machines, replayed on traces of spot availability: whether they end in time, and their cost, by the
//! source of their expected losses and waits.
//!
//! A run requests a machine at the start and after each loss, boots and loads, trains, and writes checkpoints; a loss
//! discards the work since the last checkpoint. A plan that switches to an on-demand machine does so when the time left
//! is just enough for the remaining work there.

mod policies;
mod zones;

use std::collections::BTreeMap;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::plan::{Assumptions, Goal, Plan, Work, plan};
use habitat_tui::predict::{Options, Predictions, predict};
use habitat_tui::pricing::spot::{SpotMachine, SpotSource, WATCHED};
use habitat_tui::pricing::{PriceBook, Snapshot, Tier};
use habitat_tui::profile::Profile;
use habitat_tui::report::format;
use habitat_tui::report::table::{Cell, Column, Table};
use habitat_tui::store::{Limit, read_text};
use habitat_tui::units::Hours;
use serde::Serialize;

use super::tally::Evaluation;

/// A step of a second on a V100.
const STEP: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "second", "mode": "training", "batch_size": 1, "parameter_count": 1},
  "origin": {"gpu": "v100-sxm2-16gb"}, "step": {"duration_us": 1e6, "peak_memory_bytes": 1e9},
  "operations": [{"name": "work", "phase": "forward", "inputs": [[64]], "outputs": [[64]], "device_time_us": 1e6}]}"#;
/// That machine on demand, and on spot at 0.3 of its price (planner note C.8).
const OFFERS: &str = r#"schema = 1
provider = "cloud"
[[offer]]
region = "r"
instance_type = "m"
gpu = "v100-sxm2-16gb"
gpu_count = 1
on_demand_usd_per_hour = 1.0
spot_usd_per_hour = 0.3
scope = "instance_total"
source = "planner note C.8"
"#;
/// Work in hours.
const WORK: [f64; 3] = [6.0, 24.0, 48.0];
/// Deadlines, in multiples of the work.
const DEADLINES: [f64; 8] = [1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0];
/// Hours between two starts.
const STARTS: f64 = 3.0;

/// Hours at which all requested machines were available: beginnings and ends.
type There = Vec<(f64, f64)>;

struct Trace {
    there: There,
    end: f64,
}

/// Source of the losses and waits that a plan expects.
#[derive(Debug, Clone, Copy)]
enum Basis {
    /// Typical figures, for regions without traces.
    Typical,
    /// The trace itself.
    Itself,
    /// All traces of its region, as plans there use them.
    Region,
    /// The same without its own zone.
    OtherZones,
    /// All traces of other regions.
    OtherRegions,
}

impl Basis {
    const ALL: [Self; 5] = [Self::Typical, Self::Itself, Self::Region, Self::OtherZones, Self::OtherRegions];

    const fn words(self) -> &'static str {
        match self {
            Self::Typical => "typical",
            Self::Itself => "itself",
            Self::Region => "region",
            Self::OtherZones => "other zones",
            Self::OtherRegions => "other regions",
        }
    }

    /// Expected losses and waits of the machine of a trace, by its name (`kind_Nnode_provider-date_zone_gpu_gpus`);
    /// `None` if unknown. For several machines, those of one.
    fn expected(self, name: &str, trace: &Trace) -> Option<SpotMachine> {
        let words: Vec<&str> = name.split('_').collect();
        let gpus = words.get(5).and_then(|gpus| gpus.parse().ok()).unwrap_or(1);
        let (provider, zone) = (words.get(2).and_then(|words| words.split('-').next()), words.get(3).copied());
        let region = zone.map(|zone| zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase()));
        let rows = WATCHED.iter().filter(|row| Some(row.provider) == provider);
        match self {
            Self::Typical => Some(SpotMachine::typical(gpus)),
            Self::Itself => trace.seen(),
            Self::Region => Some(SpotMachine::new(provider?, region?, gpus)),
            Self::OtherZones => {
                SpotMachine::measured(rows.filter(|row| Some(row.region()) == region && Some(row.zone) != zone), gpus)
            }
            Self::OtherRegions => SpotMachine::measured(rows.filter(|row| Some(row.region()) != region), gpus),
        }
    }
}

impl Trace {
    /// Losses and waits in the trace.
    fn seen(&self) -> Option<SpotMachine> {
        let losses = self.there.iter().filter(|(_, to)| *to < self.end - 1e-9).count() as f64;
        let there: f64 = self.there.iter().map(|(from, to)| to - from).sum();
        let wait = Hours::new((self.end - there) / losses).ok()?;
        Some(SpotMachine { per_hour: losses / there, wait, source: SpotSource::default() })
    }
}

fn read(file: &Path) -> Result<BTreeMap<String, Trace>, CliError> {
    let text = read_text(file, Limit::TABLE)?;
    let wrong = |line: usize, what: &str| CliError::Refused(format!("{}:{line}: {what}", file.display()));
    let mut traces: BTreeMap<String, Trace> = BTreeMap::new();
    for (line, row) in (1..).zip(text.lines()) {
        if line == 1 {
            if row != "trace,start_s,length_s,nodes" {
                return Err(wrong(line, "the columns are not trace,start_s,length_s,nodes"));
            }
            continue;
        }
        let (name, start, length, nodes) = run(row).ok_or_else(|| wrong(line, "not a run of a trace"))?;
        let wanted = name.split('_').find_map(|word| word.strip_suffix("node")?.parse::<u32>().ok()).unwrap_or(1);
        let trace = traces.entry(name.to_owned()).or_insert_with(|| Trace { there: Vec::new(), end: 0.0 });
        let (start, end) = (start / 3600.0, (start + length) / 3600.0);
        trace.end = trace.end.max(end);
        if nodes >= wanted {
            match trace.there.last_mut().filter(|(_, before)| (start - *before).abs() < 1e-9) {
                Some((_, before)) => *before = end,
                None => trace.there.push((start, end)),
            }
        }
    }
    Ok(traces)
}

fn run(row: &str) -> Option<(&str, f64, f64, u32)> {
    let fields: Vec<&str> = row.split(',').collect();
    let [name, start, length, nodes] = fields[..] else { return None };
    Some((name, start.parse().ok()?, length.parse().ok()?, nodes.parse().ok()?))
}

/// Hours and dollars of a plan on a trace, with or without its switch to an on-demand machine; `None` if the trace ends
/// too soon.
fn replay(trace: &Trace, start: f64, plan: &Plan, work: f64, changes: bool) -> Option<(f64, f64)> {
    let assumed = &plan.goal.assumptions;
    let spot = plan.parts.iter().find(|part| part.offer.tier == Tier::Spot)?;
    let [setup, interval, write, restart] =
        [assumed.setup, assumed.checkpoint_interval, spot.checkpoint_write, assumed.restart].map(Hours::get);
    let share = spot.work.get() / plan.work.get();
    // Latest time to leave work undone: the deadline minus the time on the other machine.
    let change = plan.switch.as_ref().filter(|_| changes);
    let deadline = change.zip(plan.goal.deadline).map(|(_, deadline)| start + deadline.get());
    let last_moment = |done: f64| deadline.map_or(f64::INFINITY, |end| end - (work - done) - setup);
    let wanted = if deadline.is_some() { work } else { work * share };
    let (mut now, mut done, mut billed, mut boot) = (start, 0.0, 0.0, setup);
    for &(from, to) in trace.there.iter().filter(|(_, to)| *to > start) {
        let begin = from.max(now);
        if begin >= last_moment(done) {
            break;
        }
        let mut at = begin + boot;
        boot = restart;
        // One checkpoint after another, as long as machine and time last.
        while done < wanted {
            let stretch = interval.min(wanted - done);
            let next = at + stretch + write * stretch / interval;
            if next > to || next > last_moment(done) {
                break;
            }
            (at, done) = (next, done + stretch);
        }
        now = if done >= wanted { at } else { to.min(last_moment(done)).max(begin) };
        billed += now - begin;
        if done >= wanted || now >= last_moment(done) {
            break;
        }
    }
    let mut cost = billed * spot.price().get();
    if done >= wanted && wanted >= work {
        return Some((now - start, cost));
    }
    if done < wanted && deadline.is_none() {
        return None;
    }
    let left = work - done;
    let begin = deadline.map_or(now, |_| now.max(last_moment(done)));
    if begin > trace.end {
        return None;
    }
    // On demand costs a dollar per hour.
    cost += setup + left;
    Some((begin + setup + left - start, cost))
}

/// Plans with one number of parts on one trace.
#[derive(Debug, Default, Serialize)]
struct Row {
    trace: String,
    basis: &'static str,
    max_parts: u32,
    /// Pairs of work and deadline, and those whose plan has a spot part.
    goals: usize,
    with_spot: usize,
    /// Replayed starts.
    runs: usize,
    /// Share that ended by the deadline.
    in_time: f64,
    /// The same without the switch, for plans that do all the work on spot.
    in_time_without_change: f64,
    /// Mean cost, relative to the plan's cost and to the cost on demand.
    cost_of_planned: f64,
    cost_of_on_demand: f64,
}

/// Every trace with every work, deadline and number of parts.
pub(super) fn evaluate(file: &Path, catalog: &Catalog) -> Result<Vec<Evaluation>, CliError> {
    let (profile, _) = Profile::from_json(STEP.as_bytes()).map_err(CliError::other)?;
    let gpu = catalog.find("v100-sxm2-16gb").map_err(CliError::other)?.slug.clone();
    let options = Options { targets: vec![gpu], ..Options::default() };
    let predictions = predict(&profile, catalog, &options).map_err(CliError::other)?;
    let prices = PriceBook::new(Snapshot::parse(OFFERS).map_err(CliError::other)?.offers());
    let traces = read(file)?;
    let mut rows = Vec::new();
    for max_parts in [1, 2] {
        for (name, trace) in &traces {
            for basis in Basis::ALL {
                let Some(expected) = basis.expected(name, trace) else { continue };
                let plans = plans(max_parts, &expected, &predictions, &prices)?;
                rows.push(row(name, trace, (max_parts, basis.words()), &plans));
            }
        }
    }
    let mut table = Table::new(&[
        Column::text("trace", "trace"),
        Column::text("expected as in", "basis"),
        Column::number("parts", "max_parts"),
        Column::number("goals", "goals"),
        Column::number("with spot", "with_spot"),
        Column::number("runs", "runs"),
        Column::number("in time", "in_time"),
        Column::number("without the change", "in_time_without_change"),
        Column::number("cost / planned", "cost_of_planned"),
        Column::number("cost / on demand", "cost_of_on_demand"),
    ]);
    for row in &rows {
        table.push(vec![
            Cell::text(&row.trace),
            Cell::text(row.basis),
            Cell::text(row.max_parts),
            Cell::text(row.goals),
            Cell::text(row.with_spot),
            Cell::text(row.runs),
            known(row.in_time, format::percent(row.in_time)),
            known(row.in_time_without_change, format::percent(row.in_time_without_change)),
            known(row.cost_of_planned, format!("{:.2}", row.cost_of_planned)),
            known(row.cost_of_on_demand, format!("{:.2}", row.cost_of_on_demand)),
        ]);
    }
    let protocol = "plans at high confidence for a machine at 1 $/h on demand and 0.3 on spot, started every 3 hours of each trace; of those with a spot part, the share that ended by the deadline";
    let by_trace = Evaluation::new(protocol.to_owned(), Vec::new(), table, &rows);
    let by_zone = zones::evaluate(&traces, &predictions, &prices)?;
    Ok(vec![by_trace, summed(&rows), policies::evaluate(&traces), by_zone])
}

/// A cell; a dash if there is no value.
fn known(value: f64, text: String) -> Cell {
    if value.is_nan() { Cell::text("–") } else { Cell::text(text) }
}

/// All traces of a kind.
#[derive(Debug, Serialize)]
struct Summary {
    traces: String,
    max_parts: u32,
    basis: &'static str,
    count: usize,
    /// Worst trace.
    in_time: f64,
    in_time_without_change: f64,
    /// Least and most over traces, relative to the plan's cost.
    cost_of_planned: [f64; 2],
    /// Mean |logarithm| of that over traces, as a factor minus one.
    cost_off: f64,
}

fn summed(rows: &[Row]) -> Evaluation {
    let mut groups: BTreeMap<(u32, &str, usize), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let kind = row.trace.split('_').next().unwrap_or_default();
        let basis = Basis::ALL.iter().position(|basis| basis.words() == row.basis).unwrap_or_default();
        groups.entry((row.max_parts, kind, basis)).or_default().push(row);
    }
    let of_group = |((max_parts, kind, basis), rows): ((u32, &str, usize), Vec<&Row>)| {
        // Traces without a plan on spot have no figures.
        let all = |of: fn(&Row) -> f64| rows.iter().map(move |row| of(row)).filter(|value| !value.is_nan());
        let costs = || all(|row| row.cost_of_planned);
        let off = costs().map(|cost| cost.ln().abs()).sum::<f64>() / costs().count() as f64;
        Summary {
            traces: kind.to_owned(),
            max_parts,
            basis: Basis::ALL[basis].words(),
            count: costs().count(),
            in_time: all(|row| row.in_time).fold(f64::NAN, f64::min),
            in_time_without_change: all(|row| row.in_time_without_change).fold(f64::NAN, f64::min),
            cost_of_planned: [costs().fold(f64::NAN, f64::min), costs().fold(f64::NAN, f64::max)],
            cost_off: off.exp() - 1.0,
        }
    };
    let summaries: Vec<Summary> = groups.into_iter().map(of_group).collect();
    let mut table = Table::new(&[
        Column::text("traces", "traces"),
        Column::number("parts", "max_parts"),
        Column::text("expected as in", "basis"),
        Column::number("traces with plans", "count"),
        Column::number("in time, least", "in_time"),
        Column::number("without the change, least", "in_time_without_change"),
        Column::number("cost / planned, least", "cost_of_planned_least"),
        Column::number("most", "cost_of_planned_most"),
        Column::number("mean off", "cost_off"),
    ]);
    for summary in &summaries {
        let [least, most] = summary.cost_of_planned;
        table.push(vec![
            Cell::text(&summary.traces),
            Cell::text(summary.max_parts),
            Cell::text(summary.basis),
            Cell::text(summary.count),
            known(summary.in_time, format::percent(summary.in_time)),
            known(summary.in_time_without_change, format::percent(summary.in_time_without_change)),
            known(least, format!("{least:.2}")),
            known(most, format!("{most:.2}")),
            known(summary.cost_off, format::percent(summary.cost_off)),
        ]);
    }
    let protocol = "the same over all traces of a kind: the worst, the range, and how far cost is from the planned one on average, as a factor";
    Evaluation::new(protocol.to_owned(), Vec::new(), table, &summaries)
}

fn plans(
    max_parts: u32,
    expected: &SpotMachine,
    predictions: &Predictions,
    prices: &PriceBook,
) -> Result<Vec<(f64, Plan)>, CliError> {
    let goals = WORK.iter().flat_map(|work| DEADLINES.map(|times| (*work, work * times)));
    goals
        .map(|(work, deadline)| {
            let goal = Goal {
                deadline: Some(Hours::new(deadline).map_err(CliError::other)?),
                max_parts,
                assumptions: Assumptions {
                    spot_losses_per_hour: Some(expected.per_hour),
                    wait: Some(expected.wait),
                    ..Assumptions::default()
                },
                ..Goal::new(Work::Steps((work * 3600.0) as u64))
            };
            Ok((work, plan(predictions, prices, &goal).map_err(CliError::other)?))
        })
        .collect()
}

fn row(name: &str, trace: &Trace, (max_parts, basis): (u32, &'static str), plans: &[(f64, Plan)]) -> Row {
    let mut row = Row { trace: name.to_owned(), basis, max_parts, goals: plans.len(), ..Row::default() };
    let (mut in_time, mut alone, mut in_time_alone) = (0_usize, 0_usize, 0_usize);
    let (mut of_planned, mut of_on_demand) = (0.0, 0.0);
    for (work, plan) in plans.iter().filter(|(_, plan)| plan.parts.iter().any(|part| part.offer.tier == Tier::Spot)) {
        row.with_spot += 1;
        let Some((total, deadline)) = plan.total.zip(plan.goal.deadline) else { continue };
        let mut start = 0.0;
        while start + deadline.get() <= trace.end {
            // A run that has not ended by the deadline is late, however long it takes.
            let run = |changes| replay(trace, start, plan, *work, changes);
            let is_in_time = |hours: f64| usize::from(hours <= deadline.get() * (1.0 + 1e-9));
            let (hours, cost) = run(true).unwrap_or((f64::INFINITY, total.cost.mid.get()));
            row.runs += 1;
            in_time += is_in_time(hours);
            if plan.parts.len() == 1 {
                alone += 1;
                in_time_alone += run(false).map_or(0, |(hours, _)| is_in_time(hours));
            }
            of_planned += cost / total.cost.mid.get();
            of_on_demand += cost / work;
            start += STARTS;
        }
    }
    let runs = row.runs as f64;
    row.in_time = in_time as f64 / runs;
    row.in_time_without_change = in_time_alone as f64 / alone as f64;
    (row.cost_of_planned, row.cost_of_on_demand) = (of_planned / runs, of_on_demand / runs);
    row
}
