//! Summary lines of a plan, and offers that the user would have to accept first, in words and as JSON.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::parts::{PartJson, gpu_words, machine_words, part};
use super::words::plan::{accept_names, budget_flag, deadline_flag, degrees};
use super::words::{self, Words};
use habitat_base::text::{capitalised, clean, duration};
use habitat_base::units::{Hours, Usd};
use habitat_planning::plan::{
    Accept, Beside, Confidence, Instead, Longer, Objective, Part, Plan, PlanNote, PlanStatus, Risk, Setback, Work,
};
use habitat_planning::pricing::{Market, PriceBook, PriceIssue};
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
    /// Cost of the work at a firm offer if it fails, the closest to the limits if none meets them; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_cost_usd: Option<f64>,
    /// Hours of the work if it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_hours: Option<f64>,
    /// Hours past the deadline if it fails, at the end that has to meet it; absent if it is met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_late_hours: Option<f64>,
    /// Expected dollars above the budget if it fails; absent if it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_over_usd: Option<f64>,
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
            fails_hours: then.map(|then| then.hours.mid.get()),
            fails_late_hours: then.and_then(|then| Some(then.late?.get())),
            fails_over_usd: then.and_then(|then| Some(then.over?.get())),
            fails_with: then.map(|then| with(setback, then)),
            fails_offer: then.and_then(|then| Some(then.with.as_ref()?.offer.to_string())),
        }
    }
}

/// The cheapest plan, which takes too long.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LongerJson {
    /// Expected cost.
    pub cost_usd: f64,
    /// Expected hours.
    pub hours: f64,
    /// Machines of each part, in words.
    pub with: Vec<String>,
    /// Offer of each part in the price list.
    pub offers: Vec<String>,
}

