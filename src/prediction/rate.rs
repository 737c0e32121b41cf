//! Rates that a GPU sustains: one table per GPU, each figure with its source.
//!
//! Rooflines, wave scaling, learned and linear models, memory and communication use these figures. A figure is measured
//! ([`Source::Calibrated`]), published, specified, or estimated by a named rule. The rules:
//!
//! - copies reach 83 % of the nominal bandwidth, the median of measured over nominal in the catalog (0.68–0.88; a test
//!   recomputes it);
//! - streaming kernels reach 87 % of nominal on HBM, 80 % on AMD's, 76 % on GDDR with error correction (`NeuSight`'s
//!   elementwise tables: V100 92 %, A100 87 %, P100 76 %, T4 and P4 75 %; MI100 80 %), or the catalog's `[streaming]`
//!   share. With a published measurement, the geometric mean of that share and 1.1 times the measurement;
//! - matrix cores reach their measured rate, in FP16 also that of BF16. Otherwise 80 % of their peak (77–87 % measured
//!   on NVIDIA GPUs), 92 % if the peak is cut for 32-bit accumulation, or the rate at the GPU's power limit, whichever
//!   is lower: small and low-power boards do not sustain the former. AMD's reach 51 to 72 %, by architecture;
//! - FP32 on the vector units reaches the peak. Exceptions: 70 % on multiprocessors with 128 lanes from compute
//!   capability 8.6 on, which cannot issue to all lanes in long sequences, and half on CDNA 3 and 4, whose figure
//!   counts packed arithmetic;
//! - long FP32 products run at the lower of the issue and power limits. Issue: 95 % of the FP32 peak; 77 % on
//!   multiprocessors with 128 lanes from compute capability 8.6 on (50.9 of 66.9 TFLOP/s on an H100 in `NeuSight`'s
//!   operator tables); on AMD's CDNA 1 and 2 60 % of the FP32 matrix peak, which is twice the vector peak (AMD GPUs
//!   reached 51–68 % of the BF16 peak in stas00/ml-engineering's table). Power: the GPU's limit over the energy per
//!   TFLOP of its generation. It takes effect after a while, so a short burst runs at the issue rate. A T4 (70 W)
//!   sustains 3.2–4.4 of 8.1 TFLOP/s and an A100 of 250 W 16.3 of 19.5.

mod rules;

use std::fmt;

use serde::Serialize;

pub use rules::{CUT_MATRIX_SHARE, TYPICAL_MATRIX_SHARE};
use rules::{fp32_by_rule, matrix_by_rule, streaming_by_rule, vector_by_rule};

use super::decoded::Decoded;
use habitat_base::units::{Bytes, BytesPerSecond, FlopsPerSecond};
use habitat_step::catalog::GpuSpec;
use habitat_step::op::Arithmetic;
use habitat_step::profile::{DType, Precision};

/// Median of measured over nominal bandwidth among the GPUs of the catalog.
const TYPICAL_BANDWIDTH_SHARE: f64 = 0.83;
/// Usable share of nominal memory: an assumption for all GPUs. GDDR6 with error correction has a sixteenth less than nominal,
/// HBM nearly all: the largest runs in `models/lab/samples/published/hosts.jsonl.zst` show 93 % on an L40S, 99 % on an H100.
const USABLE_SHARE: f64 = 0.92;

/// Device time of the shortest kernels in recorded traces, in microseconds: the minimum of any launch.
pub(crate) const SHORTEST_KERNEL_US: f64 = 1.5;
/// Launch cost within a step, in microseconds, for back-to-back launches.
pub const STEP_LAUNCH_US: f64 = 2.0;
/// Launch cost of an operator measured separately with events, in microseconds; the excess over [`STEP_LAUNCH_US`] does
/// not occur in a step. (Elementwise kernels of `NeuSight`'s tables take 10–14 µs more than their traffic.)
pub const ALONE_LAUNCH_US: f64 = 13.0;
/// Longest time, in microseconds, that counts as a mere host launch.
pub const LONGEST_LAUNCH_US: f64 = 60.0;

