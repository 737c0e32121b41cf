//! Cost of runs that use spot without a plan: two policies of "Can't Be Late" (Wu et al., NSDI 2024), and the least
//! possible cost (planner note C.8).

use std::collections::BTreeMap;

use habitat_tui::report::format;
use habitat_tui::report::table::{Cell, Column, Table};
use serde::Serialize;

use super::super::tally::Evaluation;
use super::{There, Trace};

/// Hours of work, and hours from a machine's start to its first work.
const WORK: f64 = 48.0;
const RESTART: f64 = 0.2;
/// Price of spot relative to on demand.
const SPOT: f64 = 0.3;
/// Deadlines, in hours, and hours between two starts.
const DEADLINES: [f64; 2] = [52.0, 70.0];
const STARTS: f64 = 12.0;
/// Hours of a simulation step: a minute.
const TICK: f64 = 1.0 / 60.0;

/// Choice of a machine, until only an on-demand machine still ends in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Policy {
    /// Spot if available, else nothing.
    Greedy,
    /// The same; an on-demand machine while behind the straight line to the deadline, until two restarts ahead of it.
    UniformProgress,
}

impl Policy {
    const ALL: [Self; 2] = [Self::Greedy, Self::UniformProgress];

    const fn words(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::UniformProgress => "uniform progress",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    Spot,
    OnDemand,
}

/// Result of a run; costs relative to the work on demand.
struct Outcome {
    cost: f64,
    least: f64,
    in_time: f64,
}

/// A run that begins at `start`.
fn run(there: &There, start: f64, deadline: f64, policy: Policy) -> Outcome {
    let (mut now, mut left, mut cost, mut boot) = (0.0, WORK, 0.0, 0.0);
    let (mut machine, mut is_last) = (None, false);
    while left > 1e-9 {
        let at = start + now;
        let next = there.partition_point(|(from, _)| *from <= at + 1e-9);
        let on_spot = next > 0 && at < there[next - 1].1 - 1e-9;
        is_last |= deadline - now < left + 2.0 * RESTART;
        let [done, line] = [WORK - left, WORK * now / deadline];
        let stays = machine == Some(Machine::OnDemand) && done < line + 2.0 * RESTART;
        let wanted = match policy {
            _ if is_last => Some(Machine::OnDemand),
            Policy::Greedy => on_spot.then_some(Machine::Spot),
            Policy::UniformProgress if stays => Some(Machine::OnDemand),
            Policy::UniformProgress if on_spot => Some(Machine::Spot),
            Policy::UniformProgress => (done < line).then_some(Machine::OnDemand),
        };
        if wanted != machine {
            (machine, boot) = (wanted, RESTART);
        }
        if let Some(machine) = machine {
            cost += if machine == Machine::Spot { SPOT * TICK } else { TICK };
            if boot > 1e-9 {
                boot -= TICK;
            } else {
                left -= TICK;
            }
        }
        now += TICK;
    }
    let in_time = f64::from(u8::from(now <= deadline + 1e-6));
    Outcome { cost: cost / WORK, least: bound(there, start, deadline), in_time }
}

/// Cost of a run that knows the trace and restarts for free.
fn bound(there: &There, start: f64, deadline: f64) -> f64 {
    let inside = |(from, to): &(f64, f64)| (to.min(start + deadline) - from.max(start)).max(0.0);
    let spot = there.iter().map(inside).sum::<f64>().min(WORK);
    (SPOT * spot + (WORK - spot)) / WORK
}

/// A policy on one trace.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    trace: String,
    policy: Policy,
    deadline_hours: f64,
    runs: usize,
    in_time: f64,
    /// Mean costs, relative to the work on demand.
    cost_of_on_demand: f64,
    least_cost_of_on_demand: f64,
}

/// Both policies on every trace.
pub(super) fn evaluate(traces: &BTreeMap<String, Trace>) -> Evaluation {
    let mut rows = Vec::new();
    for (name, trace) in traces {
        for (policy, deadline) in
            Policy::ALL.into_iter().flat_map(|policy| DEADLINES.map(|deadline| (policy, deadline)))
        {
            let starts = (0..).map(|start| f64::from(start) * STARTS).take_while(|start| start + deadline <= trace.end);
            let runs: Vec<Outcome> = starts.map(|start| run(&trace.there, start, deadline, policy)).collect();
            let mean = |of: fn(&Outcome) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
            if runs.is_empty() {
                continue;
            }
            rows.push(Row {
                trace: name.clone(),
                policy,
                deadline_hours: deadline,
                runs: runs.len(),
                in_time: mean(|run| run.in_time),
                cost_of_on_demand: mean(|run| run.cost),
                least_cost_of_on_demand: mean(|run| run.least),
            });
        }
    }
    let mut table = Table::new(&[
        Column::text("trace", "trace"),
        Column::text("policy", "policy"),
        Column::number("deadline, h", "deadline_hours"),
        Column::number("runs", "runs"),
        Column::number("in time", "in_time"),
        Column::number("cost / on demand", "cost_of_on_demand"),
        Column::number("least possible", "least_cost_of_on_demand"),
    ]);
    for row in &rows {
        table.push(vec![
            Cell::text(&row.trace),
            Cell::text(row.policy.words()),
            Cell::text(row.deadline_hours),
            Cell::text(row.runs),
            Cell::text(format::percent(row.in_time)),
            Cell::text(format!("{:.2}", row.cost_of_on_demand)),
            Cell::text(format!("{:.2}", row.least_cost_of_on_demand)),
        ]);
    }
    let protocol = "for comparison, runs without a plan: 48 hours of work, 0.2 to restart, started every 12 hours of each trace; the least possible knows the trace and restarts for nothing";
    Evaluation::new(protocol.to_owned(), Vec::new(), table, &rows)
}
