//! Arithmetic and memory traffic of an operation, from its name and shapes.
//!
//! Counts are the least an implementation needs: every input read once, every output
//! written once, a multiply-add counted as two operations. They serve the roofline and
//! the arithmetic intensity of wave scaling.

use crate::profile::{Attribute, DType, Operation, Phase, Shape};
use crate::units::{Bytes, Flops};

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

/// What one occurrence of an operation does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: Flops,
    /// Bytes read and written.
    pub bytes: Bytes,
    /// Whether the arithmetic can run on tensor or matrix cores.
    pub matrix: bool,
}

impl Work {
    /// Operations per byte; `None` where nothing is moved.
    pub fn intensity(&self) -> Option<f64> {
        (self.bytes.get() > 0.0).then(|| self.flops.get() / self.bytes.get())
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
    "linear_backward",
    "addmm_activation",
    "grouped_mm",
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

/// The work of one occurrence; `None` where the shapes do not tell.
///
/// Operators not known are taken as memory-bound when they have shapes; [`family`] tells.
pub fn work(operation: &Operation) -> Option<Work> {
    let element = element_bytes(operation);
    let inputs = &operation.inputs;
    match family(operation) {
        Family::View | Family::Communication => None,
        Family::Gemm => gemm(operation, element),
        Family::Convolution => convolution(operation, element),
        Family::Attention => attention(operation, element),
        Family::Recurrent => recurrent(operation, element),
        Family::Softmax => streaming(operation, element, 5.0),
        Family::Normalisation => streaming(operation, element, 7.0),
        Family::Reduction => {
            let read = total(inputs);
            (read > 0.0).then(|| light(read, read * element))
        }
        Family::Embedding => {
            // The table is not read as a whole: the result is what moves, twice.
            let largest = operation.outputs.iter().map(volume).fold(0.0, f64::max);
            let moved = if largest > 0.0 { largest } else { inputs.iter().skip(1).map(volume).fold(0.0, f64::max) };
            (moved > 0.0).then(|| light(0.0, 2.0 * moved * element))
        }
        Family::Pooling | Family::Elementwise | Family::Unknown => streaming(operation, element, 1.0),
    }
}

fn element_bytes(operation: &Operation) -> f64 {
    operation.dtype.as_ref().and_then(DType::size_bytes).unwrap_or(4) as f64
}

fn volume(shape: &Shape) -> f64 {
    shape.iter().map(|&n| n as f64).product()
}

fn total(shapes: &[Shape]) -> f64 {
    shapes.iter().map(volume).sum()
}

fn light(flops: f64, bytes: f64) -> Work {
    Work { flops: Flops::known(flops), bytes: Bytes::known(bytes), matrix: false }
}

/// Inputs read, outputs written, `per_element` operations on each element of the result;
/// a missing output is taken to be as large as the largest input.
fn streaming(operation: &Operation, element: f64, per_element: f64) -> Option<Work> {
    let read = total(&operation.inputs);
    let largest = operation.inputs.iter().map(volume).fold(0.0, f64::max);
    let written = if operation.outputs.is_empty() { largest } else { total(&operation.outputs) };
    // Scalars have a volume of one: an operation on scalars alone moves next to nothing.
    let passes = if operation.inputs.is_empty() && operation.outputs.is_empty() { return None } else { read + written };
    // A list of tensors (foreach, fused optimizers) is worked on element by element.
    let worked = if operation.name.contains("foreach") || operation.name.contains("fused") {
        read
    } else {
        written.max(largest)
    };
    Some(light(per_element * worked, passes * element))
}

fn gemm(operation: &Operation, element: f64) -> Option<Work> {
    let bare = operation.name.rsplit("::").next().unwrap_or(&operation.name).trim_start_matches('_');
    // addmm and baddbmm carry the bias first.
    let skip = usize::from(bare.starts_with("addm") || bare.starts_with("baddbmm"));
    let [left, right] = operation.inputs.get(skip..skip + 2)? else { return None };
    let (rows, reduction) = (left.split_last()?.1.iter().map(|&n| n as f64).product::<f64>(), *left.last()? as f64);
    let columns = if right.len() == 1 { 1.0 } else { volume(right) / reduction / batch_of(left, right) };
    // `linear` has its weight as [K, N]; the volume tells the columns either way.
    let flops = 2.0 * rows * reduction * columns;
    let moved = total(&operation.inputs) + rows * columns;
    let factor = if bare == "linear_backward" { 2.0 } else { 1.0 };
    (flops > 0.0).then(|| Work {
        flops: Flops::known(flops * factor),
        bytes: Bytes::known(moved * element * factor),
        matrix: true,
    })
}

/// Leading dimensions that both factors of a batched product share.
fn batch_of(left: &Shape, right: &Shape) -> f64 {
    if left.len() >= 3 && right.len() >= 3 { right[..right.len() - 2].iter().map(|&n| n as f64).product() } else { 1.0 }
}

/// Forward `[input, weight, …]`, backward `[grad_output, input, weight, …]`.
///
/// FLOPs: 2 · outputs · (weights of one output channel), twice that for a backward pass
/// that forms both gradients (`output_mask`, where recorded, says which).
fn convolution(operation: &Operation, element: f64) -> Option<Work> {
    let name = operation.name.to_ascii_lowercase();
    let tensors: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() >= 3).collect();
    if name.contains("backward") {
        let [gradient, input, weight] = tensors.get(..3)? else { return None };
        let taps = volume(weight) / (*weight.first()? as f64);
        let gradients = match operation.attributes.get("output_mask") {
            Some(Attribute::List(mask)) => {
                mask.iter().take(2).filter(|flag| matches!(flag, Attribute::Bool(true))).count() as f64
            }
            // The separate kernels of older releases form one gradient each.
            _ if name.contains("backward_input") || name.contains("backward_weight") => 1.0,
            _ => 2.0,
        };
        let moved = gradients * (volume(gradient) + volume(input) + volume(weight));
        return Some(Work {
            flops: Flops::known(2.0 * volume(gradient) * taps * gradients),
            bytes: Bytes::known(moved * element),
            matrix: true,
        });
    }
    let [input, weight] = tensors.get(..2)? else { return None };
    let output = match operation.outputs.first() {
        Some(output) if output.len() >= 3 => volume(output),
        _ => convolution_output(operation, input, weight)?,
    };
    let taps = volume(weight) / (*weight.first()? as f64);
    let moved = volume(input) + volume(weight) + output;
    Some(Work { flops: Flops::known(2.0 * output * taps), bytes: Bytes::known(moved * element), matrix: true })
}

/// ⌊(size + 2·padding − dilation·(kernel − 1) − 1) / stride⌋ + 1 in each dimension.
fn convolution_output(operation: &Operation, input: &Shape, weight: &Shape) -> Option<f64> {
    let list = |key: &str, default: i64| -> Vec<i64> {
        operation.attributes.get(key).and_then(Attribute::as_ints).unwrap_or_else(|| vec![default])
    };
    let (stride, padding, dilation) = (list("stride", 1), list("padding", 0), list("dilation", 1));
    let at = |values: &[i64], index: usize| values.get(index).or(values.first()).copied().unwrap_or(1);
    if matches!(operation.attributes.get("transposed"), Some(Attribute::Bool(true))) {
        return None;
    }
    let mut output = *input.first()? as f64 * *weight.first()? as f64;
    for (index, (&size, &kernel)) in input.get(2..)?.iter().zip(weight.get(2..)?).enumerate() {
        let reach = size as i64 + 2 * at(&padding, index) - at(&dilation, index) * (kernel as i64 - 1) - 1;
        output *= (reach.max(0) / at(&stride, index).max(1) + 1) as f64;
    }
    Some(output)
}

/// Query, key and value as `[batch, heads, length, head size]`: two products over all
/// pairs of positions, half of them under a causal mask; five products in backward.
fn attention(operation: &Operation, element: f64) -> Option<Work> {
    let tensors: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() == 4).collect();
    let backward = operation.name.contains("backward");
    // Backward lists the gradient of the output first.
    let [query, key] = tensors.get(usize::from(backward)..usize::from(backward) + 2)? else { return None };
    let pairs = (query[0] * query[1]) as f64 * query[2] as f64 * key[2] as f64;
    let causal = matches!(operation.attributes.get("is_causal"), Some(Attribute::Bool(true)));
    let products = if backward { 5.0 } else { 2.0 };
    let flops = products * 2.0 * pairs * query[3] as f64 * if causal { 0.5 } else { 1.0 };
    let moved = tensors.iter().map(|shape| volume(shape)).sum::<f64>() + volume(query);
    Some(Work { flops: Flops::known(flops), bytes: Bytes::known(moved * element), matrix: true })
}

