//! Derives the workload from the trace and the options.

use std::collections::{BTreeMap, HashSet};

use super::nest::Nesting;
use super::options::ImportOptions;
use super::parts::Samples;
use super::samples::{first_layer, samples};
use crate::{Span, Trace};
use habitat_step::op::name::{self, Factors, factors_of_kernel, is_product_kernel};
use habitat_step::op::{self, Family};
use habitat_step::profile::{
    Attribute, DType, DeviceInfo, IN_FP4, Kernel, Mode, Operation, Phase, Precision, Shape, Workload,
};

/// The workload, and whether its use of TF32 is known.
pub(super) fn workload(
    trace: &Trace,
    nesting: &Nesting,
    spans: &[Span],
    operations: &[Operation],
    options: &ImportOptions<'_>,
    notes: &mut Vec<String>,
) -> (Workload, bool) {
    let mode = options.mode.unwrap_or_else(|| {
        if trace.trains {
            return Mode::Training;
        }
        if trace.recorder.grouping.is_without_operators() {
            notes.push("training or inference unknown: assuming training; --mode sets it".to_owned());
            return Mode::Training;
        }
        mode(trace, nesting)
    });
    let model = options.model.as_ref();
    let found = samples(trace, nesting, spans, model);
    let batch_size = options.batch_size.or(found.as_ref().and_then(|found| Some(found.as_ref().ok()?.count)));
    notes.extend(note_of_batch(found.as_ref(), options.batch_size, model.is_some()));
    let samples = found.as_ref().and_then(|found| found.as_ref().ok());
    let micro_batches =
        samples.filter(|found| found.parts > 1 && batch_size == Some(found.count)).map(|found| found.parts);
    let sequence_length = options.sequence_length.or_else(|| {
        if model.is_some() {
            let given = found?.ok()?.length?;
            let length = embedded(operations, given);
            if length != given {
                notes.push(format!(
                    "sequence length {length}, from the tokens that the model embeds: of the {given} of its input the last is only a target"
                ));
            }
            return Some(length);
        }
        let length = length(first_layer(trace, nesting, spans.first()?)?, options.batch_size)?;
        notes.push(format!("sequence length {length} from the first layer's input"));
        Some(length)
    });
    let tf32 = Tf32::of(&trace.devices, operations, options.tf32);
    let found = precision(operations, tf32);
    if let (Some(given), Ok((found, how))) = (options.precision, &found)
        && !given.has_types_of(*found)
    {
        notes.push(format!(
            "precision {given} as given, but {found} {how}: the option labels the step; `predict --precision {given}` converts it"
        ));
    }
    let precision = options.precision.or_else(|| match found {
        Ok((precision, how)) => {
            notes.push(format!("precision {precision}, {how}; --precision sets it"));
            Some(precision)
        }
        Err(reason) => {
            notes.extend(reason.map(|reason| format!("precision unknown: {reason}; --precision sets it")));
            None
        }
    });
    let parameter_count = options.parameter_count.or_else(|| {
        let count =
            (mode == Mode::Training).then(|| spans.first().and_then(|span| parameters(trace, span))).flatten()?;
        notes.push(format!("{count} parameters, counted from the gradients that the backward pass accumulates"));
        Some(count)
    });
    let name = if options.workload.trim().is_empty() { "imported".to_owned() } else { options.workload.clone() };
    let workload = Workload { name, mode, batch_size, micro_batches, sequence_length, precision, parameter_count };
    (workload, tf32.convolutions.is_some())
}

/// Says where the batch size is from; `given` by the user, `is_model` if the recorder saw the model's input.
fn note_of_batch(found: Option<&Result<Samples, String>>, given: Option<u64>, is_model: bool) -> Option<String> {
    match (found, given, is_model) {
        (Some(Ok(found)), Some(given), true) if given != found.count => {
            Some(format!("batch size {given} as given; from {} it would be {}", found.seen, found.count))
        }
        (Some(Ok(Samples { count, seen, doubt: Some(doubt), .. })), None, true) => {
            Some(format!("batch size {count} (rows of the model's input), from {seen}; {doubt}"))
        }
        (Some(Ok(found)), None, _) => {
            let sure = if found.parts > 1 { " (--batch-size if that is wrong)" } else { "" };
            let remedy = if is_model { sure } else { "; --batch-size sets it" };
            Some(format!("batch size {} from {}{remedy}", found.count, found.seen))
        }
        (Some(Err(reason)), None, _) => Some(format!("batch size unknown: {reason}; --batch-size sets it")),
        _ => None,
    }
}

