//! Schedules of rented jobs: a mode and a start for each job within the shared limits.
//!
//! A list schedule places the jobs in some order. Each takes its cheapest mode that still ends by its deadline, and starts
//! as early as the limits and the jobs placed before it allow (the serial scheme of resource-constrained scheduling;
//! Kolisch 1996). [`super::search`] improves it. Nothing depends on the clock: the effort is counted in steps of the
//! [`Timeline`]s looked at.

use super::super::SharedLimit;
use super::super::assignment::Mode;
use super::super::problem::RELATIVE_TOLERANCE;
use super::timeline::{Timeline, rounding};

/// Relative difference below which two values of a schedule are equal.
const EQUAL: f64 = 1e-9;

/// Rented jobs with their modes and the shared limits.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks {
    pub(super) jobs: Vec<Task>,
    pub(super) limits: Vec<SharedLimit>,
    /// Maximum of each limit.
    pub(super) most: Vec<f64>,
    /// Whether jobs may start later than the plan.
    pub(super) wait: bool,
    /// Dollars for each hour until the last job has ended.
    pub(super) hour_value: f64,
}

/// One job.
#[derive(Debug, Clone, Default)]
pub(super) struct Task {
    /// Possible modes, cheapest first; uses are by limit.
    pub(super) modes: Vec<Mode>,
    /// Earliest start in hours.
    pub(super) earliest: f64,
    /// Deadline in hours; infinite without one.
    pub(super) due: f64,
    /// Jobs that have to end before it starts, and those that wait for it.
    pub(super) after: Vec<usize>,
    pub(super) before: Vec<usize>,
    /// Latest end with which it and the jobs that wait for it can still meet their deadlines, and the same with those
    /// that they may miss.
    pub(super) latest: f64,
    pub(super) urgent: f64,
    /// Fewest hours until it and those that wait for it have ended.
    pub(super) tail: f64,
    /// Weight of its end, and whether only the weighted ends count, not the last one.
    pub(super) weight: f64,
    pub(super) is_weighted: bool,
    /// Dollars for each hour by which it ends after a time: of waiting for it, and after a deadline that may be missed
    /// (weighted tardiness).
    pub(super) rates: Vec<Rate>,
}

/// Dollars for each hour after a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) from: f64,
    pub(super) usd_per_hour: f64,
}

impl Task {
    /// Dollars of the cheapest mode.
    pub(super) fn cheapest(&self) -> f64 {
        self.modes.first().map_or(f64::INFINITY, |mode| mode.cost)
    }

    /// Dollars for the time until an end.
    pub(super) fn time_cost(&self, end: f64) -> f64 {
        self.rates.iter().map(|rate| rate.usd_per_hour * (end - rate.from).max(0.0)).sum()
    }

    /// Fewest dollars that its end can cost.
    pub(super) fn least_time_cost(&self) -> f64 {
        if self.rates.is_empty() { 0.0 } else { self.time_cost(self.earliest + self.fastest()) }
    }

    /// Fewest dollars of a mode with the time until its end.
    pub(super) fn least(&self) -> f64 {
        if self.rates.is_empty() {
            return self.cheapest();
        }
        self.modes
            .iter()
            .map(|mode| mode.cost + self.time_cost(self.earliest + mode.hours))
            .fold(f64::INFINITY, f64::min)
    }

    /// Time by which it should end: its deadline, or one that it may miss.
    fn aim(&self) -> f64 {
        let soft = self.rates.iter().map(|rate| rate.from).filter(|from| *from > self.earliest);
        soft.fold(self.due, f64::min)
    }

    /// Hours of the fastest mode.
    pub(super) fn fastest(&self) -> f64 {
        self.modes.iter().map(|mode| mode.hours).fold(f64::INFINITY, f64::min)
    }

    /// Dollars lost if the job has to use its fastest mode.
    fn regret(&self) -> f64 {
        let fastest = self.modes.iter().min_by(|a, b| a.hours.total_cmp(&b.hours));
        fastest.map_or(0.0, |mode| mode.cost - self.cheapest())
    }

    /// Whether an end meets the deadline.
    pub(super) fn is_due(&self, end: f64) -> bool {
        end <= self.due * (1.0 + RELATIVE_TOLERANCE)
    }
}

impl Tasks {
    /// Number of modes of all jobs.
    pub(super) fn modes(&self) -> usize {
        self.jobs.iter().map(|task| task.modes.len()).sum()
    }

