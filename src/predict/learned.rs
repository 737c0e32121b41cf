//! The learned operator models: time = launch + bound / (use · board), with `bound` the time
//! at full rates, `use` from an ensemble of small networks over scale-free features
//! ([`super::features`]), and `board` what is peculiar to a board that was measured.
//!
//! Trained by `learn` on measured operators; `models/README.md` describes the shipped ones.

mod file;

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::catalog::{GpuSpec, Vendor};
use crate::profile::{DType, Mode, Operation, Precision};
use crate::units::{GpuSlug, Micros};

use super::features::{Features, Hardware, Load, OperatorModel, features};
use super::head::Head;
use super::measured::{Corrected, Corrections, Counts, DEVIATIONS};
use super::mlp::{Mlp, ModelError};
use super::rate::{ProductRate, calibrated_fp32_rate, fp32_product_rate, product_rate};
use crate::op::{Part, Primitive, element_type, parts};
pub use file::{Facts, ModelFacts, StepFacts};

/// What a launch costs within a step, where launches follow each other closely.
pub const STEP_LAUNCH_US: f64 = 2.0;
/// What it costs where an operator is measured by itself with events; the excess over
/// [`STEP_LAUNCH_US`] does not occur in a step. (Elementwise kernels of `NeuSight`'s tables
/// take 10–14 µs more than their traffic.)
pub const ALONE_LAUNCH_US: f64 = 13.0;
/// Elements moved below which a stream is taken for a launch alone.
const SMALL_STREAM: f64 = 16_384.0;
/// Device time of such an operation.
const SMALL_US: f64 = 1.5;
/// Distance, in units of the features' range in training, from which on a range is widened.
const NEAR: f64 = 0.02;
/// How much of an origin's deviation is taken to be shared at least where the models were not
/// trained: what they miss there, they miss on both GPUs. Half, for want of measurements.
const FAR_SHARED: f64 = 0.5;
/// Ranges of precisions that were not measured are wider (in logarithms) by this.
const OTHER_PRECISION_WIDENING: f64 = 1.3;
/// Entries after which the cache is emptied.
const MOST_CACHED: usize = 1 << 16;

/// The 80 % range of measured over predicted time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The 10th percentile.
    pub low: f64,
    /// The 90th percentile.
    pub high: f64,
    /// Operators or steps it was taken from.
    pub cases: usize,
}

impl Spread {
    /// Both ends moved away from 1 by a factor of their logarithms.
    #[must_use]
    pub fn widened(self, factor: f64) -> Self {
        Self { low: self.low.min(1.0).powf(factor), high: self.high.max(1.0).powf(factor), ..self }
    }
}

/// A model: networks whose logs are averaged.
#[derive(Debug, Clone, PartialEq)]
pub struct Ensemble {
    /// The networks, one output each.
    pub networks: Vec<Mlp>,
    /// What else was learned.
    pub facts: ModelFacts,
}

/// All learned models.
#[derive(Debug)]
pub struct Models {
    ensembles: BTreeMap<OperatorModel, Ensemble>,
    steps: StepFacts,
    corrections: Corrections,
    cache: Mutex<HashMap<Key, LearnedTime>>,
}

/// Two are equal where they answer alike; what they remember does not count.
impl PartialEq for Models {
    fn eq(&self, other: &Self) -> bool {
        (&self.ensembles, &self.steps, &self.corrections) == (&other.ensembles, &other.steps, &other.corrections)
    }
}

/// A predicted time, and how far to trust it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnedTime {
    /// The time.
    pub time: Micros,
    /// Its 80 % range, as factors of the time.
    pub spread: Spread,
    /// The same for a time helped by an origin's measurement.
    pub with_origin: Spread,
    /// How much of an origin's deviation is shared.
    pub shared_deviation: f64,
    /// Whether the features lie outside those of the training data.
    pub is_far: bool,
}

/// Sizes, element size, rate and board: what a time depends on.
type Key = ([u64; 10], GpuSlug);

/// Ranges where a model has none (published errors of such methods, roughly).
pub(super) const WIDE: Spread = Spread { low: 0.7, high: 1.5, cases: 0 };

