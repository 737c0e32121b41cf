//! Sums, norms and losses.

use super::moved::Moved;
use super::name::ReductionForm;
use super::{Pass, Stream, largest, total, volume};
use crate::profile::{Operation, Shape};

/// Inputs read, the (small) result written.
///
/// The negative log likelihood picks one number of each row and writes a whole matrix in
/// backward; the gradients of other losses are as large as their largest input.
pub(super) fn moved(operation: &Operation, pass: Pass, form: ReductionForm) -> Option<Stream> {
    let (read, largest) = (total(&operation.inputs), largest(&operation.inputs));
    let each = Moved::inputs(operation);
    let from: Moved = each.iter().copied().sum();
    let moved = match form {
        ReductionForm::Likelihood if pass.is_backward() => from,
        ReductionForm::Likelihood => {
            let is_matrix = |shape: &Shape| volume(shape) == largest;
            let matrix = operation.inputs.iter().position(is_matrix);
            each.iter().enumerate().filter(|(index, _)| Some(*index) != matrix).map(|(_, moved)| *moved).sum()
        }
        _ if !operation.outputs.is_empty() => from + Moved::outputs(operation).into_iter().sum(),
        ReductionForm::Scan => from + Moved::own(largest),
        _ if pass.is_backward() => from + Moved::own(largest),
        _ => from,
    };
    let flops = match form {
        ReductionForm::Likelihood if !pass.is_backward() => read - largest,
        _ => read,
    };
    (read > 0.0).then_some(Stream { moved: moved.elements, other_bytes: moved.other_bytes, flops })
}
