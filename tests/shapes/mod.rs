//! `habitat-tui trace-shapes` as a user meets it: functions that build a step, those that
//! cannot be traced, and what is written.
//!
//! Tests without PyTorch run with any `python3`; the rest with the interpreter
//! that `HABITAT_TUI_TEST_PYTHON` names.

pub(crate) mod packed;
pub(crate) mod tests;
