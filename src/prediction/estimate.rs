//! Prediction types: every time is a range with the method it came from.

use std::fmt;

use serde::Serialize;

use habitat_base::units::{Bytes, GpuSlug, Micros, OpenRange, Range, SamplesPerSecond, Watts};
use habitat_step::catalog::Vendor;
use habitat_step::profile::{Origin, Phase, Working, Workload};

use super::host::Host;
use super::method::Method;
use super::rate::Rates;
use super::scale::Link;
use super::sharding::{Activations, ModelStates};
use super::transformer::TransformerStep;
use super::warning::{WAITS_FOR_DATA, Warning, WarningKind, distinct};

/// Predicted time with its range and method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Time with the ends of its range.
    pub range: Range<Micros>,
    /// Method of the prediction.
    pub method: Method,
}

impl Estimate {
    /// Builds `mid` with a symmetric relative band ([`Range::with_band`]).
    pub fn with_band(mid: Micros, band: f64, method: Method) -> Self {
        Self { range: Range::with_band(mid, band), method }
    }

    /// Builds `mid` with ends at `low` and `high` times it ([`Range::with_factors`]).
    pub fn with_factors(mid: Micros, low: f64, high: f64, method: Method) -> Self {
        Self { range: Range::with_factors(mid, low, high), method }
    }

    /// Samples per second of steps with `batch` samples. The upper end is `None` if the step may take no time; `None`
    /// for a step without time.
    pub fn throughput(&self, batch: u64) -> Option<OpenRange<SamplesPerSecond>> {
        let rate = |time: Micros| SamplesPerSecond::new(batch as f64 / time.as_secs()).ok();
        let Range { low, mid, high } = self.range;
        Some(OpenRange { low: rate(high)?, mid: rate(mid)?, high: rate(low) })
    }
}

/// Predictions of one workload on several GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// Workload of the profile.
    pub workload: Workload,
    /// Where the profile was measured, if it was.
    pub origin: Option<Origin>,
    /// Whether steps include the wait for the host.
    pub host: Host,
    /// Whether the recorded step exchanges data with other GPUs; its batch is then a share of an update's.
    pub communicates: bool,
    /// One prediction per GPU, in the requested order.
    pub predictions: Vec<Prediction>,
    /// Notes on all of them.
    pub notes: Vec<String>,
}

impl Predictions {
    /// Warnings of all predictions without duplicates, with the number of GPUs if not all are affected.
    pub fn warnings(&self) -> Vec<Warning> {
        let named = |(warning, of): (&Warning, String)| {
            let text = match warning.text.strip_prefix(WAITS_FOR_DATA) {
                Some(rest) => format!("{WAITS_FOR_DATA}{}; {rest}", self.waits(&of)),
                None if of.is_empty() => warning.text.clone(),
                None => format!("on {of}: {}", warning.text),
            };
            Warning { kind: warning.kind, text }
        };
        self.distinct().map(named).collect()
    }

    /// Short forms of the warnings.
    pub fn brief_warnings(&self) -> Vec<String> {
        let named = |(warning, of): (&Warning, String)| match warning.kind.brief() {
            brief if of.is_empty() => brief.to_owned(),
            brief => format!("{brief} ({of})"),
        };
        self.distinct().map(named).collect()
    }

    /// Time and share that the affected GPUs wait for data: "6.84 ms a step, 74 to 88 % of the step on 99 of 108 GPUs".
    fn waits(&self, of: &str) -> String {
        let waits = |one: &&Prediction| one.warnings.iter().any(|it| it.kind == WarningKind::WaitsForData);
        let span = |of_one: &dyn Fn(&Prediction) -> f64, digits: usize| {
            let values = self.predictions.iter().filter(waits).map(of_one);
            let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
            let [low, high] = [low, high].map(|end| format!("{end:.digits$}"));
            if low == high { low } else { format!("{low} to {high}") }
        };
        let time = span(&|one| one.host_idle.as_millis(), 2);
        let share = span(&|one| (one.host_idle / one.step.mid() * 100.0).min(100.0), 0);
        let on = if of.is_empty() { String::new() } else { format!(" on {of}") };
        format!("{time} ms a step, {share} % of the step{on}")
    }

