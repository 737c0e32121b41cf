//! The price book as a table and as JSON.

use serde::Serialize;

use super::format;
use super::table::{Cell, Column, Table};
use crate::pricing::Offer;

/// One offer in `offers --json`; absent where not known.
#[derive(Debug, Serialize)]
pub struct OfferJson<'a> {
    offer: &'a str,
    provider: &'a str,
    region: &'a str,
    instance_type: &'a str,
    tier: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<&'a str>,
    gpu_name: &'a str,
    gpu_count: u32,
    price_usd_per_hour: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_as_of: Option<String>,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// The JSON form of one offer.
pub fn json(offer: &Offer) -> OfferJson<'_> {
    OfferJson {
        offer: offer.id.as_str(),
        provider: &offer.provider,
        region: &offer.region,
        instance_type: &offer.instance_type,
        tier: offer.tier.to_string(),
        gpu: offer.gpu.as_ref().map(crate::units::GpuSlug::as_str),
        gpu_name: &offer.gpu_name,
        gpu_count: offer.gpu_count,
        price_usd_per_hour: offer.price.get(),
        price_as_of: offer.as_of.map(|date| date.to_string()),
        source: &offer.source,
        unusable: offer.unusable.as_deref(),
        note: offer.note.as_deref(),
    }
}

/// One row an offer.
pub fn table<'a>(offers: impl IntoIterator<Item = &'a Offer>) -> Table {
    let mut table = Table::new(&[
        Column::text("offer", "offer"),
        Column::text("GPUs", ""),
        Column::number("", "gpu_count"),
        Column::text("", "gpu"),
        Column::number("price", "price_usd_per_hour"),
        Column::number("a GPU", "price_usd_per_gpu_hour"),
        Column::text("as of", "price_as_of"),
        Column::text("not used because", "unusable"),
        Column::text("", "source"),
    ]);
    for offer in offers {
        let gpu =
            offer.gpu.as_ref().map_or_else(|| format!("{} (board not known)", offer.gpu_name), ToString::to_string);
        let per_gpu = (offer.gpu_count > 0).then(|| offer.price * (1.0 / f64::from(offer.gpu_count)));
        table.push(vec![
            Cell::same(&offer.id),
            Cell::same(format!("{} × {gpu}", offer.gpu_count)),
            Cell::same(offer.gpu_count),
            Cell::maybe(offer.gpu.as_ref(), Cell::same),
            Cell::of(format::price(offer.price), offer.price.get()),
            Cell::maybe(per_gpu, |price| Cell::of(format::price(price), price.get())),
            Cell::maybe(offer.as_of, Cell::same),
            Cell::of(offer.unusable.as_deref().unwrap_or(""), offer.unusable.as_deref().unwrap_or("")),
            Cell::same(&offer.source),
        ]);
    }
    table
}
