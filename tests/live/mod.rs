//! `habitat-tui run` in a pseudo-terminal: live screens on a job, the job after they close, and the job's own terminal
//! without them.
//!
//! The jobs need a `python3` and no PyTorch: `tests/fixtures/capture/fake` has the parts of it that the hook uses. With
//! `HABITAT_TUI_TEST_PYTHON` set, one test uses the real PyTorch.

pub(crate) mod kept;
pub(crate) mod tests;
