//! Recomputes a plan from its offers, step times and assumptions, and rejects a plan that violates a limit or has a
//! wrong number.
//!
//! It trusts neither the solver nor the model builder, and shares no code with either. [`check`] needs only the plan;
//! [`check_sources`] compares the parts with the predictions and prices that they come from.

mod footprint;
mod part;

use super::layouts;
use super::{Accept, Confidence, Data, Part, Plan, PlanStatus, Quota, Use};
use crate::pricing::{Billing, Market, Offer, Ownership, PriceBook, PriceIssue, Tier, region};
use habitat_base::units::Bytes;
use habitat_prediction::memory::Share;
use habitat_prediction::scale::{Layout, optimizer_step};
use habitat_prediction::{Estimate, Fits, Mode, Prediction, Predictions, Sharding, Supply};

pub use super::error::CheckError;
pub(super) use footprint::{Taken, added, check_footprint};
use footprint::{switched_taken, taken};
pub(super) use part::{Rows, check_rows};
use part::{longest_wait, recompute};

/// Relative difference allowed between a number in the plan and the recomputed one.
const TOLERANCE: f64 = 1e-6;

/// Recomputes hours and cost of each part and the totals, and compares them with the numbers of the plan and the limits
/// of its goal.
///
/// # Errors
/// The first [`CheckError`] found.
pub fn check(plan: &Plan) -> Result<(), CheckError> {
    let Some(total) = &plan.total else {
        let empty = plan.parts.is_empty() && plan.status == PlanStatus::Infeasible;
        return if empty { Ok(()) } else { Err(CheckError::Parts { found: plan.parts.len(), allowed: 0 }) };
    };
    let allowed = plan.goal.max_parts as usize;
    if plan.parts.is_empty() || plan.parts.len() > allowed {
        return Err(CheckError::Parts { found: plan.parts.len(), allowed });
    }
    let (mut hours, mut cost, mut work) = ([0.0; 3], [0.0; 3], 0.0);
    let mut cost_by: Rows = [[0.0; 3]; Use::ALL.len()];
    let mut all_taken = Some(([0.0; 3], Some([0.0; 3])));
    let longest = longest_wait(&plan.parts, &plan.goal.assumptions);
    for (place, part) in plan.parts.iter().enumerate() {
        within_limits(part, plan)?;
        check_batch(part, plan.goal.global_batch)?;
        let most = end_at_switch(plan).filter(|_| place == 0).unwrap_or(f64::INFINITY);
        let own = recompute(part, &plan.goal.assumptions, longest == Some(place), most);
        own.check(part)?;
        let taken = taken(part, own.running);
        check_footprint(&part.offer.id.to_string(), &part.footprint, taken)?;
        for end in 0..3 {
            hours[end] += own.hours[end];
            cost[end] += own.cost[end];
            for (sum, own) in cost_by.iter_mut().zip(own.cost_by) {
                sum[end] += own[end];
            }
        }
        all_taken = all_taken.zip(taken).map(|(sum, own)| added(sum, own));
        if part.work.unit() != plan.work.unit() || part.batch_size.is_some() != part.work.samples().is_some() {
            let what = "its work is not in the unit of the plan";
            return Err(CheckError::Offer { offer: part.offer.id.clone(), what });
        }
        work += part.work.get();
    }
    if plan.switch.as_ref().is_some_and(|switch| switch.is_expected) {
        (hours, cost) = switched(plan, hours, cost, &mut cost_by)?;
        all_taken = switched_taken(plan);
    }
    check_footprint("total", &total.footprint, all_taken)?;
    compare("total hours", &numbers(&total.hours), &hours)?;
    compare("total cost", &numbers(&total.cost), &cost)?;
    check_rows("total cost", &total.cost_by, &total.cost, &cost_by)?;
    if differs(work, plan.work.get()) {
        return Err(CheckError::Work { planned: work, wanted: plan.work.get(), unit: plan.work.unit() });
    }
    let finish = if plan.goal.confidence == Confidence::High { hours[2] } else { hours[1] };
    if let Some(deadline) = plan.goal.deadline
        && finish > deadline.get() * (1.0 + TOLERANCE)
    {
        return Err(CheckError::Deadline { hours: finish, deadline: deadline.get() });
    }
    if let Some(budget) = plan.goal.budget
        && cost[1] > budget.get() * (1.0 + TOLERANCE)
    {
        return Err(CheckError::Budget { cost: cost[1], budget: budget.get() });
    }
    let kg = all_taken.and_then(|taken| taken.1).map_or(f64::INFINITY, |kg| kg[1]);
    if let Some(most) = plan.goal.limits.max_co2
        && kg > most.get() * (1.0 + TOLERANCE)
    {
        return Err(CheckError::Emissions { kg, most: most.get() });
    }
    Ok(())
}

