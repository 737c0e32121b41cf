//! Builds the plan of a prepared goal: solution, check, alternatives, and the reason of every rejected offer.

use std::collections::HashSet;

use super::batch;
use super::check::{check, check_sources};
use super::energy::kilograms;
use super::explain;
use super::prepared::Prepared;
use super::problem::{Aim, Limit, SAME};
use super::relax;
use super::search::{Found, aims, best_single};
use super::solve::Proof;
use super::switch::Switched;
use super::{Goal, Objective, Part, Plan, PlanError, PlanStatus, Rejection, RejectionKind, SolverReport, Total};
use crate::pricing::{Billing, OfferId, PriceBook, Tier};
use habitat_base::text::{dollars, duration};
use habitat_base::units::{Hours, Usd};
use habitat_prediction::finding::distinct;
use habitat_prediction::{Finding, Predictions};

/// Hours above which a note warns of a long plan.
const LONG: f64 = 60.0 * 24.0;
/// Smallest ratio of the plan's cost to an offer's at which the offer is close to the best.
const NEAR: f64 = 0.5;
/// Number of alternatives to show.
const ALTERNATIVES: usize = 8;

/// Finds the best plan for a goal.
///
/// # Errors
/// [`PlanError`] if the goal is incomplete or invalid. If it cannot be met, the result is a plan of status
/// [`PlanStatus::Infeasible`] with the reasons.
pub fn plan(predictions: &Predictions, prices: &PriceBook, goal: &Goal) -> Result<Plan, PlanError> {
    Prepared::new(predictions, prices, goal)?.explained(predictions, prices, goal.deadline, goal.budget)
}

impl Prepared {
    /// Finds the best plan within this deadline and budget.
    ///
    /// # Errors
    /// [`PlanError::Check`] if the plan contradicts its own recomputation.
    pub fn solve(&self, deadline: Option<Hours>, budget: Option<Usd>) -> Result<Plan, PlanError> {
        self.solved(deadline, budget, Vec::new)
    }

    /// Same as [`Self::solve`], but checks the plan against its sources. Without a plan, the reasons also name limits
    /// on offers that would have to be relaxed.
    ///
    /// # Errors
    /// [`PlanError::Check`] if the plan contradicts its own recomputation or its sources.
    pub fn explained(
        &self,
        predictions: &Predictions,
        prices: &PriceBook,
        deadline: Option<Hours>,
        budget: Option<Usd>,
    ) -> Result<Plan, PlanError> {
        let lifted = || relax::reasons(self, predictions, prices, &Self::limit(deadline, budget));
        let plan = self.solved(deadline, budget, lifted)?;
        check_sources(&plan, predictions, prices)?;
        Ok(plan)
    }

    fn solved(
        &self,
        deadline: Option<Hours>,
        budget: Option<Usd>,
        lifted: impl FnOnce() -> Vec<String>,
    ) -> Result<Plan, PlanError> {
        let mut goal = self.goal.clone();
        (goal.deadline, goal.budget) = (deadline, budget);
        let limit = Self::limit(deadline, budget);
        let Some((mut plan, used)) = self.checked(goal.clone(), &limit)? else {
            let mut plan = self.empty(goal);
            plan.beside = self.beside(&plan, &limit);
            plan.reasons = explain::reasons(self, &limit, lifted());
            plan.rejected = self.rejections(&plan, &[], &[], &limit);
            plan.warnings = self.warnings(0..self.configurations.len());
            return Ok(plan);
        };
        let alternatives = self.alternatives(&used, &limit);
        plan.beside = self.beside(&plan, &limit);
        plan.bargain = self.bargain(&plan, &limit);
        plan.rejected = self.rejections(&plan, &used, &alternatives, &limit);
        plan.alternatives = alternatives.iter().map(|c| self.whole(*c)).collect();
        plan.warnings = self.warnings(used.iter().chain(&alternatives).copied());
        plan.notes.extend(self.notes(&plan));
        Ok(plan)
    }

