//! Kinds of operators, told by their names.

use crate::profile::{Operation, Phase};

/// Kinds of operations that share a way of running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Matrix products.
    Gemm,
    /// Convolutions.
    Convolution,
    /// LSTM, GRU, RNN.
    Recurrent,
    /// Fused attention.
    Attention,
    /// Softmax and its logarithm.
    Softmax,
    /// Batch, layer, group and RMS normalisation.
    Normalisation,
    /// Pooling.
    Pooling,
    /// Table look-ups.
    Embedding,
    /// Sums, means, norms.
    Reduction,
    /// One result an element: arithmetic, activations, copies, optimizer updates.
    Elementwise,
    /// Nothing runs on the device: views and bookkeeping.
    View,
    /// Collectives between GPUs.
    Communication,
    /// An operator not known here.
    Unknown,
}

impl Family {
    /// Whether libraries choose another kernel on another GPU (Habitat section 3.4), so
    /// that a launch configuration says little about the destination.
    pub const fn varies_kernels(self) -> bool {
        matches!(self, Self::Gemm | Self::Convolution | Self::Recurrent | Self::Attention)
    }

    /// The name on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gemm => "matrix product",
            Self::Convolution => "convolution",
            Self::Recurrent => "recurrent",
            Self::Attention => "attention",
            Self::Softmax => "softmax",
            Self::Normalisation => "normalisation",
            Self::Pooling => "pooling",
            Self::Embedding => "embedding",
            Self::Reduction => "reduction",
            Self::Elementwise => "elementwise",
            Self::View => "view",
            Self::Communication => "communication",
            Self::Unknown => "unknown",
        }
    }
}

/// The family of an operator, by name.
pub fn family(operation: &Operation) -> Family {
    if operation.phase == Phase::Communication {
        return Family::Communication;
    }
    family_of_name(&operation.name)
}

