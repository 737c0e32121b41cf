//! Limits on offers that prevent a plan. Lifts one limit at a time (the batch with the number of machines), keeps the
//! others, and plans again. For a numeric
//! limit, proposes the smallest change that suffices, as long as one offer does all the work.

use std::collections::HashMap;

use super::batch::freed;
use super::configuration::{Configuration, Sources};
use super::explain::machines;
use super::prepared::Prepared;
use super::problem::Limit;
use super::{Accept, Goal, Lift, Limits, NoPlan};
use crate::pricing::Tier;
use habitat_base::units::{Bytes, Hours, KilogramsCo2e, Usd, UsdPerHour};

/// Maximum number of machines to try instead of fewer (a choice).
const MOST_MACHINES: u32 = 16;

/// Quantity of a configuration that a limit applies to; larger if the limit has to be relaxed more.
type Amount = fn(&Configuration) -> f64;

/// Unknown emissions exceed all known ones.
const UNKNOWN: f64 = f64::INFINITY;

/// Quantity that a limit applies to.
enum About {
    /// No quantity.
    Kind,
    /// A quantity of a configuration.
    Offer(Amount),
    /// Emissions of a plan.
    Emissions,
}

/// The limits with one of them lifted.
struct Lifted {
    limits: Limits,
    about: About,
    /// The change to an amount.
    change: Box<dyn Fn(f64) -> Lift>,
}

/// Proposals that would allow a plan, each with one limit lifted.
pub(super) fn reasons(prepared: &Prepared, sources: Sources<'_>, limit: &Limit) -> Vec<NoPlan> {
    let (lifted, enough) = (lifted(&prepared.goal.limits), enough(prepared, limit));
    let helps = lifted.iter().filter_map(|lifted| {
        let is_other = lifted.limits.accept != prepared.goal.limits.accept;
        let goal = if is_other { freed(sources.0, &prepared.goal)? } else { prepared.goal.clone() };
        let goal = Goal { limits: lifted.limits.clone(), ..goal };
        let is_single = goal.max_parts == 1 && goal.limits.max_machines > prepared.goal.limits.max_machines;
        let tried = |place, machines| !is_single || enough.get(&place).is_none_or(|least| machines >= *least);
        helps(lifted, &Prepared::of(sources, &goal, Some(&tried)).ok()?, limit)
    });
    let mut reasons: Vec<NoPlan> = helps.collect();
    let is_one = reasons.iter().any(|reason| matches!(reason, NoPlan::OtherLimit { change: Lift::MaxMachines(_), .. }));
    // With one machine, the batch alone does: that is an offer beside the plan.
    let is_needed = |machines: u32| !is_one && machines > prepared.goal.limits.max_machines;
    reasons.retain(|reason| {
        !matches!(reason, NoPlan::OtherLimit { change: Lift::BatchOnMachines(number), .. } if !is_needed(*number))
    });
    // Exclude purchase options and accepted risks, which are limited by default.
    let (tiers, accept) = (Tier::ALL.to_vec(), Accept::ALL.to_vec());
    let others = Limits { tiers, accept, ..prepared.goal.limits.clone() };
    if reasons.is_empty() && others != Limits::default() {
        reasons.push(NoPlan::LimitsDoNotHelp);
    }
    reasons
}

/// How much faster and cheaper than in proportion a job may get on more machines, at most (a choice): each has to hold
/// and accumulate less.
const SUPERLINEAR: f64 = 2.0;

/// Smallest number of machines with which each offer may keep the limits, by its place; other numbers need no try.
fn enough(prepared: &Prepared, limit: &Limit) -> HashMap<usize, u32> {
    let mut enough = HashMap::new();
    for one in prepared.configurations.iter().chain(&*prepared.others) {
        let (hours, cost) = prepared.ranges(one, 1.0);
        let all = hours.low.get() * f64::from(one.machines) / SUPERLINEAR;
        let times = limit.deadline.map_or(0.0, |deadline| (all / deadline).ceil());
        let is_dear = limit.budget.is_some_and(|budget| cost.low.get() > SUPERLINEAR * budget);
        let machines = if is_dear { u32::MAX } else { times as u32 };
        enough.entry(one.place).and_modify(|least: &mut u32| *least = machines.min(*least)).or_insert(machines);
    }
    enough
}

