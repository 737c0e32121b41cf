//! Arithmetic and memory traffic of an operation, from its name and shapes.
//!
//! Counts are the least an implementation needs: every input read once, every output
//! written once, a multiply-add counted as two operations. They serve the roofline and
//! the arithmetic intensity of wave scaling.

mod recurrent;
mod total;

use std::collections::BTreeMap;

pub use total::StepWork;

use super::family::{Family, family};
use crate::profile::{Attribute, DType, Operation, Precision, Shape};
use crate::units::{Bytes, Flops};

/// Kinds of arithmetic, by the rate that GPUs sustain for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// Element by element, on the vector units.
    Vector,
    /// Long products: on matrix units where the precision has them.
    Product,
    /// Convolutions: as products, but in FP32 with more reuse, so that boards hold their
    /// rate better.
    Convolution,
}

/// What one occurrence of an operation does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: Flops,
    /// Bytes read and written.
    pub bytes: Bytes,
    /// The units its arithmetic runs on.
    pub arithmetic: Arithmetic,
}

impl Work {
    /// Operations per byte; `None` where nothing is moved.
    pub fn intensity(&self) -> Option<f64> {
        (self.bytes.get() > 0.0).then(|| self.flops.get() / self.bytes.get())
    }
}

/// The work of one occurrence; `None` where the shapes do not tell.
///
/// Operators not known are taken as memory-bound when they have shapes; [`family`] tells.
pub fn work(operation: &Operation, precision: Option<Precision>) -> Option<Work> {
    let element = element_type(operation, precision).and_then(|dtype| dtype.size_bytes()).unwrap_or(4) as f64;
    match family(operation) {
        Family::View | Family::Communication => None,
        Family::Gemm => gemm(operation, element),
        Family::Convolution => convolution(operation, element),
        Family::Attention => attention(operation, element),
        Family::Recurrent => recurrent::recurrent(operation, element),
        Family::Softmax => streaming(operation, element, 5.0),
        Family::Normalisation => streaming(operation, element, 7.0),
        Family::Reduction => reduction(operation, element),
        Family::Embedding => lookup(operation, element),
        Family::Pooling | Family::Elementwise | Family::Unknown => streaming(operation, element, 1.0),
    }
}

/// The element type an operation runs in: as recorded, else what the workload's precision
/// says.
pub(super) fn element_type(operation: &Operation, precision: Option<Precision>) -> Option<DType> {
    operation.dtype.clone().or_else(|| {
        Some(match precision? {
            Precision::Fp32 | Precision::Tf32 => DType::Float32,
            Precision::AmpFp16 | Precision::Fp16 => DType::Float16,
            Precision::AmpBf16 | Precision::Bf16 => DType::Bfloat16,
            Precision::Fp8 => DType::Float8E4m3,
        })
    })
}

/// Elements of a tensor.
pub(super) fn volume(shape: &Shape) -> f64 {
    shape.iter().map(|&n| n as f64).product()
}

fn total(shapes: &[Shape]) -> f64 {
    shapes.iter().map(volume).sum()
}

fn light(flops: f64, bytes: f64) -> Work {
    Work { flops: Flops::known(flops), bytes: Bytes::known(bytes), arithmetic: Arithmetic::Vector }
}

