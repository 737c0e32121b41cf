//! Methods side by side: `predict --all-methods`, and the errors that the choice rests on.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "common/program.rs"]
mod program;

use std::path::PathBuf;

use habitat_tui::predict::compare::{Known, validated};
use habitat_tui::predict::kernelwise::Judged;
use habitat_tui::predict::{MethodChoice, Mode};
use habitat_tui::store::bundled;
use program::{Folder, row, shared};
use serde_json::Value;

fn on<'a>(comparison: &'a Value, gpu: &str) -> &'a Value {
    comparison["gpus"].as_array().unwrap().iter().find(|on| on["gpu"] == gpu).unwrap()
}

fn methods(on: &Value) -> Vec<&str> {
    on["answers"].as_array().unwrap().iter().map(|answer| answer["method"].as_str().unwrap()).collect()
}

#[test]
fn every_method_answers_with_its_range_and_one_is_taken() {
    let folder = Folder::new();
    let found = folder.json(&["predict", "--all-methods", "--to", "t4,v100-sxm2-32gb"]);
    assert_eq!((found["format"].as_str(), found["version"].as_u64()), (Some("habitat-comparison"), Some(1)));
    let t4 = on(&found, "t4");
    let fitted = ["kernel-wise", "layer-wise", "end-to-end"];
    assert_eq!(methods(t4), [&["auto", "learned", "wave-scaling", "roofline"][..], &fitted, &["black-box"]].concat());
    assert_eq!(t4["taken"], "auto");
    for answer in t4["answers"].as_array().unwrap() {
        let step = &answer["step_time_us"];
        let [low, mid, high] = ["low", "mid", "high"].map(|end| step[end].as_f64().unwrap());
        assert!(0.0 < low && low <= mid && mid <= high, "{answer}");
    }
    // What was recorded there is not predicted.
    let origin = on(&found, "v100-sxm2-32gb");
    assert!((origin["measured_us"].as_f64().unwrap() - 175_200.0).abs() < 100.0, "{origin}");
    assert!(origin.get("taken").is_none() && origin["why"] == "measured on this GPU");
    // A method that lacks something says what.
    let networks = found["methods"].as_array().unwrap().iter().find(|it| it["method"] == "habitat-mlp").unwrap();
    assert!(networks["missing"].as_str().unwrap().contains("models train --habitat"));
}

#[test]
fn the_user_overrides_and_shapes_alone_scale_no_waves() {
    let folder = Folder::new();
    let asked = folder.json(&["predict", "--all-methods", "--to", "t4", "--method", "roofline"]);
    assert_eq!(
        (on(&asked, "t4")["taken"].as_str(), on(&asked, "t4")["why"].as_str()),
        (Some("roofline"), Some("asked for"))
    );
    let shapes = folder.json(&["predict", "--all-methods", "--to", "t4", "--ignore-origin"]);
    let fitted = ["kernel-wise", "layer-wise", "end-to-end"];
    assert_eq!(methods(on(&shapes, "t4")), [&["auto", "learned", "roofline"][..], &fitted].concat());
}

/// Lines that err clearly less than the default method take its place, and say so.
#[test]
fn lines_with_a_smaller_error_are_taken_by_themselves() {
    let folder = Folder::new();
    let judged = |error: f64, steps: u32| {
        let mut lines = bundled::kernel_wise();
        lines.unseen.kernel_wise_error = Some(Judged { error, steps });
        folder.write("lines.json", &lines.to_json());
    };
    let predict = |more: &[&str]| {
        let args = [&["predict", "--ignore-origin", "--to", "l4", "--kernel-wise", "lines.json"], more].concat();
        folder.json(&args)
    };
    let of = |found: &Value| {
        let on = &found["predictions"][0];
        (on["method"].as_str().unwrap().to_owned(), on["notes"][0].as_str().unwrap().to_owned())
    };
    judged(0.02, 20);
    let (method, note) = of(&predict(&[]));
    // By kernels or, where those are not known there, by layers.
    assert!(["kernel-wise", "layer-wise"].contains(&method.as_str()), "{method}");
    assert_eq!(note, "by fitted lines, 2.0 % off on 20 steps of GPUs left out, in place of the default's 7.7 %");
    let compared = predict(&["--all-methods"]);
    assert_eq!(on(&compared, "l4")["taken"], "kernel-wise");
    assert_eq!(of(&predict(&["--method", "learned"])).0, "learned", "what is asked for stays");
    for (error, steps) in [(0.02, 9), (0.07, 20)] {
        judged(error, steps);
        assert_eq!(of(&predict(&[])).0, "learned", "{error} on {steps}");
        assert_eq!(on(&predict(&["--all-methods"]), "l4")["taken"], "auto");
    }
}

