//! Operator names by function.

/// Parts of the names of attention operators.
#[rustfmt::skip]
pub(super) const ATTENTION: &[&str] = &[
    "scaled_dot_product", "flash_attention", "efficient_attention", "attention_forward", "attention_backward",
    "unified_attention", "fmha", "flash_attn", "flex_attention", "varlen_attn", "flash_fwd", "flash_bwd", "flashattn",
    "fusedattnfunc", "mha_fwd", "mha_bwd", "mha_varlen", "efficient_attn", "qk_int8_sv", "attn_fwd", "attn_bwd",
];

/// Prefixes of operators in attention packages, whose functions are called `fwd` and `bwd`.
#[rustfmt::skip]
pub(super) const ATTENTION_PACKAGES: &[&str] = &[
    "flash_attn", "xformers_flash", "_vllm_fa", "vllm_flash_attn", "sageattention",
];

/// Parts of the names of recurrent operators.
#[rustfmt::skip]
pub(super) const RECURRENT: &[&str] = &[
    "lstm", "gru_", "cudnn_rnn", "miopen_rnn", "mkldnn_rnn", "rnn_tanh", "rnn_relu",
];

/// The element-wise part of a recurrent cell, after its products.
#[rustfmt::skip]
pub(super) const CELLS: &[&str] = &[
    "fused_lstm_cell", "fused_gru_cell",
];

/// Names of matrix products.
#[rustfmt::skip]
pub(super) const GEMMS: &[&str] = &[
    "mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "linear", "matmul", "mv", "addmv", "scaled_mm",
    "int_mm", "addmm_activation", "addbmm", "addbmm_", "addmv_", "dot", "vdot", "einsum", "inner",
    "linear_backward", "mkldnn_linear", "weight_int4pack_mm", "weight_int4pack_mm_for_cpu",
    "weight_int8pack_mm", "sparse_semi_structured_mm", "sparse_semi_structured_addmm",
    "sparse_semi_structured_linear", "euclidean_dist", "cdist", "trilinear",
    "sparse_mm", "sparse_addmm",
];

/// Parts of the names of matrix products, including library kernels.
#[rustfmt::skip]
pub(super) const GEMM_PARTS: &[&str] = &[
    "gemm", "gemv", "grouped_mm", "scaled_mm", "cijk_", "nvjet_",
];

/// Parts of the names of normalisations.
#[rustfmt::skip]
pub(super) const NORMALISATIONS: &[&str] = &[
    "layer_norm", "batch_norm", "group_norm", "rms_norm", "instance_norm", "layernorm", "batchnorm", "rmsnorm",
];

/// Parts of the names of table look-ups.
#[rustfmt::skip]
pub(super) const LOOKUPS: &[&str] = &[
    "embedding", "index_select", "gather", "scatter", "index_add", "index_put", "index_copy", "take_along",
    "put_",
];

/// Names of operators that only change the description of the memory.
#[rustfmt::skip]
pub(super) const VIEWS: &[&str] = &[
    "view", "reshape", "reshape_alias", "t", "transpose", "permute", "expand", "expand_as", "as_strided",
    "detach", "slice", "select", "unsqueeze", "squeeze", "split", "split_with_sizes", "chunk", "unbind",
    "alias", "unsafe_view", "flatten", "view_as", "narrow", "empty", "empty_like", "empty_strided", "unflatten",
    "result_type", "resize_", "set_", "lift_fresh", "numpy_t", "diagonal", "movedim", "unfold", "new_empty",
    "new_empty_strided", "reshape_as", "squeeze_", "unsqueeze_", "transpose_", "t_", "swapaxes", "resize_as_",
    "view_as_real", "view_as_complex", "lift", "item", "local_scalar_dense", "is_nonzero", "conj",
    "resolve_conj", "resolve_neg", "tensor_split", "hsplit", "sym_size", "broadcast_to", "record_stream",
    "set_data", "pin_memory", "is_pinned", "detach_",
];

/// Names of reductions.
#[rustfmt::skip]
pub(super) const REDUCTIONS: &[&str] = &[
    "sum", "mean", "norm", "var", "std", "amax", "amin", "argmax", "max_dim", "logsumexp", "cumsum", "cumprod",
    "prod", "min", "max", "any", "all", "argmin", "std_mean", "var_mean", "median", "aminmax", "topk", "sort",
    "count_nonzero", "nonzero", "unique2", "bincount", "searchsorted", "multinomial", "trace",
    "cdist_forward", "cdist",
];

