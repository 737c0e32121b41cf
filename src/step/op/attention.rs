//! Fused attention.

use super::name::AttentionForm;
use super::{Arithmetic, Pass, Primitive, Work, volume};
use crate::profile::{Attribute, Operation, Shape};

/// Share of the product rate that fused attention sustains in the forward pass. `FlashAttention`-2 reaches up to 73 %
/// of the peak forward and 63 % backward on an A100 (Dao 2023, section 4.1), less on short sequences.
const FORWARD_SHARE: f64 = 0.6;
/// The same in the backward pass.
const BACKWARD_SHARE: f64 = 0.5;

/// Fused attention: products of queries with keys, softmax, and the weighted sum of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Number of sequences.
    pub batch: f64,
    /// Query heads.
    pub heads: f64,
    /// Queries per sequence.
    pub queries: f64,
    /// Keys per sequence.
    pub keys: f64,
    /// Size of a query or key in one head.
    pub head_size: f64,
    /// Size of a value in one head.
    pub value_size: f64,
    /// Share of the query–key pairs left by a causal mask or window; 1 without one.
    pub seen: f64,
    /// Whether it computes gradients.
    pub is_backward: bool,
    /// Elements read and written.
    pub moved: f64,
    /// Factor, 1 or more, by which the number of query–key pairs may be above or below the count: the lengths of packed
    /// sequences are tensor values, which recordings seldom have.
    pub doubt: f64,
}

impl Attention {
    /// Sizes from query, key and value as `[batch, heads, length, head size]`, `[batch, length, heads, head size]` or
    /// packed `[positions of all sequences, heads, head size]`. In the backward pass the gradient of the output
    /// precedes them; flex attention puts it after them.
    pub(super) fn of(operation: &Operation, pass: Pass, form: AttentionForm) -> Option<Self> {
        let is_backward = pass.is_backward();
        let first = usize::from(is_backward && form != AttentionForm::Flex);
        let of_rank = |rank: usize| {
            let tensors: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() == rank).collect();
            (tensors.len() >= first + 3).then_some(tensors)
        };
        let tensors = of_rank(4).or_else(|| of_rank(3))?;
        let [query, key, value] = tensors.get(first..first + 3)? else { return None };
        let (head_size, value_size) = (*query.last()? as f64, *value.last()? as f64);
        let (result, own) = (volume(query) / head_size * value_size, volume(query) + volume(key) + volume(value));
        let sized = Self {
            batch: query[0] as f64,
            heads: 1.0,
            queries: query[1] as f64,
            keys: key[1] as f64,
            head_size,
            value_size,
            seen: 1.0,
            is_backward,
            moved: tensors.iter().map(|shape| volume(shape)).sum::<f64>() + if is_backward { own } else { result },
            doubt: 1.0,
        };
        let is_length_first = form == AttentionForm::LengthFirst && !has_heads_first(operation);
        let sized = match (query.len(), is_length_first) {
            (4, true) => {
                let sized = Self { heads: query[2] as f64, ..sized };
                if sequences(operation).is_some() && query[0] == 1 { sized.packed(operation)? } else { sized }
            }
            (4, false) => Self { heads: query[1] as f64, queries: query[2] as f64, keys: key[2] as f64, ..sized },
            (_, true) => {
                let (queries, keys) = (query[0] as f64, key[0] as f64);
                Self { batch: 1.0, heads: query[1] as f64, queries, keys, ..sized }.packed(operation)?
            }
            // One head, folded into the batch.
            _ => sized,
        };
        Some(Self { seen: seen(operation, form, sized.queries, sized.keys), ..sized })
    }

    /// Replaces packed sequences by sequences of equal length with the same number of query–key pairs.
    ///
    /// Uses the recorded number of pairs. Without one, takes the geometric mean of two bounds: equal lengths give the
    /// fewest pairs, and as many sequences of the longest length as fit give the most. Returns `None` if the number of
    /// sequences is unknown.
    fn packed(self, operation: &Operation) -> Option<Self> {
        let number = |name: &str| operation.attributes.get(name).and_then(Attribute::as_int);
        let (queries, keys) = (self.queries, self.keys);
        let all = queries * keys;
        if all == 0.0 {
            return Some(self);
        }
        let (pairs, doubt) = if let Some(pairs) = number("pairs") {
            ((pairs as f64).clamp(1.0, all), 1.0)
        } else {
            let fewest = all / sequences(operation)?.max(1.0);
            let longest = number("max_k").or(number("max_q")).filter(|longest| *longest > 0);
            let most = longest.map_or(all, |longest| queries * longest as f64).clamp(fewest, all.max(fewest));
            ((fewest * most).sqrt(), (most / fewest).sqrt())
        };
        let batch = all / pairs;
        Some(Self { batch, queries: queries / batch, keys: keys / batch, doubt, ..self })
    }

    /// FLOPs of the products over all unmasked pairs: one with the keys and one with the values; backward has three
    /// with queries or keys and two with values.
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

