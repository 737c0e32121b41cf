//! Least squares with non-negative coefficients.

use super::RegressError;

/// Maximum number of passes over the coefficients.
const PASSES: usize = 20_000;
/// Convergence limit: the largest change of a coefficient in a pass (columns are scaled to length 1).
const STILL: f64 = 1e-13;

/// Fits coefficients ≥ 0 that minimise Σ weight · (y − Σ coefficient · x)².
///
/// Uses coordinate descent on the normal equations (Franc, Hlaváč and Navara, "Sequential coordinate-wise algorithm for
/// the non-negative least squares problem", CAIP 2005): each coefficient in turn is set to its optimum with the others
/// fixed, or to 0. Columns are first scaled to one length; a column of zeros gets 0.
///
/// # Errors
/// No rows, rows of different lengths, or values that are not finite.
pub fn fit(rows: &[Vec<f64>], y: &[f64], weights: Option<&[f64]>) -> Result<Vec<f64>, RegressError> {
    let width = rows.first().map_or(0, Vec::len);
    if width == 0 {
        return Err(RegressError::TooFew { found: 0, needed: 1 });
    }
    let mut gram = vec![vec![0.0; width]; width];
    let mut along = vec![0.0; width];
    for (index, row) in rows.iter().enumerate() {
        let weight = weights.and_then(|weights| weights.get(index)).copied().unwrap_or(1.0);
        let y = y.get(index).copied().unwrap_or(f64::NAN);
        let fine = row.len() == width && row.iter().all(|x| x.is_finite()) && y.is_finite();
        if !fine || weight <= 0.0 || !weight.is_finite() {
            return Err(RegressError::NotFinite(index));
        }
        for (left, x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            let x = x * weight;
            along[left] += x * y;
            for (right, other) in row[..=left].iter().enumerate() {
                gram[left][right] += x * other;
            }
        }
    }
    let lengths: Vec<f64> = (0..width).map(|index| gram[index][index].sqrt()).collect();
    for left in 0..width {
        for right in 0..=left {
            let length = lengths[left] * lengths[right];
            let value = if length > 0.0 { gram[left][right] / length } else { 0.0 };
            gram[left][right] = value;
            gram[right][left] = value;
        }
        along[left] = if lengths[left] > 0.0 { along[left] / lengths[left] } else { 0.0 };
    }
    let scale = along.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    let mut found = vec![0.0; width];
    // Remainder of `along` after subtracting the current solution.
    let mut left = along;
    for _ in 0..PASSES {
        let mut moved = 0.0_f64;
        for index in (0..width).filter(|&index| lengths[index] > 0.0) {
            let better = (found[index] + left[index]).max(0.0);
            let step = better - found[index];
            if step != 0.0 {
                found[index] = better;
                moved = moved.max(step.abs());
                left.iter_mut().zip(&gram[index]).for_each(|(left, gram)| *left -= step * gram);
            }
        }
        if moved <= STILL * scale {
            break;
        }
    }
    Ok(found.iter().zip(&lengths).map(|(value, length)| if *length > 0.0 { value / length } else { 0.0 }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// y = 2 a − b with b constrained to ≥ 0: a alone, Σ a y / Σ a².
    #[test]
    fn what_would_be_negative_is_zero() {
        let rows = [vec![1.0, 0.0], vec![1.0, 1.0], vec![2.0, 1.0]];
        let found = fit(&rows, &[2.0, 1.0, 3.0], None).unwrap();
        assert!((found[0] - 9.0 / 6.0).abs() < 1e-12 && found[1] == 0.0, "{found:?}");
    }

    #[test]
    fn a_column_of_zeros_gets_zero_and_no_number_is_refused() {
        let found = fit(&[vec![1.0, 0.0], vec![2.0, 0.0]], &[2.0, 4.0], None).unwrap();
        assert!((found[0] - 2.0).abs() < 1e-12 && found[1] == 0.0, "{found:?}");
        assert_eq!(fit(&[vec![1.0], vec![f64::NAN]], &[1.0, 1.0], None), Err(RegressError::NotFinite(1)));
        assert_eq!(fit(&[vec![1.0], vec![1.0, 2.0]], &[1.0, 1.0], None), Err(RegressError::NotFinite(1)));
        assert_eq!(fit(&[], &[], None), Err(RegressError::TooFew { found: 0, needed: 1 }));
    }

    proptest! {
        /// Karush–Kuhn–Tucker conditions: the residual is orthogonal to each column with a coefficient above 0, and has
        /// no positive component along the others.
        #[test]
        fn the_residual_points_along_no_column(
            numbers in proptest::collection::vec(0.0..10.0_f64, 48),
            y in proptest::collection::vec(-5.0..20.0_f64, 12),
        ) {
            let rows: Vec<Vec<f64>> = numbers.chunks(4).map(<[f64]>::to_vec).collect();
            let found = fit(&rows, &y, None).unwrap();
            let residual: Vec<f64> = rows
                .iter()
                .zip(&y)
                .map(|(row, y)| y - row.iter().zip(&found).map(|(x, c)| x * c).sum::<f64>())
                .collect();
            for column in 0..4 {
                let along: f64 = rows.iter().zip(&residual).map(|(row, r)| row[column] * r).sum();
                prop_assert!(found[column] >= 0.0);
                prop_assert!(along < 1e-6, "{along}");
                prop_assert!(found[column] == 0.0 || along.abs() < 1e-6, "{along} of {}", found[column]);
            }
        }
    }
}
