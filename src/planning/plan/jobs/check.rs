//! Recomputes the shared limits of several jobs from their parts alone, and rejects a plan that violates a limit or has
//! a wrong number. Shares no code with the model; [`crate::plan::check`] has already checked each part.

use super::super::check::{CheckError, Rows, Taken, added, check_footprint, check_rows, compare, covers, numbers};
use super::super::{PlanStatus, Use};
use super::{Aim, JobsPlan, PlannedJob};
use habitat_base::units::Hours;

/// Relative difference allowed.
const TOLERANCE: f64 = 1e-6;

/// Recomputes the sums over jobs: dollars, dollars per hour, GPUs at once, single machines, and the order of jobs on a
/// machine with their deadlines.
///
/// # Errors
/// The first [`CheckError`] found.
pub fn check(plan: &JobsPlan) -> Result<(), CheckError> {
    let Some(total) = &plan.total else {
        let is_empty = plan.jobs.is_empty() && !matches!(plan.status, PlanStatus::Optimal | PlanStatus::GapLimit);
        return if is_empty { Ok(()) } else { Err(CheckError::Parts { found: plan.jobs.len(), allowed: 0 }) };
    };
    let mut cost = [0.0; 3];
    let mut last = [0.0; 3];
    let mut cost_by: Rows = [[0.0; 3]; Use::ALL.len()];
    let mut taken: Taken = Some(([0.0; 3], Some([0.0; 3])));
    for job in &plan.jobs {
        let footprint = &job.part.footprint;
        let own = footprint.energy.map(|energy| (numbers(&energy), footprint.emissions.as_ref().map(numbers)));
        taken = taken.zip(own).map(|(sum, own)| added(sum, own));
        let (start, hours) = (numbers(&job.start), numbers(&job.part.hours));
        let end = [start[0] + hours[0], start[1] + hours[1], start[2] + hours[2]];
        compare(&format!("end of {}", job.name), &numbers(&job.end), &end)?;
        for (end, (dollars, hours)) in numbers(&job.part.cost).into_iter().zip(numbers(&job.end)).enumerate() {
            cost[end] += dollars;
            last[end] = f64::max(last[end], hours);
        }
        for (sum, what) in cost_by.iter_mut().zip(Use::ALL) {
            let own = numbers(&job.part.cost_by.of(what));
            *sum = [sum[0] + own[0], sum[1] + own[1], sum[2] + own[2]];
        }
        let finish = plan.shared.confidence.end(&job.end).get();
        let shared = plan.shared.deadline.filter(|_| plan.shared.late_price.is_none());
        if let Some(deadline) = job.deadline.into_iter().chain(shared).find(|deadline| over(finish, deadline.get())) {
            return Err(CheckError::Deadline { hours: finish, deadline: deadline.get() });
        }
    }
    compare("cost of all jobs", &numbers(&total.cost), &cost)?;
    check_rows("cost of all jobs", &total.cost_by, &total.cost, &cost_by)?;
    check_footprint("all jobs", &total.footprint, taken)?;
    compare("end of the last job", &numbers(&total.hours), &last)?;
    if let Some(budget) = plan.shared.budget.filter(|budget| over(cost[1], budget.get())) {
        return Err(CheckError::Budget { cost: cost[1], budget: budget.get() });
    }
    time(plan)?;
    match plan.aim {
        Aim::Cost => at_once(plan),
        Aim::Makespan => in_turn(plan),
    }
}

/// Recomputes the dollars of the time until jobs end.
fn time(plan: &JobsPlan) -> Result<(), CheckError> {
    let Some(stated) = &plan.time_cost else { return Ok(()) };
    let (mut late, mut waiting, mut last) = (0.0, 0.0, 0.0);
    for job in &plan.jobs {
        let end = plan.shared.confidence.end(&job.end).get();
        for soft in &job.soft_deadlines {
            late += soft.usd_per_hour.get() * f64::max(0.0, end - soft.deadline.get());
        }
        waiting += job.hour_value.map_or(0.0, |price| price.get() * f64::max(0.0, end - job.earliest.get()));
        last = f64::max(last, end);
    }
    waiting += plan.shared.hour_value.map_or(0.0, |price| price.get() * last);
    compare("cost of late ends", &[stated.late.get(); 3], &[late; 3])?;
    compare("cost of waiting", &[stated.waiting.get(); 3], &[waiting; 3])
}

