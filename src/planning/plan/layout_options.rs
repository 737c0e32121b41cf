//! A plan's layout among others of its machines, and why they lost.

use serde::Serialize;

use super::layouts::{candidates, recomputed};
use super::sizes::{Tried, tried};
use super::{Goal, LayoutChoice, Part, ShardingChoice};
use habitat_base::units::{Bytes, Micros};
use habitat_prediction::memory::{Division, MemoryBasis, Stage};
use habitat_prediction::scale::{Layout, LayoutCost, ModelParallel};
use habitat_prediction::{Fits, Prediction, Predictions, Sharding};

/// Other layouts to show beside the plan's (a choice).
const OTHERS: usize = 5;

/// A layout of the plan's machines, at the plan's batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayoutOption {
    /// Training state divided among the GPUs.
    pub sharding: Sharding,
    /// GPUs that share one replica of the model.
    pub parallel: ModelParallel,
    /// Replicas of the model.
    pub replicas: u32,
    /// Time of an optimizer step; `None` if it was not predicted.
    pub step: Option<Micros>,
    /// Memory that each GPU needs, if known.
    pub memory: Option<Bytes>,
    /// Why it is not the plan's.
    pub verdict: LayoutVerdict,
}

/// Why a layout is not the plan's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
pub enum LayoutVerdict {
    /// It is.
    Chosen,
    /// Its step takes longer or, if the goal names another layout or data parallel is nearly as fast, less.
    Time {
        /// Difference relative to the plan's step.
        share: f64,
        /// Part of the step that grows most.
        cause: LayoutCost,
        /// Its growth.
        more_us: f64,
    },
    /// It needs more memory than a GPU has.
    Memory {
        /// Missing bytes.
        short_bytes: Bytes,
        /// Usable bytes.
        usable_bytes: Bytes,
        /// The stage that needs most, if there are several.
        stage: Option<Stage>,
    },
    /// Its tensor parallel GPUs are more than links join.
    LeavesLinks {
        /// GPUs that links join.
        joined: u32,
    },
}

/// The layout of a plan's part among others on its machines: the fastest ones that differ in a degree, and the fastest
/// one without enough memory; fastest first. Empty for models that a search does not divide.
pub(super) fn beside(
    prediction: &Prediction,
    predictions: &Predictions,
    goal: &Goal,
    part: &Part,
) -> Vec<LayoutOption> {
    let free = Goal {
        global_batch: part.global_batch_size,
        model_parallel: ModelParallel::NONE,
        sharding: ShardingChoice::None,
        layout: LayoutChoice::Auto,
        ..goal.clone()
    };
    let own = part.layout(goal);
    let each = candidates(prediction, &own, predictions, &free).into_iter();
    let each = each.flat_map(|parallel| std::iter::once(parallel).chain(recomputed(prediction, parallel)));
    let each = each.flat_map(|parallel| {
        let hybrid = Layout { sharding: Sharding::Hsdp, parallel, ..own };
        let stages = ShardingChoice::Auto.stages(hybrid.shards() < hybrid.replicas());
        let is_alone = hybrid.replicas() * parallel.context <= 1;
        let stages = if is_alone { &stages[..1] } else { stages };
        stages.iter().map(move |&sharding| Layout { sharding, ..hybrid })
    });
    let mut all: Vec<Tried> =
        each.filter_map(|layout| tried(prediction, layout, part.batch_size, (&predictions.workload, &free))).collect();
    all.sort_by(|a, b| a.scaled.step.range.mid.total_cmp(&b.scaled.step.range.mid));
    let Some(chosen) = all.iter().position(|one| one.layout == own) else { return Vec::new() };
    let degrees: [fn(&Layout) -> u32; 6] = [
        |layout| layout.parallel.tensor,
        |layout| layout.parallel.pipeline,
        |layout| layout.parallel.context,
        |layout| layout.parallel.expert,
        |layout| u32::from(layout.sharding >= Sharding::Zero3),
        |layout| u32::from(layout.parallel.recompute),
    ];
    let fastest = |is: &dyn Fn(&Tried) -> bool| all.iter().position(is);
    // The nearest to enough memory among the faster ones.
    let over = |place: &usize| all[*place].memory.needed.filter(|_| all[*place].memory.fits == Fits::No);
    let short = (0..chosen).filter_map(|place| Some((place, over(&place)?)));
    let short = short.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(place, _)| place);
    let others = degrees.map(|of| fastest(&|one| one.memory.fits == Fits::Yes && of(&one.layout) != of(&own)));
    let mut shown = vec![chosen];
    for place in [short].into_iter().chain(others).flatten() {
        if !shown.contains(&place) && shown.len() <= OTHERS {
            shown.push(place);
        }
    }
    shown.sort_unstable();
    let option = |layout: &Layout, verdict| {
        let Layout { sharding, parallel, .. } = *layout;
        LayoutOption { sharding, parallel, replicas: layout.replicas(), step: None, memory: None, verdict }
    };
    let of = |place: usize| {
        let Tried { layout, scaled, memory } = &all[place];
        let verdict = if place == chosen { LayoutVerdict::Chosen } else { all[place].verdict(&all[chosen]) };
        let (step, memory) = (Some(scaled.step.range.mid), memory.needed.or(memory.at_most));
        LayoutOption { step, memory, ..option(layout, verdict) }
    };
    let mut options: Vec<LayoutOption> = shown.into_iter().map(of).collect();
    // Tensor parallel GPUs of two machines would exchange every layer over the network; no such layout is tried.
    let joined = prediction.gpu.fabric.joined(own.gpus);
    let wider = ModelParallel { tensor: 2 * own.parallel.tensor, ..own.parallel };
    if own.parallel.tensor == joined && own.all().is_multiple_of(wider.gpus()) && options.len() <= OTHERS {
        options.push(option(&Layout { parallel: wider, ..own }, LayoutVerdict::LeavesLinks { joined }));
    }
    options
}

impl Tried {
    /// Why it is not the plan's layout.
    fn verdict(&self, plans: &Self) -> LayoutVerdict {
        let memory = &self.memory;
        if memory.fits != Fits::Yes {
            let needed = memory.needed.or(memory.at_most).unwrap_or_default();
            let stage = match memory.basis {
                MemoryBasis::Share { division: Division::Replica { stage, .. }, .. } => stage,
                _ => None,
            };
            let short_bytes = needed.checked_sub(memory.usable).unwrap_or_default();
            return LayoutVerdict::Memory { short_bytes, usable_bytes: memory.usable, stage };
        }
        let [own, plans_step] = [self, plans].map(|one| one.scaled.step.range.mid);
        let grows = self.scaled.costs().into_iter().map(|(cost, time)| {
            let before = plans.scaled.costs().into_iter().find(|(other, _)| *other == cost);
            (cost, time - before.map_or(0.0, |(_, time)| time))
        });
        let share = own / plans_step - 1.0;
        // A faster step has a part that shrinks most.
        let (cause, more_us) =
            grows.max_by(|a, b| (a.1 * share).total_cmp(&(b.1 * share))).unwrap_or((LayoutCost::Operations, 0.0));
        let is_again =
            cause == LayoutCost::Operations && self.layout.parallel.recompute != plans.layout.parallel.recompute;
        LayoutVerdict::Time { share, cause: if is_again { LayoutCost::Recompute } else { cause }, more_us }
    }
}
