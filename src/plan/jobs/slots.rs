//! When rented jobs start that may wait for one another (planner note B3, Level 2).
//!
//! Every way of a job becomes one way for each start, and what a limit leaves at once is a row for
//! each start. What runs changes only where a job starts or ends, or a quota begins or ceases to
//! hold. A plan stays one when each job is moved to the left as far as the limits let it: then it
//! starts at its earliest, where a quota ceases to hold, or where another job ends. So the sums of
//! such times and of the hours of other jobs are all the starts that are needed (the normal patterns
//! of packing; Christofides and Whitlock 1977). Where there are too many, an even choice of them is
//! taken, and the plan is not called the best.

use super::super::Prepared;
use super::super::assignment::{Bound, Way};
use super::super::search::SAME;
use super::model::{Model, SharedLimit};
use crate::units::Hours;

/// Starts at most.
const MOST: usize = 48;
/// Ways in all at most, each start of each counted.
const MOST_WAYS: usize = 6000;
/// Sums of hours at most before some are chosen.
const MOST_SUMS: usize = 4096;

/// Hours before which a time is the same.
fn rounding(time: f64) -> f64 {
    1e-9 * (1.0 + time)
}

/// The starts to choose from, and whether no other is needed: sums of the first times and of the
/// hours of jobs, each job once.
fn starts(first: Vec<f64>, hours: &[Vec<f64>], latest: f64) -> (Vec<f64>, bool) {
    let mut times = first;
    let mut is_complete = true;
    sorted(&mut times, latest);
    for of_job in hours {
        let sums: Vec<f64> = times.iter().flat_map(|time| of_job.iter().map(move |hours| time + hours)).collect();
        times.extend(sums);
        sorted(&mut times, latest);
        is_complete &= thinned(&mut times, MOST_SUMS);
    }
    let ways = hours.iter().map(Vec::len).sum::<usize>().max(1);
    is_complete &= thinned(&mut times, (MOST_WAYS / ways).clamp(2, MOST));
    (times, is_complete)
}

fn sorted(times: &mut Vec<f64>, latest: f64) {
    times.retain(|time| *time <= latest);
    times.sort_by(f64::total_cmp);
    times.dedup_by(|later, before| *later - *before <= rounding(*before));
}

/// Leaves so many, the first and the last among them; whether that was all.
fn thinned(times: &mut Vec<f64>, most: usize) -> bool {
    let count = times.len();
    if count <= most {
        return true;
    }
    *times = (0..most).map(|place| times[place * (count - 1) / (most - 1)]).collect();
    false
}

impl SharedLimit {
    /// Whether it holds at a time.
    fn holds(&self, time: f64) -> bool {
        let Self::Quota(quota) = self else { return true };
        quota.from.is_none_or(|from| from.get() <= time + rounding(time))
            && quota.until.is_none_or(|until| time + rounding(time) < until.get())
    }

    /// Where it begins or ceases to hold.
    fn edges(&self) -> impl Iterator<Item = f64> {
        let edges = if let Self::Quota(quota) = self { [quota.from, quota.until] } else { [None; 2] };
        edges.into_iter().flatten().map(Hours::get)
    }
}

