//! Builds the modes of prepared jobs, and the shared limits that they use.

use std::collections::{HashMap, HashSet};

use super::super::assignment::{Assigned, Assignment, Bound, Mode};
use super::super::configuration::Configuration;
use super::super::problem::RELATIVE_TOLERANCE;
use super::super::{Prepared, SharedLimit};
use super::schedule::{Place, Rate, Schedule, Task, Tasks};
use super::{Answer, Job, Shared, Supply};
use crate::pricing::{OfferId, Tier};
use habitat_base::units::{Hours, Usd, UsdPerHour};

/// Jobs to rent for, or to assign to machines, with the meaning of their indices.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// Jobs with their modes. With machines, only the limits.
    pub(super) tasks: Tasks,
    /// Assignment to machines; without machines, of jobs that start together.
    pub(super) assignment: Assignment,
    /// Configuration of each mode of each job.
    pub(super) configurations: Vec<Vec<usize>>,
    /// Names of the existing machines.
    pub(super) machines: Vec<String>,
    /// Jobs on machines as tasks without costs, if their order matters beyond their deadlines.
    pub(super) ordered: Option<Tasks>,
    /// Names of their kinds.
    kinds: Vec<String>,
    /// Whether the time until an end costs anything.
    times: bool,
    /// Index of the limit of each single machine.
    single: HashMap<OfferId, usize>,
    /// Offers that the jobs choose among.
    offers: HashSet<usize>,
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

impl Job {
    /// Dollars for each hour after its arrival, and after deadlines that it may miss.
    fn rates(&self, shared: &Shared) -> Vec<Rate> {
        let waiting = self.hour_value.map(|price| (self.earliest, price));
        let late = self.soft_deadlines(shared).map(|soft| (soft.deadline, soft.usd_per_hour));
        let rate = |(from, price): (Hours, UsdPerHour)| Rate { from: from.get(), usd_per_hour: price.get() };
        waiting.into_iter().chain(late).map(rate).filter(|rate| rate.usd_per_hour > 0.0).collect()
    }
}

impl Model {
    /// Model without jobs.
    pub(super) fn new(supply: Supply<'_>, shared: &Shared) -> Self {
        let mut model = Self::default();
        match supply {
            Supply::Rent(_) => {
                model.tasks.wait = shared.wait;
                model.tasks.hour_value = shared.hour_value.map_or(0.0, UsdPerHour::get);
                model.times = model.tasks.hour_value > 0.0;
                let limits = &mut model.tasks.limits;
                limits.extend(shared.budget.map(SharedLimit::BudgetUsd));
                limits.extend(shared.max_price.map(SharedLimit::UsdPerHour));
                limits.extend(shared.quotas.iter().cloned().map(Box::new).map(SharedLimit::Quota));
                model.tasks.most = limits.iter().map(SharedLimit::most).collect();
            }
            Supply::Machines(machines) => {
                for (kind, machine) in machines.iter().enumerate() {
                    model.kinds.push(machine.name.clone());
                    for number in 1..=machine.count {
                        let several = machine.count > 1;
                        let name = &machine.name;
                        model.machines.push(if several { format!("{name} {number}") } else { name.clone() });
                        model.assignment.machines.push(kind);
                    }
                }
            }
        }
        model
    }

    /// Adds a job with its modes within its own limits. Keeps only their configurations in `prepared`.
    pub(super) fn add(&mut self, job: &Job, shared: &Shared, prepared: &mut Prepared) {
        let rates = job.rates(shared);
        self.times |= !rates.is_empty();
        self.offers.extend(prepared.configurations.iter().map(|c| c.place));
        let modes = if self.machines.is_empty() { self.rented(prepared) } else { self.run(prepared) };
        let uses_spot = modes.iter().any(|(c, _)| prepared.configurations[*c].offer.tier == Tier::Spot);
        let mut kept: Vec<usize> = modes.iter().map(|(c, _)| *c).collect();
        if uses_spot {
            // A spot plan names the machine that takes over.
            let all = 0..prepared.configurations.len();
            kept.extend(all.filter(|c| prepared.configurations[*c].offer.tier != Tier::Spot));
        }
        kept.sort_unstable();
        kept.dedup();
        let place = |c: usize| kept.binary_search(&c).unwrap_or_default();
        let (configurations, modes): (Vec<usize>, Vec<Mode>) =
            modes.into_iter().map(|(c, mode)| (place(c), mode)).unzip();
        if !modes.is_empty() {
            prepared.keep(&kept);
        }
        self.configurations.push(configurations);
        let due = prepared.goal.deadline.map_or(f64::INFINITY, Hours::get);
        let (earliest, weight) = (job.earliest.get(), job.priority);
        self.tasks.jobs.push(Task { modes, earliest, due, urgent: due, weight, rates, ..Task::default() });
    }

