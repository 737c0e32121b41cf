//! From a goal to a plan: prepare once, solve for each deadline and budget.

use std::collections::HashSet;

use super::check::{check, check_sources};
use super::configuration::{Configuration, Excluded, amount, check_assumptions, configurations};
use super::explain::{self, dollars, hours};
use super::problem::{Aim, Choice, Limit, Problem};
use super::search::{Found, SAME, aims, best, best_single};
use super::solve::Proof;
use super::spot::Ladder;
use super::{
    Amount, Confidence, Goal, Objective, Part, Plan, PlanError, PlanStatus, Rejection, RejectionKind, SolverReport,
    Total,
};
use crate::predict::warning::distinct;
use crate::predict::{Predictions, Warning};
use crate::pricing::{PriceBook, Tier};
use crate::units::{Hours, Usd};

/// Alternatives shown next to a plan.
const ALTERNATIVES: usize = 8;

/// The best plan for a goal.
///
/// # Errors
/// [`PlanError`] where the goal lacks something. A goal that cannot be met is no error but
/// a plan of status [`PlanStatus::Infeasible`] with the reasons.
pub fn plan(predictions: &Predictions, prices: &PriceBook, goal: &Goal) -> Result<Plan, PlanError> {
    let plan = Prepared::new(predictions, prices, goal)?.solve(goal.deadline, goal.budget)?;
    check_sources(&plan, predictions, prices)?;
    Ok(plan)
}

/// All of a goal that does not depend on deadline and budget: configurations with their
/// coefficients, and the offers left out with the reasons.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub(super) goal: Goal,
    pub(super) work: Amount,
    pub(super) configurations: Vec<Configuration>,
    pub(super) excluded: Vec<Excluded>,
    /// Every configuration with all the work, in their order; one part.
    pub(super) singles: Problem,
    /// What plans of several parts choose from: dominated choices left out, spot offers
    /// once a number of losses allowed for; its groups are the configurations.
    pub(super) mixed: Problem,
}

impl Prepared {
    /// Predictions × offers × goal → configurations; the goal's deadline and budget are
    /// not looked at.
    ///
    /// # Errors
    /// [`PlanError`] for a missing batch size or sequence length, no work, no parts, or an
    /// assumption out of its range.
    pub fn new(predictions: &Predictions, prices: &PriceBook, goal: &Goal) -> Result<Self, PlanError> {
        if goal.max_parts == 0 {
            return Err(PlanError::NoParts);
        }
        check_assumptions(&goal.assumptions)?;
        let work = amount(predictions, goal.work)?;
        let (configurations, excluded) = configurations(predictions, prices, goal);
        let whole = configurations.iter().map(|c| c.choice(work.get(), goal.confidence)).collect();
        let singles = Problem::new(work.get(), whole, 1);
        let mut mixed = Problem::new(work.get(), Vec::new(), goal.max_parts);
        if goal.max_parts > 1 {
            let most = configurations.iter().map(|c| c.most_losses(work.get(), goal.confidence)).fold(0.0, f64::max);
            let ladder = Ladder::new(goal.assumptions.spot_confidence, most);
            for (index, configuration) in configurations.iter().enumerate() {
                mixed.choices.extend(configuration.choices(work.get(), goal.confidence, &ladder));
                mixed.groups.resize(mixed.choices.len(), index);
            }
            mixed = mixed.only(&mixed.undominated());
        }
        Ok(Self { goal: goal.clone(), work, configurations, excluded, singles, mixed })
    }

