//! A learned time and its range.

use serde::{Deserialize, Serialize};

use crate::efficiency::between;
use habitat_base::units::Micros;
use habitat_step::op::Part;

/// The 80 % range of measured over predicted time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The 10th percentile.
    pub low: f64,
    /// The 90th percentile.
    pub high: f64,
    /// Operators or steps it was taken from.
    pub cases: usize,
}

impl Spread {
    /// Whether it is a range of factors.
    pub fn is_sound(self) -> bool {
        0.0 < self.low && self.low <= self.high && self.high.is_finite()
    }

    /// Both ends moved away from 1 by a factor of their logarithms.
    #[must_use]
    pub fn widened(self, factor: f64) -> Self {
        Self { low: self.low.min(1.0).powf(factor), high: self.high.max(1.0).powf(factor), ..self }
    }
}

/// Ranges where a model has none (published errors of such methods, roughly).
pub const WIDE: Spread = Spread { low: 0.7, high: 1.5, cases: 0 };

/// Weight of the efficiency model in the geometric mean that convolutions in FP32 have. For most published training
/// iterations it is what the other GPUs and networks choose (0.75 to 1; `habitat-lab evaluate published`, whose table of
/// training iterations also has other weights).
pub const EFFICIENCY_WEIGHT: f64 = 0.8;

/// A predicted time, and how far to trust it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnedTime {
    /// The time.
    pub time: Micros,
    /// Its 80 % range, as factors of the time.
    pub spread: Spread,
    /// The same for a time helped by an origin's measurement.
    pub with_origin: Spread,
    /// How much of an origin's deviation is shared.
    pub shared_deviation: f64,
    /// Whether the features lie outside those of the training data.
    pub is_far: bool,
    /// Its geometric mean with the time by the efficiency model (FP32) or the roofline (other
    /// precisions), where both answer: for an operation of which nothing was measured on another GPU.
    pub mean: Option<Micros>,
    /// The time by the efficiency model alone, of a convolution in FP32.
    pub efficient: Option<Micros>,
    /// The time in TF32, if the operation runs in it on this GPU and the others are in FP32.
    pub tf32: Option<Micros>,
}

impl LearnedTime {
    /// Of a model without another beside it.
    pub(crate) const fn alone(time: Micros, spread: Spread, with_origin: Spread) -> Self {
        Self {
            time,
            spread,
            with_origin,
            shared_deviation: 0.0,
            is_far: false,
            mean: None,
            efficient: None,
            tf32: None,
        }
    }

    /// With the efficiency model's time, of weight [`EFFICIENCY_WEIGHT`]; ranges stay those of the operator models, which
    /// were calibrated on operators.
    #[must_use]
    pub(super) fn with(self, other: Self) -> Self {
        let mean = between(self.time, other.time, EFFICIENCY_WEIGHT);
        Self { mean: Some(mean), efficient: Some(other.time), ..self }
    }

    /// The time from shapes alone in FP32, or in the one precision that the model answers for.
    pub(crate) fn without_tf32(&self) -> Micros {
        self.mean.unwrap_or(self.time)
    }

    /// The time from shapes alone, in TF32 if the operation runs in it.
    pub fn answer(&self) -> Micros {
        self.tf32.unwrap_or_else(|| self.without_tf32())
    }

    /// The time on this GPU of an operation that took `measured` on another, for which the models predict `here`; both
    /// models' times; and the deviation from them. If one GPU runs TF32 and the other does not, both times are by
    /// the efficiency model, which knows either. TF32 takes at most as long as FP32.
    pub(crate) fn with_measured_origin(&self, here: &Self, measured: Micros) -> (Micros, [Micros; 2], f64) {
        let scaled = |here: Micros, there: Micros| {
            let deviation = (measured / here).powf(self.shared_deviation);
            (there * deviation, [here, there], deviation)
        };
        match (here.tf32, self.tf32) {
            (None, None) => scaled(here.time, self.time),
            (Some(here), Some(there)) => scaled(here, there),
            (Some(in_tf32), None) => scaled(in_tf32, self.efficient.unwrap_or(self.time)),
            (None, Some(there)) => {
                let strict = scaled(here.time, self.time);
                let in_tf32 = scaled(here.efficient.unwrap_or(here.time), there);
                if in_tf32.0.get() < strict.0.get() { in_tf32 } else { strict }
            }
        }
    }
}

/// Times of an operation's parts; the ranges are added as if the parts erred together.
pub(super) fn sum(times: &[Option<LearnedTime>], parts: &[Part]) -> Option<LearnedTime> {
    if parts.is_empty() {
        return None;
    }
    let (mut total, mut lows, mut highs, mut near) = (0.0, [0.0; 2], [0.0; 2], 0.0);
    let (mut is_far, mut cases) = (false, usize::MAX);
    for (time, part) in times.iter().zip(parts) {
        let time = (*time)?;
        let each = time.time.get() * part.times;
        total += each;
        near += each * time.shared_deviation;
        for (place, spread) in [time.spread, time.with_origin].into_iter().enumerate() {
            lows[place] += each * spread.low;
            highs[place] += each * spread.high;
        }
        is_far |= time.is_far;
        cases = cases.min(time.spread.cases);
    }
    let spread = |place: usize| Spread { low: lows[place] / total, high: highs[place] / total, cases };
    let time = Micros::checked(total).filter(|time| time.get() > 0.0)?;
    Some(LearnedTime {
        time,
        spread: spread(0),
        with_origin: spread(1),
        shared_deviation: near / total,
        is_far,
        ..LearnedTime::alone(time, spread(0), spread(1))
    })
}