/// Number of packed sequences: a 1-D tensor holds the cumulative lengths, one more than the sequences.
fn sequences(operation: &Operation) -> Option<f64> {
    let is_packed = ["max_q", "pairs"].iter().any(|name| operation.attributes.contains_key(*name));
    let ends = || operation.inputs.iter().find(|shape| shape.len() == 1 && shape[0] > 1);
    if is_packed { ends().map(|ends| ends[0] as f64 - 1.0) } else { None }
}

/// Whether an operator that accepts both layouts received heads before lengths (`SageAttention`).
fn has_heads_first(operation: &Operation) -> bool {
    operation.attributes.get("tensor_layout").and_then(Attribute::as_int) == Some(1)
}

/// Share of the query–key pairs left by a causal mask or window. With unequal lengths, `PyTorch`'s operators align the
/// mask at the first query and key; libraries align it at the last.
fn seen(operation: &Operation, form: AttentionForm, queries: f64, keys: f64) -> f64 {
    if queries == 0.0 || keys == 0.0 {
        return 1.0;
    }
    let attribute = |name: &str| operation.attributes.get(name);
    // `trace-shapes` records the share for block masks.
    match attribute("seen") {
        Some(Attribute::Float(seen)) => return seen.clamp(0.0, 1.0),
        Some(Attribute::Int(seen)) => return (*seen as f64).clamp(0.0, 1.0),
        _ => {}
    }
    let [left, right] = window(operation);
    let causal_by_window = right == Some(0.0);
    let from_the_end = match (attribute("is_causal"), attribute("custom_mask_type")) {
        (Some(Attribute::Bool(true)), _) => form == AttentionForm::LengthFirst,
        (_, Some(Attribute::Int(1))) => false,
        (_, Some(Attribute::Int(2))) => true,
        _ if causal_by_window => true,
        _ => {
            // A two-sided window in sequences longer than it.
            let beyond = |side: Option<f64>| side.map_or(0.0, |side| (keys - side).max(0.0).powi(2));
            return 1.0 - (beyond(left) + beyond(right)) / (2.0 * keys * keys);
        }
    };
    let shorter = queries.min(keys) / queries.max(keys) / 2.0;
    let causal = if from_the_end == (queries <= keys) { 1.0 - shorter } else { shorter };
    // A causal window also excludes the pairs further apart than its length.
    let beyond = left.map_or(0.0, |left| (keys - left - 1.0).max(0.0).powi(2) / (2.0 * keys * keys));
    (causal - beyond).max(causal / keys.max(1.0))
}

/// Number of keys that a query attends to before and after its own position; `None` if unlimited. `PyTorch` and
/// libraries write -1 for unlimited.
fn window(operation: &Operation) -> [Option<f64>; 2] {
    let attribute = |name: &str| operation.attributes.get(name);
    let listed = attribute("window_size").and_then(Attribute::as_ints).filter(|sides| sides.len() == 2);
    let one = |index: usize, name: &str| {
        let side = listed.as_ref().map(|sides| sides[index]).or_else(|| attribute(name)?.as_int())?;
        (side >= 0).then_some(side as f64)
    };
    [one(0, "window_size_left"), one(1, "window_size_right")]
}

#[cfg(test)]
mod tests {
    use crate::op::Op;
    use crate::profile::{Operation, Profile};

