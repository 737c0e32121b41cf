//! Data of a predicted step: the wait for them on a GPU, at a batch size, and with other GPUs beside it.
//!
//! A loader delivers samples per second, so loading takes a time in proportion to the batch. Worker processes load
//! during the step, which waits for the rest: `max(0, load − step)`. The training process loads between its steps; the
//! GPU's queued work hides a part, which is as long relative to that work as it was recorded: `load − hidden`.
//!
//! Every process of several GPUs has its own workers, but they share the CPU cores of their machine. With w workers that
//! were recorded on C cores, of N processes on V cores each, loading takes `min(w, C) / min(w, V/N)` times as long,
//! at least once.

use super::estimate::{Estimate, StepTime};
use super::method::Method;
use habitat_base::units::{Micros, Range};
use habitat_step::profile::{Loader, Loading};

/// Share of the recorded step within which a period of workers that it waited for is the step itself.
const SAME: f64 = 0.05;

/// Data of a step on one GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Supply {
    /// The step without waiting for its data; a measured one without a range.
    pub alone: Estimate,
    /// Time that loading takes with the recorded CPU.
    pub load: Micros,
    /// Part that the GPU's work hides if the training process loads; `None` for workers.
    pub hidden: Option<Micros>,
    pub(crate) workers: Option<u32>,
    pub(crate) cpus: Option<u32>,
    /// Whether the step was recorded on this GPU, so that the low end waits too.
    pub(crate) is_of_origin: bool,
}

impl Supply {
    /// Data of a step as recorded: `recorded` is the recorded step with its part that waited for data, and `ratio` the
    /// GPU's work over that of the recording GPU.
    pub(super) fn new(loading: Loading, recorded: Option<(Micros, Micros)>, alone: Estimate, ratio: f64) -> Self {
        let Loading { time, wait, loader, cpus } = loading;
        let (hidden, workers) = match loader {
            Loader::Workers(workers) => (None, workers),
            Loader::Training | Loader::Unknown => (Some(time.checked_sub(wait).unwrap_or_default() * ratio), Some(0)),
        };
        // The recorded step took at least as long as its workers.
        let load = match recorded.filter(|_| hidden.is_none()) {
            Some((step, waited)) if waited.get() > 0.0 && time / step >= 1.0 - SAME => step,
            Some((step, _)) => time.min(step),
            None => time,
        };
        Self { alone, load, hidden, workers, cpus, is_of_origin: alone.method.is_of_origin() }
    }

    /// Wait of a step that takes `step` without it, if loading takes `times` as long.
    pub(super) fn wait_of(&self, step: Micros, times: f64) -> Micros {
        (self.load * times).checked_sub(self.hidden.unwrap_or(step)).unwrap_or_default()
    }

    /// Wait of the step for its data.
    pub fn wait(&self) -> Micros {
        self.wait_of(self.alone.range.mid, 1.0)
    }

    /// The step with its wait. A predicted step may be on a host that keeps up, so its low end has none.
    pub fn step(&self) -> Estimate {
        Estimate { range: self.delayed(self.alone.range, [1.0; 2]), ..self.alone }
    }

    /// Adds the wait to a step, if loading takes `times` as long: as expected, and at the high end.
    pub(super) fn delayed(&self, alone: Range<Micros>, [mid, high]: [f64; 2]) -> Range<Micros> {
        let low = if self.is_of_origin { self.wait_of(alone.low, mid) } else { Micros::ZERO };
        Range {
            low: alone.low + low,
            mid: alone.mid + self.wait_of(alone.mid, mid),
            high: alone.high + self.wait_of(alone.high, high),
        }
    }

    /// Data of `batch` samples instead of `recorded`, for a step of `alone` whose GPU works `ratio` times as long.
    #[must_use]
    pub(super) fn at(&self, alone: Estimate, times: f64, ratio: f64) -> Self {
        Self { alone, load: self.load * times, hidden: self.hidden.map(|hidden| hidden * ratio), ..*self }
    }

    /// Data of `batches` batches, which are loaded one after the other.
    #[must_use]
    pub(super) fn of_batches(&self, batches: u64) -> Self {
        let batches = batches as f64;
        Self { load: self.load * batches, hidden: self.hidden.map(|hidden| hidden * batches), ..*self }
    }

    /// Times that loading takes as long if `gpus` processes share `cpus` cores: as expected, and at the high end. If the
    /// cores are unknown, they are enough for all processes, or at the high end those of the recording.
    pub(super) fn slower(&self, gpus: u32, cpus: Option<f64>) -> [f64; 2] {
        let workers = f64::from(self.workers.unwrap_or(1).max(1));
        let recorded = self.cpus.map_or(workers, f64::from);
        let own = workers.min(recorded);
        let shared = |cpus: f64| (own / workers.min(cpus / f64::from(gpus.max(1)))).max(1.0);
        match cpus.filter(|cpus| *cpus > 0.0) {
            Some(cpus) => [shared(cpus); 2],
            None => [1.0, shared(recorded)],
        }
    }
}

/// A measured step without its wait for data, as plans count it: without a range.
pub(super) fn without_wait(step: &StepTime, wait: Micros) -> Estimate {
    match step {
        StepTime::Measured { median, .. } => {
            Estimate::with_band(median.checked_sub(wait).unwrap_or_default(), 0.0, Method::Measured)
        }
        StepTime::Predicted(estimate) => {
            let range = estimate.range.map(|end| end.checked_sub(wait).unwrap_or_default());
            Estimate { range, ..*estimate }
        }
    }
}
