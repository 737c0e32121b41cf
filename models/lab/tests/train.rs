//! `train` on the command line: weights, cards, and refusals.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../../../tests/common/collected.rs"]
mod collected;
#[path = "../../../tests/common/program.rs"]
mod program;

use std::fmt::Write as _;

use collected::collected;
use program::{Folder, row};

/// `linear` on three GPUs: 13 µs and the arithmetic at four fifths of each peak.
fn law(rows: usize) -> String {
    let mut table = "op,gpu,M,N,K,split,latency_ms\n".to_owned();
    for row in 0..rows {
        // Sizes from 256 to 4096, each in another order.
        let size = |step: usize| 256 + 32 * (row * step % 121);
        let (m, n, k) = (size(7), size(11), size(17));
        for (gpu, tflops) in [("v100-pcie-32gb", 13.3), ("a100-sxm4-40gb", 18.5), ("h100-sxm5-80gb", 51.0)] {
            let micros = 13.0 + 2.0 * (m * n * k) as f64 / (tflops * 0.8e6);
            let split = if row % 10 == 0 { "test" } else { "train" };
            writeln!(table, "linear,{gpu},{m},{n},{k},{split},{}", micros / 1e3).unwrap();
        }
    }
    table
}

#[test]
fn operator_models_are_trained_evaluated_and_go_on_where_they_stopped() {
    let folder = Folder::new();
    folder.write("data/neusight/ops/linear.csv", &law(800));
    let read = |name: &str| std::fs::read(folder.0.path().join(name)).unwrap();
    let said = folder.ok(&["train", "--data", "data", "--out", "one", "--tables", "errors.md"]);
    assert!(said.contains("3 GPUs, 1 files"), "{said}");
    // The card has the totals, the file of tables each GPU.
    let text = |name: &str| String::from_utf8(read(name)).unwrap();
    let (card, tables) = (text("one/operators.md"), text("errors.md"));
    assert!(card.lines().any(|line| line.starts_with("| linear | 240 | ")), "{card}");
    assert!(card.lines().count() < 100 && !card.contains(" on t4"), "{card}");
    assert!(tables.contains("| linear on v100-pcie-32gb | learned, shapes alone |"), "{tables}");
    let names = ["operators", "without/v100-pcie-32gb", "without/a100-sxm4-40gb", "without/h100-sxm5-80gb"]
        .map(|name| format!("{name}.safetensors"));
    let bytes = names.clone().map(|name| read(&format!("one/{name}")));
    assert!(bytes[1..].iter().all(|fold| *fold != bytes[0]));
    assert!(!folder.0.path().join("one/unfinished").exists());

    // Existing weights are not overwritten without --force.
    let refused = folder.error(&["train", "--data", "data", "--out", "one"]);
    assert!(refused.contains("operators.safetensors") && refused.contains("already exists"), "{refused}");
    assert_eq!(read("one/operators.safetensors"), bytes[0]);

    // The same data with the same seed give the same bytes; parts of another seed are not used.
    let train = |seed: &str| folder.ok(&["train", "--data", "data", "--out", "one", "--seed", seed, "--force"]);
    std::fs::create_dir(folder.0.path().join("one/unfinished")).unwrap();
    std::fs::copy(
        folder.0.path().join("one/operators.safetensors"),
        folder.0.path().join("one/unfinished/all.safetensors"),
    )
    .unwrap();
    train("2");
    assert_ne!(read("one/operators.safetensors"), bytes[0]);
    train("1");
    assert_eq!(names.clone().map(|name| read(&format!("one/{name}"))), bytes);

    // A part from an interrupted run is used as it is: here the part of everything replaces that of the GPU left out,
    // which shows in the weights.
    std::fs::create_dir(folder.0.path().join("one/unfinished")).unwrap();
    std::fs::copy(
        folder.0.path().join("one/operators.safetensors"),
        folder.0.path().join("one/unfinished/v100-pcie-32gb.safetensors"),
    )
    .unwrap();
    train("1");
    assert_ne!(read("one/without/v100-pcie-32gb.safetensors"), bytes[1]);
    assert!(!folder.0.path().join("one/unfinished").exists());
    train("1");
    assert_eq!(names.map(|name| read(&format!("one/{name}"))), bytes);

    let found = folder.json(&["evaluate", "ops", "data/neusight/ops", "--models", "one"]);
    // A few thousand rows teach the law to a tenth, on GPUs that were left out; the peaks alone are off by a quarter.
    let median = |method: &str| row(&found, "linear", method)["median_absolute_error"].as_f64().unwrap();
    for method in ["learned, shapes alone", "learned, with the origin"] {
        assert!(median(method) < 0.1, "{method}: {}", median(method));
    }

    assert!(folder.error(&["train", "--data", "nowhere", "--out", "two"]).contains("no operator tables"));
}