/// The plan without the limit; `None` if none exists either.
fn helps(lifted: &Lifted, prepared: &Prepared, limit: &Limit) -> Option<NoPlan> {
    let amount = |c: usize| {
        let configuration = &prepared.configurations[c];
        match lifted.about {
            About::Kind => 0.0,
            About::Offer(amount) => amount(configuration),
            About::Emissions => configuration.kilograms(prepared.work.get() / configuration.rate()).unwrap_or(UNKNOWN),
        }
    };
    let least = prepared
        .wholes()
        .filter(|(_, finish, cost)| limit.is_kept(*finish, *cost))
        .min_by(|a, b| amount(a.0).total_cmp(&amount(b.0)).then(a.2.total_cmp(&b.2)));
    let (used, finish, cost, emitted) =
        if let Some((c, finish, cost)) = least.filter(|_| !matches!(lifted.about, About::Kind)) {
            (vec![c], finish, cost, amount(c))
        } else {
            let (plan, used) = prepared.checked(prepared.goal.clone(), limit).ok()??;
            let total = plan.total?;
            let emitted = total.footprint.emissions.map_or(UNKNOWN, |emitted| emitted.mid.get());
            (used, prepared.goal.confidence.end(&total.hours).get(), total.cost.mid.get(), emitted)
        };
    let amount = match lifted.about {
        About::Emissions => emitted,
        _ => used.iter().map(|c| amount(*c)).fold(f64::NEG_INFINITY, f64::max),
    };
    let (with, change) = (machines(prepared, used), (lifted.change)(amount));
    Some(NoPlan::OtherLimit { change, with, hours: Hours::known(finish), cost_usd: Usd::known(cost) })
}

/// One entry for each limit that is set, with that limit lifted.
fn lifted(limits: &Limits) -> Vec<Lifted> {
    let mut all = Vec::new();
    let now = || limits.clone();
    let mut lift = |change: Lift, lifted: Limits| {
        if lifted != *limits {
            all.push(Lifted { limits: lifted, about: About::Kind, change: Box::new(move |_| change.clone()) });
        }
    };
    lift(Lift::Tiers, Limits { tiers: Tier::ALL.to_vec(), ..now() });
    lift(Lift::Gpus, Limits { gpus: Vec::new(), ..now() });
    lift(Lift::ExcludeGpus, Limits { exclude_gpus: Vec::new(), ..now() });
    lift(Lift::Providers, Limits { providers: Vec::new(), ..now() });
    lift(Lift::ExcludeProviders, Limits { exclude_providers: Vec::new(), ..now() });
    lift(Lift::Regions, Limits { regions: Vec::new(), ..now() });
    lift(Lift::ExcludeRegions, Limits { exclude_regions: Vec::new(), ..now() });
    lift(Lift::Offers, Limits { offers: Vec::new(), ..now() });
    lift(Lift::Marketplace, Limits { no_marketplace: false, ..now() });
    lift(Lift::UnknownMemory, Limits { allow_unknown_memory: true, ..now() });
    if limits.min_vcpus.is_some() || limits.min_host_memory.is_some() {
        lift(Lift::UnknownHost, Limits { allow_unknown_host: true, ..now() });
    }

    let mut number = |lifted: Limits, amount: Amount, change: Box<dyn Fn(f64) -> Lift>| {
        if lifted != *limits {
            all.push(Lifted { limits: lifted, about: About::Offer(amount), change });
        }
    };
    let gpus: Amount = |c| f64::from(c.all_gpus());
    let most = limits.max_machines.max(MOST_MACHINES);
    let vcpus: Amount = |c| c.offer.vcpus.map_or(0.0, |vcpus| -vcpus);
    let memory: Amount = |c| c.offer.host_memory.map_or(0.0, |memory| -memory.get());
    let bytes = |bytes: f64| Lift::MinHostMemoryBytes(Bytes::known(-bytes));
    let price = |price| Lift::MaxUsdPerHour(UsdPerHour::known(price));
    number(
        Limits { max_machines: most, ..now() },
        |c| f64::from(c.machines),
        Box::new(|n| Lift::MaxMachines(n as u32)),
    );
    let accept = limits.accept.iter().copied().chain([Accept::Batch]).collect();
    if !limits.accept.contains(&Accept::Batch) {
        number(
            Limits { max_machines: most, accept, ..now() },
            |c| f64::from(c.machines),
            Box::new(|n| Lift::BatchOnMachines(n as u32)),
        );
    }
    number(Limits { min_gpus: 1, ..now() }, |c| -f64::from(c.all_gpus()), Box::new(|n| Lift::MinGpus(-n as u32)));
    number(Limits { max_gpus: None, ..now() }, gpus, Box::new(|n| Lift::MaxGpus(n as u32)));
    number(Limits { max_price: None, ..now() }, |c| c.price().get(), Box::new(price));
    number(Limits { min_vcpus: None, ..now() }, vcpus, Box::new(|n| Lift::MinVcpus(-n)));
    number(Limits { min_host_memory: None, ..now() }, memory, Box::new(bytes));
    for (place, quota) in limits.quotas.iter().enumerate() {
        let mut quotas = limits.quotas.clone();
        quotas.remove(place);
        let quota = Box::new(quota.clone());
        number(
            Limits { quotas, ..now() },
            gpus,
            Box::new(move |gpus| Lift::Quota { quota: quota.clone(), gpus: gpus as u32 }),
        );
    }
    if limits.max_co2.is_some() {
        let change = |kg: f64| KilogramsCo2e::checked(kg).map_or(Lift::UnknownCo2, Lift::MaxCo2Kg);
        let limits = Limits { max_co2: None, ..now() };
        all.push(Lifted { limits, about: About::Emissions, change: Box::new(change) });
    }
    all
}
