//! Several machines: GPUs per machine, the network between them, and the state divided among all.
//!
//! Programs reach 35 to 80 % of the line rate of a slow network, where the protocol is unknown (`nccl-tests` issues 22
//! and 290, `nccl` issues 450 and 495), and 60 to 100 % of a fast one, which is assumed to have RDMA.

use serde::{Deserialize, Serialize};

use super::ScaleError;
use crate::fabric::Fabric;
use crate::sharding::Sharding;
use crate::transformer::TransformerStep;
use habitat_base::units::{BytesPerSecond, Range};

/// Network of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Network {
    /// Line rate, in Gbit/s.
    Rate(f64),
    /// Unknown: assumes Ethernet of 10 to 100 Gbit/s.
    #[default]
    Unknown,
}

/// Shares of the line rate that programs reach: worst TCP, expected, best RDMA.
const REACHED: [f64; 3] = [0.35, 0.5, 0.8];
/// Assumed line rates of an unknown network, in Gbit/s, and the shares reached over TCP.
const ASSUMED: [(f64, f64); 3] = [(10.0, 0.35), (25.0, 0.42), (100.0, 0.5)];

/// Line rate per machine from which the network is assumed to have RDMA, in Gbit/s.
const RDMA_GBIT: f64 = 400.0;
/// Shares of the line rate that collectives of large messages reach with RDMA: worst, expected, best. Two machines with
/// 8 H100 and 3,200 Gbit/s: all-gather 404 GB/s of 400, all-reduce 345 to 487; `GPUDirect`-TCPXO 189 of 200.
const RDMA_REACHED: [f64; 3] = [0.6, 0.85, 1.0];

/// Shares of a line rate that programs reach: worst, expected, best.
fn shares(gbit: f64) -> [f64; 3] {
    if gbit >= RDMA_GBIT { RDMA_REACHED } else { REACHED }
}

impl Network {
    /// Network from the offer's rate, otherwise from the user's assumption, in Gbit/s.
    pub fn new(offer: Option<f64>, assumed: Option<f64>) -> Self {
        offer.or(assumed).map_or(Self::Unknown, Self::Rate)
    }

    /// Bandwidth that the gradient exchange reaches: worst, expected, best.
    pub fn reached(self) -> Range<BytesPerSecond> {
        let [low, mid, high] = match self {
            Self::Rate(rate) => shares(rate).map(|share| rate * share),
            Self::Unknown => ASSUMED.map(|(rate, share)| rate * share),
        }
        .map(|gbit| BytesPerSecond::known(gbit / 8.0 * 1e9));
        Range { low, mid, high }
    }
}

/// Division of one copy of the model over GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelParallel {
    /// GPUs that divide each layer (T).
    pub tensor: u32,
    /// Stages that divide the layers (P).
    pub pipeline: u32,
    /// GPUs that divide each sequence (C).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub context: u32,
    /// Chunks of layers on each stage (V); more than one are interleaved.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub chunks: u32,
    /// GPUs that divide the experts of each layer (X), among those with the same layers.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub expert: u32,
    /// Whether the backward pass computes whole layers again, which the recorded step does not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub recompute: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_false(value: &bool) -> bool {
    !*value
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Default for ModelParallel {
    /// Whole model on each GPU.
    fn default() -> Self {
        Self::NONE
    }
}

impl ModelParallel {
    /// Whole model on each GPU.
    pub const NONE: Self = Self { tensor: 1, pipeline: 1, context: 1, chunks: 1, expert: 1, recompute: false };

    /// Whether each GPU has a whole model, with the operations of the recorded step.
    pub const fn is_none(&self) -> bool {
        self.tensor == 1 && self.pipeline == 1 && self.context == 1 && self.expert == 1 && !self.recompute
    }

    /// GPUs per replica.
    pub const fn gpus(self) -> u32 {
        self.tensor.saturating_mul(self.pipeline).saturating_mul(self.context)
    }

    /// Smallest number of GPUs with whole replicas and all experts: T·P times the least common multiple of C and X.
    const fn whole(self) -> u32 {
        self.gpus().saturating_mul(over(self.expert, self.context))
    }

    /// Minimum number of machines with `gpus` GPUs each that make whole replicas.
    pub const fn machines(self, gpus: u32) -> u32 {
        over(self.whole(), gpus)
    }

    /// Layers of each chunk, in the order of the model. Chunks that get one more than others lie in the middle: the first
    /// also has the embedding, the last one the loss.
    pub fn chunk_layers(self, layers: u32) -> Vec<u32> {
        let chunks = if self.pipeline > 1 { self.pipeline.saturating_mul(self.chunks.max(1)) } else { 1 };
        let more = layers % chunks;
        let first = (chunks - more) / 2;
        (0..chunks).map(|chunk| layers / chunks + u32::from((first..first + more).contains(&chunk))).collect()
    }

