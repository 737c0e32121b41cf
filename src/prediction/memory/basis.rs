//! A verdict on memory, and its basis.

use std::fmt;

use serde::Serialize;

use habitat_base::units::Bytes;
use habitat_step::catalog::Vendor;
use habitat_step::profile::MemorySource;

use crate::scale::ModelParallel;
use crate::sharding::Sharding;

/// Yes, no or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fits {
    /// It fits.
    Yes,
    /// It does not.
    No,
    /// Not enough is known.
    Unknown,
}

impl fmt::Display for Fits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        })
    }
}

/// Basis of a verdict on memory.
#[derive(Debug, Clone, PartialEq)]
pub enum MemoryBasis {
    /// A peak of the step, as it is predicted.
    Peak {
        /// The verdict.
        fits: Fits,
        /// Memory that the driver's tool shows.
        needed: Bytes,
        /// Peak of the tensors.
        allocated: Bytes,
        /// Source of the peak.
        source: PeakSource,
        /// Vendor of the GPU, which names the tool.
        vendor: Vendor,
        /// Memory of the GPU.
        of: GpuMemory,
    },
    /// A peak of the step in narrower or wider numbers.
    OtherPrecision {
        /// The verdict.
        fits: Fits,
        /// Least need.
        least: Bytes,
        /// Largest need.
        most: Bytes,
        /// Source of the peak.
        source: MemorySource,
        /// Whether the peak is of narrower numbers.
        from_narrower: bool,
        /// Memory of the GPU.
        of: GpuMemory,
    },
    /// The step ran on a GPU with at most as much memory.
    RanOn {
        /// Name of that GPU.
        gpu: String,
        /// Its memory.
        memory: Bytes,
    },
    /// Parameters and what else each of them needs exceed the memory.
    State {
        /// Counted state.
        kept: StateKept,
        /// Its size, with the process.
        needed: Bytes,
        /// Memory of the GPU.
        of: GpuMemory,
    },
    /// An upper estimate from shapes.
    Shapes {
        /// Whether it fits.
        is_enough: bool,
        /// The estimate.
        most: Bytes,
        /// Memory of the GPU.
        of: GpuMemory,
    },
    /// Too few shapes or parameters.
    Unknown,
    /// The share of one of several GPUs.
    Share {
        /// The verdict.
        fits: Fits,
        /// Memory that the driver's tool shows.
        needed: Bytes,
        /// Whether the GPU may need more.
        is_least: bool,
        /// How the GPUs divide the model.
        division: Division,
        /// Usable memory of the GPU.
        usable: Bytes,
        /// Whether Adam's state was assumed.
        assumes_adam: bool,
    },
    /// The ends of a step in numbers that it was not recorded in.
    Between {
        /// Least need in the narrowest numbers.
        least: Bytes,
        /// The same step in the widest.
        widest: Box<Self>,
    },
    /// The size of the state, which several GPUs would share, is unknown.
    UnknownState {
        /// GPUs of a replica.
        gpus: u32,
        /// The whole model on one GPU.
        whole: Box<Self>,
    },
    /// One rank's share of a model was recorded.
    OneRank {
        /// Whether the share, or with all parameters the whole model, fits.
        fits: bool,
        /// The same.
        on: Box<Self>,
    },
}

/// Memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuMemory {
    /// That a step can use.
    pub usable: Bytes,
    /// All of it.
    pub nominal: Bytes,
}

/// Source of a peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeakSource {
    /// This step.
    Step(MemorySource),
    /// Steps of smaller and larger batches.
    Interpolated(MemorySource),
    /// A step of another batch.
    Scaled(MemorySource),
}

impl PeakSource {
    /// Whether the peaks were recorded or computed.
    pub(super) const fn of(self) -> MemorySource {
        match self {
            Self::Step(source) | Self::Interpolated(source) | Self::Scaled(source) => source,
        }
    }
}

/// State that is certainly in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKept {
    /// Parameters.
    Parameters,
    /// Gradients, too.
    Gradients,
    /// And a state of the optimizer per parameter.
    OneState,
    /// And the two moments of Adam.
    TwoStates,
}

/// How several GPUs divide a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Division {
    /// Replicas divide training state alone.
    Sharded {
        /// State that they divide.
        sharding: Sharding,
        /// GPUs that divide it.
        gpus: u32,
    },
    /// Several GPUs share each replica.
    Replica {
        /// Division of a replica.
        parallel: ModelParallel,
        /// Stage that needs most, if there are several.
        stage: Option<Stage>,
        /// State that replicas divide, and their number.
        sharded: Option<(Sharding, u32)>,
        /// Need without sequence parallelism.
        without_sequences: Option<Bytes>,
    },
}

/// A pipeline stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// With the embedding.
    First,
    /// With the loss.
    Last,
}
