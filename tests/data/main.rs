//! On tables and recordings that lie beside a checkout (`../shared/data`), not in it: what is
//! shipped against the tables it was made from, and imports of public recordings.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[macro_use]
#[path = "../common/needs.rs"]
mod needs;
#[path = "../common/program.rs"]
mod program;
mod recordings;
mod tables;
mod traces;

fn main() -> std::process::ExitCode {
    needs::run([tables::trials(), traces::trials(), recordings::trials()])
}
