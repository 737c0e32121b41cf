//! From the recorded arguments of an operator to shapes, element type and attributes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::outputs;
use crate::op;
use crate::profile::{Attribute, DType, Shape};

/// Tensors listed at most: a fused optimizer takes thousands.
const TENSORS: usize = 4096;
/// Characters of a textual argument.
const TEXT: usize = 64;

/// What is known of an operator call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) inputs: Vec<Shape>,
    pub(super) outputs: Vec<Shape>,
    pub(super) dtype: Option<DType>,
    pub(super) attributes: BTreeMap<String, Attribute>,
    /// Stride and padding were worked out from shapes.
    pub(super) inferred: bool,
}

/// Describes a call from the texts of `Input Dims`, `Input type` and `Concrete Inputs`,
/// and the shapes of its results where those are known.
pub(super) fn describe(name: &str, dims: &str, types: &str, values: &str, known_outputs: &[Shape]) -> Description {
    let (inputs, dtype) = tensors(dims, types);
    let attributes = attributes(name, values);
    let mut description = Description { name: name.to_owned(), inputs, dtype, attributes, ..Description::default() };
    // With `out=` the result is an argument too.
    description.inputs.truncate(op::name::tensors(name).unwrap_or(TENSORS));
    present_name(&mut description);
    outputs::complete(&mut description, known_outputs);
    description
}

/// The shapes of the tensor arguments, and their element type: that of the first
/// floating-point one (wrapped numbers last), else of the first.
pub(super) fn tensors(dims: &str, types: &str) -> (Vec<Shape>, Option<DType>) {
    let dims: Vec<Value> = serde_json::from_str(dims).unwrap_or_default();
    let types: Vec<Value> = serde_json::from_str(types).unwrap_or_default();
    let mut shapes: Vec<Shape> = Vec::new();
    let mut dtypes: Vec<(bool, DType)> = Vec::new();
    for (index, dim) in dims.iter().enumerate() {
        let Value::Array(extents) = dim else { continue };
        let kind = types.get(index).and_then(Value::as_str);
        let is_list = extents.iter().any(Value::is_array);
        if is_list {
            dtypes.extend(kind.and_then(|kind| tensor_type(kind, false)).map(|dtype| (false, dtype)));
            shapes.extend(extents.iter().filter_map(shape));
        } else if let Some(shape) = shape(dim) {
            let dtype = kind.and_then(|kind| tensor_type(kind, !shape.is_empty()));
            if let Some(dtype) = dtype {
                dtypes.push((shape.is_empty(), dtype));
                shapes.push(shape);
            } else if !shape.is_empty() {
                shapes.push(shape);
            }
        }
        if shapes.len() >= TENSORS {
            shapes.truncate(TENSORS);
            break;
        }
    }
    let floating = |dtype: &DType| {
        matches!(
            dtype,
            DType::Float64 | DType::Float32 | DType::Float16 | DType::Bfloat16 | DType::Float8E4m3 | DType::Float8E5m2
        )
    };
    let dtype = dtypes
        .iter()
        .find(|(scalar, dtype)| !scalar && floating(dtype))
        .or_else(|| dtypes.iter().find(|(scalar, _)| !scalar))
        .or_else(|| dtypes.first())
        .map(|(_, dtype)| dtype.clone());
    (shapes, dtype)
}

fn shape(value: &Value) -> Option<Shape> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

/// The element type that a recorded argument type names; `None` for arguments that are
/// no tensors (`Scalar`, `ScalarList`, `GenericList`, `Int`, `Bool`, empty …).
fn tensor_type(kind: &str, has_extent: bool) -> Option<DType> {
    Some(match kind {
        "float" => DType::Float32,
        "double" => DType::Float64,
        "c10::Half" => DType::Float16,
        "c10::BFloat16" => DType::Bfloat16,
        "c10::Float8_e4m3fn" | "c10::Float8_e4m3fnuz" => DType::Float8E4m3,
        "c10::Float8_e5m2" | "c10::Float8_e5m2fnuz" => DType::Float8E5m2,
        "long int" | "long" => DType::Int64,
        "int" => DType::Int32,
        "short int" | "short" => DType::Int16,
        "signed char" => DType::Int8,
        "unsigned char" => DType::Uint8,
        "bool" => DType::Bool,
        other if has_extent && !other.is_empty() => DType::Other(crate::text::clean(other, 40)),
        _ => return None,
    })
}

