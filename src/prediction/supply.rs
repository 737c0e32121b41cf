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
    /// Data of a step as recorded: `ratio` is the GPU's work over that of the recording GPU.
    pub(super) fn new(Loading { time, wait, loader, cpus }: Loading, alone: Estimate, ratio: f64) -> Self {
        let (hidden, workers) = match loader {
            Loader::Workers(workers) => (None, workers),
            Loader::Training | Loader::Unknown => (Some(time.checked_sub(wait).unwrap_or_default() * ratio), Some(0)),
        };
        Self { alone, load: time, hidden, workers, cpus, is_of_origin: alone.method.is_of_origin() }
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

    /// Data of an optimizer step of `batches` batches, which are loaded one after the other, if it takes `step` without
    /// them. GPUs that divide the model work less for each batch, and hide less of its loading.
    #[must_use]
    pub(super) fn of_update(&self, step: Micros, batches: u64) -> Self {
        let (batches, alone) = (batches as f64, self.alone.range.mid);
        let ratio = if alone.get() > 0.0 { step / alone } else { batches };
        self.at(self.alone, batches, ratio)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 70 ms of loading for each step of 100, whose queued work hides 13. An update of 4 batches in 340 ms hides 3.4 times
    /// as much of 4 times the loading; 8 GPUs that share each batch hide little. Workers load beside the whole step.
    #[test]
    fn data_of_an_update_by_hand() {
        let millis = |millis: f64| Micros::known(millis * 1e3);
        let alone = Estimate::with_band(millis(100.0), 0.0, Method::Measured);
        let wait = |loader, step: f64, batches| {
            let loading = Loading { time: millis(70.0), wait: millis(57.0), loader, cpus: None };
            Supply::new(loading, alone, 1.0).of_update(millis(step), batches).wait_of(millis(step), 1.0).as_millis()
        };
        for (loader, step, batches, expected) in [
            (Loader::Training, 100.0, 1, 57.0),
            (Loader::Training, 340.0, 4, 280.0 - 3.4 * 13.0),
            (Loader::Training, 20.0, 1, 70.0 - 0.2 * 13.0),
            (Loader::Workers(Some(4)), 100.0, 1, 0.0),
            (Loader::Workers(Some(4)), 20.0, 1, 50.0),
            (Loader::Workers(Some(4)), 80.0, 4, 200.0),
        ] {
            let found = wait(loader, step, batches);
            assert!((found - expected).abs() < 1e-9, "{loader:?}, {step} ms: {found}");
        }
    }
}
