//! Row operations: softmax and normalisation.

use super::name::{NormalisationForm, StreamForm};
use super::{Pass, Primitive, RowsKind, Stream, largest, volume};
use crate::profile::{Attribute, Operation, Shape};

/// Softmax or a normalisation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rows {
    /// Operation on each row; `None` for normalisation by channels, which passes over the whole tensor.
    pub kind: Option<RowsKind>,
    /// Elements of the tensor.
    pub size: f64,
    /// Elements of a row.
    pub width: f64,
    /// Number of times that the tensor is read or written.
    pub passes: f64,
    /// Minimum traffic and FLOPs.
    pub stream: Stream,
}

impl Rows {
    /// Softmax along the last dimension of the largest tensor.
    pub(super) fn softmax(operation: &Operation, pass: Pass) -> Option<Self> {
        let stream = Stream::with(operation, StreamForm::Plain, 5.0)?;
        let (size, width) = extents(operation);
        let passes = if pass.is_backward() { 3.0 } else { 2.0 };
        Some(Self { kind: Some(RowsKind::Softmax), size, width, passes, stream })
    }

    /// Normalisation along the last dimension of the largest tensor, or over the extents of the scale.
    pub(super) fn normalisation(operation: &Operation, pass: Pass, form: NormalisationForm) -> Option<Self> {
        let stream = Stream::with(operation, StreamForm::Plain, 7.0)?;
        let (size, last) = extents(operation);
        if form != NormalisationForm::Row {
            // First the statistics, then the result: two reads and a write. Backward reads both tensors twice. With
            // running statistics one pass is enough.
            let size = largest(&operation.inputs).max(largest(&operation.outputs));
            let is_known = form == NormalisationForm::ChannelWithStatistics
                || operation.attributes.get("training") == Some(&Attribute::Bool(false));
            let passes = match (is_known, pass.is_backward()) {
                (true, false) => 2.0,
                (_, false) | (true, true) => 3.0,
                (false, true) => 5.0,
            };
            return Some(Self { kind: None, size, width: size, passes, stream });
        }
        // Backward also receives the mean of each row, whose extents do not match a scale's.
        let tensor = operation.inputs.iter().max_by(|a, b| volume(a).total_cmp(&volume(b)))?;
        let is_scale = |shape: &&Shape| shape.len() > 1 && shape.len() < tensor.len() && tensor.ends_with(shape);
        let width = operation.inputs.iter().skip(1).find(is_scale).map_or(last, volume);
        // Backward reads two tensors for the gradient of the input, and again for those of scale and shift.
        let passes = if pass.is_backward() { 5.0 } else { 2.0 };
        Some(Self { kind: Some(RowsKind::Normalisation), size, width, passes, stream })
    }

    pub(super) fn primitive(&self) -> Primitive {
        let moved = self.size * self.passes;
        match self.kind {
            Some(kind) => Primitive::Rows { kind, rows: self.size / self.width, width: self.width, moved },
            None => Primitive::Stream { moved },
        }
    }
}

/// Elements of the largest input and of its last dimension; 0 without inputs.
fn extents(operation: &Operation) -> (f64, f64) {
    let tensor = operation.inputs.iter().max_by(|a, b| volume(a).total_cmp(&volume(b)));
    let last = tensor.and_then(|tensor| tensor.last()).map_or(0.0, |&last| last as f64);
    (tensor.map_or(0.0, volume), last)
}
