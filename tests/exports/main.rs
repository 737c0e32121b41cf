//! Exported plans, as the tools that start them read them: `SkyPilot` and dstack; and as bash and torchrun run them.
//!
//! The tools are those of the interpreter that `HABITAT_TUI_TEST_EXPORTS_PYTHON` names
//! (`.ci/exports` installs them).

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "../common/needs.rs"]
mod needs;
mod tests;

fn main() -> std::process::ExitCode {
    needs::run([tests::trials()])
}