#[test]
fn contradictions_are_warned_of() {
    let folder = Folder::new();
    let text = folder.ok(&["predict", "--all-methods", "--to", "t4"]);
    let found = folder.json(&["predict", "--all-methods", "--to", "t4"]);
    let t4 = on(&found, "t4");
    let ends = |name: &str| {
        let answer = t4["answers"].as_array().unwrap().iter().find(|it| it["method"] == name).unwrap();
        ["low", "high"].map(|end| answer["step_time_us"][end].as_f64().unwrap())
    };
    let methods: Vec<&str> = t4["answers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|answer| answer["step_time_us"].is_object())
        .map(|answer| answer["method"].as_str().unwrap())
        .collect();
    // The test is of the warning: it stands where ranges are apart, and tells these apart.
    let said =
        text.lines().find_map(|line| line.strip_prefix("warning: t4: no step time is in the ranges of all methods: "));
    let groups: Vec<Vec<&str>> = said.map_or_else(Vec::new, |said| {
        let names = |group: &str| methods.iter().copied().filter(|name| in_words(group, name)).collect();
        said.split("; ").map(names).collect()
    });
    let mut are_apart = false;
    for (a, b) in methods.iter().flat_map(|a| methods.iter().map(move |b| (a, b))) {
        let ([a_low, a_high], [b_low, b_high]) = (ends(a), ends(b));
        if a_high < b_low || b_high < a_low {
            are_apart = true;
            assert!(!groups.iter().any(|group| group.contains(a) && group.contains(b)), "{a}, {b}: {text}");
        }
    }
    assert!(are_apart, "the step of this test shows nothing any more: {text}");
    assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), methods.len(), "each method once: {text}");
    assert_eq!(t4["disagreement"].as_str().is_some(), said.is_some());
}

/// Whether a list such as `auto, wave-scaling 9.45–11.00 ms` has the name.
fn in_words(list: &str, name: &str) -> bool {
    list.split([',', ' ']).any(|word| word == name)
}

/// The figures that the choice rests on are those that the shipped models give.
#[test]
fn the_errors_told_are_those_found() {
    let Some(data) = shared("") else { return };
    let models: PathBuf = [env!("CARGO_MANIFEST_DIR"), "models"].iter().collect();
    let folder = Folder::new();
    let found = folder.json(&["models", "evaluate", "methods", &data, "--models", models.to_str().unwrap()]);
    let situations = [
        ("inference, shapes alone", Known::Shapes, Mode::Inference),
        ("training, shapes alone", Known::Shapes, Mode::Training),
        ("inference, measured elsewhere", Known::Step, Mode::Inference),
        ("training, measured elsewhere", Known::Step, Mode::Training),
        ("trace, recorded elsewhere", Known::Trace, Mode::Inference),
    ];
    let mut seen = 0;
    for (group, known, mode) in situations {
        // Fitted lines are judged by `models evaluate kernelwise`.
        for method in MethodChoice::ALL.into_iter().filter(|method| !method.is_fitted()) {
            let Some(told) = validated(method, known, mode) else { continue };
            let row = row(&found, group, method.name());
            let error = row["mean_absolute_error"].as_f64().unwrap();
            assert!((error - told.error).abs() < 0.002, "{group}, {}: {error} told as {}", method.name(), told.error);
            assert_eq!(row["pairs"].as_u64().unwrap(), u64::from(told.steps), "{group}, {}", method.name());
            seen += 1;
        }
    }
    assert!(seen > 12, "{seen}");
}
