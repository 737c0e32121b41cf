//! Operator calls on a CPU, which a GPU splits into different kernels.

/// Whether a GPU runs the operator as one piece of work, whatever operators the CPU splits it into.
pub fn is_whole(name: &str) -> bool {
    is_product(name)
        || matches!(name, "aten::convolution_backward" | "aten::native_layer_norm")
        || is_attention_kernel(name)
        || name.starts_with("aten::_foreach_")
        || name.starts_with("aten::_fused_")
}

/// Whether it is attention in one or a few kernels, even if it calls operators of its own first: the gradient of
/// memory-efficient attention first sums products of gradient and result.
fn is_attention_kernel(name: &str) -> bool {
    let kernels = ["flash", "efficient", "cudnn"];
    let rest = name.strip_prefix("aten::_").map(|name| name.strip_prefix("scaled_dot_product_").unwrap_or(name));
    rest.is_some_and(|rest| {
        kernels.iter().any(|kernel| rest.strip_prefix(kernel).is_some_and(|rest| rest.starts_with("_attention")))
    })
}

/// Whether it is a matrix product, single or batched.
pub fn is_product(name: &str) -> bool {
    matches!(name, "aten::mm" | "aten::addmm" | "aten::bmm" | "aten::baddbmm")
}

/// Whether the operator prepares or moves data for another.
pub fn helps(name: &str) -> bool {
    matches!(name, "aten::copy_" | "aten::fill_" | "aten::zero_")
}

/// Whether the operator only creates a view, allocates or queries: no device work.
pub fn only_looks(name: &str) -> bool {
    let Some(name) = name.strip_prefix("aten::") else {
        // Dispatcher keys ("detach") and profiler ranges have no namespace; operators do.
        return !name.contains("::");
    };
    LOOKS.contains(&name)
}

/// Operators without device work of their own.
#[rustfmt::skip]
const LOOKS: &[&str] = &[
    "_nnpack_available", "view", "_unsafe_view", "view_as", "reshape", "_reshape_alias", "reshape_as", "t",
    "transpose", "permute", "expand", "expand_as", "as_strided", "as_strided_", "slice", "select", "narrow",
    "split", "split_with_sizes", "chunk", "unbind", "unsqueeze", "squeeze", "squeeze_", "unsqueeze_",
    "unflatten", "flatten", "detach", "detach_", "alias", "lift_fresh", "empty", "empty_like", "empty_strided",
    "new_empty", "new_empty_strided", "resize_", "resize_as_", "set_", "result_type", "item",
    "_local_scalar_dense", "is_nonzero", "to", "_to_copy", "contiguous", "numpy_T", "movedim", "swapaxes",
    "diagonal", "unfold", "view_as_real", "view_as_complex", "_nested_tensor_from_mask", "size", "stride",
    "numel", "is_contiguous", "can_cast", "_has_compatible_shallow_copy_type", "requires_grad_", "resolve_conj",
    "resolve_neg", "conj", "clone", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like",
    "new_zeros", "new_ones", "new_full", "scalar_tensor", "atleast_1d", "atleast_2d", "atleast_3d",
    // The work of these is an operator inside; without one they do nothing (p = 0, or evaluation).
    "dropout", "feature_dropout", "alpha_dropout",
];

/// Whether it is one operator on all tensors of a list.
pub fn is_foreach(name: &str) -> bool {
    name.contains("_foreach_")
}

/// Whether it modifies and returns its first argument; `ATen` marks such operators with a trailing underscore.
pub fn is_in_place(name: &str) -> bool {
    name.starts_with("aten::") && name.ends_with('_') && !name.ends_with("__")
}

/// Whether it is a loss that yields one number per sample.
pub fn is_loss(name: &str) -> bool {
    LOSSES.contains(&name)
}

/// Losses of `torch.nn.functional`.
#[rustfmt::skip]
const LOSSES: &[&str] = &[
    "aten::cross_entropy_loss", "aten::nll_loss_nd", "aten::mse_loss", "aten::l1_loss", "aten::smooth_l1_loss",
    "aten::huber_loss", "aten::binary_cross_entropy", "aten::binary_cross_entropy_with_logits",
];

/// Whether the leading extent of the operator's first input is the batch, provided that no earlier operator reshaped
/// it.
pub fn is_first_layer(name: &str) -> bool {
    matches!(
        name,
        "aten::conv1d"
            | "aten::conv2d"
            | "aten::conv3d"
            | "aten::convolution"
            | "aten::embedding"
            | "aten::linear"
            | "aten::lstm"
            | "aten::gru"
    )
}

/// Input position of a layer's weight, if the weight has at least two dimensions.
pub fn weight(name: &str) -> Option<usize> {
    match name {
        "aten::mm" | "aten::linear" | "aten::cudnn_convolution" | "aten::miopen_convolution" => Some(1),
        "aten::addmm" => Some(2),
        _ => None,
    }
}

/// Whether it copies one tensor into another.
pub fn is_copy(name: &str) -> bool {
    name == "aten::copy_"
}

/// Whether it is a convolution or the operator that implements one.
pub fn is_convolution(name: &str) -> bool {
    name.ends_with("_convolution") || name.ends_with("::convolution")
}

/// Whether it is a convolution or the gradient of one.
pub fn calls_a_convolution(name: &str) -> bool {
    name.contains("convolution")
}

/// Whether it returns the same tensor, detached from the backward graph.
pub fn is_detach(name: &str) -> bool {
    matches!(name, "aten::detach" | "detach")
}

/// Number of tensors that a product takes; with `out=` the result is an argument too.
pub fn tensors(name: &str) -> Option<usize> {
    match name {
        "aten::mm" | "aten::bmm" => Some(2),
        "aten::addmm" | "aten::baddbmm" => Some(3),
        _ => None,
    }
}

/// Whether an operator checks gradients for infinite values, as `torch.amp.GradScaler` does before it applies or skips
/// an update.
pub fn checks_gradients(name: &str) -> bool {
    name.contains("_amp_foreach_non_finite_check_and_unscale_") || name == "aten::_amp_update_scale_"
}

/// Whether a node of the backward graph accumulates the gradient of a parameter.
pub fn accumulates_gradients(name: &str) -> bool {
    name.contains("AccumulateGrad")
}
