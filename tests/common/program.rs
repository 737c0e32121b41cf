//! The program on the command line, in its own folder; in the lab's tests, the lab's program.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const PROGRAM: &str = match (option_env!("CARGO_BIN_EXE_habitat-tui"), option_env!("CARGO_BIN_EXE_habitat-lab")) {
    (Some(program), _) | (None, Some(program)) => program,
    (None, None) => panic!("cargo builds the program before its tests"),
};

/// A step of a product measured on a V100.
pub const PROFILE: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "tiny", "mode": "training", "batch_size": 64, "precision": "fp32", "parameter_count": 1000000},
  "origin": {"gpu": "v100-sxm2-16gb"},
  "step": {"duration_us": 1000.0, "device_busy_us": 900.0, "peak_memory_bytes": 4000000000},
  "operations": [
    {"name": "aten::mm", "phase": "forward", "inputs": [[4096, 1024], [1024, 1024]], "outputs": [[4096, 1024]], "dtype": "float32", "device_time_us": 900.0}]}"#;

/// A folder, and the time for the program (seconds since 1970, UTC) if it is not the machine's.
pub struct Folder(pub tempfile::TempDir, Option<&'static str>);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), None)
    }

    /// A folder with this time, UTC.
    pub fn at(now: &'static str) -> Self {
        Self(tempfile::tempdir().unwrap(), Some(now))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn run(&self, args: &[&str]) -> Output {
        Command::new(PROGRAM)
            .args(args)
            .current_dir(self.0.path())
            .env("HABITAT_TUI_CONFIG_DIR", self.0.path().join("config"))
            .env_remove("HABITAT_TUI_MODELS")
            .envs(self.1.into_iter().flat_map(|now| [("SOURCE_DATE_EPOCH", now), ("TZ", "UTC")]))
            .output()
            .unwrap()
    }

    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    pub fn error(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

pub fn rows(evaluation: &Value) -> &Vec<Value> {
    assert_eq!((evaluation["format"].as_str(), evaluation["version"].as_u64()), (Some("habitat-evaluation"), Some(1)));
    evaluation["rows"].as_array().unwrap()
}

pub fn row<'a>(evaluation: &'a Value, group: &str, method: &str) -> &'a Value {
    let found = rows(evaluation).iter().find(|row| row["group"] == group && row["method"] == method);
    found.unwrap_or_else(|| panic!("no {group}, {method}: {evaluation}"))
}