/// Source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Measured on this GPU by `habitat-tui calibrate`.
    Calibrated,
    /// Measured and published; the catalog has the reference.
    Published,
    /// Stated by the manufacturer.
    Specified,
    /// Estimated by the named rule from the specification.
    Rule(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Calibrated => "calibrated",
            Self::Published => "published measurement",
            Self::Specified => "specification",
            Self::Rule(rule) => rule,
        })
    }
}

/// Figure with its source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure<T> {
    /// The figure.
    pub value: T,
    /// Source of the figure.
    pub source: Source,
}

impl<T> Figure<T> {
    const fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }
}

/// Product rate, sustained and in bursts below a millisecond.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProductRate {
    /// Rate under load for seconds.
    pub sustained: FlopsPerSecond,
    /// Rate in a short burst; at least the sustained rate.
    pub burst: FlopsPerSecond,
    /// Source of both rates.
    pub source: Source,
}

impl ProductRate {
    /// Whether the GPU's power limit determines it.
    pub fn is_power_limited(&self) -> bool {
        self.sustained.get() < 0.9 * self.burst.get()
    }

    const fn steady(rate: Figure<FlopsPerSecond>) -> Self {
        Self { sustained: rate.value, burst: rate.value, source: rate.source }
    }
}

/// Element types with their own matrix cores, by catalog name.
const MATRIX_TYPES: [&str; 4] = ["tf32", "fp16", "bf16", "fp8"];

/// Index into [`MATRIX_TYPES`] of the type that an operation's products use, if any.
const fn matrix_type(dtype: Option<&DType>, precision: Option<Precision>) -> Option<usize> {
    match (dtype, precision) {
        (Some(DType::Float16), _) => Some(1),
        (Some(DType::Bfloat16), _) => Some(2),
        (Some(DType::Float8E4m3 | DType::Float8E5m2), _) => Some(3),
        (None | Some(DType::Float32), Some(Precision::Tf32)) => Some(0),
        _ => None,
    }
}

/// Rates that one GPU sustains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates<'a> {
    /// The GPU.
    pub gpu: &'a GpuSpec,
    /// Memory bandwidth that copies reach.
    pub bandwidth: Figure<BytesPerSecond>,
    /// Memory bandwidth that streaming kernels reach.
    pub streaming: Figure<BytesPerSecond>,
    /// Streaming bandwidth without calibration, as in the training of the learned models.
    pub trained_streaming: Figure<BytesPerSecond>,
    /// Elementwise FP32 arithmetic on the vector units.
    pub vector: Figure<FlopsPerSecond>,
    /// Long FP32 products, calibrated if possible.
    pub fp32: ProductRate,
    /// Long FP32 products by rule alone, as in the training of the learned models; their GPU offsets contain the
    /// measurements.
    pub trained_fp32: ProductRate,
    /// Measured rate of FP32 products, calibrated or published.
    measured_fp32: Option<Figure<FlopsPerSecond>>,
    /// Products on matrix cores, by [`MATRIX_TYPES`]; `None` if the GPU has no such cores.
    matrix: [Option<Figure<FlopsPerSecond>>; 4],
    /// Memory that a process may use.
    pub usable_memory: Figure<Bytes>,
}

impl<'a> From<&'a GpuSpec> for Rates<'a> {
    fn from(gpu: &'a GpuSpec) -> Self {
        Self::new(gpu)
    }
}

