//! Rules for rates that were not measured: the share of its data sheet that a GPU sustains ([`super`] lists them).

use super::{Figure, ProductRate, Source, published_bandwidth};
use habitat_base::units::{BytesPerSecond, FlopsPerSecond};
use habitat_step::catalog::{GpuSpec, Vendor};

/// Elementwise kernels are faster than published bandwidth measurements (by copies), by this factor.
const STREAM_OVER_PUBLISHED: f64 = 1.1;
/// Share of the tensor peak that long matrix products reach, if not measured.
pub const TYPICAL_MATRIX_SHARE: f64 = 0.80;
/// The same share if the manufacturer cut the peak for 32-bit accumulation, as on `GeForce` boards: units that wait
/// half the time leave power for more than the nominal clock. Values from 0.88 to 0.95 predict steps on an RTX 3090 and
/// an RTX 5090, each left out, better than 0.80.
pub const CUT_MATRIX_SHARE: f64 = 0.92;
/// Share of the 16-bit matrix peak that long products reach on AMD GPUs without a measurement, by architecture: the
/// fastest of rocBLAS on an MI100 (`ROCm` 5.7) and of hipBLASLt on an MI210 reach 65 and 72 %, `PyTorch` 51 % on an MI300X
/// (60 % on an MI325X with more power) and 68 % on an MI355X (sources in the catalog).
const CDNA_MATRIX_SHARES: [(&str, f64); 4] = [("CDNA 1", 0.65), ("CDNA 2", 0.72), ("CDNA 3", 0.51), ("CDNA 4", 0.68)];
/// Share of the FP8 peak of AMD GPUs, relative to the share in 16 bits: 47 % of 51 % on an MI300X.
const CDNA_FP8_SHARE: f64 = 0.91;
/// Share of the FP32 peak on multiprocessors with 128 lanes (8.6 and later).
const WIDE_SM_SHARE: f64 = 0.70;
/// Architectures whose FP32 figure counts packed or matrix arithmetic, which plain FP32 kernels do not reach.
const PACKED_ARCHITECTURES: [&str; 2] = ["CDNA 3", "CDNA 4"];
/// Share of that figure without packed arithmetic; also the share of its BF16 peak that an MI300X reached.
const PACKED_SHARE: f64 = 0.5;
/// Share of the FP32 peak that long products reach on multiprocessors with 64 lanes.
const ISSUE_SHARE: f64 = 0.95;
/// Share with 128 lanes, compute capability 8.6 and later.
const WIDE_ISSUE_SHARE: f64 = 0.77;
/// Share of the FP32 matrix peak of CDNA 1 and 2.
const CDNA_SHARE: f64 = 0.6;

fn is_wide(gpu: &GpuSpec) -> bool {
    gpu.fp32_cores_per_sm >= 128 && gpu.compute_capability.is_some_and(|capability| capability >= (8, 6))
}

pub(super) fn vector_by_rule(gpu: &GpuSpec) -> Figure<FlopsPerSecond> {
    let peak = gpu.peak.fp32;
    if PACKED_ARCHITECTURES.contains(&gpu.architecture.as_str()) {
        Figure::new(peak * PACKED_SHARE, Source::Rule("half of a peak that counts packed arithmetic"))
    } else if is_wide(gpu) {
        Figure::new(peak * WIDE_SM_SHARE, Source::Rule("70 % of the peak on multiprocessors with 128 lanes"))
    } else {
        Figure::new(peak, Source::Specified)
    }
}

/// Watts per sustained TFLOP/s of FP32 products, by architecture.
///
/// From GPUs that reach their limit: 16 and 12 nm (Pascal, Volta, Turing) about 18 (T4, P4), 7 nm Ampere 15.5 (A100 of
/// 250 W). Estimated within a third: 8 nm Ampere 11, Hopper 10, Ada and Blackwell 6.5 (an RTX 4090 sustains about 60
/// TFLOP/s at 450 W, at a higher voltage than small GPUs). `None` if no GPU is known to be limited.
fn watts_per_tflop(gpu: &GpuSpec) -> Option<f64> {
    match gpu.architecture.as_str() {
        "Pascal" | "Volta" | "Turing" => Some(18.0),
        "Ampere" if gpu.compute_capability == Some((8, 0)) => Some(15.5),
        "Ampere" => Some(11.0),
        "Hopper" => Some(10.0),
        "Ada Lovelace" | "Blackwell" => Some(6.5),
        _ => None,
    }
}

