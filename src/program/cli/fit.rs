//! `habitat-tui fit`: fits models to the user's own data.

pub(super) mod black_box;
pub(super) mod kernelwise;
mod log;

use std::io::Write;

use super::error::CliError;
use crate::settings::args::{FitArgs, FitCommand};

pub(super) fn run(args: &FitArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    match (&args.command, &args.log) {
        (Some(FitCommand::KernelWise(args)), _) => kernelwise::run(args, out),
        (Some(FitCommand::BlackBox(args)), _) => black_box::run(args, out),
        (None, Some(args)) => log::run(args, out),
        // Unreachable: the argument parser requires one of them.
        (None, None) => Err(CliError::Refused("fit needs a log, kernelwise PROFILES, or black-box TABLES".to_owned())),
    }
}
