//! Methods side by side: `predict --all-methods`, and the errors behind the choice.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use crate::program::Folder;
use habitat_tui::catalog::Vendor;
use habitat_tui::predict::kernelwise::Evaluated;
use habitat_tui::predict::{Method, MethodChoice, Mode};
use habitat_tui::profile::{DType, Precision, PrecisionClass, Sample};
use habitat_tui::store::bundled;
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
    let found = folder.json(&["predict", "--sample", "resnet50-v100", "--all-methods", "--to", "t4,v100-sxm2-32gb"]);
    assert_eq!((found["format"].as_str(), found["version"].as_u64()), (Some("habitat-comparison"), Some(2)));
    let t4 = on(&found, "t4");
    let fitted = ["kernel-wise", "layer-wise", "end-to-end"];
    assert_eq!(methods(t4), [&["auto", "learned", "wave-scaling", "roofline"][..], &fitted, &["black-box"]].concat());
    assert_eq!(t4["taken"], "auto");
    for answer in t4["answers"].as_array().unwrap() {
        let step = &answer["step_time_us"];
        let [low, mid, high] = ["low", "mid", "high"].map(|end| step[end].as_f64().unwrap());
        assert!(0.0 < low && low <= mid && mid <= high, "{answer}");
    }
    // The recorded step is not predicted.
    let origin = on(&found, "v100-sxm2-32gb");
    assert!((origin["measured_us"].as_f64().unwrap() - 175_200.0).abs() < 100.0, "{origin}");
    assert!(origin.get("taken").is_none() && origin["why"] == "measured on this GPU");
    // A method that lacks something says what.
    let networks = found["methods"].as_array().unwrap().iter().find(|it| it["method"] == "habitat-mlp").unwrap();
    assert!(networks["missing"].as_str().unwrap().contains("habitat-lab train --habitat"));
}

#[test]
fn the_user_overrides_and_shapes_alone_scale_no_waves() {
    let folder = Folder::new();
    let asked =
        folder.json(&["predict", "--sample", "resnet50-v100", "--all-methods", "--to", "t4", "--method", "roofline"]);
    assert_eq!(
        (on(&asked, "t4")["taken"].as_str(), on(&asked, "t4")["why"].as_str()),
        (Some("roofline"), Some("requested"))
    );
    let shapes =
        folder.json(&["predict", "--sample", "resnet50-v100", "--all-methods", "--to", "t4", "--ignore-origin"]);
    let fitted = ["kernel-wise", "layer-wise", "end-to-end"];
    // The learned models answer for everything, both as auto and under their own name: one opinion.
    assert_eq!(methods(on(&shapes, "t4")), [&["auto", "roofline"][..], &fitted].concat());
    let learned = shapes["methods"].as_array().unwrap().iter().find(|it| it["method"] == "learned").unwrap();
    assert_eq!(learned["missing"], "same as auto here");
}

/// Linear models with clearly smaller errors replace the default method, and the output says so.
#[test]
fn lines_with_a_smaller_error_are_taken_by_themselves() {
    let folder = Folder::new();
    let judged = |error: f64, steps: u32| {
        let mut lines = bundled::kernel_wise();
        // Errors on inference steps too, which do not count for this training step.
        let (vendor, precision) = (Some(Vendor::Nvidia), Some(PrecisionClass::Fp32));
        let of = |mode, error, steps| Evaluated {
            gpu: None,
            vendor,
            precision,
            method: Method::KernelWise,
            mode,
            error,
            steps,
        };
        lines.errors = vec![of(Mode::Inference, 0.001, 1000), of(Mode::Training, error, steps)];
        folder.write("lines.json", &lines.to_json());
    };
    let predict = |more: &[&str]| {
        let args = [
            &["predict", "--sample", "resnet50-v100", "--ignore-origin", "--to", "l4", "--kernel-wise", "lines.json"],
            more,
        ]
        .concat();
        folder.json(&args)
    };
    let of = |found: &Value| {
        let on = &found["predictions"][0];
        (on["method"].as_str().unwrap().to_owned(), on["notes"][0]["text"].as_str().unwrap().to_owned())
    };
    judged(0.02, 20);
    let (method, note) = of(&predict(&[]));
    // By kernels or, if those are unknown there, by layers.
    assert!(["kernel-wise", "layer-wise"].contains(&method.as_str()), "{method}");
    assert_eq!(
        note,
        "linear models: 2.0 % error on 20 training steps in FP32 on NVIDIA GPUs, on GPUs left out of the fit, against 12.3 % of the default"
    );
    let compared = predict(&["--all-methods"]);
    assert_eq!(on(&compared, "l4")["taken"], "kernel-wise");
    assert_eq!(of(&predict(&["--method", "learned"])).0, "learned", "a requested method stays");
    for (error, steps) in [(0.02, 9), (0.1, 20)] {
        judged(error, steps);
        assert_eq!(of(&predict(&[])).0, "learned", "{error} on {steps}");
        assert_eq!(on(&predict(&["--all-methods"]), "l4")["taken"], "auto");
    }
}

