//! JSON form of a plan for several jobs.

use schemars::JsonSchema;
use serde::Serialize;

use super::waits_for;
use crate::parts::{self, PartJson};
use crate::plans::TotalJson;
use crate::words::Note;
use crate::words::assumed::{Assumed, assumed};
use habitat_base::units::{Hours, Range};
use habitat_planning::plan::jobs::{Aim, JobsPlan, PlannedJob, SoftDeadline, TimeCost};
use habitat_planning::plan::{PlanStatus, Quota, SolverReport};

/// Output of `plan-jobs --json`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "habitat-tui plan-jobs")]
pub struct JobsJson<'a> {
    /// Always `habitat-jobs-plan`.
    pub format: &'static str,
    /// Version of the format, 2.
    pub version: u32,
    /// `optimal`, `gap_limit`, `time_limit` or `infeasible`. `time_limit` without jobs: none found in time, so it is
    /// unknown whether a plan exists.
    #[schemars(with = "String")]
    pub status: PlanStatus,
    /// Objective: `cost` of all jobs, or `makespan`, the hours until the last job ends, at the end of the range that
    /// the confidence selects.
    pub aim: &'static str,
    /// End of the hours that has to meet the deadlines: `expected` (the middle) or `high`.
    pub confidence: &'static str,
    /// Latest finish of each job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_hours: Option<f64>,
    /// US dollars for each hour by which a job ends after `deadline_hours`; absent if jobs have to meet it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_usd_per_hour: Option<f64>,
    /// US dollars for each hour until all jobs have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hour_value: Option<f64>,
    /// Budget for all jobs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// Most dollars per hour for all jobs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_usd_per_hour: Option<f64>,
    /// Limits on GPUs used at the same time by all jobs together.
    #[serde(skip_serializing_if = "<[Quota]>::is_empty")]
    pub quotas: &'a [Quota],
    /// Whether jobs on rented machines may wait for one another; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
    /// The jobs, in the order of the file; empty without a plan.
    pub jobs: Vec<JobJson<'a>>,
    /// Hours until the last job ends, and the cost of all jobs; absent without a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<TotalJson>,
    /// US dollars of the time until jobs end, in the objective and the bound but not in the cost; absent if time has no
    /// price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_cost: Option<TimeJson>,
    /// Lower bound of the objective: dollars, or hours of the makespan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<f64>,
    /// Reasons why no plan exists, and changes that would allow one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Note>,
    /// The solver.
    pub solver: &'a SolverReport,
    /// Warnings on the predicted times; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Note>,
    /// Fallbacks that affect the result.
    pub notes: Vec<Note>,
}

/// One job of the plan.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JobJson<'a> {
    /// Name of the job.
    pub name: &'a str,
    /// Own machine that runs it; absent if it is rented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<&'a str>,
    /// Start, in hours from the start of the first job.
    pub start_hours: Range<f64>,
    /// End, in hours from the start of the first job.
    pub end_hours: Range<f64>,
    /// Weight of its end among plans of equal cost or makespan; absent if 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// Jobs that end before it starts; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<&'a str>,
    /// Deadline of the job or the shared one, which it meets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_hours: Option<f64>,
    /// Deadlines that it may miss at a price; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub soft_deadlines: Vec<SoftJson>,
    /// US dollars for each hour from its earliest start until its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hour_value: Option<f64>,
    /// US dollars of its own time; absent if it has no price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_cost: Option<TimeJson>,
    /// Offer and GPUs that run it.
    pub part: PartJson<'a>,
    /// Assumptions about the job, with their sources.
    pub assumptions: Vec<Assumed>,
    /// Notes on the job.
    pub notes: Vec<Note>,
}

/// US dollars of time.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TimeJson {
    /// For hours after deadlines that jobs may miss.
    pub late_usd: f64,
    /// For hours of waiting.
    pub waiting_usd: f64,
}

/// A deadline that a job may miss.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SoftJson {
    /// Hours from the start of the plan.
    pub deadline_hours: f64,
    /// US dollars for each hour after it.
    pub usd_per_hour: f64,
    /// Hours by which the job ends after it.
    pub late_hours: f64,
}

impl TimeJson {
    fn new(time: &TimeCost) -> Self {
        Self { late_usd: time.late.get(), waiting_usd: time.waiting.get() }
    }
}

/// Builds the JSON form.
pub(crate) fn json(plan: &JobsPlan) -> JobsJson<'_> {
    let shared = &plan.shared;
    JobsJson {
        format: "habitat-jobs-plan",
        version: 2,
        status: plan.status,
        aim: if plan.aim == Aim::Cost { "cost" } else { "makespan" },
        confidence: shared.confidence.name(),
        deadline_hours: shared.deadline.map(Into::into),
        late_usd_per_hour: shared.late_price.map(Into::into),
        hour_value: shared.hour_value.map(Into::into),
        budget_usd: shared.budget.map(Into::into),
        max_usd_per_hour: shared.max_price.map(Into::into),
        quotas: &shared.quotas,
        wait: shared.wait,
        jobs: plan.jobs.iter().map(|of| job(plan, of)).collect(),
        total: plan.total.as_ref().map(TotalJson::new),
        time_cost: plan.time_cost.as_ref().map(TimeJson::new),
        lower_bound: plan.bound,
        reasons: Note::all(&plan.reasons),
        solver: &plan.solver,
        warnings: Note::all(&plan.warnings),
        notes: Note::all(&plan.notes),
    }
}

fn job<'a>(plan: &'a JobsPlan, job: &'a PlannedJob) -> JobJson<'a> {
    let confidence = plan.shared.confidence;
    let soft = |soft: &SoftDeadline| SoftJson {
        deadline_hours: soft.deadline.get(),
        usd_per_hour: soft.usd_per_hour.get(),
        late_hours: job.late(soft.deadline, confidence).get(),
    };
    let has_price = job.hour_value.is_some() || !job.soft_deadlines.is_empty();
    JobJson {
        name: &job.name,
        machine: job.machine.as_deref(),
        start_hours: job.start.map(Hours::get),
        end_hours: job.end.map(Hours::get),
        priority: Some(job.priority).filter(|priority| *priority != 1.0),
        after: waits_for(plan, job).collect(),
        deadline_hours: job.deadline.map(Into::into),
        soft_deadlines: job.soft_deadlines.iter().map(soft).collect(),
        hour_value: job.hour_value.map(Into::into),
        time_cost: has_price.then(|| TimeJson::new(&job.time_cost(confidence))),
        part: parts::part(&job.part),
        assumptions: assumed(&job.goal),
        notes: Note::all(&job.notes),
    }
}
