//! Device work of an operation, and the terms by which it falls short of the GPU's rates.

use super::convolution::convolution;
use super::demand::{Amount, CHUNK, Demand, TILE, Terms, Units, traffic};
use super::limits::{Limits, below, is};
use super::table::{Arithmetic, ElementsGroup, Gradient, Index, Norm, PassLayout, ProductKind, StreamGroup, Term};
use crate::decoded::Decoded;
use habitat_step::op::name::{
    Form, NormalisationForm, StreamForm, has_powers, is_ampere_attention, is_average_pooling, is_cast,
    is_efficient_attention, is_log_softmax,
};
use habitat_step::op::{Convolution, OperatorKind, Part, Pass, Primitive, RowsKind, Sizes, volume};
use habitat_step::profile::tensors::{Access, INPUT_DTYPES, OUTPUT_DTYPES, is_channels_last};
use habitat_step::profile::{Attribute, DType, Operation, Phase, Precision};

/// Size from which an extent counts as a vocabulary: most vocabularies are larger, and most batches have fewer samples.
const VOCABULARY: f64 = 16384.0;
/// Attention kernels pad heads to a multiple of this size.
const HEAD_STEP: f64 = 32.0;

/// Bytes that row norms move per cycle and multiprocessor, independent of bandwidth, because few loads are in flight.
/// Forward and backward reach 7 to 8 on an A100 and an H100 (`models/lab/steps/liger.py`; backward reads its inputs
/// twice). The term `layer norm, rows` scales this time.
const NORM_BYTES_A_CYCLE: f64 = 7.0;
/// Row length below which threads of a norm are idle: 128 threads of a block of `PyTorch`'s layer norm read four
/// elements each (`aten/src/ATen/native/cuda/layer_norm_kernel.cu`).
const LONG_ROW: f64 = 512.0;
/// Row length up to which `PyTorch`'s softmax keeps a row in the registers of one warp. Longer rows are read again for
/// the sum and for the results, each with an exponential and a division (`aten/src/ATen/native/cuda/SoftMax.cu`).
const WARP_ROW: f64 = 1024.0;
/// Window size up to which a pooling result takes constant time: 4 and 9 elements take the same on an H100 and an H200
/// (`models/lab/samples/recorded`).
const MOST_WINDOW: f64 = 9.0;