/// Errors on steps of another vendor's GPUs, in another precision or mode do not count, and are not quoted.
#[test]
fn errors_are_of_steps_of_the_same_kind() {
    let folder = Folder::new();
    let mut profile = bundled::sample(Sample::ResNet50V100);
    profile.workload.precision = Some(Precision::AmpFp16);
    for operation in &mut profile.operations {
        operation.dtype = operation.dtype.as_ref().map(|_| DType::Float16);
    }
    folder.write("half.habitat.json", &String::from_utf8(profile.to_json().unwrap()).unwrap());
    let quoted = |gpu: &str, more: &[&str]| -> Vec<String> {
        let found = folder.json(&[&["predict", "--all-methods", "--to", gpu], more].concat());
        let answers = on(&found, gpu)["answers"].as_array().unwrap().clone();
        answers.iter().filter_map(|answer| Some(answer["validated_on"].as_str()?.to_owned())).collect()
    };
    let full = ["--sample", "resnet50-v100", "--ignore-origin"];
    let half = ["half.habitat.json", "--ignore-origin"];
    let nvidia = quoted("rtx-4090", &half);
    assert!(!nvidia.is_empty());
    assert!(nvidia.iter().all(|on| on.starts_with("training steps in 16 bits on NVIDIA GPUs")), "{nvidia:?}");
    assert_eq!(quoted("mi325x", &half), Vec::<String>::new());
    let amd = quoted("mi325x", &full);
    assert!(!amd.is_empty() && amd.iter().all(|on| on.starts_with("training steps in FP32 on AMD GPUs")), "{amd:?}");
    // A conversion from FP32 was not evaluated.
    assert_eq!(quoted("rtx-4090", &[&full[..], &["--precision", "amp-fp16"]].concat()), Vec::<String>::new());
}

#[test]
fn contradictions_are_warned_of() {
    let folder = Folder::new();
    // The ranges of this step reach down to the device time alone; without its waiting they are separate.
    let args = ["predict", "--sample", "resnet50-v100", "--all-methods", "--to", "t4", "--host", "keeps-up"];
    let (text, found) = (folder.ok(&args), folder.json(&args));
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
    // The warning appears if ranges are separate, and puts these into different groups.
    let said =
        text.lines().find_map(|line| line.strip_prefix("warning: t4: the ranges of the methods do not overlap: "));
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
    assert!(are_apart, "the step of this test no longer shows it: {text}");
    assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), methods.len(), "each method once: {text}");
    assert_eq!(t4["disagreement"].as_str().is_some(), said.is_some());
}

/// Whether a list such as `auto, wave-scaling agree on 9.45–11.00 ms` has the name.
fn in_words(list: &str, name: &str) -> bool {
    list.split([',', ' ']).any(|word| word == name)
}

/// Recordings with less information than they seem to have: one rank of several, one without shapes, and one CPU-bound
/// step.
fn doubtful(folder: &Folder) -> [(&'static str, &'static str, &'static str); 3] {
    let write = |name: &str, step: &str, operations: &str| {
        let profile = format!(
            r#"{{"format": "habitat-profile", "version": 1,
            "workload": {{"name": "w", "mode": "training", "batch_size": 32, "precision": "fp32", "parameter_count": 25600000}},
            "origin": {{"gpu": "v100-sxm2-16gb"}}, "step": {step}, "operations": [{operations}]}}"#
        );
        folder.write(name, &profile);
    };
    let product = r#"{"name": "aten::mm", "phase": "forward", "inputs": [[8192, 8192], [8192, 8192]], "dtype": "float32", "device_time_us": 92000}"#;
    let collective =
        r#"{"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "phase": "communication", "device_time_us": 80000}"#;
    let busy = |wall: u32, busy: u32| {
        format!(r#"{{"duration_us": {wall}, "device_busy_us": {busy}, "peak_memory_bytes": 1000000000}}"#)
    };
    write("rank.habitat.json", &busy(173_000, 172_000), &format!("{product}, {collective}"));
    let bare = r#"{"name": "aten::convolution", "phase": "forward", "device_time_us": 92000,
        "kernels": [{"name": "implicit_convolve_sgemm", "duration_us": 92000, "grid": [8192, 1, 1], "block": [256, 1, 1], "registers_per_thread": 64}]}"#;
    write("bare.habitat.json", &busy(93_000, 92_000), bare);
    write("host.habitat.json", &busy(920_000, 92_000), product);
    [
        ("rank.habitat.json", "recorded as one of several GPUs", "one rank of several"),
        ("bare.habitat.json", "no shapes were recorded", "no shapes recorded"),
        ("host.habitat.json", "a faster GPU will not help much", "a faster GPU will not help much"),
    ]
}

