//! Arguments of operator calls: shapes, element types and scalars, and the notation in which
//! PyTorch writes them (its profiler and `emit_nvtx` share it).

use serde_json::Value;

use crate::profile::{Attribute, DType, Shape};

/// Tensors listed at most: a fused optimizer takes thousands.
pub(crate) const TENSORS: usize = 4096;
/// Characters of a textual argument.
const TEXT: usize = 64;

/// The tensors that a call was given, those of lists one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tensors {
    /// An empty shape is a number wrapped in a tensor.
    pub(crate) shapes: Vec<Shape>,
    /// That of the first floating-point tensor (wrapped numbers last), else of the first.
    pub(crate) dtype: Option<DType>,
}

impl Tensors {
    /// Whether any of them has an extent.
    pub(crate) fn has_extents(&self) -> bool {
        self.shapes.iter().any(|shape| !shape.is_empty())
    }

    /// From PyTorch's `Input Dims` and `Input type`, two JSON lists by position.
    pub(super) fn from_pytorch(dims: &[u8], types: &[u8]) -> Self {
        let dims: Vec<Value> = serde_json::from_slice(dims).unwrap_or_default();
        let types: Vec<Value> = serde_json::from_slice(types).unwrap_or_default();
        let mut shapes: Vec<Shape> = Vec::new();
        let mut dtypes: Vec<(bool, DType)> = Vec::new();
        for (index, dim) in dims.iter().enumerate() {
            let Value::Array(extents) = dim else { continue };
            let kind = types.get(index).and_then(Value::as_str);
            if extents.iter().any(Value::is_array) {
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
        Self { shapes, dtype: leading(&dtypes) }
    }

    /// From shapes with their element types, where these are known.
    pub(super) fn new(tensors: impl IntoIterator<Item = (Shape, Option<DType>)>) -> Self {
        let mut dtypes = Vec::new();
        let shapes = tensors.into_iter().map(|(shape, dtype)| {
            dtypes.extend(dtype.map(|dtype| (shape.is_empty(), dtype)));
            shape
        });
        let shapes = shapes.collect();
        Self { shapes, dtype: leading(&dtypes) }
    }
}

/// The element type of a call, from those of its tensors and whether each is a wrapped number.
fn leading(dtypes: &[(bool, DType)]) -> Option<DType> {
    dtypes
        .iter()
        .find(|(scalar, dtype)| !scalar && dtype.is_floating())
        .or_else(|| dtypes.iter().find(|(scalar, _)| !scalar))
        .or_else(|| dtypes.first())
        .map(|(_, dtype)| dtype.clone())
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

/// Scalars and lists of them by the position of the argument; `None` for tensors and for what
/// was not given.
pub(crate) type Scalars = Vec<Option<Attribute>>;

/// From PyTorch's `Concrete Inputs`, a JSON list of texts by position.
pub(super) fn scalars_from_pytorch(values: &[u8]) -> Scalars {
    let values: Vec<Value> = serde_json::from_slice(values).unwrap_or_default();
    values.iter().map(|value| scalar(value.as_str()?)).collect()
}

/// A value as `Concrete Inputs` writes it: `[1, 1]`, `False`, `0.5`; `None` where it is
/// empty or was not given.
fn scalar(text: &str) -> Option<Attribute> {
    let text = text.trim();
    if let Some(items) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let items = items.split(',').map(str::trim).filter(|item| !item.is_empty()).take(64);
        return Some(Attribute::List(items.filter_map(scalar).collect()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tensors_have_shapes() {
        let tensors = |dims: &str, types: &str| {
            let tensors = Tensors::from_pytorch(dims.as_bytes(), types.as_bytes());
            (tensors.shapes, tensors.dtype)
        };
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
    fn scalars_keep_their_positions() {
        let scalars = scalars_from_pytorch(br#"["", "[1, 1]", "False", "0.5", "None", 7, "mean"]"#);
        let ints = Attribute::List(vec![Attribute::Int(1), Attribute::Int(1)]);
        let (half, mean) = (Attribute::Float(0.5), Attribute::Text("mean".to_owned()));
        assert_eq!(scalars, [None, Some(ints), Some(Attribute::Bool(false)), Some(half), None, None, Some(mean)]);
        assert!(scalars_from_pytorch(b"nonsense").is_empty());
    }
}
