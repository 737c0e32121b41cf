//! `habitat-tui trace-shapes` from the user's side: functions that build a step, functions that cannot be traced, and
//! the output.
//!
//! Tests without PyTorch run with any `python3`; the others with the interpreter in `HABITAT_TUI_TEST_PYTHON`.

pub(crate) mod packed;
pub(crate) mod tests;