/// Parts of the names of reductions.
#[rustfmt::skip]
pub(super) const REDUCTION_PARTS: &[&str] = &[
    "nll_loss", "cross_entropy", "vector_norm", "foreach_norm", "foreach_max", "_loss", "reduce_kernel",
];

/// Stems of element-wise operators; `_` and more may follow.
#[rustfmt::skip]
pub(super) const ELEMENTWISE: &[&str] = &[
    "add", "sub", "mul", "div", "pow", "relu", "gelu", "silu", "tanh", "sigmoid", "exp", "log", "sqrt", "rsqrt",
    "neg", "abs", "clamp", "threshold", "dropout", "copy", "clone", "contiguous", "fill", "zero", "ones", "cat",
    "stack", "where", "masked_fill", "lerp", "addcmul", "addcdiv", "foreach", "fused_adam", "fused_adamw",
    "fused_sgd", "adam", "sgd", "bernoulli", "normal", "uniform", "rand", "eq", "ne", "lt", "gt", "le", "ge",
    "bitwise", "logical", "to", "sin", "cos", "tril", "triu", "arange", "isfinite",
    "amp_foreach_non_finite_check", "erf", "hardtanh", "hardswish", "leaky_relu", "elu", "mish", "softplus",
    "maximum", "minimum", "reciprocal", "square", "sign", "floor", "memcpy", "memset", "flip", "roll", "pad",
    "repeat", "im2col", "col2im", "randn", "randint", "randperm", "random", "exponential", "zeros", "zero_like",
    "zeros_like", "ones_like", "full", "new_zeros", "new_ones", "new_full", "scalar_tensor", "constant_pad",
    "reflection_pad", "replication_pad", "masked", "fused_adagrad", "fused_lamb", "multi_tensor",
    "amp_update_scale", "nan_to_num", "isnan", "isinf", "ceil", "round", "trunc", "remainder", "fmod", "rsub",
    "clip", "log1p", "expm1", "hardsigmoid", "celu", "selu", "relu6", "prelu", "glu", "logit", "polar",
    "complex", "unfold_backward", "select_backward", "slice_backward", "diagonal_backward", "upsample",
    "interpolate", "grid_sampler", "affine_grid", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle",
    "native_dropout", "fused_dropout", "feature_dropout", "alpha_dropout", "type_as", "index_fill", "linspace",
    "one_hot", "isin", "xlogy", "atan", "tan", "sinh", "cosh", "frac", "lgamma", "silu_and_mul",
    "rotary_embedding", "chunk_cat", "block_diag", "meshgrid", "elementwise_kernel",
    "vectorized_elementwise_kernel", "unrolled_elementwise_kernel", "copybuffer",
    "copydevicetodevice", "copyhosttodevice", "copydevicetohost", "fillbuffer", "batched_transpose",
    "subtensoropwithscalar1d", "subtensoropwithcasttensor1d", "permute", "outer", "ger", "addr", "log2",
    "log10", "sgn", "static_scaled_fp8_quant", "reshape_and_cache", "optimizer.step#fusedadam",
];

/// Operators that fill a tensor without reading it.
#[rustfmt::skip]
pub(super) const FILLS: &[&str] = &[
    "fill_", "zero_", "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like",
    "new_full", "arange", "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "rand", "randn",
    "randint",
];

/// Operators that only reorder elements.
#[rustfmt::skip]
pub(super) const REARRANGEMENTS: &[&str] = &[
    "contiguous", "clone", "constant_pad_nd", "pad", "repeat", "flip", "roll",
];

/// Operators with Boolean results; in place, the result has the type of the inputs.
#[rustfmt::skip]
pub(super) const COMPARISONS: &[&str] = &[
    "eq", "ne", "lt", "gt", "le", "ge", "isnan", "isinf", "isfinite", "isin", "logical_and", "logical_or",
    "logical_xor", "logical_not",
];

/// Element-wise operators that autocast keeps in 32 bits, by prefix.
#[rustfmt::skip]
pub(super) const WIDE: &[&str] = &[
    "pow", "exp", "log", "rsqrt", "reciprocal", "cosh", "sinh", "tan_", "softplus", "acos", "asin", "erfinv",
    "cumsum", "cumprod", "prod", "renorm", "cdist",
];