    fn operation(name: &str, inputs: &str, attributes: &str) -> Operation {
        let json = format!(
            r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}}, "operations":
            [{{"name": "{name}", "phase": "forward", "dtype": "bfloat16", "inputs": {inputs}, "attributes": {attributes}}}]}}"#
        );
        Profile::from_json(json.as_bytes()).unwrap().0.operations.remove(0)
    }

    /// FLOPs relative to one head of size 64 with all pairs of 1024 positions, and their uncertainty factor.
    fn counted(name: &str, inputs: &str, attributes: &str) -> (f64, f64) {
        let op = Op::of(&operation(name, inputs, attributes));
        let unit = 4.0 * 1024.0 * 1024.0 * 8.0 * 64.0;
        (op.work(2.0).map_or(0.0, |work| work.flops.get() / unit), op.doubt())
    }

    #[test]
    fn packed_sequences_by_every_package() {
        let (forward, backward) = ("[1024, 8, 64], [1024, 8, 64], [1024, 8, 64]", "[1024, 8, 64], [1024, 8, 64]");
        for (name, attributes) in [
            ("torch_attn::_varlen_attn", r#"{"max_q": 1024, "max_k": 1024}"#),
            ("flash_attn::_flash_attn_varlen_forward", r#"{"max_q": 1024, "max_k": 1024}"#),
            ("flash_attn_3::fwd", r#"{"max_q": 1024}"#),
            ("xformers_flash::flash_fwd", r#"{"max_q": 1024}"#),
            ("aiter::mha_varlen_fwd", r#"{"max_q": 1024}"#),
            ("aten::_flash_attention_forward", r#"{"max_q": 1024, "max_k": 1024}"#),
        ] {
            assert_eq!(counted(name, &format!("[{forward}, [2], [2]]"), attributes), (1.0, 1.0), "{name}");
            let backward = format!("[{forward}, {backward}, [8, 1024], [2], [2]]");
            let name = name.replace("forward", "backward").replace("fwd", "bwd");
            let name = if name.ends_with("_varlen_attn") { format!("{name}_backward") } else { name };
            assert_eq!(counted(&name, &backward, attributes), (2.5, 1.0), "{name}");
        }
        // The memory-efficient kernels of xFormers and PyTorch have a batch of one.
        let inputs = "[[1, 1024, 8, 64], [1, 1024, 8, 64], [1, 1024, 8, 64], [5], [5]]";
        assert_eq!(counted("aten::_efficient_attention_forward", inputs, r#"{"max_q": 256}"#), (0.25, 1.0));
        assert_eq!(
            counted("xformers::efficient_attention_forward_cutlass", inputs, r#"{"pairs": 524288}"#),
            (0.5, 1.0)
        );
    }

    #[test]
    fn lengths_that_are_unknown_are_doubted() {
        let inputs = "[[1024, 8, 64], [1024, 8, 64], [1024, 8, 64], [17], [17]]";
        let attributes = r#"{"max_q": 256, "max_k": 256}"#;
        // Between 16 sequences of 64 and 4 of 256.
        assert_eq!(counted("torch_attn::_varlen_attn", inputs, attributes), (0.125, 2.0));
        assert_eq!(
            counted("torch_attn::_varlen_attn", inputs, r#"{"max_q": 256, "max_k": 256, "pairs": 65536}"#),
            (0.0625, 1.0)
        );
        // The number of sequences is unknown: the FLOPs are not counted, and the operator reports this.
        let paged = operation("vllm::unified_attention", "[[1024, 8, 64], [1024, 8, 64], [1024, 8, 64]]", "{}");
        assert!(Op::of(&paged).is_uncounted());
        assert!(!Op::of(&operation("torch_attn::_varlen_attn", inputs, attributes)).is_uncounted());
    }

    #[test]
    fn windows_leave_pairs_out() {
        let inputs = "[[1, 1024, 8, 64], [1, 1024, 8, 64], [1, 1024, 8, 64]]";
        let of = |attributes| counted("flash_attn::_flash_attn_forward", inputs, attributes).0;
        assert_eq!(of(r#"{"is_causal": true}"#), 0.5);
        assert_eq!(of(r#"{"window_size_left": -1, "window_size_right": 0}"#), 0.5);
        assert_eq!(of(r#"{"window_size_left": -1, "window_size_right": -1}"#), 1.0);
        // 256 keys before each of 1024 positions: 1024 × 256, minus those before the first position.
        let seen = of(r#"{"is_causal": true, "window_size_left": 255, "window_size_right": 0}"#);
        assert!((seen - 0.25 * (1.0 - 0.125)).abs() < 0.001, "{seen}");
        assert_eq!(of(r#"{"window_size_left": 512, "window_size_right": 512}"#), 0.75);
    }

    #[test]
    fn three_dimensions_without_heads() {
        let inputs = "[[8, 1024, 64], [8, 1024, 64], [8, 1024, 64]]";
        assert_eq!(counted("aten::scaled_dot_product_attention", inputs, "{}"), (1.0, 1.0));
    }
}
