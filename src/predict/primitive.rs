//! What an operation consists of for the learned models: matrix products, convolutions,
//! passes over rows, streams through memory.

use crate::profile::{Attribute, DType, Operation, Precision, Shape};

use super::family::{Family, family};
use super::work::{element_type, volume, work};

/// A unit of work that one model answers for. Sizes are in elements (bytes where said).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Primitive {
    /// `batch` products of `rows × reduction` with `reduction × columns`.
    Product {
        /// Independent products.
        batch: f64,
        /// Rows of the result.
        rows: f64,
        /// Columns of the result.
        columns: f64,
        /// The dimension summed over.
        reduction: f64,
    },
    /// A convolution over images, as a sum over `taps · in_channels` for every output.
    Convolution {
        /// Images.
        batch: f64,
        /// Groups of channels that do not meet.
        groups: f64,
        /// Input channels, of all groups.
        in_channels: f64,
        /// Output channels, of all groups.
        out_channels: f64,
        /// Places of the filter (9 of a 3 × 3 one).
        taps: f64,
        /// Places of one input image.
        in_places: f64,
        /// Places of one output image.
        out_places: f64,
    },
    /// Every row of a matrix reduced and rewritten.
    Rows {
        /// What is done.
        kind: RowsKind,
        /// Rows.
        rows: f64,
        /// Elements of a row.
        width: f64,
        /// Elements read and written in all.
        moved: f64,
    },
    /// Elements read and written in passing.
    Stream {
        /// Elements read and written in all.
        moved: f64,
    },
    /// Products that are never written out (fused attention): arithmetic at a known share
    /// of the product rate.
    Fused {
        /// Floating-point operations.
        flops: f64,
        /// Elements read and written.
        moved: f64,
        /// Share of the sustained rate that such kernels reach.
        share: f64,
    },
}

/// Operations on rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowsKind {
    /// Softmax along the row.
    Softmax,
    /// Layer and RMS normalisation.
    Normalisation,
}

/// A primitive, how often an operation does it, and the size of an element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// What is done.
    pub primitive: Primitive,
    /// How often.
    pub times: f64,
    /// Bytes of an element.
    pub element_bytes: f64,
}

/// `FlashAttention`-2 reaches up to 73 % of the peak forward and 63 % backward on an A100
/// (Dao 2023, section 4.1), less on short sequences.
const FUSED_FORWARD_SHARE: f64 = 0.6;
/// Backward.
const FUSED_BACKWARD_SHARE: f64 = 0.5;

/// The parts of one occurrence; empty where the models do not know the operator or the
/// shapes do not tell.
pub fn parts(operation: &Operation, precision: Option<Precision>) -> Vec<Part> {
    let element_bytes = element_type(operation, precision).as_ref().and_then(DType::size_bytes).unwrap_or(4) as f64;
    let backward = operation.name.contains("backward") || operation.name.contains("Backward");
    let found: Option<Vec<(Primitive, f64)>> = match family(operation) {
        Family::View | Family::Communication | Family::Unknown => None,
        Family::Gemm => products(operation, precision),
        Family::Convolution => convolution(operation, backward),
        Family::Attention => attention(operation, precision, backward),
        Family::Recurrent => recurrent(operation, backward),
        Family::Softmax => rows(operation, RowsKind::Softmax, if backward { 3.0 } else { 2.0 }),
        Family::Normalisation if is_batch_norm(operation) => {
            // Statistics first, then the result: two reads and a write; backward reads both
            // tensors twice.
            largest(operation).map(|size| once(Primitive::Stream { moved: size * if backward { 5.0 } else { 3.0 } }))
        }
        // Backward: two tensors read for the gradient of the input, and again for those of
        // scale and shift.
        Family::Normalisation => rows(operation, RowsKind::Normalisation, if backward { 5.0 } else { 2.0 }),
        Family::Pooling | Family::Embedding | Family::Reduction | Family::Elementwise => {
            work(operation, precision).map(|work| once(Primitive::Stream { moved: work.bytes.get() / element_bytes }))
        }
    };
    found
        .unwrap_or_default()
        .into_iter()
        .filter(|(primitive, times)| *times > 0.0 && primitive.is_sound())
        .map(|(primitive, times)| Part { primitive, times, element_bytes })
        .collect()
}

fn once(primitive: Primitive) -> Vec<(Primitive, f64)> {
    vec![(primitive, 1.0)]
}

