//! Packed sequences, block masks, sparse matrices, the CTC loss, complex numbers: traced as a GPU runs them.

use habitat_tui::op::{Op, StepWork};
use habitat_tui::profile::{Attribute, Phase};

use super::tests::{fixture, named, notes};
use crate::needs::torch;
use crate::place::{Place, out};

trials! {
    with (torch()) => [
        packed_attention_has_the_pairs_of_its_sequences,
        flex_attention_is_traced_with_its_backward,
        jagged_tensors_are_packed,
        the_ctc_loss_is_traced,
        sparse_matrices_have_their_elements,
        sparse_tables_are_traced,
        complex_products_and_distances_are_counted,
    ],
}

/// Heads and head size of the fixtures: 4 of 16.
const HEADS: f64 = 4.0 * 16.0;

fn flops(operation: &habitat_tui::profile::Operation) -> f64 {
    Op::of(operation).work(2.0).map_or(0.0, |work| work.flops.get())
}

fn packed_attention_has_the_pairs_of_its_sequences(python: &str) {
    let place = Place::new();
    for (sequences, pairs) in [(1_u32, 128.0 * 128.0), (4, 4.0 * 32.0 * 32.0)] {
        let profile = place.profile(python, "packed.py:varlen", &["--arg", &format!("sequences={sequences}")]);
        let [forward] = named(&profile, "torch_attn::_varlen_attn")[..] else { panic!("{:?}", profile.operations) };
        let [backward] = named(&profile, "torch_attn::_varlen_attn_backward")[..] else { panic!("no backward") };
        assert_eq!((flops(forward), flops(backward)), (4.0 * pairs * HEADS, 10.0 * pairs * HEADS));
        assert_eq!(StepWork::of(&profile).unknown, 0);
    }
    // Unknown lengths: counted as unknown, and predicted in a wide range with a warning.
    let profile = place.profile(python, "packed.py:varlen", &["--arg", "sequences=0"]);
    assert_eq!(StepWork::of(&profile).unknown, 2);
    let output = place.habitat(&["predict", "p.habitat.json", "--to", "h100-sxm5-80gb"]).output().unwrap();
    assert!(out(&output).contains("estimated FLOPs of torch_attn::_varlen_attn (×1)"), "{}", out(&output));
}

fn flex_attention_is_traced_with_its_backward(python: &str) {
    let place = Place::new();
    let whole = 4.0 * 2.0 * 512.0 * 512.0 * HEADS;
    // A causal mask keeps 10 of 4 × 4 blocks of 128.
    for (arguments, part) in [(["compiled=True", "causal=False"], 1.0), (["compiled=False", "causal=True"], 0.625)] {
        let profile = place.profile(python, "packed.py:flex", &["--arg", arguments[0], "--arg", arguments[1]]);
        let [forward] = named(&profile, "habitat::flex_attention")[..] else { panic!("{:?}", profile.operations) };
        let [backward] = named(&profile, "habitat::flex_attention_backward")[..] else { panic!("no backward") };
        assert_eq!((forward.phase, backward.phase), (Phase::Forward, Phase::Backward));
        assert_eq!((flops(forward), flops(backward)), (part * whole, 2.5 * part * whole));
        assert!(notes(&profile).contains("FlexAttention is traced as its compiled kernel"), "{}", notes(&profile));
    }
}

fn jagged_tensors_are_packed(python: &str) {
    let place = Place::new();
    let pairs = 5.0 * 5.0 + 6.0 * 6.0 + 7.0 * 7.0 + 8.0 * 8.0;
    for (half, name) in [("False", "aten::_efficient_attention"), ("True", "aten::_flash_attention")] {
        let profile = place.profile(python, "packed.py:jagged", &["--arg", &format!("half={half}")]);
        let [forward] = named(&profile, &format!("{name}_forward"))[..] else { panic!("{:?}", profile.operations) };
        let [backward] = named(&profile, &format!("{name}_backward"))[..] else { panic!("no backward") };
        assert_eq!((flops(forward), flops(backward)), (4.0 * pairs * HEADS, 10.0 * pairs * HEADS));
    }
    let profile = place.profile(python, "packed.py:matmul", &[]);
    let inputs = |phase| -> Vec<_> {
        let all = named(&profile, "aten::matmul").into_iter().filter(|operation| operation.phase == phase);
        all.map(|operation| operation.inputs.clone()).collect()
    };
    assert_eq!(inputs(Phase::Forward), [[[26, 64], [64, 32]]]);
    assert_eq!(inputs(Phase::Backward), [5, 6, 7, 8].map(|length| [[64, length], [length, 32]]));
    let text = Place::new().refused(python, &fixture("packed.py:nested"), &[]);
    assert!(text.contains("layout=torch.jagged"), "{text}");
}

fn the_ctc_loss_is_traced(python: &str) {
    for tensors in ["tensors=True", "tensors=False"] {
        let profile = Place::new().profile(python, "packed.py:ctc", &["--arg", tensors]);
        let [loss] = named(&profile, "aten::_ctc_loss")[..] else { panic!("{:?}", profile.operations) };
        assert_eq!(loss.outputs, [vec![4], vec![4, 200, 2 * 20 + 1]]);
        let [backward] = named(&profile, "aten::_ctc_loss_backward")[..] else { panic!("no backward") };
        assert_eq!((backward.phase, &backward.outputs[..]), (Phase::Backward, &[vec![200, 4, 32]][..]));
    }
}

fn sparse_matrices_have_their_elements(python: &str) {
    for csr in ["csr=False", "csr=True"] {
        let profile = Place::new().profile(python, "packed.py:adjacency", &["--arg", csr]);
        let sparse = |phase| {
            let is_sparse = |operation: &&habitat_tui::profile::Operation| {
                operation.attributes.get("nonzero") == Some(&Attribute::Int(9000)) && operation.phase == phase
            };
            profile.operations.iter().find(is_sparse).map(flops)
        };
        let once = Some(2.0 * 9000.0 * 16.0);
        assert_eq!((sparse(Phase::Forward), sparse(Phase::Backward)), (once, once));
    }
}

fn sparse_tables_are_traced(python: &str) {
    let profile = Place::new().profile(python, "packed.py:tables", &[]);
    assert_eq!(named(&profile, "aten::embedding").iter().map(|one| one.count).sum::<u32>(), 2);
    assert!(!named(&profile, "aten::index_add_").is_empty(), "{:?}", profile.operations);
}

fn complex_products_and_distances_are_counted(python: &str) {
    let place = Place::new();
    let profile = place.profile(python, "packed.py:complex_numbers", &[]);
    // Four real products for a complex one.
    assert_eq!(StepWork::of(&profile).forward.get(), 4.0 * 2.0 * 8.0 * 16.0 * 32.0);
    let profile = place.profile(python, "packed.py:distances", &[]);
    assert_eq!(flops(named(&profile, "aten::_euclidean_dist")[0]), 2.0 * 4.0 * 64.0 * 50.0 * 32.0);
    let profile = place.profile(python, "packed.py:distances", &["--arg", "p=1.0"]);
    for name in ["aten::_cdist_forward", "aten::_cdist_backward"] {
        assert_eq!(flops(named(&profile, name)[0]), 3.0 * 4.0 * 64.0 * 50.0 * 32.0, "{name}");
    }
}
