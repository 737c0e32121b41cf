//! Offers beside the plan, which the user would have to accept first ([`Accept`]).

use super::configuration::{Configuration, Sources};
use super::prepared::Prepared;
use super::problem::{Aim, Limit, RELATIVE_TOLERANCE, over};
use super::search::{aims, best_single};
use super::{Accept, Goal, Limits, Machines, Objective, Part, Plan, PlanNote, Reason, Risk, Setback};
use crate::pricing::Tier;
use habitat_base::units::{Hours, Range, Usd};

/// An offer beside the plan is shown if its first aim is at most this share of the plan's (a choice).
const WORTH: f64 = 0.95;
/// "A little more": upper limit on the cost (or the hours), relative to the plan (a choice).
const LITTLE: f64 = 1.25;
/// "A lot": upper limit on the hours (or the cost), as a share of the plan (a choice).
const LOT: f64 = 0.5;

/// Hours above which a plan is long: prices and offers rarely last that long (a choice).
pub(super) const LONG: f64 = 60.0 * 24.0;

/// The best offer that requires one more risk to be accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The offer with all the work.
    pub part: Part,
    /// The risks to accept; several only if no single one makes a plan possible.
    pub risks: Vec<Risk>,
    /// The work if the offer fails; `None` if no firm offer can do it.
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
    /// Hours.
    pub hours: Range<Hours>,
    /// The end of the hours that has to meet the deadline.
    pub end: Hours,
    /// Hours of that end past the deadline; `None` if it is met.
    pub late: Option<Hours>,
    /// Expected dollars above the budget; `None` if it is kept.
    pub over: Option<Usd>,
    /// The firm offer; `None` = the same machine for a batch to accept, otherwise the plan.
    pub with: Option<Machines>,
}

/// The cheapest plan, if it takes too long to be the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Longer {
    /// Expected cost.
    pub cost: Usd,
    /// Hours.
    pub hours: Range<Hours>,
    /// The machines of each part.
    pub with: Vec<Machines>,
}

/// The work if an accepted offer fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Fallback {
    /// Event in which it fails.
    pub setback: Setback,
    /// The work at a firm offer, the closest to the limits if none meets them; `None` if none can do it.
    pub then: Option<Instead>,
}

/// A larger global batch is worth its fewer updates if it takes at most this share of the time (a choice).
const FASTER: f64 = 0.9;
/// A still larger one on the same machine counts only if it takes less than this share of the time (a choice).
const STILL_FASTER: f64 = 0.95;

impl Prepared {
    /// Best offer for each kind to accept, if it is clearly better than the plan. Without a plan, and if no single kind
    /// makes one possible: the best offer that requires several.
    pub(super) fn beside(&self, plan: &Plan, limit: &Limit, firm: Option<&Instead>) -> Vec<Beside> {
        let planned = self.planned(plan);
        // Beside a plan without a deadline, no offer that takes years.
        let finish = plan.total.map(|total| self.goal.confidence.end(&total.hours).get().max(LONG));
        let is_patient = self.goal.objective != Objective::Cost || limit.deadline.is_some();
        let limit = &Limit { deadline: limit.deadline.or(finish.filter(|_| !is_patient)), ..limit.clone() };
        let one = |accept: Accept| {
            self.best_beside(&|other| matches!(&other.risks[..], [one] if one.kind() == accept), limit)
        };
        let found = Accept::ALL.into_iter().filter_map(one);
        let mut found: Vec<(usize, f64)> = found.filter(|(_, value)| *value <= WORTH * planned).collect();
        if found.is_empty() && plan.total.is_none() {
            found.extend(self.best_beside(&|_| true, limit));
        }
        found.sort_by(|a, b| a.1.total_cmp(&b.1));
        found.into_iter().map(|(place, _)| self.with_fallback(place, firm.cloned(), &plan.goal)).collect()
    }

