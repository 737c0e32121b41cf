//! `habitat-tui collect` as a user meets it, and what becomes of its rows. Runs with PyTorch
//! need `HABITAT_TUI_TEST_PYTHON=/path/to/python`; they run on the processor.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "../common/needs.rs"]
mod needs;
#[cfg(unix)]
mod tests;

fn main() -> std::process::ExitCode {
    needs::run([
        #[cfg(unix)]
        tests::trials(),
    ])
}
