//! What the trace and the caller say about the workload.

use std::collections::{HashMap, HashSet};

use super::nest::Nesting;
use super::options::ImportOptions;
use super::samples::{first_layer, samples};
use crate::op::{self, Family, name};
use crate::profile::{Attribute, DType, DeviceInfo, Mode, Operation, Phase, Precision, Shape, Workload};
use crate::trace::{Span, Trace};

/// The workload by the trace and the caller, and whether they show its use of TF32.
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
    let tf32 = Tf32::of(&trace.devices, operations, options.tf32);
    let found = precision(operations, tf32);
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
    let workload = Workload { name, mode, batch_size, micro_batches, sequence_length, precision, parameter_count };
    (workload, tf32.convolutions.is_some())
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
fn precision(operations: &[Operation], tf32: Tf32) -> Option<(Precision, &'static str)> {
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
    let of_32_bits = tf32.precision();
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
        Some(DType::Float32) => (of_32_bits, tf32.how.unwrap_or(from_types)),
        Some(DType::Float64) => (Precision::Fp32, from_types),
        Some(DType::Float16) if mixed() => (Precision::AmpFp16, from_types),
        Some(DType::Float16) => (Precision::Fp16, from_types),
        Some(DType::Bfloat16) if mixed() => (Precision::AmpBf16, from_types),
        Some(DType::Bfloat16) => (Precision::Bf16, from_types),
        Some(DType::Float8E4m3 | DType::Float8E5m2) => (Precision::Fp8, from_types),
        None if share(&is_tf32_kernel) > 0.5 => (of_32_bits, "from kernel names"),
        None if share(&|name| name.contains("sgemm") || name.contains("scudnn") || name.contains("<float")) > 0.5 => {
            (of_32_bits, "from kernel names")
        }
        _ => return None,
    })
}

/// Known uses of TF32 in a recorded step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Tf32 {
    /// In matrix products.
    products: Option<bool>,
    /// In convolutions and recurrent layers.
    convolutions: Option<bool>,
    /// How that was seen, if not by PyTorch's flags alone.
    how: Option<&'static str>,
}

impl Tf32 {
    /// By the program's flags (`told`), else the flag in a trace of each convolution, else the names of
    /// kernels. A GPU without TF32 shows by no kernel whether it was allowed.
    fn of(devices: &[(Option<u64>, DeviceInfo)], operations: &[Operation], told: Option<[bool; 2]>) -> Self {
        if let Some([products, convolutions]) = told {
            return Self { products: Some(products), convolutions: Some(convolutions), how: None };
        }
        let has_tf32 = devices.iter().any(|(_, device)| {
            let is_nvidia = !["AMD", "Instinct", "Radeon", "gfx"].iter().any(|maker| device.name.contains(maker));
            is_nvidia && device.compute_capability.is_some_and(|capability| capability >= (8, 0))
        });
        // Kernel time in all, and in TF32.
        let (mut products, mut convolutions) = ([0.0; 2], [0.0; 2]);
        let mut flags = [0_u32; 2];
        let works = |operation: &&Operation| matches!(operation.phase, Phase::Forward | Phase::Backward);
        for operation in operations.iter().filter(works) {
            if let Some(Attribute::Bool(allowed)) = operation.attributes.get(op::ALLOW_TF32) {
                flags[usize::from(*allowed)] += operation.count;
            }
            if !matches!(operation.dtype, None | Some(DType::Float32)) {
                continue;
            }
            let family = op::family(operation);
            for kernel in operation.kernels.iter().filter(|kernel| multiplies(&kernel.name)) {
                let of = match family {
                    Family::Convolution | Family::Recurrent => &mut convolutions,
                    Family::Unknown if convolves(&kernel.name) => &mut convolutions,
                    Family::Gemm | Family::Attention | Family::Unknown => &mut products,
                    _ => continue,
                };
                let time = kernel.duration.get() * f64::from(kernel.count) * f64::from(operation.count);
                of[0] += time;
                of[1] += if is_tf32_kernel(&kernel.name) { time } else { 0.0 };
            }
        }
        let [refused, allowed] = flags;
        let by_flags = (refused + allowed > 0).then_some(allowed >= refused);
        // cuDNN takes kernels in FP32 for some convolutions although it may take others.
        let by_kernels = |[all, in_tf32]: [f64; 2], least: f64| match in_tf32 / all {
            share if share > least => Some(true),
            share if share >= 0.0 && has_tf32 => Some(false),
            _ => None,
        };
        let products = by_kernels(products, 0.5);
        let how = (products == Some(true)).then_some("from float32 products in kernels named tf32");
        Self { products, convolutions: by_flags.or_else(|| by_kernels(convolutions, 0.05)), how }
    }

