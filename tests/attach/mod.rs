//! `habitat-tui attach` and `env` from the user's side.
//!
//! Most tests use processes that speak the protocol and pretend to train: this test program, started again. Every test
//! has its own socket folder; none uses the abstract name. Real jobs run with the interpreter in
//! `HABITAT_TUI_TEST_PYTHON`: `HABITAT_TUI_TEST_PYTHON=/path/to/python cargo test --test machine attach:: --
//! --nocapture` also prints where the time went.

pub(crate) mod tests;