    /// The user's own machines with all the work within the limits, most GPUs first, each with its cheapest batch.
    pub(super) fn own(&self, limit: &Limit) -> Vec<Part> {
        let is_own = |c: usize| self.configurations[c].offer.is_at_own_place();
        let own = self.wholes().filter(|(c, finish, cost)| is_own(*c) && limit.is_kept(*finish, *cost));
        let mut own: Vec<(usize, f64)> = own.map(|(c, _, cost)| (c, cost)).collect();
        let key = |c: usize| (&self.configurations[c].offer.id, self.configurations[c].machines);
        own.sort_by(|(a, cheap), (b, dear)| key(*a).cmp(&key(*b)).then(cheap.total_cmp(dear)));
        own.dedup_by(|(later, _), (first, _)| key(*later) == key(*first));
        let mut parts: Vec<Part> = own.into_iter().map(|(c, _)| self.whole(c)).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.all_gpus()));
        parts
    }

    /// The fastest own machine with a larger global batch, if it is clearly faster than with the recorded one, or keeps
    /// limits that the recorded one does not; of two batches on a machine that take about as long, the one with more
    /// updates.
    pub(super) fn larger_batch(&self, larger: Vec<Part>, own: &[Part], limit: &Limit) -> Option<Part> {
        let are_same = |a: &Part, b: &Part| (&a.offer.id, a.machines) == (&b.offer.id, b.machines);
        let mut best: Vec<Part> = Vec::new();
        for part in larger {
            let (finish, hours) = (self.goal.confidence.end(&part.hours).get(), part.hours.mid.get());
            let is_worth = match own.iter().find(|one| are_same(one, &part)) {
                Some(same) => hours <= FASTER * same.hours.mid.get(),
                None => limit.is_kept(finish, part.cost.mid.get()),
            };
            match best.iter_mut().find(|one| are_same(one, &part)) {
                Some(other) if is_worth && hours < STILL_FASTER * other.hours.mid.get() => *other = part,
                None if is_worth => best.push(part),
                _ => {}
            }
        }
        best.into_iter().min_by(|a, b| a.hours.mid.total_cmp(&b.hours.mid))
    }

    /// Value of the plan's first aim; infinite without a plan.
    fn planned(&self, plan: &Plan) -> f64 {
        let Some(total) = &plan.total else { return f64::INFINITY };
        let emitted = total.footprint.emissions.map_or(0.0, |emitted| emitted.mid.get());
        aims(self.goal.objective)[0].of_plan((self.finish(total), total.cost.mid.get(), emitted))
    }

    /// The best firm offer of the tiers that the goal excludes, with the value of its first aim.
    pub(super) fn other_tier(&self, of: Sources<'_>, limit: &Limit) -> Option<(Instead, f64)> {
        let tiers: Vec<Tier> = Tier::ALL.into_iter().filter(|tier| !self.goal.limits.tiers.contains(tier)).collect();
        if tiers.is_empty() {
            return None;
        }
        let limits = Limits { tiers, accept: Vec::new(), ..self.goal.limits.clone() };
        Self::of(of, &Goal { limits, ..self.goal.clone() }, Some(&|_, _| true)).ok()?.best_firm(limit)
    }

    /// Note on an offer of another tier, if it is as good as the plan or better: users name a tier to pay less.
    pub(super) fn tier_note(&self, plan: &Plan, (other, value): (Instead, f64)) -> Option<PlanNote> {
        let (cost_usd, hours, objective) = (other.cost, other.hours.mid, self.goal.objective);
        let note = PlanNote::OtherTier { with: other.with?, cost_usd, hours, objective };
        (value <= self.planned(plan) * (1.0 + RELATIVE_TOLERANCE)).then_some(note)
    }

    /// Best of a subset of the offers beside the plan, with the value of its first aim.
    fn best_beside(&self, is_such: &dyn Fn(&Configuration) -> bool, limit: &Limit) -> Option<(usize, f64)> {
        let of_kind: Vec<usize> = (0..self.others.len()).filter(|c| is_such(&self.others[*c])).collect();
        let problem = self.beside.only(&of_kind);
        let found = best_single(&problem, self.goal.objective, limit)?;
        let value = problem.value(aims(self.goal.objective)[0], &found.hours);
        Some((of_kind[found.hours.first()?.0], value))
    }

    /// An offer beside the plan with all the work, and the fallback if it fails: a firm offer. Another offer with the
    /// same risk can fail too.
    fn with_fallback(&self, place: usize, firm: Option<Instead>, goal: &Goal) -> Beside {
        let own = &self.others[place];
        let part = own.part(self.work.get() / own.rate(), true);
        let then = if Risk::kinds(&own.risks) == [Accept::Batch] { Some(self.same_updates(own, goal)) } else { firm };
        Beside { risks: own.risks.clone(), part, then }
    }

    /// The work if an accepted risk of the plan's only configuration comes true; `None` without such a risk.
    pub(super) fn fallback(&self, used: &[usize], firm: Option<Instead>, goal: &Goal) -> Option<Fallback> {
        let [own] = used else { return None };
        let own = Some(&self.configurations[*own]).filter(|own| !own.accepted.is_empty())?;
        let setback = Setback::of(&own.accepted);
        let is_batch = setback == Setback::SameUpdates;
        Some(Fallback { setback, then: if is_batch { Some(self.same_updates(own, goal)) } else { firm } })
    }

    /// The work without an accepted risk: the plan if it has none, otherwise the best firm offer within the limits.
    pub(super) fn firm(&self, plan: &Plan, used: &[usize], limit: &Limit) -> Option<Instead> {
        let total = plan.total.as_ref().filter(|_| used.iter().all(|c| self.configurations[*c].accepted.is_empty()));
        let own = total.map(|total| self.instead((total.hours, total.cost), None, limit));
        own.or_else(|| self.best_firm(limit).map(|(firm, _)| firm))
    }

    /// The firm offer that exceeds deadline and budget by the smallest factor, for when none meets them.
    pub(super) fn closest_firm(&self, limit: &Limit) -> Option<Instead> {
        let times = |value: f64, limit: Option<f64>| limit.map_or(0.0, |limit| value / limit);
        let excess = |of: &(usize, f64, f64)| times(of.1, limit.deadline).max(times(of.2, limit.budget));
        let firm = self.wholes().filter(|(c, ..)| self.configurations[*c].accepted.is_empty());
        let (closest, ..) = firm.min_by(|a, b| excess(a).total_cmp(&excess(b)).then(a.2.total_cmp(&b.2)))?;
        let closest = &self.configurations[closest];
        Some(self.instead(self.ranges(closest, 1.0), Some(closest.label()), limit))
    }

    /// The best firm offer within the limits, with the value of its first aim.
    fn best_firm(&self, limit: &Limit) -> Option<(Instead, f64)> {
        let all = 0..self.configurations.len();
        let firm: Vec<usize> = all.filter(|c| self.configurations[*c].accepted.is_empty()).collect();
        let problem = self.singles.only(&firm);
        let found = best_single(&problem, self.goal.objective, limit)?;
        let firm = &self.configurations[firm[found.hours.first()?.0]];
        let instead = self.instead(self.ranges(firm, 1.0), Some(firm.label()), limit);
        Some((instead, problem.value(aims(self.goal.objective)[0], &found.hours)))
    }

    /// As many updates as with the recorded batch, on the same machines.
    fn same_updates(&self, own: &Configuration, goal: &Goal) -> Instead {
        let recorded = own.global_batch_size().zip(self.goal.global_batch.or(self.recorded_batch));
        let times = recorded.map_or(1.0, |(own, recorded)| own as f64 / recorded as f64);
        self.instead(self.ranges(own, times), None, &Self::limit(goal.deadline, goal.budget))
    }

    /// Hours and cost of the work, multiplied by `times`, on an offer.
    pub(super) fn ranges(&self, offer: &Configuration, times: f64) -> (Range<Hours>, Range<Usd>) {
        offer.ranges(self.work.get() * times / offer.rate(), true)
    }

    /// These hours and costs as a way out, with the excess over the limits.
    fn instead(&self, of: (Range<Hours>, Range<Usd>), with: Option<Machines>, limit: &Limit) -> Instead {
        let end = self.goal.confidence.end(&of.0);
        let late = over(end.get(), limit.deadline).map(Hours::known);
        let over = over(of.1.mid.get(), limit.budget).map(Usd::known);
        Instead { cost: of.1.mid, hours: of.0, end, late, over, with }
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

    /// The limits of a shorter plan, and the plan that gives way to it. Without a deadline, the plan with the lowest cost
    /// or emissions can take years. If it is long, it gives way to one that costs (or emits) a little more and takes at
    /// most half the time: the best that is not long, or else the fastest.
    pub(super) fn shortened(&self, plan: &Plan, used: &[usize]) -> Option<(Longer, Limit)> {
        let total = plan.total.as_ref()?;
        let finish = self.goal.confidence.end(&total.hours).get();
        let aim = aims(plan.goal.objective)[0];
        if !matches!(aim, Aim::Cost | Aim::Emissions) || plan.goal.deadline.is_some() || finish <= LONG {
            return None;
        }
        let budget = plan.goal.budget.map(Usd::get);
        let most = Limit { deadline: Some(LOT * finish), budget, ..Limit::default() };
        let most = Limit { ceilings: vec![(aim, LITTLE * self.planned(plan))], ..most };
        let fastest = best_single(&self.singles, Objective::Time, &most)?;
        let (hours, _) = self.singles.whole(fastest.hours.first()?.0)?;
        let deadline = hours.max(LONG.min(LOT * finish));
        let with = used.iter().map(|c| self.configurations[*c].label()).collect();
        let longer = Longer { cost: total.cost.mid, hours: total.hours, with };
        Some((longer, Limit { deadline: Some(deadline), ..Self::limit(None, plan.goal.budget) }))
    }

    /// Reason why an offer beside the plan was not used, with the limits that it would not keep.
    pub(super) fn not_accepted(&self, place: usize, finish: f64, cost: f64, limit: &Limit) -> Reason {
        let own = &self.others[place];
        Reason::NotAccepted {
            risks: own.risks.clone(),
            accept: Risk::kinds(&own.risks),
            cost_usd: Usd::known(cost),
            hours: self.ranges(own, 1.0).0.mid,
            late_hours: over(finish, limit.deadline).map(Hours::known),
            over_usd: over(cost, limit.budget).map(Usd::known),
        }
    }
}
