//! Improves a list schedule: takes a few jobs out and places them again, in a new order or by trying all orders and
//! modes (large neighbourhood search; Shaw 1998). For a few jobs, the same complete search over all of them proves the
//! optimum, or that no plan exists.
//!
//! The complete search places jobs in the order of their starts, each as early as possible. That includes an optimum,
//! since a schedule in which no job can start earlier is of this form (active schedules; Sprecher, Kolisch and Drexl
//! 1995).

use super::schedule::{Place, Preference, Schedule, Value};
use super::timeline::rounding;
use habitat_base::random::Random;

/// Maximum number of jobs to take out at once.
const MOST_OUT: usize = 10;
/// Maximum number of jobs to place by complete search, and of places to try for them.
const MOST_TRIED: usize = 4;
const TRIES: u64 = 300;
/// Attempts to improve a schedule, and more for each job; those that only try to end earlier count this many times.
const ATTEMPTS: usize = 40_000;
const ATTEMPTS_EACH: usize = 200;
const SHORTER: usize = 20;
/// Looks at each job for an attempt: its end, its distance from the others, its share of the value.
const LOOKS: u64 = 3;
/// Extra cost that is usually accepted at first, as a share of the cost of a job.
const WARMTH: f64 = 0.03;
/// Maximum number of jobs for a complete search, and the places to try.
const MOST_COMPLETE: usize = 9;
const COMPLETE: u64 = 300_000;

/// Result of a complete search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completeness {
    /// All schedules were tried or excluded.
    Complete,
    /// It stopped early, or was not started.
    Partial,
}

/// State of a complete search.
struct Complete {
    best: Value,
    places: Vec<(usize, Place)>,
    /// Whether jobs may end after their deadlines.
    late: bool,
    /// Whether only the cost counts, not the ends.
    cost: bool,
    /// Places that may still be tried.
    left: u64,
}