impl Primitive {
    /// Whether there is something to do, and not more than numbers hold.
    fn is_sound(&self) -> bool {
        self.sizes().iter().all(|size| size.is_finite() && *size > 0.0 && *size < 1e18)
    }

    /// Its sizes in order; 1 where it has fewer.
    pub fn sizes(&self) -> [f64; 7] {
        match *self {
            Self::Product { batch, rows, columns, reduction } => [batch, rows, columns, reduction, 1.0, 1.0, 1.0],
            Self::Convolution { batch, groups, in_channels, out_channels, taps, in_places, out_places } => {
                [batch, groups, in_channels, out_channels, taps, in_places, out_places]
            }
            Self::Rows { rows, width, moved, .. } => [rows, width, moved, 1.0, 1.0, 1.0, 1.0],
            Self::Stream { moved } => [moved, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            Self::Fused { flops, moved, share } => [flops, moved, share, 1.0, 1.0, 1.0, 1.0],
        }
    }

    /// Floating-point operations of products and convolutions.
    pub fn flops(&self) -> f64 {
        match *self {
            Self::Product { batch, rows, columns, reduction } => 2.0 * batch * rows * columns * reduction,
            Self::Convolution { batch, groups, in_channels, out_channels, taps, out_places, .. } => {
                2.0 * batch * out_places * out_channels * taps * in_channels / groups
            }
            Self::Fused { flops, .. } => flops,
            Self::Rows { .. } | Self::Stream { .. } => 0.0,
        }
    }

    /// Elements read and written at least.
    pub fn moved(&self) -> f64 {
        match *self {
            Self::Product { batch, rows, columns, reduction } => {
                batch * (rows * reduction + reduction * columns + rows * columns)
            }
            Self::Convolution { batch, groups, in_channels, out_channels, taps, in_places, out_places } => {
                batch * (in_channels * in_places + out_channels * out_places)
                    + out_channels * taps * in_channels / groups
            }
            Self::Rows { moved, .. } | Self::Stream { moved } | Self::Fused { moved, .. } => moved,
        }
    }
}

/// The operator without name space and leading underscores.
fn bare(operation: &Operation) -> &str {
    operation.name.rsplit("::").next().unwrap_or(&operation.name).trim_start_matches('_')
}

fn is_batch_norm(operation: &Operation) -> bool {
    let name = operation.name.to_ascii_lowercase();
    ["batch_norm", "batchnorm", "instance_norm", "group_norm"].iter().any(|part| name.contains(part))
}

fn largest(operation: &Operation) -> Option<f64> {
    operation.inputs.iter().chain(&operation.outputs).map(volume).max_by(f64::total_cmp)
}

/// The products of a matrix product. Where their arithmetic is not what [`work`] counts (an
/// `einsum` of another order, a product by groups), the shapes do not tell enough.
fn products(operation: &Operation, precision: Option<Precision>) -> Option<Vec<(Primitive, f64)>> {
    if bare(operation) == "linear_backward" {
        // Input [.., N], gradient [.., K]: gradients of the input and of the weight.
        let [input, gradient] = operation.inputs.get(..2)? else { return None };
        let (from, to) = (*input.last()? as f64, *gradient.last()? as f64);
        let rows = volume(input) / from;
        let product = |rows, columns, reduction| Primitive::Product { batch: 1.0, rows, columns, reduction };
        return Some(vec![(product(rows, from, to), 1.0), (product(to, from, rows), 1.0)]);
    }
    let product = product(operation)?;
    let counted = work(operation, precision)?.flops.get();
    ((product.flops() / counted - 1.0).abs() < 1e-6).then(|| once(product))
}

/// `[…, m, k] × [k, n]`, `linear`'s weight being `[n, k]`.
fn product(operation: &Operation) -> Option<Primitive> {
    let bare = bare(operation);
    // addmm and baddbmm carry the bias first.
    let skip = usize::from(["addm", "addbmm", "baddbmm"].iter().any(|start| bare.starts_with(start)));
    let [left, right] = operation.inputs.get(skip..skip + 2)? else { return None };
    let reduction = *left.last()? as f64;
    let outer: f64 = left.split_last()?.1.iter().map(|&n| n as f64).product();
    let batch = if left.len() >= 3 && right.len() >= 3 {
        right[..right.len() - 2].iter().map(|&n| n as f64).product()
    } else {
        1.0
    };
    let columns = if right.len() == 1 { 1.0 } else { volume(right) / reduction / batch };
    Some(Primitive::Product { batch, rows: outer / batch, columns, reduction })
}

/// Forward `[input, weight, …]`, backward `[grad_output, input, weight, …]`: the gradient of
/// the input is a convolution with the channels exchanged; that of the weights is taken to
/// run as the forward pass does, with which it shares the arithmetic.
fn convolution(operation: &Operation, backward: bool) -> Option<Vec<(Primitive, f64)>> {
    let tensors: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() >= 3).collect();
    let transposed = operation.name.contains("transpose")
        || matches!(operation.attributes.get("transposed"), Some(Attribute::Bool(true)));
    let places = |shape: &Shape| shape.iter().skip(2).map(|&n| n as f64).product::<f64>();
    let (input, weight, out_places) = if backward {
        let [gradient, input, weight] = tensors.get(..3)? else { return None };
        (*input, *weight, places(gradient))
    } else {
        let [input, weight] = tensors.get(..2)? else { return None };
        // The output by its recorded shape, else from the arithmetic that `work` counts.
        let out = match operation.outputs.first() {
            Some(output) if output.len() >= 3 => places(output),
            _ if transposed => places(input) * places(weight).sqrt(),
            _ => {
                let flops = work(operation, None)?.flops.get();
                let each = 2.0 * *input.first()? as f64 * volume(weight);
                if each > 0.0 { flops / each } else { return None }
            }
        };
        (*input, *weight, out)
    };
    let (images, channels, in_places) = (*input.first()? as f64, *input.get(1)? as f64, places(input));
    let taps = places(weight);
    let (first, second) = (*weight.first()? as f64, *weight.get(1)? as f64);
    // [out, in / groups, …]; of a transposed one [in, out / groups, …].
    let groups = if transposed { 1.0 } else { (channels / second.max(1.0)).max(1.0) };
    let (out_channels, forward_in, forward_out) =
        if transposed { (second, out_places, in_places) } else { (first, in_places, out_places) };
    let ordinary = |from: f64, to: f64, in_places: f64, arithmetic_places: f64| Primitive::Convolution {
        batch: images,
        groups,
        in_channels: from,
        out_channels: to,
        taps,
        in_places,
        out_places: arithmetic_places,
    };
    let forward = ordinary(channels, out_channels, forward_in, forward_out);
    if !backward {
        return Some(once(forward));
    }
    let mask: Vec<bool> = match operation.attributes.get("output_mask") {
        Some(Attribute::List(mask)) => mask.iter().map(|flag| matches!(flag, Attribute::Bool(true))).collect(),
        _ if operation.name.contains("backward_input") => vec![true, false],
        _ if operation.name.contains("backward_weight") => vec![false, true],
        _ => vec![true, true],
    };
    // The arithmetic is that of the forward pass: taps · channels for each of its outputs.
    let data = ordinary(out_channels, channels, forward_in, forward_out);
    let wanted = |index: usize| f64::from(u8::from(mask.get(index).copied().unwrap_or(true)));
    Some(vec![(data, wanted(0)), (forward, wanted(1))])
}

