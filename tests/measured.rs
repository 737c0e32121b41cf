//! Operators measured on a GPU, on the command line: they correct its predictions, and the program suggests which to
//! measure.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use habitat_tui::predict::features::OperatorModel;
use habitat_tui::predict::learned::{Ensemble, ModelFacts, Models, Spread, StepFacts};
use habitat_tui::predict::mlp::{Activation, Architecture, Mlp};
use serde_json::Value;

struct Bench(tempfile::TempDir);

impl Bench {
    /// A folder with weights of untrained networks in `weights/` and a step in `step.json`.
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        let ensembles = [OperatorModel::Product, OperatorModel::Stream].map(|model| {
            let network = Mlp::new(Architecture::uniform(model.width(), 1, 8, 1, Activation::Silu), 3).unwrap();
            let facts = ModelFacts {
                ranges: vec![[-30.0, 30.0]; model.width()],
                host_us: 40.0,
                seen: Some(Spread { low: 0.9, high: 1.1, cases: 100 }),
                unseen: Some(Spread { low: 0.6, high: 1.6, cases: 100 }),
                ..ModelFacts::default()
            };
            (model, Ensemble { networks: vec![network], facts })
        });
        let steps = StepFacts { typical: 1.0, training: 1.0, ..StepFacts::default() };
        let bytes = Models::new(ensembles.into_iter().collect(), steps).to_bytes(BTreeMap::new()).unwrap();
        bench.write("weights/operators.safetensors", bytes);
        bench.write(
            "step.json",
            r#"{"format": "habitat-profile", "version": 1,
                "workload": {"name": "two layers", "mode": "inference", "batch_size": 8, "precision": "fp32"},
                "operations": [
                  {"name": "aten::linear", "phase": "forward", "count": 4, "dtype": "float32",
                   "inputs": [[4096, 2048], [8192, 2048]], "outputs": [[4096, 8192]]},
                  {"name": "aten::relu", "phase": "forward", "count": 400, "dtype": "float32",
                   "inputs": [[4096, 8192]], "outputs": [[4096, 8192]]}]}"#,
        );
        bench
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
            .args(args)
            .args(["--models", "weights"])
            .current_dir(self.0.path())
            .env("HABITAT_TUI_CONFIG_DIR", self.path("config"))
            .output()
            .unwrap()
    }

    fn ends(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(if code == 2 { output.stderr } else { output.stdout }).unwrap()
    }

    /// The prediction for the T4.
    fn t4(&self, more: &[&str]) -> Value {
        let args = [&["predict", "step.json", "--to", "t4", "--json", "--operations"], more].concat();
        let all: Value = serde_json::from_str(&self.ends(0, &args)).unwrap();
        all["predictions"][0].clone()
    }
}

fn notes(prediction: &Value) -> String {
    prediction["notes"].to_string()
}

/// A linear layer measured at 900 ms, and the step with and without it.
#[test]
fn measurements_correct_predictions_and_are_told_of() {
    let bench = Bench::new();
    let table = "gpu,op,B,M,N,K,latency_ms\nt4,linear,1,4096,2048,8192,900\n";
    let before = bench.t4(&[]);
    assert!(notes(&before).contains("no measurements of this GPU"), "{before}");
    bench.write("mine/linear.csv", table);
    let given = bench.t4(&["--measured", "mine"]);
    assert!(notes(&given).contains("corrected by 1 operators measured on this GPU"), "{given}");
    assert_ne!(given["operations"][0], before["operations"][0]);
    assert_eq!(given["operations"][1], before["operations"][1]);
    // The same in the user's own folder.
    bench.write("config/measured/linear.csv", table);
    assert_eq!(bench.t4(&[]), given);
    // Other GPUs do not change.
    let p4 = bench.ends(0, &["predict", "step.json", "--to", "p4"]);
    std::fs::remove_dir_all(bench.path("config")).unwrap();
    assert_eq!(bench.ends(0, &["predict", "step.json", "--to", "p4"]), p4);
}

#[test]
fn bad_tables_are_named_with_file_and_line() {
    let bench = Bench::new();
    let error = |name: &str, content: &str| {
        let _ = std::fs::remove_dir_all(bench.path("mine"));
        bench.write(&format!("mine/{name}"), content);
        bench.ends(2, &["predict", "step.json", "--measured", "mine"])
    };
    let head = "gpu,op,B,M,N,K,latency_ms\nt4,linear,1,4096,2048,8192,9\n";
    let message = error("linear.csv", &format!("{head}t4,linear,1,4096,2048,8192,\n"));
    assert!(message.contains("linear.csv: line 3: latency_ms is empty"), "{message}");
    let message = error("linear.csv", &format!("{head}t5,linear,1,4096,2048,8192,1\n"));
    assert!(message.contains("linear.csv: line 3: ") && message.contains("t5"), "{message}");
    let message = error("linear.csv", &format!("{head}t4,linear,1,x,2048,8192,1\n"));
    assert!(message.contains("linear.csv: line 3: M: \"x\" is not a number"), "{message}");
    let message = error("gemm.csv", head);
    assert!(
        message.contains(
            "gemm.csv: neither written by `habitat-tui collect` nor named like an operator table (linear, bmm"
        ),
        "{message}"
    );
    let message = error("notes.txt", "");
    assert!(message.contains("mine: no measured operators: neither tables"), "{message}");
}

#[test]
fn what_to_measure_is_said_and_read_back() {
    let bench = Bench::new();
    let args = ["models", "suggest", "step.json", "--to", "t4", "--csv", "mine"];
    let printed = bench.ends(0, &args);
    assert!(printed.contains("B=1 M=4096 N=2048 K=8192") && printed.contains("aten::linear"), "{printed}");
    let table = std::fs::read_to_string(bench.path("mine/linear.csv")).unwrap();
    assert_eq!(table, "gpu,op,dtype,B,M,N,K,latency_ms\nt4,linear,float32,1,4096,2048,8192,\n");
    assert!(bench.path("mine/elementwise.csv").exists(), "{printed}");
    assert!(bench.ends(2, &args).contains("elementwise.csv"));
    let refused = bench.ends(2, &["predict", "step.json", "--measured", "mine"]);
    assert!(refused.contains("line 2: latency_ms is empty"), "{refused}");
    std::fs::remove_file(bench.path("mine/elementwise.csv")).unwrap();
    bench.write("mine/linear.csv", table.replace("8192,\n", "8192,400\n"));
    assert!(notes(&bench.t4(&["--measured", "mine"])).contains("corrected by 1 operators"));
    // The measured operator is less uncertain than before.
    let of_linear = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("linear")).unwrap().to_owned();
        let shares: Vec<f64> = line.split(" %").filter_map(|part| part.split(' ').next_back()?.parse().ok()).collect();
        shares[1]
    };
    let again = bench.ends(0, &["models", "suggest", "step.json", "--to", "t4", "--measured", "mine"]);
    assert!(of_linear(&again) < of_linear(&printed), "{again}");
}

#[test]
fn nothing_to_measure_is_said() {
    let bench = Bench::new();
    bench.write(
        "step.json",
        r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "a view", "mode": "inference"},
            "operations": [{"name": "aten::view", "phase": "forward", "count": 1, "inputs": [[8, 8]], "outputs": [[64]]}]}"#,
    );
    assert!(bench.ends(1, &["models", "suggest", "step.json", "--to", "t4"]).contains("nothing to measure"));
}
