//! Reasons why no plan exists, and changes that would allow one.
//!
//! Relaxes one limit at a time, keeps the others, and finds the smallest excess with a solve. If no single limit
//! suffices, relaxes deadline and budget together, with each excess in units of a tenth of its limit. Amounts are
//! rounded up, so that a proposed change suffices.

use super::configuration::Excluded;
use super::energy::kilograms;
use super::prepared::Prepared;
use super::problem::{Aim, Limit, SAME};
use super::search::{most_work, solve_one};
use super::{Confidence, Objective, RejectionKind};
use habitat_base::text::{dollars, duration, grouped};

/// Rounds up to a multiple of `step`, ignoring rounding errors.
pub(super) fn up(value: f64, step: f64) -> f64 {
    ((value / step) * (1.0 - SAME) - SAME).ceil().max(0.0) * step
}

/// Hours in words, rounded up to minutes below an hour, otherwise to tenths of an hour.
pub(super) fn more_hours(value: f64) -> String {
    let minutes = up(value * 60.0, 1.0).max(1.0);
    duration(if minutes < 60.0 { minutes / 60.0 } else { up(value, 0.1) })
}

/// Dollars in words, rounded up.
pub(super) fn more_dollars(value: f64) -> String {
    dollars(up(value, if value < 1000.0 { 0.01 } else { 1.0 }).max(0.01))
}

/// Kilograms in words, rounded up to three significant digits.
pub(super) fn more_kilograms(value: f64) -> String {
    kilograms(if value > 0.0 { up(value, 10f64.powf(value.log10().floor() - 2.0)) } else { 0.0 })
}

/// Reasons, most useful first; `lifted` has the proposals for limits on offers ([`super::relax`]).
pub(super) fn reasons(prepared: &Prepared, limit: &Limit, lifted: Vec<String>) -> Vec<String> {
    let mut reasons = Vec::new();
    if prepared.configurations.is_empty() {
        let which = if prepared.others.is_empty() { "no offer can be used" } else { "no firm offer can be used" };
        reasons.push(which.to_owned());
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
    }
    reasons.extend(lifted);
    reasons.extend(filters(&prepared.excluded));
    reasons
}

/// Words for the offers of a plan.
pub(super) fn label(prepared: &Prepared, used: impl IntoIterator<Item = usize>) -> String {
    used.into_iter().map(|c| prepared.configurations[c].label()).collect::<Vec<_>>().join(", then ")
}

fn configurations_of(parts: &[(usize, f64)]) -> impl Iterator<Item = usize> {
    parts.iter().map(|(c, _)| *c)
}

/// Proposal for a longer deadline; `Err` if that alone does not suffice. The text is missing without a deadline.
fn relaxed_deadline(prepared: &Prepared, limit: &Limit) -> Result<Option<String>, String> {
    let Some(deadline) = limit.deadline else { return Ok(None) };
    let relaxed = Limit { deadline: None, ..limit.clone() };
    let Some((found, parts)) = prepared.found(Objective::Time, &relaxed) else {
        let cheapest = prepared.found(Objective::Cost, &Limit::default());
        return Err(cheapest.map_or_else(
            || "more time does not help".to_owned(),
            |(found, parts)| {
                let cost = prepared.problem().value(Aim::Cost, &found.hours);
                let label = label(prepared, configurations_of(&parts));
                format!("more time does not help: the cheapest plan costs {} ({label})", dollars(cost))
            },
        ));
    };
    let finish = prepared.problem().value(Aim::Finish, &found.hours);
    let cost = prepared.problem().value(Aim::Cost, &found.hours);
    Ok(Some(format!(
        "allow {} more ({}, {})",
        more_hours(finish - deadline),
        label(prepared, configurations_of(&parts)),
        dollars(cost)
    )))
}

/// Proposal for a larger budget, analogous to [`relaxed_deadline`].
fn relaxed_budget(prepared: &Prepared, limit: &Limit) -> Result<Option<String>, String> {
    let Some(budget) = limit.budget else {
        // Without a budget, only the deadline prevents a plan: report the fastest plan.
        return limit.deadline.map_or(Ok(None), |_| Err(fastest(prepared)));
    };
    let relaxed = Limit { budget: None, ..limit.clone() };
    let Some((found, parts)) = prepared.found(Objective::Cost, &relaxed) else {
        return Err(fastest(prepared));
    };
    let finish = prepared.problem().value(Aim::Finish, &found.hours);
    let cost = prepared.problem().value(Aim::Cost, &found.hours);
    Ok(Some(format!(
        "spend {} more ({}, {})",
        more_dollars(cost - budget),
        label(prepared, configurations_of(&parts)),
        duration(finish)
    )))
}

