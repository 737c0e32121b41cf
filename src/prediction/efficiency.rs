//! How much of a GPU's rates operators reach in mixed and reduced precision.
//!
//! An operator takes the time of its arithmetic and that of its traffic, each stretched by a
//! factor whose logarithm is a sum of terms: what kind of operator it is, in which direction
//! it goes, in which layout, how narrow its result is, on which GPU it runs. What it takes however small it is has such a
//! factor too: some operators are several kernels, one after the other.
//!
//! `time = e^Σl · launch + √((e^Σc · flops / rate)² + (e^Σm · bytes / bandwidth)²)`
//!
//! The rates are those that the GPU sustains ([`super::rate`]). Terms are learned from whole
//! published training steps, with a prior that draws them to 0, so that a kind of operator or
//! GPU that was never seen is predicted at the rates of its like (`models/lab`).
//!
//! Of inference from shapes alone, on a GPU with few or no steps, a weighted geometric mean of that
//! time and the [roofline](super::roofline) is taken: both err there, and not alike (Bates and
//! Granger, "The Combination of Forecasts", 1969). In training the roofline is too fast.

mod convolution;
mod limits;
mod ranges;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use convolution::{GROUP_CHANNELS, MOST_TAPS};
pub use limits::{EXPONENTIALS, FEW_CHANNELS, FOR_AMPERE, Limits, ON_GPU, TILES, UNALIGNED};
pub use ranges::{Iterations, StepRanges};
pub use terms::{Demand, Term, Units, demands};

use super::decoded::Decoded;
use super::learned::{LearnedTime, Spread, StepFacts, WIDE};
use super::parallel;
use super::rate::{Rates, STEP_LAUNCH_US};
use super::roofline::roofline;
use habitat_base::units::{BytesPerSecond, Micros};
use habitat_step::catalog::{GpuSpec, Vendor};
use habitat_step::op::{Part, Primitive};
use habitat_step::profile::{DType, Phase, Precision, Workload};

/// Terms of arithmetic, of traffic or of latency by name: natural logarithms of factors of time.
pub type Factors = BTreeMap<String, f64>;

/// How much of a measured operator's deviation another GPU shares. An estimate: in three traces
/// of an H100 and an MI300X kinds of operators share 0.9 of it (`habitat-lab evaluate traces`),
/// and no operator in such precision was measured on two other GPUs.
const OPERATORS_SHARED: f64 = 0.8;
/// Factors beyond e to this are damage.
const LARGEST: f64 = 10.0;

/// The model as it stands in `models/efficiency.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Efficiency {
    /// Form of the file.
    pub format: String,
    /// Its version.
    pub version: u32,
    /// Terms of arithmetic.
    pub compute: Factors,
    /// Terms of traffic.
    pub memory: Factors,
    /// Terms of what an operator takes however small it is, by the names of some of those of traffic.
    #[serde(default)]
    pub latency: Factors,
    /// Weight of the roofline in the geometric mean of both, from 0 to 1, in inference and on GPUs
    /// without [ranges](Self::ranges) of their own.
    #[serde(default)]
    pub roofline: f64,
    /// Single operators: measured over predicted.
    pub operators: Option<Spread>,
    /// Whole steps: how far they deviate, and the GPUs they were measured on.
    pub steps: StepFacts,
    /// How far they deviate in a mode and precision of which there are many.
    pub ranges: Vec<StepRanges>,
    /// Whole training iterations in FP32, by the operator models with the convolutions of both.
    #[serde(default)]
    pub iterations: Option<Iterations>,
}

/// Why a file holds no model.
#[derive(Debug, thiserror::Error)]
pub enum EfficiencyError {
    /// It is no JSON of this form.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// It is of another kind or version.
    #[error("format {format:?} version {version} is not {FORMAT:?} version {VERSION}")]
    Version {
        /// As it stands there.
        format: String,
        /// As it stands there.
        version: u32,
    },
    /// A factor is damaged.
    #[error("the factor of {0:?} is beyond all bounds")]
    Factor(String),
    /// A figure of steps is damaged.
    #[error("a figure of steps or operators cannot be")]
    Steps,
    /// The weight of the roofline is none.
    #[error("the weight of the roofline is {0}, not from 0 to 1")]
    Roofline(f64),
}

/// What stands in the file as its format.
pub const FORMAT: &str = "habitat-efficiency";
/// The version that is read and written.
pub const VERSION: u32 = 3;

