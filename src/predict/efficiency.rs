//! How much of a GPU's rates operators reach in mixed and reduced precision.
//!
//! An operator takes the time of its arithmetic and that of its traffic, each stretched by a
//! factor whose logarithm is a sum of terms: what kind of operator it is, in which direction
//! it goes, in which layout, how narrow its result is, on which GPU it runs:
//!
//! `time = launch + √((e^Σc · flops / rate)² + (e^Σm · bytes / bandwidth)²)`
//!
//! The rates are those that the GPU sustains ([`super::rate`]). Terms are learned from whole
//! published training steps, with a prior that draws them to 0, so that a kind of operator or
//! GPU that was never seen is predicted at the rates of its like (`models/lab`).
//!
//! Of inference from shapes alone, on a GPU with few or no steps, a weighted geometric mean of that
//! time and the [roofline](super::roofline) is taken: both err there, and not alike (Bates and
//! Granger, "The Combination of Forecasts", 1969). In training the roofline is too fast.

mod ranges;
mod terms;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use ranges::{Iterations, StepRanges};
pub use terms::{Demand, Term, Units, demands};

use super::decoded::Decoded;
use super::learned::{LearnedTime, Spread, StepFacts, WIDE};
use super::rate::{Rates, STEP_LAUNCH_US};
use super::roofline::roofline;
use crate::catalog::{GpuSpec, Vendor};
use crate::op::{Arithmetic, Part, Primitive};
use crate::profile::{DType, Phase, Precision, Workload};
use crate::units::{BytesPerSecond, Micros};

/// Terms of arithmetic or of traffic by name: natural logarithms of factors of time.
pub type Factors = BTreeMap<String, f64>;

/// The term of how much fewer tiles than multiprocessors there are.
pub const FEW_TILES: &str = "few tiles";
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
pub const VERSION: u32 = 2;

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
        let damaged = model.compute.iter().chain(&model.memory).find(|(_, factor)| factor.abs() > LARGEST);
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

    /// The operations of a step in `precision` with their terms added up.
    pub fn columns<'a>(&'a self, operations: &'a [Decoded<'a>], precision: Option<Precision>) -> Columns<'a> {
        let asked = |decoded: &'a Decoded<'a>| (self.asked(&demands(decoded, precision)), decoded);
        let is_mixed = is_mixed(operations);
        Columns { model: self, precision, is_mixed, asked: operations.iter().map(asked).collect() }
    }

    /// The convolutions of a step in FP32; nothing is said of its other operations.
    pub fn convolutions<'a>(&'a self, operations: &'a [Decoded<'a>]) -> Columns<'a> {
        let precision = Some(Precision::Fp32);
        let asked = |decoded: &'a Decoded<'a>| {
            let is_wide = matches!(decoded.dtype, None | Some(DType::Float32));
            let convolves = |part: &Part| matches!(part.primitive, Primitive::Convolution { .. });
            let is_asked = is_wide && decoded.parts.iter().any(convolves);
            let asked = if is_asked { self.asked(&demands(decoded, precision)) } else { Vec::new() };
            (asked, decoded)
        };
        Columns { model: self, precision, is_mixed: false, asked: operations.iter().map(asked).collect() }
    }

    /// The time of an operation on a GPU; `None` of one that asks for nothing.
    fn time(&self, asked: &[Asked], gpu: &Board<'_>, decoded: &Decoded<'_>, is_mixed: bool) -> Option<LearnedTime> {
        let spread = self.operators.unwrap_or(WIDE);
        let time = gpu.time(asked, decoded.dtype.as_ref())?;
        let is_known = self.ranges.iter().any(|ranges| ranges.boards.contains_key(gpu.rates.gpu.slug.as_str()));
        let has_share = is_mixed && !is_known && self.roofline > 0.0;
        let roofline = roofline_of(decoded, gpu.rates, gpu.precision).filter(|_| has_share);
        Some(LearnedTime {
            time,
            spread,
            with_origin: spread,
            shared_deviation: OPERATORS_SHARED,
            is_far: gpu.is_far || asked.iter().any(|asked| asked.is_far),
            mean: roofline.map(|roofline| between(time, roofline, self.roofline)),
        })
    }

    /// An operation's parts with their terms added up.
    pub fn asked(&self, demands: &[Demand]) -> Vec<Asked> {
        let sum = |factors: &Factors, terms: &[Term]| -> f64 {
            terms.iter().map(|(name, amount)| factors.get(name).copied().unwrap_or(0.0) * amount).sum()
        };
        let is_new =
            |factors: &Factors, terms: &[Term]| terms.first().is_some_and(|(name, _)| !factors.contains_key(name));
        demands
            .iter()
            .map(|demand| Asked {
                flops: demand.flops,
                bytes: demand.bytes,
                times: demand.times,
                units: demand.units,
                tiles: demand.tiles,
                compute: sum(&self.compute, &demand.compute),
                memory: sum(&self.memory, &demand.memory),
                few_tiles: self.compute.get(FEW_TILES).copied().unwrap_or(0.0),
                is_far: is_new(&self.compute, &demand.compute) || is_new(&self.memory, &demand.memory),
            })
            .collect()
    }

    /// A GPU as this model sees it.
    pub fn board<'a>(&self, rates: &'a Rates<'a>, precision: Option<Precision>) -> Board<'a> {
        let sum = |factors: &Factors| -> f64 {
            gpu_terms(rates.gpu).iter().map(|name| factors.get(name).copied().unwrap_or(0.0)).sum()
        };
        Board {
            rates,
            precision,
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
    precision: Option<Precision>,
    /// Whether the roofline may have its share.
    is_mixed: bool,
    asked: Vec<(Vec<Asked>, &'a Decoded<'a>)>,
}

impl Columns<'_> {
    /// One occurrence of each on a GPU; `None` of operations that do nothing on the device or
    /// whose shapes do not tell.
    pub fn on(&self, rates: &Rates<'_>) -> Vec<Option<LearnedTime>> {
        let board = self.model.board(rates, self.precision);
        self.asked.iter().map(|(asked, decoded)| self.model.time(asked, &board, decoded, self.is_mixed)).collect()
    }
}

