//! `habitat-tui run` from the user's side: real jobs, their output, exit codes and profiles.
//!
//! Tests without PyTorch run with any `python3`, the others with the interpreter in `HABITAT_TUI_TEST_PYTHON`:
//! `HABITAT_TUI_TEST_PYTHON=/path/to/python cargo test --test machine capture:: -- --nocapture` also prints the table
//! of scenarios.

pub(crate) mod surroundings;
pub(crate) mod tests;
