//! The `habitat-tui` program: arguments → settings → a command or the screens → exit code.

use std::process::ExitCode;

use clap::Parser;
use habitat_tui::cli::{self, Outcome};
use habitat_tui::settings::args::Cli;
use habitat_tui::tui;

fn main() -> ExitCode {
    match cli::run(Cli::parse()) {
        Ok(Outcome::Exit(code)) => ExitCode::from(code),
        Ok(Outcome::Screens(screens)) => match tui::open(*screens) {
            Ok(code) => ExitCode::from(code),
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        },
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
