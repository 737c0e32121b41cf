//! What was run, on what, and how it was recorded: the parts of a profile around its
//! operations.

use std::fmt;
use std::ops::Mul;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, GpuSlug, Micros};

/// The job whose step a profile holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// A name for it.
    pub name: String,
    /// Training or inference.
    pub mode: Mode,
    /// Samples in one step on one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// Micro-batches that these samples come in, where their gradients are accumulated for one update: operations
    /// have the extents of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batches: Option<u64>,
    /// Tokens of one sample, for sequence models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u64>,
    /// What the step ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Trainable parameters of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_count: Option<u64>,
}

/// Training or inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Forward, backward and (usually) optimizer.
    Training,
    /// Forward only.
    Inference,
}

impl Mode {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Training, Self::Inference];

    /// The name in files and on screen.
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

/// The arithmetic a step ran in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32-bit tensors as PyTorch computes with them by default: on GPUs that have TF32, cuDNN's convolutions
    /// and recurrent layers run in it (`torch.backends.cudnn.allow_tf32`), matrix products do not
    /// (`torch.backends.cuda.matmul.allow_tf32`).
    Fp32,
    /// 32-bit floating point throughout, TF32 nowhere.
    Fp32Strict,
    /// 32-bit tensors, products, convolutions and recurrent layers in TF32 on tensor cores.
    Tf32,
    /// 32-bit tensors, matrix products in TF32, convolutions and recurrent layers not.
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
    /// All of them.
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

    /// The name in files and on screen.
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

    /// Whether products have the same element type in both; in FP8 not all of them have.
    pub const fn has_types_of(self, other: Self) -> bool {
        match self {
            _ if self.is_32_bits() => other.is_32_bits() || matches!(other, Self::Fp8),
            Self::Fp16 | Self::AmpFp16 => matches!(other, Self::Fp16 | Self::AmpFp16 | Self::Fp8),
            Self::Bf16 | Self::AmpBf16 => matches!(other, Self::Bf16 | Self::AmpBf16 | Self::Fp8),
            _ => true,
        }
    }

    /// 32-bit tensors with TF32 allowed or not, by PyTorch's two flags.
    pub const fn with_tf32(products: bool, convolutions: bool) -> Self {
        match (products, convolutions) {
            (false, true) => Self::Fp32,
            (false, false) => Self::Fp32Strict,
            (true, true) => Self::Tf32,
            (true, false) => Self::Tf32Products,
        }
    }

    /// Whether tensors have 32 bits, TF32 allowed or not.
    pub const fn is_32_bits(self) -> bool {
        matches!(self, Self::Fp32 | Self::Fp32Strict | Self::Tf32 | Self::Tf32Products)
    }

    /// Whether matrix products of 32-bit tensors may run in TF32. Off by default in PyTorch.
    pub const fn allows_tf32_products(self) -> bool {
        matches!(self, Self::Tf32 | Self::Tf32Products)
    }

    /// Whether convolutions and recurrent layers of 32-bit tensors may run in TF32. On by
    /// default in PyTorch.
    pub const fn allows_tf32_convolutions(self) -> bool {
        !matches!(self, Self::Fp32Strict | Self::Tf32Products)
    }
}

/// Precisions whose errors count together.
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
    /// Its class.
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
    /// The GPU's slug in the catalog; left out where the recording does not name a GPU
    /// that the catalog has (`gpu_name` says what it named, and `--origin` sets it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSlug>,
    /// The GPU's name as the driver gives it.
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

/// What a recording says of the GPU it was made on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The driver's name, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Major and minor compute capability (of AMD GPUs the architecture, as 9 and 4).
    pub compute_capability: Option<(u32, u32)>,
    /// Streaming multiprocessors (compute units).
    pub multiprocessors: Option<u32>,
    /// Device memory in bytes.
    pub memory_bytes: Option<u64>,
}

impl DeviceInfo {
    /// What stands in front of a name that is made of figures.
    pub const UNNAMED: &'static str = "unnamed ";

    /// A GPU of which figures alone were recorded, with these for a name; no name at all without any.
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
        let maker = (!vendor.is_empty()).then(|| format!("{} GPU", crate::text::clean(vendor, 20)));
        let facts: Vec<String> = maker.into_iter().chain(figures.into_iter().flatten()).collect();
        let name = if facts.is_empty() { String::new() } else { format!("{}{}", Self::UNNAMED, facts.join(", ")) };
        Self { name, compute_capability, multiprocessors, memory_bytes }
    }

    /// Whether the name is the driver's.
    pub fn is_named(&self) -> bool {
        !self.name.starts_with(Self::UNNAMED)
    }
}

