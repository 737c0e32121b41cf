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
    "fmha",
];
/// Parts of the names of recurrent operators.
const RECURRENT: &[&str] = &["lstm", "gru_", "cudnn_rnn", "miopen_rnn", "rnn_tanh", "rnn_relu"];
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
];
/// Parts of the names of normalisations.
const NORMALISATIONS: &[&str] =
    &["layer_norm", "batch_norm", "group_norm", "rms_norm", "instance_norm", "layernorm", "batchnorm"];
/// Parts of the names of table look-ups.
const LOOKUPS: &[&str] = &["embedding", "index_select", "gather", "scatter", "index_add", "index_put"];
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
    "cross_entropy",
    "mse_loss",
    "cumsum",
];
/// Parts of the names of reductions.
const REDUCTION_PARTS: &[&str] = &["nll_loss", "vector_norm", "foreach_norm"];
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
];

fn family_of_name(name: &str) -> Family {
    let full = name.to_ascii_lowercase();
    let bare = full.rsplit("::").next().unwrap_or(&full).trim_start_matches('_');
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
    } else if has(RECURRENT) || bare == "gru" {
        Family::Recurrent
    } else if has(&["conv"]) && !has(&["convert"]) {
        Family::Convolution
    } else if GEMMS.contains(&bare) {
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
    } else if REDUCTIONS.contains(&bare) || has(REDUCTION_PARTS) {
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
        ] {
            assert_eq!(family_of_name(name), expected, "{name}");
        }
    }
}
