//! Samples per dollar on each GPU.

use crate::pricing::{Offer, PriceBook, Tier};
use habitat_base::units::{OpenRange, UsdPerHour};
use habitat_prediction::Prediction;

/// The offer of a kind of GPU that costs least to rent, with its price per GPU and samples per dollar.
#[derive(Debug, Clone, PartialEq)]
pub struct Value<'a> {
    /// The offer.
    pub offer: &'a Offer,
    /// Price of the offer divided by its number of GPUs.
    pub price_per_gpu: UsdPerHour,
    /// Samples per dollar on one GPU; `None` if the throughput is unknown.
    pub samples_per_usd: Option<OpenRange<f64>>,
}

/// Finds the usable on-demand offer for the prediction's GPU that costs least to rent, which is the smallest machine;
/// `None` if there is none. A larger machine may cost less per GPU, but who needs one GPU cannot rent it at that price.
///
/// Excludes spot prices, which are misleading without losses, restarts and checkpoints; a plan accounts for these. It
/// also accounts for communication between the GPUs of an offer, which this price per GPU ignores.
pub fn best_value<'a>(prediction: &Prediction, prices: &'a PriceBook) -> Option<Value<'a>> {
    cheapest(prediction, prices, |_| true)
}

/// Same as [`best_value`], but for firm prices only ([`Trust::is_firm`](crate::pricing::Trust::is_firm)).
pub fn best_firm_value<'a>(prediction: &Prediction, prices: &'a PriceBook) -> Option<Value<'a>> {
    cheapest(prediction, prices, |offer| offer.trust.is_firm())
}

/// [`best_firm_value`], or without a firm price [`best_value`].
pub fn firm_or_best<'a>(prediction: &Prediction, prices: &'a PriceBook) -> Option<Value<'a>> {
    best_firm_value(prediction, prices).or_else(|| best_value(prediction, prices))
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
        .min_by(|a, b| a.price.total_cmp(&b.price).then_with(|| a.id.cmp(&b.id)))?;
    let price_per_gpu = per_gpu(offer);
    let samples_per_usd = prediction
        .throughput
        .filter(|_| price_per_gpu.get() > 0.0)
        .map(|throughput| throughput.map_open(|rate| rate.get() * 3600.0 / price_per_gpu.get()));
    Some(Value { offer, price_per_gpu, samples_per_usd })
}
