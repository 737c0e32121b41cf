//! Plans rented jobs: list schedules, the bound on their cost, and the search between the two.

use super::super::SharedLimit;
use super::super::assignment::{Assigned, Mode};
use super::super::problem::RELATIVE_TOLERANCE;
use super::super::solve::{Proof, Settings, SolveError};
use super::Answer;
use super::bound::{Overload, Relaxed};
use super::model::Model;
use super::schedule::{Place, Preference, Schedule, Tasks, Value};
use super::search::Completeness;
use habitat_base::random::Random;

/// Steps of timelines to look at per second of the time limit.
const WORK: f64 = 6e7;
/// Horizons to try (a choice).
const HORIZONS: u32 = 12;
/// Dollars below which modes cost the same (a choice).
const LEAST_USD: f64 = 1e-5;
/// Share of the work for one of several searches that only look for any plan.
const SHARE: f64 = 0.03;

/// No plan was found.
#[derive(Debug)]
pub(super) struct Missing {
    /// Whether none exists.
    pub(super) proven: bool,
    /// The reason, if the limits do not provide enough.
    pub(super) overload: Option<Overload>,
    /// Jobs of the best schedule that end too late, with the hours; infinite without a place.
    pub(super) late: Vec<(usize, f64)>,
    /// Excess of that schedule over the budget.
    pub(super) over_usd: f64,
}

/// Schedule of lowest cost found, with a lower bound on the cost.
struct BestSchedule<'a> {
    schedule: Schedule<'a>,
    relaxed: Relaxed<'a>,
    proof: Option<Proof>,
    solver: &'static str,
}

impl Model {
    /// Best plan of rented jobs.
    pub(super) fn rent(&self, settings: Settings) -> Result<Answer, Missing> {
        let mut found = self.tasks.best_schedule(settings.seconds);
        let mut is_proven = found.proof == Some(Proof::Optimal);
        if !is_proven && self.has_program() {
            match self.assignment.best(settings) {
                Ok(assigned) => return Ok(self.of_program(assigned, &found, settings)),
                Err(SolveError::Infeasible) => is_proven = true,
                Err(_) => {}
            }
        }
        let (schedule, value) = (&found.schedule, found.schedule.value());
        if !value.is_feasible() {
            let overload = found.relaxed.overload();
            let late = self.tasks.jobs.iter().enumerate();
            let late = late.map(|(job, task)| (job, schedule.end(job), task));
            let late = late.filter(|(_, end, task)| !task.is_due(*end)).map(|(job, end, task)| (job, (end - task.due)));
            let over_usd = self.tasks.budget().map_or(0.0, |budget| (value.paid - budget).max(0.0));
            return Err(Missing { proven: is_proven || overload.is_some(), overload, late: late.collect(), over_usd });
        }
        let jobs = schedule.places.iter().flatten().copied().collect();
        let bound = if is_proven { value.cost() } else { found.relaxed.bound.min(value.cost()) };
        let proof = if value.cost() <= bound * (1.0 + RELATIVE_TOLERANCE) { Proof::Optimal } else { Proof::Gap };
        found.proof = Some(proof);
        Ok(Answer { jobs, objective: value.cost(), proof, bound, solver: found.solver, notes: Vec::new() })
    }

    /// Best plan on existing machines.
    pub(super) fn assign(&self, settings: Settings) -> Result<Answer, Missing> {
        let missing = |error: SolveError| {
            let due = |limit: &SharedLimit, deadline: f64| limit.most() >= deadline;
            let crowd = self.assignment.crowd();
            let overload = crowd.and_then(|crowd| {
                let limit = self.tasks.limits.iter().position(|limit| due(limit, crowd.deadline))?;
                Some(Overload { limits: vec![limit], jobs: crowd.jobs, until: crowd.deadline, times: crowd.times })
            });
            // The program gives the exceeded limits; only the search gives the late jobs.
            let late = if self.has_program() { Vec::new() } else { self.assignment.late(settings.seconds) };
            Missing { proven: error == SolveError::Infeasible || overload.is_some(), overload, late, over_usd: 0.0 }
        };
        if let Some(tasks) = &self.ordered {
            return self.ordered(tasks, settings).map_err(missing);
        }
        self.assignment.best(settings).map(|found| self.assigned(found)).map_err(missing)
    }

