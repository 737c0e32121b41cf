//! Host time of a step whose host was not recorded: launches by kind of operator, and their pace by software and machine.
//!
//! The host of an eager program runs Python and the framework's dispatcher for each operator, then launches its kernels.
//! Recorded steps that waited for their hosts fit `operators · o + kernels · k` with k = 0.45 o; forward, backward and casts
//! cost the same (`models/lab/notes/2026-11-28-hosts-and-memory.md`). The pace differs more between machines: in
//! microseconds for an operator of one kernel, 45 on rented virtual machines with an H100 or H200, 33 to 53 on milabench's
//! H100 machines, 44 to 69 for linear layers on H100 (NVIDIA/TransformerEngine#445), 35 on A100 (vTrain), 34 on DGX with
//! V100 and A100 (`EfficientNet` in NVIDIA's `DeepLearningExamples` takes 98 to 103 ms on both); 8.6 for the smallest call
//! on a fast CPU (pytorch/pytorch#114860). Desktop CPUs are assumed to be twice as fast as loaded servers; steps of timm
//! on an RTX 3090 take 22 or more.

use super::decoded::Decoded;
use super::estimate::OperationPrediction;
use habitat_base::units::Micros;
use habitat_step::catalog::GpuSpec;
use habitat_step::op::name::{Form, NormalisationForm, ReductionForm, reads_back};
use habitat_step::profile::tensors::is_channels_last;
use habitat_step::profile::{DType, Execution, Phase};

/// Microseconds of a server's host for an eager operator of one kernel: fastest (the smallest call above), expected (the
/// geometric mean of the rented machines, milabench's, vTrain's and the DGX), slow (within the slowest above).
pub(crate) const EAGER_LAUNCH_US: [f64; 3] = [9.0, 38.0, 60.0];
/// The same for code that `torch.compile` generated: Inductor's launcher takes 7 to 9 µs on a Grace CPU
/// (meta-pytorch/tritonbench#1017), Triton's own 15 to 49.
const COMPILED_LAUNCH_US: [f64; 3] = [5.0, 12.0, 30.0];
/// Pace on a desktop, relative to a server (a choice).
const DESKTOP: f64 = 0.5;
/// Part of a one-kernel operator's host time that each kernel takes: k / (o + k).
const OF_KERNEL: f64 = 0.3;

/// Microseconds for an operator of one kernel with a GPU whose CPU is unknown: fastest, expected, slow.
pub(super) fn pace(execution: Option<Execution>, gpu: &GpuSpec) -> [f64; 3] {
    let machine = if gpu.is_for_desktops() { DESKTOP } else { 1.0 };
    match execution {
        None => EAGER_LAUNCH_US.map(|us| us * machine),
        Some(Execution::Compiled) => COMPILED_LAUNCH_US.map(|us| us * machine),
        // A launch replays a whole graph.
        Some(Execution::CudaGraphs) => [0.0; 3],
    }
}

/// Kernels of an operator in eager `PyTorch`, medians of the recorded steps.
fn kernels(decoded: &Decoded<'_>) -> f64 {
    let operation = decoded.operation;
    let is_backward = operation.phase == Phase::Backward;
    // cuDNN's kernels in 16 bits want channels last.
    let is_narrow = decoded.dtype.as_ref().and_then(DType::size_bytes) == Some(2);
    let is_turned = is_narrow && !is_channels_last(&operation.attributes);
    match (decoded.op.name.form, is_backward) {
        (Form::Convolution { .. }, true) if is_turned => 5.0,
        (Form::Convolution { .. }, false) if is_turned => 2.0,
        (Form::Normalisation(NormalisationForm::Channel), false)
        | (Form::Convolution { .. } | Form::Attention(_), true) => 3.0,
        (Form::Normalisation(_) | Form::Reduction(ReductionForm::Sum), true) => 2.0,
        _ => 1.0,
    }
}

/// Work of the host in a step, the same for all GPUs.
pub(super) struct HostWork {
    /// Host time of an occurrence of each operation, in operators of one kernel.
    operations: Vec<f64>,
    /// Whether the host waits for the device once a step, as for a scaled loss.
    syncs: bool,
}

