//! Dollars of time: deadlines that jobs may miss at a price, and the value of an hour of waiting.

use super::{Aim, Job, JobsPlan, PlannedJob, Shared};
use crate::plan::Confidence;
use habitat_base::units::{Hours, Usd, UsdPerHour};

/// A deadline that a job may miss at a price (weighted tardiness).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftDeadline {
    /// Hours from the start of the plan.
    pub deadline: Hours,
    /// Price of each hour after it.
    pub usd_per_hour: UsdPerHour,
}

impl Job {
    /// Deadlines that the job may miss: its own, and the shared one.
    pub(super) fn soft_deadlines(&self, shared: &Shared) -> impl Iterator<Item = SoftDeadline> + use<> {
        let soft = |deadline: Option<Hours>, price: Option<UsdPerHour>| {
            Some(SoftDeadline { deadline: deadline?, usd_per_hour: price? })
        };
        [soft(self.goal.deadline, self.late_price), soft(shared.deadline, shared.late_price)].into_iter().flatten()
    }
}

/// Dollars of the time until jobs end, by the end of the hours that the confidence selects.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TimeCost {
    /// For hours after deadlines that jobs may miss.
    pub late: Usd,
    /// For the hours until each job, and all jobs, have ended.
    pub waiting: Usd,
}

impl TimeCost {
    /// Sum of both.
    pub fn total(&self) -> Usd {
        self.late + self.waiting
    }
}

impl PlannedJob {
    /// Hours by which it ends after a deadline; 0 if it does not.
    pub fn late(&self, deadline: Hours, confidence: Confidence) -> Hours {
        confidence.end(&self.end).checked_sub(deadline).unwrap_or_default()
    }

    /// Dollars of its own time.
    pub fn time_cost(&self, confidence: Confidence) -> TimeCost {
        let late = |soft: &SoftDeadline| soft.usd_per_hour * self.late(soft.deadline, confidence);
        let waiting = self.hour_value.map(|price| price * self.late(self.earliest, confidence));
        TimeCost { late: self.soft_deadlines.iter().map(late).sum(), waiting: waiting.unwrap_or_default() }
    }
}

/// Dollars of the time of all jobs; `None` without a price of time.
pub(super) fn cost(plan: &JobsPlan) -> Option<TimeCost> {
    let all = plan.shared.hour_value.filter(|price| price.get() > 0.0);
    let has_price = |job: &PlannedJob| !job.soft_deadlines.is_empty() || job.hour_value.is_some();
    if plan.aim != Aim::Cost || (all.is_none() && !plan.jobs.iter().any(has_price)) {
        return None;
    }
    let confidence = plan.shared.confidence;
    let last = plan.jobs.iter().map(|job| confidence.end(&job.end)).fold(Hours::ZERO, Hours::max);
    let until_last = TimeCost { waiting: all.map(|price| price * last).unwrap_or_default(), ..TimeCost::default() };
    let add = |a: TimeCost, b: TimeCost| TimeCost { late: a.late + b.late, waiting: a.waiting + b.waiting };
    Some(plan.jobs.iter().map(|job| job.time_cost(confidence)).fold(until_last, add))
}
