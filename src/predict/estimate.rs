//! What a prediction is: a range with the method it came from, never a bare number.

use std::fmt;

use serde::Serialize;

use crate::catalog::Vendor;
use crate::profile::{Origin, Phase, Working, Workload};
use crate::units::{Bytes, GpuSlug, Micros, OpenRange, Range, SamplesPerSecond, Watts};

use super::host::Host;
use super::method::Method;
use super::rate::Rates;
use super::scale::Link;
use super::sharding::{Activations, ModelStates};
use super::transformer::TransformerStep;
use super::warning::{WAITS_FOR_DATA, Warning, WarningKind, distinct};

/// A predicted time with its range and the method that gave it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The time with the ends of its range.
    pub range: Range<Micros>,
    /// How it was obtained.
    pub method: Method,
}

impl Estimate {
    /// `mid` with a symmetric relative band ([`Range::with_band`]).
    pub fn with_band(mid: Micros, band: f64, method: Method) -> Self {
        Self { range: Range::with_band(mid, band), method }
    }

    /// `mid` with the ends at `low` and `high` times it ([`Range::with_factors`]).
    pub fn with_factors(mid: Micros, low: f64, high: f64, method: Method) -> Self {
        Self { range: Range::with_factors(mid, low, high), method }
    }

    /// Samples per second of steps that take this long and have `batch` samples. The upper
    /// end is not known where the step may take no time; `None` for a step of no time.
    pub fn throughput(&self, batch: u64) -> Option<OpenRange<SamplesPerSecond>> {
        let rate = |time: Micros| SamplesPerSecond::new(batch as f64 / time.as_secs()).ok();
        let Range { low, mid, high } = self.range;
        Some(OpenRange { low: rate(high)?, mid: rate(mid)?, high: rate(low) })
    }
}

/// Predictions of one workload on several GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// The workload of the profile they start from.
    pub workload: Workload,
    /// Where that profile was measured, if it was.
    pub origin: Option<Origin>,
    /// Whether the device waits for the host in them.
    pub host: Host,
    /// Whether the recorded step exchanges data with other GPUs: then its batch is a share of an update's.
    pub communicates: bool,
    /// One a GPU, in the order asked for.
    pub predictions: Vec<Prediction>,
    /// What the reader should know of all of them.
    pub notes: Vec<String>,
}

impl Predictions {
    /// What is to be shown with any of the times, each once, and of how many GPUs it holds
    /// where it does not of all.
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

    /// The same in a few words each.
    pub fn brief_warnings(&self) -> Vec<String> {
        let named = |(warning, of): (&Warning, String)| match warning.kind.brief() {
            brief if of.is_empty() => brief.to_owned(),
            brief => format!("{brief} ({of})"),
        };
        self.distinct().map(named).collect()
    }

    /// How long the GPUs that wait for data do so, and its share of their steps: "6.84 ms a step, 74 to 88 % of the
    /// step on 99 of 108 GPUs".
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

    /// Each warning with the GPUs that it holds for in words, empty where it is all of them.
    fn distinct(&self) -> impl Iterator<Item = (&Warning, String)> {
        let all = self.predictions.len();
        let found = distinct(self.predictions.iter().map(|prediction| prediction.warnings.as_slice()));
        found.into_iter().map(move |(warning, times)| {
            (warning, if times < all { format!("{times} of {all} GPUs") } else { String::new() })
        })
    }
}

/// The step of a workload on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The GPU.
    pub gpu: GpuFacts,
    /// The time of one step on one GPU, without communication.
    pub step: StepTime,
    /// Samples (batch size ÷ step time); `None` where the batch size is not known.
    pub throughput: Option<OpenRange<SamplesPerSecond>>,
    /// Part of the step in which the device waits for the host.
    pub host_idle: Micros,
    /// Device time by method: which part of the step came from which.
    pub shares: Vec<MethodShare>,
    /// Operation by operation, in the order of the profile; none with
    /// [`Options::steps_only`](super::Options::steps_only).
    pub operations: Vec<OperationPrediction>,
    /// Share of the operators' time in the optimizer's update, 0 to 1.
    pub update_share: f64,
    /// Share of the device time measured on the origin that the step leaves out, as its
    /// method knows nothing of those operations, 0 to 1.
    pub left_out: f64,
    /// Whether the step's memory fits.
    pub memory: MemoryFit,
    /// The step at other batches, where they were asked for (`batches::add_sizes`).
    pub at_batches: Vec<AtBatch>,
    /// What tensor and pipeline parallel GPUs can divide of it; `None` of inference, and where no layers
    /// with attention were found.
    pub transformer: Option<TransformerStep>,
    /// That another precision than the recorded one is predicted, or why the one asked for
    /// is not; `None` where none was asked for.
    pub precision_note: Option<String>,
    /// Whether the step is in the recorded precision, as the GPU has no rate for the one that was chosen.
    pub keeps_precision: bool,
    /// What is to be shown wherever the step is.
    pub warnings: Vec<Warning>,
    /// Doubts and fall-backs that went into the numbers.
    pub notes: Vec<String>,
}

