//! PROFET's interpolation between two measured sizes (its section on batch and pixel sizes).
//!
//! For one GPU, the step normalised between the smallest and the largest size, (T − T₀) / (T₁ − T₀), is assumed to be
//! the same polynomial of order 2 in the normalised size for every network. With T₀ and T₁ of a workload measured or
//! predicted, any size between them follows. It does not extrapolate.

use serde::{Deserialize, Serialize};

use habitat_base::regress::{RegressError, least_squares};

/// Coefficients of c₀ + c₁ x + c₂ x², with x the size normalised to 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MinMax(pub [f64; 3]);

/// Sizes of one workload with their step times, smallest size first.
pub type Series = Vec<(f64, f64)>;

impl MinMax {
    /// A straight line between the two sizes.
    pub(crate) const LINE: Self = Self([0.0, 1.0, 0.0]);

    /// Fits all sizes of all series by least squares, each series normalised by its ends. Skips series with fewer than
    /// three sizes, or whose largest size takes no longer than the smallest.
    ///
    /// # Errors
    /// Fails if the remaining data cannot determine three coefficients.
    pub(crate) fn fit(series: &[Series]) -> Result<Self, RegressError> {
        let (mut rows, mut values) = (Vec::new(), Vec::new());
        for series in series.iter().filter(|series| series.len() > 2) {
            let (Some(&first), Some(&last)) = (series.first(), series.last()) else { continue };
            if last.1 <= first.1 || last.0 <= first.0 {
                continue;
            }
            for (size, time) in series {
                let x = (size - first.0) / (last.0 - first.0);
                rows.push(vec![1.0, x, x * x]);
                values.push((time - first.1) / (last.1 - first.1));
            }
        }
        let found = least_squares::fit(&rows, &values, None)?;
        let at = |index: usize| found.get(index).copied().unwrap_or(0.0);
        Ok(Self([at(0), at(1), at(2)]))
    }

    /// Interpolates the time at `size` between two (size, time) ends; `None` outside them.
    pub fn between(self, small: (f64, f64), large: (f64, f64), size: f64) -> Option<f64> {
        if !(small.0 < large.0 && (small.0..=large.0).contains(&size)) {
            return None;
        }
        let x = (size - small.0) / (large.0 - small.0);
        let share = self.0[0] + x * (self.0[1] + x * self.0[2]);
        // The polynomial need not go through the known ends.
        Some(small.1 + (large.1 - small.1) * share.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Networks with y = x² between their ends, at different sizes and times.
    #[test]
    fn one_shape_comes_back() {
        let series = |low: f64, high: f64| {
            [0.0, 0.25, 0.5, 1.0].map(|x| (16.0 + 240.0 * x, low + (high - low) * x * x)).to_vec()
        };
        let fitted = MinMax::fit(&[series(1.0, 2.0), series(10.0, 500.0), vec![(1.0, 1.0)]]).unwrap();
        assert!(fitted.0.iter().zip([0.0, 0.0, 1.0]).all(|(a, b)| (a - b).abs() < 1e-9), "{fitted:?}");
        let half = fitted.between((16.0, 3.0), (256.0, 7.0), 136.0).unwrap();
        assert!((half - 4.0).abs() < 1e-9);
        assert_eq!(fitted.between((16.0, 3.0), (256.0, 7.0), 257.0), None);
        assert_eq!(MinMax::LINE.between((0.0, 1.0), (2.0, 5.0), 1.0), Some(3.0));
    }

    #[test]
    fn flat_series_tell_nothing() {
        assert!(MinMax::fit(&[vec![(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)]]).is_err());
    }
}