/// From the weights among the inputs (matrices of gates × hidden size): each is multiplied
/// with every position of the sequence `[length, batch, features]`.
fn recurrent(operation: &Operation, element: f64) -> Option<Work> {
    let sequence = operation.inputs.iter().find(|shape| shape.len() == 3)?;
    let positions = (sequence[0] * sequence[1]) as f64;
    let weights: f64 = operation.inputs.iter().filter(|shape| shape.len() == 2).map(volume).sum();
    let factor = if operation.name.contains("backward") { 2.0 } else { 1.0 };
    // The weights do not stay on chip: they are read again at every position in time.
    let moved = total(&operation.inputs) + weights * (sequence[0] as f64 - 1.0).max(0.0);
    (weights > 0.0).then(|| Work {
        flops: Flops::known(2.0 * positions * weights * factor),
        bytes: Bytes::known(moved * element * factor),
        matrix: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn operation(name: &str, inputs: &[&[u64]], outputs: &[&[u64]]) -> Operation {
        Operation {
            name: name.to_owned(),
            module: None,
            phase: Phase::Forward,
            count: 1,
            inputs: inputs.iter().map(|shape| shape.to_vec()).collect(),
            outputs: outputs.iter().map(|shape| shape.to_vec()).collect(),
            dtype: Some(DType::Float32),
            attributes: BTreeMap::new(),
            device_time: None,
            kernels: Vec::new(),
        }
    }

    #[test]
    fn matrix_products() {
        let mm = work(&operation("aten::mm", &[&[4096, 1024], &[1024, 512]], &[])).unwrap();
        assert_eq!(mm.flops.get(), 2.0 * 4096.0 * 1024.0 * 512.0);
        assert_eq!(mm.bytes.get(), 4.0 * (4096.0 * 1024.0 + 1024.0 * 512.0 + 4096.0 * 512.0));
        let addmm = work(&operation("aten::addmm", &[&[512], &[4096, 1024], &[1024, 512]], &[])).unwrap();
        assert_eq!(addmm.flops, mm.flops);
        let linear = work(&operation("aten::linear", &[&[8, 512, 1024], &[512, 1024], &[512]], &[])).unwrap();
        assert_eq!(linear.flops, mm.flops);
        let bmm = work(&operation("aten::bmm", &[&[16, 512, 64], &[16, 64, 256]], &[])).unwrap();
        assert_eq!(bmm.flops.get(), 2.0 * 16.0 * 512.0 * 64.0 * 256.0);
    }

    /// ResNet-50's first layer: 7×7, 3 → 64 channels, 224 → 112: 118,013,952 multiply-adds
    /// an image.
    #[test]
    fn convolutions() {
        let mut forward = operation("aten::cudnn_convolution", &[&[32, 3, 224, 224], &[64, 3, 7, 7]], &[]);
        forward.attributes.insert("stride".into(), Attribute::List(vec![Attribute::Int(2), Attribute::Int(2)]));
        forward.attributes.insert("padding".into(), Attribute::List(vec![Attribute::Int(3), Attribute::Int(3)]));
        assert_eq!(work(&forward).unwrap().flops.get(), 2.0 * 32.0 * 118_013_952.0);
        let backward =
            operation("aten::convolution_backward", &[&[32, 64, 112, 112], &[32, 3, 224, 224], &[64, 3, 7, 7]], &[]);
        assert_eq!(work(&backward).unwrap().flops.get(), 2.0 * 2.0 * 32.0 * 118_013_952.0);
        // Grouped: the weight holds the channels of one group only.
        let depthwise = operation("aten::conv2d", &[&[1, 8, 10, 10], &[8, 1, 3, 3]], &[&[1, 8, 8, 8]]);
        assert_eq!(work(&depthwise).unwrap().flops.get(), 2.0 * 8.0 * 64.0 * 9.0);
    }

    #[test]
    fn memory_bound_operations() {
        let add = work(&operation("aten::add_", &[&[100], &[100]], &[&[100]])).unwrap();
        assert_eq!((add.flops.get(), add.bytes.get()), (100.0, 1200.0));
        let softmax = work(&operation("aten::_softmax", &[&[10, 10]], &[&[10, 10]])).unwrap();
        assert_eq!((softmax.flops.get(), softmax.bytes.get()), (500.0, 800.0));
        assert_eq!(work(&operation("aten::view", &[&[100]], &[&[100]])), None);
    }

    #[test]
    fn attention_counts_both_products() {
        let shape: &[u64] = &[8, 16, 512, 64];
        let mut forward = operation("aten::_scaled_dot_product_flash_attention", &[shape, shape, shape], &[shape]);
        let full = work(&forward).unwrap().flops.get();
        assert_eq!(full, 4.0 * 8.0 * 16.0 * 512.0 * 512.0 * 64.0);
        forward.attributes.insert("is_causal".into(), Attribute::Bool(true));
        assert_eq!(work(&forward).unwrap().flops.get(), full / 2.0);
    }

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