/// Inputs read, outputs written, `per_element` operations on each element of the result;
/// a missing output is taken to be as large as the largest input.
fn streaming(operation: &Operation, element: f64, per_element: f64) -> Option<Work> {
    let read = total(&operation.inputs);
    let largest = operation.inputs.iter().map(volume).fold(0.0, f64::max);
    let written = if operation.outputs.is_empty() { largest } else { total(&operation.outputs) };
    if operation.inputs.is_empty() && operation.outputs.is_empty() {
        return None;
    }
    let bare = bare_name(operation);
    // Fused optimizers take lists of parameters, gradients and moments and write back all
    // but the gradients; an in-place foreach writes its first list, at least half of what
    // it reads unless it reads nothing else.
    if bare.starts_with("fused_adam") {
        let lists = if bare.starts_with("fused_adagrad") { 3.0 } else { 4.0 };
        return Some(light(per_element * read, read * (2.0 - 1.0 / lists) * element));
    }
    if bare.starts_with("fused_sgd") {
        return Some(light(per_element * read, read * (2.0 - 1.0 / 3.0) * element));
    }
    if bare.starts_with("foreach") {
        let written = if operation.outputs.is_empty() { read / foreach_lists(bare) } else { written };
        return Some(light(per_element * read, (read + written) * element));
    }
    // What is overwritten is not read.
    if only_writes(bare) {
        return Some(light(0.0, written.max(largest) * element));
    }
    match bare {
        "copy_" => return Some(light(0.0, 2.0 * largest * element)),
        "cat" | "stack" => return Some(light(0.0, (read + written.max(read)) * element)),
        _ => {}
    }
    Some(light(per_element * written.max(largest), (read + written) * element))
}

/// Operators that fill a tensor without looking at it.
fn only_writes(bare: &str) -> bool {
    matches!(
        bare,
        "fill_"
            | "zero_"
            | "zeros"
            | "zeros_like"
            | "new_zeros"
            | "ones"
            | "ones_like"
            | "new_ones"
            | "full"
            | "full_like"
            | "new_full"
            | "arange"
            | "normal_"
            | "uniform_"
            | "bernoulli_"
            | "random_"
            | "exponential_"
            | "rand"
            | "randn"
            | "randint"
    )
}

/// Inputs read, the (small) result written.
///
/// The negative log likelihood picks one number of each row and writes a whole matrix in
/// backward; the gradients of other losses are as large as their largest input.
fn reduction(operation: &Operation, element: f64) -> Option<Work> {
    let read = total(&operation.inputs);
    let largest = operation.inputs.iter().map(volume).fold(0.0, f64::max);
    let bare = bare_name(operation);
    let backward = bare.contains("backward");
    let moved = if bare.starts_with("nll_loss") {
        if backward { read } else { read - largest }
    } else if operation.outputs.is_empty() {
        read + if backward { largest } else { 0.0 }
    } else {
        read + total(&operation.outputs)
    };
    (read > 0.0).then(|| light(moved.min(read), moved * element))
}

/// Lists of tensors that a foreach operator reads.
fn foreach_lists(bare: &str) -> f64 {
    if bare.contains("addc") || bare.contains("lerp") {
        3.0
    } else if ["add_", "sub_"].iter().any(|part| bare.ends_with(part)) {
        2.0
    } else {
        1.0
    }
}

/// The operator without name space and leading underscores.
fn bare_name(operation: &Operation) -> &str {
    operation.name.rsplit("::").next().unwrap_or(&operation.name).trim_start_matches('_')
}

/// A look-up moves its result twice, and its indices; the table is not read as a whole.
/// The gradient of a table is written as a whole.
fn lookup(operation: &Operation, element: f64) -> Option<Work> {
    let (first, second) = (operation.inputs.first()?, operation.inputs.get(1));
    let written = operation.outputs.iter().map(volume).fold(0.0, f64::max);
    let bare = bare_name(operation);
    let moved = if bare.contains("backward") {
        // Inputs: gradient of the result, indices. `num_weights` rows of the table.
        let rows = operation.attributes.get("num_weights").and_then(Attribute::as_int).unwrap_or(0).max(0) as f64;
        let table = rows * *first.last()? as f64;
        volume(first) + written.max(table).max(volume(first))
    } else if ["index_put", "index_add", "index_copy", "scatter"].iter().any(|part| bare.contains(part)) {
        // The values go to their places; a result of its own is a copy of the whole first.
        let values = operation.inputs[1..].iter().map(volume).fold(0.0, f64::max);
        let copied = if bare.ends_with('_') { 0.0 } else { 2.0 * volume(first) };
        2.0 * values + copied
    } else if written > 0.0 {
        2.0 * written
    } else if bare.contains("gather") || bare.contains("take_along") {
        // One element for each index.
        2.0 * volume(second?)
    } else if bare.starts_with("embedding") {
        // Inputs: table [rows, width], indices.
        2.0 * volume(second?) * *first.last()? as f64
    } else {
        // Inputs: tensor, indices into its first dimension.
        let slice = volume(first) / (*first.first()? as f64).max(1.0);
        2.0 * second.map_or_else(|| volume(first), |indices| volume(indices) * slice)
    };
    (moved > 0.0).then(|| light(0.0, moved * element))
}

