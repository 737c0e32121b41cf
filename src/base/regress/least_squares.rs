//! Least squares in several variables: y = Σ coefficient · x, one column per variable.

use super::RegressError;

/// Fits weighted least squares by Householder reflections (Golub and Van Loan, "Matrix Computations", algorithm 5.3.2),
/// which lose half as many digits as normal equations.
///
/// `rows` are the observations, all of one length; a column of ones gives a constant. Columns are first scaled to one
/// length, so that their units do not matter.
///
/// # Errors
/// Fewer rows than columns; linearly dependent columns; values that are not finite or weights that are not positive.
pub fn fit(rows: &[Vec<f64>], y: &[f64], weights: Option<&[f64]>) -> Result<Vec<f64>, RegressError> {
    let width = rows.first().map_or(0, Vec::len);
    if rows.len() < width.max(1) {
        return Err(RegressError::TooFew { found: rows.len(), needed: width.max(1) });
    }
    let weight = |index: usize| weights.and_then(|weights| weights.get(index)).copied().unwrap_or(1.0);
    let mut matrix: Vec<Vec<f64>> = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        let root = weight(index).sqrt();
        let mut scaled: Vec<f64> = row.iter().map(|x| x * root).collect();
        scaled.push(y.get(index).copied().unwrap_or(f64::NAN) * root);
        if root <= 0.0 || scaled.len() != width + 1 || !scaled.iter().all(|x| x.is_finite()) {
            return Err(RegressError::NotFinite(index));
        }
        matrix.push(scaled);
    }
    let lengths: Vec<f64> =
        (0..width).map(|column| matrix.iter().map(|row| row[column] * row[column]).sum::<f64>().sqrt()).collect();
    if lengths.contains(&0.0) {
        return Err(RegressError::Degenerate(width));
    }
    for row in &mut matrix {
        row.iter_mut().zip(&lengths).for_each(|(x, length)| *x /= length);
    }
    for column in 0..width {
        let below: f64 = matrix[column..].iter().map(|row| row[column] * row[column]).sum::<f64>().sqrt();
        // Columns have length 1, so the remainder of a dependent column is rounding error.
        if below < 1e-10 {
            return Err(RegressError::Degenerate(width));
        }
        let head = matrix[column][column];
        let alpha = if head > 0.0 { -below } else { below };
        // v = x − alpha · e, kept beside the matrix; H = I − 2 v vᵀ / vᵀv.
        let mut mirror: Vec<f64> = matrix[column..].iter().map(|row| row[column]).collect();
        mirror[0] -= alpha;
        let square: f64 = mirror.iter().map(|v| v * v).sum();
        for of in column..=width {
            let along: f64 = matrix[column..].iter().zip(&mirror).map(|(row, v)| row[of] * v).sum();
            let factor = 2.0 * along / square;
            matrix[column..].iter_mut().zip(&mirror).for_each(|(row, v)| row[of] -= factor * v);
        }
    }
    let mut coefficients = vec![0.0; width];
    for column in (0..width).rev() {
        let known: f64 = (column + 1..width).map(|other| matrix[column][other] * coefficients[other]).sum();
        coefficients[column] = (matrix[column][width] - known) / matrix[column][column];
    }
    Ok(coefficients.iter().zip(&lengths).map(|(coefficient, length)| coefficient / length).collect())
}

