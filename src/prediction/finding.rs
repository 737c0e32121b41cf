//! Findings of a prediction: what qualifies its times, with the numbers. `reports` has the sentences.
//!
//! Warnings belong to the prediction, and every output that shows the time (screens, tables, files, plans) shows them.
//! Notes are uncertainties, fallbacks, and the figures behind a time.

use schemars::JsonSchema;
use serde::Serialize;

use habitat_base::units::{Bytes, FlopsPerSecond, GpuSlug, Micros};
use habitat_step::profile::{Execution, MemorySource, Precision};

/// Finding with its numbers. Shares and errors are 0 to 1, and the names of fields carry the units.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[allow(missing_docs, reason = "the comment of a variant covers its fields, which are keys of JSON")]
pub enum Finding {
    /// The model was split over GPUs, as these collectives show: one rank did a share of the step.
    Sharded { evidence: Vec<&'static str> },
    /// One rank of a multi-GPU job: its communication per step, and the part not hidden behind other work.
    OneRank { communication_us: Micros, exposed_us: Micros },
    /// The step communicates with other GPUs, and no step was measured.
    Communicates,
    /// The GPU was busy outside the recorded operations for much of its busy time.
    WorkOutside { busy_us: Micros, outside_us: Micros },
    /// The GPU has no matrix cores for the element type of products.
    NoMatrixCores { dtype: &'static str },
    /// The shapes of operators are not understood; `more` are not named.
    UnknownFlops { operators: Vec<Calls>, more: usize },
    /// FLOPs of operators on packed sequences of unknown lengths are estimated.
    EstimatedFlops { operators: Vec<Calls>, more: usize },
    /// Products in float64 are predicted at FP32 rates.
    Float64Products { operators: Vec<Calls>, more: usize },
    /// Products in FP4 are predicted at the rates of other types.
    Fp4Products { operators: Vec<Calls>, more: usize },
    /// Share of the device time that may be compute- or memory-bound, because `all` or some shapes are missing.
    NoShapes { all: bool, share: f64 },
    /// The recorded step is CPU-bound: the GPU waits `idle_us` for its host, and `data_us` for its data. The high end of
    /// each range has `launch_us` per launch, or is the recorded step.
    HostBound {
        idle_us: Micros,
        data_us: Micros,
        step_us: Micros,
        #[serde(skip_serializing_if = "Option::is_none")]
        launch_us: Option<f64>,
    },
    /// The host's launches (in operators of one kernel; each `launch_us`, all `host_us`: of a fast and of a slow CPU) take
    /// longer than the GPU's work: as `expected`, or only with a slow CPU.
    LaunchBound { launches: u64, launch_us: [f64; 2], host_us: [Micros; 2], expected: bool },
    /// The workers of the data loader deliver a batch in this time, and shorter steps wait for them.
    SlowLoader { period_us: Micros },
    /// The training process loads its data between steps, which takes this time for a step as recorded.
    LoadsItself { load_us: Micros },
    /// The data loader delayed each recorded step.
    LateData { wait_us: Micros },
    /// The host is assumed to keep up, whatever was recorded.
    HostKeepsUp,

    /// The step is predicted in another precision than recorded.
    ConvertedPrecision { from: Precision, to: Precision },
    /// The GPU has no matrix cores of this type, so the step keeps its precision.
    PrecisionKept { gpu: GpuSlug, dtype: &'static str, from: Precision, to: Precision },
    /// How the precision changed, whether the profile names the recorded one, and the mean error of such steps.
    PrecisionChanged { from: Precision, recorded: bool, to: Precision, mean_error: f64 },
    /// GPUs that keep the recorded precision.
    PrecisionKeptOn { from: Precision, to: Precision, gpus: Vec<GpuSlug> },
    /// Recorded copies that still count and may be casts that the precision does not need.
    PossibleCasts { copies: u64, to: Precision },
    /// Recorded casts that the precision does not need and that are left out.
    CastsDropped { casts: u64, to: Precision },
    /// Bytes that casts of the precision move, by the rules of autocast.
    CastsAdded { bytes: Bytes, to: Precision },
    /// Casts of the precision are not counted.
    CastsMissing { to: Precision },
    /// Bytes that casts of products' operands to FP8 move.
    OperandsCast { bytes: Bytes },
    /// Step in FP8 over the recorded 16 bits, on a GPU where FP8 is slower.
    SlowerInFp8 { factor: f64, from: Precision },
    /// Share of the device time in operators without shapes, kept in the recorded precision.
    ShapelessOperators { share: f64, from: Precision },
    /// The FP32 step is predicted as in TF32.
    AsTf32,
    /// PyTorch's defaults decide which operations run in TF32.
    Tf32Assumed,

    /// Operations without a measured time on the recording GPU.
    UnmeasuredOperations { operations: usize, of: usize },
    /// Operations overlapped; this share of their sum counts.
    OverlappingOperations { share: f64 },
    /// The wait for the CPU was not recorded.
    UnknownWait,
    /// Wait for the CPU in each step, its share of the step, and how it counts.
    CpuWait { wait_us: Micros, share: f64, counts: WaitCounts },
    /// All times are scaled by the recorded step over the models' prediction of it.
    ScaledToRecorded { predicted_us: Micros, recorded_us: Micros, factor: f64 },
    /// The models are not corrected by the recorded step, because the recording GPU is power-limited.
    Uncorrected { predicted_us: Micros, recorded_us: Micros },
    /// Operations are not launched one by one.
    NoLaunches { execution: Execution },
    /// The step is the busy time of the recorded one.
    BusyTime,

    /// Specifications that no source confirms.
    UnverifiedSpecifications { specifications: Vec<String> },
    /// Day on which the rates of the GPU were calibrated.
    Calibrated { day: String },
    /// The bandwidth is estimated by a rule.
    BandwidthByRule { rule: &'static str },
    /// Operations with neither time nor shapes.
    LeftOut { operations: usize, of: usize },
    /// Steps (or whole training iterations) over the sum of their operators, as `measured` on this GPU or on others.
    StepFactor { factor: f64, iterations: bool, measured: bool },
    /// Operators measured on this GPU that correct the models, and those that do not.
    MeasuredOperators { used: usize, unused: usize },
    /// The models know no measurement of this GPU.
    UnseenGpu,
    /// FP32 rates of a power-limited GPU.
    PowerLimited { sustained_flops_per_s: FlopsPerSecond, burst_flops_per_s: FlopsPerSecond },
    /// Share of the device time outside the training data.
    OutsideTraining { share: f64 },

    /// Steps over the sum of their layers, for linear models.
    LinesFactor { factor: f64 },
    /// The GPU is not among those of the linear models.
    LinesExtrapolated { gpus: usize },
    /// Share of the device time in layers without a linear model.
    LayersWithoutLine { share: f64 },
    /// Linear models replace the default method, because of their error on steps of a kind.
    LinesPreferred {
        error: f64,
        steps: u32,
        on: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        default_error: Option<f64>,
    },

    /// The step on the real GPU is scaled by the effect of changed figures.
    HypotheticalStep,
    /// The GPU does not exist.
    HypotheticalGpu { gpu: String, name: String },

    /// Data that the black-box model was fitted on.
    BlackBox { trained_on: String },
    /// The GPU is treated as one that differs only in memory size.
    TreatedAs { gpu: GpuSlug, known: GpuSlug },
    /// The operator mix is unlike the training data.
    UnusualMix,
    /// The fitted factors do not explain the step.
    Unexplained,
    /// Factor on operator times that fills the step.
    ScaledTotals { factor: f64 },
    /// Share of the GPU time in a kind of operator that the training data lacks.
    UnseenKind { kind: &'static str, share: f64 },
    /// The memory need is unknown without shapes.
    UnknownMemory,
    /// The step is interpolated between two batch sizes, or between two image sizes in `pixels`.
    Interpolated { pixels: bool, sizes: [u64; 2] },

    /// Per-GPU batches that keep the global batch cannot be predicted.
    NoShares { error: String },
    /// One batch size was recorded, so shapes are scaled to the others.
    OneBatch { batch: u64 },
    /// A batch far beyond the largest recorded one.
    FarBatch { batch: u64, largest: u64 },
    /// Operators whose call counts differ between two batches.
    UnlikeOperators { operators: usize, batches: [u64; 2] },
    /// The step grows faster or more slowly than linearly; largest distance of a point from a line.
    Bend { faster: bool, distance: f64 },
    /// The step does not grow with the recorded batches, so a share is assumed to.
    FlatStep { share: f64, batch: u64 },
    /// Little of the step grows with the batch.
    MostlyFixed { share: f64, batch: u64 },
    /// A batch beyond those for which errors were measured.
    BeyondTested { batch: u64, largest: u64 },
    /// Beyond the recorded batches, busy time is extrapolated separately.
    BusyExtrapolated,
    /// The line goes through predicted steps.
    LineOfPredictions,
    /// Operations without a batch dimension, with their share of the measured device time.
    NoBatchDimension {
        operations: usize,
        of: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        share: Option<f64>,
    },
    /// Memory by batch size, in the recorded precision also if the step is `converted`, with the least and its growth.
    MemoryByBatch {
        fixed_bytes: Bytes,
        per_sample_bytes: Bytes,
        #[serde(skip_serializing_if = "Option::is_none")]
        least_bytes: Option<[Bytes; 2]>,
        basis: LineBasis,
        peaks: MemorySource,
        converted: bool,
    },
}

/// Operator with its calls per step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Calls {
    /// Name of the operator.
    pub name: String,
    /// Calls per step.
    pub calls: u64,
}

/// Treatment of the recorded wait for the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitCounts {
    /// Kept on every GPU.
    Kept,
    /// Kept on every GPU, but the profiler slowed the CPU.
    Profiled,
    /// Left out on every GPU.
    LeftOut,
}

/// Origin of a memory line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LineBasis {
    /// Fit through this number of peaks.
    Peaks(usize),
    /// One peak with a known part of parameters.
    Parameters,
    /// One peak, assumed to grow in proportion to the batch.
    Proportional,
    /// Upper estimates from shapes.
    AtMost,
}

impl Finding {
    /// Stable code.
    pub fn code(&self) -> &'static str {
        self.into()
    }

    /// All codes, in the order of the variants.
    pub const fn codes() -> &'static [&'static str] {
        <Self as strum::VariantNames>::VARIANTS
    }

