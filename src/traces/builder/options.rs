//! What an import is given, and what comes of it.

use crate::StepMarks;
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::profile::{DeviceInfo, Mode, Precision, Profile};

/// Finds the catalog's slug of a recording's GPU, or the reason in words why there is none.
pub type ResolveGpu<'a> = dyn Fn(&DeviceInfo) -> Result<GpuSlug, String> + Sync + 'a;

/// What the caller knows and wants; everything left at its default is taken from the
/// trace as far as possible.
#[derive(Clone, Default)]
pub struct ImportOptions<'a> {
    /// Name of the workload; `imported` where empty.
    pub workload: String,
    /// Training or inference.
    pub mode: Option<Mode>,
    /// Samples of a step on one GPU.
    pub batch_size: Option<u64>,
    /// Tokens of a sample.
    pub sequence_length: Option<u64>,
    /// What the model was seen to be given, to tell the batch size from.
    pub model: Option<ModelInput>,
    /// The arithmetic of the step.
    pub precision: Option<Precision>,
    /// Whether the program allowed TF32 for matrix products, and for convolutions and recurrent layers.
    pub tf32: Option<[bool; 2]>,
    /// Trainable parameters of the model.
    pub parameter_count: Option<u64>,
    /// The GPU it was recorded on, where the caller knows better than the trace.
    pub origin: Option<GpuSlug>,
    /// Looks a GPU up in the catalog.
    pub resolve_gpu: Option<&'a ResolveGpu<'a>>,
    /// Steps read at most, from the middle of the recording.
    pub max_steps: Option<usize>,
    /// Take operators and shapes only and leave everything measured out: works without a
    /// GPU in the trace.
    pub shapes_only: bool,
    /// Ranges of that name (numbers at its end aside) are the steps, whatever else is marked.
    pub step_range: Option<String>,
    /// The GPU of the recording, by its number there, where it has several.
    pub device: Option<u32>,
    /// Records held in memory at once (about 50 bytes each); 1.5 million by default.
    pub max_records: Option<usize>,
}

/// What was seen of the model beside the trace, in one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelInput {
    /// Its class.
    pub module: String,
    /// Calls of it in the step.
    pub calls: u64,
    /// Shapes of the tensors that the first call was given, and whether they hold whole
    /// numbers.
    pub inputs: Vec<(Vec<u64>, bool)>,
    /// The different first extents of the first tensor, over all calls.
    pub leads: Vec<u64>,
    /// A list of tensors is among the inputs.
    pub lists: bool,
    /// The class of an input that cannot be looked into.
    pub opaque: Option<String>,
    /// A layer of it takes the sequence first.
    pub sequence_first: bool,
    /// Its calls may be of the same samples.
    pub again: bool,
    /// Batches of the step from a `DataLoader`; empty without one, or if unknown.
    pub batches: Vec<LoaderBatch>,
}

/// A batch that a `DataLoader` gave the training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderBatch {
    /// Number of the loader in the step, from 0.
    pub loader: u32,
    /// Its `batch_size`; `None` without a fixed one.
    pub size: Option<u64>,
    /// First extent of the batch's tensors; `None` if they differ.
    pub rows: Option<u64>,
}

/// An imported trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// The step.
    pub profile: Profile,
    /// What the import found, for those who want to check it.
    pub summary: Summary,
}

/// Figures about an import.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// How steps were found.
    pub marks: StepMarks,
    /// Steps in the trace.
    pub steps_found: usize,
    /// Steps that the medians and means are over.
    pub steps_used: usize,
    /// Events in the trace.
    pub events: u64,
    /// Bytes of (decompressed) text.
    pub bytes: u64,
    /// Kernels of a step, mean.
    pub kernels_per_step: f64,
    /// Kernel time of a step, mean, overlap counted twice.
    pub kernel_time: Micros,
    /// Kernel, copy and fill time of a step, mean, overlap counted twice.
    pub device_time: Micros,
    /// Share of the kernel time joined to operators, 0 to 1.
    pub joined_share: f64,
    /// What kernels are joined to, in words.
    pub joined_to: &'static str,
    /// Ranges that overlap others of their thread without nesting.
    pub overlaps: u64,
    /// Time of the shortest used step on the host while it was recorded.
    pub host_step: Micros,
    /// Time that each rank's step waits for the others, in the order of the traces; `None` for one that
    /// calls no collective.
    pub exchanges: Vec<Option<Exchange>>,
}

/// How a step of one of several ranks is divided between its own work and what it waits for the
/// others, on the host or in collectives on the GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exchange {
    /// The step.
    pub step: Micros,
    /// Time of it that the rank waits and exchanges.
    pub waiting: Micros,
}
