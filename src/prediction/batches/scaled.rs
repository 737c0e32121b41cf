//! Predicts a step at another batch size from one recording by scaling its shapes.

use std::rc::Rc;

use super::error::SweepError;
use super::rebatch::{Rebatched, rebatch};
use crate::choice::predict;
use crate::error::PredictError;
use crate::estimate::Estimate;
use crate::finding::Finding;
use crate::method::Method;
use crate::options::Options;
use crate::predictions::Prediction;
use crate::supply::Supply;
use habitat_base::units::{Micros, Range};
use habitat_step::catalog::Catalog;
use habitat_step::profile::Profile;

/// Error of a step from scaled shapes one doubling or halving away, as ln(measured ÷ predicted) at the ends of the 80
/// and 90 % ranges. On 45 pairs of measured steps of one network on one GPU (`NeuSight`'s, 7 GPUs;
/// `habitat-lab evaluate batches … --steps`) these hold 87 and 93 % at one doubling, and all at two, where errors are
/// hardly larger. The ranges therefore grow with the square root of the doublings.
const BY_SHAPES: [f64; 2] = [0.08, 0.11];

/// Shape-based predictions at another batch size and at the recorded one.
pub struct ScaledShapes {
    scaled: Rebatched,
    /// Factor on the time that loading the data takes.
    samples: f64,
    /// Predictions from shapes at the recorded batch size, by GPU.
    before: Rc<ShapesAlone>,
    /// Predictions from shapes at the other batch size, by GPU.
    after: ShapesAlone,
}

/// Predictions from shapes alone, by GPU: method of the step, and time of each operation.
#[derive(Debug)]
pub(super) struct ShapesAlone(Vec<(Method, Vec<Option<Micros>>)>);

impl ShapesAlone {
    /// Predicts the step from shapes on the GPUs of `options`.
    pub(super) fn of(profile: &Profile, catalog: &Catalog, options: &Options) -> Result<Self, PredictError> {
        let alone = Options { ignore_origin: false, origin: None, ..options.clone() };
        Ok(Self::times(&predict(&profile.without_origin(), catalog, &alone)?.predictions))
    }

    /// The same from predictions of the profile with `options`, if these used nothing but shapes.
    pub(super) fn known(profile: &Profile, options: &Options, predictions: &[Prediction]) -> Option<Self> {
        (options.origin.is_none() && *profile == profile.without_origin()).then(|| Self::times(predictions))
    }

    fn times(predictions: &[Prediction]) -> Self {
        let times = |prediction: &Prediction| {
            let of = prediction.operations.iter().map(|of| of.time.as_ref().map(|time| time.range.mid));
            (prediction.step.as_estimate().method, of.collect())
        };
        Self(predictions.iter().map(times).collect())
    }
}

impl ScaledShapes {
    /// Predicts from shapes at both batch sizes, on the GPUs of `options`.
    ///
    /// # Errors
    /// Fails if the profile cannot be scaled or predicted.
    pub fn of(profile: &Profile, batch: u64, catalog: &Catalog, options: &Options) -> Result<Self, SweepError> {
        Self::beside(&mut None, profile, batch, catalog, options)
    }

    /// Like [`Self::of`], but reuses `before`, which is equal at every batch size; the first call fills it.
    pub(super) fn beside(
        before: &mut Option<Rc<ShapesAlone>>,
        profile: &Profile,
        batch: u64,
        catalog: &Catalog,
        options: &Options,
    ) -> Result<Self, SweepError> {
        let scaled = rebatch(profile, batch)?;
        let before = match before {
            Some(before) => before.clone(),
            None => before.insert(Rc::new(ShapesAlone::of(profile, catalog, options)?)).clone(),
        };
        let recorded = profile.workload.batch_size.filter(|recorded| *recorded > 0);
        let samples = recorded.map_or(1.0, |recorded| batch as f64 / recorded as f64);
        let after = ShapesAlone::of(&scaled.profile, catalog, options)?;
        Ok(Self { scaled, samples, before, after })
    }