    /// Place of a warning in the order of display; `None` for a note.
    pub const fn rank(&self) -> Option<u8> {
        Some(match self {
            Self::Sharded { .. } => 0,
            Self::OneRank { .. } | Self::Communicates => 1,
            Self::WorkOutside { .. } => 2,
            Self::NoMatrixCores { .. } => 3,
            Self::UnknownFlops { .. }
            | Self::EstimatedFlops { .. }
            | Self::Float64Products { .. }
            | Self::Fp4Products { .. } => 4,
            Self::NoShapes { .. } => 5,
            Self::HostBound { .. } | Self::LaunchBound { .. } => 6,
            Self::SlowLoader { .. } | Self::LoadsItself { .. } | Self::LateData { .. } => 7,
            Self::HostKeepsUp => 8,
            _ => return None,
        })
    }

    /// Whether it is the same warning, or the same wait for another host, which it then covers.
    fn takes(&mut self, other: &Self) -> bool {
        use Finding::LaunchBound as Bound;
        match (self, other) {
            (
                Bound { launches: own, launch_us: [fast, slow], host_us: [low, high], expected: is },
                Bound { launches, launch_us, host_us, expected },
            ) if (*own, *is) == (*launches, *expected) => {
                (*fast, *slow) = (fast.min(launch_us[0]), slow.max(launch_us[1]));
                (*low, *high) = (low.min(host_us[0]), high.max(host_us[1]));
                true
            }
            (own, other) => own == other,
        }
    }

