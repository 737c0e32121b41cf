//! The roofline: an operation takes at least its arithmetic at the GPU's rate, and at
//! least its traffic at the GPU's bandwidth.
//!
//! Rates are those that GPUs sustain, not those of the data sheet:
//! - bandwidth: what `habitat-tui calibrate` measured, or a published measurement, else 83 % of nominal, the median
//!   of measured over nominal in the catalog (0.68–0.88; a test recomputes it);
//! - matrix products: the calibrated rate, or the fastest published one in that precision; else, on
//!   matrix cores, 80 % of peak (77–87 % on NVIDIA boards measured);
//! - FP32 otherwise: peak, but 70 % of it on multiprocessors with 128 lanes from compute
//!   capability 8.6 on, which cannot issue to all of them in long products, and half of it
//!   on CDNA 3, whose figure counts packed arithmetic.

use crate::catalog::{BandwidthKind, GpuSpec};
use crate::profile::{DType, Precision};
use crate::units::{BytesPerSecond, FlopsPerSecond, Micros};

use crate::op::{Arithmetic, Work};

/// Median of measured over nominal bandwidth among the GPUs of the catalog.
pub const TYPICAL_BANDWIDTH_SHARE: f64 = 0.83;
/// Share of the tensor peak that long matrix products reach, where none was measured.
const TYPICAL_MATRIX_SHARE: f64 = 0.80;
/// Share of the FP32 peak on multiprocessors with 128 lanes (8.6 and later).
const WIDE_SM_SHARE: f64 = 0.70;
/// The architecture whose FP32 figure counts packed or matrix arithmetic, which kernels
/// written for plain FP32 do not reach.
const PACKED_ARCHITECTURE: &str = "CDNA 3";
/// Its rate without; also the share of its BF16 peak that a MI300X was measured to reach.
const PACKED_SHARE: f64 = 0.5;
/// The shortest kernels in recorded traces: no launch takes less device time.
pub const SHORTEST_KERNEL_US: f64 = 1.5;

/// Memory bandwidth that kernels reach on `gpu`.
pub fn attained_bandwidth(gpu: &GpuSpec) -> BytesPerSecond {
    match gpu.bandwidth() {
        (measured, BandwidthKind::Measured) => measured,
        (nominal, BandwidthKind::Nominal) => nominal * TYPICAL_BANDWIDTH_SHARE,
    }
}

/// The rate at which `gpu` does the arithmetic of an operation, and a note where the
/// precision asked for had to be replaced.
pub fn sustained_rate(
    gpu: &GpuSpec,
    arithmetic: Arithmetic,
    dtype: Option<&DType>,
    precision: Option<Precision>,
) -> (FlopsPerSecond, Option<String>) {
    let vector = (vector_rate(gpu), None);
    if arithmetic == Arithmetic::Vector {
        return vector;
    }
    let (name, peak) = match (dtype, precision) {
        (Some(DType::Float16), _) => ("fp16", gpu.peak.fp16_tensor),
        (Some(DType::Bfloat16), _) => ("bf16", gpu.peak.bf16_tensor),
        (Some(DType::Float8E4m3 | DType::Float8E5m2), _) => ("fp8", gpu.peak.fp8_tensor),
        (None | Some(DType::Float32), Some(Precision::Tf32)) => ("tf32", gpu.peak.tf32_tensor),
        // The FP32 rates of the catalog are of matrix products.
        _ if arithmetic == Arithmetic::Product => return (gpu.achieved("fp32").unwrap_or(vector.0), None),
        _ => return vector,
    };
    let Some(peak) = peak else {
        return (vector.0, Some(format!("{} has no {name} matrix rate: FP32 rate taken", gpu.slug)));
    };
    (gpu.achieved(name).unwrap_or(peak * TYPICAL_MATRIX_SHARE), None)
}

fn vector_rate(gpu: &GpuSpec) -> FlopsPerSecond {
    if gpu.architecture == PACKED_ARCHITECTURE {
        return gpu.peak.fp32 * PACKED_SHARE;
    }
    let wide = gpu.fp32_cores_per_sm >= 128 && gpu.compute_capability.is_some_and(|capability| capability >= (8, 6));
    gpu.peak.fp32 * if wide { WIDE_SM_SHARE } else { 1.0 }
}

/// The larger of compute time and memory time, at least the shortest kernel.
pub fn roofline(
    gpu: &GpuSpec,
    work: &Work,
    dtype: Option<&DType>,
    precision: Option<Precision>,
) -> (Micros, Option<String>) {
    let (rate, note) = sustained_rate(gpu, work.arithmetic, dtype, precision);
    let compute = work.flops / rate;
    let memory = work.bytes / attained_bandwidth(gpu);
    (compute.max(memory).max(Micros::known(SHORTEST_KERNEL_US)), note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Layer;
    use crate::units::{Bytes, Flops};

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    #[test]
    fn compute_bound_memory_bound_and_tiny() {
        let v100 = spec("v100-sxm2-16gb");
        let work = |flops, bytes| Work {
            flops: Flops::known(flops),
            bytes: Bytes::known(bytes),
            arithmetic: Arithmetic::Product,
        };
        let time = |work| roofline(&v100, &work, Some(&DType::Float32), Some(Precision::Fp32)).0.get();
        // 15.67 TFLOP/s FP32: 1 TFLOP in 63.8 ms. 739 GB/s measured: 739 MB in 1 ms.
        assert!((time(work(1e12, 1.0)) - 1e6 / v100.peak.fp32.get() * 1e12).abs() < 1.0);
        assert!((time(work(1.0, 739e6)) - 1000.0).abs() < 1e-6);
        assert_eq!(time(work(1.0, 1.0)), SHORTEST_KERNEL_US);
    }

    #[test]
    fn a_missing_precision_falls_back_and_says_so() {
        let (rate, note) = sustained_rate(&spec("v100-sxm2-16gb"), Arithmetic::Product, Some(&DType::Bfloat16), None);
        assert_eq!(rate, spec("v100-sxm2-16gb").peak.fp32);
        assert!(note.unwrap().contains("no bf16 matrix rate"));
        let (rate, note) = sustained_rate(&spec("h100-sxm5-80gb"), Arithmetic::Product, Some(&DType::Bfloat16), None);
        assert_eq!((rate.get(), note), (798e12, None));
        // The T4 does not hold its FP32 peak in products, but does in short kernels.
        let (rate, _) = sustained_rate(&spec("t4"), Arithmetic::Product, Some(&DType::Float32), Some(Precision::Fp32));
        assert_eq!(rate.get(), 4.38e12);
        assert_eq!(
            sustained_rate(&spec("t4"), Arithmetic::Vector, Some(&DType::Float32), None).0,
            spec("t4").peak.fp32
        );
    }

    /// The constant is what the shipped catalog says.
    #[test]
    fn typical_bandwidth_share_is_the_median_of_the_catalog() {
        let mut shares: Vec<f64> = std::fs::read_dir(format!("{}/catalog", env!("CARGO_MANIFEST_DIR")))
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
}
