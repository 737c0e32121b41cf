//! Cost of training and prediction by the size of the network: `cargo bench --bench learn`.
//!
//! The sizes are those of the study in Habitat's paper, 2 to 10 layers of 128 to 1024 units; its choice is 8 × 1024.
//! `habitat-lab train --habitat --layers L --width W` prints the errors of each.

#![allow(clippy::unwrap_used, missing_docs)]

use std::ops::ControlFlow;

use divan::Bencher;
use divan::counter::ItemsCount;
use habitat_tui::predict::head::Head;
use habitat_tui::predict::mlp::{Activation, Architecture, Mlp};
use habitat_tui::random::Random;
use habitat_tui_lab::learn::fit::{Decay, FitOptions, Fitted, Loss, Rows, Schedule, fit};

const LAYERS: [usize; 5] = [2, 4, 6, 8, 10];
/// Inputs of Habitat's network for linear layers.
const INPUTS: usize = 7;
const BATCH: usize = 512;

fn main() {
    divan::main();
}

fn rows(count: usize, width: usize) -> Rows {
    let mut random = Random::new(1);
    Rows {
        features: (0..count * width).map(|_| random.unit() as f32).collect(),
        floor_us: vec![1.0; count],
        bound_us: vec![100.0; count],
        group: (0..count).map(|row| (row % 5) as u32).collect(),
        measured_us: (0..count).map(|_| (100.0 + 900.0 * random.unit()) as f32).collect(),
        weight: Vec::new(),
    }
}

fn one_epoch(rows: &Rows, head: Head, options: &FitOptions) -> Fitted {
    fit(rows, head, options, None, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// 60,000 rows of 15 features, 3 × 64 units, batches of 1024: rows per second.
#[divan::bench(sample_count = 10, args = [Activation::Relu, Activation::Silu])]
fn epoch_of_3x64(bencher: Bencher<'_, '_>, activation: Activation) {
    let rows = rows(60_000, 15);
    let options = FitOptions { activation, epochs: 1, ..FitOptions::default() };
    bencher
        .counter(ItemsCount::new(rows.len()))
        .bench_local(|| one_epoch(&rows, Head::Bounded { upper: 1.0 }, &options));
}

/// Sixteen steps of 512 rows, including the creation of the network: rows per second.
#[divan::bench(sample_count = 2, sample_size = 1, consts = [128, 256, 512, 1024], args = LAYERS)]
fn sixteen_training_steps<const WIDTH: usize>(bencher: Bencher<'_, '_>, layers: usize) {
    let rows = rows(16 * BATCH, INPUTS);
    let options = FitOptions {
        hidden: vec![WIDTH; layers],
        loss: Loss::Mape,
        decay: Decay::Penalty(1e-4),
        schedule: Schedule::Steps(vec![(0, 5e-4)]),
        batch: BATCH,
        epochs: 1,
        ..FitOptions::default()
    };
    bencher.counter(ItemsCount::new(rows.len())).bench_local(|| one_epoch(&rows, Head::Direct, &options));
}

fn network(layers: usize, width: usize) -> Mlp {
    Mlp::new(Architecture::uniform(INPUTS, layers, width, 1, Activation::Relu), 1).unwrap()
}

/// One operation on one GPU.
#[divan::bench(sample_count = 20, sample_size = 4, consts = [128, 256, 512, 1024], args = LAYERS)]
fn predict_one<const WIDTH: usize>(bencher: Bencher<'_, '_>, layers: usize) {
    let (network, row) = (network(layers, WIDTH), [0.5; INPUTS]);
    bencher.bench_local(|| network.forward(&row).unwrap());
}

/// A hundred operations on 64 GPUs, in one call.
#[divan::bench(sample_count = 2, sample_size = 1, consts = [128, 256, 512, 1024], args = LAYERS)]
fn predict_6400<const WIDTH: usize>(bencher: Bencher<'_, '_>, layers: usize) {
    let (network, rows) = (network(layers, WIDTH), vec![0.5; INPUTS * 6400]);
    bencher.counter(ItemsCount::new(6400_u32)).bench_local(|| network.forward(&rows).unwrap());
}