    /// The best plan within this deadline and budget.
    ///
    /// # Errors
    /// [`PlanError::Check`] if the plan found contradicts its own recomputation.
    pub fn solve(&self, deadline: Option<Hours>, budget: Option<Usd>) -> Result<Plan, PlanError> {
        let mut goal = self.goal.clone();
        (goal.deadline, goal.budget) = (deadline, budget);
        let limit = Self::limit(deadline, budget);
        let Some((mut plan, used)) = self.checked(goal.clone(), &limit)? else {
            let mut plan = self.empty(goal);
            plan.reasons = explain::reasons(self, deadline, budget);
            plan.rejected = self.rejections(&plan, &[], &[], &limit);
            plan.warnings = self.warnings(0..self.configurations.len());
            return Ok(plan);
        };
        let alternatives = self.alternatives(&used, &limit);
        plan.rejected = self.rejections(&plan, &used, &alternatives, &limit);
        plan.alternatives = alternatives.iter().map(|c| self.whole(*c)).collect();
        plan.warnings = self.warnings(used.iter().chain(&alternatives).copied());
        plan.notes.extend(self.notes(&plan));
        Ok(plan)
    }

    /// Choices of the model after dominated ones are left out.
    pub fn choices(&self) -> &[Choice] {
        &self.problem().choices
    }

    /// The work.
    pub fn work(&self) -> Amount {
        self.work
    }

    /// What one more hour of deadline saves, from a second solve (planner note B6: not a
    /// dual, which is local and often 0); zero where it saves nothing, `None` where the
    /// plan has no deadline or there is none.
    pub fn marginal_hour(&self, plan: &Plan) -> Option<Usd> {
        let (deadline, total) = (plan.goal.deadline?, plan.total?);
        let later = Self::limit(Some(deadline + Hours::known(1.0)), plan.goal.budget);
        let (_, found) = self.found(Objective::Cost, &later)?;
        let cost: Usd = found.iter().map(|(c, useful)| self.configurations[*c].ranges(*useful).1.mid).sum();
        Some(total.cost.mid.checked_sub(cost).unwrap_or_default())
    }

    pub(super) fn limit(deadline: Option<Hours>, budget: Option<Usd>) -> Limit {
        Limit { deadline: deadline.map(Hours::get), budget: budget.map(Usd::get), ceilings: Vec::new() }
    }

    /// The problem that the goal's number of parts is solved with.
    pub(super) fn problem(&self) -> &Problem {
        if self.goal.max_parts > 1 { &self.mixed } else { &self.singles }
    }

    /// Useful hours by configuration of the best plan.
    pub(super) fn found(&self, objective: Objective, limit: &Limit) -> Option<(Found, Vec<(usize, f64)>)> {
        let found = best(self.problem(), objective, limit)?;
        let hours = self.by_configuration(&found.hours);
        Some((found, hours))
    }

    /// Hours of choices as hours of configurations, in the order in which to run them.
    pub(super) fn by_configuration(&self, hours: &[(usize, f64)]) -> Vec<(usize, f64)> {
        let groups = &self.problem().groups;
        let mut hours: Vec<(usize, f64)> = hours.iter().map(|(choice, useful)| (groups[*choice], *useful)).collect();
        // What may be lost goes first, then what is cheapest per sample.
        let per_sample = |c: usize| self.singles.choices[c].usd / self.singles.choices[c].rate;
        hours.sort_by(|(a, _), (b, _)| {
            let spot = |c: usize| self.configurations[c].tier != Tier::Spot;
            spot(*a).cmp(&spot(*b)).then(per_sample(*a).total_cmp(&per_sample(*b))).then(a.cmp(b))
        });
        hours
    }

    /// The best plan, checked; a plan of several parts that fails the check gives way to
    /// the best single offer.
    fn checked(&self, goal: Goal, limit: &Limit) -> Result<Option<(Plan, Vec<usize>)>, PlanError> {
        let Some((found, hours)) = self.found(goal.objective, limit) else { return Ok(None) };
        let plan = self.build(goal, &found, &hours);
        let used = hours.iter().map(|(c, _)| *c).collect();
        let Err(error) = check(&plan) else { return Ok(Some((plan, used))) };
        let single = best_single(&self.singles, plan.goal.objective, limit).filter(|_| plan.goal.max_parts > 1);
        let Some(mut single) = single else { return Err(error.into()) };
        single.proof = Proof::Time;
        single
            .notes
            .push(format!("fell back to the best single offer: the plan of several parts was refused: {error}"));
        let hours = single.hours.clone();
        let plan = self.build(plan.goal, &single, &hours);
        check(&plan)?;
        Ok(Some((plan, hours.iter().map(|(c, _)| *c).collect())))
    }

