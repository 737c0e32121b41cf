//! Training and evaluation of the models that [`habitat_tui`] ships.
//!
//! [`learn`] trains networks, `train` reads the data and writes weights with their cards,
//! `evaluate` compares predictions with measurements, `terms` prints the efficiency model's table.
//! [`run`] is the program `habitat-lab`.

pub mod args;
mod evaluate;
mod hash;
pub mod learn;
mod models;
mod operators;
pub mod published;
mod terms;
mod train;

use std::io::Write;

use args::{Command, Lab};
use habitat_tui::cli::CliError;

/// Runs the parsed command; returns the exit code.
///
/// # Errors
/// [`CliError`] with the file, the place, the value and the remedy.
pub fn run(lab: &Lab, out: &mut dyn Write) -> Result<u8, CliError> {
    let code = match &lab.command {
        Command::Evaluate(args) => evaluate::run(args, out)?,
        Command::Train(args) => train::run(args, out)?,
        Command::Terms => terms::run(out)?,
    };
    out.flush()?;
    Ok(code)
}
