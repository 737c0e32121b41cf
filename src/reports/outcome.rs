//! Comparison of a plan with what happened, and shares of the difference: each hour and each dollar has a cause.
//!
//! The plan's hours are those of its steps `U` (steps × step time), of the start `S` (boot and set-up), and of losses `L`
//! (the rest: lost machines, repeated work, copies of data). With `w` the work done over the work planned, the hours
//! that happened differ by
//!
//! - amount of work: `U · (w − 1)`
//! - step time: `U · w · (r − 1)` for `r`, the measured over the planned step time without waiting for data; of a job
//!   that was followed, its median
//! - waiting for data: what its steps waited, by the job's recorder; the recorded step may have waited too, which is
//!   part of its time
//! - pauses between steps: what the steps took beyond their median (evaluation, checkpoints, stragglers)
//! - recording: what opening and closing windows took
//! - start-up and losses: as reported, else the time that is not in any of these, − `S` − `L`; separately if
//!   the run reports its set-up or had no losses
//! - after the last step: what is then left of a job that was followed
//!
//! The cost differs by each of these at the planned price per hour, and by the hours that happened at the difference of
//! the prices. The shares add up to the difference. Facts that the run does not report are joined with the next cause.

mod run;
mod text;

use serde::Serialize;

pub use run::{JOB, Run, RunFileError};
pub use text::write;

use super::plan_toml::{FilePart, PlanFile};
use habitat_base::units::{Hours, Usd};

/// Microseconds per hour.
const HOUR_US: f64 = 3.6e9;

/// Error: a plan and a run cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutcomeError {
    /// The file has no plan.
    #[error("the file has no plan: no offer met its limits")]
    NoPlan,
    /// The run has no figure that a plan also has.
    #[error("nothing to compare: add hours, cost_usd or a measured step")]
    NothingMeasured,
    /// The step was measured on a GPU that the plan does not use.
    #[error("the step was measured on {measured}, the plan uses {planned}")]
    OtherGpu {
        /// Slug of the measured GPU.
        measured: String,
        /// Slugs of the planned GPUs.
        planned: String,
    },
    /// The step was measured at another batch size.
    #[error("the step was measured at batch size {measured}, the plan has {planned} on each GPU")]
    OtherBatch {
        /// Measured batch size.
        measured: u64,
        /// Planned batch size.
        planned: u64,
    },
    /// The plan has several parts, and the run does not identify one.
    #[error("the plan has {0} parts: {1}")]
    WhichPart(usize, &'static str),
    /// The run counts work in samples, the plan in steps.
    #[error("the plan counts its work in steps: use steps, not samples")]
    Samples,
}

/// A planned range and the actual value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Compared {
    /// Low end, expected value, high end.
    pub planned: [f64; 3],
    /// Actual value.
    pub happened: f64,
    /// Whether the actual value is within the planned range.
    pub within: bool,
}

/// One cause of the difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// Cause in words.
    pub cause: &'static str,
    /// Hours more than planned; `None` if the cause takes no time or the hours are unknown.
    pub hours: Option<f64>,
    /// US dollars more than planned; `None` if the cost is unknown.
    pub cost_usd: Option<f64>,
}

/// Comparison of a plan with what happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Always `habitat-outcome`.
    pub format: &'static str,
    /// Version of the format, 1.
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
    /// Causes of the difference; empty if the hours are unknown.
    pub shares: Vec<Share>,
    /// Assumptions.
    pub notes: Vec<String>,
}

