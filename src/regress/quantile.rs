//! Order statistics.

/// The middle value (the mean of the two middle ones); `None` of nothing. Sorts.
pub fn median(values: &mut [f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which a share `q` (0 to 1) of the values lies, with straight lines between
/// neighbours (Hyndman and Fan 1996, definition 7); `None` of nothing. Sorts.
pub fn quantile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let part = place - below as f64;
    Some(values[below] + part * (values[above] - values[below]))
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
}
