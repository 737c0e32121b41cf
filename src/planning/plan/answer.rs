//! Builds the plan of a prepared goal: solution, check, alternatives, and the reason of every rejected offer.

use std::collections::HashSet;

use super::batch;
use super::beside::LONG;
use super::check::{check, check_sources};
use super::explain;
use super::layout_options;
use super::prepared::Prepared;
use super::problem::{Aim, Limit, RELATIVE_TOLERANCE, over};
use super::relax;
use super::search::{Solution, aims, best_single};
use super::solve::Proof;
use super::switch::Switched;
use super::{
    Goal, Objective, Part, Plan, PlanError, PlanNote, PlanStatus, Reason, Rejection, SolverReport, Total, Use,
};
use crate::pricing::{Billing, OfferId, PriceBook, Tier};
use habitat_base::units::{Hours, KilogramsCo2e, Usd, UsdPerHour};
use habitat_prediction::finding::distinct;
use habitat_prediction::{Finding, Predictions};

/// Smallest ratio of the plan's cost to an offer's at which the offer is close to the best (a choice).
const NEAR: f64 = 0.5;
/// Number of alternatives to show (a choice).
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
        self.solved(deadline, budget, None)
    }

    /// Same as [`Self::solve`], but checks the plan against its sources, and tries larger batches on own machines. Without
    /// a plan, the reasons also name limits on offers that would have to be relaxed.
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
        let mut plan = self.solved(deadline, budget, Some((predictions, prices)))?;
        check_sources(&plan, predictions, prices)?;
        let of =
            |part: &Part| Some((predictions.predictions.iter().find(|one| one.gpu.slug == part.gpu)?, part.clone()));
        if let Some((prediction, part)) = plan.parts.first().and_then(of) {
            plan.layouts = layout_options::beside(prediction, predictions, &self.goal, &part);
        }
        Ok(plan)
    }

    fn solved(
        &self,
        deadline: Option<Hours>,
        budget: Option<Usd>,
        sources: Option<(&Predictions, &PriceBook)>,
    ) -> Result<Plan, PlanError> {
        let mut goal = self.goal.clone();
        (goal.deadline, goal.budget) = (deadline, budget);
        let mut limit = Self::limit(deadline, budget);
        let Some((mut plan, mut used)) = self.checked(goal.clone(), &limit)? else {
            let mut plan = self.empty(goal);
            plan.beside = self.beside(&plan, &limit, self.closest_firm(&limit).as_ref());
            let lifted = sources.map(|sources| relax::reasons(self, sources, &limit));
            plan.reasons = explain::reasons(self, &limit, lifted.unwrap_or_default());
            plan.larger_batch = sources.and_then(|of| self.larger_batch(self.larger(of), &[], &limit));
            plan.rejected = self.rejections(&plan, &[], &[], &limit);
            plan.warnings = self.warnings_of_all();
            return Ok(plan);
        };
        if let Some((longer, shorter)) = self.shortened(&plan, &used)
            && let Some((short, of_short)) = self.checked(goal, &shorter)?
        {
            (plan, used, limit) = (Plan { longer: Some(longer), ..short }, of_short, shorter);
        }
        let alternatives = self.alternatives(&used, &limit);
        let other = sources.and_then(|of| self.other_tier(of, &limit));
        let firm = self.firm(&plan, &used, &limit).or_else(|| other.as_ref().map(|(other, _)| other.clone()));
        let firm = firm.or_else(|| self.closest_firm(&limit));
        plan.beside = self.beside(&plan, &limit, firm.as_ref());
        plan.fallback = self.fallback(&used, firm, &plan.goal);
        plan.bargain = self.bargain(&plan, &limit);
        plan.own = self.own(&limit);
        plan.larger_batch = sources.and_then(|of| self.larger_batch(self.larger(of), &plan.own, &limit));
        plan.rejected = self.rejections(&plan, &used, &alternatives, &limit);
        plan.alternatives = alternatives.iter().map(|c| self.whole(*c)).collect();
        plan.warnings = self.warnings(used.iter().chain(&alternatives).copied());
        plan.notes.extend(self.notes(&plan));
        plan.notes.extend(other.and_then(|other| self.tier_note(&plan, other)));
        Ok(plan)
    }

    /// Dollars saved by one more hour of deadline, from a second solve: a dual would be local and is often 0. Zero if
    /// it saves nothing; `None` without a plan or a deadline.
    pub fn marginal_hour(&self, plan: &Plan) -> Option<Usd> {
        let (deadline, total) = (plan.goal.deadline?, plan.total?);
        let later = Self::limit(Some(deadline + Hours::known(1.0)), plan.goal.budget);
        let (_, found) = self.solution(Objective::Cost, &later)?;
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
        let found = Solution { hours, proof: Proof::Optimal, gap: None, solver: "filter and sort", notes: Vec::new() };
        let mut plan = self.build(self.goal.clone(), &found, &found.hours);
        check(&plan)?;
        plan.warnings = self.warnings([configuration].into_iter());
        plan.notes = self.facts(&plan);
        Ok(plan)
    }

    /// Finds and checks the best plan. If a plan of several parts fails the check, falls back to the best single offer.
    pub(super) fn checked(&self, goal: Goal, limit: &Limit) -> Result<Option<(Plan, Vec<usize>)>, PlanError> {
        let found = self.solution(goal.objective, limit);
        let cost = |found: &Solution| self.problem().value(Aim::Cost, &found.hours);
        if let Some(switched) = self.switched(goal.objective, limit).filter(|_| goal.max_parts > 1)
            && found.as_ref().is_none_or(|(found, _)| switched.cost < cost(found) * (1.0 - RELATIVE_TOLERANCE))
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
        single.notes.push(PlanNote::PartsFailedCheck { why: error.to_string() });
        let hours = single.hours.clone();
        let plan = self.build(plan.goal, &single, &hours);
        check(&plan)?;
        Ok(Some((plan, hours.iter().map(|(c, _)| *c).collect())))
    }

    fn build(&self, goal: Goal, found: &Solution, hours: &[(usize, f64)]) -> Plan {
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
            plan.notes.push(PlanNote::MorePartsNotTried);
        }
        plan
    }

    /// A plan without parts.
    fn empty(&self, goal: Goal) -> Plan {
        let name = if goal.max_parts > 1 { "microlp" } else { "filter and sort" };
        let solver = SolverReport {
            name: name.to_owned(),
            offers: self.offers(),
            configurations: self.problem().choices.len(),
            gap: None,
        };
        Plan { solver, host: self.host, ..Plan::without_parts(goal, self.work) }
    }

    /// The best other single configurations within the limits, best first: one for each combination of GPU, provider
    /// and tier, and for each number of own GPUs.
    fn alternatives(&self, used: &[usize], limit: &Limit) -> Vec<usize> {
        let key = |c: usize| {
            let configuration = &self.configurations[c];
            let offer = &configuration.offer;
            let own = (offer.tier == Tier::Owned).then_some((offer.gpu_count, configuration.machines));
            (&configuration.gpu, &offer.provider, offer.tier, own)
        };
        let [first, second, _] = aims(self.goal.objective);
        let mut rest: Vec<(usize, f64, f64)> = self
            .wholes()
            .filter(|(_, finish, cost)| limit.is_kept(*finish, *cost))
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
            let reason = self.rejection(c, finish, cost, plan, limit);
            all.push((configuration.place, Rejection { offer: configuration.offer.id.clone(), reason }));
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
            (place(c), Rejection { offer, reason })
        }));
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, rejection)| rejection).collect()
    }

    fn rejection(&self, c: usize, finish: f64, cost: f64, plan: &Plan, limit: &Limit) -> Reason {
        let more = |value: f64, plans: f64| (value - plans).max(0.0);
        let (finish_hours, cost_usd, confidence) = (Hours::known(finish), Usd::known(cost), self.goal.confidence);
        if over(finish, limit.deadline).is_some() && plan.longer.is_some() {
            return Reason::TooLong { hours: finish_hours, confidence, cost_usd };
        }
        if let Some(late) = over(finish, limit.deadline) {
            return Reason::TooSlow { hours: finish_hours, confidence, late_hours: Hours::known(late) };
        }
        if let Some(over) = over(cost, limit.budget) {
            return Reason::TooDear { cost_usd, over_usd: Usd::known(over) };
        }
        let kg = self.kilograms(c);
        let co2_kg = KilogramsCo2e::known(kg);
        if let Some(over) = over(kg, self.singles.most_kg) {
            return Reason::TooMuchCo2 { co2_kg, over_kg: KilogramsCo2e::known(over) };
        }
        let hours = self.ranges(&self.configurations[c], 1.0).0.mid;
        let Some(total) = &plan.total else { return Reason::Possible { cost_usd, hours } };
        let plans = (self.finish(total), total.cost.mid.get());
        match plan.goal.objective {
            Objective::Cost => Reason::CostsMore { cost_usd, hours, more_usd: Usd::known(more(cost, plans.1)) },
            Objective::Time => Reason::TakesLonger {
                hours: finish_hours,
                confidence,
                cost_usd,
                more_hours: Hours::known(more(finish, plans.0)),
                plan_hours: Hours::known(plans.0),
            },
            Objective::CostPlusTime(worth) => {
                let aim = Aim::Weighted(worth.get());
                let more = more(aim.of_plan((finish, cost, 0.0)), aim.of_plan((plans.0, plans.1, 0.0)));
                let more_usd = Usd::known(more);
                Reason::CostsMoreWithTime { cost_usd, hours: finish_hours, confidence, more_usd }
            }
            Objective::Emissions => {
                let plans = total.footprint.emissions.map_or(0.0, |emitted| emitted.mid.get());
                Reason::EmitsMore { co2_kg, more_kg: KilogramsCo2e::known(more(kg, plans)), cost_usd, hours }
            }
        }
    }

    /// Hours of a total that have to meet the deadline.
    pub(super) fn finish(&self, total: &Total) -> f64 {
        self.goal.confidence.end(&total.hours).get()
    }

    /// Warnings of these configurations, without duplicates.
    fn warnings(&self, configurations: impl Iterator<Item = usize>) -> Vec<Finding> {
        let lists = configurations.map(|c| self.configurations[c].warnings.as_slice());
        distinct(lists).into_iter().map(|(warning, _)| warning).collect()
    }

    /// Warnings that all configurations have. Without a plan, a warning about some of them would name no GPU.
    fn warnings_of_all(&self) -> Vec<Finding> {
        let lists = self.configurations.iter().map(|c| c.warnings.as_slice());
        let of_all = distinct(lists).into_iter().filter(|(_, count)| *count == self.configurations.len());
        of_all.map(|(warning, _)| warning).collect()
    }

    /// Notes on a plan that do not depend on other offers.
    fn facts(&self, plan: &Plan) -> Vec<PlanNote> {
        let mut notes = Vec::new();
        if self.work.steps().is_some() {
            notes.push(PlanNote::CountedInSteps);
        }
        notes.extend(batch::note(plan, self.recorded_batch).filter(|_| self.training));
        let is_of_one = self.keeps_batch && self.recorded_batch == Some(1) && !self.is_recorded;
        notes.extend(is_of_one.then_some(PlanNote::BatchOfOne { sequence_length: self.sequence_length }));
        for offer in plan.parts.iter().map(|part| &part.offer).filter(|offer| !offer.trust.doubts.is_empty()) {
            notes.push(PlanNote::PriceInDoubt { offer: offer.id.clone(), doubts: offer.trust.doubts.clone() });
        }
        if let Some(switch) = &plan.switch {
            notes.push(PlanNote::Switch { to: switch.to.clone(), latest_hours: switch.latest });
        }
        if let Some(data) = plan.goal.data.as_ref().filter(|data| data.provider.is_none() && !self.knows_storage) {
            notes.push(PlanNote::StorageNotIncluded { gb: data.gb });
        }
        let copies = |part: &&Part| part.data_cost.get() > 0.0 || part.hours_by.of(Use::Data).mid.get() > 0.0;
        let place = |part: &Part| (part.offer.provider.clone(), part.offer.region.clone());
        let mut places: Vec<_> = plan.parts.iter().filter(copies).map(place).collect();
        places.sort_unstable();
        if places.windows(2).any(|two| two[0] == two[1]) {
            notes.push(PlanNote::DataCopiedTwice);
        }
        if plan.parts.iter().any(|part| part.offer.tier == Tier::Spot) {
            notes.push(PlanNote::SpotAssumed);
        }
        notes
    }

    fn notes(&self, plan: &Plan) -> Vec<PlanNote> {
        let mut notes = self.facts(plan);
        if let Some(total) = &plan.total
            && plan.goal.max_parts == 1
            && plan.longer.is_none()
        {
            let limit = Self::limit(plan.goal.deadline, plan.goal.budget);
            notes.extend(
                self.switch_note(total.cost.mid.get(), &limit).filter(|_| plan.goal.objective == Objective::Cost),
            );
        }
        if plan.goal.objective == Objective::Cost
            && let Some(saved_usd) = self.marginal_hour(plan).filter(|saved| saved.get() >= 0.005)
        {
            notes.push(PlanNote::TightDeadline { saved_usd });
        }
        if let Some((budget_usd, high_usd)) = plan.goal.budget.zip(plan.total.map(|total| total.cost.high))
            && high_usd.get() > budget_usd.get()
        {
            notes.push(PlanNote::BudgetAtHighEnd { budget_usd, high_usd });
        }
        notes.extend(self.runner_up(plan));
        notes.extend(self.break_even(plan));
        let hours = plan.total.map(|total| total.hours.mid).filter(|hours| hours.get() > LONG);
        notes.extend(hours.map(|hours| PlanNote::LongPlan { hours }));
        notes
    }

    /// Break-even use of a contract's term against the best offer without one, for the contract in the plan or the best
    /// one among the alternatives.
    fn break_even(&self, plan: &Plan) -> Option<PlanNote> {
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
        let (offer, against) = (part.offer.id.clone(), self.configurations[other].label());
        Some(if dearer > 0.0 && used <= f64::from(term) {
            PlanNote::TermPaysOff { offer, hours: Hours::known(used), against }
        } else {
            PlanNote::TermNeverPaysOff { offer, against }
        })
    }

    /// Price or speed at which the next best offer would be as cheap as the plan.
    fn runner_up(&self, plan: &Plan) -> Option<PlanNote> {
        // The price of an own machine is its electricity, which no one bargains about.
        let next = plan.alternatives.first().filter(|next| next.offer.tier != Tier::Owned)?;
        let total = plan.total?;
        let (cost, next_cost) = (total.cost.mid.get(), next.cost.mid.get());
        let price = next.price().get();
        if plan.goal.objective != Objective::Cost || next_cost <= cost || cost < NEAR * next_cost || price <= 0.0 {
            return None;
        }
        let setup = self.goal.assumptions.setup.get();
        let shorter = 1.0 - (cost / price - setup) / (next_cost / price - setup);
        // Omit the speed if set-up alone makes the machine too expensive, or if time is billed in blocks, where less
        // time saves a whole block or nothing.
        Some(PlanNote::NextBest {
            offer: next.offer.id.clone(),
            usd_per_hour: UsdPerHour::known(price * cost / next_cost),
            now_usd_per_hour: next.price(),
            shorter: (shorter < 1.0 && next.billing.block().is_none()).then_some(shorter),
        })
    }
}
