//! Use of a shared limit over time, and the times at which it has room for one more job.

use super::super::SharedLimit;
use super::super::problem::RELATIVE_TOLERANCE;
use habitat_base::units::Hours;

/// Amount of a limit in use, as a step function of time. Negative infinity while the limit does not apply.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    most: f64,
    /// Times in hours, each with the amount in use from then on; the first is the start of the plan.
    steps: Vec<(f64, f64)>,
}

/// Tolerance for equal times, in hours.
pub(super) fn rounding(time: f64) -> f64 {
    1e-9 * (1.0 + time)
}

impl SharedLimit {
    /// Time during which the limit applies, in hours; `None` for a budget, which has no time.
    pub(super) fn span(&self) -> Option<[f64; 2]> {
        match self {
            Self::BudgetUsd(_) => None,
            Self::Quota(quota) => {
                Some([quota.from.map_or(0.0, Hours::get), quota.until.map_or(f64::INFINITY, Hours::get)])
            }
            _ => Some([0.0, f64::INFINITY]),
        }
    }
}

impl Timeline {
    /// Timeline of a limit that no job uses.
    pub(super) fn new(limit: &SharedLimit, most: f64) -> Self {
        let mut steps = vec![(0.0, f64::NEG_INFINITY)];
        if let Some([from, until]) = limit.span() {
            if from > 0.0 {
                steps.push((from, 0.0));
            } else {
                steps[0].1 = 0.0;
            }
            if until.is_finite() {
                steps.push((until, f64::NEG_INFINITY));
            }
        }
        Self { most, steps }
    }

    /// Largest amount in use.
    pub(super) fn peak(&self) -> f64 {
        self.steps.iter().map(|(_, used)| *used).fold(0.0, f64::max)
    }

    /// Index of the step at a time.
    fn at(&self, time: f64) -> usize {
        self.steps.partition_point(|(from, _)| *from <= time).saturating_sub(1)
    }

    /// Index of the step that begins at a time; inserts one if there is none.
    fn split(&mut self, time: f64) -> usize {
        let step = self.at(time);
        if self.steps[step].0 == time {
            return step;
        }
        self.steps.insert(step + 1, (time, self.steps[step].1));
        step + 1
    }

    /// Adds an amount from `start` to `end`; a negative amount removes it.
    pub(super) fn add(&mut self, start: f64, end: f64, amount: f64) {
        if end <= start {
            return;
        }
        let (first, last) = (self.split(start), self.split(end));
        for step in &mut self.steps[first..last] {
            step.1 += amount;
        }
        for step in [last, first] {
            let is_same = |a: f64, b: f64| a == b || (a - b).abs() < 1e-12 * (1.0 + a.abs().min(b.abs()));
            if step > 0 && is_same(self.steps[step].1, self.steps[step - 1].1) {
                self.steps.remove(step);
            }
        }
    }

    /// First start from `from` on at which the limit has room for an amount for these hours; infinite if it never has.
    /// Counts the steps looked at in `work`.
    pub(super) fn earliest(&self, from: f64, hours: f64, amount: f64, work: &mut u64) -> f64 {
        let room = self.most * (1.0 + RELATIVE_TOLERANCE);
        let (mut start, mut step) = (from, self.at(from));
        loop {
            *work += 1;
            let next = self.steps.get(step + 1).map(|(time, _)| *time);
            if self.steps[step].1 + amount > room {
                let Some(next) = next else { return f64::INFINITY };
                start = next;
            } else if next.is_none_or(|next| next + rounding(next) >= start + hours) {
                return start;
            }
            step += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Quota;

    #[test]
    fn a_job_starts_when_there_is_room() {
        let limit = |gpus, from, until| {
            SharedLimit::Quota(Box::new(Quota {
                provider: "near".to_owned(),
                region: None,
                gpu: None,
                tier: None,
                gpus,
                from,
                until,
            }))
        };
        let mut work = 0;
        let mut timeline = Timeline::new(&limit(2, None, None), 2.0);
        timeline.add(0.0, 4.0, 1.0);
        timeline.add(1.0, 3.0, 1.0);
        assert_eq!([1.0, 2.0].map(|hours| timeline.earliest(0.0, hours, 1.0, &mut work)), [0.0, 3.0]);
        assert_eq!(timeline.earliest(0.0, 1.0, 2.0, &mut work), 4.0);
        timeline.add(1.0, 3.0, -1.0);
        timeline.add(0.0, 4.0, -1.0);
        assert_eq!(timeline.steps, [(0.0, 0.0)]);
        let [from, until] = [5.0, 7.0].map(|time| Hours::new(time).ok());
        let closed = Timeline::new(&limit(0, from, until), 0.0);
        assert_eq!([5.0, 6.0].map(|hours| closed.earliest(0.0, hours, 1.0, &mut work)), [0.0, 7.0]);
        assert_eq!(Timeline::new(&limit(0, from, None), 0.0).earliest(0.0, 6.0, 1.0, &mut work), f64::INFINITY);
    }
}