/// Training if anything runs backward.
fn mode(trace: &Trace, nesting: &Nesting) -> Mode {
    let backward = nesting.contexts.iter().any(|context| context.backward || context.accumulation)
        || trace.ranges.iter().any(|host| host.of_forward);
    if backward { Mode::Training } else { Mode::Inference }
}

/// Tokens per sample that the model computes, of `given` in its input: a wrapper that predicts the next token drops the
/// last one before it looks up the embeddings.
fn embedded(operations: &[Operation], given: u64) -> u64 {
    let forward = operations.iter().filter(|operation| operation.phase == Phase::Forward);
    let lookups = forward.filter(|operation| op::family(operation) == Family::Embedding);
    let lengths: HashSet<u64> = lookups
        .filter_map(|operation| operation.inputs.get(1).filter(|indices| indices.len() == 2))
        .map(|indices| indices[1])
        .collect();
    let less = given.saturating_sub(1);
    if !lengths.contains(&given) && lengths.contains(&less) { less } else { given }
}

/// Tokens per sample, from the extents of the first layer's input and the batch size, if known: PyTorch's attention
/// layers transpose their input to put the sequence first.
fn length((first, second): (u64, Option<u64>), batch: Option<u64>) -> Option<u64> {
    let second = second?;
    match batch {
        Some(batch) if second == batch && first != batch => Some(first),
        // Micro-batches of a step, or a number unrelated to this input.
        Some(batch) if batch % first != 0 => None,
        _ => Some(second),
    }
}

/// Number of parameters with a gradient: autograd accumulates each exactly once per backward pass. `None` if shapes are
/// missing or several backward passes make it uncertain.
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

/// Precision of the products and its source; or the reason why it is unknown, if products were recorded.
fn precision(operations: &[Operation], tf32: Tf32) -> Result<(Precision, &'static str), Option<String>> {
    let works = |operation: &&Operation| matches!(operation.phase, Phase::Forward | Phase::Backward | Phase::Other);
    let products = Products::of(operations.iter().filter(works));
    // In a compiled graph the products have no names of their own.
    let others = || Some((of_others(operations.iter().filter(works))?, "from the element types of the operators"));
    if let Some(share) = products.share_of(Factors::Float4) {
        return Err(Some(format!("{:.0} % of the products are {IN_FP4}", 100.0 * share)));
    }
    let (types, how) = products.types().or_else(others).ok_or_else(|| products.doubt())?;
    // Master weights in float32 distinguish mixed precision from a model cast as a whole.
    let mixed = || {
        operations.iter().any(|operation| {
            operation.phase == Phase::Optimizer
                && operation.dtype == Some(DType::Float32)
                && operation.inputs.iter().any(|s| !s.is_empty())
        }) || casts(operations)
    };
    let precision = match types {
        Factors::Tf32 => return Ok((tf32.precision(), how)),
        Factors::Float32 => return Ok((tf32.precision(), tf32.how.unwrap_or(how))),
        Factors::Float16 if mixed() => Precision::AmpFp16,
        Factors::Float16 => Precision::Fp16,
        Factors::Bfloat16 if mixed() => Precision::AmpBf16,
        Factors::Bfloat16 => Precision::Bf16,
        Factors::Float8 => Precision::Fp8,
        // Only products are in it.
        Factors::Float4 => return Err(None),
        Factors::Float64 => {
            return Err(Some(
                "the products are in float64, which is not predicted: FP32 predictions would be too fast, by up to 64 times on consumer GPUs".to_owned(),
            ));
        }
    };
    Ok((precision, how))
}

/// Device time of the products of a step by element type of their factors, in microseconds; 1 for each product without
/// a recorded time.
#[derive(Default)]
struct Products {
    by_type: BTreeMap<Factors, f64>,
    /// Part of `by_type` identified only from kernel names.
    by_kernels: f64,
    /// Time of kernels of unknown type that may be products.
    unknown: f64,
    /// Time of all kernels.
    all: f64,
}

impl Products {
    /// Minimum time of products of known type, relative to that of unknown kernels, for the known ones to represent the
    /// step: a product of a few microseconds does not represent a step replayed in a CUDA graph.
    const DECIDES: f64 = 0.1;

