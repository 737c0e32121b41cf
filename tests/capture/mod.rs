//! `habitat-tui run` as a user meets it: real jobs, their output, exit codes and profiles.
//!
//! Tests without PyTorch run with any `python3`. Those with it run with the
//! interpreter that `HABITAT_TUI_TEST_PYTHON` names:
//! `HABITAT_TUI_TEST_PYTHON=/path/to/python cargo test --test machine capture:: -- --nocapture`
//! prints the table of scenarios too.

pub(crate) mod surroundings;
pub(crate) mod tests;
