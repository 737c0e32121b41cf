//! What the attributes of an operation say of its tensors: their order in memory, and the types
//! of elements that are not the operation's own.
//!
//! `memory_format` is [`CHANNELS_LAST`] where a tensor of four or five dimensions has the
//! channels of a pixel side by side (NHWC, NDHWC) and is not in the usual order as well.
//! `access` is there where a call does not pass over its tensors as they lie in memory ([`Access`]): of any operation of
//! an op list; in a trace of those with one result an element, since others copy first, and traces list such copies.
//! `input_dtypes` and `output_dtypes` name the type of each tensor, and are there only where a
//! tensor with an extent has another type than the operation.

use std::collections::BTreeMap;

use super::{Attribute, DType, Operation, Shape};

/// The attribute with the order in memory.
pub const MEMORY_FORMAT: &str = "memory_format";
/// Its value where channels come last.
pub const CHANNELS_LAST: &str = "channels_last";
/// The attribute of calls that do not pass over their tensors as they lie in memory.
pub const ACCESS: &str = "access";
/// The attribute with the type of each input.
pub const INPUT_DTYPES: &str = "input_dtypes";
/// The attribute with the type of each result.
pub const OUTPUT_DTYPES: &str = "output_dtypes";

type Attributes = BTreeMap<String, Attribute>;

/// Notes that channels come last.
pub fn note_channels_last(attributes: &mut BTreeMap<String, Attribute>) {
    attributes.insert(MEMORY_FORMAT.to_owned(), Attribute::Text(CHANNELS_LAST.to_owned()));
}

/// Whether that was noted.
pub fn is_channels_last(attributes: &BTreeMap<String, Attribute>) -> bool {
    matches!(attributes.get(MEMORY_FORMAT), Some(Attribute::Text(order)) if order == CHANNELS_LAST)
}

/// How a call passes over its tensors, where not as they lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Over parts of rows, or rows in another order.
    Strided,
    /// Neighbours in one tensor are none in another.
    Transposed,
}

impl Access {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strided => "strided",
            Self::Transposed => "transposed",
        }
    }

    /// By its name in files.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Strided, Self::Transposed].into_iter().find(|access| access.name() == name)
    }

    /// What is said of an operation.
    pub fn of(operation: &Operation) -> Option<Self> {
        match operation.attributes.get(ACCESS) {
            Some(Attribute::Text(name)) => Self::named(name),
            _ => None,
        }
    }

    /// Notes it.
    pub fn note(self, attributes: &mut Attributes) {
        attributes.insert(ACCESS.to_owned(), Attribute::Text(self.name().to_owned()));
    }
}

/// Notes the types of tensors under `name`, where one with an extent has another than `own`; a
/// type that is not known is taken to be `own`.
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
        // A number wrapped in a tensor is a number.
        assert_eq!(noted(&[(&matrix, Some(&half)), (&number, Some(&double))]), None);
        let named = ["float16", "float32", "float16"].map(|name| Attribute::Text(name.to_owned()));
        let mixed = noted(&[(&matrix, Some(&half)), (&matrix, Some(&single)), (&matrix, None)]);
        assert_eq!(mixed, Some(Attribute::List(named.to_vec())));
    }
}
