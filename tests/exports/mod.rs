//! Exported plans, as the tools that start them read them: `SkyPilot` and dstack; and as bash and torchrun run them.
//!
//! The tools are those of the interpreter that `HABITAT_TUI_TEST_EXPORTS_PYTHON` names
//! (`.ci/exports` installs them).

mod optimizer;
mod scripts;
mod slurm;
mod stories;
pub(crate) mod tests;