/// Checks that batch per GPU × accumulation × GPUs is the part's global batch, and the goal's if it has one.
fn check_batch(part: &Part, wanted: Option<u64>) -> Result<(), CheckError> {
    let product =
        part.batch_size.map(|batch| u128::from(batch) * u128::from(part.accumulation) * u128::from(part.replicas()));
    if part.accumulation == 0 || part.global_batch_size.map(u128::from) != product {
        let what = "its global batch is not the product of its GPUs and batches";
        return Err(CheckError::Offer { offer: part.offer.id.clone(), what });
    }
    match wanted {
        Some(wanted) if part.global_batch_size != Some(wanted) => {
            Err(CheckError::Offer { offer: part.offer.id.clone(), what: "its global batch is not the goal's" })
        }
        _ => Ok(()),
    }
}

/// Compares each part with its offer and prediction: price, GPUs, tier, batch and step time. Also checks that the price
/// is usable and the step is not known to exceed the memory.
///
/// # Errors
/// The first [`CheckError`] found.
pub fn check_sources(plan: &Plan, predictions: &Predictions, prices: &PriceBook) -> Result<(), CheckError> {
    if let Some(switch) = &plan.switch
        && prices.get(&switch.to).is_none_or(|offer| offer.tier == Tier::Spot || offer.unusable.is_some())
    {
        return Err(CheckError::Offer { offer: switch.to.clone(), what: "it cannot take over from spot" });
    }
    plan.parts.iter().try_for_each(|part| check_part(part, plan, predictions, prices))
}

fn check_part(part: &Part, plan: &Plan, predictions: &Predictions, prices: &PriceBook) -> Result<(), CheckError> {
    let wrong = |what| CheckError::Offer { offer: part.offer.id.clone(), what };
    let offer = prices.get(&part.offer.id).ok_or_else(|| wrong("not in the price book"))?;
    if offer.unusable.is_some() {
        return Err(wrong("its price is marked as unusable"));
    }
    let price = offer.price.get() * f64::from(part.machines);
    compare(&format!("price of {}", part.offer.id), &[part.price().get()], &[price])?;
    if *offer != *part.offer
        || offer.gpu.as_ref() != Some(&part.gpu)
        || prices.terms(offer).billing != part.billing
        || offer.term_hours.is_some_and(|hours| part.billing != Billing::Term(hours))
    {
        return Err(wrong("its GPU or billing differs from the offer, or the offer from the price book"));
    }
    let is_recorded = part.global_batch_size == predictions.workload.batch_size;
    if plan.goal.global_batch.is_none() && part.accumulation != 1 && !is_recorded {
        return Err(wrong("it accumulates gradients without a global batch"));
    }
    let limits = &plan.goal.limits;
    let small = |least: Option<f64>, has: Option<f64>| match (least, has) {
        (Some(least), Some(has)) => has < least,
        (Some(_), None) => !limits.allow_unknown_host,
        (None, _) => false,
    };
    let memory = [limits.min_host_memory, offer.host_memory].map(|bytes| bytes.map(Bytes::get));
    if small(limits.min_vcpus.map(f64::from), offer.vcpus) || small(memory[0], memory[1]) {
        return Err(wrong("its host is too small or unknown"));
    }
    compare(&format!("data for {}", part.offer.id), &[part.data_cost.get()], &[egress(part, plan, prices)])?;
    let stated = part.hours_by.of(Use::Data).mid.get();
    compare(&format!("hours of copying to {}", part.offer.id), &[stated], &[copying(part, offer, plan)])?;
    compare(&format!("storage for {}", part.offer.id), &[part.storage.get()], &[storage(part, plan, prices)])?;
    let prediction = predictions
        .predictions
        .iter()
        .find(|prediction| prediction.gpu.slug == part.gpu)
        .ok_or_else(|| wrong("no prediction for its GPU"))?;
    check_power(part, offer, prediction, prices)?;
    check_step(part, offer, prediction, (plan, predictions))
}