impl Models {
    /// Of ensembles and what was learned of steps.
    pub fn new(ensembles: BTreeMap<OperatorModel, Ensemble>, steps: StepFacts) -> Self {
        Self { ensembles, steps, corrections: Corrections::default(), cache: Mutex::default() }
    }

    /// With corrections, and nothing remembered from before them.
    pub(super) fn corrected_by(self, corrections: Corrections) -> Self {
        Self { corrections, cache: Mutex::default(), ..self }
    }

    /// What was measured on boards of the user's.
    pub(super) const fn corrections(&self) -> &Corrections {
        &self.corrections
    }

    /// How many operators measured on a board correct the models for it; `None` where none
    /// was measured.
    pub fn measured_on(&self, gpu: &GpuSpec) -> Option<Counts> {
        self.corrections.counts(&gpu.slug)
    }

    /// What was learned of steps.
    pub const fn steps(&self) -> &StepFacts {
        &self.steps
    }

    /// The models by name.
    pub const fn ensembles(&self) -> &BTreeMap<OperatorModel, Ensemble> {
        &self.ensembles
    }

    /// Whether steps were measured on the board.
    pub fn has_seen(&self, gpu: &GpuSpec) -> bool {
        self.steps.boards.contains_key(gpu.slug.as_str())
            || self.ensembles.values().any(|ensemble| ensemble.facts.boards.contains_key(gpu.slug.as_str()))
    }

    /// The rate of products that this GPU's times are predicted from. What is known of a GPU
    /// from training is against the rule, so a calibrated FP32 rate serves the others only.
    pub(super) fn rate(&self, gpu: &GpuSpec, dtype: Option<&DType>, precision: Option<Precision>) -> ProductRate {
        let rate = product_rate(gpu, dtype, precision).0;
        if rate == fp32_product_rate(gpu) && !self.has_seen(gpu) { calibrated_fp32_rate(gpu) } else { rate }
    }

    /// Step over sum of operators on `gpu`.
    pub fn step_factor(&self, gpu: &GpuSpec, mode: Mode) -> f64 {
        let steps = &self.steps;
        let maker = || steps.makers.get(maker(gpu.vendor));
        let board = *steps.boards.get(gpu.slug.as_str()).or_else(maker).unwrap_or(&steps.typical);
        board * if mode == Mode::Training { steps.training } else { 1.0 }
    }

    /// One occurrence of every operation on each of `gpus`, in one pass through each network:
    /// a row a GPU, a column an operation; `None` where the models do not know the operator.
    ///
    /// # Errors
    /// [`ModelError`] where a network cannot be computed.
    pub fn table(
        &self,
        operations: &[&Operation],
        precision: Option<Precision>,
        gpus: &[&GpuSpec],
    ) -> Result<Vec<Vec<Option<LearnedTime>>>, ModelError> {
        let parts: Vec<(Vec<Part>, Option<DType>)> = operations
            .iter()
            .map(|operation| (parts(operation, precision), element_type(operation, precision)))
            .collect();
        let mut queries = Vec::new();
        for gpu in gpus {
            let mut rates: Vec<(Option<&DType>, ProductRate)> = Vec::new();
            for (parts, dtype) in &parts {
                let dtype = dtype.as_ref();
                let known = rates.iter().find(|(known, _)| *known == dtype).map(|(_, rate)| *rate);
                let rate = known.unwrap_or_else(|| self.rate(gpu, dtype, precision));
                if known.is_none() {
                    rates.push((dtype, rate));
                }
                queries.extend(parts.iter().map(|&part| Query { part, gpu, rate, load: Load::Step }));
            }
        }
        let times = self.times(&queries)?;
        let mut rest = &times[..];
        Ok(gpus
            .iter()
            .map(|_| {
                parts
                    .iter()
                    .map(|(parts, _)| {
                        let (own, after) = rest.split_at(parts.len());
                        rest = after;
                        sum(own, parts)
                    })
                    .collect()
            })
            .collect())
    }

