//! Jobs on existing machines, without a solver: lists, local search, and a lower bound on the makespan.
//!
//! A list gives each job to the machine that ends it first, the longest job first (LPT; Graham 1969) or the earliest
//! deadline first. The search moves jobs away from the machine that ends last, or swaps them (iterated local search;
//! Lourenço, Martin and Stützle 2003). The effort is counted in moves tried.
//!
//! With weights μ ≥ 0 of the machines that sum to 1, no assignment ends before Σ min μ·p over the jobs, since a
//! machine's load is at most the makespan (the dual of the relaxation of Lenstra, Shmoys and Tardos 1990). The weights
//! follow the loads (multiplicative weights; Plotkin, Shmoys and Tardos 1995). For any time T, modes longer than T may
//! be ignored: the makespan is then at least the smaller of T and the sum.

use super::assignment::Assignment;
use super::problem::RELATIVE_TOLERANCE;
use habitat_base::random::Random;

/// Moves to try per second of the time limit.
const WORK: f64 = 5e6;
/// Restarts of the search without an improvement after which it ends, and more for each job.
const PATIENCE: usize = 400;
const PATIENCE_EACH: usize = 4;
/// Relative gain below which a move is not made.
const GAIN: f64 = 1e-9;
/// Machines whose jobs a restart mixes.
const MIXED: usize = 3;
/// Rounds of the weights, and bisections of the time.
const ROUNDS: usize = 300;
const HALVINGS: usize = 6;
/// Maximum number of deadlines to look for a proof at.
const MOST_DEADLINES: usize = 12;

/// Jobs that cannot meet a deadline together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub(super) deadline: f64,
    pub(super) jobs: usize,
    /// Smallest need, as a multiple of the hours of the machines until then.
    pub(super) times: f64,
}

/// A job, the machine to move it to, and the job to swap it with.
type Move = (usize, usize, Option<usize>);

/// Jobs by machine, with the sums that a move changes.
#[derive(Clone)]
struct Board<'a> {
    of: &'a Assignment,
    /// Hours of each job on each machine; infinite if it cannot run there.
    hours: &'a [Vec<f64>],
    machine_of: Vec<usize>,
    jobs: Vec<Vec<usize>>,
    loads: Vec<f64>,
    /// Hours by which jobs on a machine end after their deadlines.
    late: Vec<f64>,
}

impl Assignment {
    /// Best assignment of the search; `None` if it misses deadlines.
    pub(super) fn searched(&self, seconds: f64) -> Option<Vec<usize>> {
        let hours = self.hours();
        let loads = self.search(&hours, seconds);
        if loads.all_late() > 0.0 {
            return None;
        }
        let mode = |(modes, machine): (&Vec<super::assignment::Mode>, &usize)| {
            modes.iter().position(|mode| mode.machine == Some(*machine))
        };
        self.jobs.iter().zip(&loads.machine_of).map(mode).collect()
    }

    /// Jobs that the best assignment of the search ends too late, with the hours.
    pub(super) fn late(&self, seconds: f64) -> Vec<(usize, f64)> {
        let hours = self.hours();
        let loads = self.search(&hours, seconds);
        (0..self.machines.len()).flat_map(|machine| loads.late_jobs(&loads.jobs[machine], machine)).collect()
    }

    /// Hours of each job on each machine.
    fn hours(&self) -> Vec<Vec<f64>> {
        let mut hours = vec![vec![f64::INFINITY; self.machines.len()]; self.jobs.len()];
        for (modes, hours) in self.jobs.iter().zip(&mut hours) {
            for mode in modes {
                if let Some(machine) = mode.machine {
                    hours[machine] = mode.hours;
                }
            }
        }
        hours
    }