impl Schedule<'_> {
    /// Improves the schedule for a number of attempts, or until the work is done. A worse schedule is accepted with a
    /// probability that falls over time (simulated annealing; Kirkpatrick, Gelatt and Vecchi 1983). Once the cost is at
    /// `least`, a lower bound, it only tries to end earlier, for fewer attempts.
    pub(super) fn improve(&mut self, preferences: &[Preference], least: f64, work: u64, random: &mut Random) {
        let jobs = self.tasks.jobs.len();
        if jobs < 2 || work == 0 {
            return;
        }
        let (begun, attempts) = (self.work, ATTEMPTS + ATTEMPTS_EACH * jobs);
        let mut value = self.value();
        let (mut best, mut best_value) = (self.places.clone(), value);
        let mut attempt = 0;
        loop {
            let done = ((self.work - begun) as f64 / work as f64).max(attempt as f64 / attempts as f64);
            let is_cheapest = best_value.is_feasible() && best_value.cost() <= least * (1.0 + 1e-9);
            if done >= 1.0 {
                break;
            }
            attempt += if is_cheapest { SHORTER } else { 1 };
            self.work += LOOKS * jobs as u64;
            let out = self.out(is_cheapest, random);
            let old: Vec<(usize, Option<Place>)> = out.iter().map(|job| (*job, self.take(*job))).collect();
            let preference = &preferences[random.below(preferences.len())];
            if out.len() <= MOST_TRIED && random.below(3) == 0 {
                self.place_best(&out, value);
            } else {
                // Ends later than the last one cost all jobs, which the price of one does not show.
                let trims = self.tasks.hour_value > 0.0 || is_cheapest;
                self.horizon = if trims && random.below(2) == 0 { value.last } else { f64::INFINITY };
                self.list(&out, preference);
            }
            let now = self.value();
            let warmth = if is_cheapest { 0.0 } else { WARMTH * (1.0 - done) * value.cost() / jobs as f64 };
            if value.is_less(now) && !now.is_near(value, -warmth * random.unit().max(f64::MIN_POSITIVE).ln()) {
                for (job, place) in old {
                    self.take(job);
                    if let Some(place) = place {
                        self.put(job, place);
                    }
                }
                continue;
            }
            value = now;
            if now.is_less(best_value) {
                best_value = now;
                best.clone_from(&self.places);
            }
        }
        self.horizon = f64::INFINITY;
        self.places = best;
        self.compact();
    }

    /// Jobs to remove, in the order in which to place them again. First comes one that is late or not on its cheapest
    /// offer, or any job, or the last to end; then the jobs that run at about the times when it could run.
    fn out(&self, is_cheapest: bool, random: &mut Random) -> Vec<usize> {
        let jobs = self.tasks.jobs.len();
        let is_open = |job: usize| {
            let task = &self.tasks.jobs[job];
            match self.places[job] {
                Some(place) => {
                    let end = self.end(job);
                    let cost = task.modes[place.mode].cost + task.time_cost(end);
                    cost > task.least() * (1.0 + 1e-9) || !task.is_due(end)
                }
                None => true,
            }
        };
        let mut first = random.below(jobs);
        if (is_cheapest || self.tasks.hour_value > 0.0) && random.below(2) == 0 {
            first = (0..jobs).max_by(|a, b| self.end(*a).total_cmp(&self.end(*b))).unwrap_or(first);
        } else if !is_cheapest {
            first = (0..jobs).map(|step| (first + step) % jobs).find(|job| is_open(*job)).unwrap_or(first);
        }
        let task = &self.tasks.jobs[first];
        let last = (0..jobs).map(|job| self.end(job)).filter(|end| end.is_finite()).fold(0.0, f64::max);
        let about = task.earliest + random.unit() * (task.due.min(last) - task.earliest).max(0.0);
        let distance = |job: usize| {
            let end = self.end(job);
            let start = self.places[job].map_or(0.0, |place| place.start);
            (start - about).max(about - end).max(0.0)
        };
        let mut near: Vec<(f64, u64, usize)> =
            (0..jobs).filter(|job| *job != first).map(|job| (distance(job), random.bits(), job)).collect();
        let count = (1 + random.below(MOST_OUT - 1)).min(near.len());
        if count < near.len() {
            near.select_nth_unstable_by(count, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        near.truncate(count);
        let mut out: Vec<usize> =
            near.into_iter().map(|(.., job)| job).filter(|job| !task.after.contains(job)).collect();
        out.extend(task.after.iter().copied().take(MOST_OUT));
        out.push(first);
        match random.below(3) {
            0 => random.shuffle(&mut out),
            1 => out.sort_by(|a, b| self.tasks.jobs[*a].due.total_cmp(&self.tasks.jobs[*b].due)),
            _ => {
                out.pop();
                random.shuffle(&mut out);
                out.insert(0, first);
            }
        }
        out
    }

    /// Places jobs by the best of all orders and modes, as far as tried; they stay without a place if that does not
    /// improve on a value.
    fn place_best(&mut self, jobs: &[usize], than: Value) {
        let mut complete =
            Complete { best: than, places: Vec::new(), late: !than.is_feasible(), cost: false, left: TRIES };
        let fixed = self.fixed();
        self.explore(&mut jobs.to_vec(), &mut Vec::new(), (fixed, 0.0), &mut complete);
        for (job, place) in complete.places {
            self.put(job, place);
        }
    }

    /// Sums over the jobs that have a place.
    fn fixed(&self) -> Value {
        let mut fixed = Value::default();
        for (task, place) in self.tasks.jobs.iter().zip(&self.places).filter(|(_, place)| place.is_some()) {
            fixed.add(task, *place);
        }
        fixed
    }

    /// Complete search for the lowest cost, or for the best ends too, from the schedule found so far.
    pub(super) fn complete(&mut self, cost: bool) -> Completeness {
        let jobs = self.tasks.jobs.len();
        if jobs > MOST_COMPLETE {
            return Completeness::Partial;
        }
        let value = self.value();
        let is_feasible = value.is_feasible();
        let mut best = value;
        if !is_feasible {
            best.rank = [0.0, 0.0, f64::INFINITY, f64::INFINITY, f64::INFINITY];
        }
        if cost {
            [best.rank[3], best.rank[4]] = [0.0; 2];
        }
        let mut complete = Complete { best, places: Vec::new(), late: false, cost, left: COMPLETE };
        let mut other = self.without_jobs();
        other.explore(&mut (0..jobs).collect(), &mut Vec::new(), (Value::default(), 0.0), &mut complete);
        self.work = other.work;
        if complete.places.len() == jobs {
            *self = self.without_jobs();
            for (job, place) in complete.places {
                self.put(job, place);
            }
        }
        if complete.left > 0 { Completeness::Complete } else { Completeness::Partial }
    }

    /// Tries all orders and modes of the jobs that are left, with starts that do not decrease.
    fn explore(
        &mut self,
        left: &mut Vec<usize>,
        placed: &mut Vec<(usize, Place)>,
        (sums, from): (Value, f64),
        complete: &mut Complete,
    ) {
        if left.is_empty() {
            let mut value = sums.of(self.tasks);
            if complete.cost {
                [value.rank[3], value.rank[4]] = [0.0; 2];
            }
            if value.is_less(complete.best) {
                complete.best = value;
                complete.places.clone_from(placed);
            }
            return;
        }
        let Some((least, costs)) = self.least(left, (sums, from), complete) else { return };
        if !least.of(self.tasks).is_less(complete.best) {
            return;
        }
        // Without waiting, all start together, so that their order does not matter.
        let next = if self.tasks.wait { left.len() } else { 1 };
        for place_of in 0..next {
            let is_ready = self.tasks.jobs[left[place_of]].after.iter().all(|other| self.places[*other].is_some());
            if !is_ready {
                continue;
            }
            let job = left.remove(place_of);
            let task = &self.tasks.jobs[job];
            let others = least.rank[2] - costs[place_of];
            let least_time = task.least_time_cost();
            for mode in 0..task.modes.len() {
                if complete.left == 0 {
                    break;
                }
                complete.left -= 1;
                let own = &task.modes[mode];
                // The modes are in the order of their cost.
                let mut cheapest = least;
                cheapest.rank[2] = others + own.cost + least_time;
                if !complete.late && !cheapest.of(self.tasks).is_less(complete.best) {
                    break;
                }
                let start = self.start(job, mode);
                let is_possible = start.is_finite() && (complete.late || task.is_due(start + own.hours));
                if !is_possible || start + rounding(start) < from {
                    continue;
                }
                let place = Place { mode, start };
                let mut sums = sums;
                sums.add(task, Some(place));
                self.put(job, place);
                placed.push((job, place));
                self.explore(left, placed, (sums, start), complete);
                placed.pop();
                self.take(job);
            }
            left.insert(place_of, job);
        }
    }

    /// Lower bound on the value with the jobs that are left: each by its cheapest mode that still has a place, and the
    /// soonest end of all its modes from the last start on. With the costs of these modes; `None` if a job has no place.
    fn least(
        &mut self,
        left: &[usize],
        (mut sums, from): (Value, f64),
        complete: &Complete,
    ) -> Option<(Value, Vec<f64>)> {
        let mut costs = Vec::with_capacity(left.len());
        let from = from - rounding(from);
        for job in left {
            let task = &self.tasks.jobs[*job];
            let (mut least, mut paid) = (f64::INFINITY, f64::INFINITY);
            if complete.cost {
                for (number, mode) in task.modes.iter().enumerate() {
                    if mode.cost + task.least_time_cost() >= least {
                        break;
                    }
                    let end = self.possible_start(*job, number).max(from) + mode.hours;
                    if end.is_finite() && task.is_due(end) {
                        paid = paid.min(mode.cost);
                        least = least.min(mode.cost + task.time_cost(end));
                    }
                }
                if least.is_infinite() {
                    return None;
                }
            } else {
                (paid, least) = (task.cheapest(), task.cheapest() + task.least_time_cost());
            }
            sums.add_end(task, task.earliest.max(from) + task.fastest());
            sums.paid += paid;
            costs.push(least);
        }
        sums.rank[2] += costs.iter().sum::<f64>();
        if complete.cost {
            [sums.rank[3], sums.rank[4]] = [0.0; 2];
        }
        Some((sums, costs))
    }
}
