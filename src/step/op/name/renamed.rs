//! Operators equivalent to others under another name.

/// Current name of the gradients of a convolution. Until `PyTorch` 1.10 their arguments were `(input, grad_output,
/// weight)`; since then `(grad_output, input, weight)`.
pub fn gradients_since(name: &str) -> Option<&'static str> {
    matches!(name, "aten::cudnn_convolution_backward" | "aten::miopen_convolution_backward")
        .then_some("aten::convolution_backward")
}

/// Outer operators that an inner operator may implement. The outer one has all shapes and attributes, and predictors
/// know it.
pub fn carried_out_for(name: &str) -> &'static [&'static str] {
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

/// List form of an operator on one tensor.
pub fn with_lists(name: &str) -> String {
    name.replacen("aten::", "aten::_foreach_", 1)
}
