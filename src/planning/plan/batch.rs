//! Batches of an optimizer step: how many each GPU runs per update, and the note of a plan whose updates use another
//! batch than the profile.
//!
//! `G` GPUs (or replicas of the model, if several GPUs share one) with `b` samples each reach a global batch of `N`
//! samples with `a = N / (G·b)` batches per GPU, whose gradients are accumulated before they are exchanged.

use super::{Accept, Goal, Part, Plan, PlanError, PlanNote, Reason, Remedies};
use habitat_base::units::most;
use habitat_prediction::scale::Layout;
use habitat_prediction::{MemoryFit, Mode, Predictions, Workload};

/// Reason of a rejection, and how far the offer is from acceptable ([`super::configuration`]).
pub(super) type Refusal = (Reason, Option<f64>);

/// Number of smaller batch sizes to try.
const TRIED: usize = 4096;

/// Units that run their own batches: GPUs, or replicas of the model that several GPUs share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Runners {
    pub count: u32,
    pub are_replicas: bool,
}

impl Runners {
    pub(super) const fn new(layout: &Layout) -> Self {
        Self { count: layout.replicas(), are_replicas: !layout.parallel.is_none() }
    }
}

/// Samples per step on one GPU.
pub(super) fn batch_size(workload: &Workload) -> Option<u64> {
    workload.batch_size.filter(|batch| *batch > 0)
}

/// Global batch of a goal: its own, otherwise the recorded one of a training step, unless the user accepts another. For
/// a step that communicates with other GPUs, the recording does not contain the global batch.
pub(super) fn kept(predictions: &Predictions, goal: &Goal) -> Option<u64> {
    let is_recorded = predictions.workload.mode == Mode::Training && !predictions.communicates;
    let is_kept = is_recorded && !goal.limits.accept.contains(&Accept::Batch);
    goal.global_batch.or(batch_size(&predictions.workload).filter(|_| is_kept))
}

/// The same goal with the profile's batch on each GPU and a free global batch; `None` if it is already free or not the
/// recorded one.
pub(super) fn freed(predictions: &Predictions, goal: &Goal) -> Option<Goal> {
    let is_recorded = goal.global_batch.is_some() && goal.global_batch == batch_size(&predictions.workload);
    let is_kept = is_recorded && !goal.limits.accept.contains(&Accept::Batch);
    is_kept.then(|| Goal { global_batch: None, ..goal.clone() })
}

/// The goal with the recorded global batch, if the goal accepts any: what is accepted need not be used.
pub(super) fn recorded(predictions: &Predictions, goal: &Goal) -> Option<Goal> {
    let is_free = goal.global_batch.is_none() && goal.limits.accept.contains(&Accept::Batch);
    let is_recorded = predictions.workload.mode == Mode::Training && !predictions.communicates;
    let global = batch_size(&predictions.workload).filter(|_| is_free && is_recorded)?;
    Some(Goal { global_batch: Some(global), ..goal.clone() })
}

/// Checks whether the goal's global batch can be planned for this step.
///
/// # Errors
/// [`PlanError`] if the global batch is out of range, if the batch size is unknown, or for inference, which has no
/// updates.
pub(super) fn check_global_batch(workload: &Workload, goal: &Goal) -> Result<(), PlanError> {
    let Some(global) = goal.global_batch else { return Ok(()) };
    if !(1..=most::GLOBAL_BATCH).contains(&global) {
        return Err(PlanError::GlobalBatch(global));
    }
    if workload.mode == Mode::Inference {
        return Err(PlanError::GlobalBatchOfInference);
    }
    batch_size(workload).map(|_| ()).ok_or(PlanError::GlobalBatchWithoutBatchSize)
}

