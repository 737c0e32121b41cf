//! Fits and evaluates PROFET's interpolation in batch and image size on measured steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::blackbox::min_max::{MinMax, Series};
use crate::blackbox::{Axis, Shape, Sizes, StepRecord};
use habitat_base::regress::quantile::{median, quantile};
use habitat_base::units::GpuSlug;

/// Measured series of one workload on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Network name.
    pub network: Arc<str>,
    /// The GPU.
    pub gpu: GpuSlug,
    /// Fixed dimension, in words.
    pub held: String,
    /// Sizes and step times in microseconds, medians over repetitions.
    pub series: Series,
}

/// Series along `axis`, with at least three sizes.
pub fn series(rows: &[StepRecord], axis: Axis) -> Vec<Measured> {
    /// Network, GPU and fixed dimension.
    type Key<'a> = (&'a Arc<str>, &'a GpuSlug, u64);
    let mut times: BTreeMap<Key<'_>, BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
    for row in rows {
        let pixels = u64::from(row.pixels);
        let (held, size) = match axis {
            Axis::Batch => (pixels, row.batch_size),
            Axis::Pixels => (row.batch_size, pixels),
        };
        times.entry((&row.network, &row.gpu, held)).or_default().entry(size).or_default().push(row.step.get());
    }
    times
        .into_iter()
        .filter(|(_, sizes)| sizes.len() > 2)
        .map(|((network, gpu, held), sizes)| Measured {
            network: Arc::clone(network),
            gpu: gpu.clone(),
            held: match axis {
                Axis::Batch => format!("{held} px"),
                Axis::Pixels => format!("batch {held}"),
            },
            series: sizes
                .into_iter()
                .filter_map(|(size, mut times)| Some((size as f64, median(&mut times)?)))
                .collect(),
        })
        .collect()
}

/// Predicted and measured time at a size between the ends, in microseconds.
#[derive(Debug, Clone)]
pub struct Between<'a> {
    /// Series of the size.
    pub of: &'a Measured,
    /// The size.
    pub size: f64,
    /// Prediction by the polynomial of the other networks.
    pub polynomial: f64,
    /// Prediction by a straight line between the ends.
    pub line: f64,
    /// Measured time.
    pub measured: f64,
}

/// Fits the polynomial of every GPU with each network left out, and predicts that network's sizes between its smallest
/// and largest.
pub fn cross_validate(all: &[Measured]) -> Vec<Between<'_>> {
    let gpus: BTreeSet<&GpuSlug> = all.iter().map(|measured| &measured.gpu).collect();
    let networks: BTreeSet<&Arc<str>> = all.iter().map(|measured| &measured.network).collect();
    let mut found = Vec::new();
    for gpu in gpus {
        for network in &networks {
            let on_gpu = || all.iter().filter(|measured| measured.gpu == *gpu);
            let others: Vec<Series> = on_gpu()
                .filter(|measured| measured.network != **network)
                .map(|measured| measured.series.clone())
                .collect();
            let Ok(polynomial) = MinMax::fit(&others) else { continue };
            for of in on_gpu().filter(|measured| measured.network == **network) {
                let [small, middle @ .., large] = &of.series[..] else { continue };
                for &(size, measured) in middle {
                    let at = |fitted: MinMax| fitted.between(*small, *large, size).unwrap_or(f64::NAN);
                    found.push(Between { of, size, polynomial: at(polynomial), line: at(MinMax::LINE), measured });
                }
            }
        }
    }
    found
}

/// Growth of every GPU of `rows`: the polynomial or a straight line, whichever has the smaller error on left-out
/// networks.
pub fn fit(rows: &[StepRecord]) -> Vec<Sizes> {
    let gpus: BTreeSet<&GpuSlug> = rows.iter().map(|row| &row.gpu).collect();
    let axes = [Axis::Batch, Axis::Pixels].map(|axis| series(rows, axis));
    let held_out = axes.each_ref().map(|all| cross_validate(all));
    gpus.into_iter()
        .filter_map(|gpu| {
            let shape = |index: usize| shape(gpu, &axes[index], &held_out[index]);
            Some(Sizes { gpu: gpu.clone(), batch: shape(0)?, pixels: shape(1)? })
        })
        .collect()
}

fn shape(gpu: &GpuSlug, all: &[Measured], held_out: &[Between<'_>]) -> Option<Shape> {
    let on_gpu: Vec<Series> =
        all.iter().filter(|measured| measured.gpu == *gpu).map(|measured| measured.series.clone()).collect();
    let errors = |of: &dyn Fn(&Between<'_>) -> f64| -> Vec<f64> {
        held_out
            .iter()
            .filter(|between| between.of.gpu == *gpu)
            .map(|between| (of(between) / between.measured - 1.0).abs())
            .collect()
    };
    let (mut curved, mut straight) = (errors(&|between| between.polynomial), errors(&|between| between.line));
    let sum = |errors: &[f64]| errors.iter().sum::<f64>();
    let (polynomial, errors) = if sum(&curved) < sum(&straight) {
        (MinMax::fit(&on_gpu).ok()?, &mut curved)
    } else {
        (MinMax::LINE, &mut straight)
    };
    let round = |value: f64| (value * 1e6).round() / 1e6;
    Some(Shape { polynomial: MinMax(polynomial.0.map(round)), error: round(quantile(errors, 0.8)?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_base::units::Micros;

    /// Two networks whose steps grow with the square of the batch: the other's polynomial predicts each without error,
    /// a line does not.
    #[test]
    fn the_other_network_tells_the_shape() {
        let rows: Vec<StepRecord> = [("A", 1.0), ("B", 7.0)]
            .into_iter()
            .flat_map(|(network, unit)| {
                [1_u64, 2, 3, 5].map(|batch| StepRecord {
                    network: network.into(),
                    pixels: 32,
                    batch_size: batch,
                    gpu: GpuSlug::new("t4").unwrap(),
                    step: Micros::new(unit * (2.0 + (batch * batch) as f64)).unwrap(),
                })
            })
            .collect();
        let all = series(&rows, Axis::Batch);
        assert_eq!((all.len(), all[0].held.as_str()), (2, "32 px"));
        assert!(series(&rows, Axis::Pixels).is_empty());
        let found = cross_validate(&all);
        assert_eq!(found.len(), 4);
        for between in found {
            assert!((between.polynomial / between.measured - 1.0).abs() < 1e-9, "{between:?}");
            assert!(between.line / between.measured > 1.1);
        }
    }
}
