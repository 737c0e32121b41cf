//! Device time by kind and waiting time of a step, corrected from its totals.

use super::{OperatorKind, OperatorTotals};
use crate::finding::Finding;
use habitat_base::units::Micros;

/// Maximum waiting share of a step.
const MOST_WAITING: f64 = 0.95;
/// Recorded idle time below this share of the step is raised to it.
const LEAST_IDLE: f64 = 0.002;
/// Scalings closer to 1 than this get no note.
const SCALED: f64 = 0.1;

/// Corrected parts of a step. Times in microseconds.
///
/// Profile and step time come from separate runs. If profiled device time and idle time sum to less than the step, the
/// profiler lost events (its buffer was full): the kinds are scaled so that device time = step − idle. If the device
/// time alone exceeds the step, the profiler slowed kernels down: the kinds are scaled to the step.
#[derive(Debug, Clone, PartialEq)]
pub struct Anatomy {
    step: f64,
    batch: f64,
    /// Device time by kind, corrected.
    kinds: [f64; KINDS],
    /// Factor of that correction.
    scale: f64,
    /// Step time less device time.
    waits: f64,
    /// Idle time as recorded. With small operators it exceeds `waits`, because the profiler slows the host down; it
    /// thus indicates the amount of host work.
    idle: f64,
}

const KINDS: usize = OperatorKind::ALL.len();

impl Anatomy {
    /// Corrects totals.
    pub fn of(totals: &OperatorTotals) -> Self {
        let step = totals.step.get();
        let recorded = totals.device_time().get();
        let idle = totals.idle.map_or_else(|| (step - recorded).max(0.0), Micros::get);
        let waiting = idle.min(MOST_WAITING * step);
        let device = if recorded + waiting < step { step - waiting } else { recorded.min(step) };
        let scale = device / recorded;
        let kinds = OperatorKind::ALL.map(|kind| totals.kinds.get(&kind).map_or(0.0, |time| time.get() * scale));
        Self {
            step,
            batch: totals.batch_size as f64,
            kinds,
            scale,
            waits: (step - device).max(0.0),
            idle: idle.max(LEAST_IDLE * step),
        }
    }

    /// Time that the device waits in the step.
    pub(crate) fn waits(&self) -> Micros {
        Micros::known(self.waits)
    }

    /// Step time in microseconds.
    pub(crate) const fn step(&self) -> f64 {
        self.step
    }

    /// Shares of the device time by kind.
    pub(crate) fn shares(&self) -> impl Iterator<Item = f64> {
        let device: f64 = self.kinds.iter().sum();
        self.kinds.iter().map(move |time| time / device)
    }

    /// Inputs of the mean: device time by kind, waiting time, recorded idle time, and a constant of 1 ms.
    pub(crate) fn columns(&self) -> Vec<f64> {
        self.kinds.iter().copied().chain([self.waits, self.idle, 1e3]).collect()
    }

    /// Coordinates for the Gaussian process, scaled to its correlation length: square roots of shares (their distance
    /// is the Hellinger distance of two mixes), then logarithms of the step (ms), batch size, busy share and idle
    /// share.
    pub(crate) fn coordinates(&self) -> Vec<f64> {
        let device: f64 = self.kinds.iter().sum();
        self.shares()
            .map(|share| 2.0 * share.sqrt())
            .chain([(self.step / 1e3).ln(), self.batch.ln(), (device / self.step).ln(), (self.idle / self.step).ln()])
            .collect()
    }

    /// Note on the correction.
    pub(super) fn note(&self) -> Option<Finding> {
        let is_scaled = (self.scale - 1.0).abs() > SCALED;
        is_scaled.then_some(Finding::ScaledTotals { factor: self.scale })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_base::units::GpuSlug;

    fn anatomy(step: f64, idle: Option<f64>, kinds: &[(OperatorKind, f64)]) -> Anatomy {
        let micros = |value: f64| Micros::new(value).unwrap();
        let kinds = kinds.iter().map(|&(kind, time)| (kind, micros(time))).collect();
        let gpu = GpuSlug::new("t4").unwrap();
        Anatomy::of(&OperatorTotals::new(gpu, micros(step), 32, idle.map(micros), kinds).unwrap())
    }

    const TWO: [(OperatorKind, f64); 2] = [(OperatorKind::Convolution, 300.0), (OperatorKind::Normalisation, 100.0)];

    /// 400 µs of kernels and 50 µs idle in a step of 1000 µs: 550 µs are missing.
    #[test]
    fn lost_events_are_made_up_for() {
        let lost = anatomy(1000.0, Some(50.0), &TWO);
        assert_eq!(lost.columns()[0], 300.0 * 950.0 / 400.0);
        assert_eq!((lost.waits, lost.idle), (50.0, 50.0));
        let Some(Finding::ScaledTotals { factor }) = lost.note() else { panic!("{:?}", lost.note()) };
        assert!((factor - 950.0 / 400.0).abs() < 1e-9);
    }

    #[test]
    fn slowed_kernels_are_cut_to_the_step() {
        let slowed = anatomy(320.0, Some(10.0), &TWO);
        assert_eq!((slowed.columns()[0], slowed.waits), (240.0, 0.0));
        assert!(matches!(slowed.note(), Some(Finding::ScaledTotals { factor }) if factor < 1.0));
    }

    #[test]
    fn waiting_is_what_kernels_leave() {
        // The profiler recorded more idle time than the unprofiled step has.
        let waiting = anatomy(500.0, Some(700.0), &TWO);
        assert_eq!((waiting.columns()[0], waiting.waits, waiting.idle), (300.0, 100.0, 700.0));
        assert_eq!(waiting.note(), None);
        let unknown = anatomy(500.0, None, &TWO);
        assert_eq!((unknown.waits, unknown.idle), (100.0, 100.0));
    }

    #[test]
    fn coordinates_by_hand() {
        let at = anatomy(500.0, Some(100.0), &TWO).coordinates();
        assert_eq!(at.len(), 21);
        assert!((at[0] - 2.0 * 0.75_f64.sqrt()).abs() < 1e-12 && (at[2] - 1.0).abs() < 1e-12);
        let tail = [0.5_f64.ln(), 32.0_f64.ln(), 0.8_f64.ln(), 0.2_f64.ln()];
        assert!(at[17..].iter().zip(tail).all(|(a, b)| (a - b).abs() < 1e-12), "{at:?}");
    }
}
