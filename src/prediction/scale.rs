//! Predicts one step on several GPUs: data parallel, the same batch on each.
//!
//! The step on N GPUs of one machine takes longer than on one by
//! `σ·√(2 ln N)·T₁ + max(last bucket, C − h·⅔·T₁) + o·log₂ N`:
//! - every step waits for the slowest of N draws, which exceeds the mean by an expected √(2 ln N) standard deviations
//!   σ;
//! - the all-reduce of G gradient bytes moves `2(N−1)/N · G` bytes (NCCL tests, `PERFORMANCE.md`) in time C. PyTorch's
//!   `DistributedDataParallel` sends buckets of 25 MB while the backward pass, two thirds of the step, still runs: a
//!   share h of that pass hides the traffic, except the last bucket;
//! - N processes on one host slow each other down: data loaders, launches, barriers.
//!
//! σ, h, o and the bandwidths of PCI Express are fitted to 508 published pairs of one and several GPUs, 19 networks
//! (Lambda's logs and table, NVIDIA's `DeepLearningExamples`), by [`Link`]. Over `NVLink` their gradients are too small to
//! show the bandwidth, so a bucket takes as long as in `nccl-tests` ([`Fabric`](super::fabric::Fabric)). `habitat-lab evaluate scaling` prints the errors, `models/lab/steps/scaling.py --fit` a fit and its
//! errors with each network left out; many constants are nearly as good. The share of traffic that a program hides is
//! not known beforehand, so the range is wide; one step measured on several GPUs corrects it ([`scaling_factor`]).
//!
//! Several machines add their exchange to C and to the last bucket (`machines.rs`); that is not fitted. Models with
//! divided layers or state, and large ones, are in `model_parallel.rs`.

mod basis;
mod exchange;
mod factors;
mod machines;
mod model_parallel;

pub use super::fabric::Link;
pub use basis::{BoardLink, LayoutCost, OnReplicas, Scaling, ScalingBasis, WaitForData};
pub use factors::{Factors, LayoutFactors, fit_layouts};
pub use machines::{Layout, ModelParallel, Network};
pub use model_parallel::optimizer_step;

use super::estimate::Estimate;
use super::gpu::GpuFacts;
use super::supply::Supply;
use super::transformer::TransformerStep;
use exchange::Exchange;
use habitat_base::units::{Bytes, Micros, Range};
use habitat_step::profile::{Mode, Precision, Workload};

/// Ends of the range as multiples of the extra time: 10 and 90 % of the pairs.
const SPREAD: [f64; 2] = [0.1, 3.0];
/// The same if the extra time of this job was measured on another number of GPUs.
const SPREAD_MEASURED: [f64; 2] = [1.0 / 3.0, 2.3];

/// One batch on one GPU with the whole model.
#[derive(Debug, Clone, Copy)]
pub struct MicroBatch<'a> {
    /// Training step of the batch.
    pub step: &'a Estimate,
    /// Time of the weight update within it.
    pub update: Micros,
    /// Samples of the batch.
    pub batch: Option<u64>,
    /// Parts of the model that can be divided.
    pub model: Option<&'a TransformerStep>,
    /// Loading of its data, if the step may wait for it.
    pub data: Option<&'a Supply>,
}

/// Step time on N GPUs, with communication.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaledStep {
    /// Time of one step on all GPUs.
    pub step: Estimate,
    /// Increase of the middle value over one GPU, or over one replica of the model.
    pub extra: Micros,
    /// Its parts.
    pub scaling: Scaling,
}

impl ScaledStep {
    /// Extends to an optimizer step of several batches per GPU: the weights are updated and the gradients exchanged
    /// once, after the last.
    #[must_use]
    fn accumulated(mut self, one: &MicroBatch<'_>, batches: u64) -> Self {
        if batches <= 1 {
            return self;
        }
        let before = (batches - 1) as f64;
        let repeated = one.step.range;
        let updates = if repeated.mid.get() > 0.0 { (one.update / repeated.mid).min(1.0) } else { 0.0 };
        let add = |step: Micros, batch: Micros| step + batch * (before * (1.0 - updates));
        let Range { low, mid, high } = self.step.range;
        self.step.range =
            Range { low: add(low, repeated.low), mid: add(mid, repeated.mid), high: add(high, repeated.high) };
        self.scaling.batches = Some(batches);
        self
    }

