//! Interprets the text of NVTX ranges, for any recorder.
//!
//! `torch.autograd.profiler.emit_nvtx` writes an operator as `aten::mm, seq = 12, op_id = 7, sizes = [[64, 128], [128,
//! 10]]`, each part after the name optional (`getNvtxStr` in PyTorch's `torch/csrc/profiler/util.cpp`). Every other
//! range belongs to the program, or to a library if it is in that library's domain.

use super::RangeKind;
use habitat_step::op::name::is_autograd_node;
use habitat_step::profile::Phase;

/// Maximum length of sizes in bytes; a fused optimizer lists every parameter.
const LONGEST_SIZES: usize = 256 << 10;

/// A range as described by its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Described<'a> {
    pub(super) name: &'a str,
    /// Sequence number; -1 if there is none.
    pub(super) sequence: i64,
    pub(super) of_forward: bool,
    /// A JSON list of shapes, or empty.
    pub(super) sizes: &'a str,
    pub(super) kind: RangeKind,
    pub(super) phase: Option<Phase>,
    pub(super) mark: Mark,
}

/// How a range may mark steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// It does not.
    No,
    /// It is a step, or an optimizer step as PyTorch names it.
    Step,
    /// The program's own range around its optimizer: a step ends where it ends.
    Optimizer,
}

/// Domains of libraries; their ranges are library calls, not parts of the program.
const LIBRARIES: [&str; 8] = ["nccl", "cublas", "cudnn", "cusparse", "cusolver", "cufft", "cccl", "nvshmem"];

/// Names of ranges that PyTorch itself opens around operators.
const OF_PYTORCH: [&str; 8] = [
    "ProfilerStep",
    "Optimizer.",
    "enumerate(DataLoader)",
    "DistributedDataParallel.",
    "FSDP::",
    "FullyShardedDataParallel.",
    "nccl:",
    "## ",
];

/// Describes a range; `domain` is the name of its domain, unless it is the default one.
pub(super) fn describe<'a>(text: &'a str, domain: Option<&str>) -> Described<'a> {
    let text = text.trim();
    let (name, facts) = split(text);
    let mut described = Described {
        name,
        sequence: -1,
        of_forward: false,
        sizes: "",
        kind: RangeKind::Part,
        phase: None,
        mark: Mark::No,
    };
    if let Some(domain) = domain {
        let domain = domain.to_ascii_lowercase();
        if LIBRARIES.iter().any(|library| domain.starts_with(library)) {
            described.kind = RangeKind::Annotation;
            described.phase = domain.starts_with("nccl").then_some(Phase::Communication);
            return described;
        }
    }
    if OF_PYTORCH.iter().any(|prefix| name.starts_with(prefix)) {
        described.kind = RangeKind::Annotation;
        if name.starts_with("ProfilerStep") || name.starts_with("Optimizer.step#") {
            described.mark = Mark::Step;
        }
        return described;
    }
    if facts.is_some() || is_operator(name) {
        described.kind = RangeKind::Operator;
        if let Some(facts) = facts {
            described.sequence = fact(facts, "seq = ").and_then(leading_number).unwrap_or(-1);
            described.sizes = fact(facts, "sizes = ").map_or("", sizes);
        }
        described.of_forward = described.sequence >= 0 && is_autograd_node(name);
        return described;
    }
    described.phase = phase(name);
    if described.phase.is_some() {
        described.kind = RangeKind::Annotation;
        let updates = described.phase == Some(Phase::Optimizer) && !name.to_ascii_lowercase().contains("zero");
        if updates {
            described.mark = Mark::Optimizer;
        }
    } else if may_be_step(name) {
        described.kind = RangeKind::Annotation;
        described.mark = Mark::Step;
    }
    described
}

/// Splits a text into the name and the facts that `emit_nvtx` appends.
fn split(text: &str) -> (&str, Option<&str>) {
    let facts = [", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = "];
    match facts.iter().filter_map(|fact| text.find(fact)).min() {
        Some(at) if at > 0 => (&text[..at], Some(&text[at + 2..])),
        _ => (text, None),
    }
}

/// Text after a key.
fn fact<'a>(facts: &'a str, key: &str) -> Option<&'a str> {
    let mut from = 0;
    while let Some(at) = facts[from..].find(key).map(|at| at + from) {
        // Must not be the end of another key.
        if at == 0 || facts[..at].ends_with(", ") {
            return Some(&facts[at + key.len()..]);
        }
        from = at + key.len();
    }
    None
}

fn leading_number(text: &str) -> Option<i64> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The bracketed list at the beginning; empty if it is cut off or malformed.
fn sizes(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate().take(LONGEST_SIZES) {
        match byte {
            b'[' => depth += 1,
            b']' if depth > 1 => depth -= 1,
            b']' if depth == 1 => return &text[..=at],
            b'0'..=b'9' | b',' | b' ' if depth > 0 => {}
            _ => return "",
        }
    }
    ""
}

