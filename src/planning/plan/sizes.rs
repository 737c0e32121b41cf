//! Batch sizes that a GPU may run: the profile's, and others that were predicted.

use super::batch::{Refusal, Runners, accumulation, batch_size, would_fit};
use super::layouts;
use super::{Goal, PlanError, PlanNote, Reason, Remedies, ShardingChoice};
use habitat_base::units::{Micros, SHORTEST_STEP_US, most};
use habitat_prediction::memory::Share;
use habitat_prediction::scale::{Layout, ModelParallel, ScaleError, ScaledStep, optimizer_step};
use habitat_prediction::{
    AtBatch, Estimate, Finding, Fits, MemoryFit, Mode, Prediction, Predictions, Sharding, Supply, Workload,
};

/// Maximum number of GPUs for a proposal to shard (a choice).
const MOST_HINTED: u32 = 512;
/// How many times as fast as data parallel a layout has to be to be worth a change of the program (a choice).
const REWRITTEN: f64 = 1.5;

/// Least and most degree of sharding to try.
type Degrees = [Sharding; 2];
/// All of them.
const ANY: Degrees = [Sharding::None, Sharding::Hsdp];
/// Those that exchange once per update, which pipeline stages are tried with first.
const FEW: Degrees = [Sharding::None, Sharding::Zero1];
/// All state divided among all replicas.
const MOST: Degrees = [Sharding::Zero3, Sharding::Zero3];

/// A batch on each GPU of a configuration, with its optimizer step.
#[derive(Debug, Clone)]
pub(super) struct SizedStep {
    /// GPUs that share a replica of the model.
    pub parallel: ModelParallel,
    /// Samples per step on one GPU.
    pub batch_size: Option<u64>,
    /// Batches that each GPU runs per optimizer step.
    pub accumulation: u64,
    /// The optimizer step.
    pub scaled: ScaledStep,
    /// Training state that the GPUs divide, and its effect on each GPU.
    pub sharding: (Sharding, Option<PlanNote>),
    /// Note, if it is unknown whether it fits in memory, or if no room is left.
    pub memory: Option<PlanNote>,
    /// Method of the step time, if the batch is not the profile's.
    pub why: Option<String>,
}

/// One batch on one GPU.
struct At<'p> {
    batch: Option<u64>,
    step: Estimate,
    data: Option<&'p Supply>,
    memory: &'p MemoryFit,
    why: Option<&'p String>,
}

/// Why a batch cannot run. A search meets thousands; the reason is made for the one that is shown.
enum Obstacle {
    /// No degree of sharding is known to fit: the one that needs least, or whose need is unknown.
    Memory(Sharding, Box<MemoryFit>),
    /// Another reason.
    Other(Refusal),
}

impl Obstacle {
    /// Memory that it needs relative to the usable; infinite for another reason.
    fn miss(&self) -> f64 {
        match self {
            Self::Memory(_, memory) if memory.fits == Fits::Unknown => 1.0,
            Self::Memory(_, memory) => memory.needed.map_or(f64::INFINITY, |needed| needed / memory.usable),
            Self::Other(_) => f64::INFINITY,
        }
    }
}

impl From<Reason> for Obstacle {
    fn from(reason: Reason) -> Self {
        Self::Other((reason, None))
    }
}

/// Checks the number of GPUs that share a replica of the model.
///
/// # Errors
/// [`PlanError`] for numbers out of range, for inference, and if the model is unknown or cannot be divided this way.
pub(super) fn check_model_parallel(predictions: &Predictions, goal: &Goal) -> Result<(), PlanError> {
    let parallel = goal.model_parallel;
    for (gpus, what) in [
        (parallel.tensor, "--tensor-parallel"),
        (parallel.pipeline, "--pipeline-parallel"),
        (parallel.context, "--context-parallel"),
        (parallel.expert, "--expert-parallel"),
        (parallel.chunks, "--virtual-stages"),
    ] {
        if !(1..=most::REPLICA).contains(&gpus) {
            return Err(PlanError::ModelParallel(gpus, what));
        }
    }
    if parallel.is_none() {
        return Ok(());
    }
    if predictions.workload.mode == Mode::Inference {
        return Err(PlanError::ModelParallelOfInference);
    }
    let all = &predictions.predictions;
    if all.iter().any(|one| one.warnings.iter().any(Finding::is_sharded)) {
        return Err(PlanError::ModelParallelOfShare);
    }
    let model = all.iter().find_map(|one| one.transformer.as_ref());
    let length = predictions.workload.sequence_length;
    let divided = model.ok_or(ScaleError::NoLayers).and_then(|model| parallel.check_model(model, length));
    divided.map_err(PlanError::ModelParallelUnknown)
}