fn fastest(prepared: &Prepared) -> String {
    prepared.found(Objective::Time, &Limit::default()).map_or_else(
        || "more money does not help".to_owned(),
        |(found, parts)| {
            let finish = prepared.problem().value(Aim::Finish, &found.hours);
            let (needs, label) = (prepared.time_limit_words(finish), label(prepared, configurations_of(&parts)));
            format!("more money does not help: the fastest plan needs {needs} ({label})")
        },
    )
}

/// Smallest excess of deadline and budget together.
fn both_relaxed(prepared: &Prepared, limit: &Limit) -> Option<String> {
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
        let (choice, _) = problem
            .choices
            .iter()
            .enumerate()
            .filter_map(|(c, _)| problem.whole(c).map(|(finish, cost)| (c, excess(finish, cost))))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        vec![(choice, problem.work / problem.choices[choice].rate)]
    };
    let (finish, cost) = (problem.value(Aim::Finish, &hours), problem.value(Aim::Cost, &hours));
    Some(format!(
        "allow {} and spend {} more ({})",
        more_hours((finish - deadline).max(0.0)),
        more_dollars((cost - budget).max(0.0)),
        label(prepared, configurations_of(&prepared.by_configuration(&hours)))
    ))
}

/// Largest amount of work within the limits.
fn less_work(prepared: &Prepared, limit: &Limit) -> Option<String> {
    let work = prepared.work.get();
    let most = most_work(prepared.problem(), limit).ok()?;
    let less = work - most;
    if most <= SAME * work {
        let exceeded = match (limit.deadline, limit.budget) {
            (Some(_), None) => "deadline",
            (None, Some(_)) => "budget",
            _ => "limits",
        };
        return Some(format!("set-up alone exceeds the {exceeded}"));
    }
    let share = less / work * 100.0;
    // Do not propose to remove all of the work.
    (less > 0.0 && share < 99.95).then(|| {
        let fewer = if less < 10.0 {
            format!("{:.1}", up(less, 0.1)).trim_end_matches(".0").to_owned()
        } else {
            grouped(up(less, 1.0))
        };
        format!("train on {fewer} fewer {} ({share:.1} % of the work)", prepared.work.unit())
    })
}

/// An offer that meets the limits at its expected times, if any.
fn less_confidence(prepared: &Prepared, limit: &Limit) -> Option<String> {
    let deadline = limit.deadline.filter(|_| prepared.goal.confidence == Confidence::High)?;
    prepared
        .configurations
        .iter()
        .enumerate()
        .filter(|(c, _)| prepared.singles.whole(*c).is_some())
        .map(|(_, configuration)| {
            let (time, cost) = configuration.ranges(prepared.work.get() / configuration.rate(), true);
            (configuration, time.mid.get(), cost.mid.get())
        })
        .filter(|(_, time, cost)| *time <= deadline && limit.budget.is_none_or(|budget| *cost <= budget))
        .min_by(|a, b| a.2.total_cmp(&b.2))
        .map(|(configuration, time, cost)| {
            format!(
                "at the expected time, instead of the upper end of its range, {} meets the limits: {}, {}",
                configuration.label(),
                duration(time),
                dollars(cost)
            )
        })
}

/// Number of rejected offers of each kind, with the nearest miss.
fn filters(excluded: &[Excluded]) -> Vec<String> {
    let mut kinds: Vec<RejectionKind> = excluded.iter().map(|e| e.rejection.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
        .into_iter()
        .map(|kind| {
            let of_kind = || excluded.iter().filter(|e| e.rejection.kind == kind);
            let count = of_kind().count();
            let nearest = of_kind()
                .min_by(|a, b| {
                    a.miss
                        .unwrap_or(f64::INFINITY)
                        .total_cmp(&b.miss.unwrap_or(f64::INFINITY))
                        .then(a.place.cmp(&b.place))
                })
                .map(|e| {
                    let which = if e.miss.is_some() { "nearest" } else { "such as" };
                    format!(", {which} {}: {}", e.rejection.offer, e.rejection.reason)
                });
            let words = match kind {
                RejectionKind::MemoryUnknown => "without known memory needs (allow them with --allow-unknown-memory)",
                _ => kind.words(),
            };
            let offers = if count == 1 { "offer" } else { "offers" };
            format!("{count} {offers} {words}{}", nearest.unwrap_or_default())
        })
        .collect()
}
