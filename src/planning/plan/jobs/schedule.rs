//! Schedules of jobs that wait for one another, given by a way for each job and an order of placement. Each job starts
//! as early as the limits and the jobs placed before it allow (the serial scheme of resource-constrained scheduling;
//! Kolisch 1996), so starts need not be chosen. Iterated local search over ways and orders (Lourenço, Martin and
//! Stützle 2003); deterministic.

use super::super::assignment::Assigned;
use super::super::problem::SAME;
use super::super::solve::{Proof, Settings, SolveError};
use super::super::{Prepared, SharedLimit};
use super::model::Model;
use super::slots::rounding;
use super::{Answer, Chosen};
use habitat_base::random::Random;
use habitat_base::units::Hours;

/// Maximum number of schedules to evaluate. Fewer for many jobs, since the time per schedule grows with the square of
/// their number.
const LOOKED_AT: usize = 20_000;
const WORK: usize = 6_000_000;
/// Relative gain below which a move is not made.
const GAIN: f64 = 1e-9;
/// Penalty of a job without a place, in hours; more than any delay.
const NO_PLACE: f64 = 1e9;

/// Order in which the jobs are placed, and the way of each job.
#[derive(Debug, Clone, PartialEq)]
struct Sequence {
    order: Vec<usize>,
    ways: Vec<usize>,
}

/// Data for building schedules.
pub(super) struct Scheduler<'a> {
    model: &'a Model,
    earliest: &'a [Hours],
    due: Vec<f64>,
    edges: Vec<f64>,
}

/// A placed job: start, end, and the limits it uses in between.
struct Placed<'a> {
    start: f64,
    end: f64,
    uses: &'a [(usize, f64)],
}

impl<'a> Scheduler<'a> {
    /// Scheduler for a model whose jobs may wait.
    pub(super) fn new(model: &'a Model, prepared: &[Prepared], earliest: &'a [Hours]) -> Self {
        let due = prepared.iter().map(|of_job| of_job.goal.deadline.map_or(f64::INFINITY, Hours::get)).collect();
        let edges = model.limits.iter().flat_map(SharedLimit::edges).collect();
        Self { model, earliest, due, edges }
    }

    /// Plan from a solver's answer, with each start as early as possible. If the solver did not prove optimality, local
    /// search improves its answer; without a call of the solver (`None`), local search runs alone.
    ///
    /// # Errors
    /// Errors of the solver; without a call of it, [`SolveError::OutOfTime`] if local search finds no plan.
    pub(super) fn answer(
        &self,
        found: Option<Result<Assigned, SolveError>>,
        prepared: &[Prepared],
        settings: Settings,
    ) -> Result<Answer, SolveError> {
        let found = match found {
            Some(Ok(found)) if found.proof == Proof::Optimal => {
                let places = self.places(&self.sequence_of(&found.ways));
                return Ok(self.of_places(&places, Proof::Optimal, self.cost(&places), found.solver));
            }
            Some(Err(SolveError::Infeasible)) => return Err(SolveError::Infeasible),
            Some(Ok(found)) => Some(found),
            _ => None,
        };
        let places = self.searched(found.as_ref().map(|found| found.ways.as_slice())).ok_or(SolveError::OutOfTime)?;
        let cost = self.cost(&places);
        let bound = self.model.least(prepared, settings).min(cost);
        let proof = if cost <= bound * (1.0 + SAME) { Proof::Optimal } else { Proof::Gap };
        Ok(self.of_places(&places, proof, bound, "local search"))
    }

    fn of_places(&self, places: &[(usize, f64)], proof: Proof, bound: f64, solver: &'static str) -> Answer {
        let chosen = |(job, (way, start)): (usize, &(usize, f64))| Chosen {
            configuration: self.model.of_bases[job][*way],
            start: *start,
            machine: None,
        };
        let jobs = places.iter().enumerate().map(chosen).collect();
        Answer { jobs, objective: self.cost(places), proof, bound, solver, notes: Vec::new() }
    }

    /// Best schedule of local search, with or without a solver's answer as the start; `None` if it violates the
    /// deadlines or the budget.
    fn searched(&self, answer: Option<&[usize]>) -> Option<Vec<(usize, f64)>> {
        let mut random = Random::new(1);
        let jobs = self.due.len();
        let mut left = (WORK / (jobs * jobs).max(1)).min(LOOKED_AT);
        let first = answer.map_or_else(|| self.fastest(), |answer| self.sequence_of(answer));
        let mut best = self.improved(first, &mut left);
        let least = self.model.cheapest_each() * (1.0 + SAME);
        while left > 0 && jobs > 1 && !(self.value(&best)[0] <= 0.0 && self.value(&best)[1] <= least) {
            let mut other = best.clone();
            for _ in 0..2 {
                let job = random.below(jobs);
                other.ways[job] = random.below(self.model.bases[job].len());
                other.order.swap(random.below(jobs), random.below(jobs));
            }
            let other = self.improved(other, &mut left);
            if is_less(self.value(&other), self.value(&best)) {
                best = other;
            }
        }
        (self.value(&best)[0] <= 0.0).then(|| self.places(&best))
    }

    /// Dollars of a schedule.
    fn cost(&self, schedule: &[(usize, f64)]) -> f64 {
        schedule.iter().enumerate().map(|(job, (way, _))| self.model.bases[job][*way].cost).sum()
    }

