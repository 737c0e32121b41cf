//! Other batch sizes and run logs on the command line: `batches` and `fit`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::fmt::Write as _;

use crate::program::Folder;
use serde_json::Value;

/// A step measured on a V100 at a batch size: 2 ms and 50 µs per sample, with the GPU busy for all but 1 ms; 2 GiB and
/// 16 MiB per sample of memory.
fn recorded(batch: u64, more: &str) -> String {
    let step = 2000 + 50 * batch;
    let peak = (2 << 30) + batch * (16 << 20);
    let product = 10 * batch + 100;
    let rows = batch * 128;
    format!(
        r#"{{"format": "habitat-profile", "version": 1,
        "workload": {{"name": "tiny", "mode": "training", "precision": "fp32", "batch_size": {batch}, "sequence_length": 128}},
        "origin": {{"gpu": "v100-sxm2-16gb"}},
        "step": {{"duration_us": {step}, "device_busy_us": {}, "peak_memory_bytes": {peak}}}{more}, "operations": [
        {{"name": "aten::mm", "phase": "forward", "inputs": [[{rows}, 768], [768, 3072]], "outputs": [[{rows}, 3072]], "dtype": "float32", "device_time_us": {product}}},
        {{"name": "aten::relu", "phase": "forward", "inputs": [[{rows}, 3072]], "outputs": [[{rows}, 3072]], "dtype": "float32", "device_time_us": {}}},
        {{"name": "aten::_foreach_add_", "phase": "optimizer", "inputs": [[768, 3072]], "outputs": [[768, 3072]], "dtype": "float32", "device_time_us": 30}}]}}"#,
        step - 1000,
        step - 1000 - product - 30,
    )
}

fn at(found: &Value, gpu: usize, batch: u64) -> &Value {
    let rows = found["gpus"][gpu]["rows"].as_array().unwrap();
    rows.iter().find(|row| row["batch_size"] == batch).unwrap_or_else(|| panic!("no batch {batch}: {found}"))
}

fn mid(row: &Value) -> f64 {
    let [low, mid, high] = ["low", "mid", "high"].map(|end| row["step_us"][end].as_f64().unwrap());
    assert!(low <= mid && mid <= high, "{row}");
    let [wide_low, wide_high] = ["low", "high"].map(|end| row["step_90_us"][end].as_f64().unwrap());
    assert!(wide_low <= low && high <= wide_high, "{row}");
    mid
}

fn three() -> Folder {
    let folder = Folder::new();
    for batch in [16, 32, 64] {
        folder.write(&format!("b{batch}.habitat.json"), &recorded(batch, ""));
    }
    folder
}

/// As in `predict`; the text names the sample.
#[test]
fn without_a_file_it_is_of_the_embedded_sample() {
    let folder = Folder::new();
    let text = folder.ok(&["batches"]);
    assert!(text.starts_with("embedded sample, not your program: BERT-large"), "{text}");
    assert!(text.contains("recorded at batch 32"), "{text}");
    let other = folder.ok(&["batches", "--sample", "resnet50-h200", "--markdown"]);
    assert!(other.starts_with("embedded sample, not your program: ResNet-50 in BF16"), "{other}");
    assert_eq!(folder.json(&["batches"])["recorded_batch_sizes"], serde_json::json!([32]));
}

/// The largest batch that fits has its own row, so that the verdict equals the screen's.
#[test]
fn the_verdict_is_of_the_largest_batch_that_fits() {
    let folder = Folder::new();
    let text = folder.ok(&["batches", "--to", "h100-sxm"]);
    assert!(text.contains("a larger batch pays off: 1.13 times the samples/s at batch 96 compared with 32"), "{text}");
    let several = folder.json(&["batches", "--to", "h100-sxm,a100-sxm4-80gb,rtx-4090"]);
    for gpu in several["gpus"].as_array().unwrap() {
        let largest = gpu["largest_batch"].as_u64().unwrap();
        let sizes: Vec<u64> =
            gpu["rows"].as_array().unwrap().iter().map(|row| row["batch_size"].as_u64().unwrap()).collect();
        assert!(sizes.len() <= 5 && sizes.contains(&largest), "{gpu}");
    }
    let small = folder.ok(&["batches", "--to", "rtx-4090"]);
    assert!(
        small.contains("rtx-4090: the recorded batch of 32 does not fit; the largest that fits is 22\n"),
        "{small}"
    );
}