impl LongerJson {
    pub(crate) fn new(longer: &Longer) -> Self {
        Self {
            cost_usd: longer.cost.get(),
            hours: longer.hours.mid.get(),
            with: longer.with.iter().map(Words::words).collect(),
            offers: longer.with.iter().map(|with| with.offer.to_string()).collect(),
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
        let machines = if part.machines > 1 { "machines" } else { "machine" };
        return format!("{} on your own {machines}", gpu_words(part));
    }
    let place = [clean(&part.offer.provider, 20), clean(words::price::region(&part.offer.region), 30)];
    format!("{} at {}, {}", gpu_words(part), place.join(" "), part.offer.tier)
}

/// The same, with its risks; `is_batch` if its global batch is one.
fn offer_with_risks(part: &Part, is_batch: bool) -> String {
    let trust = &part.offer.trust;
    let host = (trust.market == Market::PeerToPeer).then(|| Risk::Marketplace.words());
    let doubts = trust.counted().copied().filter(|doubt| *doubt != PriceIssue::PeerToPeer).collect();
    let doubted = Some(Risk::Doubted(doubts)).filter(|risk| *risk != Risk::Doubted(Vec::new()));
    let batch = is_batch.then(|| Risk::Batch(part.global_batch_size).words());
    let risks: Vec<String> = host.into_iter().chain(doubted.map(|risk| risk.words())).chain(batch).collect();
    let risks = if risks.is_empty() { String::new() } else { format!(", {}", risks.join(", ")) };
    format!("{}{risks}{}", offer_words(part), layout_words(part))
}

/// Division of the model or its state, to follow an offer; empty for whole models.
pub fn layout_words(part: &Part) -> String {
    let sharded = match part.sharding {
        Sharding::None => String::new(),
        sharding => format!(", with {}", sharding.name()),
    };
    match (part.parallel.is_none(), part.sharding) {
        (false, _) if part.replicas() == 1 => format!(", as {}{sharded}", part.parallel.words()),
        (false, _) => format!(", as {} replicas of {}{sharded}", part.replicas(), part.parallel.words()),
        (true, Sharding::None) => String::new(),
        (true, sharding) => format!(", with {} ({} divided)", sharding.name(), sharding.words()),
    }
}

/// The plan in one sentence; `None` if there is no plan.
pub fn verdict(plan: &Plan) -> Option<String> {
    let total = plan.total.as_ref()?;
    let is_batch = plan.fallback.as_ref().is_some_and(|fallback| fallback.setback == Setback::SameUpdates);
    let offers: Vec<String> = plan.parts.iter().map(|part| offer_with_risks(part, is_batch)).collect();
    let (cost, hours) = (format::usd_with_range(&total.cost), format::hours_with_range(&total.hours));
    Some(format!("Take {}: {cost} in {hours}", offers.join(", then ")))
}

/// First line where no plan exists, before the changes that would allow one.
pub fn no_plan(plan: &Plan) -> String {
    let firm = if plan.goal.limits.accept.is_empty() { "firm " } else { "" };
    format!("No {firm}plan for {} {} within these limits:", format::grouped(plan.work.get()), plan.work.unit())
}

/// Cost and time with each number of the own machines' GPUs, or why one is rejected, and what several bring over one;
/// then what a larger global batch brings. Empty without a choice of them.
pub fn own(plan: &Plan, prices: &PriceBook) -> Vec<String> {
    let fewer = |part: &Part| {
        let fewer = plan.own.iter().filter(|one| one.gpu == part.gpu && one.all_gpus() < part.all_gpus());
        fewer.min_by_key(|one| one.all_gpus())
    };
    let part_words = |part: &Part| {
        let (cost, hours) = (format::usd(part.cost.mid), format::hours_mid(&part.hours));
        let speed = fewer(part).map(|few| speed_words(part, few)).unwrap_or_default();
        format!("{}: {cost} in {hours}{speed}", gpu_words(part))
    };
    let done = plan.own.iter().map(|part| {
        let is_taken = plan.parts.iter().any(|taken| taken.offer.id == part.offer.id);
        let flag = fewer(part).filter(|_| !is_taken).map(|_| format!(" (--offer {})", part.offer.id));
        format!("{}{}", part_words(part), flag.unwrap_or_default())
    });
    let own = prices.offers().iter().filter(|offer| offer.is_at_own_place());
    let own = own.filter(|offer| plan.own.iter().all(|part| part.offer.id != offer.id));
    let rejected = own.filter_map(|offer| {
        let rejected = plan.rejected.iter().find(|one| one.offer == offer.id)?;
        Some((rejected.reason.words(), machine_words(1, offer.gpu_count, offer.gpu.as_ref()?)))
    });
    // One entry for each reason.
    let (mut reasons, mut machines) = (BTreeMap::<String, Vec<String>>::new(), plan.own.len());
    for (reason, name) in rejected {
        machines += 1;
        reasons.entry(reason).or_default().push(name);
    }
    let rejected = reasons.into_iter().map(|(reason, names)| format!("{}: {reason}", names.join(", ")));
    let all: Vec<String> = done.chain(rejected).collect();
    let larger = plan.larger_batch.as_ref().and_then(|part| {
        let (batch, now) = (part.global_batch_size?, plan.goal.global_batch?);
        let fewer = batch.checked_div(now).filter(|fewer| *fewer > 1)?;
        // Steps of the larger batch: the same samples are fewer of them.
        let steps = match plan.goal.work {
            Work::Steps(steps) => format!("--steps {} ", steps.div_ceil(fewer)),
            _ => String::new(),
        };
        let flags = format!("{steps}--global-batch {batch} --offer {}", part.offer.id);
        Some(format!("  with {flags}, {fewer} times fewer updates: {}", part_words(part)))
    });
    let list = (machines > 1).then(|| format!("Your own machines: {}", all.join("; ")));
    list.into_iter().chain(larger).collect()
}

/// How many times as fast a part is as one with fewer GPUs, with the range: both ends of the step move together. Names
/// the other one's batch if it differs.
fn speed_words(part: &Part, few: &Part) -> String {
    let [at_low, mid, at_high] =
        [few.hours.low / part.hours.low, few.hours.mid / part.hours.mid, few.hours.high / part.hours.high];
    let (low, high) = (at_low.min(at_high), at_low.max(at_high));
    let batch = few.global_batch_size.filter(|batch| Some(*batch) != part.global_batch_size);
    let at = batch.map_or_else(String::new, |batch| format!(" at batch {}", format::grouped(batch as f64)));
    format!(", {mid:.1} × as fast as {}{at} ({low:.1}–{high:.1})", few.all_gpus())
}

/// The plan in one sentence with its distance from the limits, and what belongs to it.
pub(crate) fn summary(plan: &Plan) -> Option<String> {
    let all: Vec<String> = std::iter::once(verdict(plan)?).chain(room(plan)).chain(caveats(plan)).collect();
    Some(all.join("; "))
}

/// Words for the status.
pub fn status_words(plan: &Plan) -> String {
    let [_, best] = degrees(plan.goal.objective);
    match (plan.status, plan.goal.max_parts) {
        (PlanStatus::Optimal, _) if plan.longer.is_some() => {
            format!("{best} plan that takes at most half the time of the {best} of all")
        }
        (PlanStatus::Optimal, 1) if plan.goal.limits.max_machines > 1 => {
            if plan.solver.configurations == 1 {
                return "the only choice of offer and machines within the limits".to_owned();
            }
            format!("{best} of {} choices of offer and machines", format::grouped(plan.solver.configurations as f64))
        }
        (PlanStatus::Optimal, 1) if plan.solver.offers == 1 => {
            format!("the only {} within the limits", which_words(plan).replacen("offers", "offer", 1))
        }
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
        [] if plan.fallback.is_none() && plan.parts.iter().all(|part| part.offer.trust.is_firm()) => {
            "firm offers".to_owned()
        }
        [] => "offers".to_owned(),
        all if Accept::are_all(all) => "priced offers".to_owned(),
        some => format!("offers (accepted: {})", accept_names(some)),
    }
}

/// Distance from the deadline, of the end that has to meet it, and of the expected cost from the budget, and the age of
/// the prices, in words; empty without limits and prices of others.
pub(crate) fn room(plan: &Plan) -> Vec<String> {
    let Some(total) = &plan.total else { return Vec::new() };
    let finish = plan.goal.confidence.end(&total.hours);
    let late = plan.goal.deadline.and_then(|deadline| deadline.checked_sub(finish));
    let below = plan.goal.budget.and_then(|budget| budget.checked_sub(total.cost.mid));
    // The budget is met by the expected cost; the goal says which end of the time meets the deadline.
    let has_range = total.hours.high.get() > total.hours.mid.get();
    let (least, most) = match plan.goal.confidence {
        Confidence::Expected if has_range => ("", format!(" (expected; high end {})", format::hours(total.hours.high))),
        Confidence::High if has_range => ("at least ", String::new()),
        _ => ("", String::new()),
    };
    let late = late.map(|left: Hours| match left.get() {
        left if left < 0.5 / 60.0 => format!("just before the deadline{most}"),
        left => format!("{least}{} before the deadline{most}", duration(left)),
    });
    let below = below.map(|left: Usd| {
        let up_to = format!(" (expected; high end {})", format::usd(total.cost.high));
        let up_to = if total.cost.high.get() > total.cost.mid.get() { up_to } else { String::new() };
        format!("{} below the budget{up_to}", format::usd(left))
    });
    late.into_iter().chain(below).chain(price_age(plan)).collect()
}

/// Age of the prices of rented machines: `price 48 days old`.
pub fn price_age(plan: &Plan) -> Option<String> {
    let rented = plan.parts.iter().map(|part| &part.offer).filter(|offer| !offer.is_at_own_place());
    let ages: BTreeSet<Option<i32>> = rented.map(|offer| offer.trust.age_days).collect();
    let days = |age: &Option<i32>| age.map_or_else(|| "of unknown age".to_owned(), |days| format!("{days} days old"));
    let all: Vec<String> = ages.iter().map(days).collect();
    (!all.is_empty()).then(|| format!("price {}", all.join(" and ")))
}

/// Heading above the offers that the user would have to accept.
pub fn heading(plan: &Plan) -> String {
    let better = plan.total.map_or("possible", |_| degrees(plan.goal.objective)[0]);
    format!("{} if you accept", capitalised(better))
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
        format::hours_mid(hours),
        offer_words(&beside.part)
    )
}

