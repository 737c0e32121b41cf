//! Search for a layout: how the GPUs of an offer divide a model that no single one of them holds.

use super::{Goal, ShardingChoice};
use habitat_prediction::scale::{Layout, ModelParallel};
use habitat_prediction::{Finding, Fits, Mode, Prediction, Predictions};

/// Maximum number of pipeline stages to try (a choice).
const STAGES: u32 = 64;
/// Chunks of layers per stage to try (a choice).
const CHUNKS: [u32; 4] = [1, 2, 4, 8];

/// Whether the goal leaves the layout to a search.
fn is_free(goal: &Goal) -> bool {
    goal.layout.is_auto() && goal.model_parallel.is_none() && goal.sharding.is_none()
}

/// Degrees of sharding that a layout may have; a search tries all of them.
pub(super) fn sharding(goal: &Goal) -> ShardingChoice {
    if is_free(goal) { ShardingChoice::Auto } else { goal.sharding }
}

/// Whether a part may divide the model this way.
pub(super) fn allows(goal: &Goal, parallel: ModelParallel) -> bool {
    is_free(goal) || parallel == goal.model_parallel
}

/// Layouts to try on all GPUs of `layout`; none if the goal names one, or if the step may fit on one GPU.
///
/// Tensor parallel GPUs are joined by links and divide the heads, stages have equally many chunks of layers, replicas
/// use all GPUs and divide the experts evenly; layers are computed again or not (Narayanan et al. 2021, arXiv:2104.04473, section 3).
pub(super) fn candidates(
    prediction: &Prediction,
    layout: &Layout,
    predictions: &Predictions,
    goal: &Goal,
) -> Vec<ModelParallel> {
    let is_share = prediction.warnings.iter().any(Finding::is_sharded);
    let is_needed = prediction.memory.fits != Fits::Yes && predictions.workload.mode == Mode::Training;
    let Some(model) = prediction.transformer.filter(|_| is_free(goal) && is_needed && !is_share) else {
        return Vec::new();
    };
    let all = layout.all();
    let divides = |parts: u32, of: u32| parts > 0 && of.is_multiple_of(parts);
    let joined = prediction.gpu.fabric.joined(layout.gpus).min(all);
    let tensors = (1..=joined).filter(|&tensor| {
        let is_joined = divides(tensor, layout.gpus) || divides(layout.gpus, tensor);
        is_joined && divides(tensor, all) && model.heads.is_multiple_of(tensor.into())
    });
    tensors
        .flat_map(|tensor| {
            let stages = 1..=(all / tensor).min(STAGES).min(model.layers);
            stages.filter(move |stages| divides(tensor * stages, all)).map(move |stages| (tensor, stages))
        })
        .flat_map(|(tensor, pipeline)| {
            let chunks = CHUNKS
                .into_iter()
                .filter(move |&chunks| chunks == 1 || (pipeline > 1 && divides(pipeline * chunks, model.layers)));
            chunks.map(move |chunks| ModelParallel { tensor, pipeline, chunks, ..ModelParallel::NONE })
        })
        .flat_map(|parallel| {
            let (replicas, count) = (all / parallel.gpus(), model.experts.map_or(1, |experts| experts.count));
            let divides = move |&expert: &u32| replicas.is_multiple_of(expert) && count.is_multiple_of(expert.into());
            let most = u32::try_from(count).map_or(replicas, |count| count.min(replicas));
            (1..=most).filter(divides).map(move |expert| ModelParallel { expert, ..parallel })
        })
        .flat_map(|parallel| {
            // Recomputed layers leave room for fewer divisions.
            let both = [false, true].into_iter().filter(|recompute| !(*recompute && model.recomputes));
            both.map(move |recompute| ModelParallel { recompute, ..parallel })
        })
        .collect()
}