fn attributes(name: &str, values: &str) -> BTreeMap<String, Attribute> {
    let positions = op::name::positions(name);
    if positions.is_empty() || values.is_empty() {
        return BTreeMap::new();
    }
    let values: Vec<Value> = serde_json::from_str(values).unwrap_or_default();
    positions
        .iter()
        .filter_map(|(position, attribute)| {
            Some(((*attribute).to_owned(), read_attribute(values.get(*position)?.as_str()?)?))
        })
        .collect()
}

/// A value as `Concrete Inputs` writes it: `[1, 1]`, `False`, `0.5`; `None` where it is
/// empty or was not given.
fn read_attribute(text: &str) -> Option<Attribute> {
    let text = text.trim();
    if let Some(items) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let items = items.split(',').map(str::trim).filter(|item| !item.is_empty()).take(64);
        return Some(Attribute::List(items.filter_map(read_attribute).collect()));
    }
    Some(match text {
        "" | "None" => return None,
        "True" | "true" => Attribute::Bool(true),
        "False" | "false" => Attribute::Bool(false),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => Attribute::Int(number),
            (_, Ok(number)) if number.is_finite() => Attribute::Float(number),
            _ => Attribute::Text(crate::text::clean(text, TEXT)),
        },
    })
}

/// Operators that PyTorch has renamed are written with their present name and argument
/// order, so that predictors know one of them.
fn present_name(description: &mut Description) {
    if let Some(name) = op::name::gradients_since(&description.name)
        && description.inputs.len() >= 3
    {
        name.clone_into(&mut description.name);
        description.inputs.swap(0, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tensors_have_shapes() {
        let (shapes, dtype) =
            tensors("[[1000], [32, 2048], [2048, 1000], [], []]", r#"["float", "float", "float", "Int", "Scalar"]"#);
        assert_eq!(shapes, [vec![1000], vec![32, 2048], vec![2048, 1000]]);
        assert_eq!(dtype, Some(DType::Float32));
        // A wrapped number is a tensor without extent and does not give the type.
        let (shapes, dtype) = tensors("[[], [4, 4]]", r#"["double", "c10::Half"]"#);
        assert_eq!(shapes, [vec![], vec![4, 4]]);
        assert_eq!(dtype, Some(DType::Float16));
        // Lists of tensors, and traces without types.
        assert_eq!(tensors("[[[2, 3], [4]], []]", r#"["TensorList", "Scalar"]"#).0, [vec![2, 3], vec![4]]);
        assert_eq!(tensors("[[2, 3], []]", "[]"), (vec![vec![2, 3]], None));
        assert_eq!(tensors("nonsense", "{}"), (vec![], None));
    }

    #[test]
    fn attributes_are_read_by_position() {
        let call = describe(
            "aten::convolution_backward",
            "[[10, 512, 7, 7], [10, 512, 7, 7], [512, 512, 3, 3], [], [], [], [], [], [], [], []]",
            r#"["float", "float", "float", "ScalarList", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar", "ScalarList"]"#,
            r#"["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]"#,
            &[],
        );
        assert_eq!(call.attributes["stride"].as_ints(), Some(vec![1, 1]));
        assert_eq!(call.attributes["groups"], Attribute::Int(1));
        assert_eq!(call.attributes["transposed"], Attribute::Bool(false));
    }

    #[test]
    fn renamed_operators_take_their_present_argument_order() {
        let call = describe(
            "aten::cudnn_convolution_backward",
            "[[32, 512, 7, 7], [32, 2048, 7, 7], [2048, 512, 1, 1]]",
            r#"["float", "float", "float"]"#,
            "",
            &[],
        );
        assert_eq!(call.name, "aten::convolution_backward");
        assert_eq!(call.inputs[0], [32, 2048, 7, 7]);
    }
}
