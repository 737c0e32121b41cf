//! The `habitat-lab` program.

use std::process::ExitCode;

use clap::Parser;
use habitat_tui::terminal;
use habitat_tui_lab::args::Lab;

fn main() -> ExitCode {
    let ended = habitat_tui_lab::run(&Lab::parse(), &mut terminal::stdout());
    ExitCode::from(ended.unwrap_or_else(|error| {
        error.print();
        error.exit_code()
    }))
}
