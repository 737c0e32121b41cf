//! `habitat-tui run` in a pseudo-terminal: the screens live on a job, the job after
//! they are closed, and the job's own terminal without them.
//!
//! The jobs need a `python3` and no PyTorch: `tests/fixtures/capture/fake` has as much of it
//! as the hook touches. With `HABITAT_TUI_TEST_PYTHON` set, one test runs the real thing.

pub(crate) mod kept;
pub(crate) mod tests;
