//! Non-tensor arguments of `PyTorch`'s operators.

/// Arguments shared by `PyTorch`'s general convolutions; only `aten::_convolution` has the last.
const CONVOLUTION: &[(usize, &str)] = &[
    (3, "stride"),
    (4, "padding"),
    (5, "dilation"),
    (6, "transposed"),
    (7, "output_padding"),
    (8, "groups"),
    (12, "allow_tf32"),
];

/// Number of query–key pairs of packed sequences.
const PAIRS: (usize, &str) = (usize::MAX, "pairs");

/// Positions and names of the non-tensor arguments that affect an operator's time, from `PyTorch`'s
/// `native_functions.yaml`.
pub fn positions(name: &str) -> &'static [(usize, &'static str)] {
    match name {
        "aten::einsum" => &[(0, "equation")],
        "aten::lstm" | "aten::gru" => &[(6, "training"), (7, "bidirectional"), (8, "batch_first")],
        "aten::miopen_rnn" => &[(5, "mode"), (6, "hidden_size"), (7, "num_layers"), (8, "batch_first")],
        "aten::native_batch_norm"
        | "aten::cudnn_batch_norm"
        | "aten::miopen_batch_norm"
        | "aten::_native_batch_norm_legit"
        | "aten::_batch_norm_impl_index"
        | "aten::batch_norm" => &[(5, "training"), (6, "momentum"), (7, "eps")],
        "aten::native_layer_norm" => &[(1, "normalized_shape"), (4, "eps")],
        "aten::native_group_norm" => &[(6, "groups"), (7, "eps")],
        "aten::_softmax_backward_data" | "aten::_log_softmax_backward_data" => &[(2, "dim")],
        "aten::native_dropout" => &[(1, "p"), (2, "training")],
        "aten::embedding_dense_backward" => &[(2, "num_weights")],
        "aten::baddbmm" => &[(3, "beta")],
        "aten::slice_backward" | "aten::select_backward" | "aten::diagonal_backward" | "aten::unfold_backward" => {
            &[(1, "input_sizes")]
        }
        "aten::native_batch_norm_backward" | "aten::batch_norm_backward" => &[(7, "training")],
        "aten::_cudnn_rnn" => &[
            (6, "mode"),
            (7, "hidden_size"),
            (9, "num_layers"),
            (10, "batch_first"),
            (11, "dropout"),
            (12, "training"),
            (13, "bidirectional"),
            (14, "batch_sizes"),
        ],
        "aten::_cudnn_rnn_backward" => &[
            (10, "mode"),
            (11, "hidden_size"),
            (13, "num_layers"),
            (14, "batch_first"),
            (15, "dropout"),
            (16, "training"),
            (17, "bidirectional"),
            (18, "batch_sizes"),
        ],
        "aten::_cdist_forward" => &[(2, "p")],
        "aten::sum" | "aten::mean" => &[(1, "dim"), (2, "keepdim")],
        "aten::_softmax" | "aten::_log_softmax" | "aten::cat" | "aten::index_select" | "aten::gather"
        | "aten::cumsum" => &[(1, "dim")],
        // By name only: whether the compiler pads it, and the number of non-zero elements of a sparse factor.
        "aten::mm" | "aten::addmm" | "aten::bmm" => &[(usize::MAX, "padded"), (usize::MAX, "nonzero")],
        "aten::_sparse_mm" | "aten::_sparse_addmm" => &[(usize::MAX, "nonzero")],
        "aten::gelu" => &[(1, "approximate")],
        "aten::gelu_backward" => &[(2, "approximate")],
        _ => of_image(name),
    }
}

/// The same for convolutions and poolings.
fn of_image(name: &str) -> &'static [(usize, &'static str)] {
    match name {
        "aten::conv1d" | "aten::conv2d" | "aten::conv3d" => {
            &[(3, "stride"), (4, "padding"), (5, "dilation"), (6, "groups")]
        }
        "aten::convolution" | "aten::_convolution" => CONVOLUTION,
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
        "aten::conv_transpose1d" | "aten::conv_transpose2d" | "aten::conv_transpose3d" => {
            &[(3, "stride"), (4, "padding"), (5, "output_padding"), (6, "groups"), (7, "dilation")]
        }
        "aten::convolution_backward" => &[
            (4, "stride"),
            (5, "padding"),
            (6, "dilation"),
            (7, "transposed"),
            (8, "output_padding"),
            (9, "groups"),
            (10, "output_mask"),
        ],
        "aten::max_pool2d_with_indices" => {
            &[(1, "kernel_size"), (2, "stride"), (3, "padding"), (4, "dilation"), (5, "ceil_mode")]
        }
        "aten::max_pool2d_with_indices_backward" => {
            &[(2, "kernel_size"), (3, "stride"), (4, "padding"), (5, "dilation"), (6, "ceil_mode")]
        }
        "aten::avg_pool2d" => &[(1, "kernel_size"), (2, "stride"), (3, "padding"), (4, "ceil_mode")],
        "aten::avg_pool2d_backward" => &[(2, "kernel_size"), (3, "stride"), (4, "padding"), (5, "ceil_mode")],
        "aten::_adaptive_avg_pool2d" => &[(1, "output_size")],
        _ => of_attention(name),
    }
}

