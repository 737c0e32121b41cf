//! Offers beside the plan, which the user would have to accept first ([`Accept`]).

use super::configuration::Configuration;
use super::prepared::Prepared;
use super::problem::{Limit, over};
use super::search::{aims, best_single};
use super::{Accept, Machines, Objective, Part, Plan, Reason, Risk, Setback};
use habitat_base::units::{Hours, Usd};

/// An offer beside the plan is shown if its first aim is at most this share of the plan's.
const WORTH: f64 = 0.95;
/// "A little more": upper limit on the cost (or the hours), relative to the plan.
const LITTLE: f64 = 1.25;
/// "A lot": upper limit on the hours (or the cost), as a share of the plan.
const LOT: f64 = 0.5;

/// The best offer that requires one more risk to be accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The offer with all the work.
    pub part: Part,
    /// The risks to accept; several only if no single one makes a plan possible.
    pub risks: Vec<Risk>,
    /// The work if the offer fails; `None` if no other offer meets the limits.
    pub then: Option<Instead>,
}

impl Beside {
    /// The kinds to accept.
    pub fn accept(&self) -> Vec<Accept> {
        Risk::kinds(&self.risks)
    }

    /// Event in which the offer fails.
    pub fn setback(&self) -> Setback {
        Setback::of(&self.accept())
    }
}

/// The work on another offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Instead {
    /// Expected cost.
    pub cost: Usd,
    /// Expected hours.
    pub hours: Hours,
    /// The offer; `None` = the same machine for a batch to accept, otherwise the plan.
    pub with: Option<Machines>,
}

/// The work if an accepted offer fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Fallback {
    /// Event in which it fails.
    pub setback: Setback,
    /// The work on another offer; `None` if none meets the limits.
    pub then: Option<Instead>,
}

/// Whether another configuration fails too if an offer fails. A provider's prices in doubt are from the same list.
fn fails_too(setback: Setback, own: &Configuration, other: &Configuration) -> bool {
    let has = |accept: Accept| other.accepted.contains(&accept) || other.risks.iter().any(|risk| risk.kind() == accept);
    let is_same = own.offer.id == other.offer.id;
    match setback {
        Setback::SameUpdates | Setback::HostGone => is_same,
        Setback::NoSpot => has(Accept::Spot),
        Setback::PriceGone => is_same || (own.offer.provider == other.offer.provider && has(Accept::Doubted)),
        Setback::DoesNotRun => has(Accept::Platform),
    }
}

impl Prepared {
    /// Best offer for each kind to accept, if it is clearly better than the plan. Without a plan, and if no single kind
    /// makes one possible: the best offer that requires several.
    pub(super) fn beside(&self, plan: &Plan, limit: &Limit) -> Vec<Beside> {
        let planned = self.planned(plan);
        let one = |accept: Accept| {
            self.best_beside(&|other| matches!(&other.risks[..], [one] if one.kind() == accept), limit)
        };
        let found = Accept::ALL.into_iter().filter_map(one);
        let mut found: Vec<(usize, f64)> = found.filter(|(_, value)| *value <= WORTH * planned).collect();
        if found.is_empty() && plan.total.is_none() {
            found.extend(self.best_beside(&|_| true, limit));
        }
        found.sort_by(|a, b| a.1.total_cmp(&b.1));
        found.into_iter().map(|(place, _)| self.with_fallback(place, plan, limit)).collect()
    }

    /// Value of the plan's first aim; infinite without a plan.
    fn planned(&self, plan: &Plan) -> f64 {
        let Some(total) = &plan.total else { return f64::INFINITY };
        let emitted = total.footprint.emissions.map_or(0.0, |emitted| emitted.mid.get());
        let finish = self.goal.confidence.end(&total.hours).get();
        aims(self.goal.objective)[0].of_plan((finish, total.cost.mid.get(), emitted))
    }

    /// Best of a subset of the offers beside the plan, with the value of its first aim.
    fn best_beside(&self, is_such: &dyn Fn(&Configuration) -> bool, limit: &Limit) -> Option<(usize, f64)> {
        let of_kind: Vec<usize> = (0..self.others.len()).filter(|c| is_such(&self.others[*c])).collect();
        let problem = self.beside.only(&of_kind);
        let found = best_single(&problem, self.goal.objective, limit)?;
        let value = problem.value(aims(self.goal.objective)[0], &found.hours);
        Some((of_kind[found.hours.first()?.0], value))
    }