/// Compares the power of a part, its PUE and its emissions.
fn check_power(part: &Part, offer: &Offer, prediction: &Prediction, prices: &PriceBook) -> Result<(), CheckError> {
    let kw = match offer.held {
        Some(Ownership::Owned { kw, .. }) => Some(kw),
        // The rest of a machine draws half the power of its GPUs, as in `energy`.
        _ => prediction.gpu.power.map(|power| power.get() / 1000.0 * f64::from(offer.gpu_count) * 1.5),
    };
    let pue = match offer.held {
        Some(Ownership::Owned { pue, .. }) => pue,
        _ => prices.terms_of(&offer.provider).pue.unwrap_or(1.56),
    };
    let emits = |kg: Option<f64>| kg.unwrap_or(-1.0);
    let stated = part.draw.map_or([-1.0; 3], |draw| {
        [draw.machines.get() / 1000.0, draw.pue, emits(draw.intensity.map(|of| of.kg_per_kwh))]
    });
    let found = kw.map_or([-1.0; 3], |kw| {
        let intensity = prices.intensity(offer).map(|of| of.kg_per_kwh);
        [kw * f64::from(part.machines), pue, emits(intensity)]
    });
    compare(&format!("power of {}", part.offer.id), &stated, &found)
}

/// Compares the step time of a part, and checks that the step fits.
fn check_step(
    part: &Part,
    offer: &Offer,
    prediction: &Prediction,
    (plan, predictions): (&Plan, &Predictions),
) -> Result<(), CheckError> {
    let wrong = |what| CheckError::Offer { offer: part.offer.id.clone(), what };
    let (single, data, memory) = if predictions.workload.batch_size.filter(|batch| *batch > 0) == part.batch_size {
        (prediction.planning_step(), &prediction.data, &prediction.memory)
    } else {
        let at = prediction.at_batches.iter().find(|at| Some(at.batch_size) == part.batch_size);
        let at = at.ok_or_else(|| wrong("its batch is not the profile's, and no other batch was predicted"))?;
        (at.step, &at.data, &at.memory)
    };
    let layout = part.layout(&plan.goal);
    let size = prediction.memory.states.map(|states| states.parameters + states.optimizer);
    let write = plan.goal.assumptions.write(size, part.machines);
    compare(&format!("checkpoint of {}", part.offer.id), &[part.checkpoint_write.get()], &[write.get()])?;
    let parameters = predictions.workload.parameter_count;
    let share = Share::new(
        &layout,
        [part.batch_size.unwrap_or(1), part.accumulation],
        prediction.transformer.as_ref(),
        parameters,
    );
    if memory.on_replica(part.sharding, &share).fits == Fits::No {
        return Err(wrong("the step does not fit in its memory"));
    }
    if part.sharding != Sharding::None && predictions.workload.mode == Mode::Inference {
        return Err(wrong("inference has no state to divide"));
    }
    if offer.most_machines().is_some_and(|most| part.machines > most) {
        return Err(wrong("it has more machines than there are"));
    }
    let expected = update(part, (&single, data.as_ref(), prediction), &layout, plan, predictions)
        .ok_or_else(|| wrong("its step cannot be scaled to its GPUs"))?;
    let stated = [part.step_time_us.low, part.step_time_us.mid, part.step_time_us.high];
    compare(&format!("step time of {}", part.offer.id), &stated, &expected)
}

/// Optimizer step of a part, low to high, in microseconds.
fn update(
    part: &Part,
    (single, data, prediction): (&Estimate, Option<&Supply>, &Prediction),
    layout: &Layout,
    plan: &Plan,
    predictions: &Predictions,
) -> Option<[f64; 3]> {
    let (workload, factors) = (&predictions.workload, plan.goal.assumptions.factors());
    let one = prediction.micro_batch(single, part.batch_size, data);
    Some(numbers_of(&optimizer_step(&one, &prediction.gpu, layout, workload, factors, part.accumulation).ok()?.step))
}

fn numbers_of(step: &Estimate) -> [f64; 3] {
    numbers(&step.range.map(habitat_base::units::Micros::get))
}

/// Dollars for transferring the data of a part from another place.
fn egress(part: &Part, plan: &Plan, prices: &PriceBook) -> f64 {
    let Some(data) = plan.goal.data.as_ref().filter(|data| !is_there(part, data)) else { return 0.0 };
    let Some(from) = &data.provider else { return 0.0 };
    let terms = prices.terms_of(from);
    let inside = terms.egress_other_region_usd_per_gb.filter(|_| from.eq_ignore_ascii_case(&part.offer.provider));
    data.gb * inside.or(terms.egress_usd_per_gb).unwrap_or(0.0)
}

