//! Fused attention.

use super::{Arithmetic, Pass, Primitive, Work, volume};
use crate::profile::{Attribute, Operation, Shape};
use crate::units::{Bytes, Flops};

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
    /// Elements of a query.
    pub head_size: f64,
    /// Whether a query sees only the keys before it: half of them.
    pub causal: bool,
    /// Whether it forms gradients.
    pub is_backward: bool,
    /// Elements read and written.
    pub moved: f64,
}

impl Attention {
    /// Query, key and value as `[batch, heads, length, head size]`, with heads and length
    /// exchanged unless `heads_first`; backward lists the gradient of the output first.
    pub(super) fn of(operation: &Operation, pass: Pass, heads_first: bool) -> Option<Self> {
        let tensors: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() == 4).collect();
        let first = usize::from(pass.is_backward());
        let [query, key] = tensors.get(first..first + 2)? else { return None };
        let (heads, length) = if heads_first { (1, 2) } else { (2, 1) };
        Some(Self {
            batch: query[0] as f64,
            heads: query[heads] as f64,
            queries: query[length] as f64,
            keys: key[length] as f64,
            head_size: query[3] as f64,
            causal: matches!(operation.attributes.get("is_causal"), Some(Attribute::Bool(true))),
            is_backward: pass.is_backward(),
            moved: tensors.iter().map(|shape| volume(shape)).sum::<f64>() + volume(query),
        })
    }

    /// Two products over all pairs of positions, half of them under a causal mask; five in
    /// backward.
    fn flops(&self) -> f64 {
        let pairs = self.batch * self.heads * self.queries * self.keys;
        let products = if self.is_backward { 5.0 } else { 2.0 };
        products * 2.0 * pairs * self.head_size * if self.causal { 0.5 } else { 1.0 }
    }

    pub(super) fn work(&self, element: f64) -> Work {
        Work {
            flops: Flops::known(self.flops()),
            bytes: Bytes::known(self.moved * element),
            arithmetic: Arithmetic::Product,
        }
    }

    pub(super) fn primitive(&self) -> Primitive {
        let share = if self.is_backward { BACKWARD_SHARE } else { FORWARD_SHARE };
        Primitive::Fused { flops: self.flops(), moved: self.moved, share }
    }
}
