//! Offers beside the plan, which the user would have to accept first ([`Accept`]).

use super::configuration::Configuration;
use super::prepared::Prepared;
use super::problem::{Limit, SAME};
use super::search::{aims, best_single};
use super::{Accept, Machines, Objective, Part, Plan, Reason, Risk};
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
    /// The required kinds; several only if no single one makes a plan possible.
    pub accept: Vec<Accept>,
    /// The offer with all the work.
    pub part: Part,
    /// The risks.
    pub risks: Vec<Risk>,
    /// Outcome if the offer fails.
    pub fallback: Fallback,
}

/// Outcome if an offer beside the plan fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Fallback {
    /// How it fails.
    pub when: Setback,
    /// Offer for the work in that event; `None` if no other offer meets the limits.
    pub then: Option<Instead>,
}

/// The work on another offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Instead {
    /// Expected cost.
    pub cost: Usd,
    /// Expected hours.
    pub hours: Hours,
    /// The offer.
    pub with: With,
}

/// How an offer beside the plan fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setback {
    /// The larger batch needs as many updates.
    SameUpdates,
    /// The marketplace host is gone.
    HostGone,
    /// No spot machine is available.
    NoSpot,
    /// The price is gone.
    PriceGone,
    /// The program does not run on the platform.
    ProgramFails,
}

impl Setback {
    /// The most likely one of an offer with these risks.
    fn of(risks: &[Accept]) -> Self {
        match risks {
            [Accept::Batch] => Self::SameUpdates,
            _ if risks.contains(&Accept::Marketplace) => Self::HostGone,
            _ if risks.contains(&Accept::Spot) => Self::NoSpot,
            _ if risks.contains(&Accept::Doubted) => Self::PriceGone,
            _ => Self::ProgramFails,
        }
    }

    /// Whether it hits another configuration too if it hits one. A provider's prices in doubt are from the same list.
    fn hits(self, own: &Configuration, other: &Configuration) -> bool {
        let risks = |accept: Accept| other.accepted.contains(&accept) || other.needs.contains(&accept);
        let is_same = own.offer.id == other.offer.id;
        match self {
            Self::SameUpdates | Self::HostGone => is_same,
            Self::NoSpot => risks(Accept::Spot),
            Self::PriceGone => is_same || (own.offer.provider == other.offer.provider && risks(Accept::Doubted)),
            Self::ProgramFails => risks(Accept::Platform),
        }
    }
}

/// What does the work instead.
#[derive(Debug, Clone, PartialEq)]
pub enum With {
    /// The plan.
    ThePlan,
    /// The same machine.
    TheSame,
    /// Another offer.
    Other(Machines),
}

impl Prepared {
    /// Best offer for each kind to accept, if it is clearly better than the plan. Without a plan, and if no single kind
    /// makes one possible: the best offer that requires several.
    pub(super) fn beside(&self, plan: &Plan, limit: &Limit) -> Vec<Beside> {
        let planned = self.planned(plan);
        let one = |accept: Accept| self.best_beside(&|other| other.needs == [accept], limit);
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
        let when = Setback::of(&own.needs);
        let total = plan.total.map(|total| (total.cost.mid, total.hours.mid));
        let plans = total.map(|(cost, hours)| Instead { cost, hours, with: With::ThePlan });
        let then = match own.needs[..] {
            [Accept::Batch] => Some(self.same_updates(own)),
            [Accept::Marketplace | Accept::Doubted] => {
                let next = self.best_beside(&|other| other.needs == own.needs && !when.hits(own, other), limit);
                let next = next.filter(|(_, value)| *value < self.planned(plan)).map(|(place, _)| &self.others[place]);
                next.map(|next| self.instead(next, 1.0, With::Other(next.label()))).or(plans)
            }
            _ => plans,
        };
        Beside { accept: own.needs.clone(), risks: own.risks.clone(), part, fallback: Fallback { when, then } }
    }

    /// Outcome if an accepted risk of the plan's only configuration comes true; `None` without such a risk.
    pub(super) fn if_it_fails(&self, used: &[usize], limit: &Limit) -> Option<Fallback> {
        let [own] = used else { return None };
        let own = Some(&self.configurations[*own]).filter(|own| !own.accepted.is_empty())?;
        let when = Setback::of(&own.accepted);
        let left: Vec<usize> =
            (0..self.configurations.len()).filter(|c| !when.hits(own, &self.configurations[*c])).collect();
        let next = || {
            let found = best_single(&self.singles.only(&left), self.goal.objective, limit)?;
            let next = &self.configurations[left[found.hours.first()?.0]];
            Some(self.instead(next, 1.0, With::Other(next.label())))
        };
        let then = if when == Setback::SameUpdates { Some(self.same_updates(own)) } else { next() };
        Some(Fallback { when, then })
    }

    /// As many updates as with the recorded batch, on the same machines.
    fn same_updates(&self, own: &Configuration) -> Instead {
        let recorded = own.global_batch_size().zip(self.goal.global_batch.or(self.recorded_batch));
        let times = recorded.map_or(1.0, |(own, recorded)| own as f64 / recorded as f64);
        self.instead(own, times, With::TheSame)
    }

    /// The work, multiplied by `times`, on an offer.
    fn instead(&self, offer: &Configuration, times: f64, with: With) -> Instead {
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
        let over = |value: f64, limit: Option<f64>| {
            limit.filter(|limit| value > limit * (1.0 + SAME)).map(|limit| value - limit)
        };
        Reason::NotAccepted {
            risks: own.risks.clone(),
            accept: own.needs.clone(),
            cost_usd: Usd::known(cost),
            hours: hours.mid,
            late_hours: over(finish, limit.deadline).map(Hours::known),
            over_usd: over(cost, limit.budget).map(Usd::known),
        }
    }
}