/// The same for `PyTorch`'s attention. For packed sequences `trace-shapes` adds the number of query–key pairs, by name
/// only.
fn of_attention(name: &str) -> &'static [(usize, &'static str)] {
    match name {
        "aten::scaled_dot_product_attention" => &[(4, "dropout_p"), (5, "is_causal"), (6, "scale"), (7, "enable_gqa")],
        "aten::_scaled_dot_product_flash_attention" => &[(3, "dropout_p"), (4, "is_causal"), (6, "scale")],
        "aten::_scaled_dot_product_flash_attention_for_cpu" => &[(3, "dropout_p"), (4, "is_causal")],
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward" => &[(6, "dropout_p"), (7, "is_causal")],
        "aten::_scaled_dot_product_efficient_attention" | "aten::_scaled_dot_product_cudnn_attention" => {
            &[(5, "dropout_p"), (6, "is_causal")]
        }
        "aten::_scaled_dot_product_flash_attention_backward" => &[(10, "dropout_p"), (11, "is_causal"), (14, "scale")],
        "aten::_scaled_dot_product_efficient_attention_backward" => &[(9, "dropout_p"), (11, "is_causal")],
        "aten::_scaled_dot_product_cudnn_attention_backward" => &[(13, "dropout_p"), (14, "is_causal")],
        "aten::_flash_attention_forward" => &[
            PAIRS,
            (5, "max_q"),
            (6, "max_k"),
            (7, "dropout_p"),
            (8, "is_causal"),
            (11, "window_size_left"),
            (12, "window_size_right"),
        ],
        "aten::_flash_attention_backward" => &[
            PAIRS,
            (8, "max_q"),
            (9, "max_k"),
            (10, "dropout_p"),
            (11, "is_causal"),
            (15, "window_size_left"),
            (16, "window_size_right"),
        ],
        "aten::_efficient_attention_forward" => {
            &[PAIRS, (6, "max_q"), (7, "max_k"), (8, "dropout_p"), (9, "custom_mask_type")]
        }
        "aten::_efficient_attention_backward" => {
            &[PAIRS, (8, "max_q"), (9, "max_k"), (11, "dropout_p"), (14, "custom_mask_type")]
        }
        "torch_attn::_varlen_attn" => &[PAIRS, (5, "max_q"), (6, "max_k"), (7, "is_causal"), (9, "window_size")],
        "torch_attn::_varlen_attn_backward" => {
            &[PAIRS, (8, "max_q"), (9, "max_k"), (10, "is_causal"), (13, "window_size")]
        }
        _ => of_other_attention(name),
    }
}

/// The same for attention from the schemas of flash-attn 2 and 3, xFormers and aiter.
fn of_other_attention(name: &str) -> &'static [(usize, &'static str)] {
    match name {
        "flash_attn::_flash_attn_forward" => &[(5, "is_causal"), (6, "window_size_left"), (7, "window_size_right")],
        "flash_attn::_flash_attn_backward" => &[(11, "is_causal"), (12, "window_size_left"), (13, "window_size_right")],
        "flash_attn::_flash_attn_varlen_forward" => {
            &[PAIRS, (5, "max_q"), (6, "max_k"), (9, "is_causal"), (10, "window_size_left"), (11, "window_size_right")]
        }
        "flash_attn::_flash_attn_varlen_backward" => &[
            PAIRS,
            (11, "max_q"),
            (12, "max_k"),
            (15, "is_causal"),
            (16, "window_size_left"),
            (17, "window_size_right"),
        ],
        "flash_attn_3::fwd" => &[
            PAIRS,
            (12, "max_q"),
            (13, "max_k"),
            (24, "is_causal"),
            (25, "window_size_left"),
            (26, "window_size_right"),
        ],
        "flash_attn_3::bwd" => &[
            PAIRS,
            (13, "max_q"),
            (14, "max_k"),
            (16, "is_causal"),
            (17, "window_size_left"),
            (18, "window_size_right"),
        ],
        "habitat::flex_attention" | "habitat::flex_attention_backward" => &[(3, "seen")],
        "xformers::efficient_attention_forward_cutlass" => &[PAIRS, (6, "max_q"), (9, "custom_mask_type")],
        "xformers_flash::flash_fwd" => {
            &[PAIRS, (6, "max_q"), (7, "max_k"), (10, "is_causal"), (11, "window_size_left"), (12, "window_size_right")]
        }
        "xformers_flash::flash_bwd" => {
            &[PAIRS, (8, "max_q"), (9, "max_k"), (12, "is_causal"), (13, "window_size_left"), (14, "window_size_right")]
        }
        "aiter::mha_fwd" | "aiter::fmha_v3_fwd" => {
            &[(5, "is_causal"), (6, "window_size_left"), (7, "window_size_right")]
        }
        "aiter::mha_bwd" | "aiter::fmha_v3_bwd" => {
            &[(8, "is_causal"), (9, "window_size_left"), (10, "window_size_right")]
        }
        "aiter::mha_varlen_fwd" => &[PAIRS, (5, "max_q"), (6, "max_k"), (12, "is_causal")],
        "aiter::mha_varlen_bwd" => &[PAIRS, (8, "max_q"), (9, "max_k"), (13, "is_causal")],
        _ if name.starts_with("sageattention::") || name.starts_with("_qattn") => {
            &[(6, "tensor_layout"), (7, "is_causal")]
        }
        _ => &[],
    }
}