    /// Completes the model once all jobs are added.
    pub(super) fn complete(&mut self) {
        if self.machines.is_empty() {
            self.drop_late();
            let has_priorities = self.tasks.jobs.iter().any(|task| task.weight != 1.0);
            self.tasks.jobs.iter_mut().for_each(|task| task.is_weighted = has_priorities);
            if !self.tasks.wait {
                let limits = self.tasks.most.iter().enumerate();
                self.assignment.bounds = limits.map(|(limit, most)| Bound { most: *most, limit }).collect();
                let timed = |task: &Task, mode: &Mode| Mode {
                    cost: mode.cost + task.time_cost(task.earliest + mode.hours),
                    ..mode.clone()
                };
                let modes = |task: &Task| task.modes.iter().map(|mode| timed(task, mode)).collect();
                self.assignment.jobs = self.tasks.jobs.iter().map(modes).collect();
            }
            return;
        }
        self.assignment.due = self.tasks.jobs.iter().map(|task| task.due).collect();
        let mut deadlines: Vec<f64> = self.assignment.due.iter().copied().filter(|due| due.is_finite()).collect();
        deadlines.sort_by(f64::total_cmp);
        deadlines.dedup();
        let has_order = |task: &Task| task.earliest > 0.0 || !task.after.is_empty() || task.weight != 1.0;
        if self.tasks.jobs.iter().any(has_order) {
            self.order();
        }
        self.tasks.limits = deadlines.into_iter().map(|due| SharedLimit::DeadlineHours(Hours::known(due))).collect();
        self.assignment.jobs = self.tasks.jobs.iter_mut().map(|task| std::mem::take(&mut task.modes)).collect();
    }

    /// Prepares jobs that follow one another on machines in another order than by deadline: each machine is a limit.
    fn order(&mut self) {
        let machine = |name: &String| SharedLimit::OneMachine(OfferId::new("", "", name, Tier::Owned));
        let mut ordered = self.tasks.clone();
        (ordered.wait, ordered.most) = (true, vec![1.0; self.machines.len()]);
        ordered.limits = self.machines.iter().map(machine).collect();
        for mode in ordered.jobs.iter_mut().flat_map(|task| &mut task.modes) {
            (mode.cost, mode.uses) = (0.0, mode.machine.map(|machine| (machine, 1.0)).into_iter().collect());
        }
        self.ordered = Some(ordered);
    }

    /// Drops modes that end too late even without other jobs, unless a job has no others.
    fn drop_late(&mut self) {
        let mut empty = Schedule::new(&self.tasks);
        let mut is_due = |job: usize, mode: usize| {
            let task = &empty.tasks.jobs[job];
            let hours = task.modes[mode].hours;
            task.is_due(empty.possible_start(job, mode) + hours)
        };
        let due = self.tasks.jobs.iter().enumerate();
        let due: Vec<Vec<bool>> =
            due.map(|(job, task)| (0..task.modes.len()).map(|mode| is_due(job, mode)).collect()).collect();
        for ((task, configurations), due) in self.tasks.jobs.iter_mut().zip(&mut self.configurations).zip(&due) {
            if due.contains(&true) {
                let (mut of_mode, mut of_configuration) = (due.iter(), due.iter());
                task.modes.retain(|_| of_mode.next() == Some(&true));
                configurations.retain(|_| of_configuration.next() == Some(&true));
            }
        }
    }

    /// Number of offers that the jobs choose among.
    pub(super) fn offers(&self) -> usize {
        self.offers.len()
    }

    /// Converts an assignment of jobs that start together, or follow one another on machines.
    pub(super) fn assigned(&self, found: Assigned) -> Answer {
        let objective = self.assignment.objective(&found.modes);
        let jobs = found.modes.iter().map(|mode| Place { mode: *mode, start: 0.0 }).collect();
        let Assigned { proof, bound, solver, notes, .. } = found;
        Answer { jobs, objective, proof, bound, solver, notes }
    }