/// Batch sizes that the GPUs of a layout can run, each with the smallest allowed degree of sharding that fits. A batch
/// size with a lower throughput than another, at both the expected and the upper step time, is dropped: price, set-up
/// and losses are the same.
///
/// # Errors
/// The obstacle to the profile's batch, if no batch is possible.
fn sizes(
    prediction: &Prediction,
    layout: Layout,
    workload: &Workload,
    goal: &Goal,
    degrees: Degrees,
) -> Result<Vec<SizedStep>, Obstacle> {
    let own = At::own(prediction, workload).sized(prediction, layout, workload, goal, degrees);
    // The reasons against these are not shown.
    let divides = |batch| accumulation(goal.global_batch, Some(batch), Runners::new(&layout)).is_ok();
    let others = prediction.at_batches.iter().filter(|at| divides(at.batch_size));
    let others = others.filter_map(|at| At::other(at).sized(prediction, layout, workload, goal, degrees).ok());
    let others: Vec<SizedStep> = others.collect();
    match own {
        Err(obstacle) if others.is_empty() => Err(obstacle),
        own => Ok(undominated(own.into_iter().chain(others).collect(), &layout)),
    }
}

/// Steps on the GPUs of a layout with the goal's global batch, and with that of another goal and its flag.
pub(super) fn sized_steps(
    prediction: &Prediction,
    layout: Layout,
    predictions: &Predictions,
    (goal, other): (&Goal, Option<&(Goal, bool)>),
) -> Result<Vec<(SizedStep, bool)>, Refusal> {
    let of = |goal| fastest(prediction, layout, predictions, goal);
    let kept = of(goal);
    let same = |one: &SizedStep, other: &SizedStep| {
        (one.batch_size, one.accumulation) == (other.batch_size, other.accumulation)
    };
    let is_kept = |step: &SizedStep| {
        let is_goal = goal.global_batch.is_some() && step.global_batch(&layout) == goal.global_batch;
        is_goal || kept.iter().flatten().any(|one| same(one, step))
    };
    let other = other.map(|(other, is_other)| (of(other), *is_other));
    let other = other.into_iter().flat_map(|(found, is_other)| {
        found.into_iter().flatten().filter(|step| !is_kept(step)).map(move |step| (step, is_other))
    });
    let other: Vec<_> = other.collect();
    match kept {
        Err(reason) if other.is_empty() => Err(reason),
        kept => Ok(kept.into_iter().flatten().map(|step| (step, false)).chain(other).collect()),
    }
}

