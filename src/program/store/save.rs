//! Atomic writing of files.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::decompress::Compression;
use super::files::{STANDARD_INPUT, StoreError, check_pipe};

/// Writes `bytes` to `path`, compressed according to its name. Afterwards either the whole new content is there, or the
/// old file is unchanged. Links are followed, and their target is written even if it does not exist yet. If the system
/// supports it, the new file is unnamed until it is complete; to replace another file it briefly has a temporary name.
/// Removes temporary files that killed programs left in the folder.
///
/// # Errors
/// [`StoreError::Exists`] unless `replace`; [`StoreError::Write`] otherwise.
pub fn save_atomically(path: &Path, bytes: &[u8], replace: bool) -> Result<(), StoreError> {
    save(path, bytes, replace, false)
}

/// Same as [`save_atomically`], but the file is readable by this user only, even if it replaces one that others could
/// read.
///
/// # Errors
/// Errors of [`save_atomically`].
pub fn save_private(path: &Path, bytes: &[u8], replace: bool) -> Result<(), StoreError> {
    save(path, bytes, replace, true)
}

/// Replaces a small private file that is written again and again. A reader sees the old content or the new one. Unlike
/// [`save_private`] it does not wait for the disk: after a power failure the file may be empty.
///
/// # Errors
/// Errors of writing.
#[cfg(unix)]
pub(super) fn refresh(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

fn save(path: &Path, bytes: &[u8], replace: bool, private: bool) -> Result<(), StoreError> {
    let failed = |source| StoreError::Write { path: path.to_owned(), source };
    if path == Path::new(STANDARD_INPUT) {
        let problem = "not a file; write to /dev/stdout for standard output, or to ./- for a file of this name";
        return Err(StoreError::content(path, problem));
    }
    let content = compressed(bytes, Compression::from_name(path)).map_err(failed)?;
    if path == Path::new("/dev/stdout") {
        // Use the open descriptor: opening the path again would start writing at the beginning.
        let mut out = io::stdout().lock();
        return out.write_all(&content).and_then(|()| out.flush()).map_err(failed);
    }
    let target = target(path).map_err(failed)?;
    let there = std::fs::metadata(&target).ok();
    match &there {
        Some(there) if there.is_dir() => return Err(failed(io::Error::from(io::ErrorKind::IsADirectory))),
        Some(there) if !there.is_file() => {
            // A pipe or a device cannot be replaced, and has no content to lose.
            #[cfg(unix)]
            if std::os::unix::fs::FileTypeExt::is_fifo(&there.file_type()) {
                check_pipe(path).map_err(failed)?;
            }
            let mut out = std::fs::OpenOptions::new().write(true).open(&target).map_err(failed)?;
            return out.write_all(&content).map_err(failed);
        }
        Some(_) if !replace => return Err(StoreError::Exists { path: path.to_owned() }),
        _ => {}
    }
    #[cfg(unix)]
    let own = private.then(|| std::os::unix::fs::PermissionsExt::from_mode(0o600));
    #[cfg(not(unix))]
    let own = None;
    let permissions = own.or_else(|| there.map(|there| there.permissions()));
    replace_file(&target, &content, permissions, replace).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists { path: path.to_owned() },
        _ => failed(error),
    })
}

/// Rejects another user's link in a world-writable folder, as the kernel does with `fs.protected_symlinks` (proc(5)).
/// The kernel does not see our own resolution of links.
#[cfg(unix)]
fn check_link(path: &Path, link: &std::fs::Metadata, folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let folder = std::fs::metadata(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
    if may_follow(link.uid(), (folder.uid(), folder.mode()), nix::unistd::geteuid().as_raw()) {
        return Ok(());
    }
    let problem = format!(
        "{} is a link of user {} in a world-writable folder; name the file itself, or another folder",
        path.display(),
        link.uid()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Whether user `own` may follow a link of user `link` in a folder with this owner and mode.
#[cfg(unix)]
fn may_follow(link: u32, (owner, mode): (u32, u32), own: u32) -> bool {
    let is_shared = mode & 0o1002 == 0o1002;
    !is_shared || link == own || link == owner
}

/// Maximum number of links to follow, as in the system.
const LINKS: usize = 40;

/// Target of a path after following its links; it need not exist.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        let Some(there) = std::fs::symlink_metadata(&at).ok().filter(std::fs::Metadata::is_symlink) else {
            return Ok(at);
        };
        let folder = at.parent().unwrap_or(Path::new(""));
        #[cfg(unix)]
        check_link(&at, &there, folder)?;
        let link = std::fs::read_link(&at)?;
        at = folder.join(link);
    }
    Err(io::Error::other("too many links, possibly in a loop"))
}

