//! Arithmetic and memory traffic of an operation.
//!
//! Counts are the minimum of any implementation: every input read once, every output written once, a multiply-add
//! counted as two operations. The roofline and the arithmetic intensity of wave scaling use them.

use habitat_base::units::{Bytes, Flops};

/// Kind of arithmetic; GPUs sustain a different rate for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    /// Element-wise, on the vector units.
    Vector,
    /// Products, on tensor cores if the precision has them.
    Product,
    /// Convolutions: like products, but with more reuse in FP32, so that GPUs sustain a higher share of their peak.
    Convolution,
}

/// Work of one call of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: Flops,
    /// Bytes read and written.
    pub bytes: Bytes,
    /// Units that the arithmetic runs on.
    pub arithmetic: Arithmetic,
}

impl Work {
    /// Floating-point operations per byte; `None` without traffic.
    pub fn intensity(&self) -> Option<f64> {
        (self.bytes.get() > 0.0).then(|| self.flops.get() / self.bytes.get())
    }

    /// Work of products that move `bytes` bytes; `None` for empty tensors.
    pub(super) fn of_products(flops: f64, bytes: f64, arithmetic: Arithmetic) -> Option<Self> {
        (flops > 0.0).then(|| Self { flops: Flops::known(flops), bytes: Bytes::known(bytes), arithmetic })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::super::{Family, family, parameters, parts, work};
    use crate::profile::{Attribute, DType, Operation, Phase, Precision};

    pub(in crate::op) fn operation(name: &str, inputs: &[&[u64]], outputs: &[&[u64]]) -> Operation {
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
            cpu_time: None,
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

    /// ResNet-50's first layer: 7×7, 3 → 64 channels, 224 → 112: 118,013,952 multiply-adds per image.
    #[test]
    fn convolutions() {
        let mut forward = operation("aten::cudnn_convolution", &[&[32, 3, 224, 224], &[64, 3, 7, 7]], &[]);
        forward.attributes.insert("stride".into(), Attribute::List(vec![Attribute::Int(2), Attribute::Int(2)]));
        forward.attributes.insert("padding".into(), Attribute::List(vec![Attribute::Int(3), Attribute::Int(3)]));
        assert_eq!(work(&forward, None).unwrap().flops.get(), 2.0 * 32.0 * 118_013_952.0);
        let backward =
            operation("aten::convolution_backward", &[&[32, 64, 112, 112], &[32, 3, 224, 224], &[64, 3, 7, 7]], &[]);
        assert_eq!(work(&backward, None).unwrap().flops.get(), 2.0 * 2.0 * 32.0 * 118_013_952.0);
        // Grouped: the weight has the channels of one group only.
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
        // A table of two rows is read once, however many look-ups hit it.
        let small = operation("aten::embedding", &[&[2, 16], &[1000]], &[]);
        assert!((megabytes(&small) - (2.0 + 1000.0) * 16.0 * 4.0 / 1e6).abs() < 1e-12);
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
        // 64 elements from 64 rows; their gradient fills the whole matrix.
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
        // Parameter, gradient and two moments read; all except the gradient written.
        assert_eq!(bytes("aten::_fused_adamw_", &[list; 4]), 7.0 * 400.0);
        assert_eq!(bytes("aten::_foreach_mul_", &[list; 4]), 2.0 * 4.0 * 400.0);
        assert_eq!(bytes("aten::_foreach_addcdiv_", &[list; 3]), 4.0 * 400.0);
        // Parameter, gradient and momentum (or sum of squares) read; all except the gradient written.
        assert!((bytes("aten::_fused_sgd_", &[list; 3]) - 5.0 * 400.0).abs() < 1e-9);
        assert!((bytes("aten::_fused_adagrad_", &[list; 3]) - 5.0 * 400.0).abs() < 1e-9);
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

    fn with(name: &str, inputs: &[&[u64]], attributes: &str) -> Operation {
        let attributes = serde_json::from_str(attributes).unwrap();
        Operation { attributes, ..operation(name, inputs, &[]) }
    }

    fn flops(operation: &Operation) -> f64 {
        work(operation, None).unwrap().flops.get()
    }

    fn bytes(operation: &Operation) -> f64 {
        work(operation, None).unwrap().bytes.get()
    }

    /// Four groups of 16 channels in and 8 out: the weight is [in, out / groups, …].
    #[test]
    fn grouped_transposed_convolutions() {
        let (image, weight): (&[u64], &[u64]) = (&[2, 64, 8, 8], &[64, 8, 4, 4]);
        let moved = 4.0 * (2.0 * (64.0 * 64.0 + 32.0 * 256.0) + 64.0 * 8.0 * 16.0);
        let rest = r#"{"groups": 4, "stride": [2, 2], "padding": [1, 1]}"#;
        let forward = with("aten::cudnn_convolution_transpose", &[image, weight], rest);
        assert_eq!((flops(&forward), bytes(&forward)), (2.0 * 2.0 * 64.0 * 64.0 * 8.0 * 16.0, moved));
        // Without recorded groups, the channels of the result determine them.
        let known = operation("aten::conv_transpose2d", &[image, weight], &[&[2, 32, 16, 16]]);
        assert_eq!((flops(&known), bytes(&known)), (flops(&forward), moved));
        let gradient: &[u64] = &[2, 32, 16, 16];
        let backward =
            with("aten::convolution_backward", &[gradient, image, weight], r#"{"transposed": true, "groups": 4}"#);
        assert_eq!((flops(&backward), bytes(&backward)), (2.0 * flops(&forward), 2.0 * moved));
    }

    #[test]
    fn padding_in_words_and_single_images() {
        let inputs: [&[u64]; 2] = [&[1, 8, 10, 10], &[16, 8, 3, 3]];
        let conv = |padding: &str| with("aten::conv2d", &inputs, &format!(r#"{{"padding": {padding}}}"#));
        let pixel = 2.0 * 16.0 * 8.0 * 9.0;
        assert_eq!(flops(&conv(r#""same""#)), 100.0 * pixel);
        assert_eq!(flops(&conv(r#""valid""#)), 64.0 * pixel);
        assert_eq!(flops(&with("aten::conv2d", &inputs, r#"{"padding": "same", "dilation": [2, 2]}"#)), 100.0 * pixel);
        assert_eq!(flops(&operation("aten::conv2d", &[&[8, 10, 10], &[16, 8, 3, 3]], &[])), 64.0 * pixel);
        let line = with("aten::conv1d", &[&[4, 8, 100], &[16, 8, 5]], r#"{"dilation": [2], "stride": [3]}"#);
        assert_eq!(flops(&line), 2.0 * 4.0 * 31.0 * 16.0 * 8.0 * 5.0);
        // A filter larger than its image is invalid.
        assert_eq!(work(&operation("aten::conv2d", &[&[1, 8, 2, 2], &[16, 8, 3, 3]], &[]), None), None);
    }

    #[test]
    fn products_spread_their_batches() {
        let flops = |inputs: [&[u64]; 2]| work(&operation("aten::matmul", &inputs, &[]), None).map(|it| it.flops.get());
        let full = Some(2.0 * 8.0 * 4.0 * 5.0 * 6.0 * 7.0);
        assert_eq!(flops([&[8, 1, 5, 6], &[1, 4, 6, 7]]), full);
        assert_eq!(flops([&[1, 5, 6], &[32, 6, 7]]), full);
        assert_eq!(flops([&[8, 4, 5, 6], &[6, 7]]), full);
        assert_eq!(flops([&[5, 6], &[32, 6, 7]]), full);
        // The second factor fits in neither order, so these are not factors of one product.
        assert_eq!(flops([&[5, 6], &[9, 7]]), None);
        // With `beta` 0 the summand is not read.
        let inputs: [&[u64]; 3] = [&[8, 5, 7], &[8, 5, 6], &[8, 6, 7]];
        let ignored =
            bytes(&operation("aten::baddbmm", &inputs, &[])) - bytes(&with("aten::baddbmm", &inputs, r#"{"beta": 0}"#));
        assert_eq!(ignored, 4.0 * 8.0 * 5.0 * 7.0);
    }

    /// 32 rows, 256 → 512: 4-bit and 8-bit integers, and 2:4 sparsity.
    #[test]
    fn weights_held_in_fewer_bits() {
        let (left, result) = (32.0 * 256.0, 32.0 * 512.0);
        let int4 = operation("aten::_weight_int4pack_mm", &[&[32, 256], &[64, 2, 32, 4], &[8, 512, 2]], &[]);
        assert_eq!(flops(&int4), 2.0 * left * 512.0);
        assert_eq!(bytes(&int4), 4.0 * (left + result + 8.0 * 512.0 * 2.0) + 256.0 * 512.0 / 2.0);
        let int8 = operation("aten::_weight_int8pack_mm", &[&[32, 256], &[512, 256], &[512]], &[]);
        assert_eq!((flops(&int8), bytes(&int8)), (flops(&int4), 4.0 * (left + result + 512.0) + 512.0 * 256.0));
        let kept = operation("aten::_sparse_semi_structured_linear", &[&[32, 256], &[512, 128], &[512, 16]], &[]);
        assert_eq!(flops(&kept), left * 512.0);
        let kept = operation("aten::_sparse_semi_structured_mm", &[&[512, 128], &[512, 16], &[256, 32]], &[]);
        assert_eq!(flops(&kept), left * 512.0);
    }

    #[test]
    fn attention_backward_writes_three_gradients() {
        let (query, key): (&[u64], &[u64]) = (&[2, 16, 512, 64], &[2, 4, 512, 64]);
        let (all, few) = (2.0 * 16.0 * 512.0 * 64.0, 2.0 * 4.0 * 512.0 * 64.0);
        let name = "aten::_scaled_dot_product_flash_attention_backward";
        let backward = operation(name, &[query, query, key, key, query], &[]);
        // Reads gradient, query, key, value and result; writes the gradients of query, key and value.
        assert_eq!(bytes(&backward), 4.0 * (3.0 * all + 2.0 * few + all + 2.0 * few));
        assert_eq!(flops(&backward), 10.0 * all * 512.0);
        // Flex attention puts the gradient after the tensors.
        let flex = operation("flex_attention_backward", &[query, key, key, query, query], &[]);
        assert_eq!((flops(&flex), bytes(&flex)), (flops(&backward), bytes(&backward)));
    }

    #[test]
    fn attention_of_unequal_lengths_and_sizes() {
        // Values of half the size: one product with 64, one with 32.
        let inputs: [&[u64]; 3] = [&[1, 8, 128, 64], &[1, 8, 512, 64], &[1, 8, 512, 32]];
        let pairs = 8.0 * 128.0 * 512.0;
        assert_eq!(flops(&operation("aten::scaled_dot_product_attention", &inputs, &[])), 2.0 * pairs * 96.0);
        // One query after 511 others attends to all keys in a library, but only to the first in PyTorch.
        let causal = |name: &str, inputs: [&[u64]; 3]| flops(&with(name, &inputs, r#"{"is_causal": true}"#));
        let library = causal("aten::_flash_attention_forward", [&[1, 1, 8, 64], &[1, 512, 8, 64], &[1, 512, 8, 64]]);
        assert_eq!(library, 4.0 * 8.0 * 64.0 * 511.5);
        let shapes: [&[u64]; 3] = [&[1, 8, 1, 64], &[1, 8, 512, 64], &[1, 8, 512, 64]];
        assert_eq!(causal("aten::scaled_dot_product_attention", shapes), 4.0 * 8.0 * 64.0 * 0.5);
        let tensor: &[u64] = &[1, 512, 8, 64];
        let masked = with("aten::_efficient_attention_forward", &[tensor; 3], r#"{"custom_mask_type": 1}"#);
        assert_eq!(flops(&masked), 2.0 * 8.0 * 512.0 * 512.0 * 64.0);
    }

    #[test]
    fn optimizers_with_other_lists() {
        let bytes = |name, inputs: &[&[u64]]| bytes(&operation(name, inputs, &[]));
        let (a, b, step): (&[u64], &[u64], &[u64]) = (&[60], &[40], &[]);
        // AMSGrad keeps a third moment: reads five lists, writes four.
        assert!((bytes("aten::_fused_adam_", &[a, b, a, b, a, b, a, b, a, b]) - 9.0 * 400.0).abs() < 1e-9);
        let steps = bytes("aten::_fused_adam_", &[a, a, a, a, a, a, a, a, a, a, step, step]);
        assert!((steps - 9.0 * 480.0 - 1.8 * 8.0).abs() < 1e-9, "{steps}");
        // SGD without momentum: reads two, writes one.
        assert!((bytes("aten::_fused_sgd_", &[a, b, a, b]) - 3.0 * 400.0).abs() < 1e-9);
        assert_eq!(bytes("aten::_foreach_copy_", &[a, b, a, b]), 2.0 * 400.0);
        assert_eq!(bytes("aten::_foreach_zero_", &[a, b]), 400.0);
        assert_eq!(bytes("aten::_foreach_lerp_", &[a, b, a, b]), 3.0 * 400.0);
        assert_eq!(bytes("aten::_foreach_add_", &[a, b, a, b]), 3.0 * 400.0);
        assert_eq!(bytes("aten::_foreach_add_", &[a, b]), 2.0 * 400.0);
    }

    #[test]
    fn gradients_of_slices_and_tables_fill_the_whole() {
        let slice = with("aten::slice_backward", &[&[8, 10]], r#"{"input_sizes": [8, 1000]}"#);
        assert_eq!(bytes(&slice), 4.0 * (80.0 + 8000.0));
        // 8192 positions of a table of 100 rows: both are written.
        let table = with("aten::embedding_dense_backward", &[&[8, 1024, 16], &[8, 1024]], r#"{"num_weights": 100}"#);
        assert_eq!(bytes(&table), 4.0 * (8192.0 + 100.0) * 16.0);
        // Bags of four rows each are read in full and their sums written.
        let bag = operation("aten::_embedding_bag", &[&[1000, 16], &[64], &[16]], &[&[16, 16], &[64]]);
        assert_eq!(bytes(&bag), 4.0 * (64.0 + 16.0) * 16.0);
        let rows = with("aten::index_select", &[&[8, 100, 16], &[10]], r#"{"dim": 1}"#);
        assert_eq!(bytes(&rows), 4.0 * 2.0 * 8.0 * 10.0 * 16.0);
        let pairs = operation("aten::index", &[&[8, 100, 16], &[50], &[50]], &[]);
        assert_eq!(bytes(&pairs), 4.0 * 2.0 * 50.0 * 16.0);
        assert_eq!(bytes(&operation("aten::cumsum", &[&[100]], &[])), 800.0);
    }

    #[test]
    fn masks_are_one_byte_an_element() {
        let bytes = |name, inputs: &[&[u64]]| bytes(&operation(name, inputs, &[]));
        assert_eq!(bytes("aten::native_dropout", &[&[100]]), 900.0);
        assert_eq!(bytes("aten::native_dropout_backward", &[&[100], &[100]]), 900.0);
        assert_eq!(bytes("aten::where", &[&[100], &[100], &[100]]), 1300.0);
        assert_eq!(bytes("aten::masked_fill_", &[&[8, 100], &[100]]), 6500.0);
    }

    /// A cell of 64 states for 256 samples: one product per gate.
    #[test]
    fn recurrent_cells_and_packed_sequences() {
        let cell =
            operation("aten::lstm_cell", &[&[256, 64], &[256, 64], &[256, 64], &[256, 64], &[256, 64], &[256]], &[]);
        assert_eq!(flops(&cell), 2.0 * 256.0 * 2.0 * 256.0 * 64.0);
        let inputs: [&[u64]; 5] = [&[40, 32], &[10], &[256, 32], &[256, 64], &[256]];
        let packed = parts(&operation("aten::lstm", &inputs, &[]), None);
        assert_eq!(packed[1].times, 10.0);
    }

    #[test]
    fn what_else_is_known_by_name() {
        let kind = |name: &str| family(&operation(name, &[], &[]));
        for name in ["c10d::alltoall_base_", "c10d::broadcast_", "_c10d_functional::all_to_all_single"] {
            assert_eq!(kind(name), Family::Communication, "{name}");
        }
        assert_eq!(kind("flash_attn::_flash_attn_forward"), Family::Attention);
        assert_eq!(kind("_C::rotary_embedding"), Family::Elementwise);
        assert_eq!(kind("aten::select_backward"), Family::Elementwise);
        let mut eight = operation("aten::mm", &[&[8, 8], &[8, 8]], &[]);
        eight.dtype = None;
        assert_eq!(work(&eight, Some(Precision::Fp8)).unwrap().bytes.get(), 3.0 * 64.0);
        // FP8 applies to products only.
        eight.name = "aten::add".to_owned();
        assert_eq!(work(&eight, Some(Precision::Fp8)).unwrap().bytes.get(), 3.0 * 64.0 * 2.0);
    }

    /// An operation with the type of each input and result.
    fn typed(name: &str, inputs: &[(&[u64], &str)], outputs: &[(&[u64], &str)], own: DType) -> Operation {
        let shapes = |tensors: &[(&[u64], &str)]| tensors.iter().map(|(shape, _)| shape.to_vec()).collect();
        let types = |tensors: &[(&[u64], &str)]| {
            Attribute::List(tensors.iter().map(|(_, name)| Attribute::Text((*name).to_owned())).collect())
        };
        let told = [("input_dtypes".to_owned(), types(inputs)), ("output_dtypes".to_owned(), types(outputs))];
        let (inputs, outputs) = (shapes(inputs), shapes(outputs));
        Operation { inputs, outputs, attributes: told.into(), dtype: Some(own), ..operation(name, &[], &[]) }
    }

    #[test]
    fn every_tensor_is_counted_by_its_own_type() {
        let (half, single, long) = ("float16", "float32", "int64");
        let (row, image, scale): (&[u64], &[u64], &[u64]) = (&[100], &[8, 64, 16, 16], &[64]);
        let cast = typed("aten::_to_copy", &[(row, single)], &[(row, half)], DType::Float32);
        assert_eq!(bytes(&cast), 600.0);
        let back = typed("aten::_to_copy", &[(row, half)], &[(row, single)], DType::Float16);
        assert_eq!(bytes(&back), 600.0);
        // Destination, then source; the result is the destination.
        let copy = typed("aten::copy_", &[(row, half), (row, single)], &[(row, half)], DType::Float16);
        assert_eq!(bytes(&copy), 600.0);
        assert_eq!(bytes(&operation("aten::copy_", &[row, &[]], &[row])), 404.0);
        // Not a copy of one tensor into another, despite the name.
        assert_eq!(bytes(&operation("aten::copy_", &[row, &[]], &[&[]])), 800.0);
        // Reads and writes in 16 bits, plus six rows of 64 statistics in 32.
        let inputs = [(image, half), (scale, single), (scale, single), (scale, single), (scale, single)];
        let outputs = [(image, half), (scale, single), (scale, single)];
        let norm = typed("aten::native_batch_norm", &inputs, &outputs, DType::Float16);
        assert_eq!(bytes(&norm), 2.0 * 2.0 * 131_072.0 + 4.0 * 6.0 * 64.0);
        let pooled: &[u64] = &[8, 64, 8, 8];
        let pool = "aten::max_pool2d_with_indices";
        let pool = typed(pool, &[(image, half)], &[(pooled, half), (pooled, long)], DType::Float16);
        assert_eq!(bytes(&pool), 2.0 * 131_072.0 + 10.0 * 32_768.0);
        // 32-bit weights copied to 16-bit ones; a 32-bit update from 16-bit gradients.
        let weights = [(row, half), (scale, half), (row, single), (scale, single)];
        let narrowed = typed("aten::_foreach_copy_", &weights, &weights[..2], DType::Float16);
        assert_eq!(bytes(&narrowed), 6.0 * 164.0);
        let lists = [(row, single), (scale, single), (row, half), (scale, half)];
        let added = typed("aten::_foreach_add_", &lists, &lists[..2], DType::Float32);
        assert_eq!(bytes(&added), (4.0 + 4.0 + 2.0) * 164.0);
        let test = typed("aten::gt", &[(row, half)], &[(row, "bool")], DType::Float16);
        assert_eq!((bytes(&test), bytes(&operation("aten::gt", &[row], &[]))), (300.0, 500.0));
        assert_eq!(bytes(&operation("aten::gt_", &[row], &[row])), 800.0);
        let filled = typed("aten::masked_fill", &[(row, half), (row, "bool")], &[(row, half)], DType::Float16);
        assert_eq!(bytes(&filled), 500.0);
        let rows: &[u64] = &[32, 1000];
        let loss = typed("aten::nll_loss_forward", &[(rows, single), (&[32], long)], &[(&[], single)], DType::Float32);
        assert_eq!(bytes(&loss), 256.0);
        // Factors in 8 bits, their product in 16.
        let factors: [(&[u64], &str); 2] = [(&[32, 64], "float8_e4m3"), (&[64, 16], "float8_e4m3")];
        let product = typed("aten::_scaled_mm", &factors, &[(&[32, 16], "bfloat16")], DType::Float8E4m3);
        assert_eq!(bytes(&product), 2048.0 + 1024.0 + 2.0 * 512.0);
        // A type list of the wrong length is ignored.
        let broken = Operation { inputs: vec![vec![100]; 2], ..cast };
        assert_eq!(bytes(&broken), 1000.0);
    }

    /// With running statistics: one read, one write.
    #[test]
    fn normalisation_in_evaluation_passes_once() {
        let image: &[u64] = &[8, 64, 16, 16];
        let moved = |name: &str, attributes: &str| {
            let found =
                parts(&Operation { outputs: vec![image.to_vec()], ..with(name, &[image, &[64]], attributes) }, None);
            match found[0].primitive {
                crate::op::Primitive::Stream { moved } => moved / 131_072.0,
                _ => 0.0,
            }
        };
        for name in ["native", "cudnn", "miopen"].map(|library| format!("aten::{library}_batch_norm")) {
            assert_eq!(moved(&name, r#"{"training": false}"#), 2.0, "{name}");
            assert_eq!(moved(&name, r#"{"training": true}"#), 3.0, "{name}");
        }
        assert_eq!(moved("aten::_native_batch_norm_legit_no_training", "{}"), 2.0);
        assert_eq!(moved("aten::_native_batch_norm_legit", r#"{"training": false}"#), 2.0);
        assert_eq!(moved("aten::_batch_norm_no_update", "{}"), 2.0);
        assert_eq!(moved("aten::batch_norm", r#"{"training": false}"#), 2.0);
        assert_eq!(moved("aten::native_batch_norm_backward", r#"{"training": false}"#), 3.0);
    }

    #[test]
    fn weights_and_biases_are_parameters() {
        let held = |name, inputs: &[&[u64]]| parameters(&operation(name, inputs, &[]));
        assert_eq!(held("aten::linear", &[&[8, 16], &[32, 16], &[32]]), [1, 2]);
        assert_eq!(held("aten::addmm", &[&[32], &[8, 16], &[16, 32]]), [0, 2]);
        assert_eq!(held("aten::addmm", &[&[8, 32], &[8, 16], &[16, 32]]), [2]);
        assert_eq!(held("aten::bmm", &[&[4, 8, 16], &[4, 16, 32]]), [0_usize; 0]);
        assert_eq!(held("aten::_grouped_mm", &[&[100, 6], &[8, 6, 7], &[8]]), [1, 2]);
    }
}
