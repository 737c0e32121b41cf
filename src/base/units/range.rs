//! Value with the ends of its range.

use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use super::Micros;

/// Value with the ends of its range. `H` differs from `T` if the upper end may be unknown ([`OpenRange`]).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Range<T, H = T> {
    /// Lower end.
    pub low: T,
    /// Best single value.
    pub mid: T,
    /// Upper end.
    pub high: H,
}

/// Range whose upper end may be unknown.
pub type OpenRange<T> = Range<T, Option<T>>;

impl<T: Copy> Range<T> {
    /// Applies an increasing function to all three values.
    pub fn map<U>(self, f: impl Fn(T) -> U) -> Range<U> {
        Range { low: f(self.low), mid: f(self.mid), high: f(self.high) }
    }
}

impl<T: Copy> OpenRange<T> {
    /// Applies an increasing function to all known values.
    pub fn map_open<U>(self, f: impl Fn(T) -> U) -> OpenRange<U> {
        Range { low: f(self.low), mid: f(self.mid), high: self.high.map(f) }
    }
}

/// Adds end by end: errors of one predictor are correlated between its parts, so their ranges add up instead of
/// averaging out.
impl<T: Add<Output = T>> Add for Range<T> {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { low: self.low + other.low, mid: self.mid + other.mid, high: self.high + other.high }
    }
}

impl<T: Add<Output = T> + Default> Sum for Range<T> {
    fn sum<I: Iterator<Item = Self>>(ranges: I) -> Self {
        ranges.fold(Self::default(), Add::add)
    }
}

impl Range<Micros> {
    /// Builds `mid` with a symmetric relative band: low = mid·(1 − band), high = mid·(1 + band).
    pub fn with_band(mid: Micros, band: f64) -> Self {
        Self { low: mid * (1.0 - band).max(0.0), mid, high: mid * (1.0 + band) }
    }

    /// Builds `mid` with ends at `low` and `high` times it; the range always contains `mid`.
    pub fn with_factors(mid: Micros, low: f64, high: f64) -> Self {
        Self { low: mid * low.clamp(0.0, 1.0), mid, high: mid * high.max(1.0) }
    }
}
