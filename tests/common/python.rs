//! Interpreters for tests that run Python; where there is none, the test says so and ends.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "helpers of tests")]

use std::process::Command;

/// Any Python 3, PyTorch or not.
pub fn python() -> Option<String> {
    let found = Command::new("python3").arg("-V").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: there is no python3");
    }
    found.then(|| "python3".to_owned())
}

/// The interpreter with PyTorch.
pub fn torch() -> Option<String> {
    let python = std::env::var("HABITAT_TUI_TEST_PYTHON").ok().filter(|python| !python.is_empty());
    if python.is_none() {
        eprintln!("skipped: HABITAT_TUI_TEST_PYTHON names no Python with PyTorch");
    }
    python
}

/// Major and minor version of the interpreter's `PyTorch`.
pub fn torch_version(python: &str) -> (u32, u32) {
    let output = Command::new(python).args(["-c", "import torch; print(torch.__version__)"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split('.').map(|part| part.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}