/// [`fit`] with non-negative coefficients: tries every subset of columns and keeps the best fit without a negative
/// coefficient. The problem is convex, so its optimum is one of them (Lawson and Hanson, "Solving Least Squares
/// Problems", chapter 23, find it without trying all). The second value marks the columns in the fit. Only for few
/// columns.
///
/// # Errors
/// As [`fit`] for the full set of columns.
pub fn fit_non_negative(
    rows: &[Vec<f64>],
    y: &[f64],
    weights: Option<&[f64]>,
) -> Result<(Vec<f64>, Vec<bool>), RegressError> {
    let free = fit(rows, y, weights)?;
    let width = free.len();
    if free.iter().all(|of| *of >= 0.0) {
        return Ok((free, vec![true; width]));
    }
    let weight = |index: usize| weights.and_then(|weights| weights.get(index)).copied().unwrap_or(1.0);
    let left = |of: &[f64]| -> f64 {
        let error = |(row, y): (&Vec<f64>, &f64)| y - row.iter().zip(of).map(|(x, of)| x * of).sum::<f64>();
        rows.iter().zip(y).enumerate().map(|(index, pair)| weight(index) * error(pair).powi(2)).sum()
    };
    let mut best = (left(&vec![0.0; width]), vec![0.0; width], vec![false; width]);
    for choice in 1..(1_u32 << width) {
        let chosen: Vec<bool> = (0..width).map(|column| choice >> column & 1 == 1).collect();
        let pick = |row: &Vec<f64>| row.iter().zip(&chosen).filter(|(_, chosen)| **chosen).map(|(x, _)| *x).collect();
        let narrow: Vec<Vec<f64>> = rows.iter().map(pick).collect();
        let Ok(of) = fit(&narrow, y, weights) else { continue };
        if of.iter().any(|of| *of < 0.0) {
            continue;
        }
        let mut of = of.into_iter();
        let wide: Vec<f64> =
            chosen.iter().map(|chosen| if *chosen { of.next().unwrap_or_default() } else { 0.0 }).collect();
        let squares = left(&wide);
        if squares < best.0 {
            best = (squares, wide, chosen);
        }
    }
    Ok((best.1, best.2))
}

