//! Sums, norms and losses.

use super::name::ReductionForm;
use super::{Pass, Stream, largest, total};
use crate::profile::Operation;

/// Inputs read, the (small) result written.
///
/// The negative log likelihood picks one number of each row and writes a whole matrix in
/// backward; the gradients of other losses are as large as their largest input.
pub(super) fn moved(operation: &Operation, pass: Pass, form: ReductionForm) -> Option<Stream> {
    let (read, largest) = (total(&operation.inputs), largest(&operation.inputs));
    let moved = match form {
        ReductionForm::Likelihood if pass.is_backward() => read,
        ReductionForm::Likelihood => read - largest,
        _ if !operation.outputs.is_empty() => read + total(&operation.outputs),
        ReductionForm::Scan => read + largest,
        _ if pass.is_backward() => read + largest,
        _ => read,
    };
    (read > 0.0).then_some(Stream { moved, flops: moved.min(read), ..Stream::default() })
}