/// Hours for copying the data of a part from another place, at eight bits per byte.
fn copying(part: &Part, offer: &Offer, plan: &Plan) -> f64 {
    let Some(data) = plan.goal.data.as_ref().filter(|data| !is_there(part, data)) else { return 0.0 };
    if part.offer.tier == Tier::Owned && data.provider.is_none() {
        return 0.0;
    }
    let assumed = plan.goal.assumptions.data_gbit_per_second.unwrap_or(1.0);
    let gbit = offer.network_gbit_per_second.map_or(assumed, |own| if own < assumed { own } else { assumed });
    data.gb / (gbit / 8.0) / 3600.0
}

/// Dollars per hour for storing the data of a part at a new place. A year of storage has twelve months and 8,760 hours.
fn storage(part: &Part, plan: &Plan, prices: &PriceBook) -> f64 {
    let Some(data) = plan.goal.data.as_ref().filter(|data| !is_there(part, data)) else { return 0.0 };
    data.gb * prices.terms_of(&part.offer.provider).storage_usd_per_gb_month.unwrap_or(0.0) * 12.0 / 8760.0
}

fn is_there(part: &Part, data: &Data) -> bool {
    data.provider.iter().any(|provider| provider.eq_ignore_ascii_case(&part.offer.provider))
        && data.region.iter().all(|filter| region::is_named(&part.offer.provider, &part.offer.region, filter))
}

/// Latest end of a first part that did its work, before the next one takes over by the deadline.
fn end_at_switch(plan: &Plan) -> Option<f64> {
    let (switch, assumed) = (plan.switch.as_ref()?, &plan.goal.assumptions);
    let to = plan.parts.get(1).filter(|_| switch.is_expected)?;
    let rest = recompute(to, assumed, true, f64::INFINITY).hours[2];
    Some(plan.goal.deadline?.get() - rest - assumed.checkpoint_interval.get())
}

/// Totals of a plan that switches from spot to another machine by its deadline, from the sums of its parts. Checks that
/// the other machine can do all the work in the time left at the latest switch.
fn switched(
    plan: &Plan,
    mut hours: [f64; 3],
    mut cost: [f64; 3],
    cost_by: &mut Rows,
) -> Result<([f64; 3], [f64; 3]), CheckError> {
    let wrong = |part: &Part, what| Err(CheckError::Offer { offer: part.offer.id.clone(), what });
    let (Some(switch), [spot, to]) = (&plan.switch, &plan.parts[..]) else {
        return Err(CheckError::Parts { found: plan.parts.len(), allowed: 2 });
    };
    let Some(deadline) = plan.goal.deadline.filter(|_| plan.goal.confidence == Confidence::High) else {
        return wrong(to, "it takes over by a deadline, but the goal has none");
    };
    if spot.offer.tier != Tier::Spot || to.offer.tier == Tier::Spot || to.offer.id != switch.to {
        return wrong(to, "it is not the offer that takes over from spot");
    }
    let assumed = &plan.goal.assumptions;
    let all = |part: &Part| recompute(&Part { work: plan.work, ..part.clone() }, assumed, true, f64::INFINITY);
    let (all_spot, all_to) = (all(spot), all(to));
    let spare = deadline.get() - all_to.hours[2];
    if spare < -TOLERANCE * deadline.get() {
        return Err(CheckError::Deadline { hours: all_to.hours[2], deadline: deadline.get() });
    }
    let latest = (spare - assumed.checkpoint_interval.get()).max(0.0);
    compare("latest change", &[switch.latest.get()], &[latest])?;
    let likely = hours[1].min(deadline.get());
    let own_spot = recompute(spot, assumed, true, f64::INFINITY);
    hours = [all_spot.hours[0].min(likely), likely, deadline.get()];
    cost = [all_spot.cost[0], cost[1], own_spot.cost[1] + all_to.cost[2]];
    for (place, row) in cost_by.iter_mut().enumerate() {
        *row = [all_spot.cost_by[place][0], row[1], own_spot.cost_by[place][1] + all_to.cost_by[place][2]];
    }
    Ok((hours, cost))
}