    fn sequence_of(&self, answer: &[usize]) -> Sequence {
        let planned: Vec<(usize, f64)> =
            answer.iter().enumerate().map(|(job, way)| self.model.starts[job][*way]).collect();
        let mut order: Vec<usize> = (0..answer.len()).collect();
        order.sort_by(|a, b| planned[*a].1.total_cmp(&planned[*b].1));
        Sequence { order, ways: planned.into_iter().map(|(way, _)| way).collect() }
    }

    /// Fastest way for each job, placed by earliest deadline.
    fn fastest(&self) -> Sequence {
        let hours = |job: usize, way: usize| self.model.bases[job][way].hours;
        let jobs = self.due.len();
        let ways = (0..jobs).map(|job| {
            (0..self.model.bases[job].len()).min_by(|a, b| hours(job, *a).total_cmp(&hours(job, *b))).unwrap_or(0)
        });
        let ways: Vec<usize> = ways.collect();
        let mut order: Vec<usize> = (0..jobs).collect();
        let key = |job: usize| (self.due[job], -hours(job, ways[job]));
        order.sort_by(|a, b| key(*a).0.total_cmp(&key(*b).0).then(key(*a).1.total_cmp(&key(*b).1)));
        Sequence { order, ways }
    }

    /// Excess over deadlines and budget, then dollars, then the sum of the ends.
    fn value(&self, sequence: &Sequence) -> [f64; 3] {
        let places = self.places(sequence);
        let cost = self.cost(&places);
        let (mut missed, mut ends) = (0.0, 0.0);
        for (job, (way, start)) in places.iter().enumerate() {
            let end = start + self.model.bases[job][*way].hours;
            if end.is_infinite() {
                missed += NO_PLACE;
                continue;
            }
            let late = end - self.due[job] * (1.0 + SAME);
            (missed, ends) = (missed + late.max(0.0), ends + end);
        }
        for limit in &self.model.limits {
            if let SharedLimit::BudgetUsd(budget) = limit {
                missed += (cost - budget.get() * (1.0 + SAME)).max(0.0);
            }
        }
        [missed, cost, ends]
    }

    /// Moves one job at a time to another way or another place in the order, while that improves the value.
    fn improved(&self, mut best: Sequence, left: &mut usize) -> Sequence {
        let mut value = self.value(&best);
        let mut attempt = |best: &mut Sequence, change: &dyn Fn(&mut Sequence)| {
            let mut other = best.clone();
            change(&mut other);
            if *left == 0 || other == *best {
                return false;
            }
            *left -= 1;
            let now = self.value(&other);
            let gains = is_less(now, value);
            if gains {
                (*best, value) = (other, now);
            }
            gains
        };
        loop {
            let mut gains = false;
            for job in 0..best.ways.len() {
                for way in 0..self.model.bases[job].len() {
                    gains |= attempt(&mut best, &|sequence| sequence.ways[job] = way);
                }
            }
            for from in 0..best.order.len() {
                for to in 0..best.order.len() {
                    gains |= attempt(&mut best, &|sequence| {
                        let job = sequence.order.remove(from);
                        sequence.order.insert(to, job);
                    });
                }
            }
            if !gains {
                return best;
            }
        }
    }

    /// Way and start of each job; the start is infinite if there is no place for it after the others.
    fn places(&self, sequence: &Sequence) -> Vec<(usize, f64)> {
        let mut others: Vec<Placed<'_>> = Vec::with_capacity(sequence.order.len());
        let mut places = vec![(0, 0.0); sequence.order.len()];
        for job in &sequence.order {
            let way = &self.model.bases[*job][sequence.ways[*job]];
            let earliest = self.earliest[*job].get();
            let mut times: Vec<f64> = others.iter().map(|other| other.end).chain(self.edges.iter().copied()).collect();
            times.retain(|time| *time > earliest);
            times.push(earliest);
            times.sort_by(f64::total_cmp);
            // After the end of all others and all changes of limits, the job either fits or never does.
            let start = times.into_iter().find(|time| self.fits(&others, *time, way.hours, &way.uses));
            places[*job] = (sequence.ways[*job], start.unwrap_or(f64::INFINITY));
            others.extend(start.map(|start| Placed { start, end: start + way.hours, uses: &way.uses }));
        }
        places
    }

    /// Whether the limits leave enough from that time on. Usage increases only when a job starts or a limit begins to
    /// apply.
    fn fits(&self, placed: &[Placed<'_>], start: f64, hours: f64, uses: &[(usize, f64)]) -> bool {
        let end = start + hours;
        let moments = placed.iter().map(|other| other.start).chain(self.edges.iter().copied());
        let mut inside = moments.filter(|time| start < *time && *time + rounding(*time) < end).chain([start]);
        inside.all(|time| {
            uses.iter().all(|(limit, amount)| {
                let of = &self.model.limits[*limit];
                if matches!(of, SharedLimit::BudgetUsd(_)) || !of.holds(time) {
                    return true;
                }
                let runs = placed.iter().filter(|other| other.start <= time && time + rounding(time) < other.end);
                let drawn = runs.flat_map(|other| other.uses).filter(|(other, _)| other == limit);
                drawn.map(|(_, amount)| amount).sum::<f64>() + amount <= of.most() * (1.0 + SAME)
            })
        })
    }
}

/// Lexicographic comparison that ignores rounding errors.
fn is_less(a: [f64; 3], b: [f64; 3]) -> bool {
    let differs = |(a, b): &(f64, f64)| (a - b).abs() > GAIN * (1.0 + b.abs());
    a.into_iter().zip(b).find(differs).is_some_and(|(a, b)| a < b)
}