/// Checks the jobs on rented machines at each time when usage may increase: when a job starts or a quota begins to
/// apply.
fn at_once(plan: &JobsPlan) -> Result<(), CheckError> {
    for job in &plan.jobs {
        let start = numbers(&job.start);
        let begins = if plan.shared.wait { f64::max(start[1], job.earliest.get()) } else { 0.0 };
        compare(&format!("start of {}", job.name), &start, &[begins; 3])?;
    }
    waits(plan)?;
    let starts = plan.jobs.iter().map(|job| job.start.mid);
    let windows = plan.shared.quotas.iter().filter_map(|quota| quota.from);
    starts.chain(windows).try_for_each(|time| at(plan, time.get()))
}

/// Checks that each job starts after the end of those that it waits for, and not before it arrives.
fn waits(plan: &JobsPlan) -> Result<(), CheckError> {
    for job in &plan.jobs {
        let before = job.after.iter().filter_map(|other| plan.jobs.get(*other));
        let ends = before.map(|other| plan.shared.confidence.end(&other.end));
        let ready = ends.fold(job.earliest, Hours::max).get();
        let start = plan.shared.confidence.end(&job.start).get();
        if over(ready, start) {
            return Err(CheckError::Number { what: format!("start of {}", job.name), stated: start, found: ready });
        }
    }
    Ok(())
}

/// Checks the jobs that run at one time, by the hours of the confidence.
fn at(plan: &JobsPlan, time: f64) -> Result<(), CheckError> {
    let shared = |what: String, used: f64, most: f64| {
        if over(used, most) { Err(CheckError::Shared { what, used, most }) } else { Ok(()) }
    };
    let started = plan.jobs.iter().filter(|job| !over(job.start.mid.get(), time));
    let running: Vec<&PlannedJob> =
        started.filter(|job| over(plan.shared.confidence.end(&job.end).get(), time)).collect();
    for job in &running {
        let part = &job.part;
        if let Some(share) = &part.offer.share_of {
            let is_there = |other: &&&PlannedJob| other.part.offer.share_of.as_ref() == Some(share);
            let used: u32 = running.iter().filter(is_there).map(|user| user.part.all_gpus()).sum();
            shared(format!("GPUs of {}", share.machine), f64::from(used), f64::from(share.gpus))?;
        } else if let Some(most) = part.offer.most_machines() {
            let users = running.iter().filter(|other| other.part.offer.id == part.offer.id);
            let used: u32 = users.map(|user| user.part.machines).sum();
            shared(format!("machines of {}", part.offer.id), f64::from(used), f64::from(most))?;
        }
    }
    if let Some(most) = plan.shared.max_price {
        let used: f64 = running.iter().map(|job| job.part.price().get()).sum();
        shared("dollars per hour".to_owned(), used, most.get())?;
    }
    for quota in &plan.shared.quotas {
        let has_begun = quota.from.is_none_or(|from| !over(from.get(), time));
        if !has_begun || quota.until.is_some_and(|until| !over(until.get(), time)) {
            continue;
        }
        let used: u32 = running.iter().filter(|job| covers(quota, &job.part)).map(|job| job.part.all_gpus()).sum();
        shared(format!("GPUs of the quota {quota}"), f64::from(used), f64::from(quota.gpus))?;
    }
    Ok(())
}

/// Checks jobs on machines: each starts when it is there, and the previous one and those that it waits for have ended.
fn in_turn(plan: &JobsPlan) -> Result<(), CheckError> {
    let mut jobs: Vec<&PlannedJob> = plan.jobs.iter().collect();
    jobs.sort_by(|a, b| a.machine.cmp(&b.machine).then(a.end.mid.total_cmp(&b.end.mid)));
    let mut before: Option<&PlannedJob> = None;
    for job in jobs {
        let before_it = before.filter(|before| before.machine == job.machine).into_iter();
        let ends = before_it.chain(job.after.iter().filter_map(|other| plan.jobs.get(*other)));
        let start = ends
            .map(|other| numbers(&other.end))
            .fold([job.earliest.get(); 3], |a, b| [a[0].max(b[0]), a[1].max(b[1]), a[2].max(b[2])]);
        compare(&format!("start of {}", job.name), &numbers(&job.start), &start)?;
        before = Some(job);
    }
    Ok(())
}

fn over(used: f64, most: f64) -> bool {
    used > most * (1.0 + TOLERANCE)
}