    /// Best order of jobs on machines found, with the makespan as the objective.
    fn ordered(&self, tasks: &Tasks, settings: Settings) -> Result<Answer, SolveError> {
        let any = tasks.by_price(|_, _| 0.0);
        let mut schedule = Schedule::new(tasks);
        tasks.listed(&any, &mut schedule);
        if let Some(modes) = self.assignment.searched(settings.seconds) {
            let machine = |job: usize| tasks.jobs[job].modes[modes[job]].machine;
            tasks.listed(&tasks.by_price(|job, mode| f64::from(mode.machine != machine(job))), &mut schedule);
        }
        let work = (settings.seconds * WORK) as u64;
        schedule.improve(&[any], 0.0, work, &mut Random::new(1));
        let is_complete = work > 0 && schedule.complete(false) == Completeness::Complete;
        let (value, places) = (schedule.value(), schedule.places.clone());
        let jobs: Vec<Place> = places.into_iter().flatten().collect();
        if !value.is_feasible() {
            return Err(if is_complete { SolveError::Infeasible } else { SolveError::OutOfTime });
        }
        let last = value.last;
        let alone = tasks.jobs.iter().map(|task| task.earliest + task.fastest()).fold(0.0, f64::max);
        let modes: Vec<usize> = jobs.iter().map(|place| place.mode).collect();
        let bound = self.assignment.relaxed_bound(&modes).max(alone).min(last);
        let bound = if is_complete { last } else { bound };
        let proof = if last <= bound * (1.0 + RELATIVE_TOLERANCE) { Proof::Optimal } else { Proof::Gap };
        let solver = if is_complete { "complete search" } else { "local search" };
        Ok(Answer { jobs, objective: last, proof, bound, solver, notes: Vec::new() })
    }

    /// Whether the integer program is small enough to solve.
    pub(super) fn has_program(&self) -> bool {
        !self.tasks.wait && self.tasks.hour_value <= 0.0 && self.assignment.has_program()
    }

    /// Answer of the integer program with the modes of equal cost that end first, or the schedule if that is as good.
    fn of_program(&self, mut assigned: Assigned, found: &BestSchedule<'_>, settings: Settings) -> Answer {
        let cost = self.assignment.objective(&assigned.modes);
        let mut schedule = found.schedule.clone();
        if !schedule.value().is_feasible() || schedule.value().cost() > cost * (1.0 + RELATIVE_TOLERANCE) {
            schedule = schedule.without_jobs();
            for (job, mode) in assigned.modes.iter().enumerate() {
                schedule.put(job, Place { mode: *mode, start: self.tasks.jobs[job].earliest });
            }
            let by_cost = self.tasks.by_price(|_, mode| mode.cost);
            schedule.improve(&[by_cost], cost, (settings.seconds * WORK / 10.0) as u64, &mut Random::new(1));
        }
        if schedule.value().is_feasible() && schedule.value().cost() <= cost * (1.0 + RELATIVE_TOLERANCE) {
            assigned.modes = schedule.places.iter().flatten().map(|place| place.mode).collect();
        }
        let cost = self.assignment.objective(&assigned.modes);
        assigned.bound = assigned.bound.max(found.relaxed.bound).min(cost);
        if assigned.bound >= cost * (1.0 - RELATIVE_TOLERANCE) {
            assigned.proof = Proof::Optimal;
        }
        self.assigned(assigned)
    }
}

impl Tasks {
    /// Best of the list schedules.
    fn listed(&self, preference: &Preference, best: &mut Schedule<'_>) {
        let mut value = best.value();
        for order in self.orders() {
            let mut other = best.without_jobs();
            other.list(&order, preference);
            best.work = other.work;
            if other.value().is_less(value) {
                value = other.value();
                best.places.clone_from(&other.places);
            }
        }
        best.compact();
    }

    /// Ways by their cost, and of equal cost by the share that they take of machines of which there are few (own ones,
    /// contracts, marketplace hosts), times their hours; `None` if no job can use such machines.
    fn by_area(&self) -> Option<Preference> {
        let is_few = |limit: usize| matches!(self.limits[limit], SharedLimit::OneMachine(_));
        let area = |mode: &Mode| {
            let shares = mode.uses.iter().filter(|(limit, _)| is_few(*limit));
            shares.map(|(limit, amount)| amount / self.most[*limit]).sum::<f64>() * mode.hours
        };
        let most = self.jobs.iter().flat_map(|task| &task.modes).map(area).fold(0.0, f64::max);
        (most > 0.0).then(|| self.by_price(|_, mode| mode.cost + LEAST_USD * area(mode) / most))
    }