    /// Dollars saved by one more hour of deadline, from a second solve: a dual would be local and is often 0. Zero if
    /// it saves nothing; `None` without a plan or a deadline.
    pub fn marginal_hour(&self, plan: &Plan) -> Option<Usd> {
        let (deadline, total) = (plan.goal.deadline?, plan.total?);
        let later = Self::limit(Some(deadline + Hours::known(1.0)), plan.goal.budget);
        let (_, found) = self.found(Objective::Cost, &later)?;
        let cost: Usd = self.counted(&found).map(|(c, useful, first)| c.ranges(useful, first).1.mid).sum();
        let switched = self.switched(Objective::Cost, &later).filter(|_| self.goal.max_parts > 1);
        let cost = switched.map_or(cost, |switched| Usd::known(switched.cost.min(cost.get())));
        Some(total.cost.mid.checked_sub(cost).unwrap_or_default())
    }

    /// Plan with all the work on one configuration, checked against the goal, with warnings and notes.
    ///
    /// # Errors
    /// [`PlanError::Check`] if it contradicts its own recomputation.
    pub(super) fn alone(&self, configuration: usize) -> Result<Plan, PlanError> {
        let hours = vec![(configuration, self.work.get() / self.configurations[configuration].rate())];
        let found = Found { hours, proof: Proof::Optimal, gap: None, solver: "filter and sort", notes: Vec::new() };
        let mut plan = self.build(self.goal.clone(), &found, &found.hours);
        check(&plan)?;
        plan.warnings = self.warnings([configuration].into_iter());
        plan.notes = self.facts(&plan);
        Ok(plan)
    }

    /// Finds and checks the best plan. If a plan of several parts fails the check, falls back to the best single offer.
    pub(super) fn checked(&self, goal: Goal, limit: &Limit) -> Result<Option<(Plan, Vec<usize>)>, PlanError> {
        let found = self.found(goal.objective, limit);
        if let Some(switched) = self.switched(goal.objective, limit).filter(|_| goal.max_parts > 1)
            && found.as_ref().is_none_or(|(_, hours)| switched.cost < self.cost(hours) * (1.0 - SAME))
        {
            let plan = self.build_switched(goal, &switched);
            check(&plan)?;
            return Ok(Some((plan, vec![switched.spot, switched.to])));
        }
        let Some((found, hours)) = found else { return Ok(None) };
        let plan = self.build(goal, &found, &hours);
        let used = hours.iter().map(|(c, _)| *c).collect();
        let Err(error) = check(&plan) else { return Ok(Some((plan, used))) };
        let single = best_single(&self.singles, plan.goal.objective, limit).filter(|_| plan.goal.max_parts > 1);
        let Some(mut single) = single else { return Err(error.into()) };
        single.proof = Proof::Time;
        single
            .notes
            .push(format!("fell back to the best single offer: the plan of several parts failed its check: {error}"));
        let hours = single.hours.clone();
        let plan = self.build(plan.goal, &single, &hours);
        check(&plan)?;
        Ok(Some((plan, hours.iter().map(|(c, _)| *c).collect())))
    }

    fn build(&self, goal: Goal, found: &Found, hours: &[(usize, f64)]) -> Plan {
        let parts: Vec<Part> = self.counted(hours).map(|(c, useful, first)| c.part(useful, first)).collect();
        let mut plan = self.empty(goal);
        plan.status = match found.proof {
            Proof::Optimal => PlanStatus::Optimal,
            Proof::Gap => PlanStatus::GapLimit,
            Proof::Time => PlanStatus::TimeLimit,
        };
        plan.total = Some(Total::of_parts(&parts));
        plan.parts = parts;
        plan.switch = self.safety_net(hours, plan.goal.deadline);
        found.solver.clone_into(&mut plan.solver.name);
        plan.solver.gap = found.gap;
        plan.notes.clone_from(&found.notes);
        plan
    }

    fn build_switched(&self, goal: Goal, switched: &Switched) -> Plan {
        let mut plan = self.empty(goal);
        let (parts, total, switch) = self.of_switched(switched);
        plan.status = PlanStatus::Optimal;
        "filter and sort".clone_into(&mut plan.solver.name);
        (plan.parts, plan.total, plan.switch) = (parts, Some(total), Some(switch));
        if plan.goal.max_parts > 2 {
            plan.notes.push("plans that switch from spot have two parts; more parts were not tried".to_owned());
        }
        plan
    }

    /// Expected cost in dollars.
    fn cost(&self, hours: &[(usize, f64)]) -> f64 {
        hours.iter().map(|(c, useful)| self.singles.choices[*c].cost(*useful)).sum()
    }

