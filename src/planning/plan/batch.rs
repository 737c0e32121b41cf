//! Batches of an optimizer step: how many each GPU runs per update, and the note of a plan whose updates use another
//! batch than the profile.
//!
//! `G` GPUs (or replicas of the model, if several GPUs share one) with `b` samples each reach a global batch of `N`
//! samples with `a = N / (G·b)` batches per GPU, whose gradients are accumulated before they are exchanged.

use super::{Accept, Goal, Part, Plan, PlanError, RejectionKind};
use habitat_base::text::grouped;
use habitat_base::units::most;
use habitat_prediction::scale::Layout;
use habitat_prediction::{MemoryFit, Mode, Predictions, Workload};

/// Kind and text of a rejection, and how far the offer is from acceptable ([`super::configuration`]).
pub(super) type Reason = (RejectionKind, String, Option<f64>);

/// Number of smaller batch sizes to try.
const TRIED: usize = 4096;

/// Units that run their own batches: GPUs, or replicas of the model that several GPUs share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Runners {
    pub count: u32,
    pub word: &'static str,
}

impl Runners {
    pub(super) const fn new(layout: &Layout) -> Self {
        Self { count: layout.replicas(), word: if layout.parallel.is_none() { "GPU" } else { "replica" } }
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
pub(super) fn accumulation(global: Option<u64>, batch: Option<u64>, runners: Runners) -> Result<u64, Reason> {
    let (Some(global), Some(batch)) = (global, batch) else { return Ok(1) };
    let step = batch.saturating_mul(u64::from(runners.count));
    if global >= step && global.is_multiple_of(step) {
        return Ok(global / step);
    }
    let [of_step, of_goal] = [step, global].map(|batch| grouped(batch as f64));
    let (relation, miss) = if global < step {
        ("less than", step as f64 / global as f64)
    } else {
        // Distance to the next multiple, below or above.
        let below = global / step * step;
        ("not a multiple of", (global as f64 / below as f64).min((below as f64 + step as f64) / global as f64))
    };
    let reason = format!(
        "{} make {of_step} per step; the global batch of {of_goal} is {relation} that: {}",
        each(runners, batch),
        remedy(global, batch, runners)
    );
    Err((RejectionKind::GlobalBatch, reason, Some(miss)))
}

/// Words for a batch: `1 sample`, `32 samples`.
fn samples(batch: u64) -> String {
    if batch == 1 { "1 sample".to_owned() } else { format!("{} samples", grouped(batch as f64)) }
}

/// Words for the batches of a step: `8 GPUs with 32 samples each`.
fn each(Runners { count, word }: Runners, batch: u64) -> String {
    let samples = samples(batch);
    if count == 1 { format!("1 {word} with {samples}") } else { format!("{count} {word}s with {samples} each") }
}

/// Batch per GPU or global batch that would work.
fn remedy(global: u64, batch: u64, Runners { count, word }: Runners) -> String {
    let step = batch.saturating_mul(u64::from(count));
    let smaller = smaller_batch(global, batch, count).map_or_else(
        || format!("no batch of up to {} per {word} works", samples(batch)),
        |(batch, batches)| format!("{} per {word} works{}", samples(batch), accumulated(batches)),
    );
    let multiples: Vec<String> = [global / step * step, (global / step + 1).saturating_mul(step)]
        .into_iter()
        .filter(|multiple| *multiple > 0)
        .map(|multiple| grouped(multiple as f64))
        .collect();
    format!("{smaller}, or a global batch of {}", multiples.join(" or "))
}

fn accumulated(batches: u64) -> String {
    if batches > 1 { format!(" (accumulation ×{})", grouped(batches as f64)) } else { String::new() }
}

/// Largest batch per GPU of up to `most` samples that divides the global batch, and the number of batches per GPU;
/// `None` if the GPUs cannot share the global batch evenly.
pub(super) fn smaller_batch(global: u64, most: u64, gpus: u32) -> Option<(u64, u64)> {
    let gpus = u64::from(gpus);
    let share = global.is_multiple_of(gpus).then_some(global / gpus).filter(|share| *share > 0)?;
    let batch = (1..=most.min(share)).rev().take(TRIED).find(|batch| share.is_multiple_of(*batch))?;
    Some((batch, share / batch))
}

/// Note on the batch per GPU with which the step would fit in memory, and the accumulation that keeps the global batch.
pub(super) fn would_fit(memory: &MemoryFit, gpus: u32, workload: &Workload, goal: &Goal) -> String {
    let (Some(most), Some(batch)) = (memory.largest_batch, batch_size(workload)) else {
        return String::new();
    };
    let fits = |batch: u64| format!("; {} samples per GPU would fit", grouped(batch as f64));
    let global = goal.global_batch.unwrap_or_else(|| batch.saturating_mul(u64::from(gpus)));
    match smaller_batch(global, most.min(batch), gpus) {
        Some((batch, batches)) if workload.mode == Mode::Training => {
            let global = grouped(global as f64);
            format!("{}: accumulation ×{} keeps the global batch of {global}", fits(batch), grouped(batches as f64))
        }
        _ => fits(most),
    }
}

/// Note for a training plan without a global batch whose updates use another batch than the profile: the number of
/// updates, the number with the recorded batch, and the flag that keeps it.
pub(super) fn note(plan: &Plan, recorded: Option<u64>) -> Option<String> {
    let is_other = |part: &Part| match part.global_batch_size {
        Some(batch) => Some(batch) != recorded,
        None => part.replicas() > 1,
    };
    if plan.goal.global_batch.is_some() || !plan.parts.iter().any(is_other) {
        return None;
    }
    let updates = grouped(plan.parts.iter().map(Part::updates).sum());
    let Some(own) = recorded else {
        return Some(format!(
            "each update uses the batches of all GPUs: {updates} updates instead of {}; --batch-size with --global-batch keeps their number",
            grouped(plan.work.get())
        ));
    };
    let mut global: Vec<u64> = plan.parts.iter().filter_map(|part| part.global_batch_size).collect();
    global.dedup();
    let global: Vec<String> = global.into_iter().map(|batch| grouped(batch as f64)).collect();
    Some(format!(
        "global batch {} instead of {}: {updates} updates instead of {}. --global-batch {own} keeps yours",
        global.join(" and "),
        grouped(own as f64),
        grouped(plan.work.get() / own as f64),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(gpus: u32) -> Runners {
        Runners::new(&Layout::one_machine(gpus))
    }

    fn reason(global: u64, batch: u64, gpus: u32) -> (String, f64) {
        let (kind, reason, miss) = accumulation(Some(global), Some(batch), of(gpus)).unwrap_err();
        assert_eq!(kind, RejectionKind::GlobalBatch);
        (reason, miss.unwrap())
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
        assert_eq!(
            reason(1000, 32, 8),
            (
                "8 GPUs with 32 samples each make 256 per step; the global batch of 1,000 is not a multiple of that: 25 samples per GPU works (accumulation ×5), or a global batch of 768 or 1,024".to_owned(),
                1.024
            )
        );
        assert_eq!(
            reason(64, 32, 8),
            (
                "8 GPUs with 32 samples each make 256 per step; the global batch of 64 is less than that: 8 samples per GPU works, or a global batch of 256".to_owned(),
                4.0
            )
        );
        assert!(reason(100, 32, 8).0.contains("no batch of up to 32 samples per GPU works"));
        assert!(reason(48, 32, 1).0.starts_with("1 GPU with 32 samples make 32 per step"));
    }
}