    /// Operators measured each by itself, as tables of operators are: an operation on each GPU
    /// it is paired with; never less than the host's launch.
    ///
    /// # Errors
    /// [`ModelError`] where a network cannot be computed.
    pub fn alone(&self, pairs: &[(&Operation, &GpuSpec)]) -> Result<Vec<Option<LearnedTime>>, ModelError> {
        let run = |&(operation, gpu): &(_, _)| Run { operation, precision: None, gpu, queued: false };
        self.runs(&pairs.iter().map(run).collect::<Vec<_>>())
    }

    /// The same for operators in a precision that the element type does not tell, or whose
    /// calls were queued: those run as in a step, and take the device's time alone.
    ///
    /// # Errors
    /// [`ModelError`] where a network cannot be computed.
    pub fn runs(&self, runs: &[Run<'_>]) -> Result<Vec<Option<LearnedTime>>, ModelError> {
        let (mut queries, mut counts) = (Vec::new(), Vec::new());
        for &Run { operation, precision, gpu, queued } in runs {
            let rate = self.rate(gpu, element_type(operation, precision).as_ref(), precision);
            let parts = parts(operation, precision);
            let load = if queued { Load::Step } else { Load::Alone };
            queries.extend(parts.iter().map(|&part| Query { part, gpu, rate, load }));
            counts.push((parts, queued));
        }
        let times = self.times(&queries)?;
        let mut rest = &times[..];
        Ok(counts
            .iter()
            .map(|(parts, queued)| {
                let (own, after) = rest.split_at(parts.len());
                rest = after;
                let mut time = sum(own, parts)?;
                if *queued {
                    return Some(time);
                }
                let facts = parts.first().and_then(|part| self.ensembles.get(&OperatorModel::of(&part.primitive)?));
                time.time = time.time.max(Micros::known(facts.map_or(0.0, |ensemble| ensemble.facts.host_us)));
                Some(time)
            })
            .collect())
    }

    /// Times of many primitives at once, one pass through each network; those known from
    /// before are taken from the cache.
    ///
    /// # Errors
    /// [`ModelError`] where a network cannot be computed.
    pub fn times(&self, queries: &[Query<'_>]) -> Result<Vec<Option<LearnedTime>>, ModelError> {
        let mut answers: Vec<Option<LearnedTime>> = vec![None; queries.len()];
        let mut waiting: BTreeMap<OperatorModel, (Vec<Key>, Vec<Features>)> = BTreeMap::new();
        let mut asked: HashMap<Key, Vec<usize>> = HashMap::new();
        {
            let cache = self.cache.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for (index, query) in queries.iter().enumerate() {
                let Some(model) = OperatorModel::of(&query.part.primitive) else {
                    answers[index] = query.by_rule();
                    continue;
                };
                if let Some(small) = query.small() {
                    answers[index] = Some(small);
                    continue;
                }
                if !self.ensembles.contains_key(&model) {
                    continue;
                }
                let key = query.key();
                if let Some(known) = cache.get(&key) {
                    answers[index] = Some(*known);
                    continue;
                }
                let places = asked.entry(key.clone()).or_default();
                places.push(index);
                if places.len() > 1 {
                    continue;
                }
                let by_rule = query.gpu.calibration.is_none() || self.has_seen(query.gpu);
                let hardware = if by_rule { Hardware::by_rule(query.gpu) } else { Hardware::of(query.gpu) };
                let part = query.part;
                if let Some(features) = features(&part.primitive, part.element_bytes, &hardware, query.rate, query.load)
                {
                    let (keys, rows) = waiting.entry(model).or_default();
                    keys.push(key);
                    rows.push(features);
                }
            }
        }
        let mut cache = self.cache.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if cache.len() > MOST_CACHED {
            cache.clear();
        }
        for (model, (keys, rows)) in waiting {
            let Some(ensemble) = self.ensembles.get(&model) else { continue };
            let bounded = ensemble.above_launch(model, &rows)?;
            for ((key, features), above) in keys.into_iter().zip(&rows).zip(bounded) {
                let Some(places) = asked.get(&key) else { continue };
                let Some(query) = places.first().and_then(|&place| queries.get(place)) else { continue };
                let time = ensemble.judge(query, features, above, self.corrections.of(model, query));
                for &place in places {
                    answers[place] = Some(time);
                }
                cache.insert(key, time);
            }
        }
        Ok(answers)
    }
}

/// An operator run by itself on a GPU.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// What was run.
    pub operation: &'a Operation,
    /// The precision, where the element type does not tell (TF32).
    pub precision: Option<Precision>,
    /// On which board.
    pub gpu: &'a GpuSpec,
    /// Whether calls were queued ahead of it.
    pub queued: bool,
}

/// A primitive on a GPU.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The primitive; how often it occurs does not matter here.
    pub part: Part,
    /// The board.
    pub gpu: &'a GpuSpec,
    /// Its product rate in the element type.
    pub rate: ProductRate,
    /// By itself or in a step.
    pub load: Load,
}