fn replace_file(
    target: &Path,
    content: &[u8],
    permissions: Option<std::fs::Permissions>,
    replace: bool,
) -> io::Result<()> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let complete = |file: &mut File| -> io::Result<()> {
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.write_all(content)?;
        file.sync_all()
    };
    #[cfg(unix)]
    leftovers::sweep(folder);
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX);
    #[cfg(target_os = "linux")]
    if let Some(mut file) = nameless::create(folder) {
        // No other program can have it yet. Without locks in the file system, nothing is swept.
        let _ = file.try_lock();
        complete(&mut file)?;
        match nameless::name(&file, target) {
            Err(error) if replace && error.kind() == io::ErrorKind::AlreadyExists => {}
            named => return named,
        }
        let named = builder.make_in(folder, |path| nameless::name(&file, path))?;
        return named.persist(target).map(drop).map_err(|error| error.error);
    }
    // Temporary files are private; the finished file has the mode of a new file, or of the old one.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut temporary = builder.tempfile_in(folder)?;
    #[cfg(unix)]
    while !leftovers::is_kept(&temporary) {
        temporary = builder.tempfile_in(folder)?;
    }
    complete(temporary.as_file_mut())?;
    let persisted = if replace { temporary.persist(target) } else { temporary.persist_noclobber(target) };
    persisted.map(drop).map_err(|error| error.error)
}

/// Prefix of the names of temporary files, followed by six letters and digits.
const PREFIX: &str = ".habitat-tui-";

/// Removal of temporary files whose program was killed. A writer keeps its file locked until it has its final name, and
/// the kernel releases the lock when the writer ends, so an unlocked file is certainly abandoned.
#[cfg(unix)]
mod leftovers {
    use std::fs::{File, TryLockError};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use nix::fcntl::OFlag;

    const RANDOM: usize = 6;

    /// Locks a new file; `false` if another program took it for abandoned before it was locked, and removed it.
    pub(super) fn is_kept(new: &tempfile::NamedTempFile) -> bool {
        // Without locks in the file system, nothing is swept either.
        !matches!(new.as_file().try_lock(), Err(TryLockError::WouldBlock)) && new.path().exists()
    }