/// Parts of an operation in an arithmetic that its GPU has; empty without device work or
/// usable shapes.
pub fn demands(decoded: &Decoded<'_>, arithmetic: Option<Precision>) -> Vec<Demand> {
    let wide = matches!(decoded.dtype, None | Some(DType::Float32));
    let arithmetic = match arithmetic {
        _ if matches!(decoded.dtype, Some(DType::Float8E4m3 | DType::Float8E5m2)) => Some(Arithmetic::Fp8),
        _ if !wide => None,
        Some(Precision::Tf32) => Some(Arithmetic::Tf32),
        _ => Some(Arithmetic::Fp32),
    };
    let mut gradients = match &decoded.op.sizes {
        Some(Sizes::Convolution(Convolution { gradients: Some([data, weight]), .. })) => {
            [data.then_some(Gradient::Data), weight.then_some(Gradient::Weight)]
        }
        _ => [None; 2],
    }
    .into_iter()
    .flatten();
    let of = |part: &Part| {
        let (primitive, bytes) = (&part.primitive, part.primitive.moved() * part.element_bytes);
        let plain = |terms: Terms, tiles: f64| Demand {
            flops: primitive.flops(),
            bytes,
            times: part.times,
            units: Units::Matrix,
            limits: Limits { tiles, ..Limits::default() },
            compute: terms.compute,
            memory: terms.memory,
        };
        match *primitive {
            Primitive::Convolution { batch, groups, in_channels, out_channels, taps, in_places, out_places } => {
                let sizes = [batch, groups, in_channels, out_channels, taps, in_places, out_places];
                convolution(decoded, sizes, gradients.next(), arithmetic, part.element_bytes, &plain)
            }
            Primitive::Product { batch, rows, columns, reduction } => {
                let kind = if batch > 1.0 { ProductKind::Batched } else { ProductKind::Plain };
                let backward = decoded.operation.phase == Phase::Backward;
                let is_recurrent = matches!(decoded.op.name.form, Form::Recurrent { .. });
                let is_batched = kind == ProductKind::Batched;
                let other = [(backward && is_batched, Term::BatchedBackward), (is_recurrent, Term::ProductRecurrent)];
                let other = other.into_iter().filter(|(holds, _)| *holds).map(|(_, term)| term);
                let mut terms = Terms::of(std::iter::once(Term::Product(kind)).chain(other));
                terms.compute(Term::ProductNarrow(kind), below(TILE, rows.min(columns)));
                terms.compute(Term::ProductShortSums(kind), below(256.0, reduction));
                // Compilers pad these products.
                let is_padded = decoded.operation.attributes.get("padded") == Some(&Attribute::Bool(true));
                if let Some(arithmetic) = arithmetic {
                    terms.compute(Term::ProductArithmetic(arithmetic), 1.0);
                }
                let tiles = batch * (rows / TILE).ceil() * (columns / TILE).ceil() * (reduction / CHUNK).max(1.0);
                let mut own = plain(terms, tiles);
                // Not measured in other types.
                let is_half = matches!(decoded.dtype, Some(DType::Float16 | DType::Bfloat16));
                if is_half && !is_padded && is_unaligned([rows, columns, reduction], backward && batch == 1.0) {
                    own.limits.unaligned = own.flops;
                }
                vec![own]
            }
            Primitive::Fused { .. } => {
                let backward = decoded.op.name.pass.is_backward().then_some(Term::AttentionBackward);
                // Its kernel differs from those of flash attention and cuDNN.
                let efficient = is_efficient_attention(&decoded.operation.name).then_some(Term::AttentionEfficient);
                let mut terms = Terms::of([Some(Term::Attention), backward, efficient].into_iter().flatten());
                let is_for_ampere = !wide && is_ampere_attention(&decoded.operation.name);
                let mut limits = Limits { is_for_ampere, ..Limits::default() };
                if let Some(Sizes::Attention(attention)) = &decoded.op.sizes {
                    let size = attention.head_size;
                    terms.compute(Term::AttentionPadded, ((size / HEAD_STEP).ceil() * HEAD_STEP / size).log2());
                    terms.compute(Term::AttentionCausal, is(attention.seen < 1.0));
                    let rows = attention.batch * attention.heads;
                    limits.tiles = rows * (attention.queries / TILE).ceil();
                    limits.exponentials = rows * attention.queries * attention.keys * attention.seen;
                }
                // It does not split 32-bit numbers for matrix units, whether TF32 is allowed or not.
                let units = if wide { Units::Vector } else { Units::Matrix };
                vec![Demand { units, limits, ..plain(terms, 0.0) }]
            }
            Primitive::Rows { .. } | Primitive::Stream { .. } => vec![passing(decoded, part, wide, &plain)],
        }
    };
    let found: Vec<Demand> = copy_before(decoded, wide).into_iter().chain(decoded.parts.iter().flat_map(of)).collect();
    match (&found[..], &decoded.work) {
        // An unknown operator streams its tensors.
        ([], Some(work)) => vec![traffic(work.bytes.get(), 1.0, Term::Stream(StreamGroup::Other))],
        _ => found,
    }
}

/// Whether rows of the result or the inputs of a product have an odd number of elements in memory. In gradients of a
/// layer, the rows and the contracted extent may be samples, which are not a row length; a vocabulary is recognised by
/// its size.
fn is_unaligned([rows, columns, reduction]: [f64; 3], is_gradient: bool) -> bool {
    let is_odd = |size: f64| size % 2.0 == 1.0 && size > 1.0;
    let of_sums = if is_gradient { rows.max(reduction) } else { reduction };
    is_odd(columns) || is_odd(of_sums) && (!is_gradient || of_sums >= VOCABULARY)
}