impl Query<'_> {
    fn key(&self) -> Key {
        let kind = OperatorModel::of(&self.part.primitive).map_or(u64::MAX, |model| model as u64);
        let rate = self.rate.sustained.get().to_bits() ^ u64::from(self.load == Load::Step);
        let mut numbers = [0; 10];
        numbers[..3].copy_from_slice(&[kind, rate, self.part.element_bytes.to_bits()]);
        numbers[3..].copy_from_slice(&self.part.primitive.sizes().map(f64::to_bits));
        (numbers, self.gpu.slug.clone())
    }

    fn is_other_precision(&self) -> bool {
        let product = matches!(self.part.primitive, Primitive::Product { .. } | Primitive::Convolution { .. });
        self.part.element_bytes < 4.0
            || product
                && ![fp32_product_rate, calibrated_fp32_rate].iter().any(|fp32| self.rate.burst == fp32(self.gpu).burst)
    }

    /// What the launch costs, in microseconds.
    pub(super) fn launch_us(&self) -> f64 {
        match self.load {
            Load::Alone => ALONE_LAUNCH_US,
            Load::Step => STEP_LAUNCH_US,
        }
    }

    /// Fused attention: its share of the product rate, or its traffic.
    fn by_rule(&self) -> Option<LearnedTime> {
        let Primitive::Fused { flops, moved, share } = self.part.primitive else { return None };
        let compute = flops / (self.rate.sustained.get() * share) * 1e6;
        let memory = moved * self.part.element_bytes / super::rate::streaming_bandwidth(self.gpu).get() * 1e6;
        Some(LearnedTime {
            time: Micros::known(self.launch_us() + compute.max(memory)),
            spread: WIDE,
            with_origin: WIDE.widened(0.6),
            shared_deviation: 1.0,
            is_far: false,
        })
    }

    /// A few elements: the launch is all there is.
    fn small(&self) -> Option<LearnedTime> {
        let Primitive::Stream { moved } = self.part.primitive else { return None };
        (self.load == Load::Step && moved < SMALL_STREAM).then(|| LearnedTime {
            time: Micros::known(SMALL_US),
            spread: WIDE,
            with_origin: WIDE,
            shared_deviation: 1.0,
            is_far: false,
        })
    }
}

impl Corrected {
    /// The 80 % range of what is left, no narrower at either end than on boards of the
    /// training data.
    fn spread(self, seen: Spread) -> Spread {
        let half = DEVIATIONS * self.deviation;
        Spread { low: (-half).exp().min(seen.low), high: half.exp().max(seen.high), ..seen }
    }
}

impl Ensemble {
    /// bound / use in microseconds, the geometric mean over the networks.
    ///
    /// # Errors
    /// [`ModelError`] where a network cannot be computed.
    pub fn above_launch(&self, model: OperatorModel, rows: &[Features]) -> Result<Vec<f64>, ModelError> {
        // Networks are not asked beyond what they were trained on: features are held at the
        // ends of their ranges, and the time goes on with the bound.
        let held = |(value, range): (&f32, &[f64; 2])| value.clamp(range[0] as f32, range[1] as f32);
        let values: Vec<f32> =
            rows.iter().flat_map(|row| row.values.iter().zip(&self.facts.ranges).map(held)).collect();
        let bounded = Head::Bounded { upper: model.upper() };
        let mut logs = vec![0.0; rows.len()];
        for network in &self.networks {
            for ((log, row), output) in logs.iter_mut().zip(rows).zip(network.forward(&values)?) {
                let longest = f64::from(row.bound_us) / model.lower();
                *log += bounded.time(output, 0.0, row.bound_us, 0.0).0.clamp(1e-9, longest.max(1e-9)).ln();
            }
        }
        Ok(logs.iter().map(|log| (log / self.networks.len() as f64).exp()).collect())
    }

