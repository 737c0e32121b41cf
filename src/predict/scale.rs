//! One step on several GPUs of one machine: compute plus the all-reduce of the gradients.
//!
//! Data parallelism: the all-reduce of G gradient bytes over N GPUs moves
//! `2(N−1)/N · G` bytes through the slowest link (NCCL tests, `PERFORMANCE.md`). What of it
//! shows in the step depends more on the software than on the link, so the range is wide
//! and its three values are:
//! - low: the link's achieved bus bandwidth, hidden behind the backward pass (two thirds
//!   of the step) except for the last bucket of 25 MB;
//! - mid: nothing hidden, at the effective bandwidth of whole training scripts;
//! - high: half that bandwidth, and every step waits for the slowest of N draws.
//!
//! Effective bandwidths are `2(N−1)/N · 4·parameters ÷ (step on N − step on 1)` of the
//! public Lambda throughput table (ResNet-50 and BERT-base, 2–8 GPUs, 2024): 24–52 GB/s on
//! H100 and B200 SXM machines, 3–15 GB/s on all others, NVLink or not.

use super::estimate::{Estimate, GpuFacts};
use crate::profile::{Mode, Workload};
use crate::units::{Bytes, BytesPerSecond, Micros, Range};

/// Bytes of one gradient element: 4 unless the gradients are known to be 16-bit.
const GRADIENT_BYTES: f64 = 4.0;
/// Size of the communication buckets of PyTorch's `DistributedDataParallel`.
const BUCKET_BYTES: f64 = 25e6;
/// Share of a training step that is backward pass (twice the work of forward).
const BACKWARD_SHARE: f64 = 2.0 / 3.0;
/// Relative repetition noise of whole steps (V100 figure of the PROFET measurements).
const STEP_NOISE: f64 = 0.025;

/// The step time of N GPUs with its communication.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaledStep {
    /// Time of one step on all GPUs.
    pub step: Estimate,
    /// Communication that shows in the middle value.
    pub exposed: Micros,
    /// How it was obtained, in words.
    pub why: String,
}

/// Why a step cannot be scaled to several GPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// Gradient size unknown.
    #[error("the parameter count is not known, so neither is the size of the gradients; give it with --parameters")]
    NoParameters,
}

