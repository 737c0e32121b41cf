//! Summary lines of a plan, and offers that the user would have to accept first, in words and as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::parts::{PartJson, gpu_words, machine_words, part};
use super::words::plan::{accept_names, budget_flag, deadline_flag};
use super::words::{self, Words};
use habitat_base::text::{clean, duration};
use habitat_base::units::{Hours, Usd};
use habitat_planning::plan::{Accept, Beside, Instead, Objective, Part, Plan, PlanStatus, Risk, Setback};
use habitat_planning::pricing::{Doubt, Market, Offer, PriceBook, region};
use habitat_prediction::Sharding;

/// An offer that the user would have to accept first.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BesideJson<'a> {
    /// Values of `--accept` that admit the offer: `spot`, `marketplace`, `doubted`, `platform`, `batch`.
    pub accept: Vec<&'static str>,
    /// The same in words.
    pub what: String,
    /// The offer with all the work of the plan.
    pub part: PartJson<'a>,
    /// Outcome if it fails.
    #[serde(flatten)]
    pub fallback: FallbackJson,
}

/// Outcome if an offer fails.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FallbackJson {
    /// Code of the event in which it fails, such as `host-gone`.
    pub fails_code: Setback,
    /// The same in words, such as `that host is gone`.
    pub fails_when: &'static str,
    /// Cost of the work if it fails; absent if no other offer meets the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_cost_usd: Option<f64>,
    /// Hours of the work if it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_hours: Option<f64>,
    /// Offer used if it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_with: Option<String>,
    /// The same as in the price list; absent if it is the plan's own, or the same machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_offer: Option<String>,
}

impl FallbackJson {
    pub(crate) fn new(setback: Setback, then: Option<&Instead>) -> Self {
        Self {
            fails_code: setback,
            fails_when: setback_words(setback),
            fails_cost_usd: then.map(|then| then.cost.get()),
            fails_hours: then.map(|then| then.hours.get()),
            fails_with: then.map(|then| with(setback, then)),
            fails_offer: then.and_then(|then| Some(then.with.as_ref()?.offer.to_string())),
        }
    }
}

/// JSON form of the offers to accept.
pub(crate) fn json(plan: &Plan) -> Vec<BesideJson<'_>> {
    fn one(beside: &Beside) -> BesideJson<'_> {
        BesideJson {
            accept: beside.accept().iter().map(|accept| accept.name()).collect(),
            what: what(beside),
            part: part(&beside.part),
            fallback: FallbackJson::new(beside.setback(), beside.then.as_ref()),
        }
    }
    plan.beside.iter().map(one).collect()
}

/// Words for an offer: `8 × v100-sxm2-16gb at lambda us-east-1, on-demand`.
pub(crate) fn offer_words(part: &Part) -> String {
    if part.offer.is_at_own_place() {
        return format!("{} on your own machine", gpu_words(part));
    }
    let place = [clean(&part.offer.provider, 20), clean(region::shown(&part.offer.region), 30)];
    format!("{} at {}, {}", gpu_words(part), place.join(" "), part.offer.tier)
}

/// The same, with what makes it less than firm.
fn offer_with_risks(part: &Part) -> String {
    let trust = &part.offer.trust;
    let host = (trust.market == Market::PeerToPeer).then(|| Risk::Marketplace.words());
    let doubts = trust.doubts.iter().copied().filter(|doubt| *doubt != Doubt::PeerToPeer && !trust.is_own).collect();
    let doubted = Some(Risk::Doubted(doubts)).filter(|risk| *risk != Risk::Doubted(Vec::new()));
    let risks: Vec<String> = host.into_iter().chain(doubted.map(|risk| risk.words())).collect();
    let risks = if risks.is_empty() { String::new() } else { format!(", {}", risks.join(", ")) };
    format!("{}{risks}{}", offer_words(part), layout_words(part))
}

/// Division of the model or its state, to follow an offer; empty for whole models.
fn layout_words(part: &Part) -> String {
    match (part.parallel.is_none(), part.sharding) {
        (false, _) if part.replicas() == 1 => format!(", as {}", part.parallel.words()),
        (false, _) => format!(", as {} replicas of {}", part.replicas(), part.parallel.words()),
        (true, Sharding::None) => String::new(),
        (true, sharding) => format!(", with {} ({} divided)", sharding.name(), sharding.words()),
    }
}

/// The plan in one sentence; `None` if there is no plan.
pub fn verdict(plan: &Plan) -> Option<String> {
    let total = plan.total.as_ref()?;
    let offers: Vec<String> = plan.parts.iter().map(offer_with_risks).collect();
    let (cost, hours) = (format::usd_with_range(&total.cost), format::hours_with_range(&total.hours));
    Some(format!("Take {}: {cost} in {hours}", offers.join(", then ")))
}

/// Cost and time with each of the own machines, or why it is rejected; `None` without a choice of them.
pub fn own(plan: &Plan, prices: &PriceBook) -> Option<String> {
    let wholes = || plan.parts.iter().filter(|_| plan.parts.len() == 1).chain(&plan.alternatives);
    let of = |offer: &Offer| {
        let part = wholes().find(|part| part.offer.id == offer.id);
        let cost = part.map(|part| format!("{} in {}", format::usd(part.cost.mid), format::hours(part.hours.mid)));
        let rejected = || plan.rejected.iter().find(|one| one.offer == offer.id).map(|one| one.reason.words());
        Some(format!("{}: {}", machine_words(1, offer.gpu_count, offer.gpu.as_ref()?), cost.or_else(rejected)?))
    };
    let own = prices.offers().iter().filter(|offer| offer.is_at_own_place());
    let own: Vec<String> = own.filter_map(|offer| of(offer)).collect();
    (own.len() > 1).then(|| format!("Your own machines: {}", own.join("; ")))
}

