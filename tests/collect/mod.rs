//! `habitat-tui collect` from the user's side, and the use of its rows. Runs with PyTorch need
//! `HABITAT_TUI_TEST_PYTHON=/path/to/python`; they run on the CPU.

pub(crate) mod tests;
