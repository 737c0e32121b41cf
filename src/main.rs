//! The `habitat-tui` program: arguments → settings → a command or the screens → exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use habitat_tui::cli::{self, CliError, Outcome};
use habitat_tui::settings::args::Cli;
use habitat_tui::{launch, terminal};

fn main() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) => usage(&error),
    };
    ExitCode::from(code.unwrap_or_else(|error| {
        error.print();
        error.exit_code()
    }))
}

fn run(cli: Cli) -> Result<u8, CliError> {
    match cli::run(cli)? {
        Outcome::Exit(code) => Ok(code),
        Outcome::Screens(screens) => launch::open(*screens).map_err(CliError::other),
    }
}

/// Prints the message of the command line parser: help, the version, or a usage error.
fn usage(error: &clap::Error) -> Result<u8, CliError> {
    match error.kind() {
        ErrorKind::DisplayHelp => return cli::help(),
        ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.print()?;
            io::stdout().flush()?;
        }
        // Contains typed text, such as file names.
        _ => {
            if let Some(meant) = cli::suggestion(error) {
                terminal::error(meant);
            } else {
                let said = cli::of_variable(error).unwrap_or_else(|| error.render().to_string());
                terminal::say(said.trim_end());
            }
        }
    }
    Ok(u8::try_from(error.exit_code()).unwrap_or(2))
}
