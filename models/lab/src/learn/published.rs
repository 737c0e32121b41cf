//! PROFET's predictor as published, reimplemented for comparison.
//!
//! For every ordered pair of GPUs, the device times by the framework's operator types and the anchor's step, in
//! milliseconds without scaling, are the inputs of three regressions for the step on the target: linear least squares,
//! a random forest (Breiman 2001), and a network of 128, 64, 32 and 16 units trained by Adam on the sum of the mean
//! absolute percentage error and the root mean square error. The prediction is the median of the three. Types that
//! occur in fewer than 2 % of the rows are left out: they can only be memorised.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use habitat_tui::predict::blackbox::Recorded;
use habitat_tui::predict::head::Head;
use habitat_tui::predict::mlp::Activation;
use habitat_tui::regress::least_squares;
use habitat_tui::units::{GpuSlug, Micros};
use smartcore::ensemble::random_forest_regressor::{RandomForestRegressor, RandomForestRegressorParameters};
use smartcore::linalg::basic::matrix::DenseMatrix;

use crate::learn::fit::fit as train;
use crate::learn::options::{Decay, FitOptions, Loss, Rows, Schedule};

/// Least share of rows with a type of operator.
const LEAST_SHARE: f64 = 0.02;
/// Trees of the forest.
const TREES: usize = 50;
/// Passes over the rows.
const EPOCHS: u32 = 40;
/// Rows of a batch.
const BATCH: usize = 64;
/// Learning rate of Adam.
const RATE: f32 = 1e-3;
/// Ridge weight for columns of length 1: small, and only there so that collinear columns share their effect.
const TINY: f64 = 1e-6;

/// The parts of the published predictor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Linear least squares.
    Linear,
    /// Random forest.
    Forest,
    /// The network.
    Network,
    /// The median of the three.
    Median,
}

impl Part {
    /// All, in the order of [`Published::parts`].
    pub const ALL: [Self; 4] = [Self::Linear, Self::Forest, Self::Network, Self::Median];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "PROFET linear",
            Self::Forest => "PROFET forest",
            Self::Network => "PROFET network",
            Self::Median => "PROFET median",
        }
    }
}

/// A row with each part's prediction, in microseconds.
#[derive(Debug, Clone)]
pub struct Published<'a> {
    /// The row.
    pub row: &'a Recorded,
    /// The GPU.
    pub target: GpuSlug,
    /// In the order of [`Part::ALL`].
    pub parts: [f64; 4],
    /// Measured time.
    pub measured: f64,
}

/// Why it cannot be fitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the published predictor, {anchor} → {target}: {what}")]
pub struct PublishedError {
    anchor: GpuSlug,
    target: GpuSlug,
    what: String,
}

