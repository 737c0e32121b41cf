//! Search for a layout: how the GPUs of an offer divide a model that no single one of them holds.

use super::{Goal, ShardingChoice};
use habitat_prediction::scale::{Layout, ModelParallel};
use habitat_prediction::{Finding, Fits, Mode, Prediction, Predictions};

/// Maximum number of pipeline stages to try (a choice).
const STAGES: u32 = 64;
/// Chunks of layers per stage to try (a choice).
const CHUNKS: [u32; 4] = [1, 2, 4, 8];
/// GPUs per sequence to try, and fewest tokens of a sequence on each (choices).
const CONTEXTS: [u32; 4] = [1, 2, 4, 8];
const CONTEXT_TOKENS: u64 = 2048;

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
/// use all GPUs and divide the experts evenly (Narayanan et al. 2021, arXiv:2104.04473, section 3); long sequences may be
/// divided. [`recomputed`] is the same layout with its layers computed again, for those that do not fit.
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
            let length = predictions.workload.sequence_length.unwrap_or_default();
            let contexts = CONTEXTS.into_iter().filter(move |&context| {
                let tokens = length / u64::from(context);
                let is_whole = length.is_multiple_of(context.into()) && tokens >= CONTEXT_TOKENS;
                context == 1 || (is_whole && divides(parallel.gpus() * context, all))
            });
            contexts.map(move |context| ModelParallel { context, ..parallel })
        })
        .flat_map(|parallel| {
            let (replicas, count) = (all / parallel.gpus(), model.experts.map_or(1, |experts| experts.count));
            let divides = move |&expert: &u32| replicas.is_multiple_of(expert) && count.is_multiple_of(expert.into());
            let most = u32::try_from(count).map_or(replicas, |count| count.min(replicas));
            (1..=most).filter(divides).map(move |expert| ModelParallel { expert, ..parallel })
        })
        .collect()
}

/// The same layout with its layers computed again, which leaves room for fewer divisions; `None` if the step does so already.
pub(super) fn recomputed(prediction: &Prediction, parallel: ModelParallel) -> Option<ModelParallel> {
    let recomputes = prediction.transformer.is_some_and(|model| model.recomputes);
    (!recomputes).then_some(ModelParallel { recompute: true, ..parallel })
}