/// Watts per sustained TFLOP/s of FP16 products on matrix cores, by architecture.
///
/// An H100 of 700 W sustains 798 of its 989 TFLOP/s (source in its catalog file), so Hopper needs at most 0.88. The
/// others are estimated from it and from FP32 ([`watts_per_tflop`]), within a quarter. `None` if unknown.
fn watts_per_matrix_tflop(gpu: &GpuSpec) -> Option<f64> {
    match gpu.architecture.as_str() {
        "Volta" | "Turing" => Some(2.25),
        "Ampere" if gpu.compute_capability == Some((8, 0)) => Some(1.3),
        "Ampere" => Some(2.0),
        "Hopper" => Some(0.88),
        "Ada Lovelace" => Some(1.0),
        "Blackwell" if gpu.compute_capability.is_some_and(|capability| capability >= (12, 0)) => Some(1.0),
        "Blackwell" => Some(0.6),
        _ => None,
    }
}

/// Long products on AMD's matrix cores with this peak: the share that the GPU or its architecture reaches in 16 bits.
fn cdna_by_rule(gpu: &GpuSpec, peak: FlopsPerSecond) -> Option<Figure<FlopsPerSecond>> {
    let fp16 = gpu.peak.fp16_tensor?;
    let measured = gpu.fastest_published("bf16").map(|rate| rate / fp16);
    let of_architecture = CDNA_MATRIX_SHARES.iter().find(|(name, _)| *name == gpu.architecture);
    let share = measured.or_else(|| of_architecture.map(|(_, share)| *share))?;
    let share = if peak.get() > fp16.get() { share * CDNA_FP8_SHARE } else { share };
    Some(Figure::new(peak * share, Source::Rule("the share of the matrix peak that AMD's architecture reaches")))
}

/// Long products on matrix cores with this peak. Types with a higher peak need less energy.
pub(super) fn matrix_by_rule(gpu: &GpuSpec, peak: FlopsPerSecond) -> Figure<FlopsPerSecond> {
    if let Some(rate) = (gpu.vendor == Vendor::Amd).then(|| cdna_by_rule(gpu, peak)).flatten() {
        return rate;
    }
    let adding = gpu.peak.fp16_tensor.zip(gpu.peak.fp16_tensor_fp16_accumulate);
    let is_cut = adding.is_some_and(|(in_32_bits, in_16_bits)| in_32_bits.get() < in_16_bits.get());
    let rule =
        Source::Rule(if is_cut { "92 % of the matrix peak with sums in 32 bits" } else { "80 % of the matrix peak" });
    let share = peak * if is_cut { CUT_MATRIX_SHARE } else { TYPICAL_MATRIX_SHARE };
    let (Some(power), Some(watts), Some(fp16)) = (gpu.power, watts_per_matrix_tflop(gpu), gpu.peak.fp16_tensor) else {
        return Figure::new(share, rule);
    };
    let limit = FlopsPerSecond::known(power.get() / watts * 1e12) * (peak / fp16);
    if limit.get() < share.get() {
        Figure::new(limit, Source::Rule("the power limit"))
    } else {
        Figure::new(share, rule)
    }
}

/// Long FP32 products on the vector units (or AMD's matrix units).
pub(super) fn fp32_by_rule(gpu: &GpuSpec) -> ProductRate {
    let issue = match gpu.architecture.as_str() {
        "CDNA 1" | "CDNA 2" => 2.0 * CDNA_SHARE,
        // The catalog's figure counts packed arithmetic; BF16 products also reached 51 %.
        packed if PACKED_ARCHITECTURES.contains(&packed) => PACKED_SHARE,
        _ if is_wide(gpu) => WIDE_ISSUE_SHARE,
        _ => ISSUE_SHARE,
    };
    let burst = gpu.peak.fp32 * issue;
    let sustained = match (gpu.power, watts_per_tflop(gpu)) {
        (Some(power), Some(watts)) => burst.min(FlopsPerSecond::known(power.get() / watts * 1e12)),
        _ => burst,
    };
    ProductRate { sustained, burst, source: Source::Rule("the lower of issue and power") }
}

pub(super) fn streaming_by_rule(gpu: &GpuSpec) -> Figure<BytesPerSecond> {
    let has_graphics_memory = gpu.memory_type.as_deref().is_some_and(|kind| kind.starts_with("GDDR"));
    let share = match (&gpu.streaming, gpu.vendor) {
        (Some(streaming), _) => streaming.share,
        (None, Vendor::Amd) => 0.80,
        (None, _) if has_graphics_memory => 0.76,
        (None, _) => 0.87,
    };
    let rule = gpu.memory_bandwidth * share;
    match published_bandwidth(gpu) {
        Some(published) => {
            let mean = (rule.get() * published.value.get() * STREAM_OVER_PUBLISHED).sqrt();
            Figure::new(BytesPerSecond::known(mean), Source::Rule("mean of a published copy and the share of nominal"))
        }
        None => Figure::new(rule, Source::Rule("share of the nominal bandwidth")),
    }
}
