//! The rows of the table of GPUs: made from predictions and prices, then filtered and sorted.

use super::speed_up;
use crate::app::App;
use crate::app::list::{alternatives, lists};
use habitat_base::text::clean;
use habitat_base::units::{GIB, GpuSlug, OpenRange, SamplesPerSecond, UsdPerHour};
use habitat_planning::plan::value::firm_or_best as value_of;
use habitat_planning::pricing::Tier;
use habitat_prediction::{Estimate, Fits, Prediction};
use habitat_reports::answer::Picks;
use habitat_reports::words::price;
use habitat_step::catalog::Vendor;

/// Work that a dollar buys.
#[derive(Debug, Clone, PartialEq)]
pub struct RowValue {
    /// Price of one GPU.
    pub price: UsdPerHour,
    /// Samples per dollar; `None` if the batch size is unknown.
    pub per_usd: Option<OpenRange<f64>>,
    /// The seller.
    pub provider: String,
    /// The pricing tier.
    pub tier: Tier,
    /// The offer's full name, with its date.
    pub offer: String,
    /// Doubts about the price, one word each; empty if there are none.
    pub marks: String,
    /// The doubts with their reasons.
    pub doubts: String,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Index in the predictions.
    pub index: usize,
    /// The GPU.
    pub slug: GpuSlug,
    /// Its name.
    pub name: String,
    /// The vendor.
    pub vendor: Vendor,
    /// Whether the step was recorded on it.
    pub measured: bool,
    /// Whether the step keeps the recorded precision although another one was requested.
    pub keeps_precision: bool,
    /// Whether its catalog entry has unverified figures.
    pub doubtful: bool,
    /// The step.
    pub step: Estimate,
    /// Samples per second.
    pub throughput: Option<OpenRange<SamplesPerSecond>>,
    /// The cheapest firm on-demand offer, or without one the cheapest usable.
    pub value: Option<RowValue>,
    /// Whether there are usable spot offers.
    pub on_spot: bool,
    /// Whether the step fits in memory.
    pub fits: Fits,
    /// Device memory in GiB.
    pub memory_gib: f64,
}

/// Rebuilds the rows from predictions and prices.
pub(in crate::app) fn rebuild(app: &mut App) {
    let before = selected(app).map(|row| row.slug.clone()).or_else(|| app.predict.wanted.take());
    let Some(predictions) = app.predictions.shared() else { return };
    let row = |(index, prediction): (usize, &Prediction)| Row {
        index,
        slug: prediction.gpu.slug.clone(),
        name: clean(&prediction.gpu.name, 60),
        vendor: prediction.gpu.vendor,
        measured: prediction.step.is_measured(),
        keeps_precision: prediction.keeps_precision,
        doubtful: prediction.gpu.doubtful,
        step: prediction.step.as_estimate(),
        throughput: prediction.throughput,
        value: value_of(prediction, &app.setup.prices).map(|value| RowValue {
            price: value.price_per_gpu,
            per_usd: value.samples_per_usd,
            provider: clean(&value.offer.provider, 24),
            tier: value.offer.tier,
            offer: format!(
                "{}{}{}",
                clean(value.offer.id.as_str(), 100),
                value.offer.as_of.map_or_else(|| ", undated".to_owned(), |date| format!(", {date}")),
                value.offer.trust.age_days.map_or_else(String::new, |days| format!(", {days} days old")),
            ),
            marks: price::marks(&value.offer.trust.doubts),
            doubts: price::doubts(&value.offer.trust.doubts),
        }),
        on_spot: app.setup.prices.offers().iter().any(|offer| {
            offer.gpu.as_ref() == Some(&prediction.gpu.slug) && offer.unusable.is_none() && offer.tier == Tier::Spot
        }),
        fits: prediction.memory.fits,
        memory_gib: prediction.gpu.memory.get() / GIB,
    };
    app.predict.rows = predictions.predictions.iter().enumerate().map(row).collect();
    app.predict.picks = Picks::new(&predictions, &app.setup.prices);
    app.predict.list.selected = before.and_then(|slug| rows(app).iter().position(|row| row.slug == slug)).unwrap_or(0);
}

