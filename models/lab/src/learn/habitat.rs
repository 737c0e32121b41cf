//! Training of Habitat's networks (see [`habitat_tui::predict::habitat`]) as published: Adam with
//! an L2 penalty of 1e-4, rate 5e-4 for the first half of 80 epochs and 1e-4 for the second,
//! batches of 512, mean absolute percentage error.
//!
//! Evaluation rows are: rows that their authors marked as test, every row of a GPU that is left out, and a tenth of the
//! configurations of the others, chosen by the seed.

use std::collections::BTreeMap;

use habitat_tui::catalog::Catalog;
use habitat_tui::predict::bundle::{Bundle, Plain};
use habitat_tui::predict::habitat::{Kind, describe, inputs};
use habitat_tui::predict::measured::Split;
use habitat_tui::predict::mlp::{Activation, Mlp, ModelError};
use habitat_tui::profile::Operation;
use habitat_tui::random::Random;
use habitat_tui::units::{GpuSlug, Micros};

use super::fit::{Decay, FitError, FitOptions, Fitted, Loss, Rows, Schedule};

/// A measured operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The operation.
    pub operation: Operation,
    /// The GPU.
    pub gpu: GpuSlug,
    /// Measured time.
    pub time: Micros,
    /// Its split in the authors' table.
    pub split: Split,
}

/// Training options.
#[derive(Debug, Clone, PartialEq)]
pub struct HabitatOptions {
    /// Hidden layers.
    pub layers: usize,
    /// Units of a hidden layer.
    pub width: usize,
    /// Passes over the rows.
    pub epochs: u32,
    /// GPUs to leave out.
    pub leave_out: Vec<GpuSlug>,
    /// Most rows, as a random sample.
    pub rows: Option<usize>,
    /// Seed of the initial weights, the shuffling and the samples.
    pub seed: u64,
}

impl Default for HabitatOptions {
    fn default() -> Self {
        Self { layers: 8, width: 1024, epochs: 80, leave_out: Vec::new(), rows: None, seed: 1 }
    }
}

impl HabitatOptions {
    /// The published training options, for this size.
    pub fn fit(&self) -> FitOptions {
        FitOptions {
            hidden: vec![self.width; self.layers],
            activation: Activation::Relu,
            loss: Loss::Mape,
            standardise: true,
            decay: Decay::Penalty(1e-4),
            schedule: Schedule::Steps(vec![(0, 5e-4), (self.epochs.div_ceil(2), 1e-4)]),
            offset_penalty: 0.0,
            batch: 512,
            epochs: self.epochs,
            seed: self.seed,
        }
    }
}

/// Why a row is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Sizes as in training.
    HeldOut,
    /// The authors' test rows: larger sizes.
    Test,
}

/// Rows of one GPU outside the training data.
#[derive(Debug, Clone, Default, PartialEq)]
struct Evaluated {
    features: Vec<f32>,
    measured_ms: Vec<f64>,
}

/// The rows of one operator, split.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// The operator.
    pub kind: Kind,
    /// Rows to train on.
    pub rows: Rows,
    /// GPUs trained on, with their rows (before sampling).
    pub trained_on: BTreeMap<GpuSlug, usize>,
    /// GPUs that the catalog lacks, with the number of skipped rows.
    pub unknown: BTreeMap<GpuSlug, usize>,
    evaluated: BTreeMap<(GpuSlug, Part), Evaluated>,
}

/// Errors on one GPU: |predicted / measured − 1|.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuErrors {
    /// The GPU.
    pub gpu: GpuSlug,
    /// Split of the rows.
    pub part: Part,
    /// Whether it was trained on.
    pub seen: bool,
    /// Number of rows.
    pub rows: usize,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Share of negative predictions.
    pub negative: f64,
}

