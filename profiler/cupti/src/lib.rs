//! The library that `habitat-tui run --cupti` has loaded into a CUDA program.
//!
//! It records kernels, copies, the calls that launch them and NVTX ranges through CUPTI's
//! activity records for a window of time, writes them as a Chrome trace into a private
//! folder, and tells the program over its socket, in the words of
//! `profiler/hook/README.md`. `profiler/cupti/README.md` has the rules it keeps.
//!
//! - [`entry`]: what CUDA and NVTX call, and the end of the process;
//! - [`conductor`]: opens and closes the window;
//! - [`find`], [`library`]: which CUPTI, and its functions;
//! - [`buffers`]: the buffers CUPTI fills;
//! - [`record`]: the bytes of one record → what is kept of it;
//! - [`collect`]: everything kept, within bounds;
//! - [`trace`]: that as a Chrome trace;
//! - [`settings`], [`talk`]: what it is told, and what it tells;
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
