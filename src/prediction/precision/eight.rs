//! Products in FP8, and what their operands cost to get there.
//!
//! Training in FP8 (Transformer Engine, torchao) runs the products of linear layers in FP8. Each operand is read for its
//! largest value, read again, and written in FP8 as it is and transposed, because FP8 products of Hopper need both
//! operands along the sum: the input in the forward pass, the gradient of the result in the backward pass. Scaling by
//! the largest value of earlier steps (delayed) or of blocks (MXFP8) saves the first read. Weights are cast once for all
//! micro-batches (Transformer Engine's `is_first_microbatch`), which is left out. Casts grow with M·K + M·N, products
//! with M·K·N: narrow layers gain nothing.
//!
//! These stay in 16 bits: attention, and products with a size that is not a multiple of 16 (`torch._scaled_mm`) or with
//! the vocabulary, whose layer these libraries leave out.

use crate::decoded::Decoded;
use habitat_step::op::Primitive;
use habitat_step::op::name::{Form, LookupForm};
use habitat_step::profile::Phase;

/// Bytes per element of an operand in 16 bits. With scaling by its own largest value it is read twice and written twice in
/// 8 bits (6), else read once (4). Published jobs use either: a value between, nearer the first, is assumed.
pub(super) const BYTES: f64 = 5.5;
/// Kernels per operand: the largest value, and the cast with its transpose.
pub(super) const KERNELS: f64 = 2.0;
/// Multiple that all sizes of an FP8 product have.
const ALIGNED: f64 = 16.0;

/// Properties of a step that decide which of its products run in FP8.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Step {
    /// Rows of the largest table that is looked up: the vocabulary of a language model.
    vocabulary: Option<f64>,
    /// Whether attention is one operator, so that batched products are those of experts.
    has_fused_attention: bool,
}

impl Step {
    pub(super) fn new(decoded: &[Decoded<'_>]) -> Self {
        let rows = |one: &Decoded<'_>| {
            let is_table = matches!(one.op.name.form, Form::Lookup(LookupForm::Embedding));
            one.operation.inputs.first()?.first().filter(|_| is_table).map(|rows| *rows as f64)
        };
        Self {
            vocabulary: decoded.iter().filter_map(rows).max_by(f64::total_cmp),
            has_fused_attention: decoded.iter().any(|one| matches!(one.op.name.form, Form::Attention(_))),
        }
    }

    /// Whether the products of an operation run in FP8.
    pub(super) fn runs(self, decoded: &Decoded<'_>) -> bool {
        let is_layer = |[batch, sizes @ ..]: [f64; 4]| {
            (batch <= 1.0 || self.has_fused_attention)
                && sizes.iter().all(|size| size % ALIGNED == 0.0 && Some(*size) != self.vocabulary)
        };
        let mut products = products(decoded).peekable();
        products.peek().is_some() && products.all(is_layer)
    }
}

/// Elements of each operand that an operation casts: its input, or half of the gradient of its result, which is cast
/// once for two products.
pub(super) fn operands(decoded: &Decoded<'_>) -> Vec<f64> {
    let share = if decoded.operation.phase == Phase::Backward { 0.5 } else { 1.0 };
    products(decoded).map(|[batch, rows, _, reduction]| share * batch * rows * reduction).collect()
}

