//! Builds the assignment of prepared jobs: the ways of each, and the shared limits.

use super::super::assignment::{Assigned, Assignment, Bound, Way};
use super::super::configuration::Configuration;
use super::super::limits;
use super::super::problem::SAME;
use super::super::{Prepared, SharedLimit};
use super::{Answer, Chosen, Shared, Supply};
use crate::pricing::OfferId;
use habitat_base::units::{Hours, Usd};

/// The assignment, with the meaning of its indices.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) assignment: Assignment,
    /// Configuration of each way.
    pub(super) configurations: Vec<Vec<usize>>,
    /// Names of the existing machines.
    pub(super) machines: Vec<String>,
    /// Shared limits, by the index in the rows.
    pub(super) limits: Vec<SharedLimit>,
    /// If jobs may wait: ways of each job without a start, with uses by limit instead of by row.
    pub(super) bases: Vec<Vec<Way>>,
    /// Configuration of each of these ways.
    pub(super) of_bases: Vec<Vec<usize>>,
    /// For each way, the index in `bases` and the start in hours. Empty if all jobs start at the same time, or if
    /// there are too many possible starts.
    pub(super) starts: Vec<Vec<(usize, f64)>>,
}

impl SharedLimit {
    /// Maximum for all jobs together.
    pub(super) fn most(&self) -> f64 {
        match self {
            Self::BudgetUsd(most) => most.get(),
            Self::UsdPerHour(most) => most.get(),
            Self::Quota(quota) => f64::from(quota.gpus),
            Self::OneMachine(_) => 1.0,
            Self::DeadlineHours(deadline) => deadline.get(),
        }
    }
}

impl Model {
    pub(super) fn new(prepared: &[Prepared], supply: Supply<'_>, shared: &Shared) -> Self {
        let mut model = Self {
            assignment: Assignment::default(),
            configurations: Vec::new(),
            machines: Vec::new(),
            limits: Vec::new(),
            bases: Vec::new(),
            of_bases: Vec::new(),
            starts: Vec::new(),
        };
        match supply {
            Supply::Rent(_) => model.rent(prepared, shared),
            Supply::Machines(machines) => {
                for (kind, machine) in machines.iter().enumerate() {
                    for number in 1..=machine.count {
                        let several = machine.count > 1;
                        let name = &machine.name;
                        model.machines.push(if several { format!("{name} {number}") } else { name.clone() });
                        model.assignment.machines.push(kind);
                    }
                }
                let kinds: Vec<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
                model.run(prepared, &kinds);
            }
        }
        model
    }

    /// Dollars if each job uses its cheapest way.
    pub(super) fn cheapest_each(&self) -> f64 {
        let cheapest = |ways: &Vec<Way>| ways.iter().map(|way| way.cost).fold(f64::INFINITY, f64::min);
        self.assignment.jobs.iter().map(cheapest).sum()
    }

    /// Converts the solver's answer for jobs that start at the same time or follow one another on machines.
    pub(super) fn at_once(&self, found: Assigned) -> Answer {
        let objective = self.assignment.objective(&found.ways);
        let chosen = |(job, way): (usize, &usize)| Chosen {
            configuration: self.configurations[job][*way],
            start: 0.0,
            machine: self.assignment.jobs[job][*way].machine,
        };
        let jobs = found.ways.iter().enumerate().map(chosen).collect();
        let Assigned { proof, bound, solver, notes, .. } = found;
        Answer { jobs, objective, proof, bound, solver, notes }
    }

    fn rent(&mut self, prepared: &[Prepared], shared: &Shared) {
        self.limits.extend(shared.budget.map(SharedLimit::BudgetUsd));
        self.limits.extend(shared.max_price.map(SharedLimit::UsdPerHour));
        self.limits.extend(shared.quotas.iter().cloned().map(Box::new).map(SharedLimit::Quota));
        let mut single: Vec<&OfferId> = prepared
            .iter()
            .flat_map(|of_job| &of_job.configurations)
            .filter(|c| limits::is_one_machine(&c.offer))
            .map(|c| &c.offer.id)
            .collect();
        single.sort();
        single.dedup();
        self.limits.extend(single.into_iter().cloned().map(SharedLimit::OneMachine));
        self.assignment.bounds =
            self.limits.iter().enumerate().map(|(limit, of)| Bound { most: of.most(), limit }).collect();
        for of_job in prepared {
            let ways = possible(of_job).map(|(c, hours, cost)| {
                let configuration = &of_job.configurations[c];
                let uses = self.limits.iter().enumerate();
                let uses = uses.filter_map(|(row, limit)| Some((row, used(limit, configuration, cost)?))).collect();
                (c, Way { cost, hours, machine: None, uses })
            });
            let (configurations, ways) = undominated(ways.collect(), shared.wait).into_iter().unzip();
            self.configurations.push(configurations);
            self.assignment.jobs.push(ways);
        }
    }