#[test]
fn models_are_trained_on_collected_operators() {
    let folder = Folder::new();
    folder.write("data/neusight/ops/linear.csv", &law(250).replace(",test,", ",train,"));
    folder.write("operators.csv", &collected(250));
    folder.ok(&["train", "--data", "data", "--out", "without"]);
    let args = ["train", "--data", "data", "--collected", "operators.csv", "--out", "with"];
    let output = folder.run(&args);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("4 GPUs, 2 files"), "{out}");
    assert!(err.contains("operators.csv: 250 operators on t4; passed over: 1 not timed: out of memory"), "{err}");
    assert!(folder.0.path().join("with/without/t4.safetensors").exists());
    let error = |models: &str| {
        let found = folder.json(&["evaluate", "ops", "operators.csv", "--models", models, "--seen"]);
        row(&found, "linear on t4", "learned, shapes alone")["median_absolute_error"].as_f64().unwrap()
    };
    // By rule the GPU would be twice as fast; ten passes over a few rows teach most of that.
    let (with, without) = (error("with"), error("without"));
    assert!(without > 0.3 && with < 0.6 * without, "{with} {without}");
}

/// Products on two GPUs at 80 % of their FP32 peak, and on a third for evaluation.
fn operator_table() -> String {
    let rows = (0..120_u64).flat_map(|index| {
        let [m, n, k] = [64 * (1 + index % 5), 128 * (1 + index / 5 % 6), 64 * (1 + index / 30)];
        [("v100-sxm2-16gb", 15.7, "train"), ("t4", 8.1, "train"), ("p4", 5.5, "test")].map(|(gpu, tflops, split)| {
            let ms = 0.03 + 2.0 * (m * n * k) as f64 / (0.8e9 * tflops);
            format!("{split},{gpu},linear,1,{m},{n},{k},{ms},sgemm\n")
        })
    });
    format!("split,gpu,op,B,M,N,K,latency_ms,kernel\n{}", rows.collect::<String>())
}

#[test]
fn habitats_networks_are_trained() {
    let folder = Folder::new();
    folder.write("data/linear.csv", &operator_table());
    let line = "train --habitat --data data --layers 2 --width 16 --epochs 30 --seed 3";
    let train: Vec<&str> = line.split(' ').collect();
    let report = folder.ok(&train);
    assert!(report.contains("bmm: no table"), "{report}");
    assert!(report.contains("p4") && report.contains("held out"), "{report}");
    let models = folder.0.path().join("config/models");
    let mut names: Vec<String> =
        std::fs::read_dir(&models).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["habitat-mlp-linear.md", "habitat-mlp-linear.safetensors"]);
    let card = std::fs::read_to_string(models.join("habitat-mlp-linear.md")).unwrap();
    assert!(card.contains("SHA-256") && card.contains("--layers 2 --width 16") && card.contains("| p4"), "{card}");

    // The same seed, the same file; an existing one is not replaced without --force.
    let weights = std::fs::read(models.join("habitat-mlp-linear.safetensors")).unwrap();
    assert!(folder.error(&train).contains("--force"));
    folder.ok(&[&train[..], &["--out", "again"]].concat());
    assert!(std::fs::read(folder.0.path().join("again/habitat-mlp-linear.safetensors")).unwrap() == weights);
}

#[test]
fn training_says_what_it_needs() {
    let folder = Folder::new();
    assert!(folder.error(&["train", "--data", "."]).contains("neusight/ops"));
    assert!(folder.error(&["train", "--data", ".", "--epochs", "3"]).contains("--habitat"));
    let output = folder.run(&["train", "--habitat", "--data", "."]);
    assert_eq!(output.status.code(), Some(1));
    folder.write("data/linear.csv", &operator_table());
    let args = ["train", "--habitat", "--data", "data", "--leave-out", "t4,v100-sxm2-16gb"];
    assert!(folder.error(&args).contains("left out"));
}

#[test]
fn rows_that_teach_nothing_are_refused() {
    let folder = Folder::new();
    folder.write("data/neusight/ops/linear.csv", &law(60));
    folder.write("bad.csv", &collected(3).replace("\"device\": \"cuda\"", "\"device\": \"cpu\""));
    for args in
        [&["train", "--data", "data", "--collected", "bad.csv", "--out", "new"][..], &["evaluate", "ops", "bad.csv"]]
    {
        let text = folder.error(args);
        assert!(text.contains("bad.csv: line 1: measured on \"cpu\""), "{text}");
    }
    assert!(!folder.0.path().join("new/operators.safetensors").exists());
}
