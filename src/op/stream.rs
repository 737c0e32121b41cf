//! Operators that pass over memory: one result an element, parameter updates, copies.

use super::name::StreamForm;
use super::{Arithmetic, Work, largest, total, volume};
use crate::profile::{Attribute, Operation, Shape};
use crate::units::{Bytes, Flops};

/// Elements read and written in passing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stream {
    /// Elements read and written.
    pub moved: f64,
    /// Elements of masks read and written, of one byte.
    pub masks: f64,
    /// Floating-point operations.
    pub flops: f64,
}

impl Stream {
    pub(super) fn of(operation: &Operation, form: StreamForm) -> Option<Self> {
        Self::with(operation, form, 1.0)
    }

    /// Inputs read, outputs written, `per_element` operations on each element of the result;
    /// a missing output is taken to be as large as the largest input.
    pub(super) fn with(operation: &Operation, form: StreamForm, per_element: f64) -> Option<Self> {
        let (inputs, outputs) = (&operation.inputs, &operation.outputs);
        if inputs.is_empty() && outputs.is_empty() {
            return None;
        }
        let read = total(inputs);
        let largest = largest(inputs);
        let is_known = !outputs.is_empty();
        let written = if is_known { total(outputs) } else { largest };
        let masks = match form {
            StreamForm::Masked(mask) => inputs.get(mask).map_or(0.0, volume),
            StreamForm::Dropout => largest,
            _ => 0.0,
        };
        let (moved, flops) = match form {
            StreamForm::Update(most) => (read * (2.0 - 1.0 / lists(inputs, most)), per_element * read),
            StreamForm::Foreach { lists: most, unread } => {
                let written = if is_known { written } else { read / lists(inputs, most) };
                (read + (1.0 - unread) * written, per_element * read)
            }
            // What is overwritten is not read.
            StreamForm::Fill => (written.max(largest), 0.0),
            StreamForm::Copy => (2.0 * largest, 0.0),
            StreamForm::Concatenation => (read + written.max(read), 0.0),
            StreamForm::SliceGradient => {
                let sizes = operation.attributes.get("input_sizes").and_then(Attribute::as_ints);
                let whole = sizes.map_or(0.0, |sizes| sizes.iter().map(|&size| size.max(0) as f64).product());
                (read + if is_known { written } else { written.max(whole) }, 0.0)
            }
            StreamForm::Dropout => (read + largest, per_element * largest),
            StreamForm::Plain | StreamForm::Rearrangement | StreamForm::Masked(_) => {
                (read - masks + written, per_element * written.max(largest))
            }
        };
        Some(Self { moved, masks, flops })
    }

    /// Elements of `element` bytes that are as much traffic.
    pub(super) fn elements(&self, element: f64) -> f64 {
        self.moved + self.masks / element
    }

    pub(super) fn work(&self, element: f64) -> Work {
        Work {
            flops: Flops::known(self.flops),
            bytes: Bytes::known(self.elements(element) * element),
            arithmetic: Arithmetic::Vector,
        }
    }
}

/// How many lists of equal tensors an operator was given, of the numbers there may be: numbers
/// without an extent, as fused optimizers count steps, are one to each tensor of a list.
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
