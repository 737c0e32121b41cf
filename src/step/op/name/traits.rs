//! Properties in operator names other than the form.

use super::short;
use super::tables::WIDE;

/// Whether it is a kernel that `torch.compile` generates, element-wise or along rows (`torch/_inductor/codegen`).
/// Templates of products and attention (`triton_tem`) have other names.
pub(super) fn is_generated(bare: &str) -> bool {
    ["triton_poi", "triton_red", "triton_per"].iter().any(|start| bare.starts_with(start))
}

/// Whether an attention operator runs the memory-efficient kernel, not that of flash attention or cuDNN.
pub fn is_efficient_attention(name: &str) -> bool {
    name.contains("efficient_attention")
}

/// Whether an attention operator runs a kernel for Ampere's tensor cores: `PyTorch`'s own flash and memory-efficient
/// attention, and the package `flash-attn` up to version 2. Kernels of cuDNN, of version 3 and compiled ones target the
/// GPU they run on.
pub fn is_ampere_attention(name: &str) -> bool {
    !["cudnn", "flex", "flash_attn_3", "flash_attn_4"].iter().any(|part| name.contains(part))
}

/// Whether a pooling operator averages its windows instead of taking the maximum.
pub fn is_average_pooling(name: &str) -> bool {
    name.contains("avg")
}

/// Whether it is a log-softmax, which has no exponential per result.
pub fn is_log_softmax(name: &str) -> bool {
    name.contains("log_softmax")
}

/// Whether it evaluates an exponential or similar function per element.
pub fn has_powers(name: &str) -> bool {
    let bare = short(name).trim_start_matches('_');
    ["gelu", "silu", "sigmoid", "tanh", "erf", "exp", "mish", "elu", "softplus", "log", "sin", "cos", "pow"]
        .iter()
        .any(|stem| bare.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
}

/// Whether it converts element types, which is frequent in mixed precision.
pub fn is_cast(name: &str) -> bool {
    matches!(name, "aten::_to_copy" | "aten::to" | "aten::copy_")
}

/// Whether the host waits for its result: `GradScaler` reads whether a gradient overflowed.
pub fn reads_back(name: &str) -> bool {
    name.contains("_amp_foreach_non_finite_check_and_unscale_")
}

/// Whether autocast keeps an element-wise operator in 32 bits (PyTorch's documentation of `torch.amp`, "CUDA Ops that
/// can autocast to float32").
pub fn is_kept_wide(name: &str) -> bool {
    let bare = name.rsplit("::").next().unwrap_or(name).trim_start_matches('_');
    WIDE.iter().any(|start| bare.starts_with(start))
}

/// Whether a reduction is a mean, which autocast leaves in the type of its input.
pub fn is_averaged(name: &str) -> bool {
    name == "aten::mean"
}
