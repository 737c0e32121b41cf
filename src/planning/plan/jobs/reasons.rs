//! Reasons why several jobs have no joint plan, and the smallest changes of limits that would allow one.

use super::super::Prepared;
use super::super::explain::{more_dollars, more_hours, reasons, up};
use super::super::problem::SAME;
use super::super::relax;
use super::super::solve::{Settings, SolveError};
use super::model::{Model, SharedLimit};
use super::{Job, JobsPlan};
use crate::pricing::PriceBook;
use habitat_base::text::{dollars, duration};

/// Number of limits to relax one by one, since each needs a solve.
const TRIED: usize = 12;

/// Reasons for each job that has no plan alone.
pub(super) fn of_each(jobs: &[Job], prepared: &[Prepared], model: &Model, prices: &PriceBook) -> Vec<String> {
    let without = jobs.iter().zip(prepared).zip(&model.assignment.jobs).filter(|(_, ways)| ways.is_empty());
    without
        .flat_map(|((job, prepared), _)| {
            let limit = Prepared::limit(prepared.goal.deadline, prepared.goal.budget);
            let is_rented = model.machines.is_empty();
            let lifted = is_rented.then(|| relax::reasons(prepared, &job.predictions, prices, &limit));
            let own = reasons(prepared, &limit, lifted.unwrap_or_default());
            own.into_iter().map(|reason| format!("job {:?} alone: {reason}", job.name))
        })
        .collect()
}

/// Jobs that cannot start early enough.
pub(super) fn too_late(jobs: &[Job], prepared: &[Prepared], model: &Model) -> Vec<String> {
    let late = jobs.iter().zip(prepared).zip(&model.bases).filter(|((job, prepared), ways)| {
        let least = ways.iter().map(|way| way.hours).fold(f64::INFINITY, f64::min);
        prepared.goal.deadline.is_some_and(|due| job.earliest.get() + least > due.get() * (1.0 + SAME))
    });
    late.map(|((job, _), _)| {
        let earliest = job.earliest.get();
        format!("job {:?} alone: its earliest start, {earliest} h, is too late for its deadline", job.name)
    })
    .collect()
}

/// Proposal to let jobs wait for one another.
pub(super) fn by_waiting(plan: &JobsPlan) -> Option<String> {
    let total = plan.total?;
    let (cost, end) = (dollars(total.cost.mid.get()), duration(total.hours.mid.get()));
    Some(format!(
        "not all jobs can run at the same time; if they may wait for one another (wait = true), they cost {cost}, and the last ends after {end}"
    ))
}

/// Changes that would allow a plan: one limit alone, or all together if no single one suffices.
pub(super) fn of_all(model: &Model, settings: Settings) -> Vec<String> {
    let used: Vec<usize> = (0..model.limits.len()).collect();
    let mut found = Vec::new();
    for limit in used.iter().take(TRIED) {
        match model.assignment.excess(&[*limit], settings) {
            Ok(excess) => found.push(words(&model.limits[*limit], excess[0], model)),
            Err(SolveError::Infeasible) => {}
            Err(error) => {
                let name = name(&model.limits[*limit]);
                found.push(format!("{name}: unknown whether raising it helps: {error}"));
            }
        }
    }
    if !found.is_empty() {
        found.insert(
            0,
            "each job has a plan alone, but not all of them together; any of these changes would allow one:".to_owned(),
        );
        return found;
    }
    found.push(
        "each job has a plan alone, but not all of them together, and no single change would allow one".to_owned(),
    );
    if let Ok(excess) = model.assignment.excess(&used, settings) {
        found.push("all of these changes together would allow one:".to_owned());
        let exceeded = used.iter().zip(excess).filter(|(_, excess)| *excess > 1e-9);
        found.extend(exceeded.map(|(limit, excess)| words(&model.limits[*limit], excess, model)));
    }
    found
}

fn name(limit: &SharedLimit) -> String {
    match limit {
        SharedLimit::Budget(budget) => format!("the budget of ${} for all jobs", budget.get()),
        SharedLimit::Price(most) => format!("the limit of ${}/h for all jobs", most.get()),
        SharedLimit::Quota(quota) => format!("the quota of {quota}"),
        SharedLimit::OneMachine(offer) => format!("the single machine {offer}"),
        SharedLimit::Deadline(deadline) => format!("the deadline after {} h", deadline.get()),
    }
}

fn words(limit: &SharedLimit, excess: f64, model: &Model) -> String {
    let name = name(limit);
    match limit {
        SharedLimit::Budget(_) => format!("{name}: spend {} more", more_dollars(excess)),
        SharedLimit::Price(_) => format!("{name}: allow {} more per hour", more_dollars(excess)),
        SharedLimit::Quota(quota) => {
            let more = up(excess, 1.0);
            format!("{name}: {more} more GPUs ({})", f64::from(quota.gpus) + more)
        }
        SharedLimit::OneMachine(_) => format!("{name}: add {} more", up(excess, 1.0)),
        SharedLimit::Deadline(_) => {
            let machines = model.machines.len();
            let on = if machines == 1 { "on the single machine".to_owned() } else { format!("on {machines} machines") };
            format!("{name}: allow {} more {on}", more_hours(excess))
        }
    }
}
