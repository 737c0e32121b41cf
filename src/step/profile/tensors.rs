//! Attributes that describe the tensors of an operation: memory layout, and element types other than the operation's
//! own.
//!
//! `memory_format` is [`CHANNELS_LAST`] if a tensor of four or five dimensions has the channels of a pixel adjacent in
//! memory (NHWC, NDHWC) and is not also contiguous. `access` is present if a call does not read its tensors in memory
//! order ([`Access`]): for any operation of an op list, but only for element-wise ones in a trace, because others copy
//! first, and traces list such copies. `input_dtypes` and `output_dtypes` name the type of each tensor; they are
//! present only if a tensor with an extent has another type than the operation.

use std::collections::BTreeMap;

use super::{Attribute, DType, Operation, Shape};

/// Attribute for the memory layout.
pub const MEMORY_FORMAT: &str = "memory_format";
/// Value of [`MEMORY_FORMAT`] for channels-last tensors.
pub const CHANNELS_LAST: &str = "channels_last";
/// Attribute for calls that do not read their tensors in memory order.
pub const ACCESS: &str = "access";
/// Attribute for the type of each input.
pub const INPUT_DTYPES: &str = "input_dtypes";
/// Attribute for the type of each result.
pub const OUTPUT_DTYPES: &str = "output_dtypes";

type Attributes = BTreeMap<String, Attribute>;

/// Sets the channels-last attribute.
pub fn note_channels_last(attributes: &mut BTreeMap<String, Attribute>) {
    attributes.insert(MEMORY_FORMAT.to_owned(), Attribute::Text(CHANNELS_LAST.to_owned()));
}

/// Whether the channels-last attribute is set.
pub fn is_channels_last(attributes: &BTreeMap<String, Attribute>) -> bool {
    matches!(attributes.get(MEMORY_FORMAT), Some(Attribute::Text(order)) if order == CHANNELS_LAST)
}

/// Access pattern of a call that does not read its tensors in memory order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Parts of rows, or rows in another order.
    Strided,
    /// Adjacent elements of one tensor are not adjacent in another.
    Transposed,
}

impl Access {
    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strided => "strided",
            Self::Transposed => "transposed",
        }
    }

    /// The pattern with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Strided, Self::Transposed].into_iter().find(|access| access.name() == name)
    }

    /// Pattern of an operation, if it has one.
    pub fn of(operation: &Operation) -> Option<Self> {
        match operation.attributes.get(ACCESS) {
            Some(Attribute::Text(name)) => Self::named(name),
            _ => None,
        }
    }

    /// Sets the attribute.
    pub fn note(self, attributes: &mut Attributes) {
        attributes.insert(ACCESS.to_owned(), Attribute::Text(self.name().to_owned()));
    }
}

/// Sets the types of tensors as attribute `name` if one with an extent differs from `own`; an unknown type counts as
/// `own`.
pub fn note_dtypes<'a>(
    attributes: &mut Attributes,
    name: &str,
    own: Option<&DType>,
    tensors: impl Iterator<Item = (&'a Shape, Option<&'a DType>)> + Clone,
) {
    let Some(own) = own else { return };
    if tensors.clone().all(|(shape, dtype)| shape.is_empty() || dtype.is_none_or(|dtype| dtype == own)) {
        return;
    }
    let names = tensors.map(|(_, dtype)| Attribute::Text(dtype.unwrap_or(own).name().to_owned()));
    attributes.insert(name.to_owned(), Attribute::List(names.collect()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_noted_only_where_they_differ() {
        let (matrix, number): (Shape, Shape) = (vec![4, 4], Vec::new());
        let (half, single, double) = (DType::Float16, DType::Float32, DType::Float64);
        let noted = |tensors: &[(&Shape, Option<&DType>)]| {
            let mut attributes = Attributes::new();
            note_dtypes(&mut attributes, INPUT_DTYPES, Some(&half), tensors.iter().copied());
            attributes.remove(INPUT_DTYPES)
        };
        assert_eq!(noted(&[(&matrix, Some(&half)), (&matrix, None)]), None);
        // A scalar wrapped in a tensor does not count.
        assert_eq!(noted(&[(&matrix, Some(&half)), (&number, Some(&double))]), None);
        let named = ["float16", "float32", "float16"].map(|name| Attribute::Text(name.to_owned()));
        let mixed = noted(&[(&matrix, Some(&half)), (&matrix, Some(&single)), (&matrix, None)]);
        assert_eq!(mixed, Some(Attribute::List(named.to_vec())));
    }
}
