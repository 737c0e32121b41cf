//! What a dollar buys on each GPU: cost-normalised throughput.

use serde::Serialize;

use super::Range;
use crate::predict::Prediction;
use crate::pricing::{Offer, PriceBook, Tier};
use crate::units::UsdPerHour;

/// The cheapest way to rent one GPU of a kind, and what it does for the money.
#[derive(Debug, Clone, PartialEq)]
pub struct Value<'a> {
    /// The offer.
    pub offer: &'a Offer,
    /// Its price divided by its GPUs.
    pub price_per_gpu: UsdPerHour,
    /// Samples for one dollar on one GPU; `None` where the throughput is not known.
    pub samples_per_usd: Option<Range<f64>>,
}

/// An offer as part of a value table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueTier {
    /// Offers on demand only.
    OnDemand,
    /// Offers on demand and on spot.
    Any,
}

/// The cheapest usable offer of the prediction's GPU, per GPU; `None` where there is none.
///
/// Several GPUs of one offer are priced alike; what their communication costs is the
/// plan's business.
pub fn best_value<'a>(prediction: &Prediction, prices: &'a PriceBook, tier: ValueTier) -> Option<Value<'a>> {
    let per_gpu = |offer: &Offer| UsdPerHour::known(offer.price.get() / f64::from(offer.gpu_count));
    let offer = prices
        .offers()
        .iter()
        .filter(|offer| {
            offer.gpu.as_ref() == Some(&prediction.gpu.slug) && offer.unusable.is_none() && offer.gpu_count > 0
        })
        .filter(|offer| offer.tier == Tier::OnDemand || (tier == ValueTier::Any && offer.tier == Tier::Spot))
        .min_by(|a, b| per_gpu(a).total_cmp(&per_gpu(b)).then_with(|| a.id.cmp(&b.id)))?;
    let price_per_gpu = per_gpu(offer);
    let samples_per_usd = prediction.throughput.as_ref().filter(|_| price_per_gpu.get() > 0.0).map(|throughput| {
        let per_usd = |rate: crate::units::SamplesPerSecond| rate.get() * 3600.0 / price_per_gpu.get();
        Range { low: per_usd(throughput.low), mid: per_usd(throughput.mid), high: per_usd(throughput.high) }
    });
    Some(Value { offer, price_per_gpu, samples_per_usd })
}