/// Rows that pass the filter, sorted.
pub fn rows(app: &App) -> Vec<&Row> {
    let list = &app.predict.list;
    let words = |row: &Row| {
        let fits = match row.fits {
            Fits::Yes => "fits",
            Fits::No => "too small",
            Fits::Unknown => "memory unknown",
        };
        let sold = row.value.as_ref().map(|value| value.provider.as_str()).unwrap_or_default();
        format!("{} {} {fits} {} {sold} vendor={}", row.name, row.slug, row.step.method, row.vendor)
    };
    let figure = |row: &Row, name: &str| {
        let per_second = row.throughput.map(|rate| rate.mid.get());
        let per_usd = row.value.as_ref().and_then(|value| value.per_usd).map(|per_usd| per_usd.mid);
        match name {
            "memory" => Some(Some(row.memory_gib)),
            "step" => Some(Some(row.step.range.mid.as_millis()).filter(|millis| *millis > 0.0)),
            "$" | "$/gpu/h" => Some(row.value.as_ref().map(|value| value.price.get())),
            "samples/s" => Some(per_second),
            "samples/$" => Some(per_usd),
            _ => None,
        }
    };
    // Common names of GPUs also match, unless the filter is inverted.
    let excludes = list.filter.trim_start().starts_with('!');
    let names = lists(&list.filter)
        .flat_map(|part| if part.trim().contains(' ') { vec![part] } else { alternatives(part.trim()).collect() });
    let meant: Vec<_> = names.filter(|_| !excludes).flat_map(|name| app.setup.catalog.named(name.trim())).collect();
    let passes = |row: &&Row| {
        list.passes_with(&words(row), |name| figure(row, name)) || meant.iter().any(|gpu| gpu.slug == row.slug)
    };
    let mut rows: Vec<&Row> = app.predict.rows.iter().filter(passes).collect();
    let step = |row: &Row| Some(row.step.range.mid.get()).filter(|us| *us > 0.0);
    let per_usd = |row: &Row| row.value.as_ref().and_then(|value| value.per_usd).map(|per_usd| per_usd.mid);
    let price = |row: &Row| row.value.as_ref().map(|value| value.price.get());
    match list.sort {
        1 => rows.sort_by(|a, b| per_usd(b).unwrap_or(0.0).total_cmp(&per_usd(a).unwrap_or(0.0))),
        2 => rows
            .sort_by(|a, b| b.memory_gib.total_cmp(&a.memory_gib).then(a.step.range.mid.total_cmp(&b.step.range.mid))),
        3 => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        4 => rows.sort_by(|a, b| price(a).unwrap_or(0.0).total_cmp(&price(b).unwrap_or(0.0))),
        5 => rows.sort_by(|a, b| a.step.range.high.total_cmp(&b.step.range.high)),
        6 => rows.sort_by(|a, b| speed_up(app, b).unwrap_or(0.0).total_cmp(&speed_up(app, a).unwrap_or(0.0))),
        _ => rows.sort_by(|a, b| a.step.range.mid.total_cmp(&b.step.range.mid)),
    }
    if list.reversed {
        rows.reverse();
    }
    // Rows without the value come last in either order.
    match list.sort {
        0 | 5 => rows.sort_by_key(|row| step(row).is_none()),
        4 => rows.sort_by_key(|row| price(row).is_none()),
        6 => rows.sort_by_key(|row| speed_up(app, row).is_none()),
        1 => rows.sort_by_key(|row| per_usd(row).is_none()),
        _ => {}
    }
    rows
}

/// The selected row.
pub fn selected(app: &App) -> Option<&Row> {
    rows(app).get(app.predict.list.selected).copied()
}
