//! Efficiency of operators in mixed and reduced precision, relative to the GPU's rates.
//!
//! An operator takes the time of its arithmetic and of its traffic, each stretched by a factor. The logarithm of a
//! factor is a sum of terms: kind of operator, direction, layout, width of the result, GPU. The latency of an operator
//! has such a factor too, because some operators are several consecutive kernels.
//!
//! `time = e^Σl · launch + √((e^Σc · flops / rate)² + (e^Σm · bytes / bandwidth)²)`
//!
//! Rates are those that the GPU sustains ([`super::rate`]). Terms are learned from published whole training steps, with
//! a prior towards 0. An unseen kind of operator or GPU is thus predicted at the rates of similar ones (`models/lab`).
//!
//! Inference from shapes alone, on a GPU with few or no measured steps, uses a weighted geometric mean of that time and
//! the [roofline](super::roofline): both have errors, but different ones (Bates and Granger, "The Combination of
//! Forecasts", 1969). In training the roofline is too fast.

mod convolution;
mod demand;
mod factors;
mod limits;
mod prior;
mod ranges;
mod table;
mod terms;
mod vendor;

use serde::{Deserialize, Serialize};

pub use convolution::{GROUP_CHANNELS, MOST_TAPS};
pub use demand::{Amount, Demand, Units};
pub use factors::{Factors, Id};
pub use limits::{Limits, ON_GPU};
pub use prior::{Prior, Side};
pub use ranges::{Iterations, StepRanges};
use table::StreamGroup;
pub use table::Term;
pub use terms::demands;
pub use vendor::{VendorTerms, demands_on_amd};

use super::decoded::Decoded;
use super::facts::StepFacts;
use super::learned_time::{LearnedTime, Spread, WIDE, between};
use super::parallel;
use super::rate::{Rates, STEP_LAUNCH_US};
use super::roofline::roofline;
use habitat_base::units::{Bytes, BytesPerSecond, Micros};
use habitat_step::catalog::{GpuSpec, Vendor};
use habitat_step::op::{Part, Primitive};
use habitat_step::profile::{DType, Phase, Precision, Workload};

/// Share of a measured operator's deviation that carries over to another GPU. An estimate: in three traces of an H100
/// and an MI300X, operator kinds share 0.9 of it (`habitat-lab evaluate traces`); no operator in such precision was
/// measured on two other GPUs.
const OPERATORS_SHARED: f64 = 0.8;
/// Largest valid absolute logarithm of a factor; beyond it the file is damaged.
const LARGEST: f64 = 10.0;

/// Efficiency model as stored in `models/efficiency.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Efficiency {
    /// Name of the file format.
    pub format: String,
    /// Version of the file format.
    pub version: u32,
    /// Terms of arithmetic.
    pub compute: Factors,
    /// Terms of traffic.
    pub memory: Factors,
    /// Terms of latency, a subset of those of traffic.
    #[serde(default)]
    pub latency: Factors,
    /// Weight (0 to 1) of the roofline in the geometric mean, for inference on GPUs without [ranges](Self::ranges) of
    /// their own.
    #[serde(default)]
    pub roofline: f64,
    /// Measured over predicted time of single operators.
    pub operators: Option<Spread>,
    /// Errors of whole steps, and the GPUs they were measured on.
    pub steps: StepFacts,
    /// Ranges of whole steps by mode and precision, if there are many.
    pub ranges: Vec<StepRanges>,
    /// Whole training iterations in FP32, predicted by the operator models with the convolutions of both models.
    #[serde(default)]
    pub iterations: Option<Iterations>,
    /// AMD GPUs: terms, errors and ranges of their own. `None`: as NVIDIA's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amd: Option<VendorTerms>,
}

