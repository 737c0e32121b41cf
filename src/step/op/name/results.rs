//! Rules that derive the shapes of results from the inputs.

use super::{is_foreach, is_in_place};

/// Rule for the shape of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultForm {
    /// A product of two factors with leading batch dimensions.
    Product {
        /// Input position of the first factor.
        first: usize,
        /// Number of batch dimensions.
        batch: usize,
    },
    /// The input, with the rows of the weight as its features.
    Linear,
    /// The output image of a convolution.
    Convolution,
    /// The gradients of a convolution; inputs are the gradient of the result, the input and the weight.
    ConvolutionGradients,
    /// The inputs broadcast together.
    Broadcast,
    /// The shape of the first input.
    First,
}

/// Operators whose result has the shape of their first input.
#[rustfmt::skip]
const LIKE_FIRST: &[&str] = &[
    "aten::_softmax", "aten::_log_softmax", "aten::softmax", "aten::log_softmax", "aten::relu", "aten::gelu",
    "aten::silu", "aten::sigmoid", "aten::tanh", "aten::exp", "aten::sqrt", "aten::rsqrt", "aten::neg",
    "aten::clamp", "aten::clamp_min", "aten::native_layer_norm", "aten::native_group_norm",
    "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm", "aten::native_dropout",
    "aten::threshold_backward", "aten::gelu_backward", "aten::silu_backward", "aten::sigmoid_backward",
    "aten::tanh_backward", "aten::_softmax_backward_data", "aten::_log_softmax_backward_data",
];

/// Rule for the shape of the result, if the inputs determine it.
pub fn result(name: &str) -> Option<ResultForm> {
    let product = |first, batch| Some(ResultForm::Product { first, batch });
    match name {
        "aten::mm" => product(0, 0),
        "aten::bmm" => product(0, 1),
        "aten::addmm" => product(1, 0),
        "aten::baddbmm" => product(1, 1),
        "aten::linear" => Some(ResultForm::Linear),
        "aten::cudnn_convolution" | "aten::miopen_convolution" | "aten::convolution" | "aten::conv2d" => {
            Some(ResultForm::Convolution)
        }
        "aten::convolution_backward" => Some(ResultForm::ConvolutionGradients),
        "aten::add" | "aten::sub" | "aten::mul" | "aten::div" | "aten::where" | "aten::maximum" | "aten::minimum" => {
            Some(ResultForm::Broadcast)
        }
        _ if LIKE_FIRST.contains(&name) || is_in_place(name) && !is_foreach(name) => Some(ResultForm::First),
        _ => None,
    }
}
