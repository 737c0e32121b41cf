use super::*;
use crate::estimate::Estimate;
use crate::memory::Share;
use crate::method::Method;
use crate::scale::Layout;
use habitat_base::units::Micros;
use habitat_step::profile::{Operation, Profile};

fn operation(name: &str, phase: &str, count: u32, inputs: &str) -> String {
    format!(
        r#"{{"name": "aten::{name}", "phase": "{phase}", "count": {count}, "dtype": "bfloat16", "inputs": {inputs}}}"#
    )
}

/// Two layers of 64 columns, 4 heads of 16, on 2 sequences of 8 tokens; each operation takes a microsecond.
fn decoder(attention: &[String], more: &[String]) -> Option<TransformerStep> {
    let mut all = vec![
        operation("mm", "forward", 2, "[[16, 64], [64, 192]]"),
        operation("mm", "forward", 2, "[[16, 64], [64, 64]]"),
        operation("mm", "forward", 2, "[[16, 64], [64, 256]]"),
        operation("gelu", "forward", 2, "[[2, 8, 256]]"),
        operation("mm", "forward", 2, "[[16, 256], [256, 64]]"),
        operation("add", "forward", 4, "[[2, 8, 64], [2, 8, 64]]"),
        operation("native_layer_norm", "forward", 4, "[[2, 8, 64], [64], [64]]"),
        operation("mm", "forward", 1, "[[16, 64], [64, 1000]]"),
        operation("_foreach_add_", "optimizer", 1, "[[64, 64]]"),
    ];
    all.extend_from_slice(attention);
    all.extend_from_slice(more);
    let json = format!(
        r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}}, "operations": [{}]}}"#,
        all.join(", ")
    );
    let profile = Profile::from_json(json.as_bytes()).unwrap().0;
    let decoded = Decoded::all(&profile);
    let time = Estimate::with_band(Micros::known(1.0), 0.0, Method::Roofline);
    let predicted = |(index, operation): (usize, &Operation)| OperationPrediction {
        index,
        name: operation.name.clone(),
        phase: operation.phase,
        count: operation.count,
        time: Some(time),
        origin_time: None,
        is_far: false,
        why: String::new(),
    };
    let operations: Vec<OperationPrediction> = profile.operations.iter().enumerate().map(predicted).collect();
    Layers::of(&decoded, Some(2))?.on(&operations, true, |_, _| 0.5)
}

fn fused(phase: &str) -> String {
    operation("_scaled_dot_product_flash_attention", phase, 2, "[[2, 4, 8, 16], [2, 4, 8, 16], [2, 4, 8, 16]]")
}

/// 2·8·64 elements of 2 bytes between layers.
#[test]
fn layers_and_their_traffic_are_those_of_attention() {
    let found = decoder(&[fused("forward")], &[]).unwrap();
    assert_eq!((found.layers, found.heads, found.batch_size), (2, 4, Some(2)));
    assert_eq!(found.activations.get(), 2048.0);
    assert!(!found.recomputes);
    // With the two of attention there are 22: 13 divided, 8 sums and norms, one update.
    let share = |count: f64, share: f64| assert!((share - count / 22.0).abs() < 1e-12, "{found:?}");
    share(13.0, found.divided);
    share(1.0, found.update);
    share(1.0, found.outside);
    assert_eq!(found.launches, 21.0);
    // Two layers of four products; the product behind them is not among these.
    assert_eq!((found.inside, found.ends), (2.0 * 64.0 * (192.0 + 64.0 + 256.0 + 256.0), [0.0, 64_000.0]));
}

/// An embedding and a last product of 64,000 weights each: 98,304 in the layers and 64,000 at both ends are tied.
#[test]
fn a_tied_table_counts_once() {
    let found = decoder(&[fused("forward")], &[operation("embedding", "forward", 1, "[[1000, 64], [2, 8]]")]).unwrap();
    assert_eq!((found.inside, found.ends), (98_304.0, [64_000.0; 2]));
    let share = |parameters: u64| Share::new(&Layout::one_machine(2), [2, 1], Some(&found), Some(parameters));
    let (tied, apart) = (share(162_816), share(226_816));
    assert!((tied.tied - 64_000.0 / 162_816.0).abs() < 1e-12 && tied.ends == [tied.tied; 2], "{tied:?}");
    assert_eq!((apart.tied, apart.layers), (0.0, Some(2)));
}