/// Cost and time of the work if an offer fails, what does it, and the limits that it exceeds.
pub fn instead(then: &Instead, with: &str) -> String {
    // Lateness is that of the end that has to meet the deadline.
    let is_end = then.end.get() > then.hours.mid.get();
    let end = then.late.filter(|_| is_end).map(|_| format!(" (up to {})", format::hours(then.end)));
    let hours = format!("{}{}", format::hours_mid(&then.hours), end.unwrap_or_default());
    let done = format!("{} in {hours}{with}", format::usd(then.cost));
    let up_to = if is_end { "up to " } else { "" };
    let late = then.late.map(|late| format!("misses the deadline by {up_to}{}", format::hours(late)));
    let over = then.over.map(|over| format!("exceeds the budget by {}", format::usd(over)));
    let over: Vec<String> = late.into_iter().chain(over).collect();
    if over.is_empty() { done } else { format!("{done} – {}", over.join(" and ")) }
}

/// Cost of the work if an offer with accepted risks fails.
pub fn risk(setback: Setback, then: Option<&Instead>) -> String {
    let then = then.map_or_else(
        || "no firm offer meets the limits".to_owned(),
        |then| instead(then, &format!(" with {}", with(setback, then))),
    );
    format!("if {}: {then}", setback_words(setback))
}

