//! The `habitat-tui` program: arguments → settings → a command or the screens → exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use habitat_tui::cli::{self, CliError, Outcome};
use habitat_tui::settings::args::Cli;
use habitat_tui::{terminal, tui};

fn main() -> ExitCode {
    let ended = match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(said) => usage(&said),
    };
    ExitCode::from(ended.unwrap_or_else(|error| {
        if error.is_broken_pipe() {
            return 0;
        }
        terminal::error(error);
        2
    }))
}

fn run(cli: Cli) -> Result<u8, CliError> {
    match cli::run(cli)? {
        Outcome::Exit(code) => Ok(code),
        Outcome::Screens(screens) => tui::open(*screens).map_err(|error| CliError(error.to_string())),
    }
}

/// Prints what the parser of the command line has to say: help, the version, or what is
/// wrong with what was typed.
fn usage(said: &clap::Error) -> Result<u8, CliError> {
    match said.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            said.print()?;
            io::stdout().flush()?;
        }
        // Contains what was typed, names of files among it.
        _ => match cli::meant(said) {
            Some(meant) => terminal::error(meant),
            None => terminal::say(said.render().to_string().trim_end()),
        },
    }
    Ok(u8::try_from(said.exit_code()).unwrap_or(2))
}
