//! Computations and drawings of the crates together: on the whole catalog, the samples and the shipped models.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;
#[path = "common/program.rs"]
mod program;
#[path = "common/job.rs"]
mod running;

mod blackbox;
mod catalog;
mod contrast;
mod families;
mod first_screen;
mod host;
mod job;
mod job_told;
mod kernelwise;
mod keys;
mod learned;
mod predict;
mod screens;
