//! `habitat-tui attach` and `env` as a user meets them.
//!
//! Most of it against processes that speak the protocol and pretend to train: this very
//! program, started again. Every test has a socket folder of its own, none touches the
//! abstract name. Real jobs run with the interpreter that `HABITAT_TUI_TEST_PYTHON` names:
//! `HABITAT_TUI_TEST_PYTHON=/path/to/python cargo test --test attach -- --nocapture`
//! prints where the time went, too.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "../common/needs.rs"]
mod needs;
#[cfg(target_os = "linux")]
mod tests;

fn main() -> std::process::ExitCode {
    #[cfg(target_os = "linux")]
    if let Ok(mode) = std::env::var("PRETEND") {
        tests::pretended_job(&mode);
        return std::process::ExitCode::SUCCESS;
    }
    // They wait for the polls of jobs.
    let threads = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    needs::run_with(
        Some(threads),
        [
            #[cfg(target_os = "linux")]
            tests::real::trials(),
            #[cfg(target_os = "linux")]
            tests::trials(),
        ],
    )
}
