//! Reading of files with decompression and size limits. The only place that reads files named by the user.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use super::decompress::{Bounded, Compression, Limit, decoder};
use habitat_step::profile::{Profile, ProfileError, Warning};

/// Error of a file, with its name and a remedy.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or read.
    #[error("{}: {}", .path.display(), explain(.source))]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file cannot be written, and is unchanged.
    #[error("{}: cannot be written: {source}; nothing was changed", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file already exists.
    #[error("{}: already exists; use another name, or --force to replace it", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a valid profile.
    #[error("{}: {source}", .path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// Problem with the profile.
        source: ProfileError,
    },
    /// The content has another problem.
    #[error("{}: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::IsADirectory => "is a folder, not a file".to_owned(),
        io::ErrorKind::NotADirectory => "no such file: a part of its path is not a folder".to_owned(),
        io::ErrorKind::WouldBlock => "has no data to read, like a pipe or a device; name a file".to_owned(),
        io::ErrorKind::UnexpectedEof => "is truncated; copy or export it again".to_owned(),
        // Errors of the decompressors.
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            format!("is damaged and cannot be decompressed ({error}); copy or export it again")
        }
        _ => error.to_string(),
    }
}

impl StoreError {
    /// Error for a problem with a file's content.
    pub fn content(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Content { path: path.to_owned(), problem: problem.to_string() }
    }

    /// Error for a file that cannot be read.
    pub fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}

/// Path that means standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// Whether the command line names this path, as an argument or as the value of a flag.
fn is_argument(path: &Path) -> bool {
    let path = path.as_os_str().as_encoded_bytes();
    std::env::args_os()
        .skip(1)
        .any(|argument| matches!(argument.as_encoded_bytes().strip_suffix(path), Some([] | [b'-', _] | [.., b'='])))
}

/// Rejects a pipe that the command line does not name. The user may intend one there, but a pipe that another file
/// names, or that lies in a folder, would be waited for.
///
/// # Errors
/// An error that says so.
pub(super) fn check_pipe(path: &Path) -> io::Result<()> {
    let problem = || io::Error::other("is a pipe, not a file; only the command line may name one");
    is_argument(path).then_some(()).ok_or_else(problem)
}

/// Opens a file as it is, or a pipe or `-` (standard input) through a temporary file. Every file that the program reads
/// is opened here.
fn raw(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    if path == Path::new(STANDARD_INPUT) && is_argument(path) {
        return spooled(path, || {
            if io::stdin().is_terminal() {
                return Err(io::Error::other("standard input is a terminal: name a file, or pipe one in"));
            }
            Ok(Box::new(io::stdin().lock()))
        });
    }
    let there = std::fs::metadata(path)?;
    if there.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = there.file_type();
        if kind.is_socket() {
            return Err(io::Error::other("is a socket, not a file"));
        }
        if kind.is_fifo() {
            check_pipe(path)?;
            return spooled(path, || pipe(path));
        }
    }
    if !there.is_file() {
        return Err(io::Error::other("is a device, not a file"));
    }
    Ok(Box::new(regular(path)?))
}

/// Opens a regular file, to read from any place of it.
pub(super) fn regular(path: &Path) -> io::Result<File> {
    let file = open_at_once(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("has become something other than a file")) }
}

/// Reads at most `most` bytes of a file, from the place `from` on.
#[cfg(unix)]
pub(super) fn part(mut file: &File, from: u64, most: u64) -> io::Result<Vec<u8>> {
    use std::io::{Seek, SeekFrom};

    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens without blocking: a pipe may have replaced the file, and some files of `/proc` and `/sys` have no data until
/// an event.
fn open_at_once(path: &Path) -> io::Result<File> {
    at_once(File::options().read(true)).open(path)
}

/// Options of opening without blocking.
pub(super) fn at_once(options: &mut OpenOptions) -> &OpenOptions {
    #[cfg(unix)]
    {
        use nix::fcntl::OFlag;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits());
    }
    options
}

