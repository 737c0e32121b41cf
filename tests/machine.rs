//! Tests that need something of the machine: a Python, PyTorch, a compiler, a terminal, recordings beside the checkout,
//! permissions. Each lists its needs (`common/needs.rs`), and is reported as ignored if one is missing. `cargo test
//! --test machine capture::` runs those of a module.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "common/needs.rs"]
mod needs;

#[cfg(target_os = "linux")]
mod attach;
#[cfg(unix)]
mod calibrate;
#[cfg(unix)]
mod capture;
#[cfg(unix)]
mod collect;
#[path = "common/collected.rs"]
mod collected;
#[cfg(target_os = "linux")]
mod cupti;
mod data;
mod docs;
mod exports;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod live;
#[path = "common/place.rs"]
mod place;
#[path = "common/program.rs"]
mod program;
#[cfg(unix)]
mod shapes;
#[path = "common/terminal.rs"]
mod terminal;
#[path = "kineto/trace.rs"]
#[allow(dead_code, reason = "helpers of other tests")]
mod trace;

use std::process::ExitCode;

fn main() -> ExitCode {
    // This program, started again by a test.
    #[cfg(target_os = "linux")]
    if let Ok(mode) = std::env::var("PRETEND") {
        attach::tests::pretended_job(&mode);
        return ExitCode::SUCCESS;
    }
    #[cfg(unix)]
    if let Some(socket) = std::env::var_os(faults::tests::CONNECT) {
        faults::tests::connect(&socket);
        return ExitCode::SUCCESS;
    }
    // Tests that compute, the longest first, and tests that wait for polls, screens and clocks, alternately.
    let compute = [
        #[cfg(unix)]
        capture::tests::trials(),
        #[cfg(unix)]
        capture::surroundings::trials(),
        #[cfg(unix)]
        shapes::tests::trials(),
        #[cfg(unix)]
        shapes::packed::trials(),
        docs::trials(),
        docs::runs(),
        data::tables::trials(),
        data::traces::trials(),
        data::recordings::trials(),
    ];
    let wait = [
        #[cfg(target_os = "linux")]
        attach::tests::real::trials(),
        #[cfg(target_os = "linux")]
        attach::tests::trials(),
        #[cfg(unix)]
        collect::tests::trials(),
        #[cfg(unix)]
        live::tests::trials(),
        #[cfg(unix)]
        live::kept::trials(),
        #[cfg(target_os = "linux")]
        cupti::tests::trials(),
        exports::tests::trials(),
        #[cfg(unix)]
        calibrate::tests::trials(),
        #[cfg(unix)]
        faults::tests::trials(),
    ];
    let (mut compute, mut wait) = (compute.into_iter().flatten(), wait.into_iter().flatten());
    let by_turns = std::iter::from_fn(|| {
        let turn: Vec<_> = compute.next().into_iter().chain(wait.next()).collect();
        (!turn.is_empty()).then_some(turn)
    });
    let threads = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    needs::run_with(Some(threads), by_turns)
}