/// Compares a plan with what happened.
///
/// # Errors
/// [`OutcomeError`] if the two cannot be compared.
pub fn outcome(plan: &PlanFile, run: &Run) -> Result<Outcome, OutcomeError> {
    let totals = plan.totals.filter(|_| !plan.parts.is_empty()).ok_or(OutcomeError::NoPlan)?;
    if run.hours.is_none() && run.cost_usd.is_none() && run.step_time_us.is_none() {
        return Err(OutcomeError::NothingMeasured);
    }
    let measured = measured_part(plan, run)?;
    let work = work_ratio(plan, run)?;
    let mut notes = Vec::new();
    if let Some(part) = measured.filter(|part| run.alone && part.all_gpus > 1) {
        let gpus = part.all_gpus;
        notes.push(format!("the measured step has no communication, the planned one includes that of {gpus} GPUs"));
    }
    if let Some(part) = measured.filter(|part| part.accumulation > 1) {
        let batches = part.accumulation;
        notes.push(format!(
            "the planned step is an update of {batches} batches per GPU; the measured one has to be the same"
        ));
    }
    if run.cost_usd.is_some() && plan.parts.iter().any(|part| part.contract.is_some()) {
        notes.push(
            "contracts are paid in whole terms: extra hours are priced at the planned cost per hour of use".to_owned(),
        );
    }
    if work.is_none() {
        notes.push("assuming that all planned work was done; if not, add samples or steps".to_owned());
    }
    let work = work.unwrap_or(1.0);
    let of_job = run.followed.as_ref().zip(plan.parts.first().filter(|_| plan.parts.len() == 1));
    let step = measured
        .and_then(|part| run.step_time_us.map(|step| compared(part.step_time_us, step.get())))
        .or_else(|| of_job.map(|(followed, part)| compared(part.step_time_us, followed.median_us)));
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

/// The part of the plan whose step was measured.
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
                "the GPU does not identify the part that was measured",
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

/// Work done over work planned; `None` if the run does not report its work.
fn work_ratio(plan: &PlanFile, run: &Run) -> Result<Option<f64>, OutcomeError> {
    let in_samples = plan.parts.iter().all(|part| part.samples.is_some());
    let planned: f64 = plan.parts.iter().filter_map(|part| part.samples.or(part.steps)).sum();
    if let Some(samples) = run.samples {
        return if in_samples { Ok(Some(samples.get() / planned)) } else { Err(OutcomeError::Samples) };
    }
    match (run.steps, &plan.parts[..]) {
        (None, _) => Ok(None),
        (Some(steps), [part]) => Ok(Some(steps as f64 / steps_of(part))),
        (Some(_), parts) => Err(OutcomeError::WhichPart(parts.len(), "report the work in samples, not in steps")),
    }
}

/// Steps of the job; all GPUs take part in each step.
pub(crate) fn steps_of(part: &FilePart) -> f64 {
    match (part.samples, part.global_batch_size) {
        (Some(samples), Some(batch)) => samples / batch as f64,
        _ => {
            part.samples.or(part.steps).unwrap_or_default()
                / f64::from(part.all_gpus / part.model_parallel.gpus().max(1))
        }
    }
}

/// Hours of a part's steps.
fn useful(part: &FilePart) -> f64 {
    steps_of(part) * part.step_time_us[1] / HOUR_US
}

/// Hours of a part before its first step: own machines need no set-up.
fn start_up(plan: &PlanFile, part: &FilePart) -> f64 {
    let is_own = part.offer.as_str().ends_with("/owned");
    if is_own { 0.0 } else { plan.goal.assumptions.setup.get() }
}

/// Hours of start-up and losses beyond those of the plan, from the `happened` and `planned` hours of both.
fn around(plan: &PlanFile, run: &Run, happened: f64, planned: f64) -> Vec<(&'static str, f64)> {
    let begun: f64 = plan.parts.iter().map(|part| start_up(plan, part)).sum();
    if let Some(setup) = run.setup_hours.map(Hours::get) {
        return vec![("start-up", setup - begun), ("losses", happened - setup - (planned - begun))];
    }
    let has_losses = planned - begun > 1e-3 * planned || run.losses.unwrap_or(0) > 0;
    vec![(if has_losses { START } else { "start-up" }, happened - planned)]
}

/// Hours beyond those of the plan by cause; they add up to the difference.
fn times(
    plan: &PlanFile,
    run: &Run,
    work: f64,
    measured: Option<&FilePart>,
    [hours, planned]: [f64; 2],
) -> Vec<(&'static str, f64)> {
    let steps: f64 = plan.parts.iter().map(useful).sum();
    let lost = run.lost_hours.map(Hours::get);
    let around = |happened: f64| around(plan, run, happened, planned - steps);
    let mut times = vec![("amount of work", steps * (work - 1.0))];
    let slower = measured.zip(run.step_time_us).map(|(part, step)| {
        // Only the measured part is known to be slower or faster.
        useful(part) * work * (step.get() / part.step_time_us[1] - 1.0)
    });
    if let Some(followed) = &run.followed {
        // The job's own median, in hours of all its steps.
        let count = followed.steps as f64 / HOUR_US;
        let (median, mean) = (followed.median_us * count, followed.mean_us * count);
        let (waited, recording) = (followed.waited * mean, followed.recording_us / HOUR_US);
        let rest = hours - mean - recording;
        times.push(("step time", median - waited - steps * work));
        times.push(("waiting for data", waited));
        times.push((PAUSES, mean - median));
        times.push(("recording", recording));
        times.extend(around(lost.unwrap_or(rest)));
        times.extend(lost.map(|lost| ("after the last step", rest - lost)));
        return times;
    }
    match (slower, lost) {
        (Some(slower), None) => {
            times.push(("step time", slower));
            times.extend(around(hours - (steps * work + slower)));
        }
        (Some(slower), Some(lost)) => {
            times.push(("step time", slower));
            times.extend(around(lost));
            times.push((PAUSES, hours - (steps * work + slower) - lost));
        }
        (None, Some(lost)) => {
            times.push(("step time and pauses", hours - lost - steps * work));
            times.extend(around(lost));
        }
        (None, None) => times.push(("step time, pauses, start-up and losses", hours - planned - steps * (work - 1.0))),
    }
    times
}

/// Cause of hours before the first step and of losses, if only their sum is known.
const START: &str = "start-up and losses";
/// Cause of hours between steps.
const PAUSES: &str = "pauses between steps (evaluation, checkpoints)";

fn shares(plan: &PlanFile, run: &Run, work: f64, measured: Option<&FilePart>) -> Vec<Share> {
    let (Some(totals), Some(hours)) = (plan.totals, run.hours.map(Hours::get)) else { return Vec::new() };
    let planned = totals.hours[1].get();
    let times = times(plan, run, work, measured, [hours, planned]);
    // Zero for an own machine, which makes the whole difference one of price.
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