    /// A plan without parts.
    fn empty(&self, goal: Goal) -> Plan {
        let name = if goal.max_parts > 1 { "microlp" } else { "filter and sort" };
        let solver = SolverReport { name: name.to_owned(), configurations: self.problem().choices.len(), gap: None };
        Plan { solver, host: self.host, ..Plan::without_parts(goal, self.work) }
    }

    /// The best other single configurations within the limits, best first: one for each combination of GPU, provider
    /// and tier.
    fn alternatives(&self, used: &[usize], limit: &Limit) -> Vec<usize> {
        let key = |c: usize| {
            let configuration = &self.configurations[c];
            (&configuration.gpu, &configuration.offer.provider, configuration.offer.tier)
        };
        let [first, second, _] = aims(self.goal.objective);
        let mut rest: Vec<(usize, f64, f64)> = self
            .wholes()
            .filter(|(_, finish, cost)| {
                limit.deadline.is_none_or(|d| *finish <= d * (1.0 + SAME))
                    && limit.budget.is_none_or(|b| *cost <= b * (1.0 + SAME))
            })
            .map(|(c, finish, cost)| {
                let all = (finish, cost, self.kilograms(c));
                (c, first.of_plan(all), second.of_plan(all))
            })
            .collect();
        rest.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.2.total_cmp(&b.2)).then(a.0.cmp(&b.0)));
        let mut seen: HashSet<_> = used.iter().map(|c| key(*c)).collect();
        rest.into_iter().map(|(c, ..)| c).filter(|c| seen.insert(key(*c))).take(ALTERNATIVES).collect()
    }

    /// Reasons for all offers that are neither in the plan nor among the alternatives.
    fn rejections(&self, plan: &Plan, used: &[usize], alternatives: &[usize], limit: &Limit) -> Vec<Rejection> {
        let place = |c: usize| self.configurations[c].place;
        let shown: HashSet<usize> = used.iter().chain(alternatives).map(|c| place(*c)).collect();
        let mut all: Vec<(usize, Rejection)> =
            self.excluded.iter().map(|excluded| (excluded.place, excluded.rejection.clone())).collect();
        let wholes = self.singles.choices.iter().enumerate();
        let wholes = wholes.filter_map(|(c, choice)| choice.whole(self.work.get()).map(|(time, cost)| (c, time, cost)));
        let mut rest: Vec<(usize, f64, f64)> = wholes.filter(|(c, ..)| !shown.contains(&place(*c))).collect();
        // For each offer, keep the cheapest of its batch sizes.
        rest.sort_by(|a, b| place(a.0).cmp(&place(b.0)).then(a.2.total_cmp(&b.2)));
        rest.dedup_by_key(|(c, ..)| place(*c));
        for (c, finish, cost) in rest {
            let configuration = &self.configurations[c];
            let (kind, reason) = self.rejection(c, finish, cost, plan, limit);
            all.push((configuration.place, Rejection { offer: configuration.offer.id.clone(), kind, reason }));
        }
        let beside: HashSet<&OfferId> = plan.beside.iter().map(|beside| &beside.part.offer.id).collect();
        let is_told: HashSet<usize> = all.iter().map(|(place, _)| *place).chain(shown).collect();
        let others = self.others.iter().enumerate().filter(|(_, other)| !is_told.contains(&other.place));
        let others = others.filter(|(_, other)| !beside.contains(&other.offer.id));
        let mut others: Vec<(usize, (f64, f64))> =
            others.filter_map(|(c, _)| Some((c, self.beside.choices[c].whole(self.work.get())?))).collect();
        let place = |c: usize| self.others[c].place;
        others.sort_by(|a, b| place(a.0).cmp(&place(b.0)).then(a.1.1.total_cmp(&b.1.1)));
        others.dedup_by_key(|(c, _)| place(*c));
        all.extend(others.into_iter().map(|(c, (finish, cost))| {
            let (offer, reason) = (self.others[c].offer.id.clone(), self.not_accepted(c, finish, cost, limit));
            (place(c), Rejection { offer, kind: RejectionKind::NotAccepted, reason })
        }));
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, rejection)| rejection).collect()
    }

    fn rejection(&self, c: usize, finish: f64, cost: f64, plan: &Plan, limit: &Limit) -> (RejectionKind, String) {
        if let Some(deadline) = limit.deadline
            && finish > deadline * (1.0 + SAME)
        {
            let over = duration(finish - deadline);
            let takes = self.time_limit_words(finish);
            return (RejectionKind::Deadline, format!("takes {takes}, {over} more than the deadline"));
        }
        if let Some(budget) = limit.budget
            && cost > budget * (1.0 + SAME)
        {
            let over = dollars(cost - budget);
            return (RejectionKind::Budget, format!("costs {}, {over} more than the budget", dollars(cost)));
        }
        let kg = self.kilograms(c);
        if let Some(most) = self.singles.most_kg
            && kg > most * (1.0 + SAME)
        {
            let over = kilograms(kg - most);
            return (RejectionKind::Emissions, format!("emits {} kg CO2e, {over} kg more than allowed", kilograms(kg)));
        }
        let useful = self.work.get() / self.configurations[c].rate();
        let takes = self.configurations[c].ranges(useful, true).0.mid.get();
        let Some(total) = &plan.total else {
            return (RejectionKind::Dominated, format!("costs {} in {}", dollars(cost), duration(takes)));
        };
        let reason = match plan.goal.objective {
            Objective::Cost => {
                let more = dollars((cost - total.cost.mid.get()).max(0.0));
                format!("costs {} in {}, {more} more than the plan", dollars(cost), duration(takes))
            }
            Objective::Time => {
                let (takes, plans) = (self.time_limit_words(finish), self.finish(total));
                let more = duration((finish - plans).max(0.0));
                format!("takes {takes} for {}, {more} longer than the plan's {}", dollars(cost), duration(plans))
            }
            Objective::CostPlusTime(worth) => {
                let aim = Aim::Weighted(worth.get());
                let takes = self.time_limit_words(finish);
                let plans = aim.of_plan((self.finish(total), total.cost.mid.get(), 0.0));
                let more = dollars((aim.of_plan((finish, cost, 0.0)) - plans).max(0.0));
                format!(
                    "costs {}, takes {takes}: {more} more than the plan, including the cost of its time",
                    dollars(cost)
                )
            }
            Objective::Emissions => {
                let plans = total.footprint.emissions.map_or(0.0, |emitted| emitted.mid.get());
                let (emits, more) = (kilograms(kg), kilograms((kg - plans).max(0.0)));
                let (cost, takes) = (dollars(cost), duration(takes));
                format!("emits {emits} kg CO2e, {more} kg more than the plan, and costs {cost} in {takes}")
            }
        };
        (RejectionKind::Dominated, reason)
    }

    /// Hours of a total that have to meet the deadline.
    fn finish(&self, total: &Total) -> f64 {
        self.goal.confidence.end(&total.hours).get()
    }

    /// Warnings of these configurations, without duplicates.
    fn warnings(&self, configurations: impl Iterator<Item = usize>) -> Vec<Finding> {
        let lists = configurations.map(|c| self.configurations[c].warnings.as_slice());
        distinct(lists).into_iter().map(|(warning, _)| warning.clone()).collect()
    }

    /// Notes on a plan that do not depend on other offers.
    fn facts(&self, plan: &Plan) -> Vec<String> {
        let mut notes = Vec::new();
        if self.work.steps().is_some() {
            notes.push(
                "unknown batch size: work is counted in steps of one GPU, and a step of n GPUs counts n times"
                    .to_owned(),
            );
        }
        notes.extend(batch::note(plan, self.recorded_batch).filter(|_| self.training));
        for part in plan.parts.iter().filter(|part| !part.offer.trust.doubts.is_empty()) {
            notes.push(format!("the price of {} is in doubt: {}", part.offer.id, part.offer.trust.reasons()));
        }
        if let Some(switch) = &plan.switch {
            notes.push(format!(
                "switch to {} when the remaining time is just enough for the remaining work there (after {} if no work is done by then); this meets the deadline even if spot fails",
                switch.to,
                duration(switch.latest.get())
            ));
        }
        if let Some(data) = plan.goal.data.as_ref().filter(|data| data.provider.is_none() && !self.knows_storage) {
            notes.push(format!(
                "cost of storing {} GB not included: no provider has a storage price (set storage_usd_per_gb_month in a price file)",
                data.gb
            ));
        }
        if plan.parts.iter().any(|part| part.offer.tier == Tier::Spot) {
            notes.push(
                "spot losses are assumptions, shown for each part; the upper end allows for waits as long as in the worst measured zone"
                    .to_owned(),
            );
        }
        notes
    }

    fn notes(&self, plan: &Plan) -> Vec<String> {
        let mut notes = self.facts(plan);
        if let Some(total) = &plan.total
            && plan.goal.max_parts == 1
        {
            let limit = Self::limit(plan.goal.deadline, plan.goal.budget);
            notes.extend(
                self.switch_note(total.cost.mid.get(), &limit).filter(|_| plan.goal.objective == Objective::Cost),
            );
        }
        if plan.goal.objective == Objective::Cost
            && let Some(saved) = self.marginal_hour(plan)
            && saved.get() >= 0.005
        {
            notes.push(format!("the deadline is tight: one more hour saves {}", dollars(saved.get())));
        }
        if let Some((budget, total)) =
            plan.goal.budget.zip(plan.total).filter(|(budget, total)| total.cost.high.get() > budget.get())
        {
            notes.push(format!(
                "the expected cost meets the budget of {}; the high end is {}",
                dollars(budget.get()),
                dollars(total.cost.high.get())
            ));
        }
        notes.extend(self.runner_up(plan));
        notes.extend(self.break_even(plan));
        if let Some(total) = plan.total.filter(|total| total.hours.mid.get() > LONG) {
            notes.push(format!(
                "the plan takes {}: prices and offers rarely last that long; shorten it with --deadline or --min-gpus",
                duration(total.hours.mid.get())
            ));
        }
        notes
    }

    /// Break-even use of a contract's term against the best offer without one, for the contract in the plan or the best
    /// one among the alternatives.
    fn break_even(&self, plan: &Plan) -> Option<String> {
        let mut parts = plan.parts.iter().chain(&plan.alternatives);
        let (part, term) = parts.find_map(|part| match part.billing {
            Billing::Term(hours) => Some((part, hours)),
            Billing::Exact | Billing::Hour => None,
        })?;
        let contract = self.configurations.iter().position(|c| c.offer.id == part.offer.id)?;
        let contract = &self.singles.choices[contract];
        let free: Vec<usize> = (0..self.configurations.len()).filter(|c| !self.configurations[*c].is_term()).collect();
        let limit = Self::limit(plan.goal.deadline, None);
        let found = best_single(&self.singles.only(&free), Objective::Cost, &limit)?;
        let other = free[found.hours.first()?.0];
        let choice = &self.singles.choices[other];
        let blocks = contract.blocks?;
        // Compare a term and the storage for its hours with the hours, set-up and storage of the other offer.
        let dearer = choice.usd / choice.rate - blocks.apart / contract.rate;
        let work = (blocks.usd + blocks.apart_once - choice.usd_once).max(0.0) / dearer;
        let used = work / contract.rate + contract.hours_once;
        let against = self.configurations[other].label();
        Some(if dearer > 0.0 && used <= f64::from(term) {
            format!("a term of {} pays off above {used:.0} h of use, compared with {against}", part.offer.id)
        } else {
            format!("a term of {} never pays off: {against} does the work of its full term for less", part.offer.id)
        })
    }

    /// Price or speed at which the next best offer would be as cheap as the plan.
    fn runner_up(&self, plan: &Plan) -> Option<String> {
        let (total, next) = (plan.total?, plan.alternatives.first()?);
        let (cost, next_cost) = (total.cost.mid.get(), next.cost.mid.get());
        let price = next.price().get();
        if plan.goal.objective != Objective::Cost || next_cost <= cost || cost < NEAR * next_cost || price <= 0.0 {
            return None;
        }
        let setup = if next.offer.tier == Tier::Owned { 0.0 } else { self.goal.assumptions.setup.get() };
        let shorter = 1.0 - (cost / price - setup) / (next_cost / price - setup);
        let less = format!("at ${:.3}/h (now ${price:.3})", price * cost / next_cost);
        // Omit the speed if set-up alone makes the machine too expensive, or if time is billed in blocks, where less
        // time saves a whole block or nothing.
        let faster = (shorter < 1.0 && next.billing.block().is_none())
            .then(|| format!(" or with a {:.0} % shorter step", shorter * 100.0));
        Some(format!("the next best, {}, would match {less}{}", next.offer.id, faster.unwrap_or_default()))
    }
}
