//! `habitat-tui fit`: models that are fitted to what the user has.

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
        // The command line has asked for one of them before.
        (None, None) => {
            Err(CliError::Refused("what is to be fitted? a log, kernelwise PROFILES, or black-box TABLES".to_owned()))
        }
    }
}