/// Steps of the goal's layout; with a search, those of the fastest layouts within memory. A program has to be written for
/// a layout, so one counts only if it is [`REWRITTEN`] times as fast as data parallel alone.
fn fastest(
    prediction: &Prediction,
    layout: Layout,
    predictions: &Predictions,
    goal: &Goal,
) -> Result<Vec<SizedStep>, Refusal> {
    let workload = &predictions.workload;
    let own = sizes(prediction, layout, workload, goal, ANY);
    let others = layouts::candidates(prediction, &layout, predictions, goal);
    if others.is_empty() {
        return own
            .map_err(|obstacle| At::own(prediction, workload).refusal(obstacle, prediction, &layout, workload, goal));
    }
    let free = Goal { sharding: layouts::sharding(goal), ..goal.clone() };
    let plain = own.iter().flatten().map(|step| step.rates(&layout)[0]).fold(0.0, f64::max);
    let mut nearest = own.as_ref().err().map(|obstacle| (obstacle.miss(), None));
    let mut attempt = |degrees: Degrees| {
        let mut found = Vec::new();
        for parallel in others.iter().copied().filter(|parallel| degrees == FEW || parallel.pipeline > 1) {
            let again = layouts::recomputed(prediction, parallel);
            let own = Some(parallel).filter(|_| degrees == FEW || again.is_none());
            let degrees = if parallel.pipeline > 1 { degrees } else { ANY };
            for parallel in own.into_iter().chain(again) {
                match sizes(prediction, Layout { parallel, ..layout }, workload, &free, degrees) {
                    Ok(steps) => {
                        // Recomputation may take less time than exchanges for each micro-batch.
                        let is_done = steps.iter().any(|step| step.sharding.0 < Sharding::Zero2);
                        found.extend(steps.into_iter().filter(|step| step.rates(&layout)[0] > REWRITTEN * plain));
                        if is_done {
                            break;
                        }
                    }
                    Err(obstacle) if nearest.as_ref().is_some_and(|(miss, _)| obstacle.miss() < *miss) => {
                        nearest = Some((obstacle.miss(), Some((parallel, obstacle))));
                    }
                    Err(_) => {}
                }
            }
        }
        found
    };
    let found = attempt(FEW);
    let memory = &prediction.memory;
    let least = memory.states.map_or(0.0, |states| states.total() / memory.usable) / f64::from(layout.all());
    // Divided parameters are exchanged for each micro-batch: only if nothing else fits, and all GPUs hold the state.
    let found = if found.is_empty() && least <= 1.0 { attempt(MOST) } else { found };
    match own {
        Err(obstacle) if found.is_empty() => {
            let at = At::own(prediction, workload);
            Err(match nearest.and_then(|(_, nearest)| nearest) {
                Some((parallel, obstacle)) => {
                    at.refusal(obstacle, prediction, &Layout { parallel, ..layout }, workload, &free)
                }
                None => at.refusal(obstacle, prediction, &layout, workload, goal),
            })
        }
        own if found.is_empty() => Ok(own.unwrap_or_default()),
        own => Ok(undominated(own.into_iter().flatten().chain(found).collect(), &layout)),
    }
}

/// A layout with its step and its memory on a GPU, which may not suffice.
pub(super) struct Tried {
    pub(super) layout: Layout,
    pub(super) scaled: ScaledStep,
    pub(super) memory: MemoryFit,
}

/// Tries a layout with a batch on each GPU or replica; `None` if it does not divide the global batch.
pub(super) fn tried(
    prediction: &Prediction,
    layout: Layout,
    batch: Option<u64>,
    (workload, goal): (&Workload, &Goal),
) -> Option<Tried> {
    let own = Some(At::own(prediction, workload)).filter(|at| at.batch == batch);
    let at = own.or_else(|| prediction.at_batches.iter().map(At::other).find(|at| at.batch == batch))?;
    let batches = accumulation(goal.global_batch, batch, Runners::new(&layout)).ok()?;
    let scaled = at.scaled(prediction, &layout, (workload, goal), batches).ok()?;
    let memory = at.memory.on_replica(layout.sharding, &at.share(prediction, &layout, workload, Some(batches)));
    Some(Tried { layout, scaled, memory })
}

fn undominated(all: Vec<SizedStep>, layout: &Layout) -> Vec<SizedStep> {
    let rates: Vec<[f64; 2]> = all.iter().map(|step| step.rates(layout)).collect();
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
    /// Samples per optimizer step on all GPUs, if known.
    pub(super) fn global_batch(&self, layout: &Layout) -> Option<u64> {
        let batches = self.accumulation.saturating_mul(u64::from(self.replicas(layout)));
        self.batch_size.map(|batch| batch.saturating_mul(batches))
    }

    fn replicas(&self, layout: &Layout) -> u32 {
        Layout { parallel: self.parallel, ..*layout }.replicas()
    }

    /// Samples per microsecond on all GPUs, at the expected and at the upper step time.
    fn rates(&self, layout: &Layout) -> [f64; 2] {
        let batches = self.accumulation as f64 * f64::from(self.replicas(layout));
        let samples = self.batch_size.unwrap_or(1) as f64 * batches;
        let range = &self.scaled.step.range;
        [range.mid, range.high].map(|time| samples / time.get())
    }
}

impl<'p> At<'p> {
    /// The batch of the profile.
    fn own(prediction: &'p Prediction, workload: &Workload) -> Self {
        let (step, data) = (prediction.planning_step(), prediction.data.as_ref());
        Self { batch: batch_size(workload), step, data, memory: &prediction.memory, why: None }
    }

