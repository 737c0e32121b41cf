//! Arguments of operator calls: shapes, element types and scalars, in PyTorch's notation, which its profiler and
//! `emit_nvtx` share.

use serde_json::Value;

use habitat_step::profile::tensors::Access;
use habitat_step::profile::{Attribute, DType, Shape};

/// Maximum number of tensors per call: a fused optimizer takes thousands.
pub(crate) const TENSORS: usize = 4096;
/// PyTorch's name for a list of tensors.
const LIST: &str = "TensorList";
/// Maximum characters of a text argument.
const TEXT: usize = 64;

/// Tensors passed to a call, with lists flattened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tensors {
    /// Shapes; an empty one is a scalar wrapped in a tensor.
    pub(crate) shapes: Vec<Shape>,
    /// Element type of the first floating-point tensor (wrapped scalars last), otherwise of the first tensor.
    pub(crate) dtype: Option<DType>,
    /// Element type of each tensor, if known.
    pub(crate) dtypes: Vec<Option<DType>>,
    /// Memory layout.
    pub(crate) layout: Layout,
    /// Number of lists of tensors recorded without shapes.
    pub(crate) bare_lists: usize,
}

/// Memory layout of the tensors of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Whether one of them is channels-last and not also contiguous.
    pub(crate) channels_last: bool,
    /// Access pattern, if a call does not read its largest tensors in memory order.
    pub(crate) access: Option<Access>,
}

impl Tensors {
    /// Whether any tensor has at least one dimension.
    pub(crate) fn has_extents(&self) -> bool {
        self.shapes.iter().any(|shape| !shape.is_empty())
    }

    /// From individual tensors.
    pub(crate) fn new(tensors: impl IntoIterator<Item = (Shape, Option<DType>)>) -> Self {
        let (shapes, dtypes): (Vec<Shape>, Vec<Option<DType>>) = tensors.into_iter().unzip();
        let dtype = leading(&shapes, &dtypes);
        Self { shapes, dtype, dtypes, ..Self::default() }
    }

    /// From PyTorch's `Input Dims` and `Input type`, two JSON lists by position.
    pub(super) fn from_pytorch(dims: &[u8], types: &[u8]) -> Self {
        let dims: Vec<Value> = serde_json::from_slice(dims).unwrap_or_default();
        let types: Vec<Value> = serde_json::from_slice(types).unwrap_or_default();
        let mut tensors: Vec<(Shape, Option<DType>)> = Vec::new();
        let mut bare_lists = 0;
        for (index, dim) in dims.iter().enumerate() {
            let Value::Array(extents) = dim else { continue };
            let kind = types.get(index).and_then(Value::as_str);
            if extents.is_empty() && kind == Some(LIST) {
                bare_lists += 1;
            } else if extents.iter().any(Value::is_array) {
                let dtype = kind.and_then(|kind| tensor_type(kind, false));
                tensors.extend(extents.iter().filter_map(shape).map(|shape| (shape, dtype.clone())));
            } else if let Some(shape) = shape(dim) {
                let dtype = kind.and_then(|kind| tensor_type(kind, !shape.is_empty()));
                if dtype.is_some() || !shape.is_empty() {
                    tensors.push((shape, dtype));
                }
            }
            if tensors.len() >= TENSORS {
                tensors.truncate(TENSORS);
                break;
            }
        }
        Self { bare_lists, ..Self::new(tensors) }
    }
}

/// Element type of a call, from the types of its tensors; wrapped scalars count last.
fn leading(shapes: &[Shape], dtypes: &[Option<DType>]) -> Option<DType> {
    let known = || shapes.iter().zip(dtypes).filter_map(|(shape, dtype)| Some((shape, dtype.as_ref()?)));
    known()
        .find(|(shape, dtype)| !shape.is_empty() && dtype.is_floating())
        .or_else(|| known().find(|(shape, _)| !shape.is_empty()))
        .or_else(|| known().next())
        .map(|(_, dtype)| dtype.clone())
}

