//! Parts of an operation for the learned models: matrix products, convolutions, row operations, memory streams.

/// A unit of work that one model predicts. Sizes are in elements unless noted.
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
        /// Channel groups.
        groups: f64,
        /// Input channels of all groups.
        in_channels: f64,
        /// Output channels of all groups.
        out_channels: f64,
        /// Filter size in pixels (9 for 3 × 3).
        taps: f64,
        /// Pixels of one input image.
        in_places: f64,
        /// Pixels of one output image.
        out_places: f64,
    },
    /// Every row of a matrix, reduced and rewritten.
    Rows {
        /// Operation on each row.
        kind: RowsKind,
        /// Rows.
        rows: f64,
        /// Elements of a row.
        width: f64,
        /// Elements read and written.
        moved: f64,
    },
    /// One pass over memory.
    Stream {
        /// Elements read and written.
        moved: f64,
    },
    /// Products whose intermediate results stay on chip (fused attention): FLOPs at a known share of the product rate.
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

/// A primitive, the number of times that an operation runs it, and its element size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The primitive.
    pub primitive: Primitive,
    /// Number of runs.
    pub times: f64,
    /// Bytes of an element.
    pub element_bytes: f64,
}

impl Primitive {
    /// Whether all sizes are positive and finite, within limits.
    pub(super) fn is_sound(&self) -> bool {
        self.sizes().iter().all(|size| size.is_finite() && *size > 0.0 && *size < 1e18)
    }

    /// Sizes in a fixed order, padded with 1.
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

    /// Floating-point operations; 0 for row operations and streams.
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

    /// Minimum number of elements read and written.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{parts, work};
    use super::*;
    use crate::profile::Operation;

    /// An operation with these inputs, and more fields in JSON.
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

    /// An equation is a batch of products, whatever the order of its indices.
    #[test]
    fn equations_are_products_by_their_indices() {
        let einsum = |equation: &str, inputs: &str| {
            let rest = format!(r#", "attributes": {{"equation": "{equation}"}}"#);
            let counted = work(&operation("einsum", inputs, &rest), None).unwrap().flops.get();
            let found = of("einsum", inputs, &rest);
            assert_eq!(found.iter().map(|(primitive, times)| primitive.flops() * times).sum::<f64>(), counted);
            found
        };
        assert_eq!(einsum("bhqd,bhkd->bhqk", "[[2, 6, 128, 64], [2, 6, 32, 64]]"), [product(12.0, 128.0, 32.0, 64.0)]);
        assert_eq!(einsum("bdq,bdk->bqk", "[[2, 64, 128], [2, 64, 32]]"), [product(2.0, 128.0, 32.0, 64.0)]);
        assert_eq!(einsum("ibnd,jbnd->ijbn", "[[7, 2, 3, 64], [5, 2, 3, 64]]"), [product(6.0, 7.0, 5.0, 64.0)]);
        assert_eq!(einsum("bqd,dk->bqk", "[[2, 128, 64], [64, 32]]"), [product(1.0, 256.0, 32.0, 64.0)]);
    }

    #[test]
    fn products_by_groups_share_the_rows() {
        let inputs = "[[100, 6], [8, 6, 7], [8]]";
        assert_eq!(of("_grouped_mm", inputs, ""), [product(8.0, 12.5, 7.0, 6.0)]);
        assert_eq!(counted(&operation("_grouped_mm", inputs, "")), 2.0 * 100.0 * 6.0 * 7.0);
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

    /// A layer of DCGAN's generator, 4 × 4 to 8 × 8: every input pixel meets all taps.
    #[test]
    fn transposed_convolutions() {
        let rest = r#", "outputs": [[64, 512, 8, 8]], "attributes": {"transposed": true, "stride": [2, 2], "padding": [1, 1]}"#;
        let transposed = operation("convolution", "[[64, 1024, 4, 4], [1024, 512, 4, 4]]", rest);
        assert_eq!(flops(&transposed), 2.0 * 64.0 * 16.0 * 1024.0 * 512.0 * 16.0);
        assert_eq!(flops(&transposed), counted(&transposed));
    }

    /// Ten steps of a batch of 4, 32 inputs, 64 states, one layer: the input weights meet the whole sequence at once,
    /// the state weights one step at a time.
    #[test]
    fn lstm_weights_come_in_pairs() {
        let inputs = "[[10, 4, 32], [1, 4, 64], [1, 4, 64], [256, 32], [256, 64], [256], [256]]";
        let found = of("lstm", inputs, "");
        let state = Primitive::Product { batch: 1.0, rows: 4.0, columns: 256.0, reduction: 64.0 };
        let gates = Primitive::Stream { moved: 2.0 * 10.0 * 4.0 * 256.0 };
        assert_eq!(found, [product(1.0, 40.0, 256.0, 32.0), (state, 10.0), (gates, 1.0)]);
        // The same with the batch first, and packed: the batch sizes of ten steps are the last input.
        let first = inputs.replace("[10, 4, 32]", "[4, 10, 32]");
        assert_eq!(of("lstm", &first, r#", "attributes": {"batch_first": true}"#), found);
        let packed = inputs.replace("[10, 4, 32]", "[40, 32]").replace("[256]]", "[256], [10]]");
        assert_eq!(of("_cudnn_rnn", &packed, ""), found);
    }

    #[test]
    fn rows_and_their_width() {
        let rows = |kind, rows, width, moved| [(Primitive::Rows { kind, rows, width, moved }, 1.0)];
        let size = 8.0 * 128.0 * 768.0;
        let norm = |rows_, width, passes| rows(RowsKind::Normalisation, rows_, width, size * passes);
        assert_eq!(of("layer_norm", "[[8, 128, 768], [768]]", ""), norm(1024.0, 768.0, 2.0));
        // Normalised over the last two dimensions, as the shape of the scale shows.
        assert_eq!(of("layer_norm", "[[8, 128, 768], [128, 768]]", ""), norm(8.0, 98_304.0, 2.0));
        let softmax = rows(RowsKind::Softmax, 12_288.0, 512.0, 2.0 * 12_288.0 * 512.0);
        assert_eq!(of("_softmax", "[[8, 12, 128, 512]]", ""), softmax);
        // Backward also receives the mean of each row, which is not a scale.
        let inputs = "[[8, 128, 768], [8, 128, 768], [8, 128, 1], [8, 128, 1], [768], [768]]";
        assert_eq!(of("native_layer_norm_backward", inputs, ""), norm(1024.0, 768.0, 5.0));
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
        // Running statistics need no extra read.
        let evaluated = r#", "attributes": {"training": false}"#;
        assert_eq!(of("native_batch_norm", "[[32, 64, 56, 56], [64], [64]]", evaluated), stream(2.0));
        assert_eq!(of("_native_batch_norm_legit_no_training", "[[32, 64, 56, 56], [64], [64]]", ""), stream(2.0));
        assert_eq!(of("native_batch_norm_backward", inputs, evaluated), stream(3.0));
    }

    #[test]
    fn fused_attention_does_what_work_counts() {
        let inputs = "[[2, 12, 512, 64], [2, 12, 512, 64], [2, 12, 512, 64]]";
        let fused = operation("scaled_dot_product_attention", inputs, "");
        assert_eq!(flops(&fused), 4.0 * 2.0 * 12.0 * 512.0 * 512.0 * 64.0);
        assert_eq!(flops(&fused), counted(&fused));
        assert!(matches!(parts(&fused, None)[..], [Part { primitive: Primitive::Fused { share: 0.6, .. }, .. }]));
    }

    /// Operators with parts, and the most tensors each takes.
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