/// Whether the roofline may have its share: where there is no backward pass and no optimizer.
pub fn is_mixed(operations: &[Decoded<'_>]) -> bool {
    operations.iter().all(|decoded| !matches!(decoded.operation.phase, Phase::Backward | Phase::Optimizer))
}

/// The roofline of an operation; `None` where its shapes do not tell.
pub fn roofline_of(decoded: &Decoded<'_>, rates: &Rates<'_>, precision: Option<Precision>) -> Option<Micros> {
    decoded.work.as_ref().map(|work| roofline(rates, work, decoded.dtype.as_ref(), precision).0)
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
    /// Of the workload.
    pub precision: Option<Precision>,
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
    flops: f64,
    bytes: f64,
    times: f64,
    units: Units,
    tiles: f64,
    compute: f64,
    memory: f64,
    few_tiles: f64,
    is_far: bool,
}

/// Microseconds of arithmetic and of traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sides {
    /// Of arithmetic.
    pub compute_us: f64,
    /// Of traffic.
    pub memory_us: f64,
}

impl Sides {
    /// Microseconds at the GPU's rates, no factor applied.
    pub fn at_full_rate((flops, bytes): (f64, f64), units: Units, board: &Board<'_>, dtype: Option<&DType>) -> Self {
        let rates = board.rates;
        let rate = match units {
            Units::Matrix => rates.product(dtype, board.precision, true).sustained,
            Units::Vector => rates.arithmetic(Arithmetic::Vector, dtype, board.precision).0,
        };
        Self { compute_us: flops / rate.get() * 1e6, memory_us: bytes / board.bandwidth.get() * 1e6 }
    }

    /// The launch, and the larger of both as far as the smaller hides behind it.
    pub fn time_us(self) -> f64 {
        STEP_LAUNCH_US + self.compute_us.hypot(self.memory_us)
    }
}

