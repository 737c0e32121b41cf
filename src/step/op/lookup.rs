//! Table look-ups and their gradients.

use super::name::LookupForm;
use super::{Pass, Stream, elements, largest, volume};
use crate::profile::{Attribute, Operation};

/// Traffic of a look-up or its gradient. A look-up reads at most the whole table and writes its result. The gradient of
/// a table is written as a whole.
pub(super) fn moved(operation: &Operation, pass: Pass, form: LookupForm) -> Option<Stream> {
    let (first, second) = (operation.inputs.first()?, operation.inputs.get(1));
    let written = largest(&operation.outputs);
    // Repeated reads of an element come from the cache.
    let with_read = |result: f64| result + result.min(volume(first));
    let moved = match form {
        _ if pass.is_backward() => {
            // Inputs: gradient of the result, indices. The table has `num_weights` rows.
            let rows = operation.attributes.get("num_weights").and_then(Attribute::as_int).unwrap_or(0).max(0) as f64;
            let table = written.max(rows * *first.last()? as f64);
            volume(first) + if table > 0.0 { table } else { volume(first) }
        }
        // Inputs: table [rows, width], indices. The rows of a bag are summed.
        LookupForm::Embedding => {
            let rows = second.map(|indices| volume(indices) * first.last().map_or(0.0, |&width| width as f64));
            rows.unwrap_or(written).min(volume(first)) + operation.outputs.first().map_or(rows?, volume)
        }
        LookupForm::Scatter { in_place } | LookupForm::Put { in_place } => {
            // Writes the values to their elements. An operator with its own result copies the whole tensor first.
            let copied = if in_place { 0.0 } else { 2.0 * volume(first) };
            2.0 * largest(&operation.inputs[1..]) + copied
        }
        _ if written > 0.0 => with_read(written),
        // One element per index.
        LookupForm::Gather => with_read(volume(second?)),
        // Inputs: tensor, then indices into one dimension or into each of the leading ones.
        LookupForm::Index => {
            let indices = &operation.inputs[1..];
            let dim = operation.attributes.get("dim").and_then(Attribute::as_int).unwrap_or(0);
            let dim = usize::try_from(dim.rem_euclid(first.len().max(1) as i64)).ok()?;
            let indexed = elements(first.iter().as_slice().get(dim..(dim + indices.len()).min(first.len()))?);
            with_read(volume(first) * if indices.is_empty() { 1.0 } else { largest(indices) / indexed.max(1.0) })
        }
    };
    (moved > 0.0).then_some(Stream { moved, ..Stream::default() })
}
