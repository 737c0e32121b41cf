//! From the recorded arguments of an operator to shapes, element type and attributes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::outputs;
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
    description.inputs.truncate(match name {
        "aten::mm" | "aten::bmm" => 2,
        "aten::addmm" | "aten::baddbmm" => 3,
        _ => TENSORS,
    });
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

/// Positions and names of the non-tensor arguments of the operators whose time depends on
/// them, from PyTorch's `native_functions.yaml`.
pub(in crate::profile) fn positions(name: &str) -> &'static [(usize, &'static str)] {
    match name {
        "aten::einsum" => &[(0, "equation")],
        "aten::lstm" | "aten::gru" => &[(6, "training"), (7, "bidirectional"), (8, "batch_first")],
        "aten::miopen_rnn" => &[(5, "mode"), (6, "hidden_size"), (7, "num_layers"), (8, "batch_first")],
        "aten::conv1d" | "aten::conv2d" | "aten::conv3d" => {
            &[(3, "stride"), (4, "padding"), (5, "dilation"), (6, "groups")]
        }
        "aten::convolution" | "aten::_convolution" => {
            &[(3, "stride"), (4, "padding"), (5, "dilation"), (6, "transposed"), (7, "output_padding"), (8, "groups")]
        }
        "aten::cudnn_convolution" => {
            &[(2, "padding"), (3, "stride"), (4, "dilation"), (5, "groups"), (8, "allow_tf32")]
        }
        "aten::cudnn_convolution_transpose" => {
            &[(2, "padding"), (3, "output_padding"), (4, "stride"), (5, "dilation"), (6, "groups"), (9, "allow_tf32")]
        }
        "aten::miopen_convolution" | "aten::miopen_depthwise_convolution" => {
            &[(3, "padding"), (4, "stride"), (5, "dilation"), (6, "groups")]
        }
        "aten::mkldnn_convolution" => &[(3, "padding"), (4, "stride"), (5, "dilation"), (6, "groups")],
        "aten::_conv_depthwise2d" => &[(2, "kernel_size"), (4, "stride"), (5, "padding"), (6, "dilation")],
        "aten::convolution_backward" => &[
            (4, "stride"),
            (5, "padding"),
            (6, "dilation"),
            (7, "transposed"),
            (8, "output_padding"),
            (9, "groups"),
            (10, "output_mask"),
        ],
        "aten::native_batch_norm" | "aten::cudnn_batch_norm" | "aten::miopen_batch_norm" => {
            &[(5, "training"), (6, "momentum"), (7, "eps")]
        }
        "aten::native_layer_norm" => &[(1, "normalized_shape"), (4, "eps")],
        "aten::native_group_norm" => &[(6, "groups"), (7, "eps")],
        "aten::_softmax"
        | "aten::_log_softmax"
        | "aten::_softmax_backward_data"
        | "aten::_log_softmax_backward_data" => {
            if name.ends_with("_data") {
                &[(2, "dim")]
            } else {
                &[(1, "dim")]
            }
        }
        "aten::native_dropout" => &[(1, "p"), (2, "training")],
        "aten::scaled_dot_product_attention" => &[(4, "dropout_p"), (5, "is_causal"), (6, "scale"), (7, "enable_gqa")],
        "aten::_scaled_dot_product_flash_attention" => &[(3, "dropout_p"), (4, "is_causal"), (6, "scale")],
        "aten::_scaled_dot_product_flash_attention_for_cpu" => &[(3, "dropout_p"), (4, "is_causal")],
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward" => &[(6, "dropout_p"), (7, "is_causal")],
        "aten::embedding_dense_backward" => &[(2, "num_weights")],
        "aten::_scaled_dot_product_efficient_attention" | "aten::_scaled_dot_product_cudnn_attention" => {
            &[(5, "dropout_p"), (6, "is_causal")]
        }
        "aten::_scaled_dot_product_flash_attention_backward" => &[(10, "dropout_p"), (11, "is_causal"), (14, "scale")],
        "aten::_scaled_dot_product_efficient_attention_backward" => &[(9, "dropout_p"), (11, "is_causal")],
        "aten::_scaled_dot_product_cudnn_attention_backward" => &[(13, "dropout_p"), (14, "is_causal")],
        "aten::_flash_attention_forward" => &[(7, "dropout_p"), (8, "is_causal")],
        "aten::max_pool2d_with_indices" => {
            &[(1, "kernel_size"), (2, "stride"), (3, "padding"), (4, "dilation"), (5, "ceil_mode")]
        }
        "aten::max_pool2d_with_indices_backward" => {
            &[(2, "kernel_size"), (3, "stride"), (4, "padding"), (5, "dilation"), (6, "ceil_mode")]
        }
        "aten::avg_pool2d" => &[(1, "kernel_size"), (2, "stride"), (3, "padding"), (4, "ceil_mode")],
        "aten::avg_pool2d_backward" => &[(2, "kernel_size"), (3, "stride"), (4, "padding"), (5, "ceil_mode")],
        "aten::_adaptive_avg_pool2d" => &[(1, "output_size")],
        "aten::_cudnn_rnn" => &[
            (6, "mode"),
            (7, "hidden_size"),
            (9, "num_layers"),
            (10, "batch_first"),
            (11, "dropout"),
            (12, "training"),
            (13, "bidirectional"),
        ],
        "aten::_cudnn_rnn_backward" => &[
            (10, "mode"),
            (11, "hidden_size"),
            (13, "num_layers"),
            (14, "batch_first"),
            (15, "dropout"),
            (16, "training"),
            (17, "bidirectional"),
        ],
        "aten::sum" | "aten::mean" => &[(1, "dim"), (2, "keepdim")],
        "aten::cat" | "aten::index_select" | "aten::gather" | "aten::cumsum" => &[(1, "dim")],
        "aten::gelu" => &[(1, "approximate")],
        "aten::gelu_backward" => &[(2, "approximate")],
        _ => &[],
    }
}

