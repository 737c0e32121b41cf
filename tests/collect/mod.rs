//! `habitat-tui collect` as a user meets it, and what becomes of its rows. Runs with PyTorch
//! need `HABITAT_TUI_TEST_PYTHON=/path/to/python`; they run on the processor.

pub(crate) mod tests;
