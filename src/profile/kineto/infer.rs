//! What the trace says about the workload without naming it.

use std::collections::{HashMap, HashSet};

use super::args::tensors;
use super::collect::Records;
use super::nest::Nesting;
use super::record::HostKind;
use super::steps::Span;
use crate::op::{self, Form, Name, name};
use crate::profile::{DType, Mode, Operation, Phase, Precision, Shape};

/// Training if anything runs backward.
pub(super) fn mode(records: &Records, nesting: &Nesting) -> Mode {
    let backward = nesting.contexts.iter().any(|context| context.backward || context.accumulation)
        || records.host.iter().any(|host| host.of_forward);
    if backward { Mode::Training } else { Mode::Inference }
}

/// First extent of the first layer's input, and tokens of a sample where the input is
/// two-dimensional.
pub(super) fn first_layer(records: &Records, nesting: &Nesting, span: &Span) -> Option<(u64, Option<u64>)> {
    let first = records
        .host
        .iter()
        .zip(&nesting.contexts)
        .filter(|(host, context)| {
            host.kind == HostKind::Operator
                && host.start >= span.start
                && host.start < span.end
                && !context.backward
                && !context.optimizer
                && !context.input
                && name::is_first_layer(records.names.text(host.name))
        })
        .min_by(|(a, _), (b, _)| a.start.total_cmp(&b.start))?
        .0;
    let (shapes, _) = tensors(records.texts.text(first.dims), records.texts.text(first.types));
    let lead = |shape: &Shape, at: usize| shape.get(at).copied().filter(|extent| *extent > 0);
    match Name::of(records.names.text(first.name)).form {
        Form::Lookup(_) => {
            let indices = shapes.get(1).filter(|shape| shape.len() == 2)?;
            Some((lead(indices, 0)?, lead(indices, 1)))
        }
        Form::Product(_) => {
            let input = shapes.first()?;
            match input.len() {
                2 => Some((lead(input, 0)?, None)),
                3 => Some((lead(input, 0)?, lead(input, 1))),
                _ => None,
            }
        }
        // Recurrent layers may have the batch first or second.
        Form::Recurrent { .. } => None,
        _ => {
            let (input, weight) = (shapes.first()?, shapes.get(1)?);
            (input.len() == weight.len()).then(|| lead(input, 0))?.map(|batch| (batch, None))
        }
    }
}

/// Tokens of a sample, from the extents of the first layer's input and the batch size where
/// that is known: attention layers of PyTorch turn their input to have the sequence first.
pub(super) fn length((first, second): (u64, Option<u64>), batch: Option<u64>) -> Option<u64> {
    let second = second?;
    match batch {
        Some(batch) if second == batch && first != batch => Some(first),
        // Micro-batches of a step, or a number that has nothing to do with this input.
        Some(batch) if batch % first != 0 => None,
        _ => Some(second),
    }
}

/// Parameters with a gradient: autograd accumulates each exactly once in a backward pass.
/// `None` where shapes are missing or several backward passes make it uncertain.
pub(super) fn parameters(records: &Records, span: &Span) -> Option<u64> {
    let mut total = 0_u64;
    let mut backward_passes = 0_u64;
    let mut sinks = 0_u64;
    for host in records.host.iter().filter(|host| host.start >= span.start && host.start < span.end) {
        let name = records.names.text(host.name);
        if name == "torch::autograd::AccumulateGrad" {
            let (shapes, _) = tensors(records.texts.text(host.dims), records.texts.text(host.types));
            total = total.checked_add(shapes.first()?.iter().try_fold(1_u64, |a, b| a.checked_mul(*b))?)?;
            sinks += 1;
        }
        // The loss of a step is differentiated once per micro-batch.
        if host.of_forward && name::is_loss_node(name) {
            backward_passes += 1;
        }
    }
    (sinks > 0 && total > 0 && backward_passes == 1).then_some(total)
}

