//! Workload, origin, measurements and recording: the parts of a profile other than its operations.

use std::fmt;
use std::ops::Mul;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use habitat_base::units::{Bytes, GpuSlug, Micros};

/// The job that the profile's step belongs to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Name of the workload.
    pub name: String,
    /// Training or inference.
    pub mode: Mode,
    /// Samples per step on one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// Number of micro-batches that make up these samples, if gradients are accumulated for one update; the shapes of
    /// operations are those of one micro-batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batches: Option<u64>,
    /// Tokens per sample, for sequence models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u64>,
    /// Precision of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Trainable parameters of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_count: Option<u64>,
}

/// Training or inference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Forward, backward and (usually) optimizer.
    #[default]
    Training,
    /// Forward only.
    Inference,
}

impl Mode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Training, Self::Inference];

    /// Name in files and on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Inference => "inference",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Precision of a step's arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32-bit tensors with PyTorch's defaults: on GPUs with TF32, cuDNN's convolutions and recurrent layers use it
    /// (`torch.backends.cudnn.allow_tf32`), matrix products do not (`torch.backends.cuda.matmul.allow_tf32`).
    Fp32,
    /// 32-bit floating point throughout, without TF32.
    Fp32Strict,
    /// 32-bit tensors; products, convolutions and recurrent layers use TF32 on tensor cores.
    Tf32,
    /// 32-bit tensors; matrix products use TF32, convolutions and recurrent layers do not.
    Tf32Products,
    /// Automatic mixed precision with float16.
    AmpFp16,
    /// Automatic mixed precision with bfloat16.
    AmpBf16,
    /// float16 throughout.
    Fp16,
    /// bfloat16 throughout.
    Bf16,
    /// 8-bit floating-point products.
    Fp8,
}

impl Precision {
    /// All precisions.
    pub const ALL: [Self; 9] = [
        Self::Fp32,
        Self::Fp32Strict,
        Self::Tf32,
        Self::Tf32Products,
        Self::AmpFp16,
        Self::AmpBf16,
        Self::Fp16,
        Self::Bf16,
        Self::Fp8,
    ];

    /// Name in files and on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp32Strict => "fp32-strict",
            Self::Tf32 => "tf32",
            Self::Tf32Products => "tf32-products",
            Self::AmpFp16 => "amp-fp16",
            Self::AmpBf16 => "amp-bf16",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        }
    }

    /// Whether products have the same element type in both; FP8 matches every precision, because not all of its
    /// products use 8 bits.
    pub const fn has_types_of(self, other: Self) -> bool {
        match self {
            _ if self.is_32_bits() => other.is_32_bits() || matches!(other, Self::Fp8),
            Self::Fp16 | Self::AmpFp16 => matches!(other, Self::Fp16 | Self::AmpFp16 | Self::Fp8),
            Self::Bf16 | Self::AmpBf16 => matches!(other, Self::Bf16 | Self::AmpBf16 | Self::Fp8),
            _ => true,
        }
    }

    /// Precision of 32-bit tensors, given PyTorch's two TF32 flags.
    pub const fn with_tf32(products: bool, convolutions: bool) -> Self {
        match (products, convolutions) {
            (false, true) => Self::Fp32,
            (false, false) => Self::Fp32Strict,
            (true, true) => Self::Tf32,
            (true, false) => Self::Tf32Products,
        }
    }

    /// Whether tensors have 32 bits, with or without TF32.
    pub const fn is_32_bits(self) -> bool {
        matches!(self, Self::Fp32 | Self::Fp32Strict | Self::Tf32 | Self::Tf32Products)
    }

    /// Whether matrix products of 32-bit tensors may use TF32; off by default in PyTorch.
    pub(crate) const fn allows_tf32_products(self) -> bool {
        matches!(self, Self::Tf32 | Self::Tf32Products)
    }

    /// Whether convolutions and recurrent layers of 32-bit tensors may use TF32; on by default in PyTorch.
    pub const fn allows_tf32_convolutions(self) -> bool {
        !matches!(self, Self::Fp32Strict | Self::Tf32Products)
    }
}

/// Precisions whose prediction errors are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PrecisionClass {
    /// Matrix products in FP32.
    Fp32,
    /// Matrix products in TF32.
    Tf32,
    /// 16-bit floating point, mixed or throughout.
    Half,
    /// 8-bit floating point.
    Fp8,
}