#[test]
fn another_precision_has_its_own_batches() {
    let folder = Folder::new();
    let sweep =
        |more: &[&str]| folder.json(&[&["batches", "--sample", "resnet50-v100", "--to", "v100"], more].concat());
    let (own, half) = (sweep(&[]), sweep(&["--precision", "amp-fp16"]));
    assert!(mid(at(&half, 0, 64)) < mid(at(&own, 0, 64)), "{half}");
}

#[test]
fn a_step_that_does_not_fit_with_one_sample_has_no_smaller_batch() {
    let folder = Folder::new();
    let step = recorded(8, "").replace(
        &format!("\"peak_memory_bytes\": {}", (2_u64 << 30) + 8 * (16 << 20)),
        &format!("\"peak_memory_bytes\": {}", 30_u64 << 30),
    );
    // 1 B parameters with Adam in FP32: 15 GB, which do not fit in the 12 GB of an RTX 3060.
    let step = step.replace("\"batch_size\": 8", "\"batch_size\": 8, \"parameter_count\": 1000000000");
    folder.write("large.habitat.json", &step);
    let text = folder.ok(&["batches", "large.habitat.json", "--to", "rtx-3060"]);
    assert!(text.contains("the recorded batch of 8 does not fit, and neither does a batch of 1"), "{text}");
    let text = folder.ok(&["predict", "large.habitat.json", "--to", "rtx-3060"]);
    assert!(text.contains("too much") && !text.contains("smaller micro-batch with"), "{text}");
}

#[test]
fn several_recorded_batch_sizes_give_lines() {
    let folder = three();
    let found = folder.json(&[
        "batches",
        "b16.habitat.json",
        "b64.habitat.json",
        "b32.habitat.json",
        "--to",
        "v100-sxm2-16gb,t4",
    ]);
    assert_eq!((found["format"].as_str(), found["version"].as_u64()), (Some("habitat-batches"), Some(2)));
    assert_eq!(
        (found["basis"].as_str(), &found["recorded_batch_sizes"]),
        (Some("lines"), &serde_json::json!([16, 32, 64]))
    );
    // 2 ms and 50 µs per sample; without --at twice and four times the largest.
    assert!((mid(at(&found, 0, 128)) - 8400.0).abs() < 1e-3 && (mid(at(&found, 0, 256)) - 14_800.0).abs() < 1e-3);
    assert_eq!(at(&found, 0, 32)["method"], "measured");
    assert_eq!(at(&found, 0, 128)["method"], "batch-line");
    let line = &found["gpus"][0]["line"];
    assert!((line["per_sample_us"].as_f64().unwrap() - 50.0).abs() < 1e-6, "{line}");
    assert!((line["fixed_us"].as_f64().unwrap() - 2000.0).abs() < 1e-3);
    // 14.72 of 16 GiB are usable, 1.4 GB are the process's, a tenth is the reserve: ((14.72 − 1.304) / 1.1 − 2) · 64.
    assert_eq!(found["gpus"][0]["largest_batch"], 652);
    assert_eq!(found["memory"]["per_sample_bytes"].as_f64(), Some(16.0 * 1_048_576.0));
    assert_eq!(at(&found, 0, 256)["fits"], "yes");
    // On the T4 the line goes through predictions.
    let t4 = &found["gpus"][1];
    assert!(mid(at(&found, 1, 128)) > mid(at(&found, 0, 128)), "{t4}");
    assert_ne!(at(&found, 1, 32)["method"], "measured");
    assert!(t4["notes"].as_array().unwrap().iter().any(|note| note["code"] == "line-of-predictions"));
    let product =
        &found["gpus"][0]["families"].as_array().unwrap().iter().find(|of| of["family"] == "matrix product").unwrap();
    assert!((product["per_sample_us"].as_f64().unwrap() - 10.0).abs() < 1e-6, "{product}");
    assert!((product["fixed_us"].as_f64().unwrap() - 100.0).abs() < 1e-3);
}

