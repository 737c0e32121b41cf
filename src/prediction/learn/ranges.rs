//! Ranges from errors on data left out of a fit.

use std::collections::BTreeMap;

use crate::learned::Spread;

/// Share of cases that a range should contain.
pub const COVERAGE: f64 = 0.80;

/// Weighted quantile of values; `None` without values.
pub fn quantile(mut values: Vec<(f64, f64)>, share: f64) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    for &(value, weight) in &values {
        below += weight;
        if below >= share * total {
            return Some(value);
        }
    }
    values.last().map(|&(value, _)| value)
}

/// 80 % range of logarithms, with equal weight for each GPU (or other group number), and the finite-sample correction
/// of conformal prediction (Lei et al. 2018, section 2): the ⌈(n + 1) · share⌉-th of n cases.
pub fn spread(residuals: &[(usize, f64)]) -> Option<Spread> {
    let mut counts: BTreeMap<usize, f64> = BTreeMap::new();
    for (gpu, _) in residuals {
        *counts.entry(*gpu).or_default() += 1.0;
    }
    let weighted = || -> Vec<(f64, f64)> { residuals.iter().map(|(gpu, log)| (*log, 1.0 / counts[gpu])).collect() };
    let cases = residuals.len();
    let tail = (1.0 - COVERAGE) / 2.0;
    let outward = (1.0 - tail) * (cases + 1) as f64 / cases.max(1) as f64;
    Some(Spread {
        low: quantile(weighted(), 1.0 - outward.min(1.0))?.exp(),
        high: quantile(weighted(), outward.min(1.0))?.exp(),
        cases,
    })
}

/// Widening (in logarithms) of a range from few GPUs to hold for another one. Each GPU has its own deviation, so the
/// next follows Student's t with one degree of freedom less than their number: t₉₀ / z₉₀ ≈ 1 + (z² + 1) / 4ν (Cornish
/// and Fisher 1938), times √(1 + 1 / number) for the unknown mean.
pub fn few_gpus(residuals: &[(usize, f64)]) -> f64 {
    let gpus: std::collections::BTreeSet<usize> = residuals.iter().map(|(gpu, _)| *gpu).collect();
    let count = gpus.len() as f64;
    if count < 2.0 { 2.0 } else { (1.0 + 0.66 / (count - 1.0)) * (1.0 + 1.0 / count).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_weight() {
        let values = |weight: f64| vec![(3.0, 1.0), (1.0, weight), (2.0, 1.0)];
        assert_eq!(quantile(values(1.0), 0.5), Some(2.0));
        assert_eq!(quantile(values(8.0), 0.5), Some(1.0));
        assert_eq!(quantile(Vec::new(), 0.5), None);
    }

    /// For logarithms −1, −0.9 … 1 the 80 % range ends at ∓0.8 or beyond.
    #[test]
    fn ranges_hold_their_share() {
        let logs: Vec<(usize, f64)> = (0..=20).map(|n| (0, f64::from(n) / 10.0 - 1.0)).collect();
        let spread = spread(&logs).unwrap();
        let inside =
            logs.iter().filter(|(_, log)| (spread.low - 1e-9..=spread.high + 1e-9).contains(&log.exp())).count();
        assert!(inside as f64 / 21.0 >= 0.8 && spread.low < 0.46 && spread.high > 2.2, "{spread:?} {inside}");
    }
}