    fn rented(&mut self, prepared: &Prepared) -> Vec<(usize, Mode)> {
        let mut modes = Vec::new();
        let most = prepared.goal.limits.max_machines;
        for (c, hours, cost) in possible(prepared) {
            let configuration = &prepared.configurations[c];
            // A job takes several own machines only if it may: others want them, too.
            if configuration.machines > most {
                continue;
            }
            let limits = self.tasks.limits.iter().enumerate();
            let mut uses: Vec<(usize, f64)> =
                limits.filter_map(|(row, limit)| Some((row, used(limit, configuration, cost)?))).collect();
            if let Some(share) = &configuration.offer.share_of {
                uses.push((self.limit_of(&share.machine, share.gpus), f64::from(configuration.all_gpus())));
            } else if let Some(most) = configuration.offer.most_machines() {
                uses.push((self.limit_of(&configuration.offer.id, most), f64::from(configuration.machines)));
            }
            modes.push((c, Mode { cost, hours, machine: None, uses }));
        }
        undominated(modes, self.tasks.wait || self.times)
    }

    /// Limit of an offer: its number of machines, or the GPUs of its one machine.
    fn limit_of(&mut self, offer: &OfferId, machines: u32) -> usize {
        let Tasks { limits, most, .. } = &mut self.tasks;
        *self.single.entry(offer.clone()).or_insert_with(|| {
            limits.push(SharedLimit::OneMachine(offer.clone()));
            most.push(f64::from(machines));
            limits.len() - 1
        })
    }

    /// Fastest mode on each machine with the recorded global batch; with another one only if that does not divide over the
    /// GPUs, or misses the deadline.
    fn run(&self, prepared: &Prepared) -> Vec<(usize, Mode)> {
        let mut fastest: Vec<Option<(bool, usize, f64, f64)>> = vec![None; self.kinds.len()];
        let recorded = prepared.recorded_batch.filter(|_| prepared.goal.global_batch.is_none());
        for (c, hours, cost) in possible(prepared) {
            let configuration = &prepared.configurations[c];
            let name = &configuration.offer.instance_type;
            let Some(kind) = self.kinds.iter().position(|kind| kind == name) else { continue };
            let changes = recorded.is_some() && configuration.global_batch_size() != recorded;
            if fastest[kind].is_none_or(|(other, _, before, _)| (changes, hours) < (other, before)) {
                fastest[kind] = Some((changes, c, hours, cost));
            }
        }
        let machines = self.assignment.machines.iter().enumerate();
        let mode = |(machine, kind): (usize, &usize)| {
            let (_, c, hours, cost) = fastest[*kind]?;
            Some((c, Mode { cost, hours, machine: Some(machine), uses: Vec::new() }))
        };
        machines.filter_map(mode).collect()
    }
}

/// Configurations that do all the work of a job within its own limits, with the hours that count for the deadline and
/// dollars.
fn possible(of_job: &Prepared) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
    let keeps = |value: f64, most: Option<f64>| most.is_none_or(|most| value <= most * (1.0 + RELATIVE_TOLERANCE));
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
        SharedLimit::OneMachine(_) | SharedLimit::DeadlineHours(_) => None,
    }
}

/// Drops modes that are dominated by another mode of the job, which costs no more, uses no more of any limit and takes no
/// longer. If the `time` does not matter, a cheaper one may take longer.
fn undominated(mut modes: Vec<(usize, Mode)>, time: bool) -> Vec<(usize, Mode)> {
    modes.sort_by(|(_, a), (_, b)| a.cost.total_cmp(&b.cost).then(a.hours.total_cmp(&b.hours)));
    let mut kept: Vec<(usize, Mode)> = Vec::new();
    for (c, mode) in modes {
        let draws_less = |keeper: &Mode| {
            let of = |row: usize| mode.uses.iter().find(|(of, _)| *of == row).map_or(0.0, |(_, amount)| *amount);
            keeper.uses.iter().all(|(row, amount)| *amount <= of(*row))
                && (keeper.hours <= mode.hours || (!time && keeper.cost < mode.cost))
        };
        if !kept.iter().any(|(_, keeper)| draws_less(keeper)) {
            kept.push((c, mode));
        }
    }
    kept
}
