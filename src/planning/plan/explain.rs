//! Reasons why no plan exists, and changes that would allow one.
//!
//! Relaxes one limit at a time, keeps the others, and finds the smallest excess with a solve. If no single limit
//! suffices, relaxes deadline and budget together, with each excess in units of a tenth of its limit.

use super::configuration::Excluded;
use super::prepared::Prepared;
use super::problem::{Aim, Limit, RELATIVE_TOLERANCE};
use super::search::{most_work, solve_one};
use super::{Amount, Confidence, Machines, NoPlan, Objective, RejectionKind};
use habitat_base::units::{Hours, Samples, Usd};
use habitat_prediction::Finding;

/// Largest share of the work that a reason proposes to leave out (a choice).
const MOST_LESS: f64 = 0.9;

/// Reasons, most useful first; `lifted` has the proposals for limits on offers ([`super::relax`]).
pub(super) fn reasons(prepared: &Prepared, limit: &Limit, lifted: Vec<NoPlan>) -> Vec<NoPlan> {
    let mut reasons = Vec::new();
    if prepared.configurations.is_empty() {
        reasons.push(if prepared.others.is_empty() { NoPlan::NoOffer } else { NoPlan::NoFirmOffer });
    } else {
        let later = relaxed_deadline(prepared, limit);
        let dearer = relaxed_budget(prepared, limit);
        let neither = later.is_err() && dearer.is_err();
        for relaxed in [later, dearer] {
            reasons.extend(relaxed.unwrap_or_else(Some));
        }
        if neither && limit.deadline.is_some() && limit.budget.is_some() {
            reasons.extend(both_relaxed(prepared, limit));
        }
        reasons.extend(less_work(prepared, limit));
        reasons.extend(less_confidence(prepared, limit));
        reasons.extend(host_waits(prepared));
    }
    reasons.extend(lifted);
    reasons.extend(filters(&prepared.excluded));
    reasons
}

/// Machines of a plan, one after another.
pub(super) fn machines(prepared: &Prepared, used: impl IntoIterator<Item = usize>) -> Vec<Machines> {
    used.into_iter().map(|c| prepared.configurations[c].label()).collect()
}

/// The best plan for an objective: machines, hours at the goal's confidence, and dollars.
fn best_plan(prepared: &Prepared, objective: Objective, limit: &Limit) -> Option<(Vec<Machines>, f64, f64)> {
    let (found, parts) = prepared.solution(objective, limit)?;
    let value = |aim: Aim| prepared.problem().value(aim, &found.hours);
    Some((machines(prepared, parts.iter().map(|(c, _)| *c)), value(Aim::Finish), value(Aim::Cost)))
}

/// Proposal for a longer deadline, missing without a deadline; `Err` if that alone does not suffice.
fn relaxed_deadline(prepared: &Prepared, limit: &Limit) -> Result<Option<NoPlan>, NoPlan> {
    let Some(deadline) = limit.deadline else { return Ok(None) };
    let relaxed = Limit { deadline: None, ..limit.clone() };
    if let Some((with, finish, cost)) = best_plan(prepared, Objective::Time, &relaxed) {
        let hours = Hours::known((finish - deadline).max(0.0));
        return Ok(Some(NoPlan::MoreTime { hours, with, cost_usd: Usd::known(cost) }));
    }
    let cheapest = best_plan(prepared, Objective::Cost, &Limit::default());
    let (with, cost_usd) = cheapest.map_or((Vec::new(), None), |(with, _, cost)| (with, Some(Usd::known(cost))));
    Err(NoPlan::TimeDoesNotHelp { cost_usd, with })
}

/// Proposal for a larger budget, analogous to [`relaxed_deadline`].
fn relaxed_budget(prepared: &Prepared, limit: &Limit) -> Result<Option<NoPlan>, NoPlan> {
    let fastest = || {
        let fastest = best_plan(prepared, Objective::Time, &Limit::default());
        let (with, hours) = fastest.map_or((Vec::new(), None), |(with, finish, _)| (with, Some(Hours::known(finish))));
        NoPlan::MoneyDoesNotHelp { hours, confidence: prepared.goal.confidence, with }
    };
    let Some(budget) = limit.budget else {
        // Without a budget, only the deadline prevents a plan: report the fastest plan.
        return limit.deadline.map_or(Ok(None), |_| Err(fastest()));
    };
    let relaxed = Limit { budget: None, ..limit.clone() };
    let (with, finish, cost) = best_plan(prepared, Objective::Cost, &relaxed).ok_or_else(fastest)?;
    Ok(Some(NoPlan::MoreMoney { usd: Usd::known((cost - budget).max(0.0)), with, hours: Hours::known(finish) }))
}