    fn of<'a>(operations: impl Iterator<Item = &'a Operation>) -> Self {
        let mut products = Self::default();
        for operation in operations {
            products.add(operation);
        }
        products
    }

    fn add(&mut self, operation: &Operation) {
        let family = op::family(operation);
        let time = operation.total_device_time().map_or(1.0, |time| time.get() + 1e-9);
        self.all += time;
        let of_kernel = |kernel: &Kernel| kernel.duration.get() * f64::from(kernel.count) * f64::from(operation.count);
        let own = operation.dtype.as_ref().filter(|_| family.varies_kernels()).and_then(factors);
        if let Some(own) = own {
            let named = |kind| operation.kernels.iter().any(|kernel| factors_of_kernel(&kernel.name) == Some(kind));
            // Libraries convert 16-bit factors before such a kernel.
            let own = [Factors::Float4, Factors::Float8].into_iter().find(|kind| named(*kind)).unwrap_or(own);
            *self.by_type.entry(own).or_default() += time;
            return;
        }
        let mut rest = time;
        for kernel in operation.kernels.iter().filter(|kernel| is_product_kernel(&kernel.name)) {
            let time = of_kernel(kernel);
            if let Some(found) = factors_of_kernel(&kernel.name) {
                *self.by_type.entry(found).or_default() += time;
                self.by_kernels += time;
                rest -= time;
            }
        }
        let may_multiply = family.varies_kernels() || family == Family::Unknown;
        if may_multiply && operation.dtype.is_none() && operation.device_time.is_some() {
            self.unknown += rest.max(0.0);
        }
    }

    /// Share of the time of products of known type that is in this one; `None` without any.
    fn share_of(&self, factors: Factors) -> Option<f64> {
        Some(self.by_type.get(&factors)? / self.by_type.values().sum::<f64>().max(f64::MIN_POSITIVE))
    }

    /// Element type with the most time, and its source.
    fn types(&self) -> Option<(Factors, &'static str)> {
        let (&types, _) = self.by_type.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        let known: f64 = self.by_type.values().sum();
        if known < Self::DECIDES * self.unknown {
            return None;
        }
        Some(match types {
            _ if self.by_kernels > 0.5 * known => (types, "from the names of the kernels"),
            _ => (types, "from the element types of the matrix products"),
        })
    }

    /// Reason for an unknown type; `None` without kernels that may be products.
    fn doubt(&self) -> Option<String> {
        // The sum of no numbers is -0.
        let known = self.by_type.values().sum::<f64>().abs();
        (self.unknown > 0.0).then(|| {
            format!(
                "{:.0} % of the GPU's time is in kernels without an element type in their names, {:.1} % in products of a known type",
                100.0 * self.unknown / self.all,
                100.0 * known / self.all
            )
        })
    }
}

fn factors(dtype: &DType) -> Option<Factors> {
    Some(match dtype {
        DType::Float64 | DType::Complex128 => Factors::Float64,
        DType::Float32 | DType::Complex64 => Factors::Float32,
        DType::Float16 | DType::Complex32 => Factors::Float16,
        DType::Bfloat16 => Factors::Bfloat16,
        DType::Float8E4m3 | DType::Float8E5m2 => Factors::Float8,
        other if other.is_fp4() => Factors::Float4,
        _ => return None,
    })
}

/// Element type with the most time in a step without products, if most of its time has a type.
fn of_others<'a>(operations: impl Iterator<Item = &'a Operation>) -> Option<Factors> {
    let mut by_type: BTreeMap<Factors, f64> = BTreeMap::new();
    let mut all = 0.0;
    for operation in operations {
        let time = operation.total_device_time().map_or(1.0, |time| time.get() + 1e-9);
        all += time;
        if let Some(found) = operation.dtype.as_ref().and_then(factors) {
            *by_type.entry(found).or_default() += time;
        }
    }
    let known: f64 = by_type.values().sum();
    by_type.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| known >= 0.5 * all).map(|(types, _)| types)
}

/// Known use of TF32 in a recorded step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Tf32 {
    /// In matrix products.
    products: Option<bool>,
    /// In convolutions and recurrent layers.
    convolutions: Option<bool>,
    /// Source, if other than PyTorch's flags.
    how: Option<&'static str>,
}

