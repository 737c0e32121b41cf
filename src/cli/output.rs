//! What commands write: JSON, tables, and files that must not be there yet.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::CliError;
use crate::profile::Profile;
use crate::report::table::Table;
use crate::settings::args::TableForm;
use crate::store::{self, StoreError};
use crate::text;

/// How the names of profiles end that are chosen here.
const PROFILE: &str = "habitat.json.zst";

/// Prints a value as JSON in which nothing can steer a terminal; exit code 0.
///
/// # Errors
/// [`CliError`] where it cannot be written.
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
        _ => table.write_text(out)?,
    }
    Ok(())
}

/// Refuses to replace a file unasked, before the work that would make it. A pipe or a device has
/// nothing to lose.
pub(super) fn check_new(path: &Path, force: bool) -> Result<(), StoreError> {
    if path.is_dir() {
        let source = std::io::ErrorKind::IsADirectory.into();
        return Err(StoreError::Write { path: path.to_owned(), source });
    }
    if path.is_file() && !force { Err(StoreError::Exists { path: path.to_owned() }) } else { Ok(()) }
}

/// Whether a file can be made there, before the job that it is of starts.
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
            Err(error) => format!("cannot be written: {error}; nothing was started (-o gives another place)"),
        }
    };
    Err(CliError::Refused(problem).at(path.display()))
}

/// Makes a folder and those above it.
pub(super) fn make_folder(path: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(path).map_err(|source| StoreError::Write { path: path.to_owned(), source })
}

/// Writes a profile, once it is known that it can be read back: the rules of the form hold for
/// what was typed, too, such as a batch of none.
pub(super) fn save_profile(profile: &Profile, path: &Path, force: bool) -> Result<(), CliError> {
    let json = profile.to_json()?;
    Profile::from_json(&json).map_err(|source| StoreError::Profile { path: path.to_owned(), source })?;
    Ok(store::save_atomically(path, &json, force)?)
}

/// What a job is called: the script, the module, or the program.
pub(super) fn job_name(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let stem = |word: &str| {
        Path::new(word).file_stem().map_or_else(|| "job".to_owned(), |stem| stem.to_string_lossy().into_owned())
    };
    let file = words.iter().skip(1).find(|word| Path::new(&***word).extension().is_some_and(|e| e == "py"));
    let module = || words.iter().position(|word| word == "-m").and_then(|at| words.get(at + 1));
    match (file, words.first()) {
        (Some(file), _) => stem(file),
        (None, first) => module()
            .map(ToString::to_string)
            .or_else(|| first.map(|program| stem(program)))
            .unwrap_or_else(|| "job".to_owned()),
    }
}

/// A name as the beginning of a file's name.
pub(super) fn file_stem(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    clean.trim_start_matches('.').to_owned()
}

/// A profile in this folder that is not there yet, nor the log that belongs to it.
pub(super) fn unused_profile(job: &str) -> PathBuf {
    let stem = format!("{}-{}", file_stem(job), jiff::Zoned::now().date());
    let is_free = |name: &String| [PROFILE, "log"].iter().all(|end| !Path::new(&format!("{name}.{end}")).exists());
    let name =
        (1..10_000).map(|number| if number == 1 { stem.clone() } else { format!("{stem}-{number}") }).find(is_free);
    PathBuf::from(format!("{}.{PROFILE}", name.unwrap_or(stem)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_called_by_its_script() {
        let named = |line: &str| job_name(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(named("python -u runs/train.py --lr 1"), "train");
        assert_eq!(named("python -m my.train"), "my.train");
        assert_eq!(named("python -m torch.distributed.run --nproc 2 pre.py"), "pre");
        assert_eq!(named("/bin/sh run.sh"), "sh");
        let unused = unused_profile("../x");
        assert!(unused.to_string_lossy().starts_with("-x-20"), "{unused:?}");
    }
}