/// Time to wait for a program to write to a pipe.
#[cfg(unix)]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// Opens a named pipe once a program writes to it.
#[cfg(unix)]
fn pipe(path: &Path) -> io::Result<Box<dyn Read>> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let mut file = open_at_once(path)?;
    let (mut first, until) = ([0], std::time::Instant::now() + PATIENCE);
    let length = loop {
        match file.read(&mut first) {
            Ok(0) if std::time::Instant::now() < until => std::thread::sleep(std::time::Duration::from_millis(10)),
            Ok(0) => {
                let seconds = PATIENCE.as_secs();
                return Err(io::Error::other(format!("is a pipe without a writer for {seconds} s")));
            }
            Ok(length) => break length,
            // Another program has it open and may write later.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break 0,
            Err(error) => return Err(error),
        }
    };
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(Box::new(io::Cursor::new(first).take(length as u64).chain(file)))
}

/// Contents of pipes by path.
static SPOOLED: Mutex<Vec<(PathBuf, Arc<File>)>> = Mutex::new(Vec::new());

/// Copies a pipe, which can be read only once, to an unnamed temporary file.
fn spooled(path: &Path, open: impl FnOnce() -> io::Result<Box<dyn Read>>) -> io::Result<Box<dyn Read + Send>> {
    let mut all = SPOOLED.lock().unwrap_or_else(PoisonError::into_inner);
    let file = if let Some((_, file)) = all.iter().find(|(known, _)| known == path) {
        file.clone()
    } else {
        let mut file = tempfile::tempfile()?;
        let mut content = Bounded::new(open()?, Limit::PIPE);
        io::copy(&mut content, &mut file)?;
        let file = Arc::new(file);
        all.push((path.to_owned(), file.clone()));
        file
    };
    Ok(Box::new(Spooled { file, at: 0 }))
}

/// Independent reader of a shared temporary file.
struct Spooled {
    file: Arc<File>,
    at: u64,
}

impl Read for Spooled {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        #[cfg(unix)]
        let read = std::os::unix::fs::FileExt::read_at(&*self.file, to, self.at)?;
        #[cfg(windows)]
        let read = std::os::windows::fs::FileExt::seek_read(&*self.file, to, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Opens a file for reading its decompressed content, up to the limit.
///
/// # Errors
/// Errors of opening and reading the file.
pub fn open(path: &Path, limit: Limit) -> io::Result<Box<dyn Read + Send>> {
    open_counted(path, limit, Arc::default())
}

/// Same as [`open`]; `count` receives the number of bytes read from the file before decompression.
///
/// # Errors
/// Errors of [`open`].
pub(super) fn open_counted(path: &Path, limit: Limit, count: Arc<AtomicU64>) -> io::Result<Box<dyn Read + Send>> {
    decoder(raw(path)?, limit, count)
}

/// Reads the whole (decompressed) content of a file.
///
/// # Errors
/// [`StoreError`] with the file, also if it exceeds the limit.
pub fn read(path: &Path, limit: Limit) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    let read = open(path, limit).and_then(|mut reader| reader.read_to_end(&mut bytes));
    read.map_err(|error| StoreError::read(path, error))?;
    Ok(bytes)
}

/// Same as [`read`], for text.
///
/// # Errors
/// Errors of [`read`], and an error if the content is not UTF-8.
pub fn read_text(path: &Path, limit: Limit) -> Result<String, StoreError> {
    String::from_utf8(read(path, limit)?).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count();
        StoreError::content(path, format!("line {line}: not UTF-8 text"))
    })
}

/// Reads a file without decompression, for hashes and for copies.
///
/// # Errors
/// Errors of [`read`].
pub fn read_as_it_is(path: &Path, limit: Limit) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    let read = raw(path).and_then(|from| Bounded::new(from, limit).read_to_end(&mut bytes));
    read.map_err(|error| StoreError::read(path, error))?;
    Ok(bytes)
}

/// Reads the first (decompressed) bytes of a file.
///
/// # Errors
/// Errors of [`read`].
pub fn beginning(path: &Path, length: u64) -> Result<Vec<u8>, StoreError> {
    let mut head = Vec::new();
    let read = open(path, Limit::TRACE).and_then(|reader| reader.take(length).read_to_end(&mut head));
    read.map_err(|error| StoreError::read(path, error))?;
    Ok(head)
}