/// All output of a time of such a recording has the note.
#[test]
fn warnings_stand_wherever_a_time_is_printed() {
    let folder = Folder::new();
    for (file, said, brief) in doubtful(&folder) {
        for command in [
            "predict FILE --to l4",
            "predict FILE --to l4 --json",
            "predict FILE --to l4 --csv",
            "predict FILE --to l4 --markdown",
            "predict FILE --to l4 --all-methods",
            "predict FILE --to l4 --all-methods --json",
            "predict FILE --to l4 --all-methods --markdown",
            "batches FILE --to l4",
            "FILE",
            "plan FILE --samples 1M",
            "plan FILE --samples 1M --json",
            "plan FILE --samples 1M --toml",
        ] {
            if command.starts_with("batches") && file.starts_with("bare") {
                continue; // Scaling without shapes is an error.
            }
            let command = command.replace("FILE", file);
            let printed = folder.ok(&command.split(' ').collect::<Vec<_>>());
            assert!(printed.contains(said), "{command}: {printed}");
        }
        for screen in ["overview", "predict", "plan"] {
            folder.ok(&[file, "--screen", screen, "--screenshot", "picture.svg", "--size", "80x24"]);
            let picture = std::fs::read_to_string(folder.0.path().join("picture.svg")).unwrap();
            std::fs::remove_file(folder.0.path().join("picture.svg")).unwrap();
            assert!(picture.contains(brief), "{screen} {file}");
        }
    }
}

/// Without shapes all methods are equal, and errors found with shapes do not count.
#[test]
fn without_shapes_there_is_one_opinion_and_no_error_found() {
    let folder = Folder::new();
    doubtful(&folder);
    let found = folder.json(&["predict", "bare.habitat.json", "--all-methods", "--to", "b200"]);
    let b200 = on(&found, "b200");
    assert_eq!(methods(b200), ["auto"], "{b200}");
    assert!(b200["answers"][0].get("validated_error").is_none(), "{b200}");
    assert_eq!(b200["why"], "the default; no method was evaluated on such steps");
    let text = folder.ok(&["predict", "bare.habitat.json", "--all-methods", "--to", "b200"]);
    assert!(text.contains("not evaluated"), "{text}");
}

/// Steps in 16 bits were traced on only two GPUs: their error is reported between these, and not for others.
#[test]
fn an_error_between_two_gpus_is_told_of_them_alone() {
    let found = Folder::new().json(&["predict", "--sample", "bert-large-h100", "--to", "h200,t4", "--all-methods"]);
    let h200 = on(&found, "h200-sxm-141gb");
    assert_eq!((h200["taken"].as_str(), h200["answers"][0]["validated_steps"].as_u64()), (Some("auto"), Some(34)));
    let why = h200["why"].as_str().unwrap();
    assert!(why.starts_with("6.7 % error on 34 training steps in 16 bits on NVIDIA GPUs"), "{why}");
    assert!(why.contains("(h100-sxm5-80gb ↔ h200-sxm-141gb, seen)"), "{why}");
    assert_eq!(on(&found, "t4")["why"], "the default; no method was evaluated on such steps");
}

/// A step known from one rank of several is never called measured.
#[test]
fn one_rank_of_several_is_derived_everywhere() {
    let folder = Folder::new();
    doubtful(&folder);
    let args = ["predict", "rank.habitat.json", "--to", "v100-sxm2-16gb"];
    let found = folder.json(&args);
    let origin = &found["predictions"][0];
    assert_eq!(origin["method"], "derived");
    let [low, mid, high] = ["low", "mid", "high"].map(|end| origin["step_time_us"][end].as_f64().unwrap());
    assert_eq!([low, mid, high], [93_000.0, 93_000.0, 173_000.0]);
    let compared = folder.json(&[&args[..], &["--all-methods"]].concat());
    let origin = on(&compared, "v100-sxm2-16gb");
    assert!(origin.get("measured_us").is_none() && origin["derived_us"]["mid"] == 93_000.0, "{origin}");
    assert_eq!(origin["why"], "derived on this GPU");
}

/// Each method has a row in the documentation, in the order of the list, with its facts.
#[test]
fn the_documentation_lists_the_facts_of_every_method() {
    let page = include_str!("../docs/predictions.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let mut place = 0;
    for facts in Method::known() {
        let start = format!("| `{}` | {} | ", facts.method, facts.covers);
        let at = rows.iter().position(|row| row.starts_with(&start) && row.contains(facts.source));
        let at = at.unwrap_or_else(|| panic!("{start}{}", facts.source));
        assert!(at > place, "{} is out of order", facts.method);
        place = at;
    }
    assert_eq!(place + 1, rows.len());
    for choice in MethodChoice::ALL {
        assert!(!choice.summary().is_empty() && !choice.needs().is_empty(), "{}", choice.name());
    }
}