/// Work of an operation that streams memory, with cycles if addresses are computed per element.
fn passing(decoded: &Decoded<'_>, part: &Part, wide: bool, plain: &dyn Fn(Terms, f64) -> Demand) -> Demand {
    let primitive = &part.primitive;
    let (group, variant) = stream(decoded, primitive);
    let mut terms = Terms::default();
    terms.memory(Term::Stream(group), 1.0);
    terms.memory.extend(variant.map(|variant| (variant, 1.0)));
    let form = decoded.op.name.form;
    let access = Access::of(decoded.operation).filter(|_| !copies_first(form));
    terms.memory.extend(access_terms(access, group, wide));
    // Traces may lack the result; it is half of a copy's traffic.
    let result = decoded.operation.outputs.first().map_or(primitive.moved() / 2.0, volume);
    let (term, cycles) = match (form, access, *primitive) {
        // In a table that is read once, the result is half of the traffic.
        (Form::Lookup(_), ..) => (Term::Index(Index::LookUp), primitive.moved() / 2.0),
        (Form::Stream(_), Some(access), _) => (Term::Index(access.into()), result),
        (Form::Stream(StreamForm::Plain), ..) if is_broadcast(decoded.operation) => {
            (Term::Index(Index::Broadcast), result)
        }
        (Form::Stream(StreamForm::Concatenation), ..) => (Term::Index(Index::Concatenated), result),
        (Form::Stream(_), ..) if widens(decoded.operation) || is_of_two_types(decoded.operation) => {
            (Term::Index(Index::Widened), result)
        }
        (.., Primitive::Rows { kind: RowsKind::Normalisation, width, .. }) => {
            let backward = decoded.op.name.pass != Pass::Forward;
            terms.compute(Term::NormRows, 1.0);
            terms.compute(Term::NormRowsBackward, is(backward));
            terms.compute(Term::NormShortRows, below(LONG_ROW, width));
            terms.compute(Term::NormShortRowsBackward, if backward { below(LONG_ROW, width) } else { 0.0 });
            let bytes = primitive.moved() * part.element_bytes;
            return Demand { flops: bytes / NORM_BYTES_A_CYCLE, units: Units::Cycles, ..plain(terms, 0.0) };
        }
        (Form::Softmax, _, Primitive::Rows { rows, width, .. })
            if width > WARP_ROW && !decoded.op.name.pass.is_backward() && !is_log_softmax(&decoded.operation.name) =>
        {
            (Term::SoftmaxLongRows, rows * width)
        }
        _ => return by_elements(decoded, primitive, terms, plain),
    };
    terms.compute(term, 1.0);
    Demand { flops: cycles, units: Units::Cycles, ..plain(terms, 0.0) }
}

/// Work with a fixed time per element and multiprocessor, independent of memory speed. On an H100 and an H200, whose
/// bandwidths differ by a factor of 1.4, channels-first batch norms take the same time within 4 %, and the 16-bit
/// gradient of GELU differs by a factor of 1.13 (`models/lab/samples/recorded`).
fn by_elements(
    decoded: &Decoded<'_>,
    primitive: &Primitive,
    mut terms: Terms,
    plain: &dyn Fn(Terms, f64) -> Demand,
) -> Demand {
    let operation = decoded.operation;
    let backward = decoded.op.name.pass != Pass::Forward || operation.phase == Phase::Backward;
    let of_largest = operation.inputs.iter().chain(&operation.outputs).map(volume).fold(0.0, f64::max);
    let result = operation.outputs.first().map(volume);
    let channels_last = is_channels_last(&operation.attributes);
    let is_norm = matches!(decoded.op.name.form, Form::Normalisation(_));
    let (group, elements) = match decoded.op.name.form {
        Form::Normalisation(NormalisationForm::Channel) if is_trained(operation) => {
            (ElementsGroup::BatchNorm, of_largest)
        }
        Form::Reduction(_) => (ElementsGroup::Reduction, primitive.moved()),
        // Each result is computed separately; backward, each element of the input.
        Form::Pooling if backward => (ElementsGroup::Pooling, of_largest),
        Form::Pooling => (ElementsGroup::Pooling, result.unwrap_or(of_largest).max(of_largest / MOST_WINDOW)),
        Form::Stream(StreamForm::Plain) if has_powers(&operation.name) => (ElementsGroup::Powers, of_largest),
        _ => return plain(terms, 0.0),
    };
    let mut limits = Limits::default();
    if is_norm && !channels_last {
        limits.channels = operation.inputs.first().and_then(|shape| shape.get(1)).map_or(0.0, |size| *size as f64);
    }
    // cuDNN's batch norm does not support bfloat16.
    let is_native = is_norm && decoded.dtype == Some(DType::Bfloat16);
    terms.compute(Term::Elements(group), 1.0);
    if group == ElementsGroup::Pooling {
        let is_average = is(is_average_pooling(&operation.name));
        terms.compute(Term::AveragePooling, is_average);
        if backward {
            terms.compute(Term::AveragePoolingBackward, is_average);
            terms.compute(Term::PoolingOverlap, overlap(operation).log2().max(0.0));
        }
    }
    terms.compute(Term::NativeNorm, is(is_native));
    terms.compute(Term::ElementsIn(group, PassLayout::Backward), is(backward));
    terms.compute(Term::ElementsIn(group, PassLayout::ChannelsLast), is(channels_last));
    terms.compute(Term::ElementsIn(group, PassLayout::BackwardChannelsLast), is(backward && channels_last));
    Demand { flops: elements, units: Units::Cycles, limits, ..plain(terms, 0.0) }
}