/// Batch, rows, columns and terms of a sum of each product.
fn products<'a>(decoded: &'a Decoded<'_>) -> impl Iterator<Item = [f64; 4]> + 'a {
    decoded.parts.iter().filter_map(|part| match part.primitive {
        Primitive::Product { batch, rows, columns, reduction } => Some([batch, rows, columns, reduction]),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::efficiency::Efficiency;
    use crate::precision::{Change, Changed};
    use crate::rate::{Rates, STEP_LAUNCH_US};
    use crate::roofline::roofline;
    use habitat_step::catalog::{GpuSpec, Layer};
    use habitat_step::op_list::from_op_list;
    use habitat_step::profile::{Precision, Profile};

    /// A profile of BF16 calls: phase, name and inputs.
    fn profile(calls: &[(&str, &str, &[&[u64]])]) -> Profile {
        let tensor = |shape: &&[u64]| serde_json::json!({"shape": shape, "dtype": "bfloat16"});
        let ops = calls.iter().map(|(phase, name, inputs)| {
            let inputs: Vec<_> = inputs.iter().map(tensor).collect();
            serde_json::json!({"op": format!("aten.{name}.default"), "phase": phase, "inputs": inputs, "count": 1})
        });
        let list = serde_json::json!({"info": {}, "ops": ops.collect::<Vec<_>>()});
        from_op_list(list.to_string().as_bytes(), "step").unwrap()
    }

    /// A layer and its gradients run in FP8; attention by products, an odd width and the vocabulary do not.
    #[test]
    fn layers_run_in_8_bits() {
        let calls: [(&str, &str, &[&[u64]]); 7] = [
            ("forward", "embedding", &[&[32000, 64], &[8, 128]]),
            ("forward", "mm", &[&[1024, 64], &[64, 256]]),
            ("backward", "mm", &[&[1024, 256], &[256, 64]]),
            ("backward", "mm", &[&[256, 1024], &[1024, 64]]),
            ("forward", "bmm", &[&[16, 128, 64], &[16, 64, 128]]),
            ("forward", "mm", &[&[1024, 64], &[64, 250]]),
            ("forward", "mm", &[&[1024, 64], &[64, 32000]]),
        ];
        let profile = profile(&calls);
        let decoded = Decoded::all(&profile);
        let step = Step::new(&decoded);
        let runs: Vec<bool> = decoded.iter().map(|one| step.runs(one)).collect();
        assert_eq!(runs, [false, true, true, true, false, false, false]);
        // The input, and the gradient of the result once for both products.
        let casts: Vec<Vec<f64>> = decoded[1..4].iter().map(|one| operands(one)).collect();
        assert_eq!(casts, [vec![65_536.0], vec![131_072.0], vec![131_072.0]]);
    }

    /// A layer in FP8 takes its product and the casts of its input: their traffic, with the models also two launches.
    #[test]
    fn casts_take_time() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../catalog/h100-sxm5-80gb.toml");
        let gpu = GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap();
        let (rates, model) = (Rates::new(&gpu), Efficiency::default());
        let profile = profile(&[("forward", "mm", &[&[8192, 1024], &[1024, 4096]])]);
        let decoded = Decoded::all(&profile);
        let (one, work) = (&decoded[0], decoded[0].work.as_ref().unwrap());
        let bytes = 8192.0 * 1024.0 * 5.5;
        let check = |efficiency: Option<&Efficiency>, in_16_bits: f64, casts: f64| {
            let change = Change::requested(&profile, Some(Precision::Fp8), &decoded, efficiency).unwrap();
            let board = efficiency.map(|model| model.board(&rates));
            let changed = change.operations[0].clone().unwrap();
            let without = Changed { operands: Vec::new(), ..changed.clone() };
            let [with, without] =
                [changed, without].map(|changed| change.factor((&rates, board.as_ref()), one, work, &changed));
            let found = (with - without) * in_16_bits;
            assert!((found / casts - 1.0).abs() < 1e-9 && without < 0.7, "{found} {casts} {without}");
        };
        let by_rates = roofline(&rates, work, one.dtype.as_ref(), None).get();
        check(None, by_rates, bytes / rates.bandwidth.value.get() * 1e6);
        let by_model = model.columns(&decoded).on(&rates)[0].unwrap().time.get();
        check(Some(&model), by_model, bytes / rates.streaming.value.get() * 1e6 + 2.0 * STEP_LAUNCH_US);
    }

    /// With fused attention, batched products are those of experts.
    #[test]
    fn experts_run_in_8_bits() {
        let query: &[u64] = &[1, 2, 128, 64];
        let calls: [(&str, &str, &[&[u64]]); 2] = [
            ("forward", "_scaled_dot_product_flash_attention", &[query, query, query]),
            ("forward", "bmm", &[&[4, 128, 64], &[4, 64, 128]]),
        ];
        let profile = profile(&calls);
        let decoded = Decoded::all(&profile);
        let step = Step::new(&decoded);
        assert!(step.runs(&decoded[1]) && operands(&decoded[1]) == [4.0 * 128.0 * 64.0]);
    }
}
