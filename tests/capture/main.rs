//! `habitat-tui run` as a user meets it: real jobs, their output, exit codes and profiles.
//!
//! What needs no PyTorch runs wherever there is a `python3`. What needs it runs with the
//! interpreter that `HABITAT_TUI_TEST_PYTHON` names:
//! `HABITAT_TUI_TEST_PYTHON=/path/to/python cargo test --test capture -- --nocapture`
//! prints the table of scenarios too.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "../common/needs.rs"]
mod needs;
#[cfg(unix)]
mod surroundings;
#[cfg(unix)]
mod tests;

fn main() -> std::process::ExitCode {
    needs::run([
        #[cfg(unix)]
        surroundings::trials(),
        #[cfg(unix)]
        tests::trials(),
    ])
}
