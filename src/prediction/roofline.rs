//! Roofline: minimum time of an operation from its arithmetic at the GPU's rate and its traffic at the GPU's bandwidth.
//! Rates are those that GPUs sustain ([`super::rate`]), not data sheet values.

use super::rate::{Rates, SHORTEST_KERNEL_US};
use habitat_base::units::Micros;
use habitat_step::op::Work;
use habitat_step::profile::{DType, Precision};

/// Larger of compute and memory time, at least the shortest kernel time.
pub fn roofline(rates: &Rates<'_>, work: &Work, dtype: Option<&DType>, precision: Option<Precision>) -> Micros {
    let compute = work.flops / rates.arithmetic(work.arithmetic, dtype, precision);
    let memory = work.bytes / rates.bandwidth.value;
    compute.max(memory).max(Micros::known(SHORTEST_KERNEL_US))
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_base::units::{Bytes, Flops};
    use habitat_step::catalog::{GpuSpec, Layer};
    use habitat_step::op::Arithmetic;

    #[test]
    fn compute_bound_memory_bound_and_tiny() {
        let path = format!("{}/../../catalog/v100-sxm2-16gb.toml", env!("CARGO_MANIFEST_DIR"));
        let v100 = GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap();
        let work = |flops, bytes| Work {
            flops: Flops::known(flops),
            bytes: Bytes::known(bytes),
            arithmetic: Arithmetic::Product,
        };
        let rates = Rates::new(&v100);
        let time = |work| roofline(&rates, &work, Some(&DType::Float32), Some(Precision::Fp32)).get();
        // 15.67 TFLOP/s FP32: 1 TFLOP in 63.8 ms. 739 GB/s measured: 739 MB in 1 ms.
        assert!((time(work(1e12, 1.0)) - 1e6 / v100.peak.fp32.get() * 1e12).abs() < 1.0);
        assert!((time(work(1.0, 739e6)) - 1000.0).abs() < 1e-6);
        assert_eq!(time(work(1.0, 1.0)), SHORTEST_KERNEL_US);
    }
}
