//! A folder that nobody but the user can change, and nobody else make anew.
//!
//! A job's Python loads our hook from a folder that the job's environment names for as long
//! as any of its processes lives, long after we have ended perhaps. Were that folder in one
//! that everybody can write to, such as `/tmp`, any other user could make it again as soon
//! as it was gone, and have their code run in the job. So it lies in the user's own cache
//! folder, and stays there. Sockets and traces lie there too: what is written to a folder
//! that somebody else made may go wherever a link in it points.
//!
//! What is in the home folder is as safe as the home folder: who can write there can change
//! the user's Python without us. Everything else from the root on must belong to the user or
//! to root and be writable by nobody else, or be a folder like `/tmp`, from which nobody can
//! remove what belongs to the user.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, Uid, User, geteuid};

use super::folder::{self, Folder};

/// Our folder's name in a cache or run-time folder.
const NAME: &str = "habitat-tui";
/// A folder that everybody may write to, and in which everybody can remove their own only.
const STICKY: u32 = 0o1000;

/// Our private folder.
#[derive(Debug, Clone)]
pub struct Private {
    path: PathBuf,
    /// Where else it could be.
    rest: Vec<PathBuf>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[error(
    "no folder was found that only you can change:{}\n  set XDG_CACHE_HOME to a folder of your own",
    .tried.iter().map(|(path, why)| format!("\n  {}: {why}", path.display())).collect::<Vec<_>>().concat()
)]
pub struct PrivateError {
    tried: Vec<(PathBuf, String)>,
}

impl Private {
    /// Our folder in the user's cache folder, or where that cannot be used in the cache
    /// folder of the home that the user database tells, or in `XDG_RUNTIME_DIR`.
    ///
    /// # Errors
    /// [`PrivateError`] with what was wrong with each of them.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another one, where something cannot be in this one.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn other(&self) -> Result<Self, PrivateError> {
        Self::first(self.rest.clone())
    }

    /// A folder in it for one recording. What recordings that were killed have left goes.
    pub(super) fn recording(&self) -> io::Result<Folder> {
        folder::remove_dead(&self.path);
        Folder::new(&self.path)
    }

    /// A folder in it that stays.
    ///
    /// # Errors
    /// Those of making it.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }

    /// The folder with exactly these files in it. It stays: a process may load them at any
    /// time, and other files have a folder of another name.
    pub(super) fn unpacked(&self, name: &str, files: &[(&str, &[u8])]) -> io::Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        files.hash(&mut hasher);
        let folder = self.path.join(format!("{name}-{:016x}", hasher.finish()));
        for (file, content) in files {
            let path = folder.join(file);
            if fs::read(&path).is_ok_and(|there| there == *content) {
                continue;
            }
            let parent = path.parent().unwrap_or(&folder);
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            // Whole or not at all: another job may load it at this moment.
            let mut new = tempfile::NamedTempFile::new_in(parent)?;
            new.write_all(content)?;
            new.persist(&path).map_err(|error| error.error)?;
        }
        Ok(folder)
    }
}

/// Makes the folder where it is not there, and checks it; its name without links.
fn prepare(place: &Path, home: Option<&Path>) -> Result<PathBuf, String> {
    let told = |error: io::Error| error.to_string();
    if !place.is_absolute() {
        return Err("is not an absolute path".to_owned());
    }
    // Nothing is made where it would be somebody else's.
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
    // It may be full, or of a file system that can only be read.
    tempfile::tempfile_in(&path).map_err(told)?;
    Ok(path)
}

/// Whether nobody else can change what is at `path` (a path without links), nor put
/// something else there; else who could, and where.
pub(super) fn check(path: &Path, home: Option<&Path>) -> Result<(), String> {
    let own = geteuid();
    let is_root_or_own = |uid: u32| uid == 0 || uid == own.as_raw() || is_unmapped(uid);
    let home = home.and_then(|home| home.canonicalize().ok());
    // Root is nobody's guest: in another's home it would leave folders that are not theirs.
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

/// Whether a group is the user's alone: many systems give each user one of the same name, and
/// let it write to what the user makes.
fn is_private_group(group: Gid, own: Uid) -> bool {
    let (Ok(Some(user)), Ok(Some(group))) = (User::from_uid(own), Group::from_gid(group)) else { return false };
    user.name == group.name && group.mem.iter().all(|member| *member == user.name)
}

/// Whether it stands for users whom our user namespace does not know: the root of the host,
/// seen from a container.
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
        // In one like /tmp nobody can take away what is ours.
        mode(&shared, 0o1777);
        assert!(Private::first(vec![shared.join("a")]).is_ok());
        // A link is followed once, and where it leads is what counts.
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
        assert_eq!(fs::metadata(folder.join("a.py")).unwrap().ino(), before, "what is right is left alone");
        let newer = private.unpacked("hook", &[("a.py", b"newer")]).unwrap();
        assert!(newer != folder && folder.join("a.py").exists(), "a job may still use it");
    }
}