/// Reason that a file does not contain a valid model.
#[derive(Debug, thiserror::Error)]
pub enum EfficiencyError {
    /// The content is not JSON of this format.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The format or version is not supported.
    #[error("format {format:?} version {version} is not {FORMAT:?} version {VERSION}")]
    Version {
        /// Format found in the file.
        format: String,
        /// Version found in the file.
        version: u32,
    },
    /// A term has no factor on this side, or is neither in the table nor a GPU.
    #[error("unknown term {name:?} of {}", side.name())]
    Term {
        /// Name found in the file.
        name: String,
        /// Side of the factor.
        side: Side,
    },
    /// A factor is out of range.
    #[error("the factor of {0:?} is out of range")]
    Factor(String),
    /// A figure of steps or operators is invalid.
    #[error("a figure of steps or operators is invalid")]
    Steps,
    /// The weight of the roofline is invalid.
    #[error("the weight of the roofline is {0}, not from 0 to 1")]
    Roofline(f64),
}

/// Fields that every version of the file has.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u32,
}

/// Format name in the file.
pub const FORMAT: &str = "habitat-efficiency";
/// Version that is read and written.
pub const VERSION: u32 = 3;

impl Efficiency {
    /// Parses a file.
    ///
    /// # Errors
    /// [`EfficiencyError`] if the format is unsupported or the content damaged.
    pub fn from_json(json: &[u8]) -> Result<Self, EfficiencyError> {
        let Header { format, version } = serde_json::from_slice(json)?;
        if format != FORMAT || version != VERSION {
            return Err(EfficiencyError::Version { format, version });
        }
        let model: Self = serde_json::from_slice(json)?;
        for side in Side::ALL {
            let of_amd = model.amd.iter().flat_map(|amd| amd.factors(side).iter());
            for (id, factor) in model.factors(side).iter().chain(of_amd) {
                if id.prior(side).is_none() || !model.is_known(&id) {
                    return Err(EfficiencyError::Term { name: id.name().into_owned(), side });
                }
                if factor.abs() > LARGEST {
                    return Err(EfficiencyError::Factor(id.name().into_owned()));
                }
            }
        }
        if !(0.0..=1.0).contains(&model.roofline) {
            return Err(EfficiencyError::Roofline(model.roofline));
        }
        let are_sound = model.operators.is_none_or(Spread::is_sound)
            && model.ranges.iter().all(StepRanges::is_sound)
            && model.amd.as_ref().is_none_or(VendorTerms::is_sound)
            && model.iterations.as_ref().is_none_or(Iterations::is_sound);
        if model.steps.check().is_err() || !are_sound {
            return Err(EfficiencyError::Steps);
        }
        Ok(model)
    }

    /// Terms of a side.
    pub const fn factors(&self, side: Side) -> &Factors {
        match side {
            Side::Compute => &self.compute,
            Side::Memory => &self.memory,
            Side::Latency => &self.latency,
        }
    }

    /// Whether a name that is not in the table can be that of a GPU: names of GPUs have a digit or a dash, unless steps
    /// were measured on them.
    fn is_known(&self, id: &Id) -> bool {
        match id {
            Id::Board(slug) => {
                let is_model = |letter: char| letter == '-' || letter.is_ascii_digit();
                let of_amd = || self.amd.as_ref().is_some_and(|amd| amd.steps.boards.contains_key(slug.as_str()));
                slug.as_str().contains(is_model) || self.steps.boards.contains_key(slug.as_str()) || of_amd()
            }
            _ => true,
        }
    }

    /// Terms and errors of a GPU's vendor, if they differ from NVIDIA's.
    pub(crate) fn vendor(&self, gpu: &GpuSpec) -> Option<&VendorTerms> {
        self.amd.as_ref().filter(|_| gpu.vendor == Vendor::Amd)
    }

    /// Errors of whole steps on the GPUs of a vendor.
    pub(crate) fn steps_on(&self, gpu: &GpuSpec) -> &StepFacts {
        self.vendor(gpu).map_or(&self.steps, |vendor| &vendor.steps)
    }

    /// 80 % range of measured over predicted step time from shapes; `None` if too few steps were measured.
    pub(crate) fn range(&self, gpu: &GpuSpec, workload: &Workload) -> Option<Spread> {
        let alike = self.ranges.iter().find_map(|ranges| ranges.of(gpu, workload));
        let steps = self.steps_on(gpu);
        let is_seen = steps.boards.contains_key(gpu.slug.as_str());
        alike.or(if is_seen { steps.seen } else { steps.unseen })
    }

