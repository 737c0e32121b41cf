//! The mean of the black-box model: non-negative factors, drawn to the data sheets.

use crate::catalog::GpuSpec;
use crate::predict::blackbox::OperatorKind;
use crate::predict::rate::Rates;
use crate::regress::quantile::median;
use crate::regress::{RegressError, non_negative};

/// Relative errors beyond this count by their size, not by their square (Huber 1964).
const HUBER: f64 = 0.05;
/// Rounds of reweighting.
const ROUNDS: usize = 4;
/// How strongly the factor of waiting is drawn to 0, against the kinds' to their ratios.
const WAITING: f64 = 0.3;

/// Factors of `columns` (time by kind, waiting, recorded idle time, a millisecond) that give
/// `steps` with the smallest relative errors.
///
/// What they are drawn to: for kinds that compute, the ratio of the GPUs' product rates (the
/// geometric mean of a burst and what holds); for copies to and from the host 1; for the rest
/// the ratio of bandwidths; all times the factor by which that is off in the median.
pub(super) fn fit(
    columns: &[Vec<f64>],
    steps: &[f64],
    anchor: &GpuSpec,
    target: &GpuSpec,
    ridge: f64,
) -> Result<Vec<f64>, RegressError> {
    let ratios = ratios(anchor, target);
    let by_sheet = |columns: &Vec<f64>| columns.iter().zip(&ratios).map(|(x, ratio)| x * ratio).sum::<f64>();
    let mut off: Vec<f64> = columns.iter().zip(steps).map(|(columns, step)| step / by_sheet(columns)).collect();
    let off = median(&mut off).unwrap_or(1.0);
    let kinds = ratios.len();
    let strength = ridge * (steps.len() as f64).sqrt();
    // Relative errors: rows are divided by their step and are to give 1.
    let mut rows: Vec<Vec<f64>> =
        columns.iter().zip(steps).map(|(columns, step)| columns.iter().map(|x| x / step).collect()).collect();
    let mut wanted = vec![1.0; rows.len()];
    let width = columns.first().map_or(0, Vec::len);
    for column in 0..=kinds {
        let (row, value) = match ratios.get(column) {
            Some(ratio) => (strength / (ratio * off), strength),
            None => (strength * WAITING, 0.0),
        };
        rows.push((0..width).map(|index| if index == column { row } else { 0.0 }).collect());
        wanted.push(value);
    }
    let mut weights = vec![1.0; rows.len()];
    let mut factors = Vec::new();
    for _ in 0..ROUNDS {
        factors = non_negative::fit(&rows, &wanted, Some(&weights))?;
        for (weight, row) in weights.iter_mut().zip(&rows).take(steps.len()) {
            let error = row.iter().zip(&factors).map(|(x, factor)| x * factor).sum::<f64>() - 1.0;
            *weight = 1.0 / (error.abs() / HUBER).max(1.0);
        }
    }
    Ok(factors)
}

/// Time on the target over time on the anchor, by kind, from the data sheets.
fn ratios(anchor: &GpuSpec, target: &GpuSpec) -> Vec<f64> {
    let rate = |gpu: &GpuSpec| {
        let rate = Rates::new(gpu).trained_fp32;
        (rate.sustained.get() * rate.burst.get()).sqrt()
    };
    let (compute, memory) =
        (rate(anchor) / rate(target), anchor.memory_bandwidth.get() / target.memory_bandwidth.get());
    OperatorKind::ALL
        .iter()
        .map(|kind| match kind {
            OperatorKind::Transfer => 1.0,
            kind if kind.computes() => compute,
            _ => memory,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::store::bundled;

    /// Convolutions three times as fast, normalisation twice, copies as they were, waiting
    /// half as long.
    #[test]
    fn known_factors_come_back() {
        let catalog = Catalog::new(bundled::gpus());
        let gpu = |slug: &str| catalog.find(slug).unwrap();
        let columns: Vec<Vec<f64>> = (0..60)
            .map(|row: u32| {
                let mut columns = vec![0.0; 18];
                columns[0] = 100.0 + f64::from(row % 7) * 400.0;
                columns[2] = 50.0 + f64::from(row % 5) * 300.0;
                columns[13] = 10.0 + f64::from(row % 3) * 100.0;
                columns[15] = 20.0 + f64::from(row % 4) * 200.0;
                columns
            })
            .collect();
        let step = |row: &Vec<f64>| row[0] / 3.0 + row[2] / 2.0 + row[13] + row[15] / 2.0;
        let steps: Vec<f64> = columns.iter().map(step).collect();
        let factors = fit(&columns, &steps, gpu("m60"), gpu("v100-sxm2-16gb"), 1e-4).unwrap();
        for (index, factor) in [(0, 1.0 / 3.0), (2, 0.5), (13, 1.0), (15, 0.5)] {
            assert!((factors[index] - factor).abs() < 1e-3, "{index}: {factors:?}");
        }
        // A kind that was never seen keeps the ratio of the data sheets, times what that is
        // off by elsewhere: a V100 moves 5.6 times the bytes of an M60.
        let unseen = factors[4] / factors[5];
        assert!((unseen - 1.0).abs() < 1e-9 && factors[4] > 0.05 && factors[4] < 1.0, "{factors:?}");
    }
}