/// Smallest excess of deadline and budget together.
fn both_relaxed(prepared: &Prepared, limit: &Limit) -> Option<NoPlan> {
    let (deadline, budget) = (limit.deadline?, limit.budget?);
    let problem = prepared.problem();
    // A limit of zero has no tenth; use an hour or a dollar as its unit.
    let unit = |limit: f64| if limit > 0.0 { limit / 10.0 } else { 1.0 };
    let excess = |finish: f64, cost: f64| {
        (finish - deadline).max(0.0) / unit(deadline) + (cost - budget).max(0.0) / unit(budget)
    };
    let hours = if problem.max_parts > 1 {
        let aim = Aim::Excess { hours: unit(deadline), usd: unit(budget) };
        solve_one(problem, aim, limit).ok()?.hours
    } else {
        let (choice, ..) = prepared.wholes().min_by(|a, b| excess(a.1, a.2).total_cmp(&excess(b.1, b.2)))?;
        vec![(choice, problem.work / problem.choices[choice].rate)]
    };
    let (finish, cost) = (problem.value(Aim::Finish, &hours), problem.value(Aim::Cost, &hours));
    Some(NoPlan::MoreTimeAndMoney {
        hours: Hours::known((finish - deadline).max(0.0)),
        usd: Usd::known((cost - budget).max(0.0)),
        with: machines(prepared, prepared.by_configuration(&hours).iter().map(|(c, _)| *c)),
    })
}

/// Largest amount of work within the limits.
fn less_work(prepared: &Prepared, limit: &Limit) -> Option<NoPlan> {
    let work = prepared.work.get();
    let most = most_work(prepared.problem(), limit).ok()?;
    if most <= RELATIVE_TOLERANCE * work {
        let (has_deadline, has_budget) = (limit.deadline.is_some(), limit.budget.is_some());
        return Some(NoPlan::SetupTooLong { has_deadline, has_budget });
    }
    let (less, share) = (work - most, (work - most) / work);
    let fewer = match prepared.work {
        Amount::Samples(_) => Amount::Samples(Samples::checked(less)?),
        Amount::Steps(_) => Amount::Steps(less),
    };
    (less > 0.0 && share <= MOST_LESS).then_some(NoPlan::LessWork { fewer, share })
}

/// An offer that meets the limits at its expected times, if any.
fn less_confidence(prepared: &Prepared, limit: &Limit) -> Option<NoPlan> {
    limit.deadline.filter(|_| prepared.goal.confidence == Confidence::High)?;
    let expected = prepared.wholes().map(|(c, ..)| (c, prepared.ranges(&prepared.configurations[c], 1.0)));
    let kept = expected.filter(|(_, (time, cost))| limit.is_kept(time.mid.get(), cost.mid.get()));
    let (c, (time, cost)) = kept.min_by(|a, b| a.1.1.mid.total_cmp(&b.1.1.mid))?;
    Some(NoPlan::AtExpectedTime { with: machines(prepared, [c]), hours: time.mid, cost_usd: cost.mid })
}

/// Waits of the recorded GPU for its host that lengthen the steps of an offer.
fn host_waits(prepared: &Prepared) -> Option<NoPlan> {
    let mut warnings = prepared.configurations.iter().flat_map(|configuration| &configuration.warnings);
    warnings.find_map(|warning| match *warning {
        Finding::HostBound { idle_us, data_us, step_us, .. } => {
            Some(NoPlan::HostWaits { idle_us: idle_us + data_us, step_us })
        }
        _ => None,
    })
}

/// Number of rejected offers of each kind, with the nearest miss.
fn filters(excluded: &[Excluded]) -> impl Iterator<Item = NoPlan> {
    let kind_of = |excluded: &Excluded| excluded.rejection.reason.kind();
    let mut kinds: Vec<RejectionKind> = excluded.iter().map(kind_of).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds.into_iter().filter_map(move |kind| {
        let of_kind = || excluded.iter().filter(|e| kind_of(e) == kind);
        let miss = |excluded: &Excluded| excluded.miss.unwrap_or(f64::INFINITY);
        let nearest = of_kind().min_by(|a, b| miss(a).total_cmp(&miss(b)).then(a.place.cmp(&b.place)))?;
        Some(NoPlan::Rejected {
            kind,
            offers: of_kind().count(),
            such_as: nearest.rejection.offer.clone(),
            reason: Box::new(nearest.rejection.reason.clone()),
            miss: nearest.miss,
        })
    })
}
