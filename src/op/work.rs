//! Arithmetic and memory traffic of an operation.
//!
//! Counts are the least an implementation needs: every input read once, every output
//! written once, a multiply-add counted as two operations. They serve the roofline and
//! the arithmetic intensity of wave scaling.

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

    /// Of products that move `moved` elements; empty tensors do nothing.
    pub(super) fn of_products(flops: f64, moved: f64, element: f64, arithmetic: Arithmetic) -> Option<Self> {
        (flops > 0.0).then(|| Self { flops: Flops::known(flops), bytes: Bytes::known(moved * element), arithmetic })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::super::work;
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
        // Parameter, gradient and momentum or sum of squares read, two of them written.
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
}