    fn search<'a>(&'a self, hours: &'a [Vec<f64>], seconds: f64) -> Board<'a> {
        let due = |job: usize| self.due.get(job).copied().unwrap_or(f64::INFINITY);
        let longest = self.longest_first();
        let mut by_deadline = longest.clone();
        by_deadline.sort_by(|a, b| due(*a).total_cmp(&due(*b)));
        let mut work = (seconds * WORK) as u64;
        let mut best = Board::list(self, hours, &longest);
        best.descend(&mut work);
        if self.due.iter().any(|due| due.is_finite()) {
            let mut other = Board::list(self, hours, &by_deadline);
            other.descend(&mut work);
            if is_less(other.value(), best.value()) {
                best = other;
            }
        }
        let floor = self.floor() * (1.0 + RELATIVE_TOLERANCE);
        let mut random = Random::new(1);
        let patience = PATIENCE + PATIENCE_EACH * self.jobs.len();
        let mut since = 0;
        while since < patience && work > 0 && self.jobs.len() > 1 && (best.all_late() > 0.0 || best.last() > floor) {
            let mut other = best.clone();
            other.mix(&mut random);
            work = work.saturating_sub(self.jobs.len() as u64 / 8);
            other.descend(&mut work);
            since += 1;
            if is_less(other.value(), best.value()) {
                since = 0;
            }
            if !is_less(best.value(), other.value()) {
                best = other;
            }
        }
        best
    }

    /// Lower bound on the makespan, given a known assignment.
    pub(super) fn relaxed_bound(&self, known: &[usize]) -> f64 {
        let all: Vec<usize> = (0..self.jobs.len()).collect();
        let (kinds, counts) = self.by_kind();
        let mut weights = vec![1.0 / self.machines.len() as f64; counts.len()];
        let (mut low, mut high) = (self.floor(), self.objective(known));
        for _ in 0..HALVINGS {
            let sum = weighted(&kinds, &counts, &all, high, &mut weights);
            low = f64::max(low, sum.min(high));
            if sum >= high * (1.0 - RELATIVE_TOLERANCE) {
                break;
            }
            high = f64::midpoint(low, high);
        }
        low
    }

    /// A deadline that the machines cannot meet, if the bound proves it.
    pub(super) fn crowd(&self) -> Option<Crowd> {
        let (kinds, counts) = self.by_kind();
        let mut deadlines: Vec<f64> = self.due.iter().copied().filter(|due| due.is_finite()).collect();
        deadlines.sort_by(f64::total_cmp);
        deadlines.dedup();
        let crowd = |deadline: &f64| {
            let jobs: Vec<usize> = (0..self.jobs.len()).filter(|job| self.due[*job] <= *deadline).collect();
            let mut weights = vec![1.0 / self.machines.len() as f64; counts.len()];
            let times = weighted(&kinds, &counts, &jobs, *deadline, &mut weights) / deadline;
            (times > 1.0 + 1e-6).then_some(Crowd { deadline: *deadline, jobs: jobs.len(), times })
        };
        deadlines.iter().rev().step_by(deadlines.len().div_ceil(MOST_DEADLINES).max(1)).find_map(crowd)
    }

    /// Hours of each job on each kind of machine, and the number of machines of each kind.
    fn by_kind(&self) -> (Vec<Vec<f64>>, Vec<f64>) {
        let count = self.machines.iter().max().map_or(0, |last| last + 1);
        let mut counts = vec![0.0; count];
        for kind in &self.machines {
            counts[*kind] += 1.0;
        }
        let mut hours = vec![vec![f64::INFINITY; count]; self.jobs.len()];
        for (modes, hours) in self.jobs.iter().zip(&mut hours) {
            for mode in modes {
                if let Some(machine) = mode.machine {
                    hours[self.machines[machine]] = mode.hours;
                }
            }
        }
        (hours, counts)
    }
}