    /// Removes abandoned files in a folder. Skips those that cannot be examined.
    pub(super) fn sweep(folder: &Path) {
        let own = nix::unistd::geteuid().as_raw();
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten().filter(|entry| is_named(entry.file_name().as_encoded_bytes())) {
            // Metadata of the link itself, if it is one.
            let is_own = entry.metadata().is_ok_and(|there| there.is_file() && there.uid() == own);
            if is_own
                && let Some(file) = open(&entry.path())
                && file.try_lock().is_ok()
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn is_named(name: &[u8]) -> bool {
        let random = name.strip_prefix(super::PREFIX.as_bytes()).unwrap_or_default();
        random.len() == RANDOM && random.iter().all(u8::is_ascii_alphanumeric)
    }

    /// Network file systems grant locks only to those who may write.
    fn open(path: &Path) -> Option<File> {
        let plainly = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let open = |writes| File::options().read(true).write(writes).custom_flags(plainly).open(path);
        open(true).or_else(|_| open(false)).ok()
    }
}

/// Unnamed files, which get a name when they are complete.
#[cfg(target_os = "linux")]
mod nameless {
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;

    use nix::fcntl::{AT_FDCWD, AtFlags};
    use nix::libc::O_TMPFILE;
    use nix::unistd::linkat;

    /// Creates an unnamed file in a folder; `None` if that is not possible, or it could not be named (without /proc).
    /// The caller then tries a named file, which reports errors.
    pub(super) fn create(folder: &Path) -> Option<File> {
        let can_be_named = Path::new("/proc/self/fd").is_dir();
        let create = || OpenOptions::new().write(true).mode(0o666).custom_flags(O_TMPFILE).open(folder).ok();
        can_be_named.then(create).flatten()
    }

    pub(super) fn name(file: &File, path: &Path) -> io::Result<()> {
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(AT_FDCWD, open.as_str(), AT_FDCWD, path, AtFlags::AT_SYMLINK_FOLLOW)?)
    }
}

fn compressed(bytes: &[u8], compression: Compression) -> io::Result<std::borrow::Cow<'_, [u8]>> {
    Ok(match compression {
        Compression::None => bytes.into(),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(bytes)?;
            encoder.finish()?.into()
        }
        Compression::Zstd => zstd::stream::encode_all(bytes, 19)?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows the kernel's decision in `may_follow_link` (fs/namei.c).
    #[cfg(unix)]
    #[test]
    fn links_of_others_in_shared_folders_are_not_followed() {
        let tmp = (0, 0o41777);
        assert!(may_follow(1000, tmp, 1000), "our own link");
        assert!(may_follow(0, tmp, 1000), "the link of the folder's owner");
        assert!(!may_follow(1001, tmp, 1000) && !may_follow(1001, tmp, 0), "another user's link");
        assert!(may_follow(1001, (0, 0o40755), 1000) && may_follow(1001, (0, 0o41755), 1000), "nobody else can write");
        assert!(may_follow(1001, (0, 0o40777), 1000), "without the sticky bit, as the kernel does");
    }
    use crate::store::files::read_profile;

    #[test]
    fn what_is_written_is_read_back_in_every_compression() {
        let folder = tempfile::tempdir().unwrap();
        let json = br#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"}, "operations": [{"name": "aten::mm", "phase": "forward"}]}"#;
        for name in ["p.habitat.json", "p.habitat.json.gz", "p.habitat.json.zst"] {
            let path = folder.path().join(name);
            save_atomically(&path, json, false).unwrap();
            assert_eq!(read_profile(&path).unwrap().0.workload.name, "w", "{name}");
        }
    }

    #[test]
    fn nothing_is_replaced_unasked_and_no_temporary_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        save_atomically(&path, b"one", false).unwrap();
        assert!(matches!(save_atomically(&path, b"two", false), Err(StoreError::Exists { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        save_atomically(&path, b"two", true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_keep_pointing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("plan.toml"), folder.path().join("latest.toml"));
        std::fs::write(&file, b"one").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        save_atomically(&link, b"two", true).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        save_atomically(Path::new("/dev/null"), b"three", true).unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    }

    #[cfg(unix)]
    #[test]
    fn links_that_lead_nowhere_are_made_true_and_loops_refused() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("later.toml", at("dangling")).unwrap();
        save_atomically(&at("dangling"), b"one", false).unwrap();
        assert!(at("dangling").is_symlink());
        assert_eq!(std::fs::read(at("later.toml")).unwrap(), b"one");
        symlink("a", at("b")).unwrap();
        symlink("b", at("a")).unwrap();
        let said = save_atomically(&at("a"), b"one", true).unwrap_err().to_string();
        assert!(said.contains("links"), "{said}");
        symlink("/proc/nobody/x", at("c")).unwrap();
        assert!(matches!(save_atomically(&at("c"), b"one", true), Err(StoreError::Write { .. })));
        let said = save_atomically(Path::new("-"), b"one", true).unwrap_err().to_string();
        assert!(said.contains("/dev/stdout"), "{said}");
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a", "b", "c", "dangling", "later.toml"]);
    }

    /// An incomplete file has no name, so an interruption leaves nothing behind.
    #[cfg(target_os = "linux")]
    #[test]
    fn nothing_is_seen_before_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        if nameless::create(folder.path()).is_none() {
            return; // A file system without such files.
        }
        let path = folder.path().join("large.bin");
        let writer = {
            let path = path.clone();
            std::thread::spawn(move || save_atomically(&path, &vec![7; 64 << 20], false).unwrap())
        };
        while !writer.is_finished() {
            for entry in std::fs::read_dir(folder.path()).unwrap() {
                let entry = entry.unwrap();
                assert_eq!((entry.file_name(), entry.metadata().unwrap().len()), ("large.bin".into(), 64 << 20));
            }
        }
        writer.join().unwrap();
        assert!(path.exists());
    }
}
