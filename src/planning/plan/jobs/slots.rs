//! Start times of rented jobs that may wait for one another.
//!
//! A way of a job becomes one way for each start, and a limit becomes a row for each start. Usage changes only when a
//! job starts or ends, or a quota begins or ceases to apply. A plan remains valid if each job is moved as early as the
//! limits allow. It then starts at its earliest time, when a quota ceases to apply, or when another job ends. The sums
//! of such times and of the hours of other jobs therefore include all starts that are needed (the normal patterns of
//! packing; Christofides and Whitlock 1977). If there are too many, only [`super::schedule`] searches for a plan.

use super::super::assignment::{Assignment, Bound, Way};
use super::super::problem::SAME;
use super::super::solve::Settings;
use super::super::{Prepared, SharedLimit};
use super::model::Model;
use habitat_base::units::Hours;

/// Maximum number of starts.
const MOST: usize = 64;

/// Tolerance for equal times, in hours.
pub(super) fn rounding(time: f64) -> f64 {
    1e-9 * (1.0 + time)
}

/// Possible starts: sums of the first times and of the hours of jobs, each job at most once; `None` if there are too
/// many.
fn starts(mut times: Vec<f64>, hours: &[Vec<f64>], latest: f64) -> Option<Vec<f64>> {
    for of_job in hours {
        let sums: Vec<f64> = times.iter().flat_map(|time| of_job.iter().map(move |hours| time + hours)).collect();
        times.extend(sums);
        times.retain(|time| *time <= latest);
        times.sort_by(f64::total_cmp);
        times.dedup_by(|later, before| *later - *before <= rounding(*before));
        if times.len() > MOST {
            return None;
        }
    }
    Some(times)
}

impl SharedLimit {
    /// Whether it applies at a time.
    pub(super) fn holds(&self, time: f64) -> bool {
        let Self::Quota(quota) = self else { return true };
        quota.from.is_none_or(|from| from.get() <= time + rounding(time))
            && quota.until.is_none_or(|until| time + rounding(time) < until.get())
    }

    /// Times at which it begins or ceases to apply.
    pub(super) fn edges(&self) -> impl Iterator<Item = f64> {
        let edges = if let Self::Quota(quota) = self { [quota.from, quota.until] } else { [None; 2] };
        edges.into_iter().flatten().map(Hours::get)
    }
}

impl Model {
    /// Allows rented jobs to wait: creates a way for each start from the job's earliest time on, within its deadline.
    pub(super) fn wait(&mut self, prepared: &[Prepared], earliest: &[Hours]) {
        let deadline = |job: usize| prepared[job].goal.deadline.map_or(f64::INFINITY, Hours::get);
        let latest = (0..prepared.len()).map(deadline).fold(0.0, f64::max);
        let first = earliest.iter().map(|hours| hours.get()).chain(self.limits.iter().flat_map(SharedLimit::edges));
        let hours: Vec<Vec<f64>> =
            self.assignment.jobs.iter().map(|ways| ways.iter().map(|way| way.hours).collect()).collect();
        let times = starts([0.0].into_iter().chain(first).collect(), &hours, latest);
        self.bases.clone_from(&self.assignment.jobs);
        self.of_bases.clone_from(&self.configurations);
        let Some(times) = times else { return };
        // Rows of each limit with their times; a budget has no time.
        let mut rows: Vec<Vec<(usize, Option<f64>)>> = Vec::new();
        let mut bounds: Vec<Bound> = Vec::new();
        for bound in &self.assignment.bounds {
            let limit = &self.limits[bound.limit];
            let of_limit: Vec<Option<f64>> = match limit {
                SharedLimit::BudgetUsd(_) => vec![None],
                _ => times.iter().filter(|time| limit.holds(**time)).map(|time| Some(*time)).collect(),
            };
            rows.push((bounds.len()..).zip(of_limit.iter().copied()).collect());
            bounds.extend(of_limit.iter().map(|_| *bound));
        }
        self.assignment.bounds = bounds;
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
            (*ways, *configurations) = (later, of_later);
            self.starts.push(starts);
        }
    }

    /// Lower bound on plans with waiting jobs, for any starts. Up to the last deadline, a limit provides its maximum
    /// times these hours, and the jobs together cannot use more.
    pub(super) fn least(&self, prepared: &[Prepared], settings: Settings) -> f64 {
        let deadlines = prepared.iter().map(|of_job| of_job.goal.deadline.map_or(f64::INFINITY, Hours::get));
        let latest = deadlines.fold(0.0, f64::max);
        let mut area = Assignment { jobs: self.bases.clone(), ..Assignment::default() };
        let hours = |limit: &SharedLimit| match limit {
            SharedLimit::BudgetUsd(_) => Some(1.0),
            SharedLimit::Quota(quota) if !quota.is_lasting() => None,
            _ => Some(latest).filter(|latest| latest.is_finite()),
        };
        let mut rows = vec![None; self.limits.len()];
        for (limit, of) in self.limits.iter().enumerate() {
            let Some(hours) = hours(of) else { continue };
            rows[limit] = Some(area.bounds.len());
            area.bounds.push(Bound { most: of.most() * hours, limit });
        }
        for way in area.jobs.iter_mut().flatten() {
            let is_once = |limit: usize| matches!(self.limits[limit], SharedLimit::BudgetUsd(_));
            let uses = way
                .uses
                .iter()
                .map(|(limit, amount)| (rows[*limit], if is_once(*limit) { *amount } else { amount * way.hours }));
            way.uses = uses.filter_map(|(row, amount)| Some((row?, amount))).collect();
        }
        area.best(settings).map_or(0.0, |found| found.bound).max(self.cheapest_each())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_sums_of_first_times_and_hours() {
        let times = starts(vec![0.0, 1.0], &[vec![2.0], vec![5.0, 2.0]], 8.0);
        assert_eq!(times, Some(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]));
        let many: Vec<Vec<f64>> = (1..14).map(|job| vec![f64::from(1 << job)]).collect();
        assert_eq!(starts(vec![0.0], &many, 1e9), None);
    }
}