/// The arithmetic of the products, and how it was told.
pub(super) fn precision(operations: &[Operation]) -> Option<(Precision, &'static str)> {
    let works = |operation: &Operation| matches!(operation.phase, Phase::Forward | Phase::Backward);
    let is_product = |operation: &Operation| works(operation) && op::family(operation).varies_kernels();
    // In a compiled graph the products have no names of their own.
    let any_product = operations.iter().any(is_product);
    let weight = |operation: &Operation| operation.total_device_time().map_or(1.0, |time| time.get() + 1e-9);
    let mut by_type: HashMap<&DType, f64> = HashMap::new();
    let mut kernels: Vec<(&str, f64)> = Vec::new();
    for operation in operations.iter().filter(|o| if any_product { is_product(o) } else { works(o) }) {
        if let Some(dtype) = &operation.dtype {
            *by_type.entry(dtype).or_default() += weight(operation);
        }
        let count = f64::from(operation.count);
        kernels.extend(
            operation
                .kernels
                .iter()
                .filter(|kernel| any_product || multiplies(&kernel.name))
                .map(|kernel| (kernel.name.as_str(), kernel.duration.get() * f64::from(kernel.count) * count)),
        );
    }
    let share = |test: &dyn Fn(&str) -> bool| -> f64 {
        let total: f64 = kernels.iter().map(|(_, time)| time).sum();
        let of: f64 = kernels.iter().filter(|(name, _)| test(name)).map(|(_, time)| time).sum();
        if total > 0.0 { of / total } else { 0.0 }
    };
    let tf32 = share(&|name| name.contains("tf32") || (name.contains("s1688") && !name.contains("fp16")));
    let dtype = by_type.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(dtype, _)| dtype);
    // Master weights in float32 tell mixed precision from a model cast as a whole.
    let mixed = || {
        operations.iter().any(|operation| {
            operation.phase == Phase::Optimizer
                && operation.dtype == Some(DType::Float32)
                && operation.inputs.iter().any(|s| !s.is_empty())
        }) || casts(operations)
    };
    let from_types = "from the element types of the matrix products";
    Some(match dtype {
        Some(DType::Float32) if tf32 > 0.5 => (Precision::Tf32, "from float32 products in kernels named tf32"),
        Some(DType::Float32 | DType::Float64) => (Precision::Fp32, from_types),
        Some(DType::Float16) if mixed() => (Precision::AmpFp16, from_types),
        Some(DType::Float16) => (Precision::Fp16, from_types),
        Some(DType::Bfloat16) if mixed() => (Precision::AmpBf16, from_types),
        Some(DType::Bfloat16) => (Precision::Bf16, from_types),
        Some(DType::Float8E4m3 | DType::Float8E5m2) => (Precision::Fp8, from_types),
        None if tf32 > 0.5 => (Precision::Tf32, "from kernel names"),
        None if share(&|name| name.contains("sgemm") || name.contains("scudnn") || name.contains("<float")) > 0.5 => {
            (Precision::Fp32, "from kernel names")
        }
        _ => return None,
    })
}

/// Whether a kernel is a matrix product or a convolution, by the names that the libraries
/// give them.
fn multiplies(kernel: &str) -> bool {
    ["gemm", "tensorop", "xmma", "conv"].iter().any(|part| kernel.contains(part))
}

/// Whether weights are cast in every forward pass, as autocast does: a copy to another
/// type of the shape of a product's weight.
fn casts(operations: &[Operation]) -> bool {
    let weights: HashSet<&Shape> = operations
        .iter()
        .filter(|operation| operation.phase == Phase::Forward)
        .filter_map(|operation| operation.inputs.get(name::weight(&operation.name)?))
        .filter(|shape| shape.len() >= 2)
        .collect();
    operations
        .iter()
        .filter(|operation| operation.phase == Phase::Forward && name::is_copy(&operation.name))
        .filter(|operation| {
            operation
                .kernels
                .iter()
                .any(|kernel| kernel.name.contains("float16_copy") || kernel.name.contains("LoadWithCast"))
        })
        .filter_map(|operation| operation.inputs.first())
        .any(|shape| weights.contains(shape) || weights.contains(&shape.iter().rev().copied().collect::<Shape>()))
}

#[cfg(test)]
mod tests {
    use super::length;

    #[test]
    fn the_sequence_is_the_extent_that_the_batch_is_not() {
        assert_eq!(length((8, Some(128)), None), Some(128));
        assert_eq!(length((8, Some(128)), Some(8)), Some(128));
        assert_eq!(length((64, Some(16)), Some(16)), Some(64), "sequence first");
        assert_eq!(length((16, Some(16)), Some(16)), Some(16));
        assert_eq!(length((8, Some(128)), Some(32)), Some(128), "four micro-batches");
        assert_eq!(length((64, Some(7)), Some(16)), None);
        assert_eq!(length((8, None), Some(8)), None);
    }
}