impl Efficiency {
    /// From the text of a file.
    ///
    /// # Errors
    /// [`EfficiencyError`] where it is of another form or damaged.
    pub fn from_json(json: &[u8]) -> Result<Self, EfficiencyError> {
        let model: Self = serde_json::from_slice(json)?;
        if model.format != FORMAT || model.version != VERSION {
            return Err(EfficiencyError::Version { format: model.format, version: model.version });
        }
        let factors = [&model.compute, &model.memory, &model.latency];
        let damaged = factors.into_iter().flatten().find(|(_, factor)| factor.abs() > LARGEST);
        if let Some((name, _)) = damaged {
            return Err(EfficiencyError::Factor(name.clone()));
        }
        if !(0.0..=1.0).contains(&model.roofline) {
            return Err(EfficiencyError::Roofline(model.roofline));
        }
        let are_sound = model.operators.is_none_or(Spread::is_sound)
            && model.ranges.iter().all(StepRanges::is_sound)
            && model.iterations.as_ref().is_none_or(Iterations::is_sound);
        if model.steps.check().is_err() || !are_sound {
            return Err(EfficiencyError::Steps);
        }
        Ok(model)
    }

    /// The 80 % range of measured over predicted time of a step from its shapes; `None` where too
    /// few steps were measured.
    pub fn range(&self, gpu: &GpuSpec, workload: &Workload) -> Option<Spread> {
        let alike = self.ranges.iter().find_map(|ranges| ranges.of(gpu, workload));
        let is_seen = self.steps.boards.contains_key(gpu.slug.as_str());
        alike.or(if is_seen { self.steps.seen } else { self.steps.unseen })
    }

    /// The operations of a step with their terms added up.
    pub fn columns<'a>(&'a self, operations: &'a [Decoded<'a>]) -> Columns<'a> {
        let asked = |decoded: &'a Decoded<'a>| (self.with_tf32_or_without(decoded), decoded);
        Columns { model: self, is_mixed: is_mixed(operations), asked: parallel::items(operations, asked) }
    }

    /// The convolutions of a step in FP32; nothing is said of its other operations.
    pub fn convolutions<'a>(&'a self, operations: &'a [Decoded<'a>]) -> Columns<'a> {
        let asked = |decoded: &'a Decoded<'a>| {
            let is_wide = matches!(decoded.dtype, None | Some(DType::Float32));
            let convolves = |part: &Part| matches!(part.primitive, Primitive::Convolution { .. });
            let is_asked = is_wide && decoded.parts.iter().any(convolves);
            let strict = Some(Precision::Fp32Strict);
            let asked = if is_asked { self.asked(&demands(decoded, strict), strict) } else { Vec::new() };
            (WithTf32 { with: asked, without: None }, decoded)
        };
        Columns { model: self, is_mixed: false, asked: parallel::items(operations, asked) }
    }

    /// The operations of a step that run in TF32 on a GPU with it; the others stay empty.
    pub fn in_tf32<'a>(&'a self, operations: &'a [Decoded<'a>]) -> Columns<'a> {
        let asked = |decoded: &'a Decoded<'a>| {
            let is_asked = decoded.is_in_tf32();
            let asked = if is_asked { self.with_tf32_or_without(decoded) } else { WithTf32::default() };
            (asked, decoded)
        };
        Columns { model: self, is_mixed: is_mixed(operations), asked: parallel::items(operations, asked) }
    }

    /// An operation's parts with their terms added up, with TF32 if the program allows it, and without.
    pub fn with_tf32_or_without(&self, decoded: &Decoded<'_>) -> WithTf32 {
        let of = |arithmetic| self.asked(&demands(decoded, arithmetic), arithmetic);
        let without = (decoded.arithmetic == Some(Precision::Tf32)).then(|| of(Some(Precision::Fp32Strict)));
        WithTf32 { with: of(decoded.arithmetic), without }
    }

    /// The time of an operation on a GPU, and its mean with so much of the roofline; `None` of one that
    /// asks for nothing.
    fn time(&self, asked: &[Asked], gpu: &Board<'_>, decoded: &Decoded<'_>, share: f64) -> Option<LearnedTime> {
        let spread = self.operators.unwrap_or(WIDE);
        let time = gpu.time(asked, decoded.dtype.as_ref())?;
        let roofline = || roofline_of(decoded, gpu.rates);
        Some(LearnedTime {
            shared_deviation: OPERATORS_SHARED,
            is_far: gpu.is_far || asked.iter().any(|asked| asked.is_far),
            mean: (share > 0.0).then(roofline).flatten().map(|roofline| between(time, roofline, share)),
            ..LearnedTime::alone(time, spread, spread)
        })
    }

    /// The parts of an operation in this arithmetic with their terms added up.
    pub fn asked(&self, demands: &[Demand], arithmetic: Option<Precision>) -> Vec<Asked> {
        let sum = |factors: &Factors, terms: &[Term]| -> f64 {
            terms.iter().map(|(name, amount)| factors.get(name).copied().unwrap_or(0.0) * amount).sum()
        };
        let is_new =
            |factors: &Factors, terms: &[Term]| terms.first().is_some_and(|(name, _)| !factors.contains_key(name));
        demands
            .iter()
            .map(|demand| Asked {
                arithmetic,
                flops: demand.flops,
                bytes: demand.bytes,
                times: demand.times,
                units: demand.units,
                limits: demand.limits,
                compute: sum(&self.compute, &demand.compute),
                memory: sum(&self.memory, &demand.memory),
                latency: sum(&self.latency, &demand.memory),
                on_gpu: ON_GPU.map(|name| self.compute.get(name).copied().unwrap_or(0.0)),
                is_far: is_new(&self.compute, &demand.compute) || is_new(&self.memory, &demand.memory),
            })
            .collect()
    }

    /// A GPU as this model sees it.
    pub fn board<'a>(&self, rates: &'a Rates<'a>) -> Board<'a> {
        let sum = |factors: &Factors| -> f64 {
            gpu_terms(rates.gpu).iter().map(|name| factors.get(name).copied().unwrap_or(0.0)).sum()
        };
        Board {
            rates,
            compute: sum(&self.compute),
            memory: sum(&self.memory),
            // The terms of a GPU with measured steps are relative to the rules, as those were fitted.
            bandwidth: if self.steps.boards.contains_key(rates.gpu.slug.as_str()) {
                rates.trained_streaming.value
            } else {
                rates.streaming.value
            },
            is_far: rates.gpu.vendor != Vendor::Nvidia,
        }
    }
}