impl HostWork {
    pub(super) fn of(decoded: &[Decoded<'_>]) -> Self {
        Self {
            operations: decoded.iter().map(|of| 1.0 + OF_KERNEL * (kernels(of) - 1.0)).collect(),
            syncs: decoded.iter().any(|of| reads_back(&of.operation.name)),
        }
    }
}

/// Operations of a step in their order, with their times on a GPU.
pub(super) struct Queue {
    /// Device time of an occurrence, host time in operators of one kernel, occurrences.
    operations: Vec<[f64; 3]>,
    /// Launches, in operators of one kernel.
    pub(super) launches: f64,
    syncs: bool,
}

impl Queue {
    /// `predicted` has the operations that `work` was made from.
    pub(super) fn new(work: &HostWork, predicted: &[OperationPrediction]) -> Self {
        let issued = predicted.iter().filter_map(|operation| {
            let time = operation.time.filter(|_| operation.phase != Phase::Communication)?.range.mid.get();
            let host = *work.operations.get(operation.index)?;
            (time > 0.0).then_some([time, host, f64::from(operation.count)])
        });
        Self::of(issued.collect(), work.syncs)
    }

    fn of(operations: Vec<[f64; 3]>, syncs: bool) -> Self {
        let launches = operations.iter().map(|[_, host, count]| host * count).sum();
        Self { operations, launches, syncs }
    }

    /// Host time at a pace.
    pub(super) fn host(&self, pace_us: f64) -> Micros {
        Micros::known(self.launches * pace_us)
    }

    /// Step of a given device time at a pace of the host. If the host runs ahead from step to step, it is the longer of
    /// both. A host that waits for the device in each step begins anew: an operation then starts after the one before it,
    /// and after its launch.
    pub(super) fn step(&self, device: Micros, pace_us: f64) -> Micros {
        let (mut issued, mut done) = (0.0, 0.0_f64);
        if self.syncs {
            let all: f64 = self.operations.iter().map(|[time, _, count]| time * count).sum();
            let scale = if all > 0.0 { device.get() / all } else { 1.0 };
            for [time, host, count] in &self.operations {
                issued += host * count * pace_us;
                done = (done + time * count * scale).max(issued + time * scale);
            }
        }
        device.max(self.host(pace_us)).max(Micros::known(done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_step::profile::Profile;

    /// In 16 bits a convolution turns its images around; a batch norm has three kernels; a scaled loss is read back.
    #[test]
    fn operators_of_several_kernels_take_the_host_longer() {
        let work = |dtype: &str, calls: &[[&str; 2]]| {
            let calls = calls.iter().map(|[phase, name]| {
                serde_json::json!({"name": format!("aten::{name}"), "phase": phase, "dtype": dtype,
                    "inputs": [[8, 64, 56, 56], [64, 64, 3, 3], [64, 64, 3, 3]]})
            });
            let profile = serde_json::json!({"format": "habitat-profile", "version": 1,
                "workload": {"name": "w", "mode": "training"}, "operations": calls.collect::<Vec<_>>()});
            let (profile, _) = Profile::from_json(profile.to_string().as_bytes()).unwrap();
            HostWork::of(&Decoded::all(&profile))
        };
        // Kernels of operators that take 1 and 0.3 for each further kernel.
        let kernels = |work: &HostWork| -> Vec<f64> {
            work.operations.iter().map(|host| (100.0 * (1.0 + (host - 1.0) / 0.3)).round() / 100.0).collect()
        };
        let convolutions = [["forward", "convolution"], ["backward", "convolution_backward"]];
        for (dtype, expected) in [("float16", [2.0, 5.0]), ("float32", [1.0, 3.0])] {
            let work = work(dtype, &convolutions);
            assert_eq!((kernels(&work), work.syncs), (expected.to_vec(), false), "{dtype}");
        }
        let others = [
            ["forward", "relu"],
            ["forward", "native_batch_norm"],
            ["backward", "native_layer_norm_backward"],
            ["backward", "_amp_foreach_non_finite_check_and_unscale_"],
        ];
        let work = work("float32", &others);
        assert_eq!((kernels(&work), work.syncs), (vec![1.0, 3.0, 2.0, 1.0], true));
    }

    /// 10 launches of 40 µs for 10 µs each, then one for 300 µs.
    #[test]
    fn the_longer_of_host_and_device_in_order() {
        let operations = vec![[10.0, 1.0, 10.0], [300.0, 1.0, 1.0]];
        let step = |syncs: bool, pace| {
            let queue = Queue::of(operations.clone(), syncs);
            queue.step(Micros::known(400.0), pace).get()
        };
        // 440 µs of host, 400 of device; begun anew, the last one is launched at 440 µs.
        assert_eq!([step(false, 40.0), step(true, 40.0)], [440.0, 740.0]);
        assert_eq!([step(false, 0.0), step(true, 0.0)], [400.0; 2]);
        // The device is behind the host after the first launch.
        assert_eq!([step(false, 5.0), step(true, 5.0)], [400.0; 2]);
    }
}
