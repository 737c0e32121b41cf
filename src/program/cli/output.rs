//! Output of commands: JSON, tables, and files that must not exist yet.

use std::io::Write;
use std::path::Path;

use super::error::CliError;
use crate::settings::args::{FileArgs, TableForm};
use crate::store::{self, StoreError};
use crate::terminal;
use habitat_base::text;
use habitat_reports::table::Table;
use habitat_step::profile::Profile;

/// Prints a value as JSON with control characters escaped, so that it is safe on a terminal. Returns exit code 0.
///
/// # Errors
/// [`CliError`] if it cannot be written.
pub fn print_json(value: &impl serde::Serialize, out: &mut dyn Write) -> Result<u8, CliError> {
    let text = serde_json::to_string_pretty(value)?;
    writeln!(out, "{}", text::json_escaped(&text))?;
    Ok(0)
}

/// Prints a table in a form other than JSON.
pub(super) fn print_table(table: &Table, form: TableForm, out: &mut dyn Write) -> Result<(), CliError> {
    match form {
        TableForm { csv: true, .. } => table.write_csv(out)?,
        TableForm { markdown: true, .. } => table.write_markdown(out)?,
        _ => table.write_lines(terminal::width(), out)?,
    }
    Ok(())
}

/// Refuses to overwrite a file without `force`, before the work for it starts. A pipe or a device has nothing to lose.
pub(super) fn check_new(path: &Path, force: bool) -> Result<(), StoreError> {
    if path.is_dir() {
        let source = std::io::ErrorKind::IsADirectory.into();
        return Err(StoreError::Write { path: path.to_owned(), source });
    }
    if path.is_file() && !force { Err(StoreError::Exists { path: path.to_owned() }) } else { Ok(()) }
}

/// Checks that a file can be created at `path`, before the job for it starts.
#[cfg(unix)]
pub(super) fn check_writable(path: &Path, force: bool) -> Result<(), CliError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_file() {
        check_new(path, force)?;
    } else if path.exists() && !path.is_dir() {
        return Ok(());
    }
    let problem = if path.is_dir() {
        "is a folder, not a file".to_owned()
    } else {
        match tempfile::tempfile_in(folder) {
            Ok(_) => return Ok(()),
            Err(error) => format!("cannot be written: {error}; the job was not started (choose another file with -o)"),
        }
    };
    Err(CliError::Refused(problem).at(path.display()))
}

/// Refuses `-o report.html`: the content would not be HTML.
pub(super) fn check_form(path: &Path) -> Result<(), CliError> {
    if matches!(FileArgs::ending(path).as_deref(), Some("html" | "htm")) {
        let problem = "-o does not write HTML; `--html FILE` of `predict`, `plan` and `diff` does".to_owned();
        return Err(CliError::Refused(problem).at(path.display()));
    }
    Ok(())
}

/// Writes a report to share, and prints its path.
pub(super) fn save_html(report: &str, path: &Path, force: bool) -> Result<(), CliError> {
    store::save_atomically(path, report.as_bytes(), force)?;
    terminal::say(format_args!("report: {}", path.display()));
    Ok(())
}

/// Creates a folder and its parents.
pub(super) fn make_folder(path: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(path).map_err(|source| StoreError::Write { path: path.to_owned(), source })
}

/// Writes a profile after checking that it can be read back. This also applies the format's rules to values from flags,
/// such as a batch size of 0.
pub(super) fn save_profile(profile: &Profile, path: &Path, force: bool) -> Result<(), CliError> {
    let json = profile.to_json()?;
    Profile::from_json(&json).map_err(|source| StoreError::Profile { path: path.to_owned(), source })?;
    Ok(store::save_atomically(path, &json, force)?)
}