    /// Adds the wait for data to a step that has none. Loading goes on during the exchange; the processes of a machine
    /// share its CPU cores.
    fn with_data(mut self, data: &Supply, layout: &Layout, batches: u64) -> Self {
        let all = data.of_update(self.step.range.mid, batches);
        let times = all.slower(layout.gpus, layout.cpus);
        let wait = all.wait_of(self.step.range.mid, times[0]);
        self.step.range = all.delayed(self.step.range, times);
        if wait.get() > 0.0 && (layout.all() > 1 || times[0] > 1.0) {
            self.scaling.data = Some(WaitForData { wait, cpus: layout.cpus });
        }
        self
    }
}

/// Reason that a step cannot be scaled to several GPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// The gradient size is unknown.
    #[error("unknown parameter count and gradient size; pass --parameters")]
    NoParameters,
    /// No attention was found.
    #[error(
        "no attention layers found in the forward pass, so the model cannot be divided: leave out --tensor-parallel, --pipeline-parallel and --context-parallel"
    )]
    NoLayers,
    /// A layer would span several machines.
    #[error(
        "{tensor}-way tensor parallel needs machines with a multiple of {tensor} GPUs; these have {gpus}: use {} (a replica takes {replica} GPUs)",
        nearest(*tensor, u64::from(*gpus))
    )]
    TensorOfMachine {
        /// GPUs that divide a layer.
        tensor: u32,
        /// GPUs per machine.
        gpus: u32,
        /// GPUs per replica.
        replica: u32,
    },
    /// The GPUs do not make whole replicas.
    #[error(
        "a replica takes {replica} GPUs: whole ones need a multiple of {needed} machine{} with {gpus} GPU{}, not {machines} (--max-machines)",
        if *needed == 1 { "" } else { "s" },
        if *gpus == 1 { "" } else { "s" }
    )]
    Replicas {
        /// Number of machines.
        machines: u32,
        /// GPUs per machine.
        gpus: u32,
        /// GPUs per replica.
        replica: u32,
        /// Smallest number of machines with whole replicas.
        needed: u32,
    },
    /// A stage would have no layer.
    #[error("{stages} pipeline stages for {layers} layers: use at most {layers}")]
    Stages {
        /// Number of stages.
        stages: u32,
        /// Number of layers.
        layers: u32,
    },
    /// A measured step to fit factors to does not depend on them.
    #[error("the predicted step of run {run} does not change with the factors: it waits for its data, or has one GPU")]
    NoResponse {
        /// Number of the run, from 1.
        run: usize,
    },
    /// The sequences cannot be divided.
    #[error("sequences of {length} tokens are not divisible by {context}-way context parallel: use {}", nearest(*context, *length))]
    Sequence {
        /// GPUs that divide a sequence.
        context: u32,
        /// Tokens of a sequence.
        length: u64,
    },
    /// No experts were found.
    #[error("no layers with experts found: leave out --expert-parallel")]
    NoExperts,
    /// The experts cannot be divided.
    #[error("{experts} experts are not divisible by {gpus}-way expert parallel: use {}", nearest(*gpus, *experts))]
    Experts {
        /// GPUs that divide the experts.
        gpus: u32,
        /// Experts of a layer.
        experts: u64,
    },
    /// The heads cannot be divided.
    #[error("{heads} attention heads are not divisible by {tensor}-way tensor parallel: use {}", nearest(*tensor, *heads))]
    Heads {
        /// GPUs that divide a layer.
        tensor: u32,
        /// Number of heads.
        heads: u64,
    },
}

/// Divisors of `of` next to `parts`: `4 or 8`.
fn nearest(parts: u32, of: u64) -> String {
    let divides = |parts: &u32| *parts > 0 && of.is_multiple_of(u64::from(*parts));
    let below = (1..parts).rev().find(divides);
    let most = u32::try_from(of).unwrap_or(u32::MAX).min(parts.saturating_mul(2).max(parts));
    let above = (parts..=most).find(divides);
    [below, above].into_iter().flatten().map(|parts| parts.to_string()).collect::<Vec<_>>().join(" or ")
}