#[test]
fn a_forward_pass_run_again_adds_up_again() {
    let found = decoder(&[fused("forward"), fused("backward")], &[]).unwrap();
    assert!(found.recomputes && found.layers == 2);
    // Of 24 operations the 20 of the layers' forward pass would run again, but for two of attention, which do already.
    assert!((found.forward - 18.0 / 24.0).abs() < 1e-12 && found.launches_again == 18.0, "{found:?}");
    let without = decoder(&[fused("forward")], &[]).unwrap();
    assert!((without.forward - 20.0 / 22.0).abs() < 1e-12 && without.launches_again == 20.0, "{without:?}");
    // The backward pass of attention is not a recomputation.
    let backward = operation(
        "_scaled_dot_product_flash_attention_backward",
        "backward",
        2,
        "[[2, 4, 8, 16], [2, 4, 8, 16], [2, 4, 8, 16], [2, 4, 8, 16]]",
    );
    assert!(!decoder(&[fused("forward"), backward], &[]).unwrap().recomputes);
}

#[test]
fn attention_of_products_and_a_softmax_counts_too() {
    let of = [
        operation("bmm", "forward", 2, "[[8, 8, 16], [8, 16, 8]]"),
        operation("_softmax", "forward", 2, "[[2, 4, 8, 8]]"),
        operation("bmm", "forward", 2, "[[8, 8, 8], [8, 8, 16]]"),
    ];
    let found = decoder(&of, &[]).unwrap();
    assert_eq!((found.layers, found.heads, found.experts), (2, 4, None));
    // As under autocast: the softmax in 32 bits, the products around it in 16.
    let of = of.map(|one| if one.contains("_softmax") { one.replace("bfloat16", "float32") } else { one });
    let found = decoder(&of, &[]).unwrap();
    assert_eq!(found.activations.get(), 2048.0);
}

/// 4 experts; each of 16 tokens visits two of them: 8 rows for each.
#[test]
fn experts_are_their_batched_products() {
    let of = [
        fused("forward"),
        operation("bmm", "forward", 2, "[[4, 8, 64], [4, 64, 96]]"),
        operation("bmm", "forward", 2, "[[4, 8, 48], [4, 48, 64]]"),
        operation("bmm", "backward", 2, "[[4, 64, 8], [4, 8, 96]]"),
        operation("bmm", "backward", 2, "[[4, 7, 8], [4, 8, 96]]"),
    ];
    let found = decoder(&of, &[]).unwrap().experts.unwrap();
    assert_eq!((found.count, found.layers, found.exchanged.get()), (4, 2, 4096.0));
    assert_eq!((found.weights, found.together), (2.0 * 4.0 * 64.0 * (96.0 + 48.0), 0.5));
    assert!((found.products - 6.0 / 30.0).abs() < 1e-12, "{found:?}");
    let one: Operation = serde_json::from_str(&operation("bmm", "forward", 1, "[]")).unwrap();
    let merged = |inputs: &[&[u64]]| {
        let inputs = inputs.iter().map(|shape| shape.to_vec()).collect();
        super::merged(&Operation { inputs, ..one.clone() }, 4, 8).inputs
    };
    assert_eq!(merged(&[&[4, 8, 64], &[4, 64, 96]]), [vec![1, 32, 64], vec![1, 64, 96]]);
    assert_eq!(merged(&[&[32, 64], &[4, 64, 96], &[4]]), [vec![32, 64], vec![1, 64, 96], vec![1]]);
}

#[test]
fn without_attention_nothing_is_said() {
    assert_eq!(decoder(&[], &[]), None);
    assert_eq!(decoder(&[], &[operation("_log_softmax", "forward", 1, "[[16, 1000]]")]), None);
}