impl Tf32 {
    /// From the program's flags (`told`), otherwise from the flag of each convolution in the trace, otherwise from
    /// kernel names. On a GPU without TF32 the kernels do not show whether it was allowed.
    fn of(devices: &[(Option<u64>, DeviceInfo)], operations: &[Operation], told: Option<[bool; 2]>) -> Self {
        if let Some([products, convolutions]) = told {
            return Self { products: Some(products), convolutions: Some(convolutions), how: None };
        }
        let has_tf32 = devices.iter().any(|(_, device)| {
            let is_nvidia = !["AMD", "Instinct", "Radeon", "gfx"].iter().any(|maker| device.name.contains(maker));
            is_nvidia && device.compute_capability.is_some_and(|capability| capability >= (8, 0))
        });
        // Kernel time in total and in TF32.
        let (mut products, mut convolutions) = ([0.0; 2], [0.0; 2]);
        let mut flags = [0_u32; 2];
        let works = |operation: &&Operation| matches!(operation.phase, Phase::Forward | Phase::Backward | Phase::Other);
        for operation in operations.iter().filter(works) {
            if let Some(Attribute::Bool(allowed)) = operation.attributes.get(op::ALLOW_TF32) {
                flags[usize::from(*allowed)] += operation.count;
            }
            if !matches!(operation.dtype, None | Some(DType::Float32)) {
                continue;
            }
            let family = op::family(operation);
            for kernel in operation.kernels.iter().filter(|kernel| is_product_kernel(&kernel.name)) {
                let of = match family {
                    Family::Convolution | Family::Recurrent => &mut convolutions,
                    Family::Unknown if convolves(&kernel.name) => &mut convolutions,
                    Family::Gemm | Family::Attention | Family::Unknown => &mut products,
                    _ => continue,
                };
                let time = kernel.duration.get() * f64::from(kernel.count) * f64::from(operation.count);
                of[0] += time;
                of[1] += if factors_of_kernel(&kernel.name) == Some(Factors::Tf32) { time } else { 0.0 };
            }
        }
        let [refused, allowed] = flags;
        let by_flags = (refused + allowed > 0).then_some(allowed >= refused);
        // cuDNN may choose FP32 kernels for some convolutions even if TF32 is allowed.
        let by_kernels = |[all, in_tf32]: [f64; 2], least: f64| match in_tf32 / all {
            share if share > least => Some(true),
            share if share >= 0.0 && has_tf32 => Some(false),
            _ => None,
        };
        let products = by_kernels(products, 0.5);
        let how = (products == Some(true)).then_some("from float32 products in kernels named tf32");
        Self { products, convolutions: by_flags.or_else(|| by_kernels(convolutions, 0.05)), how }
    }

    /// Precision of a step with 32-bit tensors; PyTorch's defaults for unknown uses.
    const fn precision(self) -> Precision {
        let products = matches!(self.products, Some(true));
        Precision::with_tf32(products, !matches!(self.convolutions, Some(false)))
    }
}

/// Whether a kernel is a convolution, by its name.
fn convolves(kernel: &str) -> bool {
    ["conv", "fprop", "dgrad", "wgrad", "winograd"].iter().any(|part| kernel.contains(part))
}