/// Names of collectives, in whole or in part.
const COLLECTIVES: &[&str] =
    &["nccl", "rccl", "all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "broadcast_coalesced"];
/// Parts of the names of attention operators.
const ATTENTION: &[&str] = &[
    "scaled_dot_product",
    "flash_attention",
    "efficient_attention",
    "attention_forward",
    "attention_backward",
    "unified_attention",
    "fmha",
];
/// Parts of the names of recurrent operators.
const RECURRENT: &[&str] = &["lstm", "gru_", "cudnn_rnn", "miopen_rnn", "mkldnn_rnn", "rnn_tanh", "rnn_relu"];
/// The element-wise part of a recurrent cell, after its products.
const CELLS: &[&str] = &["fused_lstm_cell", "fused_gru_cell"];
/// Names of matrix products.
const GEMMS: &[&str] = &[
    "mm",
    "addmm",
    "addmm_",
    "bmm",
    "baddbmm",
    "baddbmm_",
    "linear",
    "matmul",
    "mv",
    "addmv",
    "scaled_mm",
    "int_mm",
    "addmm_activation",
    "addbmm",
    "addbmm_",
    "addmv_",
    "dot",
    "vdot",
    "einsum",
    "inner",
    "linear_backward",
    "mkldnn_linear",
];
/// Parts of the names of matrix products, library kernels among them.
const GEMM_PARTS: &[&str] = &["gemm", "gemv", "grouped_mm", "cijk_"];
/// Parts of the names of normalisations.
const NORMALISATIONS: &[&str] =
    &["layer_norm", "batch_norm", "group_norm", "rms_norm", "instance_norm", "layernorm", "batchnorm", "rmsnorm"];
/// Parts of the names of table look-ups.
const LOOKUPS: &[&str] =
    &["embedding", "index_select", "gather", "scatter", "index_add", "index_put", "index_copy", "take_along", "put_"];
/// Names of operators that only describe memory anew.
const VIEWS: &[&str] = &[
    "view",
    "reshape",
    "reshape_alias",
    "t",
    "transpose",
    "permute",
    "expand",
    "expand_as",
    "as_strided",
    "detach",
    "slice",
    "select",
    "unsqueeze",
    "squeeze",
    "split",
    "split_with_sizes",
    "chunk",
    "unbind",
    "alias",
    "unsafe_view",
    "flatten",
    "view_as",
    "narrow",
    "empty",
    "empty_like",
    "empty_strided",
    "unflatten",
    "result_type",
    "resize_",
    "set_",
    "lift_fresh",
    "numpy_t",
    "diagonal",
    "movedim",
    "unfold",
    "new_empty",
    "new_empty_strided",
    "reshape_as",
    "squeeze_",
    "unsqueeze_",
    "transpose_",
    "t_",
    "swapaxes",
    "resize_as_",
    "view_as_real",
    "view_as_complex",
    "lift",
    "item",
    "local_scalar_dense",
    "is_nonzero",
    "conj",
    "resolve_conj",
    "resolve_neg",
    "tensor_split",
    "hsplit",
    "sym_size",
    "broadcast_to",
    "record_stream",
    "set_data",
    "pin_memory",
    "is_pinned",
    "detach_",
];
/// Names of reductions.
const REDUCTIONS: &[&str] = &[
    "sum",
    "mean",
    "norm",
    "var",
    "std",
    "amax",
    "amin",
    "argmax",
    "max_dim",
    "logsumexp",
    "cumsum",
    "cumprod",
    "prod",
    "min",
    "max",
    "any",
    "all",
    "argmin",
    "std_mean",
    "var_mean",
    "median",
    "aminmax",
    "topk",
    "sort",
    "count_nonzero",
    "nonzero",
    "unique2",
    "bincount",
    "searchsorted",
    "multinomial",
    "trace",
];
/// Parts of the names of reductions.
const REDUCTION_PARTS: &[&str] = &[
    "nll_loss",
    "cross_entropy",
    "vector_norm",
    "foreach_norm",
    "foreach_max",
    "_loss",
    "reduce_kernel",
    "triton_red",
];
/// Stems of operators that work element by element; `_` and more may follow.
const ELEMENTWISE: &[&str] = &[
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "relu",
    "gelu",
    "silu",
    "tanh",
    "sigmoid",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "neg",
    "abs",
    "clamp",
    "threshold",
    "dropout",
    "copy",
    "clone",
    "contiguous",
    "fill",
    "zero",
    "ones",
    "cat",
    "stack",
    "where",
    "masked_fill",
    "lerp",
    "addcmul",
    "addcdiv",
    "foreach",
    "fused_adam",
    "fused_adamw",
    "fused_sgd",
    "adam",
    "sgd",
    "bernoulli",
    "normal",
    "uniform",
    "rand",
    "eq",
    "ne",
    "lt",
    "gt",
    "le",
    "ge",
    "bitwise",
    "logical",
    "to",
    "sin",
    "cos",
    "tril",
    "triu",
    "arange",
    "isfinite",
    "amp_foreach_non_finite_check",
    "erf",
    "hardtanh",
    "hardswish",
    "leaky_relu",
    "elu",
    "mish",
    "softplus",
    "maximum",
    "minimum",
    "reciprocal",
    "square",
    "sign",
    "floor",
    "memcpy",
    "memset",
    "flip",
    "roll",
    "pad",
    "repeat",
    "im2col",
    "col2im",
    "randn",
    "randint",
    "randperm",
    "random",
    "exponential",
    "zeros",
    "zero_like",
    "zeros_like",
    "ones_like",
    "full",
    "new_zeros",
    "new_ones",
    "new_full",
    "scalar_tensor",
    "constant_pad",
    "reflection_pad",
    "replication_pad",
    "masked",
    "fused_adagrad",
    "fused_lamb",
    "multi_tensor",
    "amp_update_scale",
    "nan_to_num",
    "isnan",
    "isinf",
    "ceil",
    "round",
    "trunc",
    "remainder",
    "fmod",
    "rsub",
    "clip",
    "log1p",
    "expm1",
    "hardsigmoid",
    "celu",
    "selu",
    "relu6",
    "prelu",
    "glu",
    "logit",
    "polar",
    "complex",
    "unfold_backward",
    "select_backward",
    "slice_backward",
    "diagonal_backward",
    "upsample",
    "interpolate",
    "grid_sampler",
    "affine_grid",
    "channel_shuffle",
    "pixel_shuffle",
    "pixel_unshuffle",
    "native_dropout",
    "fused_dropout",
    "feature_dropout",
    "alpha_dropout",
    "type_as",
    "index_fill",
    "linspace",
    "one_hot",
    "isin",
    "xlogy",
    "atan",
    "tan",
    "sinh",
    "cosh",
    "frac",
    "lgamma",
    "silu_and_mul",
    "rotary_embedding",
    "chunk_cat",
    "block_diag",
    "meshgrid",
    "elementwise_kernel",
    "vectorized_elementwise_kernel",
    "unrolled_elementwise_kernel",
    "triton_poi",
    "triton_per",
    "copybuffer",
    "copydevicetodevice",
    "copyhosttodevice",
    "copydevicetohost",
    "fillbuffer",
    "batched_transpose",
    "subtensoropwithscalar1d",
    "subtensoropwithcasttensor1d",
    "permute",
    "outer",
    "ger",
    "addr",
    "log2",
    "log10",
    "sgn",
    "static_scaled_fp8_quant",
    "reshape_and_cache",
    "optimizer.step#fusedadam",
];

fn family_of_name(name: &str) -> Family {
    let full = name.to_ascii_lowercase().replace("(anonymous namespace)::", "");
    // Kernels stand for operators where none was recorded: their templates and arguments
    // name other things.
    let whole = full.split(['<', '(']).next().unwrap_or(&full).trim();
    let bare = whole.rsplit("::").next().unwrap_or(whole).trim_start_matches("void ").trim_start_matches('_');
    let has = |parts: &[&str]| parts.iter().any(|part| bare.contains(part));
    let stem = bare.trim_end_matches('_').trim_end_matches("_backward");
    let stems = |known: &[&str]| {
        known.iter().any(|known| {
            stem.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '.', ' ']))
        })
    };
    if has(COLLECTIVES) {
        Family::Communication
    } else if has(ATTENTION) {
        Family::Attention
    } else if has(CELLS) {
        Family::Elementwise
    } else if has(RECURRENT) || bare == "gru" {
        Family::Recurrent
    } else if has(&["conv"]) && !has(&["convert"]) {
        Family::Convolution
    } else if GEMMS.contains(&bare) || has(GEMM_PARTS) {
        Family::Gemm
    } else if has(&["softmax"]) {
        Family::Softmax
    } else if has(NORMALISATIONS) {
        Family::Normalisation
    } else if has(&["pool"]) {
        Family::Pooling
    } else if has(LOOKUPS) || bare == "index" {
        Family::Embedding
    } else if VIEWS.contains(&bare) {
        Family::View
    } else if REDUCTIONS.contains(&stem) || has(REDUCTION_PARTS) {
        Family::Reduction
    } else if stems(ELEMENTWISE) {
        Family::Elementwise
    } else {
        Family::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_by_name() {
        for (name, expected) in [
            ("aten::addmm", Family::Gemm),
            ("aten::cudnn_convolution_backward_weight", Family::Convolution),
            ("aten::_convert_weight_to_int4pack", Family::Unknown),
            ("aten::native_layer_norm_backward", Family::Normalisation),
            ("aten::cudnn_batch_norm", Family::Normalisation),
            ("aten::_log_softmax", Family::Softmax),
            ("aten::max_pool2d_with_indices", Family::Pooling),
            ("aten::threshold_backward", Family::Elementwise),
            ("aten::_foreach_addcdiv_", Family::Elementwise),
            ("aten::add_", Family::Elementwise),
            ("aten::_cudnn_rnn", Family::Recurrent),
            ("aten::_scaled_dot_product_efficient_attention_backward", Family::Attention),
            ("aten::as_strided", Family::View),
            ("aten::convolution_overrideable", Family::Convolution),
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", Family::Communication),
            ("Memcpy HtoD (Pageable -> Device)", Family::Elementwise),
            ("aten::_softmax_backward_data", Family::Softmax),
            ("my::special", Family::Unknown),
            ("aten::einsum", Family::Gemm),
            ("aten::_scaled_mm", Family::Gemm),
            ("aten::_thnn_fused_lstm_cell", Family::Elementwise),
            ("aten::lstm_cell", Family::Recurrent),
            ("aten::_cudnn_rnn_backward", Family::Recurrent),
            ("aten::miopen_rnn", Family::Recurrent),
            ("aten::gru", Family::Recurrent),
            ("aten::_fused_rms_norm", Family::Normalisation),
            ("aten::native_group_norm_backward", Family::Normalisation),
            ("aten::max_pool2d_with_indices_backward", Family::Pooling),
            ("aten::embedding_dense_backward", Family::Embedding),
            ("aten::scatter_add_", Family::Embedding),
            ("aten::nll_loss_backward", Family::Reduction),
            ("aten::binary_cross_entropy_with_logits", Family::Reduction),
            ("aten::mse_loss_backward", Family::Reduction),
            ("aten::cross_entropy_loss", Family::Reduction),
            ("aten::max", Family::Reduction),
            ("aten::native_dropout_backward", Family::Elementwise),
            ("aten::_foreach_lerp_", Family::Elementwise),
            ("aten::_fused_sgd_", Family::Elementwise),
            ("aten::constant_pad_nd", Family::Elementwise),
            ("aten::leaky_relu_backward", Family::Elementwise),
            ("aten::_to_copy", Family::Elementwise),
            ("aten::new_empty_strided", Family::View),
            ("aten::_local_scalar_dense", Family::View),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, at::detail::Array<char*, 3> >(int, …)",
                Family::Elementwise,
            ),
            ("void at::native::(anonymous namespace)::max_pool_forward_nchw<c10::BFloat16>(int)", Family::Pooling),
            ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", Family::Gemm),
            ("volta_sgemm_128x64_tn", Family::Gemm),
        ] {
            assert_eq!(family_of_name(name), expected, "{name}");
        }
    }
}