impl Model {
    /// Lets jobs that rent wait: every way at every start from the job's earliest on, within its
    /// deadline.
    pub(super) fn wait(&mut self, prepared: &[Prepared], earliest: &[Hours]) {
        let deadline = |job: usize| prepared[job].goal.deadline.map_or(f64::INFINITY, Hours::get);
        let latest = (0..prepared.len()).map(deadline).fold(0.0, f64::max);
        let first = earliest.iter().map(|hours| hours.get()).chain(self.limits.iter().flat_map(SharedLimit::edges));
        let hours: Vec<Vec<f64>> =
            self.assignment.jobs.iter().map(|ways| ways.iter().map(|way| way.hours).collect()).collect();
        let (times, is_complete) = starts([0.0].into_iter().chain(first).collect(), &hours, latest);
        // The rows of each limit, with the time that they are of; a budget has no time.
        let mut rows: Vec<Vec<(usize, Option<f64>)>> = Vec::new();
        let mut bounds: Vec<Bound> = Vec::new();
        for bound in &self.assignment.bounds {
            let limit = &self.limits[bound.limit];
            let of_limit: Vec<Option<f64>> = match limit {
                SharedLimit::Budget(_) => vec![None],
                _ => times.iter().filter(|time| limit.holds(**time)).map(|time| Some(*time)).collect(),
            };
            rows.push((bounds.len()..).zip(of_limit.iter().copied()).collect());
            bounds.extend(of_limit.iter().map(|_| *bound));
        }
        self.assignment.bounds = bounds;
        self.is_complete = is_complete;
        for (job, (ways, configurations)) in self.assignment.jobs.iter_mut().zip(&mut self.configurations).enumerate() {
            let due = deadline(job) * (1.0 + SAME);
            let least = earliest[job].get();
            let (mut later, mut of_later, mut starts) = (Vec::new(), Vec::new(), Vec::new());
            for (base, (way, configuration)) in ways.iter().zip(configurations.iter()).enumerate() {
                for start in times.iter().copied().filter(|start| *start + rounding(*start) >= least) {
                    let end = start + way.hours;
                    if end > due {
                        break;
                    }
                    let during =
                        |time: &Option<f64>| time.is_none_or(|time| start <= time && time + rounding(time) < end);
                    let uses = way.uses.iter().flat_map(|(limit, amount)| {
                        let of_limit = rows[*limit].iter().filter(|(_, time)| during(time));
                        of_limit.map(|(row, _)| (*row, *amount))
                    });
                    later.push(Way { hours: end, uses: uses.collect(), ..way.clone() });
                    of_later.push(*configuration);
                    starts.push((base, start));
                }
            }
            self.at_once.push(std::mem::replace(ways, later));
            *configurations = of_later;
            self.starts.push(starts);
        }
    }

    /// The starts of the ways taken, each moved to the left as far as the limits let it, in the
    /// order of the starts.
    pub(super) fn starts_of(&self, ways: &[usize], earliest: &[Hours]) -> Vec<f64> {
        if self.starts.is_empty() {
            return vec![0.0; ways.len()];
        }
        let planned = |job: usize| self.starts[job][ways[job]];
        let mut order: Vec<usize> = (0..ways.len()).collect();
        order.sort_by(|a, b| planned(*a).1.total_cmp(&planned(*b).1));
        let mut placed: Vec<(f64, f64, Vec<(usize, f64)>)> = Vec::new();
        let mut starts = vec![0.0; ways.len()];
        let edges: Vec<f64> = self.limits.iter().flat_map(SharedLimit::edges).collect();
        for job in order {
            let (base, own) = planned(job);
            let way = &self.at_once[job][base];
            let is_of_time = |(limit, _): &&(usize, f64)| !matches!(self.limits[*limit], SharedLimit::Budget(_));
            let draws: Vec<(usize, f64)> = way.uses.iter().filter(is_of_time).copied().collect();
            let fits = |start: f64| {
                let end = start + way.hours;
                let moments = placed.iter().map(|(start, ..)| *start).chain(edges.iter().copied());
                let inside = moments.filter(|time| start < *time && *time + rounding(*time) < end);
                let times: Vec<f64> = inside.chain([start]).collect();
                draws.iter().all(|(limit, amount)| {
                    times.iter().filter(|time| self.limits[*limit].holds(**time)).all(|time| {
                        let runs =
                            placed.iter().filter(|(start, end, _)| start <= time && *time + rounding(*time) < *end);
                        let of_limit = runs.flat_map(|(_, _, draws)| draws).filter(|(of, _)| of == limit);
                        let used: f64 = of_limit.map(|(_, amount)| amount).sum();
                        used + amount <= self.limits[*limit].most() * (1.0 + SAME)
                    })
                })
            };
            let times = placed.iter().map(|(_, end, _)| *end).chain(edges.iter().copied());
            let times = times.chain([earliest[job].get()]);
            let earlier = times.filter(|time| (earliest[job].get()..own).contains(time));
            let start = earlier.filter(|time| fits(*time)).fold(own, f64::min);
            starts[job] = start;
            placed.push((start, start + way.hours, draws));
        }
        starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_sums_of_first_times_and_hours() {
        let (times, is_complete) = starts(vec![0.0, 1.0], &[vec![2.0], vec![5.0, 2.0]], 8.0);
        assert_eq!((times, is_complete), (vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], true));
        let many: Vec<Vec<f64>> = (1..14).map(|job| vec![f64::from(1 << job)]).collect();
        let (times, is_complete) = starts(vec![0.0], &many, 1e9);
        assert!(!is_complete && times.len() == MOST && times[0] == 0.0, "{times:?}");
    }
}