    /// Sums the terms of a step's operations.
    pub fn columns<'a>(&'a self, operations: &'a [Decoded<'a>]) -> Columns<'a> {
        let parts = |decoded: &'a Decoded<'a>| (self.with_tf32_or_without(decoded), decoded);
        Columns { model: self, is_mixed: is_mixed(operations), parts: parallel::items(operations, parts) }
    }

    /// Convolutions of a step in FP32; other operations stay empty.
    pub fn convolutions<'a>(&'a self, operations: &'a [Decoded<'a>]) -> Columns<'a> {
        let parts = |decoded: &'a Decoded<'a>| {
            let is_wide = matches!(decoded.dtype, None | Some(DType::Float32));
            let convolves = |part: &Part| matches!(part.primitive, Primitive::Convolution { .. });
            if !(is_wide && decoded.parts.iter().any(convolves)) {
                return (WithTf32::default(), decoded);
            }
            let strict = Some(Precision::Fp32Strict);
            let with = self.parts(&demands(decoded, strict), strict, None);
            (WithTf32 { with, without: None, on_amd: self.parts_on_amd(decoded) }, decoded)
        };
        Columns { model: self, is_mixed: false, parts: parallel::items(operations, parts) }
    }

    /// Operations of a step that run in TF32 on a GPU with it; others stay empty.
    pub(crate) fn in_tf32<'a>(&'a self, operations: &'a [Decoded<'a>]) -> Columns<'a> {
        let parts = |decoded: &'a Decoded<'a>| {
            let is_asked = decoded.is_in_tf32();
            let parts = if is_asked { self.with_tf32_or_without(decoded) } else { WithTf32::default() };
            (parts, decoded)
        };
        Columns { model: self, is_mixed: is_mixed(operations), parts: parallel::items(operations, parts) }
    }

    /// Parts of an operation with their terms summed: with TF32 if the program allows it, without, and on AMD GPUs.
    pub(crate) fn with_tf32_or_without(&self, decoded: &Decoded<'_>) -> WithTf32 {
        let of = |arithmetic| self.parts(&demands(decoded, arithmetic), arithmetic, None);
        let without = (decoded.arithmetic == Some(Precision::Tf32)).then(|| of(decoded.without_tf32()));
        WithTf32 { with: of(decoded.arithmetic), without, on_amd: self.parts_on_amd(decoded) }
    }

    /// Parts of an operation on AMD GPUs; `None` without terms of their own.
    fn parts_on_amd(&self, decoded: &Decoded<'_>) -> Option<Vec<OperationPart>> {
        let amd = self.amd.as_ref()?;
        Some(self.parts(&demands_on_amd(decoded), decoded.without_tf32(), Some(amd)))
    }

    /// Time of an operation on a GPU, and its mean with that share of the roofline; `None` if it needs no device work.
    fn time(&self, parts: &[OperationPart], gpu: &Board<'_>, decoded: &Decoded<'_>, share: f64) -> Option<LearnedTime> {
        let own = self.vendor(gpu.rates.gpu).and_then(|vendor| vendor.operators);
        let spread = own.or(self.operators).unwrap_or(WIDE);
        let time = gpu.time(parts, decoded.dtype.as_ref())?;
        let roofline = || roofline_of(decoded, gpu.rates);
        Some(LearnedTime {
            shared_deviation: OPERATORS_SHARED,
            is_far: gpu.is_far || parts.iter().any(|part| part.is_far),
            mean: (share > 0.0).then(roofline).flatten().map(|roofline| between(time, roofline, share)),
            ..LearnedTime::alone(time, spread, spread)
        })
    }

    /// Parts of an operation in this arithmetic, with their terms summed; with a vendor's additions.
    pub(crate) fn parts(
        &self,
        demands: &[Demand],
        arithmetic: Option<Precision>,
        vendor: Option<&VendorTerms>,
    ) -> Vec<OperationPart> {
        let value = |side: Side, term: Term| self.sum(side, vendor, |factors| factors.get(term).unwrap_or(0.0));
        let sum = |side: Side, terms: &[Amount]| -> f64 {
            terms.iter().map(|(term, amount)| value(side, *term) * amount).sum()
        };
        let is_new =
            |factors: &Factors, terms: &[Amount]| terms.first().is_some_and(|(term, _)| factors.get(*term).is_none());
        demands
            .iter()
            .map(|demand| OperationPart {
                arithmetic,
                flops: demand.flops,
                bytes: demand.bytes,
                times: demand.times,
                units: demand.units,
                limits: demand.limits,
                compute: sum(Side::Compute, &demand.compute),
                memory: sum(Side::Memory, &demand.memory),
                latency: sum(Side::Latency, &demand.memory),
                on_gpu: ON_GPU.map(|term| value(Side::Compute, term)),
                is_far: is_new(&self.compute, &demand.compute) || is_new(&self.memory, &demand.memory),
            })
            .collect()
    }

    /// Value of a side with a vendor's addition.
    fn sum(&self, side: Side, vendor: Option<&VendorTerms>, of: impl Fn(&Factors) -> f64) -> f64 {
        of(self.factors(side)) + vendor.map_or(0.0, |vendor| of(vendor.factors(side)))
    }

    /// Terms and rates of a GPU.
    pub fn board<'a>(&self, rates: &'a Rates<'a>) -> Board<'a> {
        let vendor = self.vendor(rates.gpu);
        let of_gpu = |side| self.sum(side, vendor, |factors| factors.of_gpu(rates.gpu));
        let cast = Term::Stream(StreamGroup::Cast);
        Board {
            rates,
            compute: of_gpu(Side::Compute),
            memory: of_gpu(Side::Memory),
            // Terms of a GPU with measured steps are relative to the rule-based bandwidth that they were fitted with.
            bandwidth: if self.steps_on(rates.gpu).boards.contains_key(rates.gpu.slug.as_str()) {
                rates.trained_streaming.value
            } else {
                rates.streaming.value
            },
            cast: self.sum(Side::Memory, vendor, |factors| factors.get(cast).unwrap_or(0.0)),
            is_far: rates.gpu.vendor != Vendor::Nvidia && vendor.is_none(),
        }
    }
}