/// Number of pooling windows that an element lies in; 1 if attributes are missing. A missing stride means windows side
/// by side.
fn overlap(operation: &Operation) -> f64 {
    let area = |key: &str| match operation.attributes.get(key) {
        Some(Attribute::List(sizes)) => match sizes[..] {
            [Attribute::Int(side)] => Some((side * side) as f64),
            [Attribute::Int(height), Attribute::Int(width)] => Some((height * width) as f64),
            _ => None,
        },
        _ => None,
    };
    let Some((window, stride)) = area("kernel_size").zip(area("stride")) else { return 1.0 };
    window / stride.max(1.0)
}

/// Whether a normalisation computes its own statistics.
fn is_trained(operation: &Operation) -> bool {
    operation.attributes.get("training") != Some(&Attribute::Bool(false))
}

/// Copy before a kernel that needs rows, if its tensors have another layout.
fn copy_before(decoded: &Decoded<'_>, wide: bool) -> Option<Demand> {
    let access = Access::of(decoded.operation).filter(|_| copies_first(decoded.op.name.form))?;
    let Operation { inputs, outputs, .. } = decoded.operation;
    let elements = outputs.first().or(inputs.first()).map_or(0.0, volume);
    let mut copy =
        traffic(2.0 * elements * decoded.parts.first()?.element_bytes, 1.0, Term::Stream(StreamGroup::Rearrangement));
    copy.memory.extend(access_terms(Some(access), StreamGroup::Rearrangement, wide));
    (copy.flops, copy.units) = (elements, Units::Cycles);
    copy.compute.push((Term::Index(access.into()), 1.0));
    Some(copy)
}

/// Traffic terms for the access pattern of a call, and for 32-bit tensors.
fn access_terms(access: Option<Access>, group: StreamGroup, wide: bool) -> impl Iterator<Item = Amount> {
    let is_turned = access == Some(Access::Transposed) && group == StreamGroup::Rearrangement;
    let terms = [
        wide.then_some(Term::Wide),
        is_turned.then_some(Term::Transposed),
        (is_turned && wide).then_some(Term::TransposedWide),
    ];
    terms.into_iter().flatten().map(|term| (term, 1.0))
}

/// Whether its kernels need contiguous tensors, as cuDNN's batch norm does.
fn copies_first(form: Form) -> bool {
    matches!(form, Form::Softmax | Form::Normalisation(_))
}

/// Whether a tensor with more than one element is broadcast over a larger result.
fn is_broadcast(operation: &Operation) -> bool {
    let result = operation.outputs.first().map_or(0.0, volume);
    operation.inputs.iter().map(volume).any(|volume| 1.0 < volume && volume < result)
}

fn float_bytes(dtype: &DType) -> Option<u64> {
    dtype.size_bytes().filter(|_| dtype.is_floating())
}

