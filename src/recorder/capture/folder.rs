//! The folder of a recording, for the socket and the traces.
//!
//! It is removed with its [`Folder`]. A killed process leaves it behind, perhaps with traces of hundreds of megabytes;
//! the next recording removes it ([`remove_dead`]). A lock proves that a folder is dead: a file in it is locked while
//! its owner lives, and the kernel releases the lock however the owner ends. A job may outlive its recorder and still
//! write a trace, so a dead folder stays for a day after its last change.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::geteuid;

/// Prefix of folder names; six letters and digits follow.
const PREFIX: &str = "habitat-tui-";
const RANDOM: usize = 6;
/// Name of the file that is locked while the owner lives. A folder without it is never removed.
const LOCK: &str = "habitat-tui.lock";
/// Minimum time since the last change before a dead folder is removed.
const UNTOUCHED: Duration = Duration::from_secs(24 * 3600);

/// A folder that only this user can enter; removed when dropped.
#[derive(Debug)]
pub struct Folder {
    folder: tempfile::TempDir,
    /// `None` if the file system has no locks.
    lock: Option<Flock<File>>,
}

impl Folder {
    /// Creates a folder in `place`.
    ///
    /// # Errors
    /// Errors of creating a folder there.
    pub fn new(place: &Path) -> io::Result<Self> {
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(private).tempdir_in(place)?;
        let path = folder.path().join(LOCK);
        let lock = lock(&path).ok();
        if lock.is_none() {
            // An unlocked file would mean that its owner is dead.
            let _ = fs::remove_file(path);
        }
        Ok(Self { folder, lock })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the folder permanently, for the user.
    pub fn keep(&mut self) {
        self.folder.disable_cleanup(true);
        // Remove the file that marks the folder as removable before releasing the lock.
        if fs::remove_file(self.path().join(LOCK)).is_ok() {
            self.lock = None;
        }
    }
}

/// Opens a file that another process may have put there: rejects links, pipes and devices.
///
/// # Errors
/// Errors of opening it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let plainly = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(plainly).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is not a file")) }
}

/// Reads the whole content of such a file.
///
/// # Errors
/// Errors of [`open`] and of reading it.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of `/proc`; empty if it cannot be read.
pub(super) fn read_text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Content of the lock file: marks the folder as ours and names its owner's machine. A lock on a network file system
/// may not reflect owners on other machines.
fn mark() -> String {
    let machine = read_text("/proc/sys/kernel/hostname");
    format!("habitat-tui recording folder, version 2, of {}\n", machine.trim())
}

/// Creates and locks the lock file. Like all files that Rust opens, it is closed in the programs that we start, so no
/// child holds the lock.
fn lock(path: &Path) -> io::Result<Flock<File>> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    // Another process that checks the owner releases its lock at once.
    let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| io::Error::from(error))?;
    (&*lock).write_all(mark().as_bytes())?;
    Ok(lock)
}

/// Removes folders in `place` that belong to this user, were created by a [`Folder`] whose process is dead, and have
/// not changed for a day. Everything else, and everything that cannot be inspected, stays.
pub(super) fn remove_dead(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for path in entries.flatten().filter(|entry| is_named(&entry.file_name().to_string_lossy())).map(|it| it.path()) {
        if let Some(dead) = Dead::find(path, SystemTime::now()) {
            dead.remove();
        }
    }
}