impl<'a> Rates<'a> {
    /// Builds the table of a GPU.
    pub fn new(gpu: &'a GpuSpec) -> Self {
        let calibrated = gpu.calibration.as_ref().and_then(|calibration| calibration.bandwidth());
        let calibrated = calibrated.map(|bandwidth| Figure::new(bandwidth, Source::Calibrated));
        let trained_streaming = streaming_by_rule(gpu);
        let trained_fp32 = fp32_by_rule(gpu);
        let calibrated_fp32 = gpu.calibration.as_ref().and_then(|calibration| calibration.rate("fp32"));
        let peaks = [gpu.peak.tf32_tensor, gpu.peak.fp16_tensor, gpu.peak.bf16_tensor, gpu.peak.fp8_tensor];
        let mut matrix = [None; 4];
        for ((rate, peak), name) in matrix.iter_mut().zip(peaks).zip(MATRIX_TYPES) {
            // Both 16-bit types reach the same rate if their peaks are equal.
            let is_either = name.ends_with("16") && gpu.peak.fp16_tensor == gpu.peak.bf16_tensor;
            let names = if is_either { &[name, "fp16", "bf16"][..] } else { &[name] };
            let measured = names.iter().find_map(|name| measured(gpu, name));
            *rate = peak.map(|peak| measured.unwrap_or_else(|| matrix_by_rule(gpu, peak)));
        }
        let fp32 = calibrated_fp32.map_or(trained_fp32, |sustained| ProductRate {
            sustained,
            burst: trained_fp32.burst.max(sustained),
            source: Source::Calibrated,
        });
        let vector = vector_by_rule(gpu);
        let measured_fp32 = measured(gpu, "fp32");
        // Libraries choose the faster kernel, so TF32 is never slower.
        let fastest_fp32 = [Some(vector), measured_fp32, Some(Figure::new(fp32.sustained, fp32.source))];
        matrix[0] = matrix[0].filter(|_| gpu.runs_tf32()).map(|tf32| {
            fastest_fp32
                .into_iter()
                .flatten()
                .fold(tf32, |best, rate| if rate.value.get() > best.value.get() { rate } else { best })
        });
        Self {
            gpu,
            bandwidth: calibrated.or_else(|| published_bandwidth(gpu)).unwrap_or_else(|| {
                let share = gpu.memory_bandwidth * TYPICAL_BANDWIDTH_SHARE;
                Figure::new(share, Source::Rule("83 % of the specification"))
            }),
            streaming: calibrated.unwrap_or(trained_streaming),
            trained_streaming,
            vector,
            fp32,
            trained_fp32,
            measured_fp32,
            matrix,
            usable_memory: Figure::new(gpu.memory * USABLE_SHARE, Source::Rule("92 % of the memory")),
        }
    }

    /// Rate of an arithmetic ([`Decoded::arithmetic`]) on an element type. Falls back to FP32 for a type without matrix
    /// rate, and for TF32 on a GPU without it.
    pub fn arithmetic(
        &self,
        arithmetic: Arithmetic,
        dtype: Option<&DType>,
        precision: Option<Precision>,
    ) -> FlopsPerSecond {
        let vector = self.vector.value;
        if arithmetic == Arithmetic::Vector {
            return vector;
        }
        let is_there = |index: &usize| MATRIX_TYPES[*index] != "tf32" || self.matrix[*index].is_some();
        match matrix_type(dtype, precision).filter(is_there) {
            Some(index) => self.matrix[index].map_or(vector, |rate| rate.value),
            // The catalog's measured FP32 rates are of matrix products.
            None if arithmetic == Arithmetic::Product => self.measured_fp32.map_or(vector, |rate| rate.value),
            None => vector,
        }
    }