impl Layout {
    /// From PyTorch's `Input Dims` and `Input Strides`; skips lists of tensors.
    pub(super) fn from_pytorch(dims: &[u8], strides: &[u8]) -> Self {
        let read = |text: &[u8]| serde_json::from_slice::<Vec<Value>>(text).unwrap_or_default();
        let (dims, strides) = (read(dims), read(strides));
        let both = |(dim, strides): (&Value, &Value)| Some((shape(dim)?, shape(strides)?));
        let tensors: Vec<(Shape, Shape)> = dims.iter().zip(&strides).filter_map(both).collect();
        Self {
            channels_last: tensors.iter().any(|(shape, strides)| has_channels_last(shape, strides)),
            access: access(&tensors),
        }
    }

    /// Unique number of this layout.
    pub(super) fn number(self) -> u8 {
        let access = match self.access {
            None => 0,
            Some(Access::Strided) => 2,
            Some(Access::Transposed) => 4,
        };
        access + u8::from(self.channels_last)
    }
}

/// Access pattern of a call from the extents and strides of its tensors. The first of the largest tensors is assumed to
/// have the layout of the result. Smaller and broadcast tensors do not count. Same as `access` in `trace-shapes`, which
/// also sees results.
fn access(tensors: &[(Shape, Shape)]) -> Option<Access> {
    let volume = |shape: &Shape| shape.iter().try_fold(1_u64, |all, size| all.checked_mul(*size)).unwrap_or(0);
    let largest = tensors.iter().map(|(shape, _)| volume(shape)).max().filter(|volume| *volume > 1)?;
    // Stride and extent of each dimension larger than one.
    let steps = |(shape, strides): &(Shape, Shape)| -> Vec<(u64, u64)> {
        strides.iter().copied().zip(shape.iter().copied()).filter(|(_, size)| *size > 1).collect()
    };
    let is_large = |tensor: &&(Shape, Shape)| volume(&tensor.0) == largest && tensor.0.len() == tensor.1.len();
    let mut large = tensors.iter().filter(is_large).map(|tensor| (&tensor.0, steps(tensor)));
    let is_spread = |steps: &[(u64, u64)]| steps.iter().any(|(step, _)| *step == 0);
    let (shape, own) = large.find(|(_, steps)| !is_spread(steps))?;
    let innermost = |steps: &[(u64, u64)]| (0..steps.len()).min_by_key(|dim| steps[*dim]);
    let mut found = (!is_dense(&own)).then_some(Access::Strided);
    for (other, steps) in large {
        let lies_alike = steps == own && is_dense(&steps) || is_contiguous(&steps) && is_contiguous(&own);
        if is_spread(&steps) || lies_alike {
            continue;
        }
        if other == shape && innermost(&steps) != innermost(&own) {
            return Some(Access::Transposed);
        }
        found = Some(Access::Strided);
    }
    found
}

/// Whether the elements fill their memory without gaps, in any order of dimensions.
fn is_dense(steps: &[(u64, u64)]) -> bool {
    let mut sorted = steps.to_vec();
    sorted.sort_unstable();
    are_packed(sorted.into_iter())
}

/// Whether they do so in the order of dimensions.
fn is_contiguous(steps: &[(u64, u64)]) -> bool {
    are_packed(steps.iter().rev().copied())
}

/// Whether each dimension, innermost first, starts where the previous one ends.
fn are_packed(mut steps: impl Iterator<Item = (u64, u64)>) -> bool {
    let mut expected = 1_u64;
    steps.all(|(step, size)| {
        let fits = step == expected;
        expected = expected.saturating_mul(size);
        fits
    })
}

