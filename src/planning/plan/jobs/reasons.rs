//! Reasons why several jobs have no joint plan, and the smallest changes of limits that would allow one.

use super::super::explain::reasons;
use super::super::problem::SAME;
use super::super::relax;
use super::super::solve::{Settings, SolveError};
use super::super::{NoPlan, Prepared};
use super::model::Model;
use super::{Job, JobsPlan};
use crate::pricing::PriceBook;

/// Number of limits to relax one by one, since each needs a solve.
const TRIED: usize = 12;

/// Reasons for each job that has no plan alone.
pub(super) fn of_each(jobs: &[Job], prepared: &[Prepared], model: &Model, prices: &PriceBook) -> Vec<NoPlan> {
    let without = jobs.iter().zip(prepared).zip(&model.assignment.jobs).filter(|(_, ways)| ways.is_empty());
    without
        .flat_map(|((job, prepared), _)| {
            let limit = Prepared::limit(prepared.goal.deadline, prepared.goal.budget);
            let is_rented = model.machines.is_empty();
            let lifted = is_rented.then(|| relax::reasons(prepared, &job.predictions, prices, &limit));
            let own = reasons(prepared, &limit, lifted.unwrap_or_default());
            let alone = |reason| NoPlan::JobAlone { job: job.name.clone(), reason: Box::new(reason) };
            own.into_iter().map(alone).collect::<Vec<_>>()
        })
        .collect()
}

/// Jobs that cannot start early enough.
pub(super) fn too_late(jobs: &[Job], prepared: &[Prepared], model: &Model) -> Vec<NoPlan> {
    let late = jobs.iter().zip(prepared).zip(&model.bases).filter(|((job, prepared), ways)| {
        let least = ways.iter().map(|way| way.hours).fold(f64::INFINITY, f64::min);
        prepared.goal.deadline.is_some_and(|due| job.earliest.get() + least > due.get() * (1.0 + SAME))
    });
    late.map(|((job, _), _)| NoPlan::JobTooLate { job: job.name.clone(), earliest_hours: job.earliest }).collect()
}

/// Proposal to let jobs wait for one another.
pub(super) fn by_waiting(plan: &JobsPlan) -> Option<NoPlan> {
    let total = plan.total?;
    Some(NoPlan::JobsMayWait { cost_usd: total.cost.mid, hours: total.hours.mid })
}

/// Changes that would allow a plan: one limit alone, or all together if no single one suffices.
pub(super) fn of_all(model: &Model, settings: Settings) -> Vec<NoPlan> {
    let used: Vec<usize> = (0..model.limits.len()).collect();
    let limit = |limit: usize| model.limits[limit].clone();
    let raised = |place, more| NoPlan::SharedLimit { limit: limit(place), more, machines: model.machines.len() };
    let mut found = Vec::new();
    for place in used.iter().copied().take(TRIED) {
        match model.assignment.excess(&[place], settings) {
            Ok(excess) => found.push(raised(place, excess[0])),
            Err(SolveError::Infeasible) => {}
            Err(error) => {
                found.push(NoPlan::SharedLimitUnknown { limit: limit(place), why: error.to_string() });
            }
        }
    }
    if !found.is_empty() {
        found.insert(0, NoPlan::AnyChange);
        return found;
    }
    found.push(NoPlan::NoSingleChange);
    if let Ok(excess) = model.assignment.excess(&used, settings) {
        found.push(NoPlan::AllChanges);
        let exceeded = used.iter().zip(excess).filter(|(_, excess)| *excess > 1e-9);
        found.extend(exceeded.map(|(place, excess)| raised(*place, excess)));
    }
    found
}
