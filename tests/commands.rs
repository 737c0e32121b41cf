//! The command line: arguments and files in; text, files and exit codes out.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "common/program.rs"]
mod program;
#[path = "common/protobuf.rs"]
mod protobuf;
#[path = "common/server.rs"]
mod server;
#[path = "common/terminal.rs"]
mod terminal;
#[path = "kineto/trace.rs"]
#[allow(dead_code, reason = "helpers of other tests")]
mod trace;

mod batches;
mod cli;
mod diff;
mod hostile;
mod imports;
mod limits;
mod measured;
mod methods;
mod mutate;
mod pictures;
mod plan_files;
mod plan_jobs;
mod precision;
mod prices;
mod pty;
mod report;
mod resources;
mod versions;
mod words;
