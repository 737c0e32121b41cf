//! Learned time with its range.

use serde::{Deserialize, Serialize};

use habitat_base::units::Micros;
use habitat_step::op::Part;

/// 80 % range of measured over predicted time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The 10th percentile.
    pub low: f64,
    /// The 90th percentile.
    pub high: f64,
    /// Number of operators or steps behind the range.
    pub cases: usize,
}

impl Spread {
    /// Whether it is a valid range of factors.
    pub(crate) fn is_sound(self) -> bool {
        0.0 < self.low && self.low <= self.high && self.high.is_finite()
    }

    /// The wider of both at either end.
    #[must_use]
    pub(crate) fn or_wider(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high), ..self }
    }

    /// Scales the logarithms of both ends, widening them away from 1.
    #[must_use]
    pub fn widened(self, factor: f64) -> Self {
        Self { low: self.low.min(1.0).powf(factor), high: self.high.max(1.0).powf(factor), ..self }
    }
}

/// Default range of a model without its own (roughly the published errors of such methods).
pub const WIDE: Spread = Spread { low: 0.7, high: 1.5, cases: 0 };

/// Weight of the efficiency model in the geometric mean for FP32 convolutions. For most published training iterations,
/// the other GPUs and networks choose this weight (0.75 to 1; the table of training iterations of
/// `habitat-lab evaluate published` also has other weights).
pub const EFFICIENCY_WEIGHT: f64 = 0.8;

/// Predicted time with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnedTime {
    /// Predicted time.
    pub time: Micros,
    /// 80 % range, as factors of the time.
    pub spread: Spread,
    /// 80 % range with an origin's measurement.
    pub with_origin: Spread,
    /// Share of an origin's deviation that carries over.
    pub shared_deviation: f64,
    /// Whether the features are outside the training data.
    pub is_far: bool,
    /// Geometric mean with the time by the efficiency model (FP32) or the roofline (other precisions), if both apply;
    /// used if the operation was not measured on another GPU.
    pub mean: Option<Micros>,
    /// Time by the efficiency model alone, for an FP32 convolution.
    pub efficient: Option<Micros>,
    /// Time in TF32, if the operation runs in TF32 on this GPU and the other times are FP32.
    pub tf32: Option<Micros>,
}

impl LearnedTime {
    /// Time of one model only.
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

    /// Adds the efficiency model's time with weight [`EFFICIENCY_WEIGHT`]; ranges stay those of the operator models,
    /// which were calibrated on operators.
    #[must_use]
    pub(crate) fn with(self, other: Self) -> Self {
        let mean = between(self.time, other.time, EFFICIENCY_WEIGHT);
        Self { mean: Some(mean), efficient: Some(other.time), ..self }
    }

    /// Time from shapes alone in FP32, or in the only precision that the model predicts.
    pub(crate) fn without_tf32(&self) -> Micros {
        self.mean.unwrap_or(self.time)
    }

    /// Time from shapes alone, in TF32 if the operation runs in it.
    pub(crate) fn answer(&self) -> Micros {
        self.tf32.unwrap_or_else(|| self.without_tf32())
    }

    /// Time on this GPU of an operation that took `measured` on another, for which the models predict `here`; also both
    /// models' times and the deviation. If only one GPU runs TF32, both times are from the efficiency model, which
    /// knows both. TF32 takes at most as long as FP32.
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

/// Weighted geometric mean of two times; `weight` (0 to 1) is that of the second.
pub fn between(first: Micros, second: Micros, weight: f64) -> Micros {
    Micros::checked(first.get().powf(1.0 - weight) * second.get().powf(weight)).unwrap_or(first)
}

/// Sums the times of an operation's parts; ranges add up as if the errors were fully correlated.
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
