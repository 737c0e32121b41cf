//! Predicting the embedded step on every GPU of the catalog, with and without its origin, by rules and by the learned
//! models.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use divan::counter::ItemsCount;
use habitat_tui::catalog::Catalog;
use habitat_tui::predict::learned::Models;
use habitat_tui::predict::{Options, predict};
use habitat_tui::profile::{DType, Precision, Profile, Sample};
use habitat_tui::store::bundled;

fn main() {
    divan::main();
}

#[divan::bench(args = [false, true])]
fn sample_on_all_gpus(bencher: divan::Bencher<'_, '_>, ignore_origin: bool) {
    let (profile, catalog) = (bundled::sample(Sample::ResNet50V100), Catalog::new(bundled::gpus()));
    let options = Options { ignore_origin, ..Options::default() };
    bencher
        .counter(ItemsCount::new(profile.operations.len() * catalog.len()))
        .bench_local(|| predict(divan::black_box(&profile), &catalog, &options).unwrap());
}

/// From shapes, without the cache (`true`: all of it). Reading the weights does not count.
#[divan::bench(args = [false, true])]
fn sample_by_learned_models(bencher: divan::Bencher<'_, '_>, warm: bool) {
    let (profile, catalog) = (bundled::sample(Sample::ResNet50V100), Catalog::new(bundled::gpus()));
    let kept = Arc::new(bundled::models());
    bencher
        .counter(ItemsCount::new(profile.operations.len() * catalog.len()))
        .with_inputs(|| Options {
            ignore_origin: true,
            models: Some(if warm { Arc::clone(&kept) } else { Arc::new(bundled::models()) }),
            ..Options::default()
        })
        .bench_local_refs(|options| predict(divan::black_box(&profile), &catalog, options).unwrap());
}

/// Origin of a large step.
#[derive(Debug, Clone, Copy)]
enum From {
    /// Times and launches measured on the origin.
    Trace,
    /// Shapes, by the learned operator models.
    ShapesInFp32,
    /// Shapes, by the efficiency model.
    ShapesInBf16,
}

/// Distinct operations of a large step: those of the sample, each in many sizes.
const OPERATIONS: usize = 100_000;
const GPUS: usize = 64;

fn large(from: From) -> Profile {
    let mut profile = bundled::sample(Sample::ResNet50V100);
    let sample = profile.operations.clone();
    let sized = |number: usize| {
        let mut operation = sample[number % sample.len()].clone();
        let shapes = operation.inputs.iter_mut().chain(&mut operation.outputs);
        for first in shapes.filter_map(|shape| shape.first_mut()) {
            *first += (number / sample.len()) as u64;
        }
        if matches!(from, From::ShapesInBf16) {
            operation.dtype = Some(DType::Bfloat16);
        }
        operation
    };
    profile.operations = (0..OPERATIONS).map(sized).collect();
    if matches!(from, From::ShapesInBf16) {
        profile.workload.precision = Some(Precision::Bf16);
    }
    profile
}

/// A hundred thousand distinct operations on 64 GPUs, only the step, without the cache.
#[divan::bench(args = [From::Trace, From::ShapesInFp32, From::ShapesInBf16], sample_count = 3, sample_size = 1)]
fn large_step_on_many_gpus(bencher: divan::Bencher<'_, '_>, from: From) {
    let (profile, catalog) = (large(from), Catalog::new(bundled::gpus()));
    bencher
        .counter(ItemsCount::new(OPERATIONS * GPUS))
        .with_inputs(|| Options {
            targets: catalog.iter().map(|gpu| gpu.slug.clone()).take(GPUS).collect(),
            ignore_origin: !matches!(from, From::Trace),
            models: Some(Arc::new(bundled::models())),
            steps_only: true,
            ..Options::default()
        })
        .bench_local_refs(|options| predict(divan::black_box(&profile), &catalog, options).unwrap());
}

/// A thousand products of different sizes, one at a time on a V100, without the cache.
#[divan::bench]
fn thousand_operators_alone(bencher: divan::Bencher<'_, '_>) {
    let catalog = Catalog::new(bundled::gpus());
    let gpu = catalog.find("v100-pcie-32gb").unwrap();
    let list: Vec<String> = (0..1000)
        .map(|index| {
            format!(
                r#"{{"name": "aten::mm", "phase": "forward", "inputs": [[{}, 1024], [1024, 1024]], "dtype": "float32"}}"#,
                64 + 8 * index
            )
        })
        .collect();
    let json = format!(
        r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "inference"}}, "operations": [{}]}}"#,
        list.join(", ")
    );
    let operations = Profile::from_json(json.as_bytes()).unwrap().0.operations;
    let pairs: Vec<_> = operations.iter().map(|operation| (operation, gpu)).collect();
    bencher
        .counter(ItemsCount::new(pairs.len()))
        .with_inputs(bundled::models)
        .bench_local_refs(|models| models.alone(divan::black_box(&pairs)).unwrap());
}

#[divan::bench]
fn weights() -> Models {
    bundled::models()
}

#[divan::bench]
fn shipped_catalog_and_prices() -> usize {
    bundled::gpus().len() + bundled::offers().len()
}
