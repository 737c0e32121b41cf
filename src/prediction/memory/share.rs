//! The share of a step that one GPU of a replica has, as far as memory depends on it.

use crate::scale::{Layout, ModelParallel};
use crate::sharding::Sharding;
use crate::transformer::TransformerStep;
use habitat_base::units::Bytes;

/// Activations that the forward pass keeps for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Activations {
    /// Minimum that is kept.
    pub least: Bytes,
    /// Maximum that may be kept; equal to the minimum if the peak is in the backward pass and thus shows it.
    pub most: Bytes,
}

/// Placement of a replica on GPUs, as far as memory depends on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// GPUs per replica.
    pub parallel: ModelParallel,
    /// Number of replicas.
    pub replicas: u32,
    /// Those among which [`Sharding::Hsdp`] divides the state.
    pub shards: u32,
    /// Micro-batches per optimizer step and replica.
    pub batches: u64,
    /// Whether the backward pass recomputes parts of the forward pass.
    pub recomputes: bool,
    /// Share of the parameters in experts, 0 to 1.
    pub experts: f64,
    /// Layers of the model, if known.
    pub layers: Option<u32>,
    /// Shares of the parameters in the embedding and in the last product.
    pub ends: [f64; 2],
    /// Share of the parameters that both of them use: tied, the same table counts once.
    pub tied: f64,
    /// Activations that remain of a micro-batch if its layers are computed again, if they are.
    pub inputs: Option<Bytes>,
    /// Activations between two layers, and logits in 16 bits, of a whole micro-batch.
    pub whole: [Bytes; 2],
}

impl Share {
    /// Placement of a step on a layout, with `batches` micro-batches of `batch` samples.
    pub fn new(
        layout: &Layout,
        [batch, batches]: [u64; 2],
        model: Option<&TransformerStep>,
        parameters: Option<u64>,
    ) -> Self {
        let samples = |model: &TransformerStep| batch as f64 / model.batch_size.unwrap_or(batch).max(1) as f64;
        let experts = model.and_then(|model| Some(model.experts?.weights / parameters? as f64));
        let ends = model
            .zip(parameters)
            .map_or([0.0; 2], |(model, all)| model.ends.map(|weights| (weights / all.max(1) as f64).clamp(0.0, 0.5)));
        // With a table at either end, the weights would exceed the parameters by one.
        let is_tied = model.zip(parameters).is_some_and(|(model, all)| {
            let of_experts = model.experts.map_or(0.0, |experts| experts.weights);
            model.inside + of_experts + model.ends[0] + 0.5 * model.ends[1] > all as f64
        });
        Self {
            parallel: layout.parallel,
            replicas: layout.replicas(),
            shards: Layout { sharding: Sharding::Hsdp, ..*layout }.shards(),
            batches,
            recomputes: layout.parallel.recompute || model.is_some_and(|model| model.recomputes),
            experts: experts.unwrap_or(0.0).clamp(0.0, 1.0),
            layers: model.map(|model| model.layers),
            ends,
            tied: if is_tied { ends[0].min(ends[1]) } else { 0.0 },
            inputs: model.filter(|_| layout.parallel.recompute).map(|model| model.inputs * samples(model)),
            whole: model.map_or([Bytes::ZERO; 2], |model| {
                let between = model.activations * f64::from(model.layers);
                let logits = model.inputs.checked_sub(between).unwrap_or_default();
                [model.activations, logits].map(|bytes| bytes * samples(model))
            }),
        }
    }

    /// GPUs that divide the state: those that share a sequence have the same weights, and divide it as replicas do.
    pub(super) fn peers(&self, sharding: Sharding) -> u32 {
        let replicas = if sharding == Sharding::Hsdp { self.shards } else { self.replicas };
        replicas.saturating_mul(self.parallel.context)
    }

    /// Activations that are kept: if layers run again, their inputs and those of one layer.
    pub(super) fn kept(&self, recorded: Activations) -> Activations {
        let Some(inputs) = self.inputs else { return recorded };
        let one = 1.0 / f64::from(self.layers.unwrap_or(1).max(1));
        let of = |all: Bytes| (inputs + all * one).min(all);
        Activations { least: of(recorded.least), most: of(recorded.most) }
    }
}
