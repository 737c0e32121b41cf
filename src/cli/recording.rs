//! Recordings that are no PyTorch traces: what a file is, told by its content, and how it
//! becomes a profile.

use std::path::Path;

use super::CliError;
use super::input::head;
use crate::profile::kineto::{Import, ImportOptions};
use crate::profile::nsys::{self, Choice};
use crate::store::StoreError;
use crate::store::nsys::{Export, looks_like_sqlite, remedy};

/// A recording of another kind than a PyTorch trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Nsight Systems, exported to SQLite.
    Nsight,
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
    match form {
        Form::Nsight => {
            let mut export = Export::open(path)?;
            nsys::import(&mut export, options, choice).map_err(|error| CliError(format!("{}: {error}", path.display())))
        }
    }
}