fn attention(operation: &Operation, precision: Option<Precision>, backward: bool) -> Option<Vec<(Primitive, f64)>> {
    let work = work(operation, precision)?;
    let element = element_type(operation, precision).as_ref().and_then(DType::size_bytes).unwrap_or(4) as f64;
    let share = if backward { FUSED_BACKWARD_SHARE } else { FUSED_FORWARD_SHARE };
    Some(once(Primitive::Fused { flops: work.flops.get(), moved: work.bytes.get() / element, share }))
}

/// Weights come in pairs, for the input and for the state: the first is multiplied with the
/// whole sequence at once, the second step by step; backward adds the gradients of both,
/// over the whole sequence. Gates pass through memory.
fn recurrent(operation: &Operation, backward: bool) -> Option<Vec<(Primitive, f64)>> {
    let sequence = operation.inputs.iter().find(|shape| shape.len() == 3)?;
    let (steps, batch) = (sequence[0] as f64, sequence[1] as f64);
    let weights: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() == 2).collect();
    if weights.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for (index, weight) in weights.iter().enumerate() {
        let (gates, inner) = (weight[0] as f64, weight[1] as f64);
        let (rows, times) = if index % 2 == 0 { (steps * batch, 1.0) } else { (batch, steps) };
        found.push((Primitive::Product { batch: 1.0, rows, columns: gates, reduction: inner }, times));
        if backward {
            found.push((Primitive::Product { batch: 1.0, rows: gates, columns: inner, reduction: steps * batch }, 1.0));
        }
        if index % 2 == 1 {
            found.push((Primitive::Stream { moved: steps * batch * gates * if backward { 3.0 } else { 2.0 } }, 1.0));
        }
    }
    Some(found)
}