/// How much fewer tiles than multiprocessors there are, in powers of two.
pub fn few_tiles(tiles: f64, gpu: &GpuSpec) -> f64 {
    if tiles > 0.0 { (f64::from(gpu.sm_count) / tiles).log2().max(0.0) } else { 0.0 }
}

impl Asked {
    fn on(&self, board: &Board<'_>, dtype: Option<&DType>) -> Sides {
        let full = Sides::at_full_rate((self.flops, self.bytes), self.units, board, dtype);
        let few = self.few_tiles * few_tiles(self.tiles, board.rates.gpu);
        Sides {
            compute_us: full.compute_us * (self.compute + few + board.compute).exp(),
            memory_us: full.memory_us * (self.memory + board.memory).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Layer;
    use crate::profile::{Mode, Operation};

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    fn operation(name: &str, phase: &str, inputs: &str, rest: &str) -> Operation {
        let json =
            format!(r#"{{"name": "aten::{name}", "phase": "{phase}", "inputs": {inputs}, "dtype": "float16"{rest}}}"#);
        serde_json::from_str(&json).unwrap()
    }

    fn asked(name: &str, phase: &str, inputs: &str, rest: &str) -> Vec<Demand> {
        let operation = operation(name, phase, inputs, rest);
        demands(&Decoded::new(0, &operation, Some(Precision::AmpFp16)), Some(Precision::AmpFp16))
    }

    fn model(compute: &[(&str, f64)], memory: &[(&str, f64)]) -> Efficiency {
        let factors = |terms: &[(&str, f64)]| terms.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Efficiency {
            format: FORMAT.to_owned(),
            version: VERSION,
            compute: factors(compute),
            memory: factors(memory),
            ..Efficiency::default()
        }
    }

    fn time(model: &Efficiency, operation: &Operation, gpu: &GpuSpec) -> LearnedTime {
        let decoded = [Decoded::new(0, operation, Some(Precision::AmpFp16))];
        model.columns(&decoded, Some(Precision::AmpFp16)).on(&Rates::new(gpu))[0].unwrap()
    }

    /// 4096 × 4096 × 4096 in FP16 on a V100: 137.4 GFLOP at 80 % of 125 TFLOP/s, 100.7 MB.
    #[test]
    fn a_product_by_hand() {
        let (v100, product) = (spec("v100-sxm2-16gb"), operation("mm", "forward", "[[4096, 4096], [4096, 4096]]", ""));
        let rates = Rates::new(&v100);
        let compute = 2.0 * 4096_f64.powi(3) / 100e12 * 1e6;
        let memory = 3.0 * 4096.0 * 4096.0 * 2.0 / rates.streaming.value.get() * 1e6;
        let plain = time(&Efficiency::default(), &product, &v100);
        let expected = STEP_LAUNCH_US + compute.hypot(memory);
        assert!((plain.time.get() / expected - 1.0).abs() < 1e-9, "{plain:?} {expected}");
        // A kind of operator that no step had is far from the training data.
        assert!(plain.is_far);
        let learned = model(&[("product", 2_f64.ln())], &[("product", 0.0)]);
        let slower = time(&learned, &product, &v100);
        assert!((slower.time.get() - STEP_LAUNCH_US - (2.0 * compute).hypot(memory)).abs() < 1e-6);
        assert!(!slower.is_far);
        // Whole steps share less of their deviations than operators do.
        let mut steps = learned.clone();
        steps.steps.shared_deviation = 0.1;
        assert_eq!(time(&steps, &product, &v100).shared_deviation, 0.8);
        // AMD's GPUs were never among the steps.
        assert!(time(&learned, &product, &spec("mi300x")).is_far);
    }

    /// A quarter of the roofline, from shapes alone; none of it in training or on a GPU with many
    /// steps.
    #[test]
    fn the_roofline_has_its_share() {
        let (v100, product) = (spec("v100-sxm2-16gb"), operation("mm", "forward", "[[4096, 4096], [4096, 4096]]", ""));
        let plain = model(&[("product", 2_f64.ln())], &[("product", 0.0)]);
        assert_eq!(time(&plain, &product, &v100).mean, None);
        let found = time(&Efficiency { roofline: 0.25, ..plain.clone() }, &product, &v100);
        assert_eq!(found.time, time(&plain, &product, &v100).time);
        let compute = 2.0 * 4096_f64.powi(3) / 100e12 * 1e6;
        let mean = found.time.get().powf(0.75) * compute.powf(0.25);
        assert!((found.mean.unwrap().get() / mean - 1.0).abs() < 1e-9, "{found:?} {mean}");
        let backward = operation("mm", "backward", "[[4096, 4096], [4096, 4096]]", "");
        assert_eq!(time(&Efficiency { roofline: 0.25, ..plain.clone() }, &backward, &v100).mean, None);
        let spread = Spread { low: 0.9, high: 1.1, cases: 100 };
        let boards = [(v100.slug.to_string(), spread)].into();
        let many = StepRanges { mode: Mode::Training, precision: Precision::AmpFp16, boards, unseen: spread };
        assert_eq!(time(&Efficiency { ranges: vec![many], roofline: 0.25, ..plain }, &product, &v100).mean, None);
    }

    /// What was learned of a GPU is relative to the rules; a calibration serves the others.
    #[test]
    fn a_calibrated_bandwidth_serves_gpus_without_steps() {
        let (v100, relu) = (spec("v100-sxm2-16gb"), operation("relu", "forward", "[[4096, 40960]]", ""));
        let mut rates = Rates::new(&v100);
        rates.streaming.value = rates.trained_streaming.value * 0.5;
        let decoded = [Decoded::new(0, &relu, Some(Precision::AmpFp16))];
        let time = |model: &Efficiency| {
            model.columns(&decoded, Some(Precision::AmpFp16)).on(&rates)[0].unwrap().time.get() - STEP_LAUNCH_US
        };
        let unseen = model(&[], &[("elementwise", 0.0)]);
        let mut seen = unseen.clone();
        seen.steps.boards.insert(v100.slug.to_string(), 1.0);
        assert!((time(&unseen) / time(&seen) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn terms_name_kind_direction_and_layout() {
        let names = |terms: &[Term]| terms.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let inputs = "[[8, 64, 56, 56], [64, 64, 3, 3]]";
        let [first] = &asked("convolution", "forward", inputs, r#", "attributes": {"padding": [1, 1]}"#)[..] else {
            panic!("one part")
        };
        assert_eq!(names(&first.memory), ["dense", "convolution", "channels first", "dense, channels first"]);
        assert_eq!(first.tiles, (8.0_f64 * 3136.0 / 128.0).ceil());
        assert!(first.compute.contains(&("dense, narrow".to_owned(), 1.0)), "{:?}", first.compute);
        let last = r#", "attributes": {"padding": [1, 1], "memory_format": "channels_last"}"#;
        assert_eq!(names(&asked("convolution", "forward", inputs, last)[0].memory), ["dense", "convolution"]);
        let backward = "[[8, 64, 56, 56], [8, 64, 56, 56], [64, 1, 3, 3]]";
        let [data, weight] = &asked("convolution_backward", "backward", backward, last)[..] else {
            panic!("two parts")
        };
        assert_eq!((data.units, data.flops), (Units::Vector, weight.flops));
        assert_eq!(names(&data.memory)[3], "depthwise, data");
        assert_eq!(names(&weight.memory)[3], "depthwise, weight");
    }

    #[test]
    fn what_passes_over_memory_has_its_own_names() {
        let name = |name: &str, phase: &str, rest: &str| {
            asked(name, phase, "[[8, 64, 56, 56], [64], [64]]", rest)[0].memory.last().unwrap().0.clone()
        };
        assert_eq!(name("native_batch_norm", "forward", ""), "batch norm");
        let evaluated = r#", "attributes": {"training": false}"#;
        assert_eq!(name("native_batch_norm", "forward", evaluated), "batch norm, evaluation");
        assert_eq!(name("native_batch_norm_backward", "backward", ""), "batch norm, backward");
        assert_eq!(name("relu", "forward", ""), "elementwise");
        assert_eq!(name("threshold_backward", "backward", ""), "elementwise, backward");
        assert_eq!(name("_to_copy", "forward", ""), "cast");
    }

    #[test]
    fn kernels_of_attention_are_told_apart() {
        let terms = |kernel: &str| {
            let inputs = "[[2, 16, 1024, 64], [2, 16, 1024, 64], [2, 16, 1024, 64]]";
            let parts = asked(&format!("_scaled_dot_product_{kernel}_attention"), "forward", inputs, "");
            parts[0].compute.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(terms("flash"), ["attention"]);
        assert_eq!(terms("cudnn"), ["attention"]);
        assert_eq!(terms("efficient"), ["attention", "attention, efficient"]);
    }

    /// Many such steps on the GPU, on others, and too few; AMD's GPUs were never among the steps.
    #[test]
    fn ranges_are_those_of_the_mode_and_precision() {
        let spread = |low: f64| Spread { low, high: 1.0 / low, cases: 100 };
        let (v100, t4) = (spec("v100-sxm2-16gb"), spec("t4"));
        let mut model = model(&[], &[]);
        (model.steps.seen, model.steps.unseen) = (Some(spread(0.6)), Some(spread(0.5)));
        model.steps.boards.insert(v100.slug.to_string(), 1.0);
        let boards = [(v100.slug.to_string(), spread(0.9))].into();
        let (mode, precision) = (Mode::Inference, Precision::AmpFp16);
        model.ranges.push(StepRanges { mode, precision, boards, unseen: spread(0.8) });
        let low = |gpu: &GpuSpec, mode: Mode, precision: Precision| {
            let json = format!(r#"{{"name": "w", "mode": "{}", "precision": "{}"}}"#, mode.name(), precision.name());
            let workload: Workload = serde_json::from_str(&json).unwrap();
            model.range(gpu, &workload).unwrap().low
        };
        assert_eq!(low(&v100, mode, precision), 0.9);
        assert_eq!(low(&t4, mode, precision), 0.8);
        assert_eq!([&v100, &t4].map(|gpu| low(gpu, Mode::Training, precision)), [0.6, 0.5]);
        assert_eq!([&v100, &t4].map(|gpu| low(gpu, mode, Precision::Tf32)), [0.6, 0.5]);
        assert_eq!(low(&spec("mi300x"), mode, precision), 0.5);
    }

    #[test]
    fn damaged_files_are_refused() {
        let good = serde_json::to_string(&model(&[("product", 0.5)], &[])).unwrap();
        let steps = good.replace("\"typical\":0.0,\"training\":0.0", "\"typical\":1.0,\"training\":1.0");
        assert_eq!(Efficiency::from_json(steps.as_bytes()).unwrap().compute["product"], 0.5);
        let error = |text: &str| Efficiency::from_json(text.as_bytes()).unwrap_err().to_string();
        assert!(error(&good).contains("a figure of steps"));
        assert!(error(&steps.replace("0.5", "99.0")).contains("\"product\""));
        assert!(error(&steps.replace("\"roofline\":0.0", "\"roofline\":1.5")).contains("1.5, not from 0 to 1"));
        assert!(error(&steps.replace(FORMAT, "other")).contains("format \"other\""));
        let ranges = |low: &str| {
            let spread = format!(r#"{{"low":{low},"high":1.2,"cases":100}}"#);
            let one = format!(r#"{{"mode":"training","precision":"amp-fp16","boards":{{}},"unseen":{spread}}}"#);
            steps.replace(r#""ranges":[]"#, &format!(r#""ranges":[{one}]"#))
        };
        assert_eq!(Efficiency::from_json(ranges("0.9").as_bytes()).unwrap().ranges.len(), 1);
        assert!(error(&ranges("0.0")).contains("a figure of steps"));
        assert!(error(&ranges("0.9").replace("training\",\"prec", "idle\",\"prec")).contains("idle"));
        assert!(error("{").contains("EOF"));
    }
}
