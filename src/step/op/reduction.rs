//! Sums, norms and losses.

use super::moved::Moved;
use super::name::ReductionForm;
use super::{Pass, Stream, largest, total, volume};
use crate::profile::{Operation, Shape};

/// Traffic of a reduction: all inputs read, the small result written.
///
/// The negative log likelihood reads one element of each row, and its gradient writes a whole matrix. Gradients of
/// other losses are as large as their largest input.
pub(super) fn moved(operation: &Operation, pass: Pass, form: ReductionForm) -> Option<Stream> {
    if form == ReductionForm::Distances {
        return distances(operation, pass);
    }
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

/// Distances between the rows of two matrices, per feature: a difference, its absolute value or power, and a sum.
/// Backward reads the gradient, both matrices and the distances, writes the gradient of every difference and then sums
/// these (`cdist_backward` in `PyTorch`'s DistanceKernel.cu).
fn distances(operation: &Operation, pass: Pass) -> Option<Stream> {
    let first = usize::from(pass.is_backward());
    let [one, other] = operation.inputs.get(first..first + 2)? else { return None };
    let (rows, features) = (*other.get(other.len().checked_sub(2)?)?, *one.last()?);
    let differences = volume(one) * rows as f64;
    let pairs = if features > 0 { differences / features as f64 } else { 0.0 };
    let moved = total(&operation.inputs) + if pass.is_backward() { 2.0 * differences + volume(one) } else { pairs };
    Some(Stream { moved, other_bytes: 0.0, flops: 3.0 * differences })
}
