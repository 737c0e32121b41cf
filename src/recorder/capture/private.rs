//! A folder that only the user can change, and that no other user can recreate.
//!
//! A job's Python loads our hook from a folder named in the job's environment while any of its processes lives,
//! possibly long after we have ended. If that folder were in a place that everyone can write to, such as `/tmp`,
//! another user could recreate it once it is gone, and run code in the job. So it is in the user's own cache folder,
//! and stays there. Sockets and traces are there too: files written to a folder that another user created may end up
//! wherever a link in it points.
//!
//! Files in the home folder are as safe as the home folder itself: anyone who can write there can change the user's
//! Python without us. All other folders from the root on must belong to the user or to root and be writable for no one
//! else, or be sticky like `/tmp`, where no one can remove the user's files.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, Uid, User, geteuid};

use super::folder::{self, Folder};

/// Name of our folder within a cache or run-time folder.
const NAME: &str = "habitat-tui";
/// Sticky bit: everyone may write to the folder but remove only their own files.
const STICKY: u32 = 0o1000;

/// Our private folder.
#[derive(Debug, Clone)]
pub struct Private {
    path: PathBuf,
    /// Alternative places.
    rest: Vec<PathBuf>,
}

/// Error if there is no such folder.
#[derive(Debug, thiserror::Error)]
#[error(
    "no folder was found that only you can change:{}\n  set XDG_CACHE_HOME to a folder of your own",
    .tried.iter().map(|(path, why)| format!("\n  {}: {why}", path.display())).collect::<Vec<_>>().concat()
)]
pub struct PrivateError {
    tried: Vec<(PathBuf, String)>,
}

impl Private {
    /// Our folder in the user's cache folder; if that is unusable, in the cache folder of the home in the user
    /// database, or in `XDG_RUNTIME_DIR`.
    ///
    /// # Errors
    /// [`PrivateError`] with the problem of each of them.
    pub fn find(cache: Option<PathBuf>) -> Result<Self, PrivateError> {
        let of_database = || Some(User::from_uid(geteuid()).ok()??.dir.join(".cache").join(NAME));
        let at_run_time = || Some(PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?).join(NAME));
        let mut places: Vec<PathBuf> = [cache, of_database(), at_run_time()].into_iter().flatten().collect();
        places.dedup();
        Self::first(places)
    }

    pub(super) fn first(places: Vec<PathBuf>) -> Result<Self, PrivateError> {
        let home = std::env::home_dir();
        let mut tried = Vec::new();
        let mut rest = places.into_iter();
        while let Some(place) = rest.next() {
            match prepare(&place, home.as_deref()) {
                Ok(path) => return Ok(Self { path, rest: rest.collect() }),
                Err(why) => tried.push((place, why)),
            }
        }
        Err(PrivateError { tried })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another private folder, if this one is unsuitable.
    ///
    /// # Errors
    /// Same as [`find`](Self::find).
    pub fn other(&self) -> Result<Self, PrivateError> {
        Self::first(self.rest.clone())
    }

    /// Creates a folder in it for one recording, and removes those of killed recordings.
    pub(super) fn recording(&self) -> io::Result<Folder> {
        folder::remove_dead(&self.path);
        Folder::new(&self.path)
    }

    /// Creates a permanent folder in it.
    ///
    /// # Errors
    /// Errors of creating it.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }

    /// A folder in it with exactly these files. It is permanent, because a process may load them at any time; other
    /// files get a folder of another name.
    pub(super) fn unpacked(&self, name: &str, files: &[(&str, &[u8])]) -> io::Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        files.hash(&mut hasher);
        let folder = self.path.join(format!("{name}-{:016x}", hasher.finish()));
        for (file, content) in files {
            let path = folder.join(file);
            if folder::read(&path).is_ok_and(|there| there == *content) {
                continue;
            }
            let parent = path.parent().unwrap_or(&folder);
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            // Atomic, because another job may be loading it at this moment.
            let mut new = tempfile::NamedTempFile::new_in(parent)?;
            new.write_all(content)?;
            new.persist(&path).map_err(|error| error.error)?;
        }
        Ok(folder)
    }
}

/// Creates the folder if necessary and checks it; returns its path without links.
fn prepare(place: &Path, home: Option<&Path>) -> Result<PathBuf, String> {
    let told = |error: io::Error| error.to_string();
    if !place.is_absolute() {
        return Err("is not an absolute path".to_owned());
    }
    // Do not create anything in another user's folder.
    let there = place.ancestors().find_map(|path| path.canonicalize().ok()).unwrap_or_else(|| PathBuf::from("/"));
    check(&there, home)?;
    DirBuilder::new().recursive(true).mode(0o700).create(place).map_err(told)?;
    let path = place.canonicalize().map_err(told)?;
    check(&path, home)?;
    let own = fs::metadata(&path).map_err(told)?;
    if own.uid() != geteuid().as_raw() {
        return Err(format!("belongs to user {}", own.uid()));
    }
    if own.mode() & 0o077 != 0 {
        fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(told)?;
    }
    // It may be full or read-only.
    tempfile::tempfile_in(&path).map_err(told)?;
    Ok(path)
}

