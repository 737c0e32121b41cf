//! Exported plans, as the tools that start them read them (`SkyPilot` and dstack), and as bash and torchrun run them.
//!
//! The tools come from the interpreter in `HABITAT_TUI_TEST_EXPORTS_PYTHON` (`.ci/exports` installs them).

mod optimizer;
mod scripts;
mod slurm;
mod stories;
pub(crate) mod tests;