impl fmt::Display for PrecisionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fp32 => "FP32",
            Self::Tf32 => "TF32",
            Self::Half => "16 bits",
            Self::Fp8 => "8 bits",
        })
    }
}

impl Precision {
    /// Class of the precision.
    pub const fn class(self) -> PrecisionClass {
        match self {
            Self::Fp32 | Self::Fp32Strict => PrecisionClass::Fp32,
            Self::Tf32 | Self::Tf32Products => PrecisionClass::Tf32,
            Self::AmpFp16 | Self::AmpBf16 | Self::Fp16 | Self::Bf16 => PrecisionClass::Half,
            Self::Fp8 => PrecisionClass::Fp8,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The GPU and software a profile was measured on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    /// The GPU's slug in the catalog; left out if the catalog lacks the recording's GPU (`gpu_name` has its name, and
    /// `--origin` sets the slug).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSlug>,
    /// The GPU's name from the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_name: Option<String>,
    /// Framework and version, such as `pytorch 2.1.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    /// CUDA version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Driver version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// Information about the GPU of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name from the driver, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Major and minor compute capability (for AMD GPUs the architecture, such as 9 and 4).
    pub compute_capability: Option<(u32, u32)>,
    /// Number of streaming multiprocessors (AMD: compute units).
    pub multiprocessors: Option<u32>,
    /// Device memory in bytes.
    pub memory_bytes: Option<u64>,
}

impl DeviceInfo {
    /// Prefix of a name made from specifications.
    pub const UNNAMED: &'static str = "unnamed ";

    /// A GPU recorded without a name, named after its specifications; the name is empty if there are none.
    pub fn unnamed(
        vendor: &str,
        compute_capability: Option<(u32, u32)>,
        multiprocessors: Option<u32>,
        memory_bytes: Option<u64>,
    ) -> Self {
        let figures = [
            compute_capability.map(|(major, minor)| format!("compute capability {major}.{minor}")),
            multiprocessors.map(|count| format!("{count} multiprocessors")),
            memory_bytes.map(|bytes| format!("{:.0} GB", bytes as f64 / 1e9)),
        ];
        let maker = (!vendor.is_empty()).then(|| format!("{} GPU", habitat_base::text::clean(vendor, 20)));
        let facts: Vec<String> = maker.into_iter().chain(figures.into_iter().flatten()).collect();
        let name = if facts.is_empty() { String::new() } else { format!("{}{}", Self::UNNAMED, facts.join(", ")) };
        Self { name, compute_capability, multiprocessors, memory_bytes }
    }

    /// Whether the name is the driver's.
    pub fn is_named(&self) -> bool {
        !self.name.starts_with(Self::UNNAMED)
    }
}

/// Measurements of the step as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Wall time, median over the recorded steps.
    #[serde(default, rename = "duration_us", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Micros>,
    /// Shortest and longest recorded step, if there were several.
    #[serde(default, rename = "duration_range_us", skip_serializing_if = "Option::is_none")]
    pub duration_range: Option<[Micros; 2]>,
    /// Union of the device's kernel and copy intervals in the step, median over steps.
    #[serde(default, rename = "device_busy_us", skip_serializing_if = "Option::is_none")]
    pub device_busy: Option<Micros>,
    /// Time in which the device only communicated, mean over the steps; present only if the step communicates.
    #[serde(default, rename = "exposed_communication_us", skip_serializing_if = "Option::is_none")]
    pub exposed_communication: Option<Micros>,
    /// Time that a recorded step waited for its data loader, mean over the steps. Present only if the rest was not
    /// measured on a GPU; otherwise the wait is part of the GPU's idle time.
    #[serde(default, rename = "data_wait_us", skip_serializing_if = "Option::is_none")]
    pub data_wait: Option<Micros>,
    /// Minimum step time that the worker processes of the data loader allow: time per batch in a worker ÷ workers ×
    /// batches per step.
    #[serde(default, rename = "loader_period_us", skip_serializing_if = "Option::is_none")]
    pub loader_period: Option<Micros>,
    /// Worker processes of the data loader; 0 if the training process loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loader_workers: Option<u32>,
    /// CPU cores that the recorded process could use, known if a data loader ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Peak device memory allocated in the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<Bytes>,
    /// Contents of the memory at its peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Number of steps in the medians.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
    /// Whether the wall time is of steps recorded by `torch.profiler`, which slows the host: without it, waiting for
    /// the host takes at most as long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profiled: bool,
    /// Launch mode of most of the step's kernels; left out if they were launched operation by operation or the mode is
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    /// Step time on the CPU, of a recording without a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuStep>,
}

/// Step time on a CPU. Comparisons of two such recordings use it, predictions do not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuStep {
    /// Wall time, median over the steps.
    #[serde(rename = "duration_us")]
    pub duration: Micros,
    /// Shortest and longest step, if there were several.
    #[serde(default, rename = "duration_range_us", skip_serializing_if = "Option::is_none")]
    pub duration_range: Option<[Micros; 2]>,
    /// Number of steps in the median.
    pub samples: u32,
    /// Whether the steps ran under `torch.profiler`, which lengthens them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profiled: bool,
}

