//! What a GPU sustains, told from its data sheet: the rate of long matrix products and the
//! bandwidth of streaming kernels. Properties of the GPU by itself, the same rules for every
//! board, so that the learned models need to know nothing else that tells boards apart.
//!
//! A product runs at the lowest of
//! - issue: 95 % of the FP32 peak; 77 % on multiprocessors with 128 lanes from compute
//!   capability 8.6 on, which cannot issue to all lanes in every cycle (50.9 of 66.9 TFLOP/s
//!   on an H100 in `NeuSight`'s operator tables); on AMD's CDNA 1 and 2 60 % of the FP32
//!   matrix peak, which is twice the vector peak (51–68 % of the BF16 peak were reached on
//!   AMD boards in stas00/ml-engineering's table);
//! - power: board power over the energy that a TFLOP takes in that generation.
//!   A T4 (70 W) holds 3.2–4.4 of 8.1 TFLOP/s and an A100 of 250 W 16.3 of 19.5.
//!
//! Power limits bite after a while: a short burst runs at the issue rate.

use crate::catalog::{BandwidthKind, GpuSpec, Vendor};
use crate::profile::{DType, Precision};
use crate::units::{BytesPerSecond, FlopsPerSecond};

use super::roofline::sustained_rate;
use crate::op::Arithmetic;

/// Share of the FP32 peak that long products reach on multiprocessors of 64 lanes.
const ISSUE_SHARE: f64 = 0.95;
/// The same with 128 lanes, compute capability 8.6 and later.
const WIDE_ISSUE_SHARE: f64 = 0.77;
/// Share of the FP32 matrix peak of CDNA 1 and 2.
const CDNA_SHARE: f64 = 0.6;

/// A rate that holds, and one that holds for less than a millisecond.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProductRate {
    /// Under load for seconds.
    pub sustained: FlopsPerSecond,
    /// In a short burst; at least the sustained rate.
    pub burst: FlopsPerSecond,
}

impl ProductRate {
    /// Whether the board's power is what limits it.
    pub fn is_power_limited(&self) -> bool {
        self.sustained.get() < 0.9 * self.burst.get()
    }
}

/// Watts of board power that a sustained TFLOP/s of FP32 products takes, by architecture.
///
/// From boards that run into their limit: 16 and 12 nm (Pascal, Volta, Turing) about 18 (T4,
/// P4), 7 nm Ampere 15.5 (A100 of 250 W). Estimated, with a spread of a third: 8 nm Ampere
/// 11, Hopper 10, Ada and Blackwell 6.5 (an RTX 4090 sustains about 60 TFLOP/s in 450 W, at
/// a higher voltage than small boards run at). `None` where no board is known to be limited.
fn watts(gpu: &GpuSpec) -> Option<f64> {
    match gpu.architecture.as_str() {
        "Pascal" | "Volta" | "Turing" => Some(18.0),
        "Ampere" if gpu.compute_capability == Some((8, 0)) => Some(15.5),
        "Ampere" => Some(11.0),
        "Hopper" => Some(10.0),
        "Ada Lovelace" | "Blackwell" => Some(6.5),
        _ => None,
    }
}

/// FP32 products on the vector units (or AMD's matrix units), by rule alone.
pub fn fp32_product_rate(gpu: &GpuSpec) -> ProductRate {
    let wide = gpu.fp32_cores_per_sm >= 128 && gpu.compute_capability.is_some_and(|capability| capability >= (8, 6));
    let issue = match gpu.architecture.as_str() {
        "CDNA 1" | "CDNA 2" => 2.0 * CDNA_SHARE,
        // The catalog's figure counts packed arithmetic; BF16 products reached 51 % too.
        "CDNA 3" => 0.5,
        _ if wide => WIDE_ISSUE_SHARE,
        _ => ISSUE_SHARE,
    };
    let burst = gpu.peak.fp32 * issue;
    let sustained = match (gpu.power, watts(gpu)) {
        (Some(power), Some(watts)) => burst.min(FlopsPerSecond::known(power.get() / watts * 1e12)),
        _ => burst,
    };
    ProductRate { sustained, burst }
}

