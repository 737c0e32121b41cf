//! `habitat-tui run` as a user meets it: real jobs, their output, exit codes and profiles.
//!
//! What needs no PyTorch runs wherever there is a `python3`. What needs it runs with the
//! interpreter that `HABITAT_TUI_TEST_PYTHON` names:
//! `HABITAT_TUI_TEST_PYTHON=/path/to/python cargo test --test machine capture:: -- --nocapture`
//! prints the table of scenarios too.

pub(crate) mod surroundings;
pub(crate) mod tests;