/// Whether weights are cast in every forward pass, as autocast does: a copy to another type with the shape of a
/// product's weight.
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
    use super::*;

    const PRODUCT: &str = r#""name": "aten::mm", "inputs": [[64, 64], [64, 64]]"#;
    const CONVOLUTION: &str = r#""name": "aten::cudnn_convolution", "inputs": [[8, 8, 16, 16], [8, 8, 3, 3]]"#;

    /// Precision of a forward step with these operations, each with its kernel, on a GPU with this capability, and
    /// whether its flag for convolutions is known.
    fn seen(gpu: (&str, u32), operations: &[(&str, &str)], told: Option<[bool; 2]>) -> (Precision, bool) {
        let info = DeviceInfo { name: gpu.0.to_owned(), compute_capability: Some((gpu.1, 0)), ..DeviceInfo::default() };
        let of = |(operation, kernel): &(&str, &str)| -> Operation {
            let kernels = format!(r#"[{{"name": "{kernel}", "duration_us": 10}}]"#);
            let json = format!(r#"{{{operation}, "phase": "forward", "dtype": "float32", "kernels": {kernels}}}"#);
            serde_json::from_str(&json).unwrap()
        };
        let operations: Vec<Operation> = operations.iter().map(of).collect();
        let tf32 = Tf32::of(&[(Some(0), info)], &operations, told);
        (precision(&operations, tf32).unwrap().0, tf32.convolutions.is_some())
    }

    #[test]
    fn the_sequence_is_that_of_the_embedded_tokens() {
        let of = |phase: &str, shapes: &str| -> Operation {
            let json = format!(r#"{{"name": "aten::embedding", "phase": "{phase}", "inputs": {shapes}}}"#);
            serde_json::from_str(&json).unwrap()
        };
        let [positions, tokens, whole] = ["[[1024, 8], [1024]]", "[[256, 8], [4, 1024]]", "[[256, 8], [4, 1025]]"]
            .map(|shapes| of("forward", shapes));
        assert_eq!(embedded(&[positions.clone(), tokens.clone()], 1025), 1024);
        // Some of it is embedded whole, or by another factor, or not at all.
        assert_eq!(embedded(&[tokens.clone(), whole], 1025), 1025);
        assert_eq!(embedded(&[of("forward", "[[256, 8], [4, 512]]")], 1025), 1025);
        assert_eq!(embedded(&[positions, of("backward", "[[256, 8], [4, 1024]]")], 1025), 1025);
    }

    #[test]
    fn kernels_and_flags_tell_where_tf32_runs() {
        let (a100, v100) = (("NVIDIA A100-SXM4-40GB", 8), ("Tesla V100-SXM2-16GB", 7));
        let sgemm = "ampere_sgemm_128x64_tn";
        let tf32_gemm = "cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4";
        let tf32_convolution = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16";
        let convolution = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize128x64x8_ffma";
        let volta = "volta_scudnn_128x64_relu_medium_nn_v1";
        for (gpu, product, other, expected) in [
            (a100, sgemm, tf32_convolution, Precision::Fp32),
            (a100, tf32_gemm, tf32_convolution, Precision::Tf32),
            (a100, sgemm, convolution, Precision::Fp32Strict),
            (a100, tf32_gemm, convolution, Precision::Tf32Products),
        ] {
            let found = seen(gpu, &[(PRODUCT, product), (CONVOLUTION, other)], None);
            assert_eq!(found, (expected, true), "{product}, {other}");
        }
        // A GPU without TF32 and an AMD GPU show nothing.
        assert_eq!(
            seen(v100, &[(PRODUCT, "volta_sgemm_128x64_nn"), (CONVOLUTION, volta)], None),
            (Precision::Fp32, false)
        );
        let amd = ("AMD Instinct MI300X", 9);
        let miopen = "igemm_fwd_gtcx3_nhwc_fp32_bx0_ex0_bt128x64x8 conv";
        assert_eq!(seen(amd, &[(CONVOLUTION, miopen)], None), (Precision::Fp32, false));
        // The flag of convolutions in a trace, and the flags of a program.
        let flagged = |allowed: bool| format!(r#"{CONVOLUTION}, "attributes": {{"allow_tf32": {allowed}}}"#);
        for (allowed, expected) in [(true, Precision::Fp32), (false, Precision::Fp32Strict)] {
            assert_eq!(seen(v100, &[(&flagged(allowed), volta)], None), (expected, true));
        }
        assert_eq!(seen(v100, &[(PRODUCT, volta)], Some([true, false])), (Precision::Tf32Products, true));
        assert_eq!(seen(v100, &[(PRODUCT, volta)], Some([true, true])), (Precision::Tf32, true));
    }

    #[test]
    fn products_in_fp4_pass_as_no_other_precision() {
        for four in [
            r#""name": "bmm", "dtype": "bfloat16", "inputs": [[8, 8, 8], [8, 8, 8]],
                "kernels": [{"name": "bmm_Bfloat16_E2m1E2m1_Fp32", "duration_us": 10}]"#,
            r#""name": "aten::_scaled_mm", "dtype": "c10::Float4_e2m1fn_x2", "inputs": [[8, 8], [8, 8]]"#,
        ] {
            let json = format!(
                r#"[{{"phase": "forward", {four}, "device_time_us": 10}},
                    {{"phase": "forward", "name": "aten::mm", "dtype": "bfloat16", "inputs": [[8, 8], [8, 8]], "device_time_us": 30}}]"#
            );
            let operations: Vec<Operation> = serde_json::from_str(&json).unwrap();
            let reason = precision(&operations, Tf32::of(&[], &operations, None)).unwrap_err().unwrap();
            assert!(reason.starts_with("25 % of the products are in FP4, which is not modelled"), "{reason}");
        }
    }

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
