//! Model of one operator kind: networks, and other learned figures.

use super::corrections::{Corrected, DEVIATIONS};
use super::query::Query;
use crate::facts::ModelFacts;
use crate::features::{Features, OperatorModel};
use crate::head::Head;
use crate::learned_time::{LearnedTime, Spread, WIDE};
use crate::mlp::{Mlp, ModelError};
use habitat_base::units::Micros;
use habitat_step::catalog::{GpuSpec, Vendor};

/// Distance from the training data, in units of its feature ranges, above which a range is widened.
const NEAR: f64 = 0.02;
/// Minimum share of an origin's deviation that carries over outside the training data: the models have the same error
/// on both GPUs. Half, for lack of measurements.
const FAR_SHARED: f64 = 0.5;
/// Widening of ranges (in logarithms) for precisions that were not measured.
const OTHER_PRECISION_WIDENING: f64 = 1.3;
/// Model with several networks; the logarithms of their outputs are averaged.
#[derive(Debug, Clone, PartialEq)]
pub struct Ensemble {
    /// Networks with one output each.
    pub networks: Vec<Mlp>,
    /// Other learned figures.
    pub facts: ModelFacts,
}

impl Corrected {
    /// 80 % range after correction; each end at least as wide as on training GPUs.
    fn spread(self, seen: Spread) -> Spread {
        let half = DEVIATIONS * self.deviation;
        Spread { low: (-half).exp().min(seen.low), high: half.exp().max(seen.high), ..seen }
    }
}

impl Ensemble {
    /// Computes bound / use in microseconds, the geometric mean over the networks.
    ///
    /// # Errors
    /// [`ModelError`] if a network fails.
    pub fn above_launch(&self, model: OperatorModel, rows: &[Features]) -> Result<Vec<f64>, ModelError> {
        // Networks do not extrapolate: features are clamped to the ranges of training, and the time scales with the
        // bound.
        let held = |(value, range): (&f32, &[f64; 2])| value.clamp(range[0] as f32, range[1] as f32);
        let values: Vec<f32> =
            rows.iter().flat_map(|row| row.values().iter().zip(&self.facts.ranges).map(held)).collect();
        let bounded = Head::Bounded { upper: model.upper() };
        let mut logs = vec![0.0; rows.len()];
        for network in &self.networks {
            for ((log, row), output) in logs.iter_mut().zip(rows).zip(network.forward(&values)?) {
                let longest = f64::from(row.bound_us) / model.lower();
                *log += bounded.time(output, 0.0, row.bound_us, 0.0).0.clamp(1e-9, longest.max(1e-9)).ln();
            }
        }
        Ok(logs.iter().map(|log| (log / self.networks.len() as f64).exp()).collect())
    }

    /// Offset of the GPU: its own, otherwise its vendor's, otherwise 0.
    pub fn offset(&self, gpu: &GpuSpec) -> f64 {
        let maker = || self.facts.makers.get(maker(gpu.vendor));
        self.facts.boards.get(gpu.slug.as_str()).or_else(maker).copied().unwrap_or(0.0)
    }

    /// Predicts a query; `None` if its sizes are too large to compute.
    pub(super) fn evaluate(
        &self,
        query: &Query<'_>,
        features: &Features,
        above: f64,
        corrected: Option<Corrected>,
    ) -> Option<LearnedTime> {
        let facts = &self.facts;
        let offset = self.offset(query.gpu.rates.gpu) - corrected.map_or(0.0, |corrected| corrected.mean);
        let time = query.launch_us() + above / offset.exp();
        let seen = facts.boards.contains_key(query.gpu.slug().as_str());
        let mut spread = if seen { facts.seen } else { facts.unseen }.unwrap_or(WIDE);
        let mut with_origin = facts.with_origin.unwrap_or(spread);
        let mut shared_deviation = facts.shared_deviation;
        if let Some(corrected) = corrected {
            spread = corrected.spread(facts.seen.unwrap_or(spread));
            if spread.high / spread.low < with_origin.high / with_origin.low {
                with_origin = spread;
            }
            // A deviation that the GPU's own measurements explain no longer needs the origin's.
            shared_deviation *= corrected.left;
        }
        let distance = self.distance(features);
        // Twice as wide (in logarithms) at half a training range beyond its end.
        let widening = if distance > NEAR { 1.0 + (2.0 * distance).min(2.0) } else { 1.0 };
        // The models were trained in FP32.
        let is_far = distance > NEAR || query.is_other_precision();
        let widening = if query.is_other_precision() { widening * OTHER_PRECISION_WIDENING } else { widening };
        Some(LearnedTime {
            shared_deviation: if is_far { shared_deviation.max(FAR_SHARED) } else { shared_deviation },
            is_far,
            ..LearnedTime::alone(Micros::checked(time)?, spread.widened(widening), with_origin.widened(widening))
        })
    }

    /// Distance of the features from the training data, in units of their ranges.
    fn distance(&self, features: &Features) -> f64 {
        features
            .values()
            .iter()
            .zip(&self.facts.ranges)
            .map(|(&value, &[low, high])| {
                let (value, range) = (f64::from(value), (high - low).max(1e-6));
                ((low - value).max(value - high) / range).max(0.0)
            })
            .fold(0.0, f64::max)
    }
}

/// Key of a vendor in the facts.
pub(super) const fn maker(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => "nvidia",
        Vendor::Amd => "amd",
    }
}
