//! What a plan says first, and what else could be had if more were accepted, in words and as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::plans::{PartJson, gpu_words, part};
use crate::plan::{Accept, Beside, Objective, Part, Plan, PlanStatus, accept_names};
use crate::pricing::region;
use crate::text::{clean, duration};
use crate::units::{Hours, Usd};

/// An offer that needs something to be accepted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BesideJson<'a> {
    /// What has to be accepted, as `--accept` names it: `spot`, `marketplace`, `doubted`, `platform`, `batch`.
    pub accept: Vec<&'static str>,
    /// That in words.
    pub what: &'a str,
    /// All the work on it.
    pub part: PartJson<'a>,
    /// When it fails: `that host is gone`.
    pub fails_when: &'static str,
    /// Cost of the work then; absent where nothing else meets the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_cost_usd: Option<f64>,
    /// Hours of the work then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_hours: Option<f64>,
    /// What is used then.
    pub fails_with: &'a str,
}

/// As JSON.
pub fn json(plan: &Plan) -> Vec<BesideJson<'_>> {
    fn one(beside: &Beside) -> BesideJson<'_> {
        BesideJson {
            accept: beside.accept.iter().map(|accept| accept.name()).collect(),
            what: &beside.what,
            part: part(&beside.part),
            fails_when: beside.fallback.when,
            fails_cost_usd: beside.fallback.then.map(|(cost, _)| cost.get()),
            fails_hours: beside.fallback.then.map(|(_, hours)| hours.get()),
            fails_with: &beside.fallback.with,
        }
    }
    plan.beside.iter().map(one).collect()
}

/// An offer in words: `8 × v100-sxm2-16gb at lambda us-east-1, on-demand`.
pub fn offer_words(part: &Part) -> String {
    let place = [clean(&part.provider, 20), clean(region::shown(&part.region), 30)];
    format!("{} at {}, {}", gpu_words(part), place.join(" "), part.tier)
}

/// The plan in one sentence; `None` where there is none.
pub fn verdict(plan: &Plan) -> Option<String> {
    let total = plan.total.as_ref()?;
    let offers: Vec<String> = plan.parts.iter().map(offer_words).collect();
    let (cost, hours) = (format::usd_with_range(&total.cost), format::hours_with_range(&total.hours));
    Some(format!("Take {}: {cost} in {hours}", offers.join(", then ")))
}

/// What the status means, in words.
pub fn status_words(plan: &Plan) -> String {
    let best = match plan.goal.objective {
        Objective::Cost => "cheapest",
        Objective::Time => "fastest",
        Objective::CostPlusTime(_) => "best",
        Objective::Emissions => "least CO2e",
    };
    match (plan.status, plan.goal.max_parts) {
        (PlanStatus::Optimal, 1) if plan.goal.limits.max_machines > 1 => {
            format!("{best} of {} choices of offer and machines", format::grouped(plan.solver.configurations as f64))
        }
        (PlanStatus::Optimal, 1) if plan.solver.configurations == 1 => "the only priced offer".to_owned(),
        (PlanStatus::Optimal, 1) => {
            let which = which_words(&plan.goal.limits.accept);
            format!("{best} of {} {which}", format::grouped(plan.solver.configurations as f64))
        }
        (PlanStatus::Optimal, parts) => format!("{best} of all plans of up to {parts} parts"),
        (PlanStatus::GapLimit, _) => plan.solver.gap.map_or_else(
            || format!("close to the {best}"),
            |gap| format!("at most {} from the {best}", format::percent(gap)),
        ),
        (PlanStatus::TimeLimit, _) => format!("{best} found in the time allowed"),
        (PlanStatus::Infeasible, _) => "no plan meets the limits".to_owned(),
    }
}

/// The offers that a plan chooses from, in words.
fn which_words(accept: &[Accept]) -> String {
    match accept {
        [] => "firm offers".to_owned(),
        all if all.len() == Accept::ALL.len() => "priced offers".to_owned(),
        some => format!("offers (accepted: {})", accept_names(some)),
    }
}

/// How far it is from the limits, in words; empty without limits.
pub fn room(plan: &Plan) -> Vec<String> {
    let Some(total) = &plan.total else { return Vec::new() };
    let finish = plan.goal.confidence.end(&total.hours);
    let late = plan.goal.deadline.and_then(|deadline| deadline.checked_sub(finish));
    let below = plan.goal.budget.and_then(|budget| budget.checked_sub(total.cost.mid));
    let late = late.map(|left: Hours| format!("{} before the deadline", duration(left.get())));
    let below = below.map(|left: Usd| format!("{} below the budget", format::usd(left)));
    late.into_iter().chain(below).collect()
}

/// The heading over what else could be had.
pub fn heading(plan: &Plan) -> &'static str {
    match (plan.total.is_some(), plan.goal.objective) {
        (false, _) => "There is one, if you accept",
        (true, Objective::Cost) => "Cheaper, if you accept",
        (true, Objective::Time) => "Sooner, if you accept",
        (true, Objective::CostPlusTime(_)) => "Better, if you accept",
        (true, Objective::Emissions) => "Less CO2e, if you accept",
    }
}

/// What is accepted, and what the work costs then.
pub fn gain(beside: &Beside) -> String {
    let Part { cost, hours, .. } = &beside.part;
    format!("{}: {} in {}, {}", beside.what, format::usd(cost.mid), format::hours(hours.mid), offer_words(&beside.part))
}

/// What the work costs where that fails.
pub fn risk(beside: &Beside) -> String {
    let fallback = &beside.fallback;
    match &fallback.then {
        Some((cost, hours)) => {
            format!("if {}: {} in {} with {}", fallback.when, format::usd(*cost), format::hours(*hours), fallback.with)
        }
        None => format!("if {}: nothing else meets the limits", fallback.when),
    }
}

/// The flag that accepts it.
pub fn flag(beside: &Beside) -> String {
    format!("--accept {}", accept_names(&beside.accept))
}

/// A little more that buys a lot, in words.
pub fn bargain(plan: &Plan) -> Option<String> {
    let part = plan.bargain.as_ref()?;
    let what = match plan.goal.objective {
        Objective::Time => "A little later costs much less",
        _ => "A little more buys a lot",
    };
    let flag = match plan.goal.objective {
        Objective::Time => {
            format!("--objective cost --deadline {:.1}h", plan.goal.confidence.end(&part.hours).get() + 0.05)
        }
        _ => format!("--deadline {:.1}h", plan.goal.confidence.end(&part.hours).get() + 0.05),
    };
    let (cost, hours) = (format::usd(part.cost.mid), format::hours(part.hours.mid));
    Some(format!("{what}: {cost} in {hours}, {} ({flag})", offer_words(part)))
}