/// Inverse of the normal matrix `Xᵀ W X`: multiplied by the variance of an observation of weight 1, it is the
/// covariance of the coefficients of [`fit`].
///
/// # Errors
/// As [`fit`].
pub fn unscaled_covariance(rows: &[Vec<f64>], weights: Option<&[f64]>) -> Result<Vec<Vec<f64>>, RegressError> {
    let width = rows.first().map_or(0, Vec::len);
    let weight = |index: usize| weights.and_then(|weights| weights.get(index)).copied().unwrap_or(1.0);
    // Row i of the inverse comes from the residuals e of regressing column i on the others: 1 / eᵀWe on the diagonal
    // and −coefficient / eᵀWe elsewhere (Frisch–Waugh).
    let mut inverse = vec![vec![0.0; width]; width];
    for column in 0..width {
        let y: Vec<f64> = rows.iter().map(|row| row[column]).collect();
        let others: Vec<Vec<f64>> = rows
            .iter()
            .map(|row| row.iter().enumerate().filter(|(index, _)| *index != column).map(|(_, x)| *x).collect())
            .collect();
        let of = if width > 1 { fit(&others, &y, weights)? } else { Vec::new() };
        let mut left = 0.0;
        for (index, (row, y)) in others.iter().zip(&y).enumerate() {
            let error = y - row.iter().zip(&of).map(|(x, of)| x * of).sum::<f64>();
            left += weight(index) * error * error;
        }
        if left <= 0.0 {
            return Err(RegressError::Degenerate(width));
        }
        let mut of = of.into_iter();
        for (other, place) in inverse[column].iter_mut().enumerate() {
            *place = if other == column { 1.0 / left } else { -of.next().unwrap_or_default() / left };
        }
    }
    Ok(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_the_line() {
        let line = super::super::line::Line::fit(
            &[(1.0, 1.0), (2.0, 4.0), (3.0, 6.0)].map(|(x, y)| super::super::line::Point::new(x, y)),
        )
        .unwrap();
        let rows = [1.0, 2.0, 3.0].map(|x| vec![1.0, x]);
        let of = fit(&rows, &[1.0, 4.0, 6.0], None).unwrap();
        assert!((of[0] - line.intercept).abs() < 1e-12 && (of[1] - line.slope).abs() < 1e-12);
    }

    /// By hand: the free line through (1, 1), (2, 4), (3, 6) has intercept −4/3; through the origin the slope is 27/14.
    #[test]
    fn coefficients_that_would_be_negative_are_left_out() {
        let rows = [1.0, 2.0, 3.0].map(|x| vec![1.0, x]);
        let (of, chosen) = fit_non_negative(&rows, &[1.0, 4.0, 6.0], None).unwrap();
        assert_eq!(chosen, [false, true]);
        assert!(of[0] == 0.0 && (of[1] - 27.0 / 14.0).abs() < 1e-12);
        let (of, chosen) = fit_non_negative(&rows, &[3.0, 4.0, 5.0], None).unwrap();
        assert!((of[0] - 2.0).abs() < 1e-12 && chosen == [true, true]);
        let (of, chosen) = fit_non_negative(&rows, &[-3.0, -4.0, -5.0], None).unwrap();
        assert_eq!((of, chosen), (vec![0.0, 0.0], vec![false, false]));
    }

    /// By hand: the normal matrix is [[3, 6], [6, 14]], determinant 6.
    #[test]
    fn the_inverse_of_the_normal_matrix() {
        let rows = [1.0, 2.0, 3.0].map(|x| vec![1.0, x]);
        let inverse = unscaled_covariance(&rows, None).unwrap();
        let by_hand = [[14.0 / 6.0, -1.0], [-1.0, 0.5]];
        for (row, expected) in inverse.iter().zip(by_hand) {
            assert!(row.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{inverse:?}");
        }
        // Twice the weight, half the variance.
        let heavier = unscaled_covariance(&rows, Some(&[2.0; 3])).unwrap();
        assert!((heavier[1][1] - 0.25).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_fitted_is_refused() {
        let double = [vec![1.0, 2.0], vec![2.0, 4.0], vec![3.0, 6.0]];
        assert_eq!(fit(&double, &[1.0, 2.0, 3.0], None), Err(RegressError::Degenerate(2)));
        let empty = [vec![1.0, 0.0], vec![2.0, 0.0]];
        assert_eq!(fit(&empty, &[1.0, 2.0], None), Err(RegressError::Degenerate(2)));
        assert_eq!(fit(&[vec![1.0, 2.0]], &[1.0], None), Err(RegressError::TooFew { found: 1, needed: 2 }));
        assert_eq!(fit(&[vec![1.0], vec![f64::NAN]], &[1.0, 1.0], None), Err(RegressError::NotFinite(1)));
        assert_eq!(fit(&[vec![1.0], vec![1.0]], &[1.0, 1.0], Some(&[1.0, 0.0])), Err(RegressError::NotFinite(1)));
    }

    proptest! {
        /// A surface without noise is recovered, whatever the units of its variables.
        #[test]
        fn a_surface_comes_back(
            of in proptest::array::uniform4(-5.0..5.0_f64),
            unit in -6..6_i32,
            weights in proptest::collection::vec(0.1..10.0_f64, 24),
        ) {
            let unit = 10.0_f64.powi(unit);
            let rows: Vec<Vec<f64>> = (0..24)
                .map(|index| {
                    let (a, b) = (f64::from(index % 6 + 1), f64::from(index / 6 + 1) * unit);
                    vec![a * b, a, b, 1.0]
                })
                .collect();
            let y: Vec<f64> = rows.iter().map(|row| row.iter().zip(&of).map(|(x, c)| x * c).sum()).collect();
            let found = fit(&rows, &y, Some(&weights)).unwrap();
            for ((found, of), row) in found.iter().zip(&of).zip([6.0 * unit, 6.0, unit, 1.0]) {
                let scale = y.iter().fold(1e-9_f64, |a, b| a.max(b.abs()));
                prop_assert!((found - of).abs() * row <= 1e-7 * scale, "{found} for {of}");
            }
        }
    }
}