/// Predicts the step on several GPUs, each with the batch of `single`.
///
/// `factor` is the measured multiple of the model's extra time on one machine ([`scaling_factor`]); it narrows the
/// range. One GPU needs no communication and returns `single`; inference exchanges nothing either. Between machines the
/// range also covers the best and worst bandwidth of the network.
///
/// # Errors
/// [`ScaleError::NoParameters`] for more than one GPU without a parameter count.
fn scaled_step(
    single: &Estimate,
    gpu: &GpuFacts,
    layout: &Layout,
    workload: &Workload,
    factor: Option<f64>,
) -> Result<ScaledStep, ScaleError> {
    let gpus = layout.all();
    if gpus <= 1 {
        return Ok(ScaledStep { step: *single, extra: Micros::ZERO, scaling: ScalingBasis::OneGpu.into() });
    }
    if workload.mode == Mode::Inference {
        let deviation = gpu.link.fitted().deviation;
        let range = Range { high: single.range.high * (1.0 + deviation * slowest(gpus)), ..single.range };
        let scaling = ScalingBasis::Independent { gpus }.into();
        return Ok(ScaledStep { step: Estimate { range, ..*single }, extra: Micros::ZERO, scaling });
    }
    let gradients = gradients(workload)?;
    let exchange = Exchange::new(gpu, layout, gradients);
    // The factor applies within one machine.
    let factor = factor.filter(|_| layout.gpus > 1);
    let added = exchange.added(single.range.mid, layout.network, factor);
    let extra = added.mid;
    let spread = if factor.is_some() { SPREAD_MEASURED } else { SPREAD };
    let Range { low, mid, high } = single.range;
    let range = Range { low: low + added.low, mid: mid + extra, high: high + added.high };
    let (layout, link) = (*layout, gpu.into());
    let scaling = ScalingBasis::AllReduce { layout, link, gradients, extra, factor, spread }.into();
    Ok(ScaledStep { step: Estimate { range, method: single.method }, extra, scaling })
}

/// Measured multiple of the model's extra time, from steps on one GPU and on several of one machine; 0 if several were
/// not slower.
///
/// # Errors
/// [`ScaleError::NoParameters`] without a parameter count.
pub fn scaling_factor(
    [on_one, on_several]: [Micros; 2],
    gpu: &GpuFacts,
    gpus: u32,
    workload: &Workload,
) -> Result<f64, ScaleError> {
    let expected = extra_time(on_one, gpu, gpus.max(2), workload)?;
    Ok(on_several.checked_sub(on_one).unwrap_or_default() / expected)
}

/// Gradient elements have 4 bytes unless the weights are in 16 bits.
fn gradients(workload: &Workload) -> Result<Bytes, ScaleError> {
    let parameters = workload.parameter_count.ok_or(ScaleError::NoParameters)?;
    let is_narrow = matches!(workload.precision, Some(Precision::Fp16 | Precision::Bf16));
    Ok(Bytes::known(if is_narrow { 2.0 } else { 4.0 } * parameters as f64))
}

/// Expected excess of the slowest of `gpus` draws over the mean, in standard deviations.
fn slowest(gpus: u32) -> f64 {
    (2.0 * f64::from(gpus).ln()).sqrt()
}