    /// An offer beside the plan with all the work, and the fallback if it fails. For a host or a price, the fallback is
    /// the next offer of this kind if that is better than the plan, otherwise the plan.
    fn with_fallback(&self, place: usize, plan: &Plan, limit: &Limit) -> Beside {
        let own = &self.others[place];
        let part = own.part(self.work.get() / own.rate(), true);
        let total = plan.total.map(|total| (total.cost.mid, total.hours.mid));
        let plans = total.map(|(cost, hours)| Instead { cost, hours, with: None });
        let needs = Risk::kinds(&own.risks);
        let then = match needs[..] {
            [Accept::Batch] => Some(self.same_updates(own)),
            [Accept::Marketplace | Accept::Doubted] => {
                let is_next = |other: &Configuration| {
                    Risk::kinds(&other.risks) == needs && !fails_too(Setback::of(&needs), own, other)
                };
                let next = self.best_beside(&is_next, limit);
                let next = next.filter(|(_, value)| *value < self.planned(plan)).map(|(place, _)| &self.others[place]);
                next.map(|next| self.instead(next, 1.0, Some(next.label()))).or(plans)
            }
            _ => plans,
        };
        Beside { risks: own.risks.clone(), part, then }
    }

    /// The work if an accepted risk of the plan's only configuration comes true; `None` without such a risk.
    pub(super) fn fallback(&self, used: &[usize], limit: &Limit) -> Option<Fallback> {
        let [own] = used else { return None };
        let own = Some(&self.configurations[*own]).filter(|own| !own.accepted.is_empty())?;
        let others = 0..self.configurations.len();
        let setback = Setback::of(&own.accepted);
        let left: Vec<usize> = others.filter(|c| !fails_too(setback, own, &self.configurations[*c])).collect();
        let next = || {
            let found = best_single(&self.singles.only(&left), self.goal.objective, limit)?;
            let next = &self.configurations[left[found.hours.first()?.0]];
            Some(self.instead(next, 1.0, Some(next.label())))
        };
        let then = if setback == Setback::SameUpdates { Some(self.same_updates(own)) } else { next() };
        Some(Fallback { setback, then })
    }

    /// As many updates as with the recorded batch, on the same machines.
    fn same_updates(&self, own: &Configuration) -> Instead {
        let recorded = own.global_batch_size().zip(self.goal.global_batch.or(self.recorded_batch));
        let times = recorded.map_or(1.0, |(own, recorded)| own as f64 / recorded as f64);
        self.instead(own, times, None)
    }

    /// The work, multiplied by `times`, on an offer.
    fn instead(&self, offer: &Configuration, times: f64, with: Option<Machines>) -> Instead {
        let (hours, cost) = offer.ranges(self.work.get() * times / offer.rate(), true);
        Instead { cost: cost.mid, hours: hours.mid, with }
    }

    /// An offer that costs a little more and takes at most half the time. If the goal is the earliest finish: one that
    /// takes a little longer and costs at most half.
    pub(super) fn bargain(&self, plan: &Plan, limit: &Limit) -> Option<Part> {
        let total = plan.total.as_ref()?;
        let (finish, cost) = (self.goal.confidence.end(&total.hours).get(), total.cost.mid.get());
        let (most_hours, most_cost, aim) = match self.goal.objective {
            Objective::Cost => (LOT * finish, LITTLE * cost, Objective::Cost),
            Objective::Time => (LITTLE * finish, LOT * cost, Objective::Time),
            Objective::CostPlusTime(_) | Objective::Emissions => return None,
        };
        let least = |own: Option<f64>, other: f64| Some(own.map_or(other, |own| own.min(other)));
        let limit = Limit {
            deadline: least(limit.deadline, most_hours),
            budget: least(limit.budget, most_cost),
            ..Limit::default()
        };
        let found = best_single(&self.singles, aim, &limit)?;
        Some(self.whole(found.hours.first()?.0))
    }

    /// Reason why an offer beside the plan was not used, with the limits that it would not keep.
    pub(super) fn not_accepted(&self, place: usize, finish: f64, cost: f64, limit: &Limit) -> Reason {
        let own = &self.others[place];
        let (hours, _) = own.ranges(self.work.get() / own.rate(), true);
        Reason::NotAccepted {
            risks: own.risks.clone(),
            accept: Risk::kinds(&own.risks),
            cost_usd: Usd::known(cost),
            hours: hours.mid,
            late_hours: over(finish, limit.deadline).map(Hours::known),
            over_usd: over(cost, limit.budget).map(Usd::known),
        }
    }
}