/// Fits on `fitted` and predicts `evaluated`, pair by pair.
///
/// # Errors
/// [`PublishedError`] if a part cannot be fitted.
pub fn evaluate<'a>(
    fitted: &[&Recorded],
    evaluated: &[&'a Recorded],
    seed: u64,
) -> Result<Vec<Published<'a>>, PublishedError> {
    let anchors: BTreeSet<&GpuSlug> = fitted.iter().map(|row| &row.totals.gpu).collect();
    let mut found = Vec::new();
    for anchor in anchors {
        let of = |rows: &[&'a Recorded]| -> Vec<&'a Recorded> {
            rows.iter().copied().filter(|row| row.totals.gpu == *anchor).collect()
        };
        let fitted: Vec<&Recorded> = fitted.iter().copied().filter(|row| row.totals.gpu == *anchor).collect();
        let evaluated = of(evaluated);
        let types = types(&fitted);
        let targets: BTreeSet<&GpuSlug> = evaluated.iter().flat_map(|row| row.elsewhere.keys()).collect();
        for target in targets {
            let on = |row: &Recorded| row.elsewhere.get(target).map(|step| step.as_millis());
            let (x, y): (Vec<Vec<f64>>, Vec<f64>) =
                fitted.iter().filter_map(|row| Some((features(row, &types), on(row)?))).unzip();
            let (rows, measured): (Vec<&'a Recorded>, Vec<f64>) =
                evaluated.iter().filter_map(|row| Some((*row, on(row)?))).unzip();
            let queries: Vec<Vec<f64>> = rows.iter().map(|row| features(row, &types)).collect();
            let problem = |what: String| PublishedError { anchor: anchor.clone(), target: target.clone(), what };
            let linear = linear(&x, &y, &queries).map_err(problem)?;
            let forest = forest(&x, &y, &queries, seed).map_err(problem)?;
            let network = network(&x, &y, &queries, seed).map_err(problem)?;
            for (index, (row, measured)) in rows.into_iter().zip(measured).enumerate() {
                let mut three = [linear[index], forest[index], network[index]];
                let [linear, forest, network] = three;
                three.sort_by(f64::total_cmp);
                let parts = [linear, forest, network, three[1]].map(|millis| millis * 1e3);
                found.push(Published { row, target: target.clone(), parts, measured: measured * 1e3 });
            }
        }
    }
    Ok(found)
}

/// Types of operators in enough rows, in alphabetical order.
fn types(rows: &[&Recorded]) -> Vec<Arc<str>> {
    let mut counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for (op, _) in rows.iter().flat_map(|row| &row.by_type) {
        *counts.entry(op).or_default() += 1;
    }
    let least = LEAST_SHARE * rows.len() as f64;
    counts.into_iter().filter(|(_, count)| *count as f64 > least).map(|(op, _)| Arc::clone(op)).collect()
}

/// Times by type and the anchor's step, in milliseconds.
fn features(row: &Recorded, types: &[Arc<str>]) -> Vec<f64> {
    let times: BTreeMap<&str, Micros> = row.by_type.iter().map(|(op, time)| (&**op, *time)).collect();
    let time = |op: &Arc<str>| times.get(&**op).map_or(0.0, |time| time.as_millis());
    types.iter().map(time).chain([row.totals.step.as_millis()]).collect()
}

fn linear(x: &[Vec<f64>], y: &[f64], queries: &[Vec<f64>]) -> Result<Vec<f64>, String> {
    let with_one = |row: &Vec<f64>| row.iter().copied().chain([1.0]).collect::<Vec<f64>>();
    let mut rows: Vec<Vec<f64>> = x.iter().map(with_one).collect();
    let mut wanted = y.to_vec();
    let width = rows.first().map_or(0, Vec::len);
    for column in 0..width {
        let length = rows.iter().take(x.len()).map(|row| row[column] * row[column]).sum::<f64>().sqrt();
        let small = TINY.sqrt() * length;
        rows.push((0..width).map(|index| if index == column { small } else { 0.0 }).collect());
        wanted.push(0.0);
    }
    let coefficients = least_squares::fit(&rows, &wanted, None).map_err(|error| error.to_string())?;
    let at = |row: &Vec<f64>| with_one(row).iter().zip(&coefficients).map(|(x, c)| x * c).sum();
    Ok(queries.iter().map(at).collect())
}

fn forest(x: &[Vec<f64>], y: &[f64], queries: &[Vec<f64>], seed: u64) -> Result<Vec<f64>, String> {
    let matrix = |rows: &[Vec<f64>]| DenseMatrix::from_2d_vec(&rows.to_vec()).map_err(|error| error.to_string());
    // Every column is a candidate at every split, as usual in regression forests.
    let columns = x.first().map_or(1, Vec::len);
    let parameters = RandomForestRegressorParameters::default().with_n_trees(TREES).with_m(columns).with_seed(seed);
    let forest = RandomForestRegressor::fit(&matrix(x)?, &y.to_vec(), parameters).map_err(|error| error.to_string())?;
    forest.predict(&matrix(queries)?).map_err(|error| error.to_string())
}

fn network(x: &[Vec<f64>], y: &[f64], queries: &[Vec<f64>], seed: u64) -> Result<Vec<f64>, String> {
    let single = |rows: &[Vec<f64>]| rows.iter().flatten().map(|&value| value as f32).collect::<Vec<f32>>();
    let rows = Rows {
        features: single(x),
        measured_us: y.iter().map(|millis| (millis * 1e3) as f32).collect(),
        ..Rows::default()
    };
    let options = FitOptions {
        hidden: vec![128, 64, 32, 16],
        activation: Activation::Relu,
        loss: Loss::MapeAndRmse,
        standardise: false,
        decay: Decay::Decoupled(0.0),
        schedule: Schedule::Steps(vec![(0, RATE)]),
        batch: BATCH,
        epochs: EPOCHS,
        seed,
        ..FitOptions::default()
    };
    let fitted = train(&rows, Head::Direct, &options, None, &mut |_| std::ops::ControlFlow::Continue(()))
        .map_err(|error| error.to_string())?;
    let outputs = fitted.network.forward(&single(queries)).map_err(|error| error.to_string())?;
    Ok(outputs.into_iter().map(f64::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of two columns and 3 a + 2 b + 1.
    fn plane() -> (Vec<Vec<f64>>, Vec<f64>) {
        let rows: Vec<Vec<f64>> =
            (0..80).map(|index: u32| vec![f64::from(index % 9) + 1.0, f64::from(index / 9) * 2.0]).collect();
        let y = rows.iter().map(|row| 3.0 * row[0] + 2.0 * row[1] + 1.0).collect();
        (rows, y)
    }

    #[test]
    fn a_plane_comes_back_even_with_a_column_twice() {
        let (mut x, y) = plane();
        for row in &mut x {
            row.push(row[0]);
        }
        let found = linear(&x, &y, &[vec![4.0, 5.0, 4.0]]).unwrap();
        assert!((found[0] - 23.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn the_seed_settles_the_forest_and_the_network() {
        let (x, y) = plane();
        let query = [vec![5.0, 8.0]];
        let once = forest(&x, &y, &query, 3).unwrap();
        assert_eq!(once, forest(&x, &y, &query, 3).unwrap());
        assert!((once[0] - 32.0).abs() < 4.0, "{once:?}");
        let trained = network(&x, &y, &query, 3).unwrap();
        assert_eq!(trained, network(&x, &y, &query, 3).unwrap());
        assert_ne!(trained, network(&x, &y, &query, 4).unwrap());
    }
}
