//! Recordings that are no PyTorch traces, made profiles.

use std::path::Path;

use super::CliError;
use crate::profile::kineto::{Import, ImportOptions};
use crate::profile::nsys::{self, Choice};
use crate::profile::xplane;
use crate::store::nsys::Export;
use crate::store::{self, Limit};

/// A recording of another kind than a PyTorch trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Nsight Systems, exported to SQLite.
    Nsight,
    /// XPlane, of JAX and other programs on XLA.
    Xplane,
}

/// Imports one such file.
pub(super) fn import(
    path: &Path,
    form: Form,
    options: &ImportOptions<'_>,
    choice: &Choice<'_>,
) -> Result<Import, CliError> {
    let problem = |error: &dyn std::fmt::Display| CliError(format!("{}: {error}", path.display()));
    match form {
        Form::Nsight => {
            let mut export = Export::open(path)?;
            nsys::import(&mut export, options, choice).map_err(|error| problem(&error))
        }
        Form::Xplane => {
            let bytes = store::read(path, Limit::XPLANE)?;
            xplane::import(&bytes, options, choice.device).map_err(|error| problem(&error))
        }
    }
}