fn attributes(name: &str, values: &str) -> BTreeMap<String, Attribute> {
    let positions = positions(name);
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
    match description.name.as_str() {
        // Until 1.10: (input, grad_output, weight); since: (grad_output, input, weight).
        "aten::cudnn_convolution_backward" | "aten::miopen_convolution_backward" if description.inputs.len() >= 3 => {
            "aten::convolution_backward".clone_into(&mut description.name);
            description.inputs.swap(0, 1);
        }
        _ => {}
    }
}

/// Operators that only carry out another one, with the operators they may belong to: the
/// outer one has all shapes and attributes and is what predictors know.
pub(super) fn carried_out_for(name: &str) -> &'static [&'static str] {
    match name {
        "aten::cudnn_convolution_backward_input" | "aten::cudnn_convolution_backward_weight" => {
            &["aten::cudnn_convolution_backward"]
        }
        "aten::miopen_convolution_backward_input"
        | "aten::miopen_convolution_backward_weight"
        | "aten::miopen_convolution_backward_bias" => &["aten::miopen_convolution_backward"],
        "aten::mkldnn_convolution"
        | "aten::thnn_conv2d"
        | "aten::_slow_conv2d_forward"
        | "aten::slow_conv_dilated2d" => &["aten::convolution"],
        "aten::mkldnn_linear" => &["aten::linear"],
        "aten::_flash_attention_forward" => &["aten::_scaled_dot_product_flash_attention"],
        "aten::_flash_attention_backward" => &["aten::_scaled_dot_product_flash_attention_backward"],
        "aten::_efficient_attention_forward" => &["aten::_scaled_dot_product_efficient_attention"],
        "aten::_efficient_attention_backward" => &["aten::_scaled_dot_product_efficient_attention_backward"],
        "aten::_cudnn_attention_forward" => &["aten::_scaled_dot_product_cudnn_attention"],
        "aten::_cudnn_attention_backward" => &["aten::_scaled_dot_product_cudnn_attention_backward"],
        "aten::_scaled_dot_product_flash_attention_for_cpu" => &["aten::scaled_dot_product_attention"],
        _ => &[],
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