    /// Element type that an operation's products use and that the GPU has no matrix rate for.
    pub(super) fn lacks(&self, decoded: &Decoded<'_>) -> Option<&'static str> {
        decoded.work.filter(|work| work.arithmetic != Arithmetic::Vector)?;
        let index = matrix_type(decoded.dtype.as_ref(), decoded.arithmetic)?;
        self.matrix[index].is_none().then_some(MATRIX_TYPES[index])
    }

    /// Rate of long products in the element type; FP32 if the GPU lacks matrix cores for it. `as_trained` ignores a
    /// calibrated FP32 rate.
    pub fn product(&self, dtype: Option<&DType>, precision: Option<Precision>, as_trained: bool) -> ProductRate {
        let fp32 = if as_trained { self.trained_fp32 } else { self.fp32 };
        match (matrix_type(dtype, precision), dtype) {
            (Some(index), _) => self.matrix[index].map_or(fp32, ProductRate::steady),
            (None, None | Some(DType::Float32)) => fp32,
            // 64-bit and integer types use the FP32 product rate, without a burst.
            (None, Some(_)) => ProductRate::steady(self.measured_fp32.unwrap_or(self.vector)),
        }
    }
}

/// Measured rate of products in an element type: calibrated, otherwise the fastest published one.
fn measured(gpu: &GpuSpec, dtype: &str) -> Option<Figure<FlopsPerSecond>> {
    let calibrated = gpu.calibration.as_ref().and_then(|calibration| calibration.rate(dtype));
    let published = || gpu.fastest_published(dtype).map(|rate| Figure::new(rate, Source::Published));
    calibrated.map(|rate| Figure::new(rate, Source::Calibrated)).or_else(published)
}

fn published_bandwidth(gpu: &GpuSpec) -> Option<Figure<BytesPerSecond>> {
    gpu.published_bandwidth().map(|published| Figure::new(published, Source::Published))
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_step::catalog::{Calibration, Layer};

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/../../catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    /// Compared with the rates of long products in `NeuSight`'s tables, within a quarter.
    #[test]
    fn rules_come_near_what_was_measured() {
        for (slug, measured) in [
            ("v100-pcie-32gb", 13.6),
            ("t4", 4.0),
            ("p4", 4.4),
            ("a100-pcie-40gb", 16.3),
            ("a100-pcie-80gb", 18.1),
            ("h100-sxm5-80gb", 51.0),
            ("mi100", 31.0),
        ] {
            let rate = Rates::new(&spec(slug)).fp32.sustained.get() / 1e12;
            assert!((rate / measured - 1.0).abs() < 0.25, "{slug}: {rate:.2} against {measured}");
        }
    }

    #[test]
    fn small_gpus_are_limited_by_power_and_large_ones_are_not() {
        for (slug, limited) in
            [("t4", true), ("l4", true), ("p4", true), ("v100-sxm2-32gb", false), ("rtx-4090", false)]
        {
            assert_eq!(Rates::new(&spec(slug)).fp32.is_power_limited(), limited, "{slug}");
        }
    }

    #[test]
    fn tensor_types_take_the_measured_rate() {
        let rate = Rates::new(&spec("h100-sxm5-80gb")).product(Some(&DType::Bfloat16), None, false);
        assert!((rate.sustained.get() - 798e12).abs() < 1e12 && rate.source == Source::Published);
        let alike = Rates::new(&spec("h100-sxm5-80gb")).product(Some(&DType::Float16), None, false);
        assert_eq!((alike.sustained, alike.source), (rate.sustained, Source::Published));
        // By rule; the RTX 3090's peak with 32-bit accumulation is half of that with 16-bit, the A6000's is not cut.
        for (slug, tflops) in [("rtx-3090", 0.92 * 71.0), ("rtx-a6000", 0.8 * 154.8)] {
            let rate = Rates::new(&spec(slug)).product(Some(&DType::Float16), None, false).sustained.get() / 1e12;
            assert!((rate / tflops - 1.0).abs() < 1e-9, "{slug}: {rate}");
        }
        let p100 = spec("p100-pcie-16gb");
        let rates = Rates::new(&p100);
        assert_eq!(rates.product(Some(&DType::Bfloat16), None, false), rates.fp32);
        assert!(rates.fp32.sustained.get() < 10e12);
    }

    /// AMD's matrix cores reach the measured share, or that of their architecture; in FP8 a little less.
    #[test]
    fn amd_reaches_the_share_of_its_architecture() {
        let share = |slug: &str, dtype: &DType| {
            let gpu = spec(slug);
            let peak = if *dtype == DType::Float8E4m3 { gpu.peak.fp8_tensor } else { gpu.peak.fp16_tensor };
            Rates::new(&gpu).product(Some(dtype), None, false).sustained.get() / peak.unwrap().get()
        };
        for (slug, dtype, expected) in [
            ("mi300x", DType::Float16, 0.511),
            ("mi300x", DType::Float8E4m3, 0.468),
            ("mi325x", DType::Float16, 0.600),
            ("mi325x", DType::Float8E4m3, 0.546),
            ("mi300a", DType::Bfloat16, 0.51),
            ("mi210", DType::Bfloat16, 0.72),
        ] {
            let found = share(slug, &dtype);
            assert!((found - expected).abs() < 1e-3, "{slug} {dtype:?}: {found}");
        }
    }

    #[test]
    fn a_missing_precision_falls_back() {
        let bfloat = |gpu: &GpuSpec| Rates::new(gpu).arithmetic(Arithmetic::Product, Some(&DType::Bfloat16), None);
        assert_eq!(bfloat(&spec("v100-sxm2-16gb")), spec("v100-sxm2-16gb").peak.fp32);
        assert_eq!(bfloat(&spec("h100-sxm5-80gb")).get(), 798e12);
        // The T4 does not sustain its FP32 peak in products, but does in short kernels.
        let t4 = spec("t4");
        let fp32 = |arithmetic| Rates::new(&t4).arithmetic(arithmetic, Some(&DType::Float32), None);
        assert_eq!(fp32(Arithmetic::Product).get(), 4.38e12);
        assert_eq!(fp32(Arithmetic::Vector), t4.peak.fp32);
    }

    /// Checks the constant against the shipped catalog.
    #[test]
    fn typical_bandwidth_share_is_the_median_of_the_catalog() {
        let mut shares: Vec<f64> = std::fs::read_dir(format!("{}/../../catalog", env!("CARGO_MANIFEST_DIR")))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .map(|path| GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap())
            .filter_map(|gpu| Some(gpu.measured_bandwidth? / gpu.memory_bandwidth))
            .collect();
        shares.sort_by(f64::total_cmp);
        assert!(shares.len() > 10);
        assert!((shares[shares.len() / 2] - TYPICAL_BANDWIDTH_SHARE).abs() < 0.01, "{shares:?}");
    }

    /// The share is in the GPU's file, whatever its name.
    #[test]
    fn the_streaming_share_is_data_of_the_catalog() {
        let mut consumer = spec("rtx-2080");
        let share = |gpu: &GpuSpec| Rates::new(gpu).streaming.value / gpu.memory_bandwidth;
        assert!(consumer.measured_bandwidth.is_none() && (share(&consumer) - 0.86).abs() < 1e-12);
        consumer.slug = habitat_base::units::GpuSlug::new("anything").unwrap();
        assert!((share(&consumer) - 0.86).abs() < 1e-12);
        consumer.streaming = None;
        assert!((share(&consumer) - 0.76).abs() < 1e-12);
    }

    /// A calibration replaces published measurements, and only those.
    #[test]
    fn a_calibration_stands_in_for_what_was_published() {
        let spread =
            |median: f64| format!("{{ median = {median:?}, low = {median:?}, high = {median:?}, regions = 15 }}");
        let text = format!(
            "format = \"habitat-calibration\"\nversion = 1\ngpu = \"h100-sxm5-80gb\"\ndate = \"2026-11-21T10:00:00Z\"\n\
             program = \"test\"\n[device]\nname = \"H100\"\ncompute_capability = \"9.0\"\nsm_count = 132\nmemory_bytes = 1\n\
             [bandwidth]\nbuffer_bytes = 1\ncopy_gbps = {}\n[[product]]\ndtype = \"bf16\"\nshape = \"1\"\nsoftware = \"x\"\ntflops = {}\n",
            spread(2900.0),
            spread(700.0)
        );
        let shipped = spec("h100-sxm5-80gb");
        let mut own = shipped.clone();
        own.calibration = Some(Box::new(Calibration::parse(&text).unwrap()));
        let (before, after) = (Rates::new(&shipped), Rates::new(&own));
        let bf16 = |rates: &Rates<'_>| rates.product(Some(&DType::Bfloat16), None, false);
        // The published bandwidth is not trusted; the user's own is.
        assert!(matches!(before.bandwidth.source, Source::Rule(_)));
        assert_eq!((after.bandwidth.value.get(), after.bandwidth.source), (2900e9, Source::Calibrated));
        assert_eq!((bf16(&before).sustained.get(), bf16(&after).sustained.get()), (798e12, 700e12));
        assert_eq!(after.measured_fp32, before.measured_fp32);
        assert_eq!((after.streaming.value.get(), after.trained_streaming), (2900e9, before.trained_streaming));
    }

    #[test]
    fn every_figure_has_its_source() {
        let (v100, unmeasured) = (spec("v100-sxm2-16gb"), spec("rtx-2080"));
        let sources = |gpu: &GpuSpec| (Rates::new(gpu).bandwidth.source, Rates::new(gpu).vector.source);
        assert_eq!(sources(&v100), (Source::Published, Source::Specified));
        assert_eq!(sources(&unmeasured).0.to_string(), "83 % of the specification");
    }
}