/// Whether a cast widens 16 to 32 bits, which `PyTorch` does element by element. The recorded type of a cast is that of
/// its input; for a copy into a tensor, that of the result.
fn widens(operation: &Operation) -> bool {
    let is_told = |key: &str, bytes: u64| {
        let is_wanted =
            |told: &Attribute| matches!(told, Attribute::Text(name) if float_bytes(&DType::named(name)) == Some(bytes));
        matches!(operation.attributes.get(key), Some(Attribute::List(types)) if types.iter().any(is_wanted))
    };
    is_cast(&operation.name)
        && match operation.dtype.as_ref().and_then(float_bytes) {
            Some(2) => is_told(OUTPUT_DTYPES, 4),
            Some(4) => is_told(INPUT_DTYPES, 2),
            _ => false,
        }
}

/// Whether arithmetic mixes 16-bit and 32-bit numbers, which `PyTorch` processes element by element.
fn is_of_two_types(operation: &Operation) -> bool {
    let Some(Attribute::List(types)) = operation.attributes.get(INPUT_DTYPES) else { return false };
    let bytes = |told: &Attribute| match told {
        Attribute::Text(name) => float_bytes(&DType::named(name)),
        _ => None,
    };
    let has = |wanted: u64| types.iter().any(|told| bytes(told) == Some(wanted));
    !is_cast(&operation.name) && has(2) && has(4)
}

/// Whether a copy only changes the layout, as `contiguous` does.
fn reorders(operation: &Operation) -> bool {
    let told = |attribute: &str| operation.attributes.contains_key(attribute);
    Access::of(operation).is_some() && !told(INPUT_DTYPES) && !told(OUTPUT_DTYPES)
}

/// Group of an operation that streams memory, and the term of its variant.
fn stream(decoded: &Decoded<'_>, primitive: &Primitive) -> (StreamGroup, Option<Term>) {
    let op = &decoded.op;
    let backward = op.name.pass != Pass::Forward || decoded.operation.phase == Phase::Backward;
    let directed = |group| (group, backward.then_some(Term::StreamBackward(group)));
    match (primitive, op.name.form) {
        (Primitive::Rows { kind: RowsKind::Softmax, .. }, _) => directed(StreamGroup::Softmax),
        (Primitive::Rows { kind: RowsKind::Normalisation, .. }, _) => directed(StreamGroup::LayerNorm),
        (_, Form::Normalisation(form)) => {
            let (group, norm) = match form {
                NormalisationForm::Group => (StreamGroup::GroupNorm, Norm::Group),
                _ => (StreamGroup::BatchNorm, Norm::Batch),
            };
            let evaluated = form == NormalisationForm::ChannelWithStatistics
                || decoded.operation.attributes.get("training") == Some(&Attribute::Bool(false));
            if evaluated && !backward { (group, Some(Term::Evaluation(norm))) } else { directed(group) }
        }
        (_, Form::Convolution { .. } | Form::Product(_) | Form::Recurrent { .. }) => (StreamGroup::Gates, None),
        _ if is_cast(&decoded.operation.name) => {
            (if reorders(decoded.operation) { StreamGroup::Rearrangement } else { StreamGroup::Cast }, None)
        }
        _ => of_kind(OperatorKind::of_operation(decoded.operation).unwrap_or(OperatorKind::Other)),
    }
}

/// The same for the other operators, by kind.
const fn of_kind(kind: OperatorKind) -> (StreamGroup, Option<Term>) {
    use OperatorKind::{
        Elementwise, ElementwiseBackward, MatrixProduct, Optimizer, Rearrangement, Reduction, Softmax, Transfer,
        Window, WindowBackward,
    };
    match kind {
        Elementwise => (StreamGroup::Elementwise, None),
        ElementwiseBackward => (StreamGroup::Elementwise, Some(Term::StreamBackward(StreamGroup::Elementwise))),
        MatrixProduct => (StreamGroup::MatrixProduct, None),
        Optimizer => (StreamGroup::Optimizer, None),
        Rearrangement => (StreamGroup::Rearrangement, None),
        Reduction => (StreamGroup::Reduction, None),
        Softmax => (StreamGroup::Softmax, None),
        Transfer => (StreamGroup::Transfer, None),
        Window => (StreamGroup::Window, None),
        WindowBackward => (StreamGroup::Window, Some(Term::StreamBackward(StreamGroup::Window))),
        _ => (StreamGroup::Other, None),
    }
}