#[test]
fn the_largest_batch_does_not_fit_beyond_the_memory() {
    let folder = three();
    let found = folder.json(&[
        "batches",
        "b16.habitat.json",
        "b32.habitat.json",
        "--at",
        "652,653,800",
        "--to",
        "v100-sxm2-16gb",
    ]);
    assert_eq!(at(&found, 0, 652)["fits"], "yes");
    // Up to there only the allocator's reserve exceeds the memory.
    assert_eq!(at(&found, 0, 653)["fits"], "unknown");
    assert_eq!(at(&found, 0, 800)["fits"], "no");
    assert!(at(&found, 0, 653)["memory_reason"].as_str().unwrap().contains("interpolated between recorded peaks"));
}

#[test]
fn one_recorded_batch_size_is_scaled_and_says_so() {
    let folder = three();
    let found = folder.json(&["batches", "b32.habitat.json", "--at", "64"]);
    assert_eq!(found["basis"], "shapes");
    assert_eq!(found["gpus"][0]["gpu"], "v100-sxm2-16gb");
    let row = at(&found, 0, 64);
    assert_eq!(row["shapes_scaled"], true);
    // The device's part of 2.6 ms about doubles (less the 30 µs of the optimizer); 1 ms stays.
    assert!((mid(row) / 6200.0 - 1.0).abs() < 0.1, "{row}");
    assert_eq!((&found["notes"][0]["code"], &found["notes"][0]["batch"]), (&"one-batch".into(), &32.into()));
    assert!(found["notes"][0]["text"].as_str().unwrap().contains("one batch size recorded (32): shapes scaled"));
    assert!(folder.ok(&["batches", "b32.habitat.json"]).contains("shapes scaled"));
}

#[test]
fn the_forms_of_the_table() {
    let folder = three();
    let files = ["batches", "b16.habitat.json", "b32.habitat.json"];
    let csv = folder.ok(&[&files[..], &["--csv"]].concat());
    assert!(csv.starts_with("gpu,batch_size,step_us,low_us,high_us,low_90_us,high_90_us,samples_per_s,memory_bytes,fits,method,memory_reason,warnings\n"), "{csv}");
    assert_eq!(csv.lines().count(), 6);
    let markdown = folder.ok(&[&files[..], &["--markdown", "--families"]].concat());
    assert!(markdown.contains("| v100-sxm2-16gb | 64 |") && markdown.contains("matrix product"), "{markdown}");
    let text = folder.ok(&[&files[..], &["--families"]].concat());
    assert!(text.contains("largest batch") && text.contains("matrix product"), "{text}");
}

#[test]
fn profiles_that_do_not_belong_together_are_refused() {
    let folder = three();
    folder.write("amp.habitat.json", &recorded(48, "").replace("\"fp32\"", "\"amp-fp16\""));
    folder.write("t4.habitat.json", &recorded(48, "").replace("v100-sxm2-16gb", "t4"));
    folder.write("none.habitat.json", &recorded(48, "").replace("\"batch_size\": 48, ", ""));
    folder.write("bare.habitat.json", &recorded(48, "").replace("\"origin\": {\"gpu\": \"v100-sxm2-16gb\"},", ""));
    let error = |other: &str| folder.error(&["batches", "b16.habitat.json", other]);
    assert!(
        error("amp.habitat.json").contains("differ in precision: fp32 and amp-fp16"),
        "{}",
        error("amp.habitat.json")
    );
    assert!(error("t4.habitat.json").contains("the GPU they were recorded on: v100-sxm2-16gb and t4"));
    assert!(error("none.habitat.json").contains("none.habitat.json: unknown batch size"));
    assert!(folder.error(&["batches", "none.habitat.json"]).contains("--batch-size"));
    assert!(
        folder
            .error(&["batches", "b16.habitat.json", "b32.habitat.json", "--batch-size", "8"])
            .contains("a single file")
    );
    assert!(folder.error(&["batches", "b16.habitat.json", "--at", "0"]).contains("at least one sample"));
    assert!(folder.ok(&["batches", "none.habitat.json", "--batch-size", "48", "--at", "96"]).contains("shapes scaled"));
}