impl Prediction {
    /// Share of the device time that fitted lines answer for, 0 to 1.
    pub fn by_fitted_lines(&self) -> f64 {
        let fitted =
            |share: &&MethodShare| matches!(share.method, Method::KernelWise | Method::LayerWise | Method::EndToEnd);
        self.shares.iter().filter(fitted).fold(0.0, |sum, share| sum + share.share)
    }

    /// What of the step is the optimizer's update: its share of the operators' time, times the step
    /// without its waiting for the host. It is the same at every batch size.
    pub fn update(&self) -> Micros {
        self.step.mid().checked_sub(self.host_idle).unwrap_or_default() * self.update_share
    }

    /// The step that a plan counts with, on one GPU. A measurement stands for itself, with
    /// no range: over many steps their median is what counts, not the slowest of them.
    pub fn planning_step(&self) -> Estimate {
        match &self.step {
            StepTime::Measured { median, .. } => Estimate::with_band(*median, 0.0, Method::Measured),
            StepTime::Predicted(estimate) => *estimate,
        }
    }
}

/// The step at another batch than the recorded one.
#[derive(Debug, Clone, PartialEq)]
pub struct AtBatch {
    /// Samples of it on one GPU.
    pub batch_size: u64,
    /// The step on one GPU, without communication.
    pub step: Estimate,
    /// Whether it fits.
    pub memory: MemoryFit,
    /// How it was found, in words.
    pub why: String,
}

/// A measurement or a prediction: the two cannot be mistaken for each other.
#[derive(Debug, Clone, PartialEq)]
pub enum StepTime {
    /// Recorded on this GPU, with the shortest and longest step where several were recorded.
    Measured {
        /// Median step.
        median: Micros,
        /// Shortest and longest.
        range: Option<[Micros; 2]>,
    },
    /// Predicted for this GPU.
    Predicted(Estimate),
}

impl StepTime {
    /// Low, mid and high with the method (`Method::Measured` for a measurement).
    pub fn as_estimate(&self) -> Estimate {
        match self {
            Self::Measured { median, range } => {
                let [low, high] = range.unwrap_or([*median; 2]);
                Estimate { range: Range { low, mid: *median, high }, method: Method::Measured }
            }
            Self::Predicted(estimate) => *estimate,
        }
    }

    /// The median or best single value.
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

    /// Whether it comes from a step that was recorded on this very GPU: measured, or derived
    /// from a measurement.
    pub fn is_of_origin(&self) -> bool {
        self.as_estimate().method.is_of_origin()
    }
}

/// Device time that one method answers for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MethodShare {
    /// The method.
    pub method: Method,
    /// Device time of one step by it.
    #[serde(rename = "device_time_us")]
    pub device_time: Micros,
    /// Its share of the predicted device time, 0 to 1.
    pub share: f64,
}

/// One operation on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationPrediction {
    /// Index into the profile's operations.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: Phase,
    /// Occurrences in the step.
    pub count: u32,
    /// Device time of ONE occurrence; `None` where nothing can be said (no shapes, no
    /// kernels), and then `why` says so and the step leaves it out.
    pub time: Option<Estimate>,
    /// Measured device time of one occurrence on the origin, for comparison.
    pub origin_time: Option<Micros>,
    /// Whether it lies outside what a learned model was trained on.
    pub is_far: bool,
    /// Why this method and which choices it made (γ and where it came from).
    pub why: String,
}

/// What other rooms need to know of the GPU of a prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuFacts {
    /// Identifier.
    pub slug: GpuSlug,
    /// Its name.
    pub name: String,
    /// Maker.
    pub vendor: Vendor,
    /// Architecture.
    pub architecture: String,
    /// Device memory, nominal.
    pub memory: Bytes,
    /// How fast it exchanges data with others in its machine.
    pub link: Link,
    /// Power limit.
    pub power: Option<Watts>,
    /// Whether the catalog row has unconfirmed figures.
    pub doubtful: bool,
}

impl GpuFacts {
    /// Of a GPU of the catalog.
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
    /// The answer.
    pub fits: Fits,
    /// What the step needs, if that is known; the least if it was recorded in other numbers.
    pub needed: Option<Bytes>,
    /// What it needs in forward and backward beside its state, where that is known.
    pub working: Option<Working>,
    /// The most that it needs, where that is known.
    pub at_most: Option<Bytes>,
    /// What may be used: 92 % of nominal.
    pub usable: Bytes,
    /// The reason in words.
    pub reason: String,
    /// Of a step that does not fit, the most samples a GPU with which it would, where peaks or
    /// parameters tell what grows with them.
    pub largest_batch: Option<u64>,
    /// What of it can be divided among GPUs, where that is known.
    pub states: Option<ModelStates>,
    /// What of it the forward pass keeps, where kinds of memory are told.
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
