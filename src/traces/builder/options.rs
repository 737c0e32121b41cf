//! Options and results of an import.

use crate::StepMarks;
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::profile::{DeviceInfo, Mode, Precision, Profile};

/// Finds the catalog slug of a recording's GPU, or returns the reason why there is none.
pub type ResolveGpu<'a> = dyn Fn(&DeviceInfo) -> Result<GpuSlug, String> + Sync + 'a;

/// Options of an import. Defaults come from the trace as far as possible.
#[derive(Clone, Default)]
pub struct ImportOptions<'a> {
    /// Name of the workload; `imported` if empty.
    pub workload: String,
    /// Training or inference.
    pub mode: Option<Mode>,
    /// Samples per step on one GPU.
    pub batch_size: Option<u64>,
    /// Tokens per sample.
    pub sequence_length: Option<u64>,
    /// Observed inputs of the model, for deriving the batch size.
    pub model: Option<ModelInput>,
    /// Precision of the step.
    pub precision: Option<Precision>,
    /// Whether the program allowed TF32 for matrix products, and for convolutions and recurrent layers.
    pub tf32: Option<[bool; 2]>,
    /// Trainable parameters of the model.
    pub parameter_count: Option<u64>,
    /// GPU of the recording; overrides the trace.
    pub origin: Option<GpuSlug>,
    /// Looks up a GPU in the catalog.
    pub resolve_gpu: Option<&'a ResolveGpu<'a>>,
    /// Maximum number of steps, taken from the middle of the recording.
    pub max_steps: Option<usize>,
    /// Imports only operators and shapes, without measurements; needs no GPU in the trace.
    pub shapes_only: bool,
    /// Ranges with this name, ignoring trailing numbers, are the steps, whatever else is marked.
    pub step_range: Option<String>,
    /// GPU to use, by its number in the recording, if it has several.
    pub device: Option<u32>,
    /// Budget of records held in memory (about 50 bytes each); 1.5 million by default.
    pub max_records: Option<usize>,
}

/// Observations of the model in one step, in addition to the trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelInput {
    /// Class of the model.
    pub module: String,
    /// Number of calls in the step.
    pub calls: u64,
    /// Shapes of the tensors passed to the first call, and whether they are integers.
    pub inputs: Vec<(Vec<u64>, bool)>,
    /// Distinct first extents of the first tensor over all calls.
    pub leads: Vec<u64>,
    /// Whether a list of tensors is among the inputs.
    pub lists: bool,
    /// Class of an input that could not be inspected.
    pub opaque: Option<String>,
    /// Whether one of its layers takes the sequence first.
    pub sequence_first: bool,
    /// Whether several calls may process the same samples.
    pub again: bool,
    /// Batches of the step from a `DataLoader`; empty without one, or if unknown.
    pub batches: Vec<LoaderBatch>,
    /// Autograd nodes of a recorded step as a multiple of those of this one, if known.
    pub recorded_work: Option<f64>,
}

/// A batch that a `DataLoader` supplied.
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
    /// The profile.
    pub profile: Profile,
    /// Figures for checking the import.
    pub summary: Summary,
}

/// Figures about an import.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Source of the step boundaries.
    pub marks: StepMarks,
    /// Steps in the trace.
    pub steps_found: usize,
    /// Steps used for medians and means.
    pub steps_used: usize,
    /// Events in the trace.
    pub events: u64,
    /// Bytes of decompressed text.
    pub bytes: u64,
    /// Mean number of kernels per step.
    pub kernels_per_step: f64,
    /// Mean kernel time per step; overlap counts twice.
    pub kernel_time: Micros,
    /// Mean kernel, copy and fill time per step; overlap counts twice.
    pub device_time: Micros,
    /// Share of the kernel time matched to operators, 0 to 1.
    pub joined_share: f64,
    /// Name of the things that kernels are matched to, for display.
    pub joined_to: &'static str,
    /// Number of ranges that overlap others of their thread without nesting.
    pub overlaps: u64,
    /// Host time of the shortest used step, as recorded.
    pub host_step: Micros,
    /// Time that each rank's step waits for the others, in trace order; `None` for a rank without collectives.
    pub exchanges: Vec<Option<Exchange>>,
}

/// Division of a rank's step into its own work and waiting for other ranks, on the host or in collectives on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Exchange {
    /// Step time.
    pub step: Micros,
    /// Time of it spent waiting and exchanging.
    pub waiting: Micros,
}
