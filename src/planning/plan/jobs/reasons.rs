//! Reasons why several jobs have no joint plan, and changes of limits or deadlines that would allow one.

use super::super::explain::reasons;
use super::super::relax;
use super::super::solve::{Settings, SolveError};
use super::super::{NoPlan, Prepared, SharedLimit};
use super::model::Model;
use super::rent::Missing;
use super::schedule::{Schedule, Tasks};
use super::{Job, JobsPlan};
use crate::pricing::PriceBook;
use habitat_base::units::Hours;

/// Number of limits to relax one by one, since each needs a solve.
const TRIED: usize = 12;
/// Halvings of the excess of a limit.
const HALVINGS: u32 = 6;
/// Number of jobs to name.
const NAMED: usize = 20;

/// Reasons for a job that has no plan alone.
pub(super) fn alone(job: &Job, prepared: &Prepared, rents: bool, prices: &PriceBook) -> Vec<NoPlan> {
    let limit = Prepared::limit(prepared.goal.deadline, prepared.goal.budget);
    let lifted = rents.then(|| relax::reasons(prepared, (&job.predictions, prices), &limit));
    let own = reasons(prepared, &limit, lifted.unwrap_or_default());
    own.into_iter().map(|reason| NoPlan::JobAlone { job: job.name.clone(), reason: Box::new(reason) }).collect()
}

/// Jobs that cannot start early enough, even without the others.
pub(super) fn too_late(jobs: &[Job], tasks: &Tasks) -> Vec<NoPlan> {
    let mut empty = Schedule::new(tasks);
    let of_job = |(number, job): (usize, &Job)| {
        let task = &tasks.jobs[number];
        let starts: Vec<f64> = (0..task.modes.len()).map(|mode| empty.possible_start(number, mode)).collect();
        let is_due = |(start, mode): (&f64, &super::super::assignment::Mode)| task.is_due(start + mode.hours);
        if starts.iter().zip(&task.modes).any(is_due) {
            return None;
        }
        let earliest_hours = Hours::checked(starts.iter().copied().fold(f64::INFINITY, f64::min));
        Some(NoPlan::JobTooLate { job: job.name.clone(), earliest_hours })
    };
    jobs.iter().enumerate().filter_map(of_job).collect()
}

/// Proposal to let jobs wait for one another.
pub(super) fn by_waiting(plan: &JobsPlan) -> Option<NoPlan> {
    let total = plan.total?;
    Some(NoPlan::JobsMayWait { cost_usd: total.cost.mid, hours: total.hours.mid })
}

/// Proof that no plan exists, and changes that would allow one.
pub(super) fn missing(model: &Model, missing: &Missing, jobs: &[Job], settings: Settings) -> Vec<NoPlan> {
    let mut found = Vec::new();
    found.extend(missing.overload.as_ref().map(|overload| NoPlan::Overload {
        limits: overload.limits.iter().map(|limit| model.tasks.limits[*limit].clone()).collect(),
        jobs: overload.jobs,
        until_hours: Hours::checked(overload.until),
        times: overload.times,
    }));
    if !missing.proven {
        found.push(NoPlan::NotFound { why: SolveError::OutOfTime.to_string() });
    }
    if model.has_program() {
        found.extend(of_program(model, settings));
        return found;
    }
    // On machines, the limits are the deadlines of the late jobs.
    let limits = if model.machines.is_empty() { model.tasks.limits.len().min(TRIED) } else { 0 };
    let mut changes: Vec<NoPlan> = (0..limits).filter_map(|limit| model.tasks.raised(limit, settings)).collect();
    let later = |(job, hours): &(usize, f64)| {
        Some(NoPlan::JobLater { job: jobs[*job].name.clone(), more_hours: Hours::checked(*hours)? })
    };
    let is_all = missing.late.len() <= NAMED && missing.over_usd <= 0.0;
    let later: Vec<NoPlan> = missing.late.iter().filter_map(later).collect();
    let later = if is_all && later.len() == missing.late.len() { later } else { Vec::new() };
    if later.len() == 1 {
        changes.extend(later.clone());
    }
    if !changes.is_empty() {
        // Of one job, that is clear.
        found.extend((jobs.len() > 1).then_some(NoPlan::AnyChange));
        found.extend(changes);
    }
    if later.len() > 1 {
        found.push(NoPlan::AllChanges);
        found.extend(later);
    }
    found
}

/// Changes that would allow a plan, from the integer program: one limit alone, or all together if no single one
/// suffices.
fn of_program(model: &Model, settings: Settings) -> Vec<NoPlan> {
    let used: Vec<usize> = (0..model.tasks.limits.len()).collect();
    let limit = |limit: usize| model.tasks.limits[limit].clone();
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

impl Tasks {
    /// A larger amount of a limit with which a plan is found, close to the smallest; `None` if none is found.
    fn raised(&self, limit: usize, settings: Settings) -> Option<NoPlan> {
        let most = self.most[limit];
        let with = |amount: f64| {
            let mut tasks = self.clone();
            tasks.most[limit] = amount;
            let found = tasks.any(settings.seconds)?;
            Some(found.peak(limit))
        };
        let (mut low, mut high) = (most, with(f64::MAX)?);
        let is_whole = !matches!(self.limits[limit], SharedLimit::BudgetUsd(_) | SharedLimit::UsdPerHour(_));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            let middle = if is_whole { middle.floor() } else { middle };
            if middle <= low {
                break;
            }
            match with(middle) {
                Some(peak) => high = peak,
                None => low = middle,
            }
        }
        Some(NoPlan::SharedLimit { limit: self.limits[limit].clone(), more: (high - most).max(0.0), machines: 0 })
    }
}
