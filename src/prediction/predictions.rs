//! Predictions of a workload: one per GPU, with what qualifies them.

use super::estimate::{Estimate, MethodShare, OperationPrediction, StepTime};
use super::finding::{Finding, Shared, Waits, distinct};
use super::gpu::GpuFacts;
use super::host::Host;
use super::memory::MemoryFit;
use super::method::Method;
use super::scale::MicroBatch;
use super::supply::Supply;
use super::transformer::TransformerStep;
use habitat_base::units::{Micros, OpenRange, SamplesPerSecond};
use habitat_step::profile::{Origin, Workload};

/// Predictions of one workload on several GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// Workload of the profile.
    pub workload: Workload,
    /// Where the profile was measured, if it was.
    pub origin: Option<Origin>,
    /// Whether steps include the wait for the host.
    pub host: Host,
    /// Whether the recorded step exchanges data with other GPUs; its batch is then a share of an update's.
    pub communicates: bool,
    /// One prediction per GPU, in the requested order.
    pub predictions: Vec<Prediction>,
    /// Notes on all of them.
    pub notes: Vec<Finding>,
}

impl Predictions {
    /// Warnings of all predictions without duplicates, with the GPUs that they concern.
    pub fn warnings(&self) -> Vec<Shared> {
        let found = distinct(self.predictions.iter().map(|prediction| prediction.warnings.as_slice()));
        let shared = |(finding, gpus): (Finding, usize)| Shared {
            waits: finding.is_of_data().then(|| self.waits()),
            finding,
            gpus,
            of_gpus: self.predictions.len(),
        };
        found.into_iter().map(shared).collect()
    }

    /// Time and share that the GPUs wait that wait for data.
    fn waits(&self) -> Waits {
        let waiting = || self.predictions.iter().filter(|one| one.warnings.iter().any(Finding::is_of_data));
        let span = |of: &dyn Fn(&Prediction) -> f64| {
            waiting().map(of).fold([f64::INFINITY, 0.0_f64], |[low, high], one| [low.min(one), high.max(one)])
        };
        Waits {
            idle_us: span(&|one| one.data_wait().get()).map(Micros::known),
            idle_share: span(&|one| (one.data_wait() / one.step.mid()).min(1.0)),
        }
    }
}

/// Predicted step of a workload on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The GPU.
    pub gpu: GpuFacts,
    /// Time of one step on one GPU, without communication.
    pub step: StepTime,
    /// Samples per second (batch size ÷ step time); `None` if the batch size is unknown.
    pub throughput: Option<OpenRange<SamplesPerSecond>>,
    /// Part of the step in which the device waits for the host, its data included.
    pub host_idle: Micros,
    /// Work of the device in the step, without any wait.
    pub device: Micros,
    /// Loading of the step's data, if the step waits for it or would if it were shorter.
    pub data: Option<Supply>,
    /// Device time by method.
    pub shares: Vec<MethodShare>,
    /// Predictions of operations, in the order of the profile; empty with
    /// [`Options::steps_only`](super::Options::steps_only).
    pub operations: Vec<OperationPrediction>,
    /// Share of the operators' time in the optimizer update, 0 to 1.
    pub update_share: f64,
    /// Share of the measured device time that the step leaves out, because its method cannot predict those operations,
    /// 0 to 1.
    pub left_out: f64,
    /// Whether the step fits in memory.
    pub memory: MemoryFit,
    /// Steps at other batch sizes, if requested (`batches::add_sizes`).
    pub at_batches: Vec<AtBatch>,
    /// Parts that tensor and pipeline parallel GPUs can divide; `None` for inference, and without attention layers.
    pub transformer: Option<TransformerStep>,
    /// Note on a converted precision, or why the requested one is not predicted; `None` if none was requested.
    pub precision_note: Option<Finding>,
    /// Whether the step keeps the recorded precision, because the GPU has no rate for the requested one.
    pub keeps_precision: bool,
    /// Warnings to show wherever the step appears.
    pub warnings: Vec<Finding>,
    /// Uncertainties and fallbacks behind the numbers.
    pub notes: Vec<Finding>,
}

impl Prediction {
    /// Time of the optimizer update: its share of the operators' time, times the step without host wait. Equal at every
    /// batch size.
    pub fn update(&self) -> Micros {
        self.step.mid().checked_sub(self.host_idle).unwrap_or_default() * self.update_share
    }

    /// A batch of `step` on this GPU, the prediction's own or one at another batch size, with the loading of its data.
    pub fn micro_batch<'a>(
        &'a self,
        step: &'a Estimate,
        batch: Option<u64>,
        data: Option<&'a Supply>,
    ) -> MicroBatch<'a> {
        MicroBatch { step, update: self.update(), batch, model: self.transformer.as_ref(), data }
    }

    /// Part of the step in which it waits for its data.
    pub fn data_wait(&self) -> Micros {
        self.data.map_or(Micros::ZERO, |data| data.wait())
    }

    /// Step that plans use, on one GPU. A measurement has no range: over many steps the median counts, not the slowest
    /// step.
    pub fn planning_step(&self) -> Estimate {
        match &self.step {
            StepTime::Measured { median, .. } => Estimate::with_band(*median, 0.0, Method::Measured),
            StepTime::Predicted(estimate) => *estimate,
        }
    }
}

/// Step at a batch size other than the recorded one.
#[derive(Debug, Clone, PartialEq)]
pub struct AtBatch {
    /// Samples per step on one GPU.
    pub batch_size: u64,
    /// Step on one GPU, without communication.
    pub step: Estimate,
    /// Loading of its data, as in [`Prediction::data`].
    pub data: Option<Supply>,
    /// Whether it fits in memory.
    pub memory: MemoryFit,
    /// Source of the prediction, in words.
    pub why: String,
}