    /// Whether the model was split over several GPUs.
    pub const fn is_sharded(&self) -> bool {
        matches!(self, Self::Sharded { .. })
    }

    /// Whether steps wait for the data loader.
    pub const fn is_of_data(&self) -> bool {
        matches!(self, Self::SlowLoader { .. } | Self::LoadsItself { .. } | Self::LateData { .. })
    }

    /// Whether the GPU waits for the CPU.
    pub const fn is_of_host(&self) -> bool {
        matches!(self, Self::HostBound { .. } | Self::LaunchBound { .. })
    }
}

/// Distinct warnings, with the number of lists that contain each. Waits for hosts of different speeds are one.
pub fn distinct<'a>(lists: impl IntoIterator<Item = &'a [Finding]>) -> Vec<(Finding, usize)> {
    let mut found: Vec<(Finding, usize)> = Vec::new();
    for warning in lists.into_iter().flatten() {
        match found.iter_mut().find_map(|(other, times)| other.takes(warning).then_some(times)) {
            Some(times) => *times += 1,
            None => found.push((warning.clone(), 1)),
        }
    }
    found.sort_by_key(|(warning, _)| warning.rank());
    found
}

/// Warning with the GPUs that it concerns.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Shared {
    /// The warning.
    #[serde(flatten)]
    pub finding: Finding,
    /// Number of GPUs that it concerns.
    pub gpus: usize,
    /// Number of predicted GPUs.
    pub of_gpus: usize,
    /// Wait for data on those GPUs.
    #[serde(flatten)]
    pub waits: Option<Waits>,
}

/// Lowest and highest wait for data on some GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Waits {
    /// Time that the device waits in each step.
    pub idle_us: [Micros; 2],
    /// Share of the step, 0 to 1.
    pub idle_share: [f64; 2],
}