/// The rate of products in the element type, and a note where it had to be replaced.
///
/// FP32 by [`fp32_product_rate`]: what was measured on a board is in the models' offsets.
/// Tensor-core types by the catalog's measured rates or their usual share of the peak.
pub fn product_rate(
    gpu: &GpuSpec,
    dtype: Option<&DType>,
    precision: Option<Precision>,
) -> (ProductRate, Option<String>) {
    let fp32 = matches!(dtype, None | Some(DType::Float32)) && precision != Some(Precision::Tf32);
    if fp32 {
        return (fp32_product_rate(gpu), None);
    }
    match sustained_rate(gpu, Arithmetic::Product, dtype, precision) {
        (_, Some(note)) => (fp32_product_rate(gpu), Some(note)),
        (rate, None) => (ProductRate { sustained: rate, burst: rate }, None),
    }
}

/// FP32 products at the rate that was calibrated; by rule where none was.
pub fn calibrated_fp32_rate(gpu: &GpuSpec) -> ProductRate {
    let rule = fp32_product_rate(gpu);
    match gpu.calibration.as_ref().and_then(|calibration| calibration.rate("fp32")) {
        Some(sustained) => ProductRate { sustained, burst: rule.burst.max(sustained) },
        None => rule,
    }
}

/// Published measurements of bandwidth (by copies) are below what elementwise kernels reach.
const STREAM_OVER_PUBLISHED: f64 = 1.1;

/// Bandwidth of kernels that stream through memory: 87 % of nominal on HBM, 80 % on AMD's,
/// 76 % on GDDR with error correction and 86 % without (`NeuSight`'s elementwise tables:
/// V100 92 %, A100 87 %, P100 76 %, T4 and P4 75 %; MI100 80 %). Where a measurement was
/// published, the geometric mean of that rule and 1.1 times the measurement. Where the GPU
/// was calibrated, what its copies reached.
pub fn streaming_bandwidth(gpu: &GpuSpec) -> BytesPerSecond {
    let own = gpu.calibration.as_ref().and_then(|calibration| calibration.bandwidth());
    own.unwrap_or_else(|| streaming_bandwidth_by_rule(gpu))
}

/// The same by the rule and what was published: what the learned models were trained with.
pub fn streaming_bandwidth_by_rule(gpu: &GpuSpec) -> BytesPerSecond {
    let graphics = gpu.memory_type.as_deref().is_some_and(|kind| kind.starts_with("GDDR"));
    let consumer = ["gtx-", "titan-", "rtx-20", "rtx-30", "rtx-40", "rtx-50"]
        .iter()
        .any(|start| gpu.slug.as_str().starts_with(start))
        && !gpu.slug.as_str().ends_with("-ada");
    let share = match (gpu.vendor, graphics) {
        (Vendor::Amd, _) => 0.80,
        (_, true) if consumer => 0.86,
        (_, true) => 0.76,
        _ => 0.87,
    };
    let rule = gpu.memory_bandwidth * share;
    match gpu.published_bandwidth() {
        (published, BandwidthKind::Measured) => {
            BytesPerSecond::known((rule.get() * published.get() * STREAM_OVER_PUBLISHED).sqrt())
        }
        (_, BandwidthKind::Nominal) => rule,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Layer;

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    /// Against the rates that long products of `NeuSight`'s tables reach, within a quarter.
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
            let rate = fp32_product_rate(&spec(slug)).sustained.get() / 1e12;
            assert!((rate / measured - 1.0).abs() < 0.25, "{slug}: {rate:.2} against {measured}");
        }
    }

    #[test]
    fn small_boards_are_limited_by_power_and_large_ones_are_not() {
        for (slug, limited) in
            [("t4", true), ("l4", true), ("p4", true), ("v100-sxm2-32gb", false), ("rtx-4090", false)]
        {
            assert_eq!(fp32_product_rate(&spec(slug)).is_power_limited(), limited, "{slug}");
        }
    }

    #[test]
    fn tensor_types_take_the_measured_rate() {
        let h100 = spec("h100-sxm5-80gb");
        let (rate, note) = product_rate(&h100, Some(&DType::Bfloat16), None);
        assert!((rate.sustained.get() - 798e12).abs() < 1e12 && note.is_none());
        let (rate, note) = product_rate(&spec("p100-pcie-16gb"), Some(&DType::Bfloat16), None);
        assert!(note.is_some() && rate.sustained.get() < 10e12);
    }
}
