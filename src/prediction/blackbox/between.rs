//! A size between two that were predicted or measured.

use super::min_max::MinMax;
use super::{BlackBoxModel, Shape};
use crate::estimate::{Estimate, MethodShare, Prediction, Predictions, StepTime};
use crate::method::Method;
use habitat_base::units::{GpuSlug, Micros};

/// What lies between two sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// The batch size.
    Batch,
    /// The side of square pictures, the batch held.
    Pixels,
}

/// Why nothing can be said of a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BetweenError {
    /// Not between.
    #[error("size {size} does not lie between {small} and {large}; the interpolation is not made for sizes beyond")]
    Outside {
        /// Asked for.
        size: u64,
        /// Smallest.
        small: u64,
        /// Largest.
        large: u64,
    },
    /// Black boxes of two anchors.
    #[error("the two black boxes were measured on {0} and {1}; they must be of one GPU")]
    Anchors(String, String),
    /// Black boxes of two batch sizes where pictures differ.
    #[error("the two black boxes have batch sizes {0} and {1}; between picture sizes they must have one")]
    Batches(u64, u64),
    /// The interpolation gives no time above 0.
    #[error("no step time comes out between the two sizes on {0}; the two black boxes are not of one program")]
    NoTime(GpuSlug),
    /// A GPU whose growth was not fitted.
    #[error("the black-box model does not know how steps grow on {0}")]
    NoShape(GpuSlug),
}

/// Predictions at `size` from those of the same program at two sizes, on the same GPUs in the
/// same order; `sizes` are the two.
///
/// # Errors
/// [`BetweenError`] where the size is not between them or they do not belong together.
pub fn between(
    model: &BlackBoxModel,
    axis: Axis,
    small: &Predictions,
    large: &Predictions,
    sizes: [u64; 2],
    size: u64,
) -> Result<Predictions, BetweenError> {
    if sizes[0] >= sizes[1] || !(sizes[0]..=sizes[1]).contains(&size) {
        return Err(BetweenError::Outside { size, small: sizes[0], large: sizes[1] });
    }
    let anchor = |predictions: &Predictions| {
        predictions.origin.as_ref().and_then(|origin| origin.gpu.as_ref()).map(ToString::to_string).unwrap_or_default()
    };
    if anchor(small) != anchor(large) {
        return Err(BetweenError::Anchors(anchor(small), anchor(large)));
    }
    let batches = [small, large].map(|predictions| predictions.workload.batch_size.unwrap_or(1));
    if axis == Axis::Pixels && batches[0] != batches[1] {
        return Err(BetweenError::Batches(batches[0], batches[1]));
    }
    let batch = if axis == Axis::Batch { size } else { batches[0] };
    let mut predictions = Vec::with_capacity(small.predictions.len());
    for (small, large) in small.predictions.iter().zip(&large.predictions) {
        let gpu = &small.gpu.slug;
        let shapes = model.sizes(gpu).ok_or_else(|| BetweenError::NoShape(gpu.clone()))?;
        let shape = if axis == Axis::Batch { shapes.batch } else { shapes.pixels };
        let found = one(small, large, shape, sizes.map(|size| size as f64), size as f64, batch);
        predictions.push(found.ok_or_else(|| BetweenError::NoTime(gpu.clone()))?);
    }
    let mut workload = small.workload.clone();
    workload.batch_size = Some(batch);
    let mut notes = small.notes.clone();
    let what = if axis == Axis::Batch { "batch sizes" } else { "picture sizes" };
    notes.push(format!("interpolated between the {what} {} and {}", sizes[0], sizes[1]));
    Ok(Predictions {
        workload,
        origin: small.origin.clone(),
        host: small.host,
        communicates: false,
        predictions,
        notes,
    })
}

fn one(
    small: &Prediction,
    large: &Prediction,
    shape: Shape,
    sizes: [f64; 2],
    size: f64,
    batch: u64,
) -> Option<Prediction> {
    let [from, to] = [small, large].map(|prediction| prediction.step.as_estimate());
    let at = |low: Micros, high: Micros| {
        let (small, large) = ((sizes[0], low.get()), (sizes[1], high.get()));
        let found = shape.polynomial.between(small, large, size);
        found.or_else(|| MinMax::LINE.between(small, large, size))
    };
    let mid = at(from.range.mid, to.range.mid).filter(|mid| *mid > 0.0)?;
    // The ends' own ranges, and what sizes between deviate from the shape; independent.
    let spread = |end: f64| (end / mid - 1.0).hypot(shape.error);
    let end = |low, high| at(low, high).unwrap_or_default();
    let (below, above) = (spread(end(from.range.low, to.range.low)), spread(end(from.range.high, to.range.high)));
    let time = Estimate::with_factors(Micros::checked(mid)?, 1.0 - below, 1.0 + above, Method::BlackBox);
    Some(Prediction {
        throughput: time.throughput(batch),
        shares: vec![MethodShare { method: Method::BlackBox, device_time: time.range.mid, share: 1.0 }],
        step: StepTime::Predicted(time),
        host_idle: Micros::ZERO,
        ..small.clone()
    })
}
