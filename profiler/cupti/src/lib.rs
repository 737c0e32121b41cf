//! The library that `habitat-tui run --cupti` loads into a CUDA program.
//!
//! For a window of time, it records kernels, copies, the calls that launch them and NVTX ranges through CUPTI's
//! activity records. It writes them as a Chrome trace into a private folder, and reports to the program over its socket
//! with the messages of `profiler/hook/README.md`. `profiler/cupti/README.md` has its rules.
//!
//! - [`entry`]: functions that CUDA and NVTX call;
//! - [`conductor`]: opens and closes the window, also at the end of the process;
//! - [`find`], [`library`]: choice of a CUPTI, and its functions;
//! - [`buffers`]: buffers that CUPTI fills;
//! - [`record`]: parses the bytes of a record;
//! - [`collect`]: collects records, within bounds;
//! - [`trace`]: writes them as a Chrome trace;
//! - [`settings`], [`talk`]: settings, and messages;
//! - [`system`]: signals, forks and the end of the process.

#![cfg(target_os = "linux")]

pub mod buffers;
pub mod collect;
pub mod conductor;
pub mod entry;
pub mod find;
pub mod library;
pub mod record;
pub mod settings;
pub mod system;
pub mod talk;
pub mod trace;