    /// The board's offset: of itself, else of its maker, else none.
    pub fn offset(&self, gpu: &GpuSpec) -> f64 {
        let maker = || self.facts.makers.get(maker(gpu.vendor));
        self.facts.boards.get(gpu.slug.as_str()).or_else(maker).copied().unwrap_or(0.0)
    }

    fn judge(&self, query: &Query<'_>, features: &Features, above: f64, corrected: Option<Corrected>) -> LearnedTime {
        let facts = &self.facts;
        let offset = self.offset(query.gpu) - corrected.map_or(0.0, |corrected| corrected.mean);
        let time = query.launch_us() + above / offset.exp();
        let seen = facts.boards.contains_key(query.gpu.slug.as_str());
        let mut spread = if seen { facts.seen } else { facts.unseen }.unwrap_or(WIDE);
        let mut with_origin = facts.with_origin.unwrap_or(spread);
        let mut shared_deviation = facts.shared_deviation;
        if let Some(corrected) = corrected {
            spread = corrected.spread(facts.seen.unwrap_or(spread));
            if spread.high / spread.low < with_origin.high / with_origin.low {
                with_origin = spread;
            }
            // What the board's own measurements explain, an origin's need not.
            shared_deviation *= corrected.left;
        }
        let distance = self.distance(features);
        // Twice as wide (in logarithms) at half a training range beyond its end.
        let widening = if distance > NEAR { 1.0 + (2.0 * distance).min(2.0) } else { 1.0 };
        // The models were trained in FP32.
        let is_far = distance > NEAR || query.is_other_precision();
        let widening = if query.is_other_precision() { widening * OTHER_PRECISION_WIDENING } else { widening };
        LearnedTime {
            time: Micros::known(time),
            spread: spread.widened(widening),
            with_origin: with_origin.widened(widening),
            shared_deviation: if is_far { shared_deviation.max(FAR_SHARED) } else { shared_deviation },
            is_far,
        }
    }

    /// How far the features lie outside those of training, in units of their range there.
    fn distance(&self, features: &Features) -> f64 {
        features
            .values
            .iter()
            .zip(&self.facts.ranges)
            .map(|(&value, &[low, high])| {
                let (value, range) = (f64::from(value), (high - low).max(1e-6));
                ((low - value).max(value - high) / range).max(0.0)
            })
            .fold(0.0, f64::max)
    }
}

/// A maker's key in the facts.
const fn maker(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => "nvidia",
        Vendor::Amd => "amd",
    }
}

/// Times of an operation's parts; the ranges are added as if the parts erred together.
fn sum(times: &[Option<LearnedTime>], parts: &[Part]) -> Option<LearnedTime> {
    if parts.is_empty() {
        return None;
    }
    let (mut total, mut lows, mut highs, mut near) = (0.0, [0.0; 2], [0.0; 2], 0.0);
    let (mut is_far, mut cases) = (false, usize::MAX);
    for (time, part) in times.iter().zip(parts) {
        let time = (*time)?;
        let each = time.time.get() * part.times;
        total += each;
        near += each * time.shared_deviation;
        for (place, spread) in [time.spread, time.with_origin].into_iter().enumerate() {
            lows[place] += each * spread.low;
            highs[place] += each * spread.high;
        }
        is_far |= time.is_far;
        cases = cases.min(time.spread.cases);
    }
    let spread = |place: usize| Spread { low: lows[place] / total, high: highs[place] / total, cases };
    (total > 0.0).then(|| LearnedTime {
        time: Micros::known(total),
        spread: spread(0),
        with_origin: spread(1),
        shared_deviation: near / total,
        is_far,
    })
}
