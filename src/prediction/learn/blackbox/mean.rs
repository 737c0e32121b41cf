//! Mean of the black-box model: non-negative factors, regularised towards the data sheets.

use crate::blackbox::OperatorKind;
use crate::rate::Rates;
use habitat_base::regress::quantile::median;
use habitat_base::regress::{RegressError, non_negative};
use habitat_step::catalog::GpuSpec;

/// Relative errors beyond this count linearly, not squared (Huber 1964).
const HUBER: f64 = 0.05;
/// Number of reweighting rounds.
const ROUNDS: usize = 4;
/// Regularisation strength of the factors of waiting, recorded idle time and 1 ms towards [`WAITED`], relative to that
/// of the kinds towards their ratios.
const WAITING: f64 = 2.0;
/// Chosen like [`WAITING`] by leaving out networks, families and kinds of operators. Networks that hardly wait do not
/// determine these factors, but networks that do wait need them.
const WAITED: [f64; 3] = [0.3, 0.2, 0.0];

/// Fits factors of `columns` (time by kind, waiting, recorded idle time, 1 ms) that give `steps` with the smallest
/// relative errors.
///
/// Prior values of the factors: for compute kinds, the ratio of the GPUs' product rates (geometric mean of burst and
/// sustained); for copies between host and device, 1; for others, the ratio of bandwidths; all multiplied by the median
/// error of these ratios. A kind without rows may be compute- or memory-bound, and its kernels may fall short of the
/// ratio by another amount. Its prior is the geometric mean of both ratios, times the root of that error.
pub(super) fn fit(
    columns: &[Vec<f64>],
    steps: &[f64],
    anchor: &GpuSpec,
    target: &GpuSpec,
    ridge: f64,
) -> Result<Vec<f64>, RegressError> {
    let mut ratios = ratios(anchor, target);
    let by_sheet = |columns: &Vec<f64>| columns.iter().zip(&ratios).map(|(x, ratio)| x * ratio).sum::<f64>();
    let mut off: Vec<f64> = columns.iter().zip(steps).map(|(columns, step)| step / by_sheet(columns)).collect();
    let off = median(&mut off).unwrap_or(1.0);
    let [compute, memory] =
        [OperatorKind::Convolution, OperatorKind::Elementwise].map(|kind| ratio(kind, anchor, target));
    for (column, (factor, kind)) in ratios.iter_mut().zip(OperatorKind::ALL).enumerate() {
        let is_seen = columns.iter().any(|columns| columns.get(column).is_some_and(|time| *time > 0.0));
        *factor *= off;
        if !is_seen && kind != OperatorKind::Transfer {
            *factor = (compute * memory * off).sqrt();
        }
    }
    let strength = ridge * (steps.len() as f64).sqrt();
    // Relative errors: rows are divided by their step, so the target is 1.
    let mut rows: Vec<Vec<f64>> =
        columns.iter().zip(steps).map(|(columns, step)| columns.iter().map(|x| x / step).collect()).collect();
    let mut wanted = vec![1.0; rows.len()];
    let width = columns.first().map_or(0, Vec::len);
    let drawn_to = ratios.iter().map(|ratio| (strength / ratio, strength));
    let of_waiting = WAITED.iter().map(|factor| (strength * WAITING, strength * WAITING * factor));
    for (column, (row, value)) in drawn_to.chain(of_waiting).enumerate() {
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
    OperatorKind::ALL.iter().map(|kind| ratio(*kind, anchor, target)).collect()
}

fn ratio(kind: OperatorKind, anchor: &GpuSpec, target: &GpuSpec) -> f64 {
    let rate = |gpu: &GpuSpec| {
        let rate = Rates::new(gpu).trained_fp32;
        (rate.sustained.get() * rate.burst.get()).sqrt()
    };
    match kind {
        OperatorKind::Transfer => 1.0,
        kind if kind.computes() => rate(anchor) / rate(target),
        _ => anchor.memory_bandwidth.get() / target.memory_bandwidth.get(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    /// Convolutions three times as fast, normalisation twice, copies unchanged, waiting half as long.
    #[test]
    fn known_factors_come_back() {
        let catalog = shipped::catalog();
        let gpu = |slug: &str| catalog.find(slug).unwrap();
        let columns: Vec<Vec<f64>> = (0..60)
            .map(|row: u32| {
                let mut columns = vec![0.0; 20];
                columns[0] = 100.0 + f64::from(row % 7) * 400.0;
                columns[2] = 50.0 + f64::from(row % 5) * 300.0;
                columns[15] = 10.0 + f64::from(row % 3) * 100.0;
                columns[17] = 20.0 + f64::from(row % 4) * 200.0;
                columns
            })
            .collect();
        let step = |row: &Vec<f64>| row[0] / 3.0 + row[2] / 2.0 + row[15] + row[17] / 2.0;
        let steps: Vec<f64> = columns.iter().map(step).collect();
        let factors = fit(&columns, &steps, gpu("m60"), gpu("v100-sxm2-16gb"), 1e-4).unwrap();
        for (index, factor) in [(0, 1.0 / 3.0), (2, 0.5), (15, 1.0), (17, 0.5)] {
            assert!((factors[index] - factor).abs() < 1e-3, "{index}: {factors:?}");
        }
        // The factor of an unseen kind is between the ratios of arithmetic and bandwidth, half way to their error
        // elsewhere.
        let (m60, v100) = (gpu("m60"), gpu("v100-sxm2-16gb"));
        let ratios = ratios(m60, v100);
        let by_sheet = |row: &Vec<f64>| row.iter().zip(&ratios).map(|(x, ratio)| x * ratio).sum::<f64>();
        let off = median(&mut columns.iter().zip(&steps).map(|(row, step)| step / by_sheet(row)).collect::<Vec<_>>());
        let unseen = (ratios[0] * ratios[2] * off.unwrap()).sqrt();
        assert!((factors[6] / unseen - 1.0).abs() < 1e-5 && factors[6] == factors[7], "{unseen} {factors:?}");
    }
}
