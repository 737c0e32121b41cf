//! Element-wise operators, parameter updates and copies: one pass over memory.

use super::moved::Moved;
use super::name::StreamForm;
use super::{Arithmetic, Work, largest, total};
use crate::profile::tensors::OUTPUT_DTYPES;
use crate::profile::{Attribute, Operation, Shape};
use habitat_base::units::{Bytes, Flops};

/// One pass over memory.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stream {
    /// Elements of the operation's own type read and written.
    pub moved: f64,
    /// Bytes read and written of elements of other types, such as masks.
    pub other_bytes: f64,
    /// Floating-point operations.
    pub flops: f64,
}

impl Stream {
    pub(super) fn of(operation: &Operation, form: StreamForm) -> Option<Self> {
        Self::with(operation, form, 1.0)
    }

    /// Traffic of inputs read and outputs written, with `per_element` operations per element of the result. A missing
    /// output is assumed to be as large as the largest input.
    pub(super) fn with(operation: &Operation, form: StreamForm, per_element: f64) -> Option<Self> {
        let (inputs, outputs) = (&operation.inputs, &operation.outputs);
        if inputs.is_empty() && outputs.is_empty() {
            return None;
        }
        let (read, largest) = (total(inputs), largest(inputs));
        let mut each = Moved::inputs(operation);
        if let StreamForm::Masked(mask) = form
            && let Some(mask) = each.get_mut(mask)
        {
            // A mask has one byte per element, whether its type was recorded or not.
            *mask = Moved::other(mask.elements + mask.other_bytes);
        }
        let from: Moved = each.iter().copied().sum();
        let is_known = !outputs.is_empty();
        let written = if is_known { total(outputs) } else { largest };
        let to: Moved = match form {
            StreamForm::Comparison if !operation.attributes.contains_key(OUTPUT_DTYPES) => Moved::other(written),
            _ if is_known => Moved::outputs(operation).into_iter().sum(),
            _ => Moved::own(largest),
        };
        let (moved, flops) = match form {
            StreamForm::Update(most) => (from * (2.0 - 1.0 / lists(inputs, most)), per_element * read),
            StreamForm::Foreach { lists: most, unread } => {
                let to = if is_known { to } else { from * (1.0 / lists(inputs, most)) };
                (from + to * (1.0 - unread), per_element * read)
            }
            // The overwritten tensor is not read.
            StreamForm::Fill => (if written < largest { Moved::own(largest) } else { to }, 0.0),
            StreamForm::Copy => match each[..] {
                // Destination and source; a broadcast source is read once.
                [to, from] if outputs.first().is_none_or(|result| result == &inputs[0]) => (from + to, 0.0),
                _ => (Moved::own(2.0 * largest), 0.0),
            },
            StreamForm::Concatenation => (from + if written < read { from } else { to }, 0.0),
            StreamForm::SliceGradient => {
                let sizes = operation.attributes.get("input_sizes").and_then(Attribute::as_ints);
                let whole = sizes.map_or(0.0, |sizes| sizes.iter().map(|&size| size.max(0) as f64).product());
                (from + if is_known { to } else { Moved::own(written.max(whole)) }, 0.0)
            }
            // Dropout also writes a mask of one byte per element.
            StreamForm::Dropout => (from + Moved::own(largest) + Moved::other(largest), per_element * largest),
            StreamForm::Plain | StreamForm::Rearrangement | StreamForm::Comparison | StreamForm::Masked(_) => {
                (from + to, per_element * written.max(largest))
            }
        };
        Some(Self { moved: moved.elements, other_bytes: moved.other_bytes, flops })
    }

    /// Equivalent traffic in elements of `element` bytes.
    pub(super) fn elements(&self, element: f64) -> f64 {
        self.moved + self.other_bytes / element
    }

    pub(super) fn work(&self, element: f64) -> Work {
        Work {
            flops: Flops::known(self.flops),
            bytes: Bytes::known(self.elements(element) * element),
            arithmetic: Arithmetic::Vector,
        }
    }
}

/// Number of equally long lists among the inputs, out of `may_be`. Scalars, such as the step counts of fused
/// optimizers, come once per tensor of a list.
fn lists(inputs: &[Shape], may_be: &[usize]) -> f64 {
    let tensors: Vec<&Shape> = inputs.iter().filter(|shape| !shape.is_empty()).collect();
    let steps = inputs.len() - tensors.len();
    let fits = |lists: &&usize| {
        let length = tensors.len() / **lists;
        length * **lists == tensors.len()
            && if steps > 0 {
                length == steps
            } else {
                tensors.chunks(length.max(1)).all(|list| *list == tensors[..length])
            }
    };
    may_be.iter().find(fits).or(may_be.first()).map_or(1.0, |&lists| lists as f64)
}
