//! `habitat-tui sweep`: hypothetical versions of a GPU.

use std::io::Write;

use super::CliError;
use crate::settings::args::SweepBandwidthArgs;

pub(super) fn bandwidth(_args: &SweepBandwidthArgs, _out: &mut dyn Write) -> Result<u8, CliError> {
    Ok(0)
}
