//! Adds the steps of a sweep to predictions at the recorded batch, for plans to choose from.

use super::error::SweepError;
use super::sweep::{Basis, GpuSweep, Sweep, sweep};
use crate::finding::Finding;
use crate::memory::Fits;
use crate::predictions::{AtBatch, Predictions};
use crate::{Mode, Options};
use habitat_base::units::most;
use habitat_step::catalog::Catalog;
use habitat_step::profile::Profile;

/// Batch sizes that a plan tries by default: the recorded one halved while it is even, doubled and quadrupled.
pub fn usual_sizes(recorded: u64) -> Vec<u64> {
    if recorded == 0 {
        return Vec::new();
    }
    let mut sizes = halves(recorded);
    sizes.extend([2, 4].map(|times| recorded.saturating_mul(times)));
    sizes
}

fn halves(recorded: u64) -> Vec<u64> {
    let halves = std::iter::successors(Some(recorded), |batch| batch.is_multiple_of(2).then_some(batch / 2));
    let mut sizes: Vec<u64> = halves.skip(1).collect();
    sizes.reverse();
    sizes
}

/// Multiple of the largest recorded batch up to which a sweep adds the largest batch that fits.
const NEAR: u64 = 16;

/// Same as [`sweep`], with each GPU's largest batch that fits as one more row, unless it is far from the recorded ones.
///
/// # Errors
/// Those of [`sweep`].
pub fn sweep_to_largest(
    profiles: &[(String, Profile)],
    catalog: &Catalog,
    options: &Options,
    batches: &[u64],
) -> Result<Sweep, SweepError> {
    let found = sweep(profiles, catalog, options, batches)?;
    let farthest = found.recorded.iter().max().map_or(0, |batch| batch.saturating_mul(NEAR));
    let near = |gpu: &GpuSweep| gpu.largest.filter(|largest| (1..=farthest).contains(largest));
    let is_there = |batch: &u64| batches.contains(batch) || found.recorded.contains(batch);
    let mut added: Vec<u64> = found.gpus.iter().filter_map(near).filter(|batch| !is_there(batch)).collect();
    added.sort_unstable();
    added.dedup();
    added.truncate(most::BATCH_SIZES.saturating_sub(batches.len()));
    if added.is_empty() {
        return Ok(found);
    }
    let mut all = sweep(profiles, catalog, options, &[batches, &added].concat())?;
    for gpu in &mut all.gpus {
        let own = near(gpu);
        gpu.rows.retain(|row| is_there(&row.batch) || own == Some(row.batch));
    }
    Ok(all)
}

/// Adds steps at a half, a quarter, … of the recorded training batch: the shares of several GPUs that keep the global
/// batch. If they cannot be predicted, a note gives the reason.
pub fn add_shares(predictions: &mut Predictions, profile: (String, Profile), catalog: &Catalog, options: &Options) {
    let workload = &predictions.workload;
    let batch = workload.batch_size.filter(|batch| *batch > 0 && workload.mode == Mode::Training);
    let sizes = batch.filter(|_| !predictions.communicates).map(halves).unwrap_or_default();
    if sizes.is_empty() {
        return;
    }
    match sweep(&[profile], catalog, options, &sizes) {
        Ok(found) => add_sizes(predictions, &found),
        Err(error) => predictions.notes.push(Finding::NoShares { error: error.to_string() }),
    }
}

/// Adds the steps of a sweep to predictions at one of its recorded batches.
pub fn add_sizes(predictions: &mut Predictions, sweep: &Sweep) {
    let Some(recorded) = predictions.workload.batch_size else { return };
    let how = match sweep.basis {
        Basis::Lines => "a line through the recorded batches",
        Basis::Shapes => "shapes scaled",
    };
    for prediction in &mut predictions.predictions {
        let of_gpu = |swept: &&GpuSweep| swept.gpu.slug == prediction.gpu.slug;
        let Some(swept) = sweep.gpus.iter().find(of_gpu) else { continue };
        let others = swept.rows.iter().filter(|row| row.batch != recorded);
        prediction.at_batches = others
            .map(|row| {
                // If the recorded batch fits, a smaller one does too.
                let is_less = row.batch < recorded && row.memory.fits == Fits::Unknown;
                let memory =
                    if is_less && prediction.memory.fits == Fits::Yes { &prediction.memory } else { &row.memory };
                AtBatch {
                    batch_size: row.batch,
                    step: row.step,
                    data: row.data,
                    memory: memory.clone(),
                    why: format!("batch {} instead of the recorded {recorded}: {how}", row.batch),
                }
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_sizes_are_halves_and_doubles() {
        assert_eq!(usual_sizes(32), [1, 2, 4, 8, 16, 64, 128]);
        assert_eq!(usual_sizes(48), [3, 6, 12, 24, 96, 192]);
        assert_eq!(usual_sizes(1), [2, 4]);
        assert_eq!(usual_sizes(0), [0; 0]);
    }
}
