//! Memory traffic of tensors, each with its own element type.

use std::ops::{Add, Mul};

use super::volume;
use crate::profile::tensors::{INPUT_DTYPES, OUTPUT_DTYPES};
use crate::profile::{Attribute, DType, Operation, Shape};

/// Memory traffic: reads, writes or both.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Moved {
    /// Elements of the operation's own type.
    pub(super) elements: f64,
    /// Bytes of elements of other types.
    pub(super) other_bytes: f64,
}

impl Moved {
    /// Traffic of elements of the operation's own type.
    pub(super) fn own(elements: f64) -> Self {
        Self { elements, other_bytes: 0.0 }
    }

    /// Traffic in bytes of elements of other types.
    pub(super) fn other(bytes: f64) -> Self {
        Self { elements: 0.0, other_bytes: bytes }
    }

    /// Traffic of each input of an operation, read once.
    pub(super) fn inputs(operation: &Operation) -> Vec<Self> {
        Self::each(operation, &operation.inputs, INPUT_DTYPES)
    }

    /// Traffic of each result of an operation, written once.
    pub(super) fn outputs(operation: &Operation) -> Vec<Self> {
        Self::each(operation, &operation.outputs, OUTPUT_DTYPES)
    }

    fn each(operation: &Operation, shapes: &[Shape], told: &str) -> Vec<Self> {
        let types = match operation.attributes.get(told) {
            Some(Attribute::List(types)) if types.len() == shapes.len() => &types[..],
            _ => &[],
        };
        let other = |index: usize| {
            let Attribute::Text(name) = types.get(index)? else { return None };
            let own = operation.dtype.as_ref()?;
            (own.name() != name).then(|| DType::named(name).size_bytes()).flatten()
        };
        let moved = |(index, shape)| match other(index) {
            Some(bytes) => Self::other(volume(shape) * bytes as f64),
            None => Self::own(volume(shape)),
        };
        shapes.iter().enumerate().map(moved).collect()
    }
}

impl Add for Moved {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { elements: self.elements + more.elements, other_bytes: self.other_bytes + more.other_bytes }
    }
}

impl Mul<f64> for Moved {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self { elements: self.elements * times, other_bytes: self.other_bytes * times }
    }
}

impl std::iter::Sum for Moved {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), Add::add)
    }
}