/// Checks that no other user can change or replace the file at `path` (a path without links); otherwise returns who
/// could, and where.
pub(super) fn check(path: &Path, home: Option<&Path>) -> Result<(), String> {
    let own = geteuid();
    let is_root_or_own = |uid: u32| uid == 0 || uid == own.as_raw() || is_unmapped(uid);
    let home = home.and_then(|home| home.canonicalize().ok());
    // Root must not leave folders in another user's home that do not belong to that user.
    let home = home.filter(|home| !own.is_root() || fs::metadata(home).is_ok_and(|home| is_root_or_own(home.uid())));
    let mut all: Vec<&Path> = path.ancestors().collect();
    all.reverse();
    for part in all.into_iter().filter(|part| home.as_ref().is_none_or(|home| !home.starts_with(part))) {
        let there = fs::symlink_metadata(part).map_err(|error| format!("{}: {error}", part.display()))?;
        if !is_root_or_own(there.uid()) {
            return Err(format!("{} belongs to user {}", part.display(), there.uid()));
        }
        let is_shared = there.is_dir() && there.mode() & STICKY != 0;
        if !is_shared && is_open(&there, own) {
            return Err(format!("other users can write to {}", part.display()));
        }
    }
    Ok(())
}

/// Whether other users can write to it.
fn is_open(there: &Metadata, own: Uid) -> bool {
    let mode = there.mode();
    mode & 0o002 != 0 || (mode & 0o020 != 0 && !is_private_group(Gid::from_raw(there.gid()), own))
}

/// Whether a group contains only the user: many systems create a group of the same name for each user, with write
/// permission for the user's files.
fn is_private_group(group: Gid, own: Uid) -> bool {
    let (Ok(Some(user)), Ok(Some(group))) = (User::from_uid(own), Group::from_gid(group)) else { return false };
    user.name == group.name && group.mem.iter().all(|member| *member == user.name)
}

/// Whether this id represents users unknown to our user namespace: the root of the host, seen from a container.
fn is_unmapped(uid: u32) -> bool {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    let is_within = || {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        !map.is_empty() && !map.split_whitespace().eq(["0", "0", "4294967295"])
    };
    number("/proc/sys/kernel/overflowuid") == Some(uid) && is_within()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_change_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let (shared, own) = (place.path().join("shared"), place.path().join("own"));
        fs::create_dir(&shared).unwrap();
        fs::create_dir(&own).unwrap();
        mode(&shared, 0o777);
        mode(&own, 0o755);
        let found = Private::first(vec![shared.join("a/b"), own.join("a/b"), place.path().join("c")]).unwrap();
        assert!(found.path().ends_with("own/a/b"), "{found:?}");
        assert_eq!(fs::metadata(found.path()).unwrap().mode() & 0o777, 0o700);
        assert!(!shared.join("a").exists(), "nothing is made there");
        assert!(found.other().unwrap().path().ends_with("c"));
        let error = Private::first(vec![shared.join("x"), PathBuf::from("x")]).unwrap_err().to_string();
        for part in ["other users can write to", "shared/x", "not an absolute path", "set XDG_CACHE_HOME"] {
            assert!(error.contains(part), "{part:?} is not in {error}");
        }
        // In a sticky folder like /tmp, no one can remove our files.
        mode(&shared, 0o1777);
        assert!(Private::first(vec![shared.join("a")]).is_ok());
        // A link is resolved once, and its target is checked.
        mode(&shared, 0o777);
        symlink(&shared, place.path().join("link")).unwrap();
        assert!(Private::first(vec![place.path().join("link/a")]).is_err());
        symlink(&own, place.path().join("good")).unwrap();
        assert!(Private::first(vec![place.path().join("good/z")]).unwrap().path().ends_with("own/z"));
    }

    #[test]
    fn what_is_in_the_home_is_as_safe_as_the_home() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        fs::create_dir_all(home.join(".cache/open")).unwrap();
        mode(&home, 0o777);
        let checked = |path: &str| check(&home.join(path).canonicalize().unwrap(), Some(&home));
        assert_eq!(checked(".cache"), Ok(()));
        mode(&home.join(".cache"), 0o777);
        assert!(checked(".cache/open").unwrap_err().contains("other users can write to"));
        assert!(check(&home.join(".cache"), None).is_err(), "as of any other folder");
    }

    #[test]
    fn files_are_those_that_were_meant_and_stay() {
        let place = tempfile::tempdir().unwrap();
        let private = Private::first(vec![place.path().join("p")]).unwrap();
        let files: [(&str, &[u8]); 2] = [("a.py", b"one"), ("b/c.py", b"two")];
        let folder = private.unpacked("hook", &files).unwrap();
        assert_eq!(fs::read_to_string(folder.join("b/c.py")).unwrap(), "two");
        let before = fs::metadata(folder.join("a.py")).unwrap().ino();
        fs::write(folder.join("b/c.py"), "changed").unwrap();
        assert_eq!(private.unpacked("hook", &files).unwrap(), folder);
        assert_eq!(fs::read_to_string(folder.join("b/c.py")).unwrap(), "two");
        assert_eq!(fs::metadata(folder.join("a.py")).unwrap().ino(), before, "an unchanged file is not rewritten");
        let newer = private.unpacked("hook", &[("a.py", b"newer")]).unwrap();
        assert!(newer != folder && folder.join("a.py").exists(), "a job may still use it");
    }
}
