//! Predicting the embedded step on every GPU of the catalog, with and without its origin.

#![allow(clippy::unwrap_used, missing_docs)]

use divan::counter::ItemsCount;
use habitat_tui::catalog::Catalog;
use habitat_tui::predict::{Options, predict};
use habitat_tui::store::bundled;

fn main() {
    divan::main();
}

#[divan::bench(args = [false, true])]
fn sample_on_all_gpus(bencher: divan::Bencher<'_, '_>, ignore_origin: bool) {
    let (profile, catalog) = (bundled::sample(), Catalog::new(bundled::gpus()));
    let options = Options { ignore_origin, ..Options::default() };
    bencher
        .counter(ItemsCount::new(profile.operations.len() * catalog.len()))
        .bench_local(|| predict(divan::black_box(&profile), &catalog, &options).unwrap());
}

#[divan::bench]
fn shipped_catalog_and_prices() -> usize {
    bundled::gpus().len() + bundled::offers().len()
}