/// Largest sum of the weighted hours of jobs, each on its kind of least weight without modes longer than `most`; starts
/// with the given weights of one machine of each kind and leaves the best ones. Infinite if a job has no such mode.
fn weighted(kinds: &[Vec<f64>], counts: &[f64], jobs: &[usize], most: f64, weights: &mut Vec<f64>) -> f64 {
    let longest = most * (1.0 + RELATIVE_TOLERANCE);
    let mut now = weights.clone();
    let mut best = 0.0;
    for round in 1..=ROUNDS {
        let all: f64 = now.iter().zip(counts).map(|(weight, count)| weight * count).sum();
        for weight in &mut now {
            *weight /= all;
        }
        let mut sum = 0.0;
        let mut loads = vec![0.0; counts.len()];
        for job in jobs {
            let possible = kinds[*job].iter().enumerate().filter(|(_, hours)| **hours <= longest);
            let least = possible.map(|(kind, hours)| (kind, now[kind] * hours)).min_by(|a, b| a.1.total_cmp(&b.1));
            let Some((kind, weight)) = least else { return f64::INFINITY };
            sum += weight;
            loads[kind] += kinds[*job][kind];
        }
        if sum > best {
            best = sum;
            weights.clone_from(&now);
        }
        let step = 0.5 / (round as f64).sqrt();
        for ((weight, load), count) in now.iter_mut().zip(&loads).zip(counts).filter(|(_, count)| **count > 0.0) {
            *weight *= (step * (load / count / sum.max(f64::MIN_POSITIVE) - 1.0).clamp(-1.0, 1.0)).exp();
        }
    }
    best
}

impl<'a> Board<'a> {
    /// Gives the jobs in an order to the machines that end them first.
    fn list(of: &'a Assignment, hours: &'a [Vec<f64>], order: &[usize]) -> Self {
        let count = of.machines.len();
        let (machine_of, jobs) = (vec![0; of.jobs.len()], vec![Vec::new(); count]);
        let mut own = Self { of, hours, machine_of, jobs, loads: vec![0.0; count], late: vec![0.0; count] };
        for job in order {
            own.give(*job);
        }
        own
    }

    /// Gives a job to the machine that ends it first.
    fn give(&mut self, job: usize) {
        let end = |machine: &usize| self.loads[*machine] + self.hours[job][*machine];
        let first = (0..self.loads.len()).min_by(|a, b| end(a).total_cmp(&end(b))).unwrap_or(0);
        self.machine_of[job] = first;
        self.jobs[first].push(job);
        self.refresh(first);
    }

    /// Jobs among these on a machine that end after their deadlines, in order of the deadlines.
    fn late_jobs(&self, jobs: &[usize], machine: usize) -> Vec<(usize, f64)> {
        if self.of.due.is_empty() {
            return Vec::new();
        }
        let mut order = jobs.to_vec();
        order.sort_by(|a, b| self.of.due[*a].total_cmp(&self.of.due[*b]));
        let mut end = 0.0;
        let mut late = Vec::new();
        for job in order {
            end += self.hours[job][machine];
            if end > self.of.due[job] * (1.0 + RELATIVE_TOLERANCE) {
                late.push((job, end - self.of.due[job]));
            }
        }
        late
    }

    /// Lateness and load of these jobs on a machine.
    fn key(&self, jobs: &[usize], machine: usize) -> (f64, f64) {
        let late = self.late_jobs(jobs, machine).iter().map(|(_, hours)| hours).sum();
        (late, jobs.iter().map(|job| self.hours[*job][machine]).sum())
    }

    fn refresh(&mut self, machine: usize) {
        (self.late[machine], self.loads[machine]) = self.key(&self.jobs[machine], machine);
    }

    fn all_late(&self) -> f64 {
        self.late.iter().sum()
    }

    fn last(&self) -> f64 {
        self.loads.iter().copied().fold(0.0, f64::max)
    }

    /// Lateness, makespan, and the sum of squared loads, which keeps a search moving.
    fn value(&self) -> [f64; 3] {
        [self.all_late(), self.last(), self.loads.iter().map(|load| load * load).sum()]
    }

