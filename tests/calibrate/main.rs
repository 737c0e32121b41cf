//! `habitat-tui calibrate` as a user meets it: where there is no GPU, where its driver does
//! not work, and on a driver and a cuBLASLt with known answers (`fixtures/fake_cuda.c`).

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "../common/needs.rs"]
mod needs;
#[cfg(target_os = "linux")]
mod tests;

fn main() -> std::process::ExitCode {
    needs::run([
        #[cfg(target_os = "linux")]
        tests::trials(),
    ])
}