/// Operations of a step with their terms summed.
#[derive(Debug, Clone)]
pub struct Columns<'a> {
    model: &'a Efficiency,
    /// Whether the roofline may be mixed in.
    is_mixed: bool,
    parts: Vec<(WithTf32, &'a Decoded<'a>)>,
}

impl Columns<'_> {
    /// Time of one occurrence of each operation on a GPU; `None` for operations without device work or without usable
    /// shapes.
    pub fn on(&self, rates: &Rates<'_>) -> Vec<Option<LearnedTime>> {
        let board = self.model.board(rates);
        let has_range = |ranges: &StepRanges| ranges.boards.contains_key(rates.gpu.slug.as_str());
        let is_known = self.model.ranges.iter().any(has_range) || self.model.vendor(rates.gpu).is_some();
        let share = if self.is_mixed && !is_known { self.model.roofline } else { 0.0 };
        self.parts.iter().map(|(parts, decoded)| self.model.time(parts.on(rates), &board, decoded, share)).collect()
    }
}

/// Whether the roofline may be mixed in: there is no backward pass and no optimizer.
pub fn is_mixed(operations: &[Decoded<'_>]) -> bool {
    operations.iter().all(|decoded| !matches!(decoded.operation.phase, Phase::Backward | Phase::Optimizer))
}

/// Roofline time of an operation; `None` without usable shapes.
pub fn roofline_of(decoded: &Decoded<'_>, rates: &Rates<'_>) -> Option<Micros> {
    decoded.work.as_ref().map(|work| roofline(rates, work, decoded.dtype.as_ref(), decoded.arithmetic))
}

/// GPU with its terms summed.
#[derive(Debug, Clone, Copy)]
pub struct Board<'a> {
    /// Rates that it sustains.
    pub rates: &'a Rates<'a>,
    compute: f64,
    memory: f64,
    bandwidth: BytesPerSecond,
    /// Term of the traffic of casts.
    cast: f64,
    is_far: bool,
}

