//! `habitat-tui trace-shapes` as a user meets it: functions that build a step, those that
//! cannot be traced, and what is written.
//!
//! What needs no PyTorch runs wherever there is a `python3`; the rest with the interpreter
//! that `HABITAT_TUI_TEST_PYTHON` names.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "../common/needs.rs"]
mod needs;
#[cfg(unix)]
mod packed;
#[cfg(unix)]
mod tests;

fn main() -> std::process::ExitCode {
    needs::run([
        #[cfg(unix)]
        tests::trials(),
        #[cfg(unix)]
        packed::trials(),
    ])
}
