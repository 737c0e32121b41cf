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
    /// The factor, 1 or more, by which there may be more or fewer pairs of queries and keys: the lengths of packed
    /// sequences are values of a tensor, which recordings seldom have.
    pub doubt: f64,
}

impl Attention {
    /// Query, key and value as `[batch, heads, length, head size]`, with heads and length
    /// exchanged unless they come first, or as `[positions of all sequences, heads, head size]`.
    /// Backward lists the gradient of the output before them, that of flex attention behind.
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
            // Without heads.
            _ => sized,
        };
        Some(Self { seen: seen(operation, form, sized.queries, sized.keys), ..sized })
    }

    /// Sequences that lie one after another, as sequences of one length with the same number of pairs of queries
    /// and keys: as recorded, else somewhere between those of equal lengths, which are the fewest, and those of as
    /// many sequences of the longest length as fit. `None` if the number of sequences is unknown.
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

/// Sequences that lie one after another in the tensors: the ends of all follow as a tensor of one dimension.
fn sequences(operation: &Operation) -> Option<f64> {
    let is_packed = ["max_q", "pairs"].iter().any(|name| operation.attributes.contains_key(*name));
    let ends = || operation.inputs.iter().find(|shape| shape.len() == 1 && shape[0] > 1);
    if is_packed { ends().map(|ends| ends[0] as f64 - 1.0) } else { None }
}

/// Whether an operator that takes both orders was given tensors with heads before lengths (`SageAttention`).
fn has_heads_first(operation: &Operation) -> bool {
    operation.attributes.get("tensor_layout").and_then(Attribute::as_int) == Some(1)
}

/// The part of the pairs that a causal mask or a window leaves. Of unequal lengths, `PyTorch`'s operators
/// let the first query see the first key; libraries let the last query see the last key.
fn seen(operation: &Operation, form: AttentionForm, queries: f64, keys: f64) -> f64 {
    if queries == 0.0 || keys == 0.0 {
        return 1.0;
    }
    let attribute = |name: &str| operation.attributes.get(name);
    // Of block masks `trace-shapes` has the part.
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
            // A window to both sides, in sequences longer than it.
            let beyond = |side: Option<f64>| side.map_or(0.0, |side| (keys - side).max(0.0).powi(2));
            return 1.0 - (beyond(left) + beyond(right)) / (2.0 * keys * keys);
        }
    };
    let shorter = queries.min(keys) / queries.max(keys) / 2.0;
    let causal = if from_the_end == (queries <= keys) { 1.0 - shorter } else { shorter };
    // Of a causal sequence longer than its window, the pairs further apart are left out.
    let beyond = left.map_or(0.0, |left| (keys - left - 1.0).max(0.0).powi(2) / (2.0 * keys * keys));
    (causal - beyond).max(causal / keys.max(1.0))
}

/// Keys that a query sees before and after its own place; `None` for all. `PyTorch` and libraries write -1 for all.
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

    /// FLOPs over those of one head and element of every pair of 1024 positions, and their doubt.
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
        // xFormers' and PyTorch's memory-efficient kernels have a batch of one.
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
        // Between 16 of 64 and 4 of 256.
        assert_eq!(counted("torch_attn::_varlen_attn", inputs, attributes), (0.125, 2.0));
        assert_eq!(
            counted("torch_attn::_varlen_attn", inputs, r#"{"max_q": 256, "max_k": 256, "pairs": 65536}"#),
            (0.0625, 1.0)
        );
        // How many sequences there are is unknown: nothing is counted, and that is known.
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
        // 256 keys before each of 1024 places: 1024 × 256, less those before the first.
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
