//! A model of one kind of operator: networks, and what else was learned.

use super::corrections::{Corrected, DEVIATIONS};
use super::facts::ModelFacts;
use super::query::Query;
use super::time::{LearnedTime, Spread, WIDE};
use crate::features::{Features, OperatorModel};
use crate::head::Head;
use crate::mlp::{Mlp, ModelError};
use habitat_base::units::Micros;
use habitat_step::catalog::{GpuSpec, Vendor};

/// Distance, in units of the features' range in training, from which on a range is widened.
const NEAR: f64 = 0.02;
/// How much of an origin's deviation is taken to be shared at least where the models were not
/// trained: what they miss there, they miss on both GPUs. Half, for want of measurements.
const FAR_SHARED: f64 = 0.5;
/// Ranges of precisions that were not measured are wider (in logarithms) by this.
const OTHER_PRECISION_WIDENING: f64 = 1.3;
/// A model: networks whose logs are averaged.
#[derive(Debug, Clone, PartialEq)]
pub struct Ensemble {
    /// The networks, one output each.
    pub networks: Vec<Mlp>,
    /// What else was learned.
    pub facts: ModelFacts,
}

impl Corrected {
    /// The 80 % range of what is left, no narrower at either end than on GPUs of the
    /// training data.
    fn spread(self, seen: Spread) -> Spread {
        let half = DEVIATIONS * self.deviation;
        Spread { low: (-half).exp().min(seen.low), high: half.exp().max(seen.high), ..seen }
    }
}

impl Ensemble {
    /// bound / use in microseconds, the geometric mean over the networks.
    ///
    /// # Errors
    /// [`ModelError`] where a network cannot be computed.
    pub fn above_launch(&self, model: OperatorModel, rows: &[Features]) -> Result<Vec<f64>, ModelError> {
        // Networks are not asked beyond what they were trained on: features are held at the
        // ends of their ranges, and the time goes on with the bound.
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

    /// The GPU's offset: of itself, else of its maker, else none.
    pub fn offset(&self, gpu: &GpuSpec) -> f64 {
        let maker = || self.facts.makers.get(maker(gpu.vendor));
        self.facts.boards.get(gpu.slug.as_str()).or_else(maker).copied().unwrap_or(0.0)
    }

    /// The time of a query; `None` where its sizes are beyond what computes.
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
            // What the GPU's own measurements explain, an origin's need not.
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

    /// How far the features lie outside those of training, in units of their range there.
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

/// A maker's key in the facts.
pub(super) const fn maker(vendor: Vendor) -> &'static str {
    match vendor {
        Vendor::Nvidia => "nvidia",
        Vendor::Amd => "amd",
    }
}