/// The plan in one sentence with its distance from the limits, and the outcome if an accepted offer fails.
pub(crate) fn summary(plan: &Plan) -> Option<String> {
    let fails = fallback(plan);
    let all: Vec<String> = std::iter::once(verdict(plan)?).chain(room(plan)).chain(fails).collect();
    Some(all.join("; "))
}

/// Words for the status.
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
        (PlanStatus::Optimal, 1) if plan.solver.offers == 1 => "the only priced offer".to_owned(),
        (PlanStatus::Optimal, 1) => {
            format!("{best} of {} {}", format::grouped(plan.solver.offers as f64), which_words(plan))
        }
        (PlanStatus::Optimal, parts) => format!("{best} of all plans of up to {parts} parts"),
        (PlanStatus::GapLimit, _) => plan.solver.gap.map_or_else(
            || format!("close to the {best}"),
            |gap| format!("at most {} from the {best}", format::percent(gap)),
        ),
        (PlanStatus::TimeLimit, _) => format!("{best} found within the time limit"),
        (PlanStatus::Infeasible, _) => "no plan meets the limits".to_owned(),
    }
}

/// Words for the set of offers that a plan chooses from.
fn which_words(plan: &Plan) -> String {
    match &plan.goal.limits.accept[..] {
        [] if plan.parts.iter().all(|part| part.offer.trust.is_firm()) => "firm offers".to_owned(),
        [] => "offers".to_owned(),
        all if Accept::are_all(all) => "priced offers".to_owned(),
        some => format!("offers (accepted: {})", accept_names(some)),
    }
}

/// Distance from the deadline and the budget, in words; empty without limits.
pub(crate) fn room(plan: &Plan) -> Vec<String> {
    let Some(total) = &plan.total else { return Vec::new() };
    let finish = plan.goal.confidence.end(&total.hours);
    let late = plan.goal.deadline.and_then(|deadline| deadline.checked_sub(finish));
    let below = plan.goal.budget.and_then(|budget| budget.checked_sub(total.cost.mid));
    let late = late.map(|left: Hours| match left.get() {
        left if left < 0.5 / 60.0 => "just before the deadline".to_owned(),
        left => format!("{} before the deadline", duration(left)),
    });
    let below = below.map(|left: Usd| format!("{} below the budget", format::usd(left)));
    late.into_iter().chain(below).collect()
}

/// Heading above the offers that the user would have to accept.
pub fn heading(plan: &Plan) -> &'static str {
    match (plan.total.is_some(), plan.goal.objective) {
        (false, _) => "Possible if you accept",
        (true, Objective::Cost) => "Cheaper if you accept",
        (true, Objective::Time) => "Faster if you accept",
        (true, Objective::CostPlusTime(_)) => "Better if you accept",
        (true, Objective::Emissions) => "Less CO2e if you accept",
    }
}

/// Event in which the offer fails, to follow `if`.
pub const fn setback_words(setback: Setback) -> &'static str {
    match setback {
        Setback::SameUpdates => "it needs as many updates",
        Setback::HostGone => "that host is gone",
        Setback::NoSpot => "no spot machine is available",
        Setback::PriceGone => "that price is gone",
        Setback::DoesNotRun => "your program does not run there",
    }
}

/// What does the work instead.
fn with(setback: Setback, then: &Instead) -> String {
    match (&then.with, setback) {
        (Some(machines), _) => machines.words(),
        (None, Setback::SameUpdates) => "the same machine".to_owned(),
        (None, _) => "the plan above".to_owned(),
    }
}

/// The risks to accept.
pub fn what(beside: &Beside) -> String {
    words::joined(&beside.risks, ", ")
}

/// The condition to accept, and cost, hours and offer if accepted.
pub fn gain(beside: &Beside) -> String {
    let Part { cost, hours, .. } = &beside.part;
    format!(
        "{}: {} in {}, {}",
        what(beside),
        format::usd(cost.mid),
        format::hours(hours.mid),
        offer_words(&beside.part)
    )
}

/// Cost of the work if an offer with accepted risks fails.
pub fn risk(setback: Setback, then: Option<&Instead>) -> String {
    let then = then.map_or_else(
        || "nothing else meets the limits".to_owned(),
        |then| format!("{} in {} with {}", format::usd(then.cost), format::hours(then.hours), with(setback, then)),
    );
    format!("if {}: {then}", setback_words(setback))
}

/// The same for the offer of a plan; `None` if it is firm.
pub fn fallback(plan: &Plan) -> Option<String> {
    plan.fallback.as_ref().map(|fallback| risk(fallback.setback, fallback.then.as_ref()))
}

/// The flag that accepts the offer.
pub(crate) fn flag(beside: &Beside) -> String {
    format!("--accept {}", accept_names(&beside.accept()))
}

/// A small concession with a large gain, in words, with the flag that makes it the plan.
pub fn bargain(plan: &Plan) -> Option<String> {
    let part = plan.bargain.as_ref()?;
    let end = plan.goal.confidence.end(&part.hours);
    let (what, flag) = if plan.goal.objective == Objective::Time {
        ("Much cheaper if it may finish a little later", budget_flag(part.cost.mid))
    } else {
        ("Much faster for a little more", deadline_flag(end))
    };
    let (cost, hours) = (format::usd(part.cost.mid), format::hours(part.hours.mid));
    let up_to =
        if end.get() > part.hours.mid.get() { format!(" (up to {})", format::hours(end)) } else { String::new() };
    Some(format!("{what}: {cost} in {hours}{up_to}, {} ({flag})", offer_words(part)))
}