/// The step on `gpus` GPUs of one machine, each with the batch of `single`.
///
/// `measured` is the all-reduce bandwidth a measurement on such a machine gave; it
/// replaces the assumed one in all three values. One GPU needs no communication and
/// returns `single`; inference exchanges nothing either.
///
/// # Errors
/// [`ScaleError::NoParameters`] for more than one GPU without a parameter count.
pub fn scaled_step(
    single: &Estimate,
    gpu: &GpuFacts,
    gpus: u32,
    workload: &Workload,
    measured: Option<BytesPerSecond>,
) -> Result<ScaledStep, ScaleError> {
    if gpus <= 1 {
        return Ok(ScaledStep { step: *single, exposed: Micros::ZERO, why: "one GPU, no communication".to_owned() });
    }
    let n = f64::from(gpus);
    // Less than a byte a second is none.
    let measured = measured.filter(|rate| rate.get() >= 1.0);
    let straggler = 1.0 + STEP_NOISE * (2.0 * n.ln()).sqrt();
    if workload.mode == Mode::Inference {
        let range = Range { high: single.range.high * straggler, ..single.range };
        let step = Estimate { range, ..*single };
        let why = format!("{gpus} GPUs side by side: inference exchanges no gradients");
        return Ok(ScaledStep { step, exposed: Micros::ZERO, why });
    }
    let parameters = workload.parameter_count.ok_or(ScaleError::NoParameters)?;
    let gradients = Bytes::known(GRADIENT_BYTES * parameters as f64);
    let moved = gradients * (2.0 * (n - 1.0) / n);

    let link = measured.unwrap_or(gpu.link.bus.value);
    let overlapped = (moved / link).checked_sub(single.range.low * BACKWARD_SHARE).unwrap_or_default();
    let last_bucket = Bytes::known(BUCKET_BYTES).min(gradients) * (2.0 * (n - 1.0) / n) / link;
    let effective = measured.unwrap_or(gpu.link.effective.value);
    let exposed = moved / effective;
    let low = single.range.low + overlapped.max(last_bucket).min(exposed);
    let mid = single.range.mid + exposed;
    let high = single.range.high * straggler + moved / (effective * 0.5);
    let why = format!(
        "{gpus} GPUs: all-reduce of {:.0} MB at {:.0} GB/s ({}), {:.1} ms a step; range from full overlap at {:.0} GB/s to half the bandwidth",
        gradients.get() / 1e6,
        effective.get() / 1e9,
        if measured.is_some() { "measured" } else { "assumed" },
        exposed.as_millis(),
        link.get() / 1e9,
    );
    let step = Estimate { range: Range { low, mid, high }, method: single.method };
    Ok(ScaledStep { step, exposed, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Vendor;
    use crate::predict::method::Method;
    use crate::predict::rate::Link;
    use crate::units::GpuSlug;

    fn gpu(nvlink: f64) -> GpuFacts {
        GpuFacts {
            slug: GpuSlug::new("v100-sxm2-16gb").unwrap(),
            name: "V100".into(),
            vendor: Vendor::Nvidia,
            architecture: "Volta".into(),
            memory: Bytes::known(16e9),
            link: Link::new(BytesPerSecond::new(nvlink).ok(), Some(3)),
            power: None,
            doubtful: false,
        }
    }

    fn step(millis: f64) -> Estimate {
        Estimate::with_band(Micros::from_millis(millis).unwrap(), 0.0, Method::Measured)
    }

    fn workload(mode: Mode, parameter_count: Option<u64>) -> Workload {
        Workload { name: "w".into(), mode, batch_size: None, sequence_length: None, precision: None, parameter_count }
    }

    #[test]
    fn inference_exchanges_no_gradients() {
        let scaled = scaled_step(&step(10.0), &gpu(0.0), 8, &workload(Mode::Inference, None), None).unwrap();
        assert_eq!((scaled.step.range.mid, scaled.exposed), (step(10.0).range.mid, Micros::ZERO));
        assert!(scaled.step.range.high.get() > step(10.0).range.high.get());
    }

    #[test]
    fn one_gpu_is_the_step_itself() {
        assert_eq!(
            scaled_step(&step(10.0), &gpu(0.0), 1, &workload(Mode::Training, None), None).unwrap().step,
            step(10.0)
        );
    }

    #[test]
    fn several_gpus_need_the_size_of_the_gradients() {
        assert_eq!(
            scaled_step(&step(10.0), &gpu(0.0), 2, &workload(Mode::Training, None), None),
            Err(ScaleError::NoParameters)
        );
    }

    /// Lambda's ResNet-50 fp32 on V100 16 GB, 128 images a GPU: 347 ms on one, and the times
    /// below on 2, 4 and 8 (batch over throughput of the table named in the module header).
    #[test]
    fn a_measured_machine_lies_within_the_range() {
        for (gpus, measured_millis) in [(2, 360.5), (4, 360.0), (8, 363.5)] {
            let scaled =
                scaled_step(&step(347.0), &gpu(300e9), gpus, &workload(Mode::Training, Some(25_600_000)), None)
                    .unwrap()
                    .step;
            assert!(
                scaled.range.low.as_millis() <= measured_millis && measured_millis <= scaled.range.high.as_millis(),
                "{gpus}: {scaled:?}"
            );
            assert!((scaled.range.mid.as_millis() / measured_millis - 1.0).abs() < 0.03, "{gpus}: {scaled:?}");
        }
    }

    #[test]
    fn a_measured_bandwidth_replaces_the_assumed_one() {
        let bandwidth = BytesPerSecond::new(10e9).ok();
        let scaled =
            scaled_step(&step(100.0), &gpu(0.0), 2, &workload(Mode::Training, Some(250_000_000)), bandwidth).unwrap();
        // 2(N−1)/N · 4 · 250e6 = 1e9 bytes at 10e9 bytes/s.
        assert!((scaled.exposed.as_millis() - 100.0).abs() < 1e-9);
        assert!((scaled.step.range.mid.as_millis() - 200.0).abs() < 1e-9);
    }
}