    /// Layers of the stage with most of them.
    pub fn most_layers(self, layers: u32) -> u32 {
        let (chunks, stages) = (self.chunk_layers(layers), self.pipeline.max(1) as usize);
        let of = |stage: usize| chunks.iter().skip(stage).step_by(stages).sum();
        (0..stages).map(of).max().unwrap_or(layers)
    }

    /// Checks that the GPUs of a layout make whole replicas; links join `fabric.joined` GPUs.
    ///
    /// # Errors
    /// [`ScaleError`] if a layer would leave the links, or the GPUs are not a multiple of a replica.
    pub fn check(self, layout: &Layout, fabric: &Fabric) -> Result<(), ScaleError> {
        let (tensor, gpus) = (self.tensor, layout.gpus);
        let is_of_rack = tensor <= fabric.joined(gpus) && gpus > 0 && tensor.is_multiple_of(gpus);
        if tensor == 0 || !(gpus.is_multiple_of(tensor) || is_of_rack) {
            return Err(ScaleError::TensorOfMachine { tensor, gpus, replica: self.gpus() });
        }
        let (all, replica) = (layout.all(), self.whole());
        if replica == 0 || !all.is_multiple_of(replica) {
            return Err(ScaleError::Replicas { machines: layout.machines, gpus, replica, needed: self.machines(gpus) });
        }
        Ok(())
    }

    /// Checks that a model with sequences of this length can be divided this way.
    ///
    /// # Errors
    /// [`ScaleError`] for more stages than layers, or indivisible heads, sequences or experts.
    pub fn check_model(self, model: &TransformerStep, length: Option<u64>) -> Result<(), ScaleError> {
        let chunks = if self.pipeline > 1 { self.chunks.max(1) } else { 1 };
        let stages = self.pipeline.saturating_mul(chunks);
        if stages > model.layers {
            return Err(ScaleError::Stages { stages, layers: model.layers });
        }
        if !model.heads.is_multiple_of(u64::from(self.tensor)) {
            return Err(ScaleError::Heads { tensor: self.tensor, heads: model.heads });
        }
        if let Some(length) = length.filter(|length| !length.is_multiple_of(u64::from(self.context.max(1)))) {
            return Err(ScaleError::Sequence { context: self.context, length });
        }
        if self.expert > 1 {
            let experts = model.experts.ok_or(ScaleError::NoExperts)?.count;
            if !experts.is_multiple_of(u64::from(self.expert)) {
                return Err(ScaleError::Experts { gpus: self.expert, experts });
            }
        }
        Ok(())
    }
}

/// `a` over the greatest common divisor of both; 1 for zeros.
const fn over(a: u32, b: u32) -> u32 {
    let (mut common, mut rest) = (a, b);
    while rest > 0 {
        (common, rest) = (rest, common % rest);
    }
    match a.checked_div(common) {
        Some(parts) => parts,
        None => 1,
    }
}

/// GPUs that a step runs on, and the division of its state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// Number of machines.
    pub machines: u32,
    /// GPUs per machine.
    pub gpus: u32,
    /// Virtual CPUs of each machine, if known.
    pub cpus: Option<f64>,
    /// Network of each machine.
    pub network: Network,
    /// State divided among all replicas.
    pub sharding: Sharding,
    /// GPUs that share one replica of the model.
    pub parallel: ModelParallel,
}

impl Layout {
    /// Layout on one machine, with all state on each GPU.
    pub const fn one_machine(gpus: u32) -> Self {
        let (network, sharding, parallel) = (Network::Unknown, Sharding::None, ModelParallel::NONE);
        Self { machines: 1, gpus, cpus: None, network, sharding, parallel }
    }

    /// Total number of GPUs.
    pub const fn all(&self) -> u32 {
        self.machines.saturating_mul(self.gpus)
    }

    /// Replicas that divide the state among one another: all, or with [`Sharding::Hsdp`] those of a machine.
    pub fn shards(&self) -> u32 {
        let (replicas, of_peers) = (self.replicas(), self.parallel.tensor.saturating_mul(self.parallel.context));
        let most = if self.sharding == Sharding::Hsdp { self.gpus / of_peers.max(1) } else { replicas };
        (1..=most.min(replicas)).rev().find(|count| replicas.is_multiple_of(*count)).unwrap_or(1)
    }

    /// Data parallel replicas of the model.
    pub const fn replicas(&self) -> u32 {
        self.all() / if self.parallel.gpus() == 0 { 1 } else { self.parallel.gpus() }
    }
}
