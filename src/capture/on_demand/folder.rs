//! The folder of the socket: where the job and we meet.
//!
//! A folder of our own rather than dynolog's abstract name: a process that finds no socket
//! file goes on at once, whereas with the abstract name and nobody listening it tries for
//! up to 10 s at its end.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::endpoint::LONGEST_FOLDER;
use super::{AttachError, process};

/// The folder to use: the one given, else a private one of this user in `/tmp`, made where
/// it is not there.
///
/// # Errors
/// [`AttachError::Folder`] with the remedy.
pub fn folder(given: Option<&Path>) -> Result<PathBuf, AttachError> {
    let path = match given {
        Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        None => private_in(Path::new("/tmp"))?,
    };
    let wrong = |problem: &str| Err(AttachError::Folder { path: path.clone(), problem: problem.to_owned() });
    if path.as_os_str().as_bytes().len() > LONGEST_FOLDER {
        return wrong(&format!(
            "longer than the {LONGEST_FOLDER} bytes that leave room for the sockets' names; give a shorter one with \
             --socket-dir"
        ));
    }
    match fs::metadata(&path) {
        Ok(there) if there.is_dir() => Ok(path),
        Ok(_) => wrong("is no folder; --socket-dir takes one"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            wrong("no such folder; make it, or give another with --socket-dir")
        }
        Err(error) => wrong(&error.to_string()),
    }
}

/// This user's own folder. Whoever can write there could speak to our jobs, so one that
/// somebody else made in our name is refused.
fn private_in(place: &Path) -> Result<PathBuf, AttachError> {
    let uid = process::own_uid().unwrap_or_default();
    let path = place.join(format!("habitat-tui-attach-{uid}"));
    let wrong = |problem: String| AttachError::Folder { path: path.clone(), problem };
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => return Ok(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(wrong(format!("cannot be made: {error}; give a folder with --socket-dir"))),
    }
    let there = fs::symlink_metadata(&path).map_err(|error| wrong(error.to_string()))?;
    if !there.is_dir() || there.uid() != uid || there.permissions().mode() & 0o022 != 0 {
        return Err(wrong(
            "is not a folder that only you can write to; remove it, or give another one with --socket-dir".to_owned(),
        ));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_others_can_write_to_is_not_taken() {
        let place = tempfile::tempdir().unwrap();
        let made = private_in(place.path()).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(private_in(place.path()).unwrap(), made, "again");
        fs::set_permissions(&made, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private_in(place.path()).unwrap_err().to_string().contains("only you"));
        fs::remove_dir(&made).unwrap();
        std::os::unix::fs::symlink("/etc", &made).unwrap();
        assert!(private_in(place.path()).is_err());
    }

    #[test]
    fn a_folder_given_must_be_there_and_short() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(folder(Some(place.path())).unwrap(), place.path());
        let problem = |path: &Path| folder(Some(path)).unwrap_err().to_string();
        assert!(problem(&place.path().join("no")).contains("no such folder"));
        assert!(problem(&place.path().join("x".repeat(60))).contains("shorter"));
        std::fs::write(place.path().join("f"), "").unwrap();
        assert!(problem(&place.path().join("f")).contains("no folder"));
    }
}