    /// Each warning with the number of affected GPUs in words, empty if all are.
    fn distinct(&self) -> impl Iterator<Item = (&Warning, String)> {
        let all = self.predictions.len();
        let found = distinct(self.predictions.iter().map(|prediction| prediction.warnings.as_slice()));
        found.into_iter().map(move |(warning, times)| {
            (warning, if times < all { format!("{times} of {all} GPUs") } else { String::new() })
        })
    }
}

/// Predicted step of a workload on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The GPU.
    pub gpu: GpuFacts,
    /// Time of one step on one GPU, without communication.
    pub step: StepTime,
    /// Samples per second (batch size ÷ step time); `None` if the batch size is unknown.
    pub throughput: Option<OpenRange<SamplesPerSecond>>,
    /// Part of the step in which the device waits for the host.
    pub host_idle: Micros,
    /// Device time by method.
    pub shares: Vec<MethodShare>,
    /// Predictions of operations, in the order of the profile; empty with
    /// [`Options::steps_only`](super::Options::steps_only).
    pub operations: Vec<OperationPrediction>,
    /// Share of the operators' time in the optimizer update, 0 to 1.
    pub update_share: f64,
    /// Share of the measured device time that the step leaves out, because its method cannot predict those operations,
    /// 0 to 1.
    pub left_out: f64,
    /// Whether the step fits in memory.
    pub memory: MemoryFit,
    /// Steps at other batch sizes, if requested (`batches::add_sizes`).
    pub at_batches: Vec<AtBatch>,
    /// Parts that tensor and pipeline parallel GPUs can divide; `None` for inference, and without attention layers.
    pub transformer: Option<TransformerStep>,
    /// Note on a converted precision, or why the requested one is not predicted; `None` if none was requested.
    pub precision_note: Option<String>,
    /// Whether the step keeps the recorded precision, because the GPU has no rate for the requested one.
    pub keeps_precision: bool,
    /// Warnings to show wherever the step appears.
    pub warnings: Vec<Warning>,
    /// Uncertainties and fallbacks behind the numbers.
    pub notes: Vec<String>,
}

impl Prediction {
    /// Note on the wide range of a step in 16 or 8 bits on an AMD GPU; `None` for other steps.
    pub fn narrow_on_amd(&self) -> Option<&str> {
        self.notes.iter().map(String::as_str).find(|note| *note == super::notes::NARROW_ON_AMD)
    }

    /// Share of the device time that fitted lines predict, 0 to 1.
    pub fn by_fitted_lines(&self) -> f64 {
        let fitted =
            |share: &&MethodShare| matches!(share.method, Method::KernelWise | Method::LayerWise | Method::EndToEnd);
        self.shares.iter().filter(fitted).fold(0.0, |sum, share| sum + share.share)
    }

    /// Time of the optimizer update: its share of the operators' time, times the step without host wait. Equal at every
    /// batch size.
    pub fn update(&self) -> Micros {
        self.step.mid().checked_sub(self.host_idle).unwrap_or_default() * self.update_share
    }

    /// Step that plans use, on one GPU. A measurement has no range: over many steps the median counts, not the slowest
    /// step.
    pub fn planning_step(&self) -> Estimate {
        match &self.step {
            StepTime::Measured { median, .. } => Estimate::with_band(*median, 0.0, Method::Measured),
            StepTime::Predicted(estimate) => *estimate,
        }
    }
}

/// Step at a batch size other than the recorded one.
#[derive(Debug, Clone, PartialEq)]
pub struct AtBatch {
    /// Samples per step on one GPU.
    pub batch_size: u64,
    /// Step on one GPU, without communication.
    pub step: Estimate,
    /// Whether it fits in memory.
    pub memory: MemoryFit,
    /// Source of the prediction, in words.
    pub why: String,
}

/// Step time, with measurements and predictions kept apart.
#[derive(Debug, Clone, PartialEq)]
pub enum StepTime {
    /// Recorded on this GPU, with the shortest and longest step if several were recorded.
    Measured {
        /// Median step.
        median: Micros,
        /// Shortest and longest step.
        range: Option<[Micros; 2]>,
    },
    /// Predicted for this GPU.
    Predicted(Estimate),
}

