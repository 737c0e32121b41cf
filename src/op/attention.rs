//! Fused attention.

use super::name::AttentionForm;
use super::{Arithmetic, Pass, Primitive, Work, volume};
use crate::profile::{Attribute, Operation, Shape};

/// `FlashAttention`-2 reaches up to 73 % of the peak forward and 63 % backward on an A100
/// (Dao 2023, section 4.1), less on short sequences.
const FORWARD_SHARE: f64 = 0.6;
/// Backward.
const BACKWARD_SHARE: f64 = 0.5;

/// Every query compared with every key, and the values added up accordingly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Sequences.
    pub batch: f64,
    /// Heads of the queries.
    pub heads: f64,
    /// Queries of a sequence.
    pub queries: f64,
    /// Keys of a sequence.
    pub keys: f64,
    /// Elements of a query and of a key.
    pub head_size: f64,
    /// Elements of a value.
    pub value_size: f64,
    /// The part of all pairs of queries and keys that a causal mask leaves; 1 without one.
    pub seen: f64,
    /// Whether it forms gradients.
    pub is_backward: bool,
    /// Elements read and written.
    pub moved: f64,
}

impl Attention {
    /// Query, key and value as `[batch, heads, length, head size]`, with heads and length
    /// exchanged unless they come first. Backward lists the gradient of the output before them,
    /// that of flex attention behind.
    pub(super) fn of(operation: &Operation, pass: Pass, form: AttentionForm) -> Option<Self> {
        let tensors: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() == 4).collect();
        let is_backward = pass.is_backward();
        let first = usize::from(is_backward && form != AttentionForm::Flex);
        let [query, key, value] = tensors.get(first..first + 3)? else { return None };
        let (heads, length) = if form == AttentionForm::LengthFirst { (2, 1) } else { (1, 2) };
        let (queries, keys, value_size) = (query[length] as f64, key[length] as f64, value[3] as f64);
        let result = volume(query) / query[3] as f64 * value_size;
        let written = if is_backward { volume(query) + volume(key) + volume(value) } else { result };
        Some(Self {
            batch: query[0] as f64,
            heads: query[heads] as f64,
            queries,
            keys,
            head_size: query[3] as f64,
            value_size,
            seen: seen(operation, form, queries, keys),
            is_backward,
            moved: tensors.iter().map(|shape| volume(shape)).sum::<f64>() + written,
        })
    }

    /// Products over all pairs of positions that are seen: with the keys and with the values;
    /// in backward three with queries or keys and two with values.
    fn flops(&self) -> f64 {
        let pairs = self.batch * self.heads * self.queries * self.keys * self.seen;
        let sizes = if self.is_backward {
            3.0 * self.head_size + 2.0 * self.value_size
        } else {
            self.head_size + self.value_size
        };
        2.0 * pairs * sizes
    }

    pub(super) fn work(&self, element: f64) -> Option<Work> {
        Work::of_products(self.flops(), self.moved * element, Arithmetic::Product)
    }

    pub(super) fn primitive(&self) -> Primitive {
        let share = if self.is_backward { BACKWARD_SHARE } else { FORWARD_SHARE };
        Primitive::Fused { flops: self.flops(), moved: self.moved, share }
    }
}

/// The part of the pairs that a causal mask leaves. Of unequal lengths, `PyTorch`'s operators
/// let the first query see the first key; libraries let the last query see the last key.
fn seen(operation: &Operation, form: AttentionForm, queries: f64, keys: f64) -> f64 {
    let from_the_end = match (operation.attributes.get("is_causal"), operation.attributes.get("custom_mask_type")) {
        (Some(Attribute::Bool(true)), _) => form == AttentionForm::LengthFirst,
        (_, Some(Attribute::Int(1))) => false,
        (_, Some(Attribute::Int(2))) => true,
        _ => return 1.0,
    };
    let shorter = queries.min(keys) / queries.max(keys) / 2.0;
    if from_the_end == (queries <= keys) { 1.0 - shorter } else { shorter }
}
