//! What a dollar buys on each GPU: cost-normalised throughput.

use crate::pricing::{Offer, PriceBook, Tier};
use habitat_base::units::{OpenRange, UsdPerHour};
use habitat_prediction::Prediction;

/// The cheapest way to rent one GPU of a kind, and what it does for the money.
#[derive(Debug, Clone, PartialEq)]
pub struct Value<'a> {
    /// The offer.
    pub offer: &'a Offer,
    /// Its price divided by its GPUs.
    pub price_per_gpu: UsdPerHour,
    /// Samples for one dollar on one GPU; `None` where the throughput is not known.
    pub samples_per_usd: Option<OpenRange<f64>>,
}

/// The cheapest usable offer on demand of the prediction's GPU, per GPU; `None` where there
/// is none. A spot price alone would promise too much: losses, restarts and checkpoints are
/// the plan's business.
///
/// Several GPUs of one offer are priced alike; what their communication costs is the
/// plan's business.
pub fn best_value<'a>(prediction: &Prediction, prices: &'a PriceBook) -> Option<Value<'a>> {
    cheapest(prediction, prices, |_| true)
}

/// The same of firm prices alone ([`Trust::is_firm`](crate::pricing::Trust::is_firm)).
pub fn best_firm_value<'a>(prediction: &Prediction, prices: &'a PriceBook) -> Option<Value<'a>> {
    cheapest(prediction, prices, |offer| offer.trust.is_firm())
}

fn cheapest<'a>(prediction: &Prediction, prices: &'a PriceBook, takes: impl Fn(&Offer) -> bool) -> Option<Value<'a>> {
    let per_gpu = |offer: &Offer| UsdPerHour::known(offer.price.get() / f64::from(offer.gpu_count));
    let offer = prices
        .offers()
        .iter()
        .filter(|offer| {
            offer.gpu.as_ref() == Some(&prediction.gpu.slug) && offer.unusable.is_none() && offer.gpu_count > 0
        })
        .filter(|offer| offer.tier == Tier::OnDemand && takes(offer))
        .min_by(|a, b| per_gpu(a).total_cmp(&per_gpu(b)).then_with(|| a.id.cmp(&b.id)))?;
    let price_per_gpu = per_gpu(offer);
    let samples_per_usd = prediction
        .throughput
        .filter(|_| price_per_gpu.get() > 0.0)
        .map(|throughput| throughput.map_open(|rate| rate.get() * 3600.0 / price_per_gpu.get()));
    Some(Value { offer, price_per_gpu, samples_per_usd })
}