/// Whether a tensor is channels-last and not also contiguous, from its extents and strides in elements.
fn has_channels_last(shape: &[u64], strides: &[u64]) -> bool {
    let rank = shape.len();
    if !(4..=5).contains(&rank) || strides.len() != rank || shape.contains(&0) {
        return false;
    }
    let is_packed = |order: &mut dyn Iterator<Item = usize>| {
        are_packed(order.filter(|dim| shape[*dim] > 1).map(|dim| (strides[dim], shape[dim])))
    };
    is_packed(&mut std::iter::once(1).chain((2..rank).rev()).chain([0])) && !is_packed(&mut (0..rank).rev())
}

fn shape(value: &Value) -> Option<Shape> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

/// Element type of a recorded argument type; `None` for arguments that are not tensors (`Scalar`, `ScalarList`,
/// `GenericList`, `Int`, `Bool`, empty …).
fn tensor_type(kind: &str, has_extent: bool) -> Option<DType> {
    Some(match kind {
        "float" => DType::Float32,
        "double" => DType::Float64,
        "c10::Half" => DType::Float16,
        "c10::BFloat16" => DType::Bfloat16,
        "c10::Float8_e4m3fn" | "c10::Float8_e4m3fnuz" => DType::Float8E4m3,
        "c10::Float8_e5m2" | "c10::Float8_e5m2fnuz" => DType::Float8E5m2,
        "c10::complex<c10::Half>" => DType::Complex32,
        "c10::complex<float>" => DType::Complex64,
        "c10::complex<double>" => DType::Complex128,
        "long int" | "long" => DType::Int64,
        "int" => DType::Int32,
        "short int" | "short" => DType::Int16,
        "signed char" => DType::Int8,
        "unsigned char" => DType::Uint8,
        "bool" => DType::Bool,
        other if has_extent && !other.is_empty() => DType::Other(habitat_base::text::clean(other, 40)),
        _ => return None,
    })
}

/// Scalars and lists of scalars by argument position; `None` for tensors and missing arguments.
pub(crate) type Scalars = Vec<Option<Attribute>>;

/// From PyTorch's `Concrete Inputs`, a JSON list of texts by position.
pub(super) fn scalars_from_pytorch(values: &[u8]) -> Scalars {
    let values: Vec<Value> = serde_json::from_slice(values).unwrap_or_default();
    values.iter().map(|value| scalar(value.as_str()?)).collect()
}

