//! Times of a step and its operations: every time is a range with the method it came from.

use serde::Serialize;

use habitat_base::units::{Micros, OpenRange, Range, SamplesPerSecond};
use habitat_step::profile::Phase;

use super::method::Method;

/// Predicted time with its range and method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Time with the ends of its range.
    pub range: Range<Micros>,
    /// Method of the prediction.
    pub method: Method,
}

impl Estimate {
    /// Builds `mid` with a symmetric relative band ([`Range::with_band`]).
    pub fn with_band(mid: Micros, band: f64, method: Method) -> Self {
        Self { range: Range::with_band(mid, band), method }
    }

    /// Builds `mid` with ends at `low` and `high` times it ([`Range::with_factors`]).
    pub fn with_factors(mid: Micros, low: f64, high: f64, method: Method) -> Self {
        Self { range: Range::with_factors(mid, low, high), method }
    }

    /// Samples per second of steps with `batch` samples. The upper end is `None` if the step may take no time; `None`
    /// for a step without time.
    pub fn throughput(&self, batch: u64) -> Option<OpenRange<SamplesPerSecond>> {
        let rate = |time: Micros| SamplesPerSecond::new(batch as f64 / time.as_secs()).ok();
        let Range { low, mid, high } = self.range;
        Some(OpenRange { low: rate(high)?, mid: rate(mid)?, high: rate(low) })
    }
}

/// Step time, with measurements and predictions kept apart.
#[derive(Debug, Clone, PartialEq)]
pub enum StepTime {
    /// Recorded on this GPU, with the shortest and longest step if several were recorded.
    Measured {
        /// Median step.
        median: Micros,
        /// Shortest and longest step.
        range: Option<[Micros; 2]>,
    },
    /// Predicted for this GPU.
    Predicted(Estimate),
}

impl StepTime {
    /// Converts to an estimate (`Method::Measured` for a measurement).
    pub fn as_estimate(&self) -> Estimate {
        match self {
            Self::Measured { median, range } => {
                let [low, high] = range.unwrap_or([*median; 2]);
                Estimate { range: Range { low, mid: *median, high }, method: Method::Measured }
            }
            Self::Predicted(estimate) => *estimate,
        }
    }

    /// Median or most likely value.
    pub const fn mid(&self) -> Micros {
        match self {
            Self::Measured { median, .. } => *median,
            Self::Predicted(estimate) => estimate.range.mid,
        }
    }

    /// Whether it was recorded, not predicted.
    pub const fn is_measured(&self) -> bool {
        matches!(self, Self::Measured { .. })
    }

    /// Whether it comes from a step recorded on this GPU: measured, or derived from a measurement.
    pub fn is_of_origin(&self) -> bool {
        self.as_estimate().method.is_of_origin()
    }
}

/// Device time that one method predicts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MethodShare {
    /// The method.
    pub method: Method,
    /// Device time of one step by this method.
    #[serde(rename = "device_time_us")]
    pub device_time: Micros,
    /// Share of the predicted device time, 0 to 1.
    pub share: f64,
}

/// Prediction of one operation on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationPrediction {
    /// Index into the profile's operations.
    pub index: usize,
    /// Operator name.
    pub name: String,
    /// Phase of the step.
    pub phase: Phase,
    /// Occurrences in the step.
    pub count: u32,
    /// Device time of a single occurrence; `None` without shapes or kernels. `why` then gives the reason, and the step
    /// leaves it out.
    pub time: Option<Estimate>,
    /// Measured device time of one occurrence on the origin, for comparison.
    pub origin_time: Option<Micros>,
    /// Whether it is outside the training data of a learned model.
    pub is_far: bool,
    /// Reason for this method and its parameters (γ and its source).
    pub why: String,
}
