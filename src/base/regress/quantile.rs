//! Order statistics.

/// Computes the median (the mean of the two middle values); `None` without values. Sorts.
pub fn median(values: &mut [f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Computes the `q` quantile (0 to 1) with linear interpolation (Hyndman and Fan 1996, definition 7); `None` without
/// values. Sorts.
pub fn quantile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let part = place - below as f64;
    Some(values[below] + part * (values[above] - values[below]))
}

/// Computes the value that a new observation is below with probability `q` (Hyndman and Fan 1996, definition 6: rank
/// (n + 1) · q). It is further out than [`quantile`], because the range of a small sample is too narrow. `None` without
/// values. Sorts.
pub fn expected_quantile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let rank = ((count + 1) as f64 * q).clamp(1.0, count.max(1) as f64);
    let below = rank.floor() as usize;
    let lower = *values.get(below - 1)?;
    let upper = values.get(below).copied().unwrap_or(lower);
    Some(lower + (rank - below as f64) * (upper - lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_neighbours() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&mut [10.0, 20.0, 30.0, 40.0, 50.0], 0.9), Some(46.0));
        assert_eq!(quantile(&mut [1.0, 2.0], 1.0), Some(2.0));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn of_a_new_value() {
        let mut nine = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0];
        assert_eq!(expected_quantile(&mut nine, 0.9), Some(9.0));
        assert_eq!(expected_quantile(&mut nine, 0.25), Some(2.5));
        assert_eq!(expected_quantile(&mut nine, 0.01), Some(1.0));
        assert_eq!(expected_quantile(&mut [], 0.5), None);
    }
}
