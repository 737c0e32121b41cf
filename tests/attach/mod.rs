//! `habitat-tui attach` and `env` as a user meets them.
//!
//! Most of it against processes that speak the protocol and pretend to train: this very
//! program, started again. Every test has a socket folder of its own, none touches the
//! abstract name. Real jobs run with the interpreter that `HABITAT_TUI_TEST_PYTHON` names:
//! `HABITAT_TUI_TEST_PYTHON=/path/to/python cargo test --test machine attach:: -- --nocapture`
//! prints where the time went, too.

pub(crate) mod tests;