    fn other(at: &'p AtBatch) -> Self {
        let (batch, data, why) = (Some(at.batch_size), at.data.as_ref(), Some(&at.why));
        Self { batch, step: at.step, data, memory: &at.memory, why }
    }

    /// Filters, most important first.
    fn sized(
        &self,
        prediction: &Prediction,
        layout: Layout,
        workload: &Workload,
        goal: &Goal,
        degrees: Degrees,
    ) -> Result<SizedStep, Obstacle> {
        let gpus = layout.all();
        if !layout.parallel.is_none() {
            layout.parallel.check(&layout, &prediction.gpu.fabric).map_err(|error| Reason::Layout { error })?;
        }
        let batches = accumulation(goal.global_batch, self.batch, Runners::new(&layout));
        let share = self.share(prediction, &layout, workload, batches.as_ref().ok().copied());
        let fitting = self.fitting(&share, goal, degrees)?;
        let (single, gpu) = (&self.step, &prediction.gpu);
        if single.range.mid.get() < SHORTEST_STEP_US {
            return Err(Reason::NoDuration { gpu: gpu.slug.clone() }.into());
        }
        let batches = batches.map_err(Obstacle::Other)?;
        if single.range.high.get() * batches as f64 > Micros::MOST {
            return Err(Reason::UpdateTooLong { batches }.into());
        }
        let scaled = |sharding| {
            let scaled = self.scaled(prediction, &Layout { sharding, ..layout }, (workload, goal), batches);
            scaled.map_err(|error| Obstacle::from(Reason::NotScalable { gpus, error }))
        };
        let steps = fitting.into_iter().map(|(sharding, memory)| Ok((scaled(sharding)?, sharding, memory)));
        let steps = steps.collect::<Result<Vec<_>, Obstacle>>()?;
        let fastest = steps.into_iter().min_by(|a, b| a.0.step.range.mid.total_cmp(&b.0.step.range.mid));
        let Some((scaled, sharding, memory)) = fastest else {
            return Err(Obstacle::Memory(Sharding::None, Box::new(self.memory.clone())));
        };
        let note = memory_note(&memory);
        let divided = (sharding != Sharding::None || !layout.parallel.is_none()).then(|| {
            if !layout.parallel.is_none() {
                return PlanNote::ReplicaMemory { memory: memory.basis };
            }
            if gpus == 1 {
                return PlanNote::ShardingOfOneGpu { sharding };
            }
            PlanNote::Sharding { sharding, gpus: Layout { sharding, ..layout }.shards(), memory: memory.basis }
        });
        Ok(SizedStep {
            parallel: layout.parallel,
            batch_size: self.batch,
            accumulation: batches,
            scaled,
            sharding: (sharding, divided),
            memory: note,
            why: self.why.cloned(),
        })
    }

    fn scaled(
        &self,
        prediction: &Prediction,
        layout: &Layout,
        (workload, goal): (&Workload, &Goal),
        batches: u64,
    ) -> Result<ScaledStep, ScaleError> {
        let one = prediction.micro_batch(&self.step, self.batch, self.data);
        optimizer_step(&one, &prediction.gpu, layout, workload, goal.assumptions.factors(), batches)
    }

    /// Share of one GPU that runs this number of batches per update.
    fn share(&self, prediction: &Prediction, layout: &Layout, workload: &Workload, batches: Option<u64>) -> Share {
        // Without a number of batches, assume the maximum that a stage keeps.
        let most = batches.unwrap_or(2 * u64::from(layout.parallel.pipeline));
        let batches = [self.batch.unwrap_or(1), most];
        Share::new(layout, batches, prediction.transformer.as_ref(), workload.parameter_count)
    }