/// Splits the samples of `kind` into training and evaluation.
///
/// # Errors
/// [`FitError::Rows`] if no rows are left to train on.
pub fn prepare<'a>(
    kind: Kind,
    samples: impl IntoIterator<Item = &'a Sample>,
    catalog: &Catalog,
    options: &HabitatOptions,
) -> Result<Prepared, FitError> {
    let mut prepared = Prepared {
        kind,
        rows: Rows::default(),
        trained_on: BTreeMap::new(),
        unknown: BTreeMap::new(),
        evaluated: BTreeMap::new(),
    };
    for sample in samples {
        let Some(described) = describe(&sample.operation).filter(|described| described.kind == kind) else { continue };
        let Some(gpu) = catalog.get(&sample.gpu) else {
            *prepared.unknown.entry(sample.gpu.clone()).or_default() += 1;
            continue;
        };
        if sample.time.get() == 0.0 {
            continue;
        }
        let row = inputs(&described.dimensions, gpu);
        let part = if sample.split == Split::Test { Part::Test } else { Part::HeldOut };
        let apart = part == Part::Test
            || options.leave_out.contains(&sample.gpu)
            || is_held_out(&described.dimensions, options.seed);
        if apart {
            let evaluated = prepared.evaluated.entry((sample.gpu.clone(), part)).or_default();
            evaluated.features.extend(row);
            evaluated.measured_ms.push(sample.time.as_millis());
        } else {
            prepared.rows.features.extend(row);
            prepared.rows.measured_us.push(sample.time.get() as f32);
            *prepared.trained_on.entry(sample.gpu.clone()).or_default() += 1;
        }
    }
    if let Some(count) = options.rows {
        prepared.rows = prepared.rows.sample(count, options.seed);
    }
    if prepared.rows.is_empty() {
        return Err(FitError::Rows(format!("none of {} on a GPU of the catalog that is not left out", kind.name())));
    }
    Ok(prepared)
}

/// One configuration in ten, the same on every GPU.
fn is_held_out(dimensions: &[f32], seed: u64) -> bool {
    let mixed = dimensions.iter().fold(seed, |hash, size| Random::of(hash, u64::from(size.to_bits())).bits());
    mixed.is_multiple_of(10)
}

/// Predictions of the network for the evaluation rows, by GPU.
///
/// # Errors
/// As [`Mlp::forward`].
pub fn evaluate(network: &Mlp, prepared: &Prepared) -> Result<Vec<GpuErrors>, ModelError> {
    let evaluated = prepared.evaluated.iter().map(|((gpu, part), rows)| {
        let outputs = network.forward(&rows.features)?;
        let mut errors: Vec<f64> =
            outputs.iter().zip(&rows.measured_ms).map(|(&output, ms)| (f64::from(output) / ms - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let at = |share: f64| errors[((errors.len() - 1) as f64 * share).round() as usize];
        let count = errors.len() as f64;
        Ok(GpuErrors {
            gpu: gpu.clone(),
            part: *part,
            seen: prepared.trained_on.contains_key(gpu),
            rows: errors.len(),
            mean: errors.iter().sum::<f64>() / count,
            median: at(0.5),
            p90: at(0.9),
            negative: outputs.iter().filter(|output| **output < 0.0).count() as f64 / count,
        })
    });
    evaluated.collect()
}

/// The contents of a weights file: the network under the operator's name, and the least and largest value of each input
/// in training.
pub fn weights(fitted: &Fitted, prepared: &Prepared, metadata: BTreeMap<String, String>) -> Bundle {
    let width = prepared.rows.width();
    let range = |start: f32, pick: fn(f32, f32) -> f32| {
        let column = |index: usize| prepared.rows.features.iter().skip(index).step_by(width).copied().fold(start, pick);
        Plain { shape: vec![width], values: (0..width).map(column).collect() }
    };
    Bundle {
        networks: BTreeMap::from([(prepared.kind.name().to_owned(), fitted.network.clone())]),
        tensors: BTreeMap::from([
            ("lowest".to_owned(), range(f32::INFINITY, f32::min)),
            ("highest".to_owned(), range(f32::NEG_INFINITY, f32::max)),
        ]),
        metadata,
    }
}