    /// Fewest dollars if no job takes anything from another, with the time until the ends.
    pub(super) fn least_each(&self) -> f64 {
        let own = self.jobs.iter().map(Task::least).sum::<f64>();
        let ends = self.jobs.iter().map(|task| task.earliest + task.fastest());
        if self.hour_value > 0.0 { own + self.hour_value * ends.fold(0.0, f64::max) } else { own }
    }

    /// Whether the time until an end costs anything.
    pub(super) fn values_time(&self) -> bool {
        self.hour_value > 0.0 || self.jobs.iter().any(|task| !task.rates.is_empty())
    }

    /// Sets the jobs that each job waits for, and what follows for the earliest starts.
    pub(super) fn link(&mut self, after: impl Iterator<Item = Vec<usize>>) {
        for (job, mut after) in after.enumerate() {
            after.sort_unstable();
            after.dedup();
            for other in &after {
                self.jobs[*other].before.push(job);
            }
            self.jobs[job].after = after;
            let task = &mut self.jobs[job];
            (task.latest, task.urgent, task.tail) = (task.due, task.aim(), task.fastest());
        }
        // Each job after all those that it waits for.
        let mut order: Vec<usize> = (0..self.jobs.len()).filter(|job| self.jobs[*job].after.is_empty()).collect();
        let mut open: Vec<usize> = self.jobs.iter().map(|task| task.after.len()).collect();
        let mut next = 0;
        while let Some(job) = order.get(next).copied() {
            next += 1;
            let end = self.jobs[job].earliest + self.jobs[job].fastest();
            for other in self.jobs[job].before.clone() {
                self.jobs[other].earliest = self.jobs[other].earliest.max(end);
                open[other] -= 1;
                if open[other] == 0 {
                    order.push(other);
                }
            }
        }
        for job in order.into_iter().rev() {
            let task = &self.jobs[job];
            let (fastest, tail) = (task.fastest(), task.tail);
            let [latest, urgent] = [task.latest, task.urgent].map(|end| end - fastest);
            for other in self.jobs[job].after.clone() {
                self.jobs[other].latest = self.jobs[other].latest.min(latest);
                self.jobs[other].urgent = self.jobs[other].urgent.min(urgent);
                self.jobs[other].tail = self.jobs[other].tail.max(tail + self.jobs[other].fastest());
            }
        }
    }

    pub(super) fn budget(&self) -> Option<f64> {
        let budget = self.limits.iter().position(|limit| matches!(limit, SharedLimit::BudgetUsd(_)))?;
        Some(self.most[budget])
    }

    /// Orders to place the jobs in: by deadline, longest first, by what a job loses without its cheapest modes, and shortest
    /// for its weight first (Smith 1956).
    pub(super) fn orders(&self) -> [Vec<usize>; 4] {
        let by = |key: &dyn Fn(&Task) -> f64| {
            let mut order: Vec<usize> = (0..self.jobs.len()).collect();
            let keys: Vec<f64> = self.jobs.iter().map(key).collect();
            order.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]));
            order
        };
        let price = |job: &Task| job.rates.iter().map(|rate| rate.usd_per_hour).sum::<f64>();
        let weight = |job: &Task| if job.rates.is_empty() { job.weight } else { price(job).max(f64::MIN_POSITIVE) };
        [by(&|job| job.urgent), by(&|job| -job.tail), by(&|job| -job.regret()), by(&|job| job.fastest() / weight(job))]
    }

    /// Ways of each job in the order of their prices.
    pub(super) fn by_price(&self, price: impl Fn(usize, &Mode) -> f64) -> Preference {
        let of_job = |(job, task): (usize, &Task)| {
            let mut modes: Vec<(usize, f64)> =
                task.modes.iter().enumerate().map(|(number, mode)| (number, price(job, mode))).collect();
            modes.sort_by(|a, b| a.1.total_cmp(&b.1));
            modes
        };
        self.jobs.iter().enumerate().map(of_job).collect()
    }
}

/// Ways of each job with their prices, lowest first.
pub(super) type Preference = Vec<Vec<(usize, f64)>>;

/// Place of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    pub(super) mode: usize,
    pub(super) start: f64,
}

/// Quality of a schedule, compared in order: jobs without a place, excess over deadlines and budget, dollars with those
/// of time, the last end (unless jobs have priorities), and the weighted sum of all ends.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Value {
    pub(super) rank: [f64; 5],
    /// Dollars without those of time, which a budget limits.
    pub(super) paid: f64,
    /// End of the last job.
    pub(super) last: f64,
}