/// 100 s to start, half a second per sample of the batch, 20 ms per iteration and 1 ms per sample of it, without noise.
fn log(batches: &[u32], iterations: &[u32]) -> String {
    let mut text = "gpu,batch_size,iterations,time_s\n".to_owned();
    for &x in batches {
        for &y in iterations {
            let (x, y) = (f64::from(x), f64::from(y));
            writeln!(text, "t4,{x},{y},{}", 0.001 * x * y + 0.5 * x + 0.02 * y + 100.0).unwrap();
        }
    }
    text
}

#[test]
fn a_log_gives_its_coefficients_and_runs_beyond_it() {
    let folder = Folder::new();
    folder.write("runs.csv", &log(&[8, 16, 32], &[100, 500, 1000]));
    let found = folder.json(&["fit", "runs.csv", "--at", "32x2000,64x10k"]);
    assert_eq!((found["format"].as_str(), found["version"].as_u64()), (Some("habitat-run-log-fit"), Some(1)));
    let model = &found["models"][0];
    assert_eq!(
        (model["gpu"].as_str(), model["form"].as_str(), model["runs"].as_u64()),
        (Some("t4"), Some("full"), Some(9))
    );
    for (coefficient, expected) in model["coefficients"].as_array().unwrap().iter().zip([1e3, 5e5, 2e4, 1e8]) {
        assert!((coefficient["value_us"].as_f64().unwrap() / expected - 1.0).abs() < 1e-6, "{coefficient}");
    }
    let far = &model["predictions"][1];
    assert!((far["time_us"].as_f64().unwrap() / 972e6 - 1.0).abs() < 1e-6, "{far}");
    assert!(far["low_90_us"].as_f64() < far["low_us"].as_f64() && far["low_us"].as_f64() < far["time_us"].as_f64());
    assert!(model["warnings"][0].as_str().unwrap().contains("10.0 times beyond"), "{model}");
    let text = folder.ok(&["fit", "runs.csv", "--at", "64x10000"]);
    assert!(
        text.contains("time = a·x·y + b·x + c·y + d") && text.contains("run-log") && text.contains("Student's t"),
        "{text}"
    );
}

#[test]
fn forms_in_one_variable_and_errors_of_logs() {
    let folder = Folder::new();
    folder.write("same.csv", &log(&[8], &[100, 500, 1000]));
    let found = folder.json(&["fit", "same.csv", "--at", "4000"]);
    assert_eq!(found["models"][0]["form"], "iterations");
    assert!((found["models"][0]["predictions"][0]["time_us"].as_f64().unwrap() / 216e6 - 1.0).abs() < 1e-6);
    assert!(folder.error(&["fit", "same.csv", "--at", "8x100"]).contains("a single variable"));
    folder.write("short.csv", &log(&[8, 16], &[100, 500]));
    let error = folder.error(&["fit", "short.csv"]);
    assert!(error.contains("short.csv, t4: 4 runs are too few") && error.contains("5 are needed"), "{error}");
    folder.write("one.csv", &log(&[8, 8], &[100]));
    assert!(folder.error(&["fit", "one.csv"]).contains("same batch size and iterations"));
    folder.write("bad.csv", "batch,time_s\n8,1\n16,-2\n");
    assert!(folder.error(&["fit", "bad.csv"]).contains("line 3: time_s: \"-2\""));
    assert!(folder.error(&["fit", "missing.csv"]).contains("missing.csv"));
    assert!(folder.error(&["fit", "same.csv", "--time", "took"]).contains("no column \"took\""));
}
