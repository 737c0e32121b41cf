//! What the trace and the caller say about the workload.

use std::collections::{HashMap, HashSet};

use super::nest::Nesting;
use super::options::ImportOptions;
use super::samples::{Samples, first_layer, samples};
use crate::op::{self, name};
use crate::profile::{DType, Mode, Operation, Phase, Precision, Shape, Workload};
use crate::trace::{Span, Trace};

/// What the trace and the caller say about the workload.
pub(super) fn workload(
    trace: &Trace,
    nesting: &Nesting,
    spans: &[Span],
    operations: &[Operation],
    options: &ImportOptions<'_>,
    notes: &mut Vec<String>,
) -> Workload {
    let mode = options.mode.unwrap_or_else(|| {
        if trace.trains {
            return Mode::Training;
        }
        if trace.recorder.grouping.is_without_operators() {
            notes.push(
                "whether this is training or inference is not known: training is assumed; --mode sets it".to_owned(),
            );
            return Mode::Training;
        }
        mode(trace, nesting)
    });
    let model = options.model.as_ref();
    let found = samples(trace, nesting, spans, model);
    let batch_size = options.batch_size.or(found.as_ref().and_then(|found| Some(found.as_ref().ok()?.count)));
    notes.extend(match (&found, options.batch_size, model) {
        (Some(Ok(found)), Some(given), Some(_)) if given != found.count => {
            Some(format!("batch size {given} as given; from {} it would be {}", found.seen, found.count))
        }
        (Some(Ok(Samples { count, seen, doubt: Some(doubt), .. })), None, Some(_)) => {
            Some(format!("batch size {count} rows of the network, from {seen}; {doubt}"))
        }
        (Some(Ok(found)), None, Some(_)) => {
            let doubt = if found.parts > 1 { " (--batch-size if that is wrong)" } else { "" };
            Some(format!("batch size {} from {}{doubt}", found.count, found.seen))
        }
        (Some(Ok(found)), None, None) => {
            Some(format!("batch size {} is read off {}; --batch-size sets it", found.count, found.seen))
        }
        (Some(Err(reason)), None, _) => Some(format!("the batch size is not known: {reason}; --batch-size sets it")),
        _ => None,
    });
    let samples = found.as_ref().and_then(|found| found.as_ref().ok());
    let micro_batches =
        samples.filter(|found| found.parts > 1 && batch_size == Some(found.count)).map(|found| found.parts);
    let sequence_length = options.sequence_length.or_else(|| {
        if model.is_some() {
            return found?.ok()?.length;
        }
        let length = length(first_layer(trace, nesting, spans.first()?)?, options.batch_size)?;
        notes.push(format!("sequence length {length} is read off the first layer's input"));
        Some(length)
    });
    let found = precision(operations);
    if let (Some(given), Some((found, how))) = (options.precision, found)
        && !given.has_types_of(found)
    {
        notes.push(format!(
            "precision {given} as given, {found} {how}: what is given names the step and does not convert it, as `predict --precision {given}` does"
        ));
    }
    let precision = options.precision.or_else(|| {
        let (precision, how) = found?;
        notes.push(format!("precision {precision}, {how}; --precision sets it"));
        Some(precision)
    });
    let parameter_count = options.parameter_count.or_else(|| {
        let count =
            (mode == Mode::Training).then(|| spans.first().and_then(|span| parameters(trace, span))).flatten()?;
        notes.push(format!("{count} parameters are counted from the gradients that the backward pass accumulates"));
        Some(count)
    });
    let name = if options.workload.trim().is_empty() { "imported".to_owned() } else { options.workload.clone() };
    Workload { name, mode, batch_size, micro_batches, sequence_length, precision, parameter_count }
}

/// Training if anything runs backward.
fn mode(trace: &Trace, nesting: &Nesting) -> Mode {
    let backward = nesting.contexts.iter().any(|context| context.backward || context.accumulation)
        || trace.ranges.iter().any(|host| host.of_forward);
    if backward { Mode::Training } else { Mode::Inference }
}

/// Tokens of a sample, from the extents of the first layer's input and the batch size where
/// that is known: attention layers of PyTorch turn their input to have the sequence first.
fn length((first, second): (u64, Option<u64>), batch: Option<u64>) -> Option<u64> {
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
fn parameters(trace: &Trace, span: &Span) -> Option<u64> {
    let mut total = 0_u64;
    let mut backward_passes = 0_u64;
    let mut sinks = 0_u64;
    for host in trace.ranges.iter().filter(|host| host.start >= span.start && host.start < span.end) {
        let name = trace.name(host.name);
        if name == "torch::autograd::AccumulateGrad" {
            let shape = trace.tensors(host).shapes.first()?;
            total = total.checked_add(shape.iter().try_fold(1_u64, |a, b| a.checked_mul(*b))?)?;
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
fn precision(operations: &[Operation]) -> Option<(Precision, &'static str)> {
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
