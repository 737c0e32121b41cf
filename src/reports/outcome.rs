//! A plan and what happened: how far apart they are, and which part of the difference comes from
//! the amount of work, the step time, set-up and losses, and the price.
//!
//! With `U` the hours of steps that a plan's parts state (steps × step time), `w` the work done over
//! the work planned and `r` the measured over the planned step time, the hours differ by
//!
//! - amount of work: `U · (w − 1)`
//! - step time: `U · w · (r − 1)`
//! - set-up and losses: what both have beyond their steps, happened − planned
//!
//! and the cost by each of these at the planned price of an hour, and by the hours that happened at
//! the difference of the prices. The shares add up to the difference.

mod run;
mod text;

use serde::Serialize;

pub use run::{JOB, Run, RunFileError};
pub use text::write;

use super::plan_toml::{FilePart, PlanFile};
use habitat_base::units::{Hours, Usd};

/// Microseconds of an hour.
const HOUR_US: f64 = 3.6e9;

/// Why a plan and a run cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutcomeError {
    /// There is nothing to compare with.
    #[error("the file has no plan: no offer met its limits")]
    NoPlan,
    /// The run says nothing that a plan says too.
    #[error("nothing to compare: give hours, cost_usd or a measured step")]
    NothingMeasured,
    /// The step was measured on a GPU that the plan does not use.
    #[error("the step was measured on {measured}, the plan uses {planned}")]
    OtherGpu {
        /// Slug.
        measured: String,
        /// Slugs.
        planned: String,
    },
    /// The step has another batch size.
    #[error("the step was measured at batch size {measured}, the plan has {planned} on each GPU")]
    OtherBatch {
        /// As measured.
        measured: u64,
        /// As planned.
        planned: u64,
    },
    /// A plan of several parts, and it is not told which is meant.
    #[error("the plan has {0} parts: {1}")]
    WhichPart(usize, &'static str),
    /// The work of the run is in a unit that the plan does not have.
    #[error("the plan counts its work in steps: give steps, not samples")]
    Samples,
}

/// What was planned and what happened.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Compared {
    /// Low end, expected value, high end.
    pub planned: [f64; 3],
    /// What happened.
    pub happened: f64,
    /// Whether that is within the range.
    pub within: bool,
}

/// One cause of the difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// In words.
    pub cause: &'static str,
    /// Hours more than planned; `None` where the cause takes no time, or no hours are known.
    pub hours: Option<f64>,
    /// US dollars more than planned; `None` where no cost is known.
    pub cost_usd: Option<f64>,
}

/// A plan and what happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Always `habitat-outcome`.
    pub format: &'static str,
    /// Version of the form, 1.
    pub version: u32,
    /// Time of one step on all GPUs, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time_us: Option<Compared>,
    /// Elapsed hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hours: Option<Compared>,
    /// Cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Compared>,
    /// Work done over work planned.
    pub work_ratio: f64,
    /// What the difference is made of; empty where the hours are not known.
    pub shares: Vec<Share>,
    /// What was taken to be so.
    pub notes: Vec<String>,
}

/// Compares a plan with what happened.
///
/// # Errors
/// [`OutcomeError`] where the two do not fit together.
pub fn outcome(plan: &PlanFile, run: &Run) -> Result<Outcome, OutcomeError> {
    let totals = plan.totals.filter(|_| !plan.parts.is_empty()).ok_or(OutcomeError::NoPlan)?;
    if run.hours.is_none() && run.cost_usd.is_none() && run.step_time_us.is_none() {
        return Err(OutcomeError::NothingMeasured);
    }
    let measured = measured_part(plan, run)?;
    let work = work_ratio(plan, run)?;
    let mut notes = Vec::new();
    if let Some(part) = measured.filter(|part| run.alone && part.gpu_count > 1) {
        let gpus = part.gpu_count;
        notes.push(format!("the recorded step has no communication, the planned one is that of {gpus} GPUs together"));
    }
    if let Some(part) = measured.filter(|part| part.accumulation > 1) {
        let batches = part.accumulation;
        notes
            .push(format!("the planned step is an update of {batches} batches a GPU, and so must be the measured one"));
    }
    if run.cost_usd.is_some() && plan.parts.iter().any(|part| part.contract.is_some()) {
        notes.push(
            "terms of a contract are paid whole: the dollars of more or fewer hours are at the planned cost of an hour of use".to_owned(),
        );
    }
    if work.is_none() {
        notes.push("the work planned is taken to have been done: give samples or steps if it was not".to_owned());
    }
    let work = work.unwrap_or(1.0);
    let step = measured.and_then(|part| run.step_time_us.map(|step| compared(part.step_time_us, step.get())));
    Ok(Outcome {
        format: "habitat-outcome",
        version: 1,
        step_time_us: step,
        hours: run.hours.map(|hours| compared(totals.hours.map(Hours::get), hours.get())),
        cost_usd: run.cost_usd.map(|cost| compared(totals.cost_usd.map(Usd::get), cost.get())),
        work_ratio: work,
        shares: shares(plan, run, work, measured),
        notes,
    })
}