    /// Step on GPU number `index` with the loading of its data, from its prediction at the recorded batch size. The wait
    /// for launches stays; that for data grows with the samples.
    pub fn step(&self, index: usize, recorded: &Prediction) -> (Estimate, Option<Supply>) {
        let ((_, before), (after_method, after)) = (&self.before.0[index], &self.after.0[index]);
        let (mut was, mut becomes) = (0.0, 0.0);
        for ((of, before), after) in recorded.operations.iter().zip(before).zip(after) {
            let Some(time) = &of.time else { continue };
            let time = time.range.mid.get() * f64::from(of.count);
            let ratio = match (before, after) {
                (Some(before), Some(after)) if before.get() > 0.0 => *after / *before,
                _ => 1.0,
            };
            was += time;
            becomes += time * ratio;
        }
        let step = recorded.step.as_estimate();
        let waits = recorded.host_idle.min(step.range.mid);
        let idle = waits.checked_sub(recorded.data_wait()).unwrap_or_default();
        let device = step.range.mid.checked_sub(waits).unwrap_or_default();
        let ratio = if was > 0.0 { becomes / was } else { 1.0 };
        let corrected = after_method.facts().and_then(|facts| facts.corrected);
        let method = match (step.method, *after_method) {
            (recorded, of_shapes) if recorded == of_shapes => recorded,
            (recorded, _) if recorded.is_of_origin() || Some(recorded) == corrected => {
                corrected.unwrap_or(Method::Mixed)
            }
            _ => Method::Mixed,
        };
        let mid = device * ratio + idle;
        let over = |range: Range<Micros>| Range { low: range.low / range.mid, mid: 1.0, high: range.high / range.mid };
        let times = |ends: Range<f64>, mid: Micros| Range { low: mid * ends.low, mid, high: mid * ends.high };
        let Some(data) = recorded.data else {
            return (Estimate { range: times(over(step.range), mid), method }, None);
        };
        let ends = if recorded.step.is_measured() { over(step.range) } else { over(data.alone.range) };
        let data = data.at(Estimate { range: times(ends, mid), method }, self.samples, ratio);
        (data.step(), Some(data))
    }

    /// Note on the operations in which no batch dimension was found.
    pub(super) fn note(&self, profile: &Profile) -> Option<Finding> {
        let time = |index: &usize| profile.operations[*index].total_device_time().map_or(0.0, Micros::get);
        let kept: Vec<usize> = (0..self.scaled.scaled.len()).filter(|index| !self.scaled.scaled[*index]).collect();
        let all: f64 = (0..profile.operations.len()).map(|index| time(&index)).sum();
        let share = (all > 0.0).then(|| kept.iter().map(time).sum::<f64>() / all);
        let (operations, of) = (kept.len(), profile.operations.len());
        (operations > 0).then_some(Finding::NoBatchDimension { operations, of, share })
    }
}

/// Widens the range of a step from scaled shapes by the error of the scaling.
pub fn with_scaling_range(step: &Estimate, recorded: u64, batch: u64) -> (Estimate, [Micros; 2]) {
    if step.range.mid == Micros::ZERO {
        return (*step, [step.range.low, step.range.high]);
    }
    let doublings = (batch as f64 / recorded as f64).log2().abs();
    let ends = |by: f64| {
        let of = |end: Micros| if end.get() > 0.0 { (end / step.range.mid).ln().abs() } else { f64::INFINITY };
        let (below, above) = (of(step.range.low).hypot(by), of(step.range.high).hypot(by));
        [step.range.mid * (-below).exp(), step.range.mid * above.exp()]
    };
    let [usual, wide] = BY_SHAPES.map(|by| ends(by * doublings.sqrt()));
    let [low, high] = usual;
    (Estimate { range: Range { low, mid: step.range.mid, high }, ..*step }, wide)
}