    /// Moves or swaps jobs of the machine that is latest or ends last while that improves it and the other machine.
    fn descend(&mut self, work: &mut u64) {
        while *work > 0 {
            let key = |machine: &usize| (self.late[*machine], self.loads[*machine]);
            let machines = 0..self.loads.len();
            let worst = machines.max_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
            let Some(from) = worst else { return };
            let Some((out, to, back)) = self.best_move(from, work) else { return };
            self.jobs[from].retain(|job| *job != out);
            self.jobs[to].push(out);
            self.machine_of[out] = to;
            if let Some(back) = back {
                self.jobs[to].retain(|job| *job != back);
                self.jobs[from].push(back);
                self.machine_of[back] = from;
            }
            self.refresh(from);
            self.refresh(to);
        }
    }

    /// Best move of a job of a machine to another, or swap with one there: the job, the machine, and the other job.
    fn best_move(&self, from: usize, work: &mut u64) -> Option<Move> {
        let mut best: Option<([f64; 3], Move)> = None;
        let has_deadlines = self.of.due.iter().any(|due| due.is_finite());
        for &job in &self.jobs[from] {
            for to in (0..self.loads.len()).filter(|to| *to != from && self.hours[job][*to].is_finite()) {
                let others = self.jobs[to].iter().copied().filter(|other| self.hours[*other][from].is_finite());
                for back in std::iter::once(None).chain(others.map(Some)) {
                    *work = work.saturating_sub(1);
                    let gives = |machine: usize| back.map_or(0.0, |back| self.hours[back][machine]);
                    let of_from = self.loads[from] - self.hours[job][from] + gives(from);
                    let of_to = self.loads[to] + self.hours[job][to] - gives(to);
                    let before = [self.late[from] + self.late[to], self.loads[from].max(self.loads[to]), 0.0];
                    // Lateness costs more to compute, and a longer load never reduces it.
                    let late = if has_deadlines && (before[0] > 0.0 || of_from.max(of_to) < before[1] * (1.0 - GAIN)) {
                        *work = work.saturating_sub((self.jobs[from].len() + self.jobs[to].len()) as u64);
                        self.late_after(from, (job, back))
                            + self.late_after(to, (back.unwrap_or(usize::MAX), Some(job)))
                    } else {
                        before[0]
                    };
                    let now = [late, of_from.max(of_to), 0.0];
                    let least = best.as_ref().map_or(before, |(value, _)| *value);
                    if is_less(now, least) {
                        best = Some((now, (job, to, back)));
                    }
                }
            }
        }
        best.map(|(_, found)| found)
    }

    /// Lateness on a machine without one job and with another.
    fn late_after(&self, machine: usize, (out, back): (usize, Option<usize>)) -> f64 {
        let jobs: Vec<usize> = self.jobs[machine].iter().copied().filter(|job| *job != out).chain(back).collect();
        self.key(&jobs, machine).0
    }

    /// Gives the jobs of the worst machine and of some others anew, in a random order.
    fn mix(&mut self, random: &mut Random) {
        let count = self.loads.len();
        let key = |machine: &usize| (self.late[*machine], self.loads[*machine]);
        let worst = (0..count).max_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.total_cmp(&key(b).1)));
        let mut some: Vec<usize> = (1..MIXED).map(|_| random.below(count)).chain(worst).collect();
        some.sort_unstable();
        some.dedup();
        let mut jobs = Vec::new();
        for machine in some {
            jobs.append(&mut self.jobs[machine]);
            self.refresh(machine);
        }
        random.shuffle(&mut jobs);
        for job in jobs {
            self.give(job);
        }
    }
}

/// Lexicographic comparison that ignores rounding errors.
fn is_less(a: [f64; 3], b: [f64; 3]) -> bool {
    let differs = |(a, b): &(f64, f64)| (a - b).abs() > GAIN * (1.0 + b.abs());
    a.into_iter().zip(b).find(differs).is_some_and(|(a, b)| a < b)
}