fn within_limits(part: &Part, plan: &Plan) -> Result<(), CheckError> {
    let limits = &plan.goal.limits;
    let is = |name: &String| name.eq_ignore_ascii_case(&part.offer.provider);
    let in_region = |filter: &String| region::is_named(&part.offer.provider, &part.offer.region, filter);
    let over_quota = |quota: &Quota| {
        covers(quota, part) && part.all_gpus() > quota.gpus && (quota.from, quota.until) == (None, None)
    };
    // Offers that need acceptance, unless accepted or named.
    let is_named = limits.offers.iter().any(|id| id == part.offer.id.as_str());
    let lacks = |accept: Accept| !is_named && !limits.accept.contains(&accept);
    let of_host = part.offer.trust.market == Market::PeerToPeer;
    let is_moved = |doubt: &PriceIssue| part.offer.tier == Tier::Spot && matches!(doubt, PriceIssue::Old { .. });
    let is_known = |doubt: &PriceIssue| is_moved(doubt) || *doubt == PriceIssue::PeerToPeer;
    let in_doubt = !part.offer.trust.counted().all(is_known);
    let broken = [
        (part.offer.tier == Tier::Spot && lacks(Accept::Spot), "spot is not accepted"),
        (
            of_host && !limits.providers.iter().any(is) && lacks(Accept::Marketplace),
            "hosts of marketplaces are not accepted",
        ),
        (in_doubt && lacks(Accept::Doubted), "prices in doubt are not accepted"),
        (!limits.tiers.contains(&part.offer.tier), "its tier is not allowed"),
        (!limits.gpus.is_empty() && !limits.gpus.contains(&part.gpu), "its GPU is not allowed"),
        (!limits.providers.is_empty() && !limits.providers.iter().any(is), "its provider is not allowed"),
        (limits.exclude_providers.iter().any(is), "its provider is excluded"),
        (limits.exclude_gpus.contains(&part.gpu), "its GPU is excluded"),
        (
            !limits.offers.is_empty() && !limits.offers.iter().any(|id| id == part.offer.id.as_str()),
            "it is not among the requested offers",
        ),
        (limits.no_marketplace && part.offer.trust.market == Market::PeerToPeer, "it is from a peer-to-peer market"),
        (!limits.regions.is_empty() && !limits.regions.iter().any(in_region), "its region is not allowed"),
        (limits.exclude_regions.iter().any(in_region), "its region is excluded"),
        (limits.quotas.iter().any(over_quota), "it has more GPUs than a quota allows"),
        (
            part.machines == 0 || (part.machines > limits.max_machines && part.offer.tier != Tier::Owned),
            "it has too many machines",
        ),
        (!layouts::allows(&plan.goal, part.parallel), "its model parallelism differs from the goal"),
        (!layouts::sharding(&plan.goal).stages(true).contains(&part.sharding), "its sharding differs from the goal"),
        (part.all_gpus() < limits.min_gpus, "it has too few GPUs"),
        (limits.max_gpus.is_some_and(|most| part.all_gpus() > most), "it has too many GPUs"),
        (limits.max_price.is_some_and(|most| part.price().get() > most.get()), "it costs too much per hour"),
    ];
    match broken.into_iter().find(|(broken, _)| *broken) {
        Some((_, what)) => Err(CheckError::Offer { offer: part.offer.id.clone(), what }),
        None => Ok(()),
    }
}

/// Whether a quota counts the GPUs of a part.
pub(super) fn covers(quota: &Quota, part: &Part) -> bool {
    let Offer { provider, region, tier, .. } = &*part.offer;
    provider.eq_ignore_ascii_case(&quota.provider)
        && quota.region.iter().all(|filter| region::is_named(provider, region, filter))
        && quota.gpu.iter().all(|gpu| *gpu == part.gpu)
        && quota.tier.iter().all(|own| own == tier)
}

pub(super) fn numbers<T: Copy + Into<f64>>(range: &habitat_base::units::Range<T>) -> [f64; 3] {
    [range.low.into(), range.mid.into(), range.high.into()]
}

pub(super) fn compare(what: &str, stated: &[f64], found: &[f64]) -> Result<(), CheckError> {
    match stated.iter().zip(found).find(|(stated, found)| differs(**stated, **found)) {
        Some((stated, found)) => Err(CheckError::Number { what: what.to_owned(), stated: *stated, found: *found }),
        None => Ok(()),
    }
}

/// Whether two numbers differ. NaN differs from everything.
fn differs(a: f64, b: f64) -> bool {
    let same = (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()) + 1e-12;
    !same
}
