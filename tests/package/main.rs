//! The Python package in `python/`: its functions, callbacks and notebook view. And `mcp`, from a client's side.
//!
//! The tests are in the Python files beside this one. They run with the interpreter in
//! `HABITAT_TUI_TEST_PACKAGE_PYTHON` (`.ci/package` installs it), and with the program of this build.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "../common/needs.rs"]
mod needs;

use std::process::Command;

use needs::Need;

trials! {
    with (package()) => [
        steps_and_trainers_of_pytorch,
        a_notebook_shows_reports,
        functions_return_what_commands_print,
        agents_are_served,
    ],
}

/// The interpreter with `PyTorch`, Keras, pandas and a notebook runner.
fn package() -> Need<String> {
    let python = std::env::var("HABITAT_TUI_TEST_PACKAGE_PYTHON").ok().filter(|python| !python.is_empty());
    python.ok_or_else(|| "HABITAT_TUI_TEST_PACKAGE_PYTHON names no Python with the packages of .ci/package".to_owned())
}

/// Runs a file of Python tests. Shows its output if it fails.
fn pass(python: &str, file: &str) {
    let root = env!("CARGO_MANIFEST_DIR");
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(python)
        .arg(format!("{root}/tests/package/{file}"))
        .current_dir(home.path())
        .env("HABITAT_TUI_PROGRAM", env!("CARGO_BIN_EXE_habitat-tui"))
        .env("PYTHONPATH", format!("{root}/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", home.path())
        .env("HABITAT_TUI_CONFIG_DIR", home.path().join("config"))
        .env("XDG_CACHE_HOME", home.path().join("cache"))
        // More threads would slow down the other tests.
        .env("OMP_NUM_THREADS", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{file}:\n{}", String::from_utf8_lossy(&output.stderr));
}

fn functions_return_what_commands_print(python: &str) {
    pass(python, "test_commands.py");
}

fn steps_and_trainers_of_pytorch(python: &str) {
    pass(python, "test_torch.py");
}

fn a_notebook_shows_reports(python: &str) {
    pass(python, "test_notebook.py");
}

fn agents_are_served(python: &str) {
    pass(python, "test_mcp.py");
}

fn main() -> std::process::ExitCode {
    needs::run([trials()])
}