/// The operations of a step as this model sees them.
#[derive(Debug, Clone)]
pub struct Columns<'a> {
    model: &'a Efficiency,
    /// Whether the roofline may have its share.
    is_mixed: bool,
    asked: Vec<(WithTf32, &'a Decoded<'a>)>,
}

impl Columns<'_> {
    /// One occurrence of each on a GPU; `None` of operations that do nothing on the device or
    /// whose shapes do not tell.
    pub fn on(&self, rates: &Rates<'_>) -> Vec<Option<LearnedTime>> {
        let board = self.model.board(rates);
        let is_known = self.model.ranges.iter().any(|ranges| ranges.boards.contains_key(rates.gpu.slug.as_str()));
        let share = if self.is_mixed && !is_known { self.model.roofline } else { 0.0 };
        self.asked.iter().map(|(asked, decoded)| self.model.time(asked.on(rates), &board, decoded, share)).collect()
    }
}

/// Whether the roofline may have its share: where there is no backward pass and no optimizer.
pub fn is_mixed(operations: &[Decoded<'_>]) -> bool {
    operations.iter().all(|decoded| !matches!(decoded.operation.phase, Phase::Backward | Phase::Optimizer))
}

/// The roofline of an operation; `None` where its shapes do not tell.
pub fn roofline_of(decoded: &Decoded<'_>, rates: &Rates<'_>) -> Option<Micros> {
    decoded.work.as_ref().map(|work| roofline(rates, work, decoded.dtype.as_ref(), decoded.arithmetic))
}

/// The geometric mean of two times, the second with a weight from 0 to 1.
pub fn between(first: Micros, second: Micros, weight: f64) -> Micros {
    Micros::checked(first.get().powf(1.0 - weight) * second.get().powf(weight)).unwrap_or(first)
}

/// The terms of a GPU: its generation, and itself.
pub fn gpu_terms(gpu: &GpuSpec) -> [String; 2] {
    let generation = match gpu.compute_capability {
        Some((major, minor)) => format!("compute capability {major}.{minor}"),
        None => gpu.architecture.clone(),
    };
    [generation, gpu.slug.to_string()]
}

/// A GPU with its terms added up.
#[derive(Debug, Clone, Copy)]
pub struct Board<'a> {
    /// What it sustains.
    pub rates: &'a Rates<'a>,
    compute: f64,
    memory: f64,
    bandwidth: BytesPerSecond,
    is_far: bool,
}

impl Board<'_> {
    /// The time of an operation; `None` of one that asks for nothing.
    pub fn time(&self, asked: &[Asked], dtype: Option<&DType>) -> Option<Micros> {
        let time: f64 = asked.iter().map(|asked| asked.times * asked.on(self, dtype).time_us()).sum();
        Micros::checked(time).filter(|_| !asked.is_empty())
    }
}

/// A part of an operation with its terms added up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
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

/// The parts of an operation with their terms added up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WithTf32 {
    /// On GPUs with TF32, or where TF32 changes nothing.
    with: Vec<Asked>,
    /// On other GPUs.
    without: Option<Vec<Asked>>,
}

impl WithTf32 {
    /// Those of a GPU.
    pub fn on(&self, rates: &Rates<'_>) -> &[Asked] {
        self.without.as_ref().filter(|_| !rates.gpu.runs_tf32()).unwrap_or(&self.with)
    }
}

/// Microseconds of arithmetic and of traffic, and of what is there without either.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sides {
    /// Of arithmetic.
    pub compute_us: f64,
    /// Of traffic.
    pub memory_us: f64,
    /// Of launches.
    pub latency_us: f64,
}

impl Sides {
    /// Microseconds at the GPU's rates for an arithmetic on an element type, no factor applied.
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

    /// Launches, and the larger of both as far as the smaller hides behind it.
    pub fn time_us(self) -> f64 {
        self.latency_us + self.compute_us.hypot(self.memory_us)
    }
}

impl Asked {
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