/// Rows along the last dimension of the first tensor, or over as many elements as a
/// normalisation's scale has.
fn rows(operation: &Operation, kind: RowsKind, passes: f64) -> Option<Vec<(Primitive, f64)>> {
    let tensor = operation.inputs.iter().max_by(|a, b| volume(a).total_cmp(&volume(b)))?;
    let size = volume(tensor);
    let last = *tensor.last()? as f64;
    let scale = operation.inputs.iter().skip(1).map(volume).find(|&scale| scale > last && scale < size);
    let width = match kind {
        RowsKind::Normalisation => scale.filter(|scale| (size / scale).fract() == 0.0).unwrap_or(last),
        RowsKind::Softmax => last,
    };
    Some(once(Primitive::Rows { kind, rows: size / width, width, moved: size * passes }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An operation with these inputs, outputs and whatever else, in JSON.
    fn operation(name: &str, inputs: &str, rest: &str) -> Operation {
        let json =
            format!(r#"{{"name": "aten::{name}", "phase": "forward", "inputs": {inputs}, "dtype": "float32"{rest}}}"#);
        serde_json::from_str(&json).unwrap()
    }

    fn of(name: &str, inputs: &str, rest: &str) -> Vec<(Primitive, f64)> {
        parts(&operation(name, inputs, rest), None).into_iter().map(|part| (part.primitive, part.times)).collect()
    }

    fn flops(operation: &Operation) -> f64 {
        parts(operation, None).iter().map(|part| part.times * part.primitive.flops()).sum()
    }

    fn counted(operation: &Operation) -> f64 {
        work(operation, None).unwrap().flops.get()
    }

    fn product(batch: f64, rows: f64, columns: f64, reduction: f64) -> (Primitive, f64) {
        (Primitive::Product { batch, rows, columns, reduction }, 1.0)
    }

    #[test]
    fn products() {
        assert_eq!(of("linear", "[[8, 32, 64], [100, 64]]", ""), [product(1.0, 256.0, 100.0, 64.0)]);
        assert_eq!(of("linear", "[[256, 64], [100, 64], [100]]", ""), [product(1.0, 256.0, 100.0, 64.0)]);
        assert_eq!(of("mm", "[[256, 64], [64, 100]]", ""), [product(1.0, 256.0, 100.0, 64.0)]);
        assert_eq!(of("addmm", "[[100], [256, 64], [64, 100]]", ""), [product(1.0, 256.0, 100.0, 64.0)]);
        assert_eq!(of("bmm", "[[12, 128, 64], [12, 64, 32]]", ""), [product(12.0, 128.0, 32.0, 64.0)]);
        assert_eq!(of("matmul", "[[2, 6, 128, 64], [2, 6, 64, 32]]", ""), [product(12.0, 128.0, 32.0, 64.0)]);
        let baddbmm = of("baddbmm", "[[12, 128, 32], [12, 128, 64], [12, 64, 32]]", "");
        assert_eq!(baddbmm, [product(12.0, 128.0, 32.0, 64.0)]);
        let addbmm = of("addbmm", "[[128, 32], [12, 128, 64], [12, 64, 32]]", "");
        assert_eq!(addbmm, [product(12.0, 128.0, 32.0, 64.0)]);
        assert_eq!(of("mv", "[[256, 64], [64]]", ""), [product(1.0, 256.0, 1.0, 64.0)]);
    }

    #[test]
    fn a_linear_layers_backward_pass_is_two_products() {
        let backward = operation("linear_backward", "[[8, 32, 64], [8, 32, 100], [100, 64]]", "");
        assert_eq!(
            of("linear_backward", "[[8, 32, 64], [8, 32, 100], [100, 64]]", ""),
            [product(1.0, 256.0, 64.0, 100.0), product(1.0, 100.0, 64.0, 256.0)]
        );
        assert_eq!(flops(&backward), counted(&backward));
    }

    /// Only what runs as one product of the shapes' own order is taken for one.
    #[test]
    fn sums_of_indices_in_another_order_are_not_guessed_at() {
        let einsum = |equation: &str, inputs: &str| {
            of("einsum", inputs, &format!(r#", "attributes": {{"equation": "{equation}"}}"#))
        };
        assert_eq!(einsum("bhqd,bhkd->bhqk", "[[2, 6, 128, 64], [2, 6, 32, 64]]"), [product(12.0, 128.0, 32.0, 64.0)]);
        assert_eq!(einsum("bdq,bdk->bqk", "[[2, 64, 128], [2, 64, 32]]"), []);
    }

    /// The first layer of `ResNet`-50, 32 images: 7.55 GFLOP.
    const FIRST: &str = r#", "attributes": {"stride": [2, 2], "padding": [3, 3], "dilation": [1, 1]}"#;

    fn first(in_channels: f64, out_channels: f64) -> Primitive {
        Primitive::Convolution {
            batch: 32.0,
            groups: 1.0,
            in_channels,
            out_channels,
            taps: 49.0,
            in_places: 50_176.0,
            out_places: 12_544.0,
        }
    }

    #[test]
    fn convolutions() {
        let forward = operation("conv2d", "[[32, 3, 224, 224], [64, 3, 7, 7]]", FIRST);
        assert_eq!(of("conv2d", "[[32, 3, 224, 224], [64, 3, 7, 7]]", FIRST), [(first(3.0, 64.0), 1.0)]);
        assert_eq!(flops(&forward), 2.0 * 32.0 * 112.0 * 112.0 * 64.0 * 49.0 * 3.0);
        assert_eq!(flops(&forward), counted(&forward));

        let inputs = "[[32, 64, 112, 112], [32, 3, 224, 224], [64, 3, 7, 7]]";
        let backward = operation("convolution_backward", inputs, FIRST);
        let found = of("convolution_backward", inputs, FIRST);
        assert_eq!(found, [(first(64.0, 3.0), 1.0), (first(3.0, 64.0), 1.0)]);
        assert_eq!(flops(&backward), 2.0 * flops(&forward));
        assert_eq!(flops(&backward), counted(&backward));
        // The first layer's input needs no gradient.
        let masked = FIRST.replace("{\"stride\"", "{\"output_mask\": [false, true, false], \"stride\"");
        assert_eq!(of("convolution_backward", inputs, &masked), [(first(3.0, 64.0), 1.0)]);
    }

    #[test]
    fn groups_of_channels_do_not_meet() {
        let inputs = "[[8, 32, 56, 56], [32, 1, 3, 3]]";
        let padded = r#", "attributes": {"padding": [1, 1]}"#;
        let [(Primitive::Convolution { groups, out_places, .. }, 1.0)] = of("conv2d", inputs, padded)[..] else {
            panic!("no convolution");
        };
        assert_eq!((groups, out_places), (32.0, 3136.0));
        let depthwise = operation("conv2d", inputs, padded);
        assert_eq!(flops(&depthwise), 2.0 * 8.0 * 3136.0 * 32.0 * 9.0);
        assert_eq!(flops(&depthwise), counted(&depthwise));
    }

    /// A layer of DCGAN's generator, 4 × 4 to 8 × 8: every place of the input meets all taps.
    #[test]
    fn transposed_convolutions() {
        let rest = r#", "outputs": [[64, 512, 8, 8]], "attributes": {"transposed": true, "stride": [2, 2], "padding": [1, 1]}"#;
        let transposed = operation("convolution", "[[64, 1024, 4, 4], [1024, 512, 4, 4]]", rest);
        assert_eq!(flops(&transposed), 2.0 * 64.0 * 16.0 * 1024.0 * 512.0 * 16.0);
        assert_eq!(flops(&transposed), counted(&transposed));
    }

    /// Ten steps of a batch of 4, 32 inputs, 64 states, one layer: the input's weights meet
    /// the whole sequence at once, the state's a step at a time.
    #[test]
    fn lstm_weights_come_in_pairs() {
        let inputs = "[[10, 4, 32], [1, 4, 64], [1, 4, 64], [256, 32], [256, 64], [256], [256]]";
        let found = of("lstm", inputs, "");
        let state = Primitive::Product { batch: 1.0, rows: 4.0, columns: 256.0, reduction: 64.0 };
        let gates = Primitive::Stream { moved: 2.0 * 10.0 * 4.0 * 256.0 };
        assert_eq!(found, [product(1.0, 40.0, 256.0, 32.0), (state, 10.0), (gates, 1.0)]);
    }

    #[test]
    fn rows_and_their_width() {
        let rows = |kind, rows, width, moved| [(Primitive::Rows { kind, rows, width, moved }, 1.0)];
        let size = 8.0 * 128.0 * 768.0;
        let norm = |rows_, width, passes| rows(RowsKind::Normalisation, rows_, width, size * passes);
        assert_eq!(of("layer_norm", "[[8, 128, 768], [768]]", ""), norm(1024.0, 768.0, 2.0));
        // Over the last two dimensions, as the scale says.
        assert_eq!(of("layer_norm", "[[8, 128, 768], [128, 768]]", ""), norm(8.0, 98_304.0, 2.0));
        let softmax = rows(RowsKind::Softmax, 12_288.0, 512.0, 2.0 * 12_288.0 * 512.0);
        assert_eq!(of("_softmax", "[[8, 12, 128, 512]]", ""), softmax);
        let backward = rows(RowsKind::Softmax, 100.0, 512.0, 3.0 * 51_200.0);
        assert_eq!(of("_softmax_backward_data", "[[100, 512], [100, 512]]", ""), backward);
    }

    #[test]
    fn batch_norm_streams_three_times_and_five_backward() {
        let size = 32.0 * 64.0 * 3136.0;
        let stream = |passes: f64| [(Primitive::Stream { moved: size * passes }, 1.0)];
        assert_eq!(of("native_batch_norm", "[[32, 64, 56, 56], [64], [64]]", ""), stream(3.0));
        let inputs = "[[32, 64, 56, 56], [32, 64, 56, 56], [64]]";
        assert_eq!(of("native_batch_norm_backward", inputs, ""), stream(5.0));
    }

    #[test]
    fn fused_attention_does_what_work_counts() {
        let inputs = "[[2, 12, 512, 64], [2, 12, 512, 64], [2, 12, 512, 64]]";
        let fused = operation("scaled_dot_product_attention", inputs, "");
        assert_eq!(flops(&fused), 4.0 * 2.0 * 12.0 * 512.0 * 512.0 * 64.0);
        assert_eq!(flops(&fused), counted(&fused));
        assert!(matches!(parts(&fused, None)[..], [Part { primitive: Primitive::Fused { share: 0.6, .. }, .. }]));
    }

    /// Every operator of which parts are known, with the most tensors one takes.
    const OPERATORS: [(&str, usize); 12] = [
        ("mm", 2),
        ("addmm", 3),
        ("bmm", 2),
        ("linear", 3),
        ("linear_backward", 3),
        ("conv2d", 2),
        ("convolution_backward", 3),
        ("conv_transpose2d", 2),
        ("lstm", 7),
        ("layer_norm", 2),
        ("_softmax", 1),
        ("scaled_dot_product_attention", 3),
    ];

    #[test]
    fn sizes_beyond_all_bounds_and_none_at_all_have_no_parts() {
        for (name, tensors) in OPERATORS {
            for size in [0, u64::MAX] {
                for rank in 0..=5 {
                    let mut hostile = operation(name, "[]", "");
                    hostile.inputs = vec![vec![size; rank]; tensors];
                    let found = parts(&hostile, None);
                    assert!(found.is_empty() || rank == 0, "{name}, {rank} of {size}: {found:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn parts_of_any_shapes_are_sound(
            which in 0..OPERATORS.len(),
            shapes in prop::collection::vec(
                prop::collection::vec(prop_oneof![0..5_u64, 1..4096_u64, any::<u64>()], 0..6),
                0..8,
            ),
        ) {
            let mut hostile = operation(OPERATORS[which].0, "[]", "");
            hostile.inputs = shapes;
            for part in parts(&hostile, None) {
                prop_assert!(part.times > 0.0 && part.times.is_finite());
                prop_assert!(part.primitive.sizes().iter().all(|size| *size > 0.0 && *size < 1e18));
                prop_assert!(part.primitive.flops().is_finite() && part.primitive.moved().is_finite());
            }
        }
    }
}