fn gemm(operation: &Operation, element: f64) -> Option<Work> {
    let bare = bare_name(operation);
    let read = total(&operation.inputs);
    match bare {
        "einsum" => return einsum(operation, element),
        // Input [.., N], gradient [.., K] and weight [K, N]: gradients of input and weight.
        "linear_backward" => {
            let [input, gradient, weight] = operation.inputs.get(..3)? else { return None };
            let flops = 4.0 * volume(input) * *gradient.last()? as f64;
            return product(flops, 2.0 * read + volume(input) + volume(weight), element);
        }
        _ => {}
    }
    // addmm and baddbmm carry the bias first.
    let skip = usize::from(["addm", "addbmm", "baddbmm"].iter().any(|start| bare.starts_with(start)));
    let [left, right] = operation.inputs.get(skip..skip + 2)? else { return None };
    let (rows, reduction) = (left.split_last()?.1.iter().map(|&n| n as f64).product::<f64>(), *left.last()? as f64);
    let columns = match right.len() {
        1 => 1.0,
        // Each row meets the matrix of its group only.
        3 if bare == "grouped_mm" && left.len() == 2 => *right.last()? as f64,
        // `linear` has its weight as [K, N]; the volume tells the columns either way.
        _ => volume(right) / reduction / batch_of(left, right),
    };
    product(2.0 * rows * reduction * columns, read + rows * columns, element)
}

/// A product of `flops` operations that moves `moved` elements; empty tensors do nothing.
fn product(flops: f64, moved: f64, element: f64) -> Option<Work> {
    (flops > 0.0).then(|| Work {
        flops: Flops::known(flops),
        bytes: Bytes::known(moved * element),
        arithmetic: Arithmetic::Product,
    })
}

/// `einsum` of two factors, where its equation was recorded without an ellipsis: two
/// operations for every combination of all indices.
fn einsum(operation: &Operation, element: f64) -> Option<Work> {
    let Some(Attribute::Text(equation)) = operation.attributes.get("equation") else { return None };
    let (factors, result) = equation.split_once("->")?;
    let factors: Vec<&str> = factors.split(',').map(str::trim).collect();
    if factors.len() != 2 || operation.inputs.len() < 2 {
        return None;
    }
    let mut extents: BTreeMap<char, f64> = BTreeMap::new();
    for (factor, shape) in factors.iter().zip(&operation.inputs) {
        if factor.chars().count() != shape.len() {
            return None;
        }
        extents.extend(factor.chars().zip(shape.iter().map(|&extent| extent as f64)));
    }
    let written: f64 =
        result.trim().chars().map(|index| extents.get(&index)).collect::<Option<Vec<_>>>()?.into_iter().product();
    product(2.0 * extents.values().product::<f64>(), total(&operation.inputs) + written, element)
}

/// Leading dimensions that both factors of a batched product share.
fn batch_of(left: &Shape, right: &Shape) -> f64 {
    if left.len() >= 3 && right.len() >= 3 { right[..right.len() - 2].iter().map(|&n| n as f64).product() } else { 1.0 }
}