/// Launch mode of the kernels of a step, other than operation by operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// By code that `torch.compile` generated.
    Compiled,
    /// Replayed as CUDA graphs, each with one launch.
    CudaGraphs,
}

impl Execution {
    /// Label for display.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Compiled => "compiled code (torch.compile)",
            Self::CudaGraphs => "CUDA graphs",
        }
    }
}

/// Device memory by content, at the peak of the step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Whether it was recorded on a device or computed from shapes.
    pub source: MemorySource,
    /// The model's parameters and buffers.
    #[serde(rename = "parameters_bytes")]
    pub parameters: Bytes,
    /// Gradients of parameters.
    #[serde(rename = "gradients_bytes")]
    pub gradients: Bytes,
    /// State that the optimizer keeps between steps, such as moments.
    #[serde(rename = "optimizer_state_bytes")]
    pub optimizer_state: Bytes,
    /// Tensors kept from the forward pass for the backward pass, and the inputs of the step.
    #[serde(rename = "activations_bytes")]
    pub activations: Bytes,
    /// Everything else: intermediate results, workspaces.
    #[serde(rename = "temporary_bytes")]
    pub temporary: Bytes,
    /// Memory of forward and backward at its own peak, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working: Option<Working>,
}

/// Device memory other than parameters and optimizer state, at the peak of activations and temporaries in forward and
/// backward. These two grow with the batch and are not sharded with the state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Working {
    /// Gradients of parameters.
    #[serde(rename = "gradients_bytes")]
    pub gradients: Bytes,
    /// Tensors kept from the forward pass for the backward pass, and the inputs of the step.
    #[serde(rename = "activations_bytes")]
    pub activations: Bytes,
    /// Everything else.
    #[serde(rename = "temporary_bytes")]
    pub temporary: Bytes,
}

impl Working {
    /// Memory that grows with the batch.
    pub fn growing(&self) -> Bytes {
        self.activations + self.temporary
    }
}

impl Mul<f64> for Working {
    type Output = Self;

    /// Scales the batch by `times`.
    fn mul(self, times: f64) -> Self {
        Self { activations: self.activations * times, temporary: self.temporary * times, ..self }
    }
}

impl Memory {
    /// Sum of all kinds.
    pub fn total(&self) -> Bytes {
        self.parameters + self.gradients + self.optimizer_state + self.activations + self.temporary
    }

    /// Every kind with its name, in order of allocation.
    pub fn kinds(&self) -> [(&'static str, Bytes); 5] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer_state),
            ("activations", self.activations),
            ("temporary", self.temporary),
        ]
    }
}

/// Source of a memory figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// Allocations of a step on a device.
    Recorded,
    /// Computed from the shapes of the step, without a device.
    Computed,
}

/// Beginning of [`Recording::source`] of a step that `trace-shapes` traced.
pub const TRACE_OF_SHAPES: &str = "trace of shapes";
/// Beginning of [`Recording::source`] of an op list.
pub const OP_LIST: &str = "op list";

/// How the profile came about: not needed by any predictor, shown to the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recording {
    /// Format it was made from, such as `kineto trace`.
    pub source: String,
    /// Source of the step boundaries, such as `ProfilerStep marks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_marks: Option<String>,
    /// Number of ranks whose traces were joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Share of kernel time matched to operators, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_share: Option<f64>,
    /// Whether the program's TF32 flags were recorded, or kernels or operators that reveal them; otherwise PyTorch's
    /// defaults are assumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tf32_known: bool,
    /// Notes for the user: missing, assumed or omitted data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