/// Whether a text without facts is an operator, as `emit_nvtx` of PyTorch's first versions wrote it, or a range of the
/// autograd engine.
fn is_operator(name: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if name.starts_with("autograd::engine::") || name.starts_with("torch::autograd::") {
        return true;
    }
    // Operators use few namespaces; `Trainer::run` is a function of the program.
    if let Some((space, rest)) = name.split_once("::") {
        return NAMESPACES.contains(&space) && rest.split('.').all(word);
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.len() > 8 && stem.ends_with("Backward") && word(name)
}

/// Namespaces of operators.
const NAMESPACES: [&str; 7] = ["aten", "c10d", "prims", "torchvision", "xformers", "flash_attn", "_c10d_functional"];

/// Phase that the name of a range states unambiguously.
fn phase(name: &str) -> Option<Phase> {
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
    let forward = has(&["forward", "fwd"]);
    let backward = has(&["backward", "bwd"]);
    let optimizer = has(&["optimizer", "optim", "opt"]) || words.windows(2).any(|pair| pair == ["zero", "grad"]);
    match (forward, backward, optimizer) {
        (true, false, false) => Some(Phase::Forward),
        (false, true, false) => Some(Phase::Backward),
        (false, false, true) => Some(Phase::Optimizer),
        _ => None,
    }
}

/// Whether a name contains step, iteration or batch (but not batch norm).
fn may_be_step(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("step") || name.contains("iter") || (name.contains("batch") && !name.contains("norm"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_operator_of_emit_nvtx() {
        let text =
            "aten::addmm, seq = 12, op_id = 7, sizes = [[10], [64, 128], [128, 10], [], []], input_op_ids = [[1,0]]";
        let range = describe(text, None);
        assert_eq!((range.name, range.sequence, range.of_forward), ("aten::addmm", 12, false));
        assert_eq!(range.sizes, "[[10], [64, 128], [128, 10], [], []]");
        assert_eq!(range.kind, RangeKind::Operator);
        let node = describe("autograd::engine::evaluate_function: AddmmBackward0, seq = 12, op_id = 90", None);
        assert_eq!((node.name, node.sequence), ("autograd::engine::evaluate_function: AddmmBackward0", 12));
        assert!(node.of_forward);
        assert_eq!(describe("aten::relu, op_id = 3", None).sequence, -1);
        // The oldest form has no facts.
        assert_eq!(describe("aten::relu", None).kind, RangeKind::Operator);
        assert_eq!(describe("FlashAttnFunc, seq = 45368, op_id = 990812", None).kind, RangeKind::Operator);
    }

    #[test]
    fn ranges_of_the_program() {
        let of = |text| {
            let range = describe(text, None);
            (range.kind, range.phase, range.mark)
        };
        assert_eq!(of("encoder.layer_3"), (RangeKind::Part, None, Mark::No));
        assert_eq!(of("forward"), (RangeKind::Annotation, Some(Phase::Forward), Mark::No));
        assert_eq!(of("bwd pass"), (RangeKind::Annotation, Some(Phase::Backward), Mark::No));
        assert_eq!(of("optimizer_step"), (RangeKind::Annotation, Some(Phase::Optimizer), Mark::Optimizer));
        assert_eq!(of("zero_grad"), (RangeKind::Annotation, Some(Phase::Optimizer), Mark::No));
        assert_eq!(of("forward and backward"), (RangeKind::Part, None, Mark::No));
        assert_eq!(of("iteration 5"), (RangeKind::Annotation, None, Mark::Step));
        assert_eq!(of("BatchNorm2d"), (RangeKind::Part, None, Mark::No));
        assert_eq!(of("Trainer::run"), (RangeKind::Part, None, Mark::No));
        assert_eq!(of("Optimizer.step#Adam.step, op_id = 9"), (RangeKind::Annotation, None, Mark::Step));
        assert_eq!(of("FSDP::pre_forward (blocks.9), op_id = 9"), (RangeKind::Annotation, None, Mark::No));
    }

    #[test]
    fn calls_of_a_library_are_no_parts() {
        let range = describe("ncclAllReduce", Some("NCCL"));
        assert_eq!((range.kind, range.phase), (RangeKind::Annotation, Some(Phase::Communication)));
        assert_eq!(describe("fusion.3", Some("TSL")).kind, RangeKind::Part);
    }

    #[test]
    fn sizes_that_are_none_are_left_out() {
        for text in ["[[1, 2]", "[[1, x]]", "", "3, 4", "[[-1]]"] {
            assert_eq!(sizes(text), "", "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,80}", facts in "(, (seq|op_id|sizes|input_op_ids) = [\\[\\]0-9, a]{0,20}){0,4}") {
            let text = format!("{text}{facts}");
            let range = describe(&text, None);
            prop_assert!(range.sizes.is_empty() || serde_json::from_str::<serde_json::Value>(range.sizes).is_ok() || range.sizes.contains('['));
            prop_assert!(range.sequence >= -1);
        }
    }
}