/// Expected increase of a training step on several GPUs of one machine.
///
/// # Errors
/// [`ScaleError::NoParameters`] without a parameter count.
pub fn extra_time(step: Micros, gpu: &GpuFacts, gpus: u32, workload: &Workload) -> Result<Micros, ScaleError> {
    let layout = Layout::one_machine(gpus);
    Ok(Exchange::new(gpu, &layout, gradients(workload)?).extra(step, layout.network.reached().mid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Fabric;
    use crate::method::Method;
    use crate::shipped;
    use habitat_base::units::GpuSlug;
    use habitat_step::catalog::Vendor;

    fn gpu(link: Link) -> GpuFacts {
        GpuFacts {
            slug: GpuSlug::new("v100-sxm2-16gb").unwrap(),
            name: "V100".into(),
            vendor: Vendor::Nvidia,
            architecture: "Volta".into(),
            memory: Bytes::known(16e9),
            link,
            fabric: Fabric::typical(link),
            power: None,
            doubtful: false,
        }
    }

    fn step(millis: f64) -> Estimate {
        Estimate::with_band(Micros::from_millis(millis).unwrap(), 0.0, Method::Measured)
    }

    fn workload(mode: Mode, parameter_count: Option<u64>) -> Workload {
        Workload {
            name: "w".into(),
            mode,
            batch_size: None,
            micro_batches: None,
            sequence_length: None,
            precision: None,
            parameter_count,
        }
    }

    fn training(parameters: u64) -> Workload {
        workload(Mode::Training, Some(parameters))
    }

    /// A batch of 100 ms, of which the update takes 20: four of them take 340 on one GPU. On several, the exchange is
    /// added once.
    #[test]
    fn batches_that_add_up_have_one_update() {
        let (batch, workload) = (step(100.0), training(100_000_000));
        let micro = MicroBatch { step: &batch, update: Micros::known(20_000.0), batch: None, model: None, data: None };
        let millis = |gpus, batches| {
            let layout = Layout::one_machine(gpus);
            let alone = scaled_step(&batch, &gpu(Link::Modules), &layout, &workload, None).unwrap();
            let all = alone.clone().accumulated(&micro, batches);
            [alone, all].map(|scaled| scaled.step.range.mid.as_millis())
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} {b}");
        near(millis(1, 4)[1], 340.0);
        let [alone, all] = millis(8, 4);
        near(all, 340.0 + alone - 100.0);
    }

    #[test]
    fn links_of_boards_and_modules() {
        let catalog = shipped::catalog();
        for (name, link) in [
            ("rtx-4090", Link::HostMemory),
            ("titan-rtx", Link::HostMemory),
            ("rtx-a6000", Link::PciExpress),
            ("a100-pcie-80gb", Link::PciExpress),
            ("mi100", Link::PciExpress),
            ("v100-sxm2-16gb", Link::Modules),
            ("a100-sxm4-80gb", Link::Modules),
            ("mi300x", Link::Modules),
            ("h100-sxm5-80gb", Link::Switched),
            ("gb200", Link::Switched),
        ] {
            assert_eq!(Link::new(catalog.find(name).unwrap()), link, "{name}");
        }
    }

    #[test]
    fn inference_exchanges_no_gradients() {
        let scaled = scaled_step(
            &step(10.0),
            &gpu(Link::PciExpress),
            &Layout::one_machine(8),
            &workload(Mode::Inference, None),
            None,
        )
        .unwrap();
        assert_eq!((scaled.step.range.mid, scaled.extra), (step(10.0).range.mid, Micros::ZERO));
        assert!(scaled.step.range.high.get() > step(10.0).range.high.get());
    }

    #[test]
    fn one_gpu_is_the_step_itself() {
        let one = scaled_step(
            &step(10.0),
            &gpu(Link::PciExpress),
            &Layout::one_machine(1),
            &workload(Mode::Training, None),
            None,
        );
        assert_eq!(one.unwrap().step, step(10.0));
    }

    #[test]
    fn several_gpus_need_the_size_of_the_gradients() {
        assert_eq!(
            scaled_step(
                &step(10.0),
                &gpu(Link::PciExpress),
                &Layout::one_machine(2),
                &workload(Mode::Training, None),
                None
            ),
            Err(ScaleError::NoParameters)
        );
    }

    /// 100 ms on one GPU, 1 GB of gradients on 2 GPUs over 14 GB/s: 71.4 ms of traffic, of which 40 are hidden;
    /// √(2 ln 2) · 0.02 · 100 ms of waiting, 2.2 ms of host.
    #[test]
    fn traffic_hides_behind_the_backward_pass() {
        let extra = |gradients: u64, step_millis: f64| {
            let scaled = scaled_step(
                &step(step_millis),
                &gpu(Link::PciExpress),
                &Layout::one_machine(2),
                &training(gradients / 4),
                None,
            );
            scaled.unwrap().extra.as_millis()
        };
        let waiting = (2.0 * 2f64.ln()).sqrt() * 2.0;
        assert!((extra(1_000_000_000, 100.0) - (1e3 / 14.0 - 40.0 + waiting + 2.2)).abs() < 1e-9);
        // Of 100 MB all but the last bucket is hidden; 10 MB are a single bucket, which is not.
        assert!((extra(100_000_000, 100.0) - (25.0 / 14.0 + waiting + 2.2)).abs() < 1e-9);
        assert!((extra(10_000_000, 100.0) - (10.0 / 14.0 + waiting + 2.2)).abs() < 1e-9);
    }

    /// 1.34 GB of gradients on 8 H100 are 54 buckets of 158 µs, 8.5 ms in all. A step of 30 ms hides all but the last
    /// bucket, a step of 10 ms 4 of the 8.5 ms.
    #[test]
    fn over_nvlink_a_bucket_takes_as_long_as_in_nccl_tests() {
        let extra = |step_millis: f64| {
            let gpu = gpu(Link::Switched);
            let scaled =
                scaled_step(&step(step_millis), &gpu, &Layout::one_machine(8), &training(335_000_000), None).unwrap();
            scaled.extra.as_millis()
        };
        let bucket = 0.065 + 25.0 * 1.75 / 470.0;
        let other = |step_millis: f64| (2.0 * 8f64.ln()).sqrt() * 0.004 * step_millis + 3.0 * 0.5;
        assert!((extra(30.0) - bucket - other(30.0)).abs() < 1e-9, "{}", extra(30.0));
        assert!((extra(10.0) - (1340.0 / 25.0 * bucket - 4.0) - other(10.0)).abs() < 1e-9, "{}", extra(10.0));
    }

    #[test]
    fn weights_in_16_bits_have_half_the_gradients() {
        let narrow = Workload { precision: Some(Precision::Bf16), ..training(500_000_000) };
        assert_eq!(gradients(&narrow), gradients(&training(250_000_000)));
        let amp = Workload { precision: Some(Precision::AmpBf16), ..training(500_000_000) };
        assert_eq!(gradients(&amp), gradients(&training(500_000_000)));
    }

    /// Lambda's ResNet-50 FP32 on V100 16 GB, 128 images per GPU: 347 ms on one, and the times below on 2, 4 and 8
    /// (batch over throughput of the table named in the module header).
    #[test]
    fn a_measured_machine_lies_within_the_range() {
        for (gpus, measured_millis) in [(2, 360.5), (4, 360.0), (8, 363.5)] {
            let range =
                scaled_step(&step(347.0), &gpu(Link::Modules), &Layout::one_machine(gpus), &training(25_600_000), None)
                    .unwrap()
                    .step
                    .range;
            assert!(
                range.low.as_millis() <= measured_millis && measured_millis <= range.high.as_millis(),
                "{gpus}: {range:?}"
            );
            assert!((range.mid.as_millis() / measured_millis - 1.0).abs() < 0.05, "{gpus}: {range:?}");
        }
    }

    #[test]
    fn a_step_measured_on_several_gpus_is_predicted_as_measured() {
        let work = training(110_000_000);
        let [one, two] = [377.0, 541.0].map(|millis| Micros::from_millis(millis).unwrap());
        let factor = scaling_factor([one, two], &gpu(Link::Modules), 2, &work).unwrap();
        let again =
            scaled_step(&step(377.0), &gpu(Link::Modules), &Layout::one_machine(2), &work, Some(factor)).unwrap();
        assert!((again.step.range.mid.as_millis() - 541.0).abs() < 1e-6, "{again:?}");
        let plain = scaled_step(&step(377.0), &gpu(Link::Modules), &Layout::one_machine(2), &work, None).unwrap();
        assert!(plain.extra.get() < again.extra.get());
        assert_eq!(scaling_factor([two, one], &gpu(Link::Modules), 2, &work), Ok(0.0));
    }
}