/// Parses a value of `Concrete Inputs`: `[1, 1]`, `False`, `0.5`; `None` if empty or missing.
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
            _ => Attribute::Text(habitat_base::text::clean(text, TEXT)),
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
        // A wrapped scalar is a tensor without dimensions and does not determine the type.
        let (shapes, dtype) = tensors("[[], [4, 4]]", r#"["double", "c10::Half"]"#);
        assert_eq!(shapes, [vec![], vec![4, 4]]);
        assert_eq!(dtype, Some(DType::Float16));
        // Lists of tensors, and traces without types.
        assert_eq!(tensors("[[[2, 3], [4]], []]", r#"["TensorList", "Scalar"]"#).0, [vec![2, 3], vec![4]]);
        assert_eq!(tensors("[[2, 3], []]", "[]"), (vec![vec![2, 3]], None));
        // PyTorch records no shapes for lists of more than 30.
        let types = br#"["TensorList", "TensorList", "Scalar", ""]"#;
        assert_eq!(Tensors::from_pytorch(b"[[], [], [], []]", types).bare_lists, 2);
        assert_eq!(tensors("nonsense", "{}"), (vec![], None));
    }

    #[test]
    fn every_tensor_has_its_type() {
        let tensors = Tensors::from_pytorch(b"[[4, 4], [], [2], [[3], [5]]]", br#"["c10::Half", "double", "", ""]"#);
        assert_eq!(tensors.dtypes, [Some(DType::Float16), Some(DType::Float64), None, None, None]);
        assert_eq!(tensors.dtype, Some(DType::Float16));
    }

    #[test]
    fn channels_last_by_strides() {
        assert!(has_channels_last(&[8, 64, 16, 16], &[16384, 1, 1024, 64]));
        assert!(has_channels_last(&[2, 8, 4, 5, 6], &[960, 1, 240, 48, 8]));
        assert!(!has_channels_last(&[8, 64, 16, 16], &[16384, 256, 16, 1]));
        // One channel, or one pixel: both layouts at once.
        assert!(!has_channels_last(&[8, 1, 16, 16], &[256, 1, 16, 1]));
        assert!(!has_channels_last(&[8, 64, 1, 1], &[64, 1, 64, 64]));
        // Neither: part of a larger tensor, and attention heads.
        assert!(!has_channels_last(&[8, 64, 16, 16], &[32768, 1, 2048, 128]));
        assert!(!has_channels_last(&[8, 12, 128, 64], &[98304, 64, 768, 1]));
        assert!(!has_channels_last(&[64, 16], &[1, 64]));
        let told = |dims: &str, strides: &str| Layout::from_pytorch(dims.as_bytes(), strides.as_bytes()).channels_last;
        assert!(told("[[8, 64, 16, 16], [], [64]]", "[[16384, 1, 1024, 64], [], [1]]"));
        assert!(told("[[64],[8,64,16,16]]", "[[1],[16384,1,1024,64]]"));
        assert!(!told("[[8, 64, 16, 16], [64, 16]]", "[[16384, 256, 16, 1], [1, 64]]"));
        assert!(!told("nonsense", "[[16384, 1, 1024, 64]]"));
    }

    #[test]
    fn access_by_strides() {
        let told = |dims: &str, strides: &str| Layout::from_pytorch(dims.as_bytes(), strides.as_bytes()).access;
        // A copy in memory order, in either layout, and one between the layouts.
        assert_eq!(told("[[64, 16], [64, 16]]", "[[16, 1], [16, 1]]"), None);
        assert_eq!(told("[[64, 16], [64, 16]]", "[[1, 64], [1, 64]]"), None);
        assert_eq!(told("[[64, 16], [64, 16]]", "[[16, 1], [1, 64]]"), Some(Access::Transposed));
        // Heads are moved side by side: rows stay whole.
        let heads = "[[8, 128, 12, 64], [8, 128, 12, 64]]";
        assert_eq!(told(heads, "[[98304, 768, 64, 1], [98304, 64, 8192, 1]]"), Some(Access::Strided));
        // Halves of rows, alone and with a whole tensor; a scalar, and a row broadcast over the result.
        assert_eq!(told("[[64, 16], []]", "[[32, 1], []]"), Some(Access::Strided));
        assert_eq!(told("[[64, 16], [64, 16]]", "[[16, 1], [32, 1]]"), Some(Access::Strided));
        assert_eq!(told("[[64, 16], [16]]", "[[16, 1], [1]]"), None);
        assert_eq!(told("[[64, 16], [64, 16]]", "[[16, 1], [0, 1]]"), None);
        assert_eq!(told("[[64, 16], [64, 16]]", "[[0, 1], [16, 1]]"), None);
        // Tensors of equal size with different shapes.
        assert_eq!(told("[[8, 4, 16], [32, 16]]", "[[64, 16, 1], [16, 1]]"), None);
        // Smaller tensors, dimensions of one, lists and malformed input do not count.
        assert_eq!(told("[[64, 16], [16, 4]]", "[[16, 1], [1, 16]]"), None);
        assert_eq!(told("[[64, 1, 16], [64, 1, 16]]", "[[16, 16, 1], [16, 1, 1]]"), None);
        assert_eq!(told("[[[64, 16]], []]", "[[[1, 64]], []]"), None);
        for broken in ["[[64, 16]", "[[16]]", "[[\"a\", 1]]", "[[-16, 1]]", ""] {
            assert_eq!(told("[[64, 16]]", broken), None, "{broken}");
        }
        assert_eq!(told("[[18446744073709551615, 2]]", "[[2, 1]]"), None);
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