    fn run(&mut self, prepared: &[Prepared], kinds: &[&str]) {
        let mut deadlines: Vec<Hours> = prepared.iter().filter_map(|of_job| of_job.goal.deadline).collect();
        deadlines.sort_by(Hours::total_cmp);
        deadlines.dedup();
        // One row per machine for each deadline.
        for (limit, deadline) in deadlines.iter().enumerate() {
            self.limits.push(SharedLimit::DeadlineHours(*deadline));
            self.assignment.bounds.extend(self.machines.iter().map(|_| Bound { most: deadline.get(), limit }));
        }
        let machines = self.assignment.machines.clone();
        for of_job in prepared {
            let mut fastest: Vec<Option<(usize, f64, f64)>> = vec![None; kinds.len()];
            for (c, hours, cost) in possible(of_job) {
                let name = &of_job.configurations[c].offer.instance_type;
                let Some(kind) = kinds.iter().position(|kind| kind == name) else { continue };
                if fastest[kind].is_none_or(|(_, before, _)| hours < before) {
                    fastest[kind] = Some((c, hours, cost));
                }
            }
            let due = of_job.goal.deadline;
            let ways = machines.iter().enumerate().filter_map(|(machine, kind)| {
                let (c, hours, cost) = fastest[*kind]?;
                let rows = deadlines
                    .iter()
                    .enumerate()
                    .filter(|(_, deadline)| due.is_some_and(|due| due.get() <= deadline.get()));
                let uses = rows.map(|(number, _)| (number * machines.len() + machine, hours)).collect();
                Some((c, Way { cost, hours, machine: Some(machine), uses }))
            });
            let (configurations, ways) = ways.unzip();
            self.configurations.push(configurations);
            self.assignment.jobs.push(ways);
        }
    }
}

/// Configurations that do all the work of a job within its own limits, with the hours that count for the deadline and
/// dollars.
fn possible(of_job: &Prepared) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
    let keeps = |value: f64, most: Option<f64>| most.is_none_or(|most| value <= most * (1.0 + SAME));
    let (deadline, budget) = (of_job.goal.deadline.map(Hours::get), of_job.goal.budget.map(Usd::get));
    of_job.wholes().filter(move |(_, hours, cost)| keeps(*hours, deadline) && keeps(*cost, budget))
}

/// Amount of a limit that a configuration uses; `None` if the limit does not apply.
fn used(limit: &SharedLimit, configuration: &Configuration, cost: f64) -> Option<f64> {
    match limit {
        SharedLimit::BudgetUsd(_) => Some(cost),
        SharedLimit::UsdPerHour(_) => Some(configuration.price().get()),
        SharedLimit::Quota(quota) => {
            quota.applies(&configuration.offer, &configuration.gpu).then(|| f64::from(configuration.all_gpus()))
        }
        SharedLimit::OneMachine(offer) => (configuration.offer.id == *offer).then_some(1.0),
        SharedLimit::DeadlineHours(_) => None,
    }
}

/// Drops ways that are dominated by another way of the job, which costs no more, uses no more of any limit and, if jobs
/// `wait`, takes no longer. Of equal ways, the fastest is kept.
fn undominated(mut ways: Vec<(usize, Way)>, wait: bool) -> Vec<(usize, Way)> {
    ways.sort_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost).then(a.hours.total_cmp(&b.hours)));
    let mut kept: Vec<(usize, Way)> = Vec::new();
    for (c, way) in ways {
        let draws_less = |keeper: &Way| {
            let of = |row: usize| way.uses.iter().find(|(of, _)| *of == row).map_or(0.0, |(_, amount)| *amount);
            keeper.uses.iter().all(|(row, amount)| *amount <= of(*row)) && (!wait || keeper.hours <= way.hours)
        };
        if !kept.iter().any(|(_, keeper)| draws_less(keeper)) {
            kept.push((c, way));
        }
    }
    kept
}