    /// Smallest degree of sharding with which the step fits, or may fit if the goal allows that. Degrees that send for each
    /// micro-batch are not in the order of their times: all of them that fit.
    fn fitting(&self, share: &Share, goal: &Goal, [from, to]: Degrees) -> Result<Vec<(Sharding, MemoryFit)>, Obstacle> {
        let (mut found, mut most, mut unknown) = (Vec::new(), None, None);
        let stages = goal.sharding.stages(share.shards < share.replicas);
        // A single GPU with its layers divides nothing.
        let is_alone = share.replicas * share.parallel.context <= 1;
        let stages = if is_alone { &stages[..1] } else { stages };
        for stage in stages.iter().filter(|stage| (from..=to).contains(*stage)) {
            if found.first().is_some_and(|(least, _)| *least < Sharding::Zero2) {
                break;
            }
            let memory = self.memory.on_replica(*stage, share);
            match memory.fits {
                Fits::Yes => found.push((*stage, memory)),
                Fits::Unknown if unknown.is_none() => unknown = Some((*stage, memory)),
                _ => most = Some((*stage, memory)),
            }
        }
        if found.is_empty() {
            found.extend(unknown.take_if(|_| goal.limits.allow_unknown_memory));
        }
        if !found.is_empty() {
            return Ok(found);
        }
        let (stage, memory) = unknown.or(most).unwrap_or_else(|| (Sharding::None, self.memory.clone()));
        Err(Obstacle::Memory(stage, Box::new(memory)))
    }

    /// The reason against this batch, with what would help.
    fn refusal(
        &self,
        obstacle: Obstacle,
        prediction: &Prediction,
        layout: &Layout,
        workload: &Workload,
        goal: &Goal,
    ) -> Refusal {
        let (sharding, memory) = match obstacle {
            Obstacle::Memory(sharding, memory) => (sharding, *memory),
            Obstacle::Other(refusal) => return refusal,
        };
        let batches = accumulation(goal.global_batch, self.batch, Runners::new(layout)).ok();
        let share = self.share(prediction, layout, workload, batches);
        let remedies = Remedies {
            fitting_sharding: with_sharding(self.memory, sharding, &share),
            ..would_fit(&memory, share.replicas, workload, goal)
        };
        if memory.fits == Fits::Unknown {
            return (Reason::MemoryUnknown { remedies, memory: Box::new(memory.basis) }, None);
        }
        let Some(needed) = memory.needed else { return (Reason::DoesNotFit { memory: Box::new(memory.basis) }, None) };
        let reason = Reason::OutOfMemory {
            needed_bytes: needed,
            usable_bytes: memory.usable,
            gpu_bytes: prediction.gpu.memory,
            sharding,
            replicas: share.replicas,
            model_parallel: Box::new(share.parallel),
            remedies,
        };
        (reason, Some(needed / memory.usable))
    }
}

/// Mean error of the memory that `nvidia-smi` shows, as a share of it (`habitat-lab evaluate hosts`, docs/accuracy.md).
const MEMORY_ERROR: f64 = 0.056;

/// Note if it is unknown whether a step fits, or if it leaves less room than such a figure is usually off by.
fn memory_note(memory: &MemoryFit) -> Option<PlanNote> {
    let needed = memory.at_most.or(memory.needed).unwrap_or_default();
    match memory.fits {
        Fits::Unknown => Some(PlanNote::MemoryUnknown),
        _ if needed.get() * (1.0 + MEMORY_ERROR) <= memory.usable.get() => None,
        _ => Some(PlanNote::NoRoom { needed_bytes: needed, usable_bytes: memory.usable }),
    }
}

/// Higher degree of sharding, and higher number of GPUs if needed, with which the step would fit.
fn with_sharding(memory: &MemoryFit, used: Sharding, share: &Share) -> Option<(Sharding, u32)> {
    let own = share.replicas;
    let fits =
        |stage: Sharding, replicas: u32| memory.on_replica(stage, &Share { replicas, ..*share }).fits == Fits::Yes;
    let all = ShardingChoice::Auto.stages(share.shards < share.replicas);
    // Stages exchange divided parameters for each micro-batch.
    let all = if share.parallel.pipeline > 1 { &all[..2] } else { all };
    let counts = std::iter::successors(Some(own), |replicas| replicas.checked_mul(2));
    let most = (MOST_HINTED / share.parallel.gpus()).max(own);
    let mut tries = counts.take_while(|count| *count <= most).flat_map(|count| {
        let stages = if count == own { all } else { &all[all.len() - 1..] };
        stages.iter().map(move |stage| (*stage, count))
    });
    let (sharding, count) = tries.find(|(stage, count)| (*count > own || *stage > used) && fits(*stage, *count))?;
    Some((sharding, count * share.parallel.gpus()))
}
