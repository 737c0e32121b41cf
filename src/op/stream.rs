//! Operators that pass over memory: one result an element, parameter updates, copies.

use super::name::StreamForm;
use super::{Arithmetic, Work, largest, total};
use crate::profile::Operation;
use crate::units::{Bytes, Flops};

/// Elements read and written in passing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stream {
    /// Elements read and written.
    pub moved: f64,
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
        if operation.inputs.is_empty() && operation.outputs.is_empty() {
            return None;
        }
        let read = total(&operation.inputs);
        let largest = largest(&operation.inputs);
        let is_known = !operation.outputs.is_empty();
        let written = if is_known { total(&operation.outputs) } else { largest };
        let (moved, flops) = match form {
            // Lists of parameters, gradients and moments; all but the gradients are written.
            StreamForm::Update(lists) => (read * (2.0 - 1.0 / lists), per_element * read),
            // In place it writes its first list, at least half of what it reads unless it
            // reads nothing else.
            StreamForm::Foreach(lists) => (read + if is_known { written } else { read / lists }, per_element * read),
            // What is overwritten is not read.
            StreamForm::Fill => (written.max(largest), 0.0),
            StreamForm::Copy => (2.0 * largest, 0.0),
            StreamForm::Concatenation => (read + written.max(read), 0.0),
            StreamForm::Plain | StreamForm::Rearrangement => (read + written, per_element * written.max(largest)),
        };
        Some(Self { moved, flops })
    }

    pub(super) fn work(&self, element: f64) -> Work {
        Work {
            flops: Flops::known(self.flops),
            bytes: Bytes::known(self.moved * element),
            arithmetic: Arithmetic::Vector,
        }
    }
}