impl StepTime {
    /// Converts to an estimate (`Method::Measured` for a measurement).
    pub fn as_estimate(&self) -> Estimate {
        match self {
            Self::Measured { median, range } => {
                let [low, high] = range.unwrap_or([*median; 2]);
                Estimate { range: Range { low, mid: *median, high }, method: Method::Measured }
            }
            Self::Predicted(estimate) => *estimate,
        }
    }

    /// Median or most likely value.
    pub const fn mid(&self) -> Micros {
        match self {
            Self::Measured { median, .. } => *median,
            Self::Predicted(estimate) => estimate.range.mid,
        }
    }

    /// Whether it was recorded, not predicted.
    pub const fn is_measured(&self) -> bool {
        matches!(self, Self::Measured { .. })
    }

    /// Whether it comes from a step recorded on this GPU: measured, or derived from a measurement.
    pub fn is_of_origin(&self) -> bool {
        self.as_estimate().method.is_of_origin()
    }
}

/// Device time that one method predicts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MethodShare {
    /// The method.
    pub method: Method,
    /// Device time of one step by this method.
    #[serde(rename = "device_time_us")]
    pub device_time: Micros,
    /// Share of the predicted device time, 0 to 1.
    pub share: f64,
}

/// Prediction of one operation on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationPrediction {
    /// Index into the profile's operations.
    pub index: usize,
    /// Operator name.
    pub name: String,
    /// Phase of the step.
    pub phase: Phase,
    /// Occurrences in the step.
    pub count: u32,
    /// Device time of a single occurrence; `None` without shapes or kernels. `why` then gives the reason, and the step
    /// leaves it out.
    pub time: Option<Estimate>,
    /// Measured device time of one occurrence on the origin, for comparison.
    pub origin_time: Option<Micros>,
    /// Whether it is outside the training data of a learned model.
    pub is_far: bool,
    /// Reason for this method and its parameters (γ and its source).
    pub why: String,
}

/// Facts about the GPU of a prediction that other modules need.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuFacts {
    /// Identifier.
    pub slug: GpuSlug,
    /// Display name.
    pub name: String,
    /// Vendor.
    pub vendor: Vendor,
    /// Architecture.
    pub architecture: String,
    /// Device memory, nominal.
    pub memory: Bytes,
    /// Link to other GPUs in its machine.
    pub link: Link,
    /// Power limit.
    pub power: Option<Watts>,
    /// Whether its catalog entry has unverified figures.
    pub doubtful: bool,
}

impl GpuFacts {
    /// Copies the facts of a GPU of the catalog.
    pub fn new(rates: &Rates<'_>) -> Self {
        let gpu = rates.gpu;
        Self {
            slug: gpu.slug.clone(),
            name: gpu.name.clone(),
            vendor: gpu.vendor,
            architecture: gpu.architecture.clone(),
            memory: gpu.memory,
            link: Link::new(gpu),
            power: gpu.power,
            doubtful: gpu.is_doubtful(),
        }
    }
}

/// Whether the step fits in device memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryFit {
    /// Verdict.
    pub fits: Fits,
    /// Memory that the step needs, if known; the lower end if it was recorded in another precision.
    pub needed: Option<Bytes>,
    /// Memory of forward and backward beside the state, if known.
    pub working: Option<Working>,
    /// Maximum memory need, if known.
    pub at_most: Option<Bytes>,
    /// Usable memory: 92 % of nominal.
    pub usable: Bytes,
    /// Reason in words.
    pub reason: String,
    /// If the step does not fit, the largest batch per GPU that would, if peaks or parameters show how memory grows.
    pub largest_batch: Option<u64>,
    /// Parts that can be divided among GPUs, if known.
    pub states: Option<ModelStates>,
    /// Activations that the forward pass keeps, if kinds of memory were recorded.
    pub activations: Option<Activations>,
    /// The same with every number as small as it may be, of a step that is predicted in narrower or wider numbers
    /// than it was recorded in.
    pub narrowest: Option<Box<Self>>,
}

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