fn is_named(name: &str) -> bool {
    let random = name.strip_prefix(PREFIX).unwrap_or_default();
    random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A folder whose owner is dead. We hold the lock, so no other process removes it.
struct Dead {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Dead {
    fn find(path: PathBuf, now: SystemTime) -> Option<Self> {
        let own = geteuid().as_raw();
        // If it is a link, this inspects the link itself.
        let there = fs::symlink_metadata(&path).ok()?;
        if !there.is_dir() || there.uid() != own || there.mode() & 0o7777 != 0o700 {
            return None;
        }
        let mut file = open(&path.join(LOCK)).ok()?;
        let known = file.metadata().ok()?;
        let (own_mark, mut mark) = (mark(), String::new());
        (&mut file).take(own_mark.len() as u64 + 1).read_to_string(&mut mark).ok()?;
        if known.uid() != own || mark != own_mark {
            return None;
        }
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()?;
        // Its owner may have kept it for the user in the meantime.
        let still = fs::symlink_metadata(path.join(LOCK)).ok()?;
        if (still.dev(), still.ino()) != (known.dev(), known.ino()) {
            return None;
        }
        let changed = fs::read_dir(&path).ok()?.map(|entry| entry?.metadata()?.modified());
        let last = changed.chain([there.modified()]).collect::<io::Result<Vec<_>>>().ok()?.into_iter().max()?;
        (now.duration_since(last).ok()? >= UNTOUCHED).then_some(Self { path, _lock: lock })
    }

    /// Removes the lock file last: if interrupted, the rest is found again.
    fn remove(self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for entry in entries.flatten().filter(|entry| entry.file_name() != LOCK) {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            // Neither follows links.
            let done = if is_folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
            if done.is_err() {
                return;
            }
        }
        let _ = fs::remove_file(self.path.join(LOCK));
        let _ = fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn age(path: &Path, by: Duration) {
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                age(&entry.unwrap().path(), by);
            }
        }
        if let Ok(file) = File::open(path) {
            file.set_modified(SystemTime::now() - by).unwrap();
        }
    }

    /// A folder with all files of a recording, whose owner was killed.
    fn left(place: &Path) -> PathBuf {
        let mut made = Folder::new(place).unwrap();
        let path = made.path().to_owned();
        for name in ["trace-7-1.json", "trace-1_7.json.tmp", "cupti-7-1.json.part"] {
            fs::write(path.join(name), "x").unwrap();
        }
        made.folder.disable_cleanup(true);
        path
    }

    const DAYS: Duration = Duration::from_secs(2 * 24 * 3600);

    #[test]
    fn what_a_killed_owner_left_is_removed_after_a_day() {
        let place = tempfile::tempdir().unwrap();
        let path = left(place.path());
        remove_dead(place.path());
        assert!(path.exists(), "it was touched today");
        age(&path, DAYS);
        age(&path.join("trace-7-1.json"), Duration::from_secs(3600));
        remove_dead(place.path());
        assert!(path.join("trace-7-1.json").exists(), "its trace was written an hour ago");
        age(&path, DAYS);
        remove_dead(place.path());
        assert!(!path.exists());
        // The socket has its own modification time, which cannot be set.
        let path = left(place.path());
        let _socket = UnixListener::bind(path.join("socket")).unwrap();
        age(&path, DAYS);
        let later = SystemTime::now() + DAYS;
        assert!(Dead::find(path.clone(), SystemTime::now()).is_none());
        Dead::find(path.clone(), later).unwrap().remove();
        assert!(!path.exists());
    }

    #[test]
    fn one_whose_owner_lives_or_that_was_kept_stays() {
        let place = tempfile::tempdir().unwrap();
        let mut living = Folder::new(place.path()).unwrap();
        fs::write(living.path().join("trace-7-1.json"), "x").unwrap();
        age(living.path(), DAYS);
        remove_dead(place.path());
        assert!(living.path().join("trace-7-1.json").exists());
        living.keep();
        let kept = living.path().to_owned();
        drop(living);
        age(&kept, DAYS);
        remove_dead(place.path());
        assert!(kept.join("trace-7-1.json").exists());
        let gone = Folder::new(place.path()).unwrap().path().to_owned();
        assert!(!gone.exists(), "it goes with its owner");
    }

    type Change = fn(&Path);

    #[test]
    fn whatever_is_not_provably_ours_stays() {
        let place = tempfile::tempdir().unwrap();
        let changes: [(&str, Change); 4] = [
            ("no mark", |path| fs::write(path.join(LOCK), "another program's").unwrap()),
            ("of another machine", |path| fs::write(path.join(LOCK), mark().replace(" of ", " of x")).unwrap()),
            ("no lock", |path| fs::remove_file(path.join(LOCK)).unwrap()),
            ("open to others", |path| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap()),
        ];
        let later = SystemTime::now() + DAYS;
        for (what, change) in changes {
            let path = left(place.path());
            change(&path);
            age(&path, DAYS);
            assert!(Dead::find(path, later).is_none(), "{what}");
        }
        // Links are not followed: neither the folder nor the lock file may be one.
        let elsewhere = tempfile::tempdir().unwrap();
        let path = left(elsewhere.path());
        symlink(&path, place.path().join("habitat-tui-aBc123")).unwrap();
        age(&path, DAYS);
        remove_dead(place.path());
        assert!(path.join("trace-7-1.json").exists());
        fs::rename(path.join(LOCK), elsewhere.path().join("lock")).unwrap();
        symlink(elsewhere.path().join("lock"), path.join(LOCK)).unwrap();
        age(&path, DAYS);
        assert!(Dead::find(path, later).is_none());
        for name in ["habitat-tui-attach-1000", "habitat-tui-", "habitat-tui-abc", "habitat-tuiabcdef", "x"] {
            assert!(!is_named(name), "{name}");
        }
    }
}
