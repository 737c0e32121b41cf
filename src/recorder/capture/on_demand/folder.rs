//! The folder of the socket, through which the job and we communicate.
//!
//! A folder instead of dynolog's abstract name: a process that finds no socket file continues at once, but with an
//! abstract name without a listener it retries for up to 10 s when it ends. The folder is private, because a listener
//! can make the user's job write files.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::endpoint::LONGEST_FOLDER;
use super::error::AttachError;
use crate::capture::private::{Private, PrivateError};

/// Name of our folder within the private one.
const NAME: &str = "attach";

/// The folder to use: the given one, otherwise one in the private folder.
///
/// # Errors
/// [`AttachError`] with the remedy.
pub fn folder(
    given: Option<&Path>,
    private: impl FnOnce() -> Result<Private, PrivateError>,
) -> Result<PathBuf, AttachError> {
    let path = match given {
        Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        None => own(private()?)?,
    };
    let wrong = |problem: &str| Err(AttachError::Folder { path: path.clone(), problem: problem.to_owned() });
    if is_long(&path) {
        return wrong(&format!(
            "longer than the limit of {LONGEST_FOLDER} bytes for the sockets' paths; set a shorter one with \
             --socket-dir"
        ));
    }
    match fs::metadata(&path) {
        Ok(there) if there.is_dir() => Ok(path),
        Ok(_) => wrong("is not a folder; --socket-dir needs one"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            wrong("no such folder; create it, or set another with --socket-dir")
        }
        Err(error) => wrong(&error.to_string()),
    }
}

fn is_long(path: &Path) -> bool {
    path.as_os_str().as_bytes().len() > LONGEST_FOLDER
}

/// The first of our own folders that is short enough.
fn own(mut private: Private) -> Result<PathBuf, AttachError> {
    while is_long(&private.path().join(NAME))
        && let Ok(other) = private.other()
    {
        private = other;
    }
    let failed = |error: io::Error| AttachError::Folder {
        path: private.path().to_owned(),
        problem: format!("cannot be written: {error}; set a folder with --socket-dir"),
    };
    private.folder(NAME).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_is_one_that_is_short_enough() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let long = place.path().join("x".repeat(60));
        let private = |places: &[&Path]| Private::first(places.iter().map(|it| (*it).to_owned()).collect());
        let short = place.path().join("s");
        let found = folder(None, || private(&[&long, &short])).unwrap();
        assert!(found.ends_with("s/attach") && found.is_dir(), "{found:?}");
        assert!(folder(None, || private(&[&long])).unwrap_err().to_string().contains("--socket-dir"));
    }

    #[test]
    fn a_folder_given_must_be_there_and_short() {
        let place = tempfile::tempdir().unwrap();
        let none = || -> Result<Private, PrivateError> { panic!("none is needed") };
        assert_eq!(folder(Some(place.path()), none).unwrap(), place.path());
        let problem = |path: &Path| folder(Some(path), none).unwrap_err().to_string();
        assert!(problem(&place.path().join("no")).contains("no such folder"));
        assert!(problem(&place.path().join("x".repeat(60))).contains("shorter"));
        std::fs::write(place.path().join("f"), "").unwrap();
        assert!(problem(&place.path().join("f")).contains("not a folder"));
    }
}