/// Forward `[input, weight, …]`, backward `[grad_output, input, weight, …]`.
///
/// FLOPs: 2 · outputs · (weights of one output channel); of a transposed convolution
/// 2 · inputs · (weights of one input channel), as it is the gradient of an ordinary one.
/// Twice that for a backward pass that forms both gradients (`output_mask`, where
/// recorded, says which).
fn convolution(operation: &Operation, element: f64) -> Option<Work> {
    let name = operation.name.to_ascii_lowercase();
    let transposed =
        name.contains("transpose") || matches!(operation.attributes.get("transposed"), Some(Attribute::Bool(true)));
    let tensors: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() >= 3).collect();
    let (input, weight, output, gradients) = if name.contains("backward") {
        let [gradient, input, weight] = tensors.get(..3)? else { return None };
        let gradients = match operation.attributes.get("output_mask") {
            Some(Attribute::List(mask)) => {
                mask.iter().take(2).filter(|flag| matches!(flag, Attribute::Bool(true))).count() as f64
            }
            // The separate kernels of older releases form one gradient each.
            _ if name.contains("backward_input") || name.contains("backward_weight") => 1.0,
            _ => 2.0,
        };
        (input, weight, volume(gradient), gradients)
    } else {
        let [input, weight] = tensors.get(..2)? else { return None };
        let output = match operation.outputs.first() {
            Some(output) if output.len() >= 3 => volume(output),
            // Where it is not recorded, that of a transposed one is left out of the traffic.
            _ if transposed => 0.0,
            _ => convolution_output(operation, input, weight)?,
        };
        (input, weight, output, 1.0)
    };
    let taps = volume(weight) / (*weight.first()? as f64).max(1.0);
    let flops = 2.0 * if transposed { volume(input) } else { output } * taps * gradients;
    let moved = (volume(input) + volume(weight) + output) * gradients;
    Some(Work { flops: Flops::known(flops), bytes: Bytes::known(moved * element), arithmetic: Arithmetic::Convolution })
}

/// ⌊(size + 2·padding − dilation·(kernel − 1) − 1) / stride⌋ + 1 in each dimension.
fn convolution_output(operation: &Operation, input: &Shape, weight: &Shape) -> Option<f64> {
    let list = |key: &str, default: i64| -> Vec<i64> {
        operation.attributes.get(key).and_then(Attribute::as_ints).unwrap_or_else(|| vec![default])
    };
    let (stride, padding, dilation) = (list("stride", 1), list("padding", 0), list("dilation", 1));
    // Attributes come from files: no integer arithmetic on them, it could overflow.
    let at = |values: &[i64], index: usize| values.get(index).or(values.first()).map_or(1.0, |&value| value as f64);
    let mut output = *input.first()? as f64 * *weight.first()? as f64;
    for (index, (&size, &kernel)) in input.get(2..)?.iter().zip(weight.get(2..)?).enumerate() {
        let reach = size as f64 + 2.0 * at(&padding, index) - at(&dilation, index) * (kernel as f64 - 1.0) - 1.0;
        output *= (reach.max(0.0) / at(&stride, index).max(1.0)).floor() + 1.0;
    }
    Some(output)
}