impl Value {
    /// Whether all jobs have a place within all limits.
    pub(super) fn is_feasible(self) -> bool {
        self.rank[0] <= 0.0 && self.rank[1] <= 0.0
    }

    pub(super) const fn cost(self) -> f64 {
        self.rank[2]
    }

    /// Lexicographic comparison that ignores rounding errors.
    pub(super) fn is_less(self, other: Self) -> bool {
        let differs = |(a, b): &(f64, f64)| a != b && (a - b).abs() > EQUAL * (1.0 + a.abs().min(b.abs()));
        self.rank.into_iter().zip(other.rank).find(differs).is_some_and(|(a, b)| a < b)
    }

    /// Whether it only costs up to this much more.
    pub(super) fn is_near(self, other: Self, more: f64) -> bool {
        self.rank[0] <= other.rank[0] && self.rank[1] <= other.rank[1] && self.cost() <= other.cost() + more
    }

    /// Adds a job to the sums.
    pub(super) fn add(&mut self, task: &Task, place: Option<Place>) {
        let Some(Place { mode, start }) = place else {
            self.rank[0] += 1.0;
            return;
        };
        let end = start + task.modes[mode].hours;
        if !task.is_due(end) {
            self.rank[1] += end - task.due;
        }
        self.paid += task.modes[mode].cost;
        self.rank[2] += task.modes[mode].cost + task.time_cost(end);
        self.add_end(task, end);
    }

    /// Adds an end, without its dollars.
    pub(super) fn add_end(&mut self, task: &Task, end: f64) {
        self.last = self.last.max(end);
        if !task.is_weighted {
            self.rank[3] = self.last;
        }
        self.rank[4] += task.weight * end;
    }

    /// Adds the excess over a budget and the dollars of the time until the last end.
    pub(super) fn of(mut self, tasks: &Tasks) -> Self {
        self.rank[1] += tasks.budget().map_or(0.0, |budget| (self.paid - budget * (1.0 + RELATIVE_TOLERANCE)).max(0.0));
        self.rank[2] += tasks.hour_value * self.last;
        self
    }
}

/// Places of the jobs, with the limits that they use.
#[derive(Debug, Clone)]
pub(super) struct Schedule<'a> {
    pub(super) tasks: &'a Tasks,
    timelines: Vec<Timeline>,
    pub(super) places: Vec<Option<Place>>,
    /// Steps looked at.
    pub(super) work: u64,
    /// Time by which jobs should end, besides their deadlines; infinite if none.
    pub(super) horizon: f64,
}

impl<'a> Schedule<'a> {
    /// Schedule without jobs.
    pub(super) fn new(tasks: &'a Tasks) -> Self {
        let timelines = tasks.limits.iter().zip(&tasks.most).map(|(limit, most)| Timeline::new(limit, *most)).collect();
        Self { tasks, timelines, places: vec![None; tasks.jobs.len()], work: 0, horizon: f64::INFINITY }
    }

    /// Schedule without jobs, with the work done so far.
    pub(super) fn without_jobs(&self) -> Self {
        Self { work: self.work, horizon: self.horizon, ..Self::new(self.tasks) }
    }

    /// List schedule of the jobs in an order, each with its mode of lowest price.
    pub(super) fn list(&mut self, order: &[usize], preference: &Preference) {
        let mut left = order.to_vec();
        loop {
            let before = left.len();
            left.retain(|job| {
                let is_ready = self.tasks.jobs[*job].after.iter().all(|other| self.places[*other].is_some());
                if is_ready {
                    self.insert(*job, &preference[*job]);
                }
                !is_ready
            });
            if left.len() == before {
                return;
            }
        }
    }

    pub(super) fn value(&self) -> Value {
        let mut value = Value::default();
        for (task, place) in self.tasks.jobs.iter().zip(&self.places) {
            value.add(task, *place);
        }
        value.of(self.tasks)
    }

    /// End of a job in hours; infinite without a place.
    pub(super) fn end(&self, job: usize) -> f64 {
        self.places[job].map_or(f64::INFINITY, |place| place.start + self.tasks.jobs[job].modes[place.mode].hours)
    }