impl Board<'_> {
    /// Time of an operation; `None` without device work.
    pub(crate) fn time(&self, parts: &[OperationPart], dtype: Option<&DType>) -> Option<Micros> {
        let time: f64 = parts.iter().map(|part| part.times * part.on(self, dtype).time_us()).sum();
        Micros::checked(time).filter(|_| !parts.is_empty())
    }

    /// Time of casts that move these bytes in several kernels.
    pub(crate) fn cast(&self, bytes: Bytes, kernels: f64) -> Micros {
        let traffic = bytes.get() / self.bandwidth.get() * 1e6 * (self.cast + self.memory).exp();
        Micros::known(kernels * STEP_LAUNCH_US + traffic)
    }
}

/// Part of an operation with its terms summed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperationPart {
    arithmetic: Option<Precision>,
    flops: f64,
    bytes: f64,
    times: f64,
    units: Units,
    limits: Limits,
    compute: f64,
    memory: f64,
    latency: f64,
    on_gpu: [f64; ON_GPU.len()],
    is_far: bool,
}

/// Parts of an operation, with and without TF32.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WithTf32 {
    /// Parts for GPUs with TF32, or for all if TF32 changes nothing.
    with: Vec<OperationPart>,
    /// Parts for GPUs without TF32.
    without: Option<Vec<OperationPart>>,
    /// Parts for AMD GPUs, if they have terms of their own.
    on_amd: Option<Vec<OperationPart>>,
}

impl WithTf32 {
    /// Parts for this GPU.
    pub(crate) fn on(&self, rates: &Rates<'_>) -> &[OperationPart] {
        let on_amd = self.on_amd.as_ref().filter(|_| rates.gpu.vendor == Vendor::Amd);
        on_amd.or_else(|| self.without.as_ref().filter(|_| !rates.gpu.runs_tf32())).unwrap_or(&self.with)
    }
}

/// Times of arithmetic, traffic and latency, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sides {
    /// Arithmetic.
    pub compute_us: f64,
    /// Traffic.
    pub memory_us: f64,
    /// Launches.
    pub latency_us: f64,
}

impl Sides {
    /// Times at the GPU's full rates for an element type and arithmetic, without factors.
    pub fn at_full_rate(
        (flops, bytes): (f64, f64),
        units: Units,
        board: &Board<'_>,
        (dtype, arithmetic): (Option<&DType>, Option<Precision>),
    ) -> Self {
        let rates = board.rates;
        let rate = match units {
            Units::Matrix => rates.product(dtype, arithmetic, true).sustained.get(),
            Units::Vector => rates.vector.value.get(),
            Units::Cycles => f64::from(rates.gpu.sm_count) * rates.gpu.boost_clock.get() * 1e6,
        };
        let memory_us = bytes / board.bandwidth.get() * 1e6;
        Self { compute_us: flops / rate * 1e6, memory_us, latency_us: STEP_LAUNCH_US }
    }

    /// Total time: launches plus arithmetic and traffic, which partly overlap.
    pub fn time_us(self) -> f64 {
        self.latency_us + self.compute_us.hypot(self.memory_us)
    }
}

impl OperationPart {
    fn on(&self, board: &Board<'_>, dtype: Option<&DType>) -> Sides {
        let full = Sides::at_full_rate((self.flops, self.bytes), self.units, board, (dtype, self.arithmetic));
        let amounts = self.limits.on(board.rates.gpu, full.compute_us);
        let own: f64 = self.on_gpu.iter().zip(amounts).map(|(factor, amount)| factor * amount).sum();
        Sides {
            compute_us: full.compute_us * (self.compute + own + board.compute).exp(),
            memory_us: full.memory_us * (self.memory + board.memory).exp(),
            latency_us: full.latency_us * self.latency.exp(),
        }
    }
}

#[cfg(test)]
mod tests;