/// What was measured of the step as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Wall time, median over the recorded steps.
    #[serde(default, rename = "duration_us", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Micros>,
    /// Shortest and longest recorded step, where there were several.
    #[serde(default, rename = "duration_range_us", skip_serializing_if = "Option::is_none")]
    pub duration_range: Option<[Micros; 2]>,
    /// Union of the device's kernel and copy intervals in the step, median over steps.
    #[serde(default, rename = "device_busy_us", skip_serializing_if = "Option::is_none")]
    pub device_busy: Option<Micros>,
    /// Time of the step in which the device did nothing but communicate, mean over the steps; only if it
    /// communicated.
    #[serde(default, rename = "exposed_communication_us", skip_serializing_if = "Option::is_none")]
    pub exposed_communication: Option<Micros>,
    /// What a recorded step waited for its data loader, mean over the steps; only where the rest of it was not
    /// measured on a GPU, whose idle time holds it.
    #[serde(default, rename = "data_wait_us", skip_serializing_if = "Option::is_none")]
    pub data_wait: Option<Micros>,
    /// Least time from step to step that the worker processes of the data loader allow: time of a batch in a worker ÷
    /// workers × batches of a step.
    #[serde(default, rename = "loader_period_us", skip_serializing_if = "Option::is_none")]
    pub loader_period: Option<Micros>,
    /// Largest device memory allocated in the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<Bytes>,
    /// What the memory holds when most of it is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Steps the medians are over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
    /// Whether the wall time is of steps that were recorded by `torch.profiler`, which slows the
    /// host down: without it, waiting for the host is at most as long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profiled: bool,
    /// How most of the step's kernels were launched; left out where that was operation by
    /// operation, or the recording does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
}

/// How the kernels of a step are launched, where not operation by operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// By the code that `torch.compile` made of the operations.
    Compiled,
    /// Replayed as CUDA graphs, each launched at once.
    CudaGraphs,
}

impl Execution {
    /// What the step is, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Compiled => "compiled code (torch.compile)",
            Self::CudaGraphs => "CUDA graphs",
        }
    }
}

/// Device memory by what it holds, at the moment of the step at which most is allocated.
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
    /// What the optimizer keeps between steps, such as moments.
    #[serde(rename = "optimizer_state_bytes")]
    pub optimizer_state: Bytes,
    /// What the forward pass keeps for the backward pass, and the step's inputs.
    #[serde(rename = "activations_bytes")]
    pub activations: Bytes,
    /// Everything else: results in the making, workspaces.
    #[serde(rename = "temporary_bytes")]
    pub temporary: Bytes,
    /// What forward and backward take at another moment, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working: Option<Working>,
}

/// Device memory beside parameters and optimizer state at the moment of forward and backward at which activations
/// and what is temporary are most together: these grow with the batch, and are not divided with the state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Working {
    /// Gradients of parameters.
    #[serde(rename = "gradients_bytes")]
    pub gradients: Bytes,
    /// What the forward pass keeps for the backward pass, and the step's inputs.
    #[serde(rename = "activations_bytes")]
    pub activations: Bytes,
    /// Everything else.
    #[serde(rename = "temporary_bytes")]
    pub temporary: Bytes,
}

impl Working {
    /// What grows with the batch.
    pub fn growing(&self) -> Bytes {
        self.activations + self.temporary
    }
}

impl Mul<f64> for Working {
    type Output = Self;

    /// At so many times the batch.
    fn mul(self, times: f64) -> Self {
        Self { activations: self.activations * times, temporary: self.temporary * times, ..self }
    }
}

impl Memory {
    /// The sum of all kinds.
    pub fn total(&self) -> Bytes {
        self.parameters + self.gradients + self.optimizer_state + self.activations + self.temporary
    }

    /// Every kind with its name, in the order in which a job's life brings them.
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

/// Where a memory figure is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// Allocations of a step on a device.
    Recorded,
    /// A run of the step's shapes, with no device.
    Computed,
}

/// Beginning of [`Recording::source`] of a step that `trace-shapes` traced.
pub const TRACE_OF_SHAPES: &str = "trace of shapes";
/// Beginning of [`Recording::source`] of an op list.
pub const OP_LIST: &str = "op list";

/// How the profile came about: not needed by any predictor, shown to the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recording {
    /// The form it was made from, such as `kineto trace`.
    pub source: String,
    /// How the step's boundaries were found, such as `ProfilerStep marks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_marks: Option<String>,
    /// Ranks whose traces were joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Share of kernel time that was joined to an operator, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_share: Option<f64>,
    /// Whether the program's TF32 flags were recorded, or kernels or operators that show them; else PyTorch's
    /// defaults are assumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tf32_known: bool,
    /// Anything the reader should know: what was missing, assumed or left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
