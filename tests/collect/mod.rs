//! `habitat-tui collect` as a user meets it, and the use of its rows. Runs with PyTorch
//! need `HABITAT_TUI_TEST_PYTHON=/path/to/python`; they run on the processor.

pub(crate) mod tests;
