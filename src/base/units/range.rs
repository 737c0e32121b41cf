//! A value with the ends of its range.

use std::iter::Sum;
use std::ops::Add;

use serde::Serialize;

use super::Micros;

/// A value with the ends of its range; `H` is another type than `T` where the upper end may
/// not be known ([`OpenRange`]).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct Range<T, H = T> {
    /// Lower end.
    pub low: T,
    /// Best single value.
    pub mid: T,
    /// Upper end.
    pub high: H,
}

/// A range whose upper end may not be known.
pub type OpenRange<T> = Range<T, Option<T>>;

impl<T: Copy> Range<T> {
    /// The same range in another quantity; `f` must be increasing.
    pub fn map<U>(self, f: impl Fn(T) -> U) -> Range<U> {
        Range { low: f(self.low), mid: f(self.mid), high: f(self.high) }
    }
}

impl<T: Copy> OpenRange<T> {
    /// The same range in another quantity; `f` must be increasing.
    pub fn map_open<U>(self, f: impl Fn(T) -> U) -> OpenRange<U> {
        Range { low: f(self.low), mid: f(self.mid), high: self.high.map(f) }
    }
}

/// End by end: the errors of one predictor are common to its parts, so that their ranges
/// add up rather than average out.
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
    /// `mid` with a symmetric relative band: low = mid·(1 − band), high = mid·(1 + band).
    pub fn with_band(mid: Micros, band: f64) -> Self {
        Self { low: mid * (1.0 - band).max(0.0), mid, high: mid * (1.0 + band) }
    }

    /// `mid` with the ends at `low` and `high` times it; the range always holds `mid`.
    pub fn with_factors(mid: Micros, low: f64, high: f64) -> Self {
        Self { low: mid * low.clamp(0.0, 1.0), mid, high: mid * high.max(1.0) }
    }
}
