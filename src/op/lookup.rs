//! Table look-ups and their gradients.

use super::name::LookupForm;
use super::{Pass, Stream, largest, volume};
use crate::profile::{Attribute, Operation};

/// A look-up moves its result twice, and its indices; the table is not read as a whole.
/// The gradient of a table is written as a whole.
pub(super) fn moved(operation: &Operation, pass: Pass, form: LookupForm) -> Option<Stream> {
    let (first, second) = (operation.inputs.first()?, operation.inputs.get(1));
    let written = largest(&operation.outputs);
    let moved = match form {
        _ if pass.is_backward() => {
            // Inputs: gradient of the result, indices. `num_weights` rows of the table.
            let rows = operation.attributes.get("num_weights").and_then(Attribute::as_int).unwrap_or(0).max(0) as f64;
            let table = rows * *first.last()? as f64;
            volume(first) + written.max(table).max(volume(first))
        }
        LookupForm::Scatter { in_place } | LookupForm::Put { in_place } => {
            // The values go to their elements; a result of its own is a copy of the whole first.
            let copied = if in_place { 0.0 } else { 2.0 * volume(first) };
            2.0 * largest(&operation.inputs[1..]) + copied
        }
        _ if written > 0.0 => 2.0 * written,
        // One element for each index.
        LookupForm::Gather => 2.0 * volume(second?),
        // Inputs: table [rows, width], indices.
        LookupForm::Embedding => 2.0 * volume(second?) * *first.last()? as f64,
        // Inputs: tensor, indices into its first dimension.
        LookupForm::Index => {
            let slice = volume(first) / (*first.first()? as f64).max(1.0);
            2.0 * second.map_or_else(|| volume(first), |indices| volume(indices) * slice)
        }
    };
    (moved > 0.0).then_some(Stream { moved, flops: 0.0 })
}
