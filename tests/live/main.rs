//! `habitat-tui run` in a pseudo-terminal: the screens live on a job, what becomes of the
//! job when they are closed, and the job's own terminal without them.
//!
//! The jobs need a `python3` and no PyTorch: `tests/fixtures/capture/fake` has as much of it
//! as the hook touches. With `HABITAT_TUI_TEST_PYTHON` set, one test runs the real thing.

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
