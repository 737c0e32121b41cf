//! Recordings that are no PyTorch traces: what a file is, told by its content, and how it
//! becomes a profile.

use std::path::Path;

use super::CliError;
use super::input::head;
use crate::profile::kineto::{Import, ImportOptions};
use crate::profile::nsys::{self, Choice};
use crate::profile::xplane::{self, looks_like_xplane};
use crate::store::nsys::{Export, looks_like_sqlite, remedy};
use crate::store::{self, StoreError};

/// A protocol buffer has 2 GiB at most.
const LARGEST: u64 = 1 << 31;

/// A recording of another kind than a PyTorch trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Nsight Systems, exported to SQLite.
    Nsight,
    /// XPlane, of JAX and other programs on XLA.
    Xplane,
}

/// What kind of recording a file is; `None` where it is a profile, a PyTorch trace or an
/// op list, or nothing known.
///
/// # Errors
/// Where the file cannot be read, or can only be read by another program.
pub(super) fn form(path: &Path) -> Result<Option<Form>, CliError> {
    let head = head(path)?;
    if looks_like_sqlite(&head) {
        return Ok(Some(Form::Nsight));
    }
    if looks_like_xplane(&head) {
        return Ok(Some(Form::Xplane));
    }
    match remedy(path) {
        Some(remedy) => Err(StoreError::content(path, remedy).into()),
        None => Ok(None),
    }
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
            let bytes = store::read_bounded(path, LARGEST)?;
            xplane::import(&bytes, options, choice.device).map_err(|error| problem(&error))
        }
    }
}
