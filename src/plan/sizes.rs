//! The batches that a GPU may run: the profile's, and others that were predicted beside it.

use super::batch::{Reason, accumulation, batch_size, would_fit};
use super::{Goal, RejectionKind};
use crate::predict::scale::{ScaledStep, scaled_step};
use crate::predict::{Estimate, Fits, MemoryFit, Prediction, Workload};
use crate::units::{GIB, Micros, SHORTEST_STEP_US};

/// A batch on each of so many GPUs of a kind, with its optimizer step.
#[derive(Debug, Clone)]
pub(super) struct SizedStep {
    /// Samples of a step on one GPU.
    pub batch_size: Option<u64>,
    /// Batches that each GPU runs for one optimizer step.
    pub accumulation: u64,
    /// The optimizer step.
    pub scaled: ScaledStep,
    /// Whether it is not known to fit.
    pub memory_unknown: bool,
    /// How it was found, where it is not the profile's batch.
    pub why: Option<String>,
}

/// One batch on one GPU.
struct At<'p> {
    batch: Option<u64>,
    step: Estimate,
    memory: &'p MemoryFit,
    why: Option<&'p String>,
}

/// The batches that so many GPUs can run. Of two that are both possible the one that does more
/// an hour, at the expected and at the upper step time, stands for both: price, set-up and losses
/// are the same.
///
/// # Errors
/// The reason against the profile's batch, where none is possible.
pub(super) fn sizes(
    prediction: &Prediction,
    gpus: u32,
    workload: &Workload,
    goal: &Goal,
) -> Result<Vec<SizedStep>, Reason> {
    let own =
        At { batch: batch_size(workload), step: prediction.planning_step(), memory: &prediction.memory, why: None };
    let own = own.sized(prediction, gpus, workload, goal);
    let others = prediction.at_batches.iter().filter_map(|at| {
        let at = At { batch: Some(at.batch_size), step: at.step, memory: &at.memory, why: Some(&at.why) };
        at.sized(prediction, gpus, workload, goal).ok()
    });
    let others: Vec<SizedStep> = others.collect();
    match own {
        Err(reason) if others.is_empty() => Err(reason),
        own => Ok(undominated(own.into_iter().chain(others).collect())),
    }
}

fn undominated(all: Vec<SizedStep>) -> Vec<SizedStep> {
    let rates: Vec<[f64; 2]> = all.iter().map(SizedStep::rates).collect();
    let is_beaten = |place: usize| {
        rates.iter().enumerate().any(|(other, rate)| {
            let [at_least, more] = [f64::ge, f64::gt].map(|is| {
                let [expected, slow] = [0, 1].map(|end| is(&rate[end], &rates[place][end]));
                (expected, slow)
            });
            at_least.0 && at_least.1 && (more.0 || more.1 || other < place)
        })
    };
    let kept: Vec<bool> = (0..all.len()).map(|place| !is_beaten(place)).collect();
    all.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(sized, _)| sized).collect()
}

impl SizedStep {
    /// Samples a microsecond of one GPU, at the expected and at the upper step time.
    fn rates(&self) -> [f64; 2] {
        let samples = self.batch_size.unwrap_or(1) as f64 * self.accumulation as f64;
        let range = &self.scaled.step.range;
        [range.mid, range.high].map(|time| samples / time.get())
    }
}

impl At<'_> {
    /// The filters, the most important reason first.
    fn sized(&self, prediction: &Prediction, gpus: u32, workload: &Workload, goal: &Goal) -> Result<SizedStep, Reason> {
        use RejectionKind as Kind;
        self.fits(prediction, gpus, workload, goal)?;
        let (single, gpu) = (&self.step, &prediction.gpu);
        if single.range.mid.get() < SHORTEST_STEP_US {
            return Err((Kind::NoPrediction, format!("the predicted step on {} takes no time", gpu.slug), None));
        }
        let batches = accumulation(goal.global_batch, self.batch, gpus)?;
        if single.range.high.get() * batches as f64 > Micros::MOST {
            return Err((Kind::GlobalBatch, format!("an update of {batches} batches takes longer than a year"), None));
        }
        let scaled = scaled_step(single, gpu, gpus, workload, goal.assumptions.scaling_factor)
            .map_err(|error| (Kind::NoPrediction, format!("{gpus} GPUs: {error}"), None))?;
        Ok(SizedStep {
            batch_size: self.batch,
            accumulation: batches,
            scaled: scaled.accumulated(single, batches),
            memory_unknown: self.memory.fits == Fits::Unknown,
            why: self.why.cloned(),
        })
    }

    fn fits(&self, prediction: &Prediction, gpus: u32, workload: &Workload, goal: &Goal) -> Result<(), Reason> {
        let memory = self.memory;
        match memory.fits {
            Fits::Yes => Ok(()),
            Fits::Unknown if goal.limits.allow_unknown_memory => Ok(()),
            Fits::Unknown => {
                let reason = format!("not known whether it fits: {}", memory.reason);
                Err((RejectionKind::MemoryUnknown, reason, None))
            }
            Fits::No => {
                let reason = memory.needed.map_or_else(
                    || memory.reason.clone(),
                    |needed| {
                        format!(
                            "needs {:.1} GB, the GPU has {:.1} of {:.0} to use{}",
                            needed.get() / GIB,
                            memory.usable.get() / GIB,
                            prediction.gpu.memory.get() / GIB,
                            would_fit(memory, gpus, workload, goal)
                        )
                    },
                );
                Err((RejectionKind::Memory, reason, memory.needed.map(|needed| needed / memory.usable)))
            }
        }
    }
}