/// Query, key and value as `[batch, heads, length, head size]` (the kernels below
/// `scaled_dot_product_attention` take `[batch, length, heads, head size]`): two products
/// over all pairs of positions, half of them under a causal mask; five in backward.
fn attention(operation: &Operation, element: f64) -> Option<Work> {
    let tensors: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() == 4).collect();
    let backward = operation.name.contains("backward");
    // Backward lists the gradient of the output first.
    let [query, key] = tensors.get(usize::from(backward)..usize::from(backward) + 2)? else { return None };
    let (heads, length) = if operation.name.contains("scaled_dot_product") { (1, 2) } else { (2, 1) };
    let pairs = query[0] as f64 * query[heads] as f64 * query[length] as f64 * key[length] as f64;
    let causal = matches!(operation.attributes.get("is_causal"), Some(Attribute::Bool(true)));
    let products = if backward { 5.0 } else { 2.0 };
    let flops = products * 2.0 * pairs * query[3] as f64 * if causal { 0.5 } else { 1.0 };
    let moved = tensors.iter().map(|shape| volume(shape)).sum::<f64>() + volume(query);
    Some(Work { flops: Flops::known(flops), bytes: Bytes::known(moved * element), arithmetic: Arithmetic::Product })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Phase;

    pub(super) fn operation(name: &str, inputs: &[&[u64]], outputs: &[&[u64]]) -> Operation {
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
        let mm = work(&operation("aten::mm", &[&[4096, 1024], &[1024, 512]], &[]), None).unwrap();
        assert_eq!(mm.flops.get(), 2.0 * 4096.0 * 1024.0 * 512.0);
        assert_eq!(mm.bytes.get(), 4.0 * (4096.0 * 1024.0 + 1024.0 * 512.0 + 4096.0 * 512.0));
        let addmm = work(&operation("aten::addmm", &[&[512], &[4096, 1024], &[1024, 512]], &[]), None).unwrap();
        assert_eq!(addmm.flops, mm.flops);
        let linear = work(&operation("aten::linear", &[&[8, 512, 1024], &[512, 1024], &[512]], &[]), None).unwrap();
        assert_eq!(linear.flops, mm.flops);
        let bmm = work(&operation("aten::bmm", &[&[16, 512, 64], &[16, 64, 256]], &[]), None).unwrap();
        assert_eq!(bmm.flops.get(), 2.0 * 16.0 * 512.0 * 64.0 * 256.0);
    }

    /// ResNet-50's first layer: 7×7, 3 → 64 channels, 224 → 112: 118,013,952 multiply-adds
    /// an image.
    #[test]
    fn convolutions() {
        let mut forward = operation("aten::cudnn_convolution", &[&[32, 3, 224, 224], &[64, 3, 7, 7]], &[]);
        forward.attributes.insert("stride".into(), Attribute::List(vec![Attribute::Int(2), Attribute::Int(2)]));
        forward.attributes.insert("padding".into(), Attribute::List(vec![Attribute::Int(3), Attribute::Int(3)]));
        assert_eq!(work(&forward, None).unwrap().flops.get(), 2.0 * 32.0 * 118_013_952.0);
        let backward =
            operation("aten::convolution_backward", &[&[32, 64, 112, 112], &[32, 3, 224, 224], &[64, 3, 7, 7]], &[]);
        assert_eq!(work(&backward, None).unwrap().flops.get(), 2.0 * 2.0 * 32.0 * 118_013_952.0);
        // Grouped: the weight holds the channels of one group only.
        let depthwise = operation("aten::conv2d", &[&[1, 8, 10, 10], &[8, 1, 3, 3]], &[&[1, 8, 8, 8]]);
        assert_eq!(work(&depthwise, None).unwrap().flops.get(), 2.0 * 8.0 * 64.0 * 9.0);
    }

    #[test]
    fn memory_bound_operations() {
        let add = work(&operation("aten::add_", &[&[100], &[100]], &[&[100]]), None).unwrap();
        assert_eq!((add.flops.get(), add.bytes.get()), (100.0, 1200.0));
        let softmax = work(&operation("aten::_softmax", &[&[10, 10]], &[&[10, 10]]), None).unwrap();
        assert_eq!((softmax.flops.get(), softmax.bytes.get()), (500.0, 800.0));
        assert_eq!(work(&operation("aten::view", &[&[100]], &[&[100]]), None), None);
    }

    #[test]
    fn attention_counts_both_products() {
        let shape: &[u64] = &[8, 16, 512, 64];
        let mut forward = operation("aten::_scaled_dot_product_flash_attention", &[shape, shape, shape], &[shape]);
        let full = work(&forward, None).unwrap().flops.get();
        assert_eq!(full, 4.0 * 8.0 * 16.0 * 512.0 * 512.0 * 64.0);
        forward.attributes.insert("is_causal".into(), Attribute::Bool(true));
        assert_eq!(work(&forward, None).unwrap().flops.get(), full / 2.0);
    }

    #[test]
    fn lookups_move_what_they_take() {
        let megabytes = |operation: &Operation| work(operation, None).unwrap().bytes.get() / 1e6;
        let embedding = operation("aten::embedding", &[&[50257, 1600], &[8, 1024]], &[]);
        assert!((megabytes(&embedding) - 2.0 * 8.0 * 1024.0 * 1600.0 * 4.0 / 1e6).abs() < 1e-9);
        let mut gradient = operation("aten::embedding_dense_backward", &[&[8, 1024, 1600], &[8, 1024]], &[]);
        assert!((megabytes(&gradient) - 2.0 * 8.0 * 1024.0 * 1600.0 * 4.0 / 1e6).abs() < 1e-9);
        gradient.attributes.insert("num_weights".into(), Attribute::Int(50257));
        assert!((megabytes(&gradient) - (8.0 * 1024.0 + 50257.0) * 1600.0 * 4.0 / 1e6).abs() < 1e-9);
        let select = operation("aten::index_select", &[&[1000, 16], &[10]], &[]);
        assert!((megabytes(&select) - 2.0 * 160.0 * 4.0 / 1e6).abs() < 1e-12);
    }

    #[test]
    fn rarer_products() {
        let mut einsum = operation("aten::einsum", &[&[8, 16, 512, 64], &[8, 16, 256, 64]], &[]);
        assert_eq!(work(&einsum, None), None);
        einsum.attributes.insert("equation".into(), Attribute::Text("bhqd,bhkd->bhqk".into()));
        let flops = 2.0 * 8.0 * 16.0 * 512.0 * 256.0 * 64.0;
        assert_eq!(work(&einsum, None).unwrap().flops.get(), flops);
        let flops = |name: &str, inputs: &[&[u64]]| work(&operation(name, inputs, &[]), None).unwrap().flops.get();
        assert_eq!(flops("aten::matmul", &[&[8, 512, 64], &[64, 256]]), 2.0 * 8.0 * 512.0 * 64.0 * 256.0);
        assert_eq!(flops("aten::matmul", &[&[64], &[64, 256]]), 2.0 * 64.0 * 256.0);
        assert_eq!(flops("aten::mv", &[&[512, 64], &[64]]), 2.0 * 512.0 * 64.0);
        assert_eq!(flops("aten::baddbmm", &[&[8, 5, 7], &[8, 5, 6], &[8, 6, 7]]), 2.0 * 8.0 * 5.0 * 6.0 * 7.0);
        assert_eq!(flops("aten::addbmm", &[&[5, 7], &[8, 5, 6], &[8, 6, 7]]), 2.0 * 8.0 * 5.0 * 6.0 * 7.0);
        assert_eq!(flops("aten::_grouped_mm", &[&[100, 6], &[8, 6, 7], &[8]]), 2.0 * 100.0 * 6.0 * 7.0);
        assert_eq!(flops("aten::linear_backward", &[&[4, 10, 6], &[4, 10, 7], &[7, 6]]), 2.0 * 2.0 * 40.0 * 6.0 * 7.0);
    }

    #[test]
    fn what_is_overwritten_or_picked_out_is_not_read() {
        let bytes = |name: &str, inputs: &[&[u64]], outputs: &[&[u64]]| {
            work(&operation(name, inputs, outputs), None).unwrap().bytes.get()
        };
        assert_eq!(bytes("aten::zero_", &[&[100]], &[&[100]]), 400.0);
        assert_eq!(bytes("aten::copy_", &[&[100], &[100]], &[&[100]]), 800.0);
        assert_eq!(bytes("aten::cat", &[&[100], &[50]], &[]), 1200.0);
        // 64 numbers of 64 rows; their gradient fills all of the matrix.
        assert_eq!(bytes("aten::nll_loss_forward", &[&[64, 1000], &[64]], &[&[], &[]]), 4.0 * 64.0);
        let backward = bytes("aten::nll_loss_backward", &[&[], &[64, 1000], &[64], &[]], &[&[64, 1000]]);
        assert_eq!(backward, 4.0 * (64_000.0 + 64.0 + 2.0));
        assert_eq!(bytes("aten::gather", &[&[64, 1000], &[64, 1]], &[]), 4.0 * 2.0 * 64.0);
        assert_eq!(bytes("aten::index_put_", &[&[1000, 16], &[10], &[10, 16]], &[&[1000, 16]]), 4.0 * 2.0 * 160.0);
        assert_eq!(bytes("aten::sum", &[&[64, 1000]], &[&[1, 1000]]), 4.0 * 65_000.0);
    }

    #[test]
    fn optimizers_read_lists_and_write_them_back() {
        let list: &[u64] = &[100];
        let bytes = |name, inputs: &[&[u64]]| work(&operation(name, inputs, &[]), None).unwrap().bytes.get();
        // Parameter, gradient and two moments read; all but the gradient written.
        assert_eq!(bytes("aten::_fused_adamw_", &[list; 4]), 7.0 * 400.0);
        assert_eq!(bytes("aten::_foreach_mul_", &[list; 4]), 2.0 * 4.0 * 400.0);
        assert_eq!(bytes("aten::_foreach_addcdiv_", &[list; 3]), 4.0 * 400.0);
        // Parameter, gradient and momentum read, two of them written.
        assert!((bytes("aten::_fused_sgd_", &[list; 3]) - 5.0 * 400.0).abs() < 1e-9);
    }

    /// 64 × 512 × 8 × 8 up to 16 × 16 with 256 channels and 4 × 4 taps: every input meets
    /// every weight of its channel, 8,589,934,592 multiply-adds.
    #[test]
    fn transposed_convolutions_are_counted_from_their_inputs() {
        let shapes: [&[u64]; 2] = [&[64, 512, 8, 8], &[512, 256, 4, 4]];
        let flops = 2.0 * 64.0 * 512.0 * 64.0 * 256.0 * 16.0;
        let cudnn = operation("aten::cudnn_convolution_transpose", &shapes, &[]);
        assert_eq!(work(&cudnn, None).unwrap().flops.get(), flops);
        let mut plain = operation("aten::convolution", &shapes, &[&[64, 256, 16, 16]]);
        plain.attributes.insert("transposed".into(), Attribute::Bool(true));
        assert_eq!(work(&plain, None).unwrap().flops.get(), flops);
    }

    #[test]
    fn attention_kernels_below_the_wrapper_have_their_own_layout() {
        let (wrapped, inner): (&[u64], &[u64]) = (&[8, 16, 512, 64], &[8, 512, 16, 64]);
        let outer = operation("aten::_scaled_dot_product_flash_attention", &[wrapped; 3], &[]);
        let kernel = operation("aten::_flash_attention_forward", &[inner; 3], &[]);
        assert_eq!(work(&outer, None).unwrap().flops, work(&kernel, None).unwrap().flops);
    }

    #[test]
    fn the_precision_of_the_workload_stands_in_for_a_missing_type() {
        let mut product = operation("aten::mm", &[&[8, 8], &[8, 8]], &[]);
        product.dtype = None;
        assert_eq!(work(&product, Some(Precision::AmpBf16)).unwrap().bytes.get(), 3.0 * 64.0 * 2.0);
        assert_eq!(work(&product, None).unwrap().bytes.get(), 3.0 * 64.0 * 4.0);
    }

    #[test]
    fn sizes_from_hostile_files_do_not_overflow() {
        let huge = u64::MAX;
        for (name, inputs) in [
            ("aten::_scaled_dot_product_flash_attention", [[huge; 4], [huge; 4]]),
            ("aten::conv2d", [[huge; 4], [huge; 4]]),
            ("aten::conv2d", [[0; 4], [0; 4]]),
            ("aten::mm", [[0; 4], [0; 4]]),
        ] {
            let mut operation = operation(name, &[&inputs[0], &inputs[1]], &[]);
            operation.attributes.insert("padding".into(), Attribute::Int(i64::MAX));
            operation.attributes.insert("stride".into(), Attribute::Int(i64::MIN));
            let flops = work(&operation, None).map_or(0.0, |work| work.flops.get());
            assert!(flops.is_finite(), "{name}");
        }
    }
}