/// Whether a note is one of [`caveats`].
pub(super) fn is_caveat(note: &PlanNote) -> bool {
    use PlanNote::{BatchOfOne, LongPlan, NoRoom, OtherTier};
    matches!(note, BatchOfOne { .. } | LongPlan { .. } | NoRoom { .. } | OtherTier { .. })
}

/// Lines that belong to the plan's first sentence: a better offer of another tier, a batch that no one chose, a plan that
/// takes longer than prices last, and the cost if its offer fails.
pub fn caveats(plan: &Plan) -> Vec<String> {
    let of_parts = plan.parts.iter().flat_map(|part| &part.notes);
    let notes = plan.notes.iter().chain(of_parts).filter(|note| is_caveat(note));
    let fails = plan.fallback.as_ref().map(|fallback| risk(fallback.setback, fallback.then.as_ref()));
    notes.map(Words::words).chain(fails).collect()
}

/// The flag that accepts the offer.
pub(crate) fn flag(beside: &Beside) -> String {
    format!("--accept {}", accept_names(&beside.accept()))
}

/// An offer to accept, in words: what it brings, and what it costs if it fails, with the flag that accepts it.
pub(crate) fn lines(one: &Beside) -> [String; 2] {
    [gain(one), format!("{} ({})", risk(one.setback(), one.then.as_ref()), flag(one))]
}

/// Small concessions with a large gain, in words, each with the flag that makes it the plan.
pub fn concessions(plan: &Plan) -> Vec<String> {
    longer(plan).into_iter().chain(bargain(plan)).collect()
}

/// The cheapest plan, if it takes too long to be the plan.
fn longer(plan: &Plan) -> Option<String> {
    let longer = plan.longer.as_ref()?;
    let with: Vec<String> = longer.with.iter().map(Words::words).collect();
    let (cost, hours) = (format::usd(longer.cost), format::hours_mid(&longer.hours));
    let flag = deadline_flag(plan.goal.confidence.end(&longer.hours));
    Some(format!(
        "{} if it may take longer: {cost} in {hours}, {} ({flag})",
        capitalised(degrees(plan.goal.objective)[0]),
        with.join(", then ")
    ))
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
    let (cost, hours) = (format::usd(part.cost.mid), format::hours_mid(&part.hours));
    let up_to =
        if end.get() > part.hours.mid.get() { format!(" (up to {})", format::hours(end)) } else { String::new() };
    Some(format!("{what}: {cost} in {hours}{up_to}, {} ({flag})", offer_words(part)))
}