    /// Best of the list schedules in which all jobs end by one of several horizons.
    fn within(&self, preference: &Preference, best: &mut Schedule<'_>) {
        let least = self.jobs.iter().map(|task| task.earliest + task.tail).fold(0.0, f64::max);
        let most = best.value().last;
        for number in 0..HORIZONS {
            let share = f64::from(number) / f64::from(HORIZONS);
            let mut other = best.without_jobs();
            other.horizon = (least + (most - least) * share) * (1.0 + RELATIVE_TOLERANCE);
            self.listed(preference, &mut other);
            best.work = other.work;
            if other.value().is_less(best.value()) {
                best.places.clone_from(&other.places);
                best.compact();
            }
        }
        best.horizon = f64::INFINITY;
    }

    /// Best of the list schedules that trade dollars for time: by several prices of an hour, and with all ends by several
    /// horizons.
    fn traded(&self, by_cost: &Preference, best: &mut Schedule<'_>) {
        let hour: f64 = self.jobs.iter().flat_map(|task| &task.rates).map(|rate| rate.usd_per_hour).sum();
        let hour = hour / self.jobs.len().max(1) as f64;
        for share in [1.0, 4.0].into_iter().filter(|_| hour > 0.0) {
            self.listed(&self.by_price(|_, mode| mode.cost + share * hour * mode.hours), best);
        }
        if self.hour_value > 0.0 {
            self.within(by_cost, best);
        }
    }

    fn best_schedule(&self, seconds: f64) -> BestSchedule<'_> {
        let by_cost = self.by_price(|_, mode| mode.cost);
        let mut schedule = Schedule::new(self);
        self.listed(&by_cost, &mut schedule);
        let mut relaxed = Relaxed::new(self, schedule.value().last);
        let mut random = Random::new(1);
        let work = (seconds * WORK) as u64;
        let is_cheapest =
            |value: Value| value.is_feasible() && value.cost() <= self.least_each() * (1.0 + RELATIVE_TOLERANCE);
        let by_area = self.by_area();
        if is_cheapest(schedule.value()) {
            if let Some(by_area) = &by_area {
                self.within(by_area, &mut schedule);
            }
            let preferences: Vec<Preference> = by_area.into_iter().chain([by_cost]).collect();
            schedule.improve(&preferences, relaxed.bound, work / 10, &mut random);
            return BestSchedule { schedule, relaxed, proof: Some(Proof::Optimal), solver: "filter and sort" };
        }
        let estimate = |value: Value| if value.is_feasible() { value.cost() } else { 2.0 * self.least_each() };
        if self.values_time() {
            self.traded(&by_cost, &mut schedule);
        }
        relaxed.raise(estimate(schedule.value()));
        let by_price = relaxed.preference();
        self.listed(&by_price, &mut schedule);
        let preferences = [by_cost, by_price];
        if work > 0 && schedule.complete(true) == Completeness::Complete {
            let cost = schedule.value().cost();
            if schedule.value().is_feasible() {
                schedule.improve(&preferences, cost, work / 10, &mut random);
            }
            return BestSchedule { schedule, relaxed, proof: Some(Proof::Optimal), solver: "complete search" };
        }
        schedule.improve(&preferences, relaxed.bound, work, &mut random);
        relaxed.raise(estimate(schedule.value()));
        let value = schedule.value();
        let is_proven = value.is_feasible() && value.cost() <= relaxed.bound * (1.0 + RELATIVE_TOLERANCE);
        BestSchedule { schedule, relaxed, proof: is_proven.then_some(Proof::Optimal), solver: "local search" }
    }

    /// Whether a short search finds a plan, and the plan.
    pub(super) fn any(&self, seconds: f64) -> Option<Schedule<'_>> {
        let found = self.best_schedule(seconds * SHARE);
        found.schedule.value().is_feasible().then_some(found.schedule)
    }
}