/// Batches that each GPU or replica runs per update; 1 without a global batch.
///
/// # Errors
/// The reason with the numbers and a remedy, if that is not a whole number.
pub(super) fn accumulation(global: Option<u64>, batch: Option<u64>, runners: Runners) -> Result<u64, Refusal> {
    let (Some(global), Some(batch)) = (global, batch) else { return Ok(1) };
    let step = batch.saturating_mul(u64::from(runners.count));
    if global >= step && global.is_multiple_of(step) {
        return Ok(global / step);
    }
    // Distance to the next multiple, below or above.
    let below = global / step * step;
    let miss = if global < step {
        step as f64 / global as f64
    } else {
        (global as f64 / below as f64).min((below as f64 + step as f64) / global as f64)
    };
    let Runners { count, are_replicas } = runners;
    let smaller = smaller_batch(global, batch, count);
    let multiples = [below, (global / step + 1).saturating_mul(step)].into_iter().filter(|multiple| *multiple > 0);
    let reason = Reason::BatchesDoNotDivide {
        count,
        are_replicas,
        batch_size: batch,
        global_batch_size: global,
        smaller_batch_size: smaller.map(|(batch, _)| batch),
        accumulation: smaller.map(|(_, batches)| batches),
        multiples: multiples.collect(),
    };
    Err((reason, Some(miss)))
}

/// Largest batch per GPU of up to `most` samples that divides the global batch, and the number of batches per GPU;
/// `None` if the GPUs cannot share the global batch evenly.
pub(super) fn smaller_batch(global: u64, most: u64, gpus: u32) -> Option<(u64, u64)> {
    let gpus = u64::from(gpus);
    let share = global.is_multiple_of(gpus).then_some(global / gpus).filter(|share| *share > 0)?;
    let batch = (1..=most.min(share)).rev().take(TRIED).find(|batch| share.is_multiple_of(*batch))?;
    Some((batch, share / batch))
}

/// Batch per GPU with which the step would fit in memory, and the accumulation that keeps the global batch.
pub(super) fn would_fit(memory: &MemoryFit, gpus: u32, workload: &Workload, goal: &Goal) -> Remedies {
    let most = memory.largest_batch.filter(|most| *most > 0);
    let Some((most, batch)) = most.zip(batch_size(workload)) else { return Remedies::default() };
    let global = goal.global_batch.unwrap_or_else(|| batch.saturating_mul(u64::from(gpus)));
    let smaller = smaller_batch(global, most.min(batch), gpus).filter(|_| workload.mode == Mode::Training);
    Remedies {
        fitting_batch_size: Some(smaller.map_or(most, |(batch, _)| batch)),
        accumulation: smaller.map(|(_, batches)| batches),
        global_batch_size: Some(global),
        fitting_sharding: None,
    }
}

/// Note for a training plan without a global batch whose updates use another batch than the profile.
pub(super) fn note(plan: &Plan, recorded: Option<u64>) -> Option<PlanNote> {
    let is_other = |part: &Part| match part.global_batch_size {
        Some(batch) => Some(batch) != recorded,
        None => part.replicas() > 1,
    };
    if plan.goal.global_batch.is_some() || !plan.parts.iter().any(is_other) {
        return None;
    }
    let (updates, work) = (plan.parts.iter().map(Part::updates).sum(), plan.work.get());
    let Some(recorded) = recorded else { return Some(PlanNote::OtherUpdates { updates, steps: work }) };
    let mut global_batch_sizes: Vec<u64> = plan.parts.iter().filter_map(|part| part.global_batch_size).collect();
    global_batch_sizes.dedup();
    Some(PlanNote::OtherGlobalBatch { global_batch_sizes, recorded, updates, recorded_updates: work / recorded as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(gpus: u32) -> Runners {
        Runners::new(&Layout::one_machine(gpus))
    }

    #[test]
    fn whole_numbers_of_batches_make_the_global_batch() {
        assert_eq!(accumulation(Some(1024), Some(32), of(8)), Ok(4));
        assert_eq!(accumulation(Some(256), Some(32), of(8)), Ok(1));
        assert_eq!(accumulation(None, Some(32), of(8)), Ok(1));
        assert_eq!(accumulation(None, None, of(8)), Ok(1));
    }

    #[test]
    fn others_are_told_what_would_do() {
        let refused = |global: u64, batch: u64, gpus: u32| {
            let (reason, miss) = accumulation(Some(global), Some(batch), of(gpus)).unwrap_err();
            let Reason::BatchesDoNotDivide { smaller_batch_size, accumulation, multiples, .. } = reason else {
                panic!("{reason:?}")
            };
            (smaller_batch_size.zip(accumulation), multiples, miss.unwrap())
        };
        assert_eq!(refused(1000, 32, 8), (Some((25, 5)), vec![768, 1024], 1.024));
        assert_eq!(refused(64, 32, 8), (Some((8, 1)), vec![256], 4.0));
        assert_eq!(refused(100, 32, 8).0, None);
    }
}