    fn build(&self, goal: Goal, found: &Found, hours: &[(usize, f64)]) -> Plan {
        let parts: Vec<Part> = hours.iter().map(|(c, useful)| self.configurations[*c].part(*useful)).collect();
        let mut plan = self.empty(goal);
        plan.status = match found.proof {
            Proof::Optimal => PlanStatus::Optimal,
            Proof::Gap => PlanStatus::GapLimit,
            Proof::Time => PlanStatus::TimeLimit,
        };
        plan.total = Some(total(&parts));
        plan.parts = parts;
        found.solver.clone_into(&mut plan.solver.name);
        plan.solver.gap = found.gap;
        plan.notes.clone_from(&found.notes);
        plan
    }

    /// A plan without parts.
    fn empty(&self, goal: Goal) -> Plan {
        let name = if goal.max_parts > 1 { "microlp" } else { "filter and sort" };
        Plan {
            status: PlanStatus::Infeasible,
            parts: Vec::new(),
            total: None,
            alternatives: Vec::new(),
            rejected: Vec::new(),
            reasons: Vec::new(),
            work: self.work,
            goal,
            solver: SolverReport { name: name.to_owned(), configurations: self.problem().choices.len(), gap: None },
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A configuration with all the work.
    pub(super) fn whole(&self, configuration: usize) -> Part {
        let configuration = &self.configurations[configuration];
        configuration.part(self.work.get() / configuration.rate())
    }

    /// Finish on the deadline's clock and cost of every configuration with all the work.
    fn wholes(&self) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
        let work = self.work.get();
        self.singles.choices.iter().enumerate().filter_map(move |(c, choice)| {
            let (finish, cost) = choice.whole(work)?;
            Some((c, finish, cost))
        })
    }

    /// The best single configurations within the limits, best first: the best of each
    /// combination of GPU, provider and tier, those of the plan left out.
    fn alternatives(&self, used: &[usize], limit: &Limit) -> Vec<usize> {
        let key = |c: usize| {
            let configuration = &self.configurations[c];
            (&configuration.gpu, &configuration.provider, configuration.tier)
        };
        let [first, second, _] = aims(self.goal.objective);
        let mut rest: Vec<(usize, f64, f64)> = self
            .wholes()
            .filter(|(_, finish, cost)| {
                limit.deadline.is_none_or(|d| *finish <= d * (1.0 + SAME))
                    && limit.budget.is_none_or(|b| *cost <= b * (1.0 + SAME))
            })
            .map(|(c, finish, cost)| (c, measure(first, finish, cost), measure(second, finish, cost)))
            .collect();
        rest.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.2.total_cmp(&b.2)).then(a.0.cmp(&b.0)));
        let mut seen: HashSet<_> = used.iter().map(|c| key(*c)).collect();
        rest.into_iter().map(|(c, ..)| c).filter(|c| seen.insert(key(*c))).take(ALTERNATIVES).collect()
    }

    /// The reason of every offer that is neither in the plan nor among the alternatives.
    fn rejections(&self, plan: &Plan, used: &[usize], alternatives: &[usize], limit: &Limit) -> Vec<Rejection> {
        let mut shown = vec![false; self.configurations.len()];
        for c in used.iter().chain(alternatives) {
            shown[*c] = true;
        }
        let mut all: Vec<(usize, Rejection)> =
            self.excluded.iter().map(|excluded| (excluded.place, excluded.rejection.clone())).collect();
        for (c, finish, cost) in self.wholes().filter(|(c, ..)| !shown[*c]) {
            let configuration = &self.configurations[c];
            let (kind, reason) = self.rejection(c, finish, cost, plan, limit);
            all.push((configuration.place, Rejection { offer: configuration.offer.clone(), kind, reason }));
        }
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, rejection)| rejection).collect()
    }

    fn rejection(&self, c: usize, finish: f64, cost: f64, plan: &Plan, limit: &Limit) -> (RejectionKind, String) {
        if let Some(deadline) = limit.deadline
            && finish > deadline * (1.0 + SAME)
        {
            let over = hours(finish - deadline);
            let basis = self.basis();
            return (
                RejectionKind::Deadline,
                format!("takes {}{basis} alone, {over} more than the deadline", hours(finish)),
            );
        }
        if let Some(budget) = limit.budget
            && cost > budget * (1.0 + SAME)
        {
            let over = dollars(cost - budget);
            return (RejectionKind::Budget, format!("alone costs {}, {over} more than the budget", dollars(cost)));
        }
        let useful = self.work.get() / self.configurations[c].rate();
        let takes = self.configurations[c].ranges(useful).0.mid.get();
        let Some(total) = &plan.total else {
            return (RejectionKind::Dominated, format!("costs {} in {}", dollars(cost), hours(takes)));
        };
        let reason = match plan.goal.objective {
            Objective::Cost => {
                let more = dollars((cost - total.cost.mid.get()).max(0.0));
                format!("costs {} in {}, {more} more than the plan", dollars(cost), hours(takes))
            }
            Objective::Time => {
                let more = hours((finish - self.finish(total)).max(0.0));
                format!("takes {} for {}, {more} longer than the plan", hours(takes), dollars(cost))
            }
            Objective::CostPlusTime(worth) => {
                let aim = Aim::Weighted(worth.get());
                let plans = measure(aim, self.finish(total), total.cost.mid.get());
                let more = dollars((measure(aim, finish, cost) - plans).max(0.0));
                format!("costs {} in {}, {more} more than the plan with its time", dollars(cost), hours(takes))
            }
        };
        (RejectionKind::Dominated, reason)
    }

    /// A total's hours on the deadline's clock.
    fn finish(&self, total: &Total) -> f64 {
        self.goal.confidence.end(&total.hours).get()
    }

    /// Which hours count against the deadline, in words.
    pub(super) fn basis(&self) -> &'static str {
        match self.goal.confidence {
            Confidence::Expected => "",
            Confidence::High => " (upper end of its range)",
        }
    }

    /// What is to be shown with these configurations.
    fn warnings(&self, configurations: impl Iterator<Item = usize>) -> Vec<Warning> {
        let lists = configurations.map(|c| self.configurations[c].warnings.as_slice());
        distinct(lists).into_iter().map(|(warning, _)| warning.clone()).collect()
    }

    fn notes(&self, plan: &Plan) -> Vec<String> {
        let mut notes = Vec::new();
        if self.work.steps().is_some() {
            notes.push(
                "nothing says how many samples a step has: work is counted in steps of one GPU, and a step of n GPUs as n of them"
                    .to_owned(),
            );
        }
        for part in plan.parts.iter().filter(|part| !part.trust.doubts.is_empty()) {
            notes.push(format!("the price of {} is in doubt: {}", part.offer, part.trust.reasons()));
        }
        if plan.parts.iter().any(|part| part.tier == Tier::Spot) {
            let assumed = &self.goal.assumptions;
            notes.push(format!(
                "spot losses are assumed: {} per hour and machine, Poisson; real runs are far less even, so the upper end is optimistic",
                assumed.spot_losses_per_hour
            ));
        }
        if plan.goal.objective == Objective::Cost
            && let Some(saved) = self.marginal_hour(plan)
            && saved.get() >= 0.005
        {
            notes.push(format!("the deadline binds: one more hour saves {}", dollars(saved.get())));
        }
        notes
    }
}

/// An aim's value of a plan with this finish and cost.
fn measure(aim: Aim, finish: f64, cost: f64) -> f64 {
    match aim {
        Aim::Finish => finish,
        Aim::Weighted(worth) => cost + worth * finish,
        _ => cost,
    }
}

pub(super) fn total(parts: &[Part]) -> Total {
    Total { hours: parts.iter().map(|part| part.hours).sum(), cost: parts.iter().map(|part| part.cost).sum() }
}