fn compared(planned: [f64; 3], happened: f64) -> Compared {
    Compared { planned, happened, within: (planned[0]..=planned[2]).contains(&happened) }
}

/// The part that the measured step is of.
fn measured_part<'a>(plan: &'a PlanFile, run: &Run) -> Result<Option<&'a FilePart>, OutcomeError> {
    if run.step_time_us.is_none() {
        return Ok(None);
    }
    let fits = |part: &&FilePart| run.gpu.as_ref().is_none_or(|gpu| gpu.as_str() == part.gpu);
    let mut fitting = plan.parts.iter().filter(fits);
    let part = match (fitting.next(), fitting.next(), &run.gpu) {
        (Some(part), None, _) => part,
        (Some(_), Some(_), _) => {
            return Err(OutcomeError::WhichPart(
                plan.parts.len(),
                "the GPU does not say which the measured step is of",
            ));
        }
        (None, _, gpu) => {
            let planned: Vec<&str> = plan.parts.iter().map(|part| part.gpu.as_str()).collect();
            let measured = gpu.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(OutcomeError::OtherGpu { measured, planned: planned.join(", ") });
        }
    };
    match (run.batch_size, part.batch_size) {
        (Some(measured), Some(planned)) if measured != planned => Err(OutcomeError::OtherBatch { measured, planned }),
        _ => Ok(Some(part)),
    }
}

/// The work done over the work planned; `None` where it is not said.
fn work_ratio(plan: &PlanFile, run: &Run) -> Result<Option<f64>, OutcomeError> {
    let in_samples = plan.parts.iter().all(|part| part.samples.is_some());
    let planned: f64 = plan.parts.iter().filter_map(|part| part.samples.or(part.steps)).sum();
    if let Some(samples) = run.samples {
        return if in_samples { Ok(Some(samples.get() / planned)) } else { Err(OutcomeError::Samples) };
    }
    match (run.steps, &plan.parts[..]) {
        (None, _) => Ok(None),
        (Some(steps), [part]) => Ok(Some(steps as f64 / steps_of(part))),
        (Some(_), parts) => Err(OutcomeError::WhichPart(parts.len(), "say the work in samples, not in steps")),
    }
}

/// Steps of the job: each is done by all GPUs at once.
fn steps_of(part: &FilePart) -> f64 {
    match (part.samples, part.global_batch_size) {
        (Some(samples), Some(batch)) => samples / batch as f64,
        _ => {
            part.samples.or(part.steps).unwrap_or_default()
                / f64::from(part.gpu_count / part.model_parallel.gpus().max(1))
        }
    }
}

/// Hours that the steps of a part take.
fn useful(part: &FilePart) -> f64 {
    steps_of(part) * part.step_time_us[1] / HOUR_US
}

fn shares(plan: &PlanFile, run: &Run, work: f64, measured: Option<&FilePart>) -> Vec<Share> {
    let (Some(totals), Some(hours)) = (plan.totals, run.hours.map(Hours::get)) else { return Vec::new() };
    let planned = totals.hours[1].get();
    let steps: f64 = plan.parts.iter().map(useful).sum();
    let beyond = planned - steps;
    let slower = measured.zip(run.step_time_us).map(|(part, step)| {
        // Only the part that was measured is known to be slower or faster.
        useful(part) * work * (step.get() / part.step_time_us[1] - 1.0)
    });
    let lost = run.lost_hours.map(Hours::get);
    let mut times = vec![("amount of work", steps * (work - 1.0))];
    match (slower, lost) {
        (Some(slower), None) => {
            times.push(("step time", slower));
            times.push(("set-up and losses", hours - (steps * work + slower) - beyond));
        }
        (Some(slower), Some(lost)) => {
            times.push(("step time", slower));
            times.push(("set-up and losses", lost - beyond));
            times.push(("not accounted for", hours - (steps * work + slower) - lost));
        }
        (None, Some(lost)) => {
            times.push(("step time", hours - lost - steps * work));
            times.push(("set-up and losses", lost - beyond));
        }
        (None, None) => times.push(("step time, set-up and losses", hours - steps * work - beyond)),
    }
    // Zero for a machine of one's own: the whole difference is one of price then.
    let price = if planned > 0.0 { totals.cost_usd[1].get() / planned } else { 0.0 };
    let cost = run.cost_usd.map(Usd::get);
    let mut shares: Vec<Share> = times
        .into_iter()
        .map(|(cause, hours)| Share { cause, hours: Some(hours), cost_usd: cost.map(|_| hours * price) })
        .collect();
    shares.extend(cost.map(|cost| Share { cause: "price", hours: None, cost_usd: Some(cost - hours * price) }));
    shares
}

#[cfg(test)]
mod tests;