/// Compression of a file.
///
/// # Errors
/// Errors of [`read`].
pub(super) fn compression(path: &Path) -> Result<Compression, StoreError> {
    let mut head = Vec::new();
    let read = raw(path).and_then(|from| from.take(4).read_to_end(&mut head));
    read.map_err(|error| StoreError::read(path, error))?;
    Ok(Compression::from_bytes(&head))
}

/// Error for an existing folder that cannot be entered, whose files are then treated as missing.
pub(super) fn closed(folder: &Path) -> Option<io::Error> {
    let error = std::fs::metadata(folder.join(".")).err()?;
    (error.kind() != io::ErrorKind::NotFound).then_some(error)
}

/// Turns a missing file into `None`.
///
/// # Errors
/// All other errors.
pub fn there<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(StoreError::Read { path, source })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
                || path.parent().is_some_and(|folder| closed(folder).is_some()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Decompresses bytes in memory.
///
/// # Errors
/// An error if the compressed data are damaged.
pub fn decompress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    decoder(bytes, Limit::WEIGHTS, Arc::default())?.read_to_end(&mut out)?;
    Ok(out)
}

/// Reads a profile, compressed or not.
///
/// # Errors
/// [`StoreError`] with the file, the field and the place.
pub fn read_profile(path: &Path) -> Result<(Profile, Vec<Warning>), StoreError> {
    let json = read(path, Limit::PROFILE)?;
    Profile::from_json(&json).map_err(|source| StoreError::Profile { path: path.to_owned(), source })
}

/// Reads the files in a folder with an extension, sorted by name; empty if the folder is missing.
pub(super) fn read_folder(folder: &Path, extension: &str) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let paths = names_in(folder, extension)?;
    paths.into_iter().map(|path| Ok((path.clone(), read_text(&path, Limit::CATALOG)?))).collect()
}

/// Paths of these files.
pub(super) fn names_in(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, StoreError> {
    let entries = std::fs::read_dir(folder).map_err(|error| StoreError::read(folder, error));
    let Some(entries) = there(entries)? else { return Ok(Vec::new()) };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| StoreError::read(folder, error))?.path();
        if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::save::save_atomically;

    #[test]
    fn a_small_file_that_holds_gigabytes_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        // 64 MB is the limit for a profile.
        let path = folder.path().join("p.habitat.json.zst");
        let content = zstd::stream::encode_all(std::io::repeat(b' ').take(3 << 30), 1).unwrap();
        assert!(content.len() < 400_000, "{}", content.len());
        std::fs::write(&path, content).unwrap();
        let said = read_profile(&path).unwrap_err().to_string();
        assert!(said.contains("p.habitat.json.zst: holds more than 64 MB") && said.contains("a profile"), "{said}");
        // A trace may have any size, but not this compression ratio.
        let mut trace = open(&path, Limit::TRACE).unwrap();
        let said = io::copy(&mut trace, &mut io::sink()).unwrap_err().to_string();
        assert!(said.contains("over 1000 times its size"), "{said}");
    }

    #[cfg(unix)]
    #[test]
    fn a_device_is_no_file_and_a_pipe_that_no_argument_names_is_not_waited_for() {
        let said = read(Path::new("/dev/zero"), Limit::PROFILE).unwrap_err().to_string();
        assert_eq!(said, "/dev/zero: is a device, not a file");
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let said = read(&pipe, Limit::PROFILE).unwrap_err().to_string();
        assert!(said.ends_with("is a pipe, not a file; only the command line may name one"), "{said}");
        let said = save_atomically(&pipe, b"x", true).unwrap_err().to_string();
        assert!(said.contains("cannot be written: is a pipe"), "{said}");
    }

    #[test]
    fn a_gzip_file_that_is_cut_off_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.json.gz");
        save_atomically(&path, &vec![b'x'; 100_000], false).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(
            read_profile(&path).unwrap_err().to_string().contains("truncated"),
            "{}",
            read_profile(&path).unwrap_err()
        );
    }

    #[test]
    fn a_folder_or_a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_profile(folder.path()).unwrap_err().to_string().contains("is a folder"));
        assert!(read_profile(&folder.path().join("x")).unwrap_err().to_string().ends_with("no such file"));
    }
}