    /// The precision of a step of 32-bit tensors, by PyTorch's defaults if unknown.
    const fn precision(self) -> Precision {
        let products = matches!(self.products, Some(true));
        Precision::with_tf32(products, !matches!(self.convolutions, Some(false)))
    }
}

/// Whether a kernel multiplies in TF32, by its name: `s1688` and `s16816` are products of 16-bit numbers if the
/// name has their type.
fn is_tf32_kernel(kernel: &str) -> bool {
    let has = |parts: &[&str]| parts.iter().any(|part| kernel.contains(part));
    has(&["tf32"]) || has(&["s1688", "s16816"]) && !has(&["f16", "fp16"])
}

/// Whether a kernel is a convolution, by its name.
fn convolves(kernel: &str) -> bool {
    ["conv", "fprop", "dgrad", "wgrad", "winograd"].iter().any(|part| kernel.contains(part))
}

/// Whether a kernel is a matrix product or a convolution, by the names that the libraries
/// give them.
fn multiplies(kernel: &str) -> bool {
    ["gemm", "tensorop", "xmma", "conv", "winograd"].iter().any(|part| kernel.contains(part))
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
    use super::*;

    const PRODUCT: &str = r#""name": "aten::mm", "inputs": [[64, 64], [64, 64]]"#;
    const CONVOLUTION: &str = r#""name": "aten::cudnn_convolution", "inputs": [[8, 8, 16, 16], [8, 8, 3, 3]]"#;

    /// The precision of a forward step of such operations, each with its kernel, on a GPU of this capability, and whether
    /// its flag for convolutions is known.
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
        // A GPU without TF32 and one of AMD show nothing.
        assert_eq!(
            seen(v100, &[(PRODUCT, "volta_sgemm_128x64_nn"), (CONVOLUTION, volta)], None),
            (Precision::Fp32, false)
        );
        let amd = ("AMD Instinct MI300X", 9);
        let miopen = "igemm_fwd_gtcx3_nhwc_fp32_bx0_ex0_bt128x64x8 conv";
        assert_eq!(seen(amd, &[(CONVOLUTION, miopen)], None), (Precision::Fp32, false));
        // The flag of convolutions in a trace, and those that a program has.
        let flagged = |allowed: bool| format!(r#"{CONVOLUTION}, "attributes": {{"allow_tf32": {allowed}}}"#);
        for (allowed, expected) in [(true, Precision::Fp32), (false, Precision::Fp32Strict)] {
            assert_eq!(seen(v100, &[(&flagged(allowed), volta)], None), (expected, true));
        }
        assert_eq!(seen(v100, &[(PRODUCT, volta)], Some([true, false])), (Precision::Tf32Products, true));
        assert_eq!(seen(v100, &[(PRODUCT, volta)], Some([true, true])), (Precision::Tf32, true));
    }

    /// Products of 16-bit numbers have kernels of the same shapes.
    #[test]
    fn kernels_of_16_bits_are_not_tf32() {
        let all = [
            ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn", false),
            ("cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x4_nn_align8", false),
            ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn", false),
            (
                "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel",
                true,
            ),
            ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align4>", true),
        ];
        assert_eq!(all.map(|(name, _)| is_tf32_kernel(name)), all.map(|(_, is)| is));
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
