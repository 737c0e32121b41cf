//! Price book as a table and as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::table::{Cell, Column, Table};
use super::words::{Note, Words, price};
use habitat_base::units::{GpuSlug, UsdPerHour};
use habitat_planning::pricing::{Offer, Trust};

/// An offer in `offers --json`; unknown fields are absent.
#[derive(Debug, Serialize)]
pub struct OfferJson<'a> {
    offer: &'a str,
    provider: &'a str,
    region: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    region_name: Option<&'static str>,
    instance_type: &'a str,
    tier: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<&'a str>,
    gpu_name: &'a str,
    gpu_count: u32,
    price_usd_per_hour: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_made_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paid_usd_per_hour: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    term_hours: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_as_of: Option<String>,
    /// Last day on which the price applies; absent if no end is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_until: Option<String>,
    #[serde(flatten)]
    trust: TrustJson,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<Note>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// Trustworthiness of a price.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Trust")]
pub struct TrustJson {
    /// Days from the date of the price to the day of planning; absent if the source has no date.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_age_days: Option<i32>,
    /// Seller: `provider` or `peer-to-peer`.
    market: &'static str,
    /// Reasons to doubt the price; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    price_doubts: Vec<Note>,
}

impl TrustJson {
    pub(super) fn new(trust: &Trust) -> Self {
        let price_doubts = Note::all(&trust.doubts);
        Self { price_age_days: trust.age_days, market: trust.market.name(), price_doubts }
    }
}

/// Columns of [`Trust`], which follow the date of the price.
pub(super) const TRUST: [Column; 3] = [
    Column::number("age", "price_age_days").dropped(7),
    Column::text("", "market"),
    Column::text("in doubt", "price_doubts").dropped(4).cut_to(8),
];

/// Cells of the [`TRUST`] columns.
pub(super) fn trust_cells(trust: &Trust) -> [Cell; 3] {
    [
        Cell::maybe(trust.age_days, |days| Cell::new(format!("{days} d"), days)),
        Cell::text(trust.market.name()),
        Cell::new(price::marks(&trust.doubts), price::doubts(&trust.doubts)),
    ]
}

/// Builds the JSON form of one offer.
pub fn json(offer: &Offer) -> OfferJson<'_> {
    OfferJson {
        offer: offer.id.as_str(),
        provider: &offer.provider,
        region: &offer.region,
        region_name: offer.region_name(),
        instance_type: &offer.instance_type,
        tier: offer.tier.to_string(),
        gpu: offer.gpu.as_ref().map(GpuSlug::as_str),
        gpu_name: &offer.gpu_name,
        gpu_count: offer.gpu_count,
        price_usd_per_hour: offer.price.get(),
        price_made_of: price::made_of(offer),
        paid_usd_per_hour: offer.held.and_then(|held| held.paid()).map(UsdPerHour::get),
        term_hours: offer.term_hours,
        price_as_of: offer.as_of.map(|date| date.to_string()),
        price_until: offer.until.map(|date| date.to_string()),
        trust: TrustJson::new(&offer.trust),
        source: &offer.source,
        unusable: offer.unusable.as_ref().map(Note::new),
        note: offer.note.as_deref(),
    }
}

/// A row for each offer.
pub fn table<'a>(offers: impl IntoIterator<Item = &'a Offer>) -> Table {
    let columns = [
        Column::text("offer", "offer").or_below(),
        Column::text("location", "region_name").dropped(6).cut_to(12),
        Column::text("GPUs", ""),
        Column::number("", "gpu_count"),
        Column::text("", "gpu"),
        Column::number("price", "price_usd_per_hour"),
        Column::number("per GPU", "price_usd_per_gpu_hour").dropped(3),
        Column::text("as of", "price_as_of").dropped(5),
        Column::text("", "price_until"),
    ];
    let offers: Vec<&Offer> = offers.into_iter().collect();
    let made_of = if offers.iter().any(|offer| price::made_of(offer).is_some()) { "price breakdown" } else { "" };
    let last = [
        Column::text(made_of, "price_made_of").dropped(9).cut_to(12),
        Column::text("not usable because", "unusable").dropped(8).cut_to(12),
        Column::text("", "source"),
    ];
    let mut table = Table::new(&[&columns[..], &TRUST, &last].concat());
    for offer in offers {
        let gpu = offer.gpu.as_ref().map_or_else(|| format!("{} (unknown board)", offer.gpu_name), ToString::to_string);
        let per_gpu = (offer.gpu_count > 0).then(|| offer.price * (1.0 / f64::from(offer.gpu_count)));
        let mut row = vec![
            Cell::text(&offer.id),
            Cell::text(offer.region_name().unwrap_or_default()),
            Cell::text(format!("{} × {gpu}", offer.gpu_count)),
            Cell::text(offer.gpu_count),
            Cell::maybe(offer.gpu.as_ref(), Cell::text),
            Cell::new(format::price(offer.price), offer.price.get()),
            Cell::maybe(per_gpu, |price| Cell::new(format::price(price), price.get())),
            Cell::maybe(offer.as_of, Cell::text),
            Cell::maybe(offer.until, Cell::text),
        ];
        row.extend(trust_cells(&offer.trust));
        let made_of = price::made_of(offer).unwrap_or_default();
        row.extend([
            Cell::text(made_of),
            Cell::text(offer.unusable.as_ref().map(Words::words).unwrap_or_default()),
            Cell::text(&offer.source),
        ]);
        table.push(row);
    }
    table
}
