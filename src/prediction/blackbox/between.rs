//! Interpolates between two sizes that were predicted or measured.

use super::min_max::MinMax;
use super::{BlackBoxModel, Shape};
use crate::estimate::{Estimate, MethodShare, StepTime};
use crate::finding::Finding;
use crate::method::Method;
use crate::predictions::{Prediction, Predictions};
use habitat_base::units::{GpuSlug, Micros};

/// Dimension of the interpolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// The batch size.
    Batch,
    /// Side of square images, at a fixed batch size.
    Pixels,
}

/// Reason that a size cannot be interpolated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BetweenError {
    /// The size is outside the two given ones.
    #[error("size {size} is not between {small} and {large}; only sizes between them can be interpolated")]
    Outside {
        /// Requested size.
        size: u64,
        /// Smallest size.
        small: u64,
        /// Largest size.
        large: u64,
    },
    /// The black boxes have different anchors.
    #[error("the two black boxes were measured on different GPUs: {0} and {1}")]
    Anchors(String, String),
    /// The black boxes of two image sizes have different batch sizes.
    #[error("the two black boxes have batch sizes {0} and {1}; to interpolate image sizes they must be equal")]
    Batches(u64, u64),
    /// The interpolated time is not above 0.
    #[error("no valid step time between the two sizes on {0}; the two black boxes seem to be of different programs")]
    NoTime(GpuSlug),
    /// The model has no growth polynomial for the GPU.
    #[error("the black-box model has no data on how steps grow on {0}")]
    NoShape(GpuSlug),
}

/// Interpolates predictions at `size` from those of the same program at the two `sizes`, on the same GPUs in the same
/// order.
///
/// # Errors
/// [`BetweenError`] if the size is outside or the predictions do not belong together.
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
    notes.push(Finding::Interpolated { pixels: axis == Axis::Pixels, sizes });
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
    // Combines the ends' own ranges with the error of the polynomial, assumed independent.
    let spread = |end: f64| (end / mid - 1.0).hypot(shape.error);
    let end = |low, high| at(low, high).unwrap_or_default();
    let (below, above) = (spread(end(from.range.low, to.range.low)), spread(end(from.range.high, to.range.high)));
    let time = Estimate::with_factors(Micros::checked(mid)?, 1.0 - below, 1.0 + above, Method::BlackBox);
    Some(Prediction {
        throughput: time.throughput(batch),
        shares: vec![MethodShare { method: Method::BlackBox, device_time: time.range.mid, share: 1.0 }],
        step: StepTime::Predicted(time),
        host_idle: Micros::ZERO,
        device: time.range.mid,
        ..small.clone()
    })
}
