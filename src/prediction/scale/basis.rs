//! Basis of a step time on several GPUs.

use habitat_base::units::{Bytes, Micros};
use serde::Serialize;

use super::{Layout, LayoutFactors, Link, ScaledStep};
use crate::gpu::GpuFacts;
use habitat_step::catalog::Vendor;

/// Basis of a step time on several GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaling {
    /// How the GPUs work together.
    pub basis: ScalingBasis,
    /// Batches per GPU and update, after which gradients are exchanged once, if more than one.
    pub batches: Option<u64>,
    /// Wait for data, if there is one.
    pub data: Option<WaitForData>,
}

impl From<ScalingBasis> for Scaling {
    fn from(basis: ScalingBasis) -> Self {
        Self { basis, batches: None, data: None }
    }
}

/// Wait of an update for its data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaitForData {
    /// Its time.
    pub wait: Micros,
    /// Virtual CPUs that load, if known.
    pub cpus: Option<f64>,
}

/// How GPUs work together.
#[derive(Debug, Clone, PartialEq)]
pub enum ScalingBasis {
    /// One GPU alone.
    OneGpu,
    /// Inference on each.
    Independent {
        /// Number of GPUs.
        gpus: u32,
    },
    /// An all-reduce of whole gradients, by what was fitted to published pairs.
    AllReduce {
        /// The GPUs.
        layout: Layout,
        /// Link within a machine.
        link: BoardLink,
        /// Exchanged bytes.
        gradients: Bytes,
        /// Added time.
        extra: Micros,
        /// Multiple of the added time within a machine that was measured.
        factor: Option<f64>,
        /// Ends of the range as multiples of the added time.
        spread: [f64; 2],
    },
    /// Replicas of a model, each on one or several GPUs.
    Replicas(Box<OnReplicas>),
}

/// Link of the boards of a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoardLink {
    /// Kind of the link.
    pub link: Link,
    /// Vendor of the GPUs.
    pub vendor: Vendor,
}

impl From<&GpuFacts> for BoardLink {
    fn from(gpu: &GpuFacts) -> Self {
        Self { link: gpu.link, vendor: gpu.vendor }
    }
}

/// An update on replicas of a model. Times are per update; those of what does not happen are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct OnReplicas {
    /// The GPUs.
    pub layout: Layout,
    /// Micro-batches of a replica per update.
    pub micro_batches: f64,
    /// Idle time of the stages relative to their work.
    pub bubble: Option<f64>,
    /// Collectives of tensor parallel GPUs.
    pub collectives: Option<Micros>,
    /// Exchange of tokens among experts.
    pub tokens: Option<Micros>,
    /// Ring attention.
    pub ring: Option<Micros>,
    /// Activations from stage to stage.
    pub handed: Option<Micros>,
    /// Exchange among replicas that nothing hides.
    pub exposed: Option<Micros>,
    /// Link within a machine.
    pub link: BoardLink,
    /// GPUs that links of a rack join, if more than those of a machine.
    pub rack: Option<u32>,
    /// Whether the network joins GPUs, too.
    pub uses_network: bool,
    /// Measured times relative to the predicted ones.
    pub measured: Option<LayoutFactors>,
}

/// Time of an update beside its operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayoutCost {
    /// Stages that wait for one another.
    Bubble,
    /// Collectives of tensor parallel GPUs.
    Collectives,
    /// Exchange of tokens among experts.
    Tokens,
    /// Ring attention.
    Ring,
    /// Activations from stage to stage.
    Handed,
    /// Exchange among replicas that nothing hides.
    Exposed,
    /// Layers that the backward pass computes again.
    Recompute,
    /// The rest.
    Operations,
}

impl OnReplicas {
    /// Exchanges of an update.
    pub const fn exchanges(&self) -> [(LayoutCost, Option<Micros>); 5] {
        [
            (LayoutCost::Collectives, self.collectives),
            (LayoutCost::Tokens, self.tokens),
            (LayoutCost::Ring, self.ring),
            (LayoutCost::Handed, self.handed),
            (LayoutCost::Exposed, self.exposed),
        ]
    }
}

impl ScaledStep {
    /// Parts of the expected step, in microseconds; operations are the rest.
    pub fn costs(&self) -> Vec<(LayoutCost, f64)> {
        let step = self.step.range.mid.get();
        let ScalingBasis::Replicas(on) = &self.scaling.basis else { return vec![(LayoutCost::Operations, step)] };
        let bubble = on.bubble.map(|bubble| Micros::known(step * bubble / (1.0 + bubble)));
        let parts = on.exchanges().into_iter().chain([(LayoutCost::Bubble, bubble)]);
        let parts: Vec<_> = parts.map(|(cost, time)| (cost, time.unwrap_or_default().get())).collect();
        let rest = step - parts.iter().map(|(_, time)| time).sum::<f64>();
        parts.into_iter().chain([(LayoutCost::Operations, rest)]).collect()
    }
}