    /// First possible start of a job after those that it waits for; infinite if there is none.
    pub(super) fn start(&mut self, job: usize, mode: usize) -> f64 {
        let task = &self.tasks.jobs[job];
        if task.after.iter().any(|other| self.places[*other].is_none()) {
            return f64::INFINITY;
        }
        let start = self.possible_start(job, mode);
        let starts = task.before.iter().filter_map(|other| Some(self.places[*other]?.start));
        let latest = starts.fold(f64::INFINITY, f64::min);
        let end = start + task.modes[mode].hours;
        if end <= latest + rounding(latest) { start } else { f64::INFINITY }
    }

    /// First start of a job that the limits and the jobs with a place allow; infinite if there is none.
    pub(super) fn possible_start(&mut self, job: usize, mode: usize) -> f64 {
        let task = &self.tasks.jobs[job];
        let ends = task.after.iter().map(|other| self.end(*other)).filter(|end| end.is_finite());
        let mut start = ends.fold(task.earliest, f64::max);
        let mode = &task.modes[mode];
        let latest = if self.tasks.wait { f64::INFINITY } else { task.earliest };
        loop {
            let before = start;
            for (limit, amount) in &mode.uses {
                start = self.timelines[*limit].earliest(start, mode.hours, *amount, &mut self.work);
                if start > latest || start.is_infinite() {
                    return f64::INFINITY;
                }
            }
            if start <= before {
                return start;
            }
        }
    }

    /// Largest use of a limit at any time; for a budget, the cost.
    pub(super) fn peak(&self, limit: usize) -> f64 {
        match self.tasks.limits[limit] {
            SharedLimit::BudgetUsd(_) => self.value().paid,
            _ => self.timelines[limit].peak(),
        }
    }

    pub(super) fn put(&mut self, job: usize, place: Place) {
        self.places[job] = Some(place);
        self.add(job, place, 1.0);
    }

    pub(super) fn take(&mut self, job: usize) -> Option<Place> {
        let place = self.places[job].take()?;
        self.add(job, place, -1.0);
        Some(place)
    }

    fn add(&mut self, job: usize, place: Place, times: f64) {
        let mode = &self.tasks.jobs[job].modes[place.mode];
        for (limit, amount) in &mode.uses {
            self.timelines[*limit].add(place.start, place.start + mode.hours, times * amount);
        }
    }

    /// Places a job by the mode of lowest price, with the dollars of its time, that ends by the horizon and early enough
    /// for its deadline and those of the jobs that wait for it; of equal ones the one that ends first. If none does, by
    /// the mode that ends first.
    pub(super) fn insert(&mut self, job: usize, modes: &[(usize, f64)]) {
        let task = &self.tasks.jobs[job];
        let mut best: Option<(f64, f64, Place)> = None;
        let mut late: Option<(f64, Place)> = None;
        let least_time = task.least_time_cost();
        let horizon = if self.horizon.is_finite() { self.horizon - task.tail + task.fastest() } else { f64::INFINITY };
        for (mode, price) in modes {
            let is_dearer = |price: f64, least: f64| price > least + EQUAL * (1.0 + least.abs());
            if best.is_some_and(|(least, ..)| is_dearer(price + least_time, least)) {
                break;
            }
            self.work += 1;
            let start = self.start(job, *mode);
            let (end, place) = (start + task.modes[*mode].hours, Place { mode: *mode, start });
            if !end.is_finite() {
                continue;
            }
            if end > task.latest * (1.0 + RELATIVE_TOLERANCE) || end > horizon {
                if late.is_none_or(|(first, _)| end < first) {
                    late = Some((end, place));
                }
                continue;
            }
            let price = price + task.time_cost(end);
            let is_better = |(least, first, _): (f64, f64, Place)| {
                is_dearer(least, price) || (!is_dearer(price, least) && end < first - rounding(first))
            };
            if best.is_none_or(is_better) {
                best = Some((best.map_or(price, |(least, ..)| least.min(price)), end, place));
            }
        }
        if let Some(place) = best.map(|(.., place)| place).or(late.map(|(_, place)| place)) {
            self.put(job, place);
        }
    }

    /// Moves each job as early as the others allow, in the order of their starts.
    pub(super) fn compact(&mut self) {
        let mut order: Vec<(f64, usize, Place)> =
            self.places.iter().enumerate().filter_map(|(job, place)| place.map(|own| (own.start, job, own))).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        *self = self.without_jobs();
        for (before, job, place) in order {
            let start = self.possible_start(job, place.mode).min(before);
            self.put(job, Place { start, ..place });
        }
    }
}
