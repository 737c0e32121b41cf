//! Reading (decompressed where needed) and writing (all or nothing) of files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::profile::{Profile, ProfileError, Warning};

/// A file that cannot be used, with its name and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not to be opened or read.
    #[error("{}: {}", .path.display(), explain(.source))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not to be written; nothing was changed.
    #[error("{}: cannot be written: {source}; nothing was changed", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Already there.
    #[error("{}: exists already; give another name, or --force to replace it", .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Not a profile.
    #[error("{}: {source}", .path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ProfileError,
    },
    /// Something else wrong with its content.
    #[error("{}: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::IsADirectory => "is a folder, not a file".to_owned(),
        io::ErrorKind::UnexpectedEof => "is cut off in the middle; copy or export it again".to_owned(),
        // Of the decompressors.
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            format!("is damaged and cannot be decompressed ({error}); copy or export it again")
        }
        _ => error.to_string(),
    }
}

impl StoreError {
    /// A problem with a file's content.
    pub fn content(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Content { path: path.to_owned(), problem: problem.to_string() }
    }

    /// A file that cannot be read.
    pub fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}

/// How a file is compressed, told by its first bytes when reading and by its name when
/// writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compression {
    fn of_bytes(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    fn of_name(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            _ => Self::None,
        }
    }
}

fn decoder<'a>(mut reader: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match Compression::of_bytes(reader.fill_buf()?) {
        Compression::None => Box::new(reader),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(reader)),
        Compression::Zstd => Box::new(zstd::Decoder::with_buffer(reader)?),
    })
}

/// A reader of the file's decompressed content.
///
/// # Errors
/// As opening and reading a file.
pub fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    decoder(BufReader::with_capacity(1 << 16, file))
}

/// The whole (decompressed) content of a file of at most `largest` bytes.
///
/// # Errors
/// [`StoreError`] naming the file; where it is larger, too.
pub fn read_bounded(path: &Path, largest: u64) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|reader| reader.take(largest + 1).read_to_end(&mut bytes));
    read.map_err(|error| StoreError::read(path, error))?;
    if bytes.len() as u64 > largest {
        return Err(StoreError::content(path, format!("has more than {} MB; it cannot be such a file", largest >> 20)));
    }
    Ok(bytes)
}

/// Bytes in memory, decompressed.
///
/// # Errors
/// Where the compressed data is damaged.
pub fn decompress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    decoder(bytes)?.read_to_end(&mut out)?;
    Ok(out)
}

/// Reads a profile, compressed or not.
///
/// # Errors
/// [`StoreError`] naming the file, the field and the place.
pub fn read_profile(path: &Path) -> Result<(Profile, Vec<Warning>), StoreError> {
    let mut json = Vec::new();
    open(path).and_then(|mut reader| reader.read_to_end(&mut json)).map_err(|error| StoreError::read(path, error))?;
    Profile::from_json(&json).map_err(|source| StoreError::Profile { path: path.to_owned(), source })
}

/// Writes `bytes` to `path`, compressed as its name says, through a temporary file beside
/// it: either the whole new content is there afterwards, or the old file untouched.
///
/// # Errors
/// [`StoreError::Exists`] unless `replace`; [`StoreError::Write`] otherwise.
pub fn save_atomically(path: &Path, bytes: &[u8], replace: bool) -> Result<(), StoreError> {
    let failed = |source| StoreError::Write { path: path.to_owned(), source };
    if !replace && path.exists() {
        return Err(StoreError::Exists { path: path.to_owned() });
    }
    // A link is followed: what it names is replaced, not the link.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let there = std::fs::metadata(&target).ok();
    if there.as_ref().is_some_and(|there| !there.is_file() && !there.is_dir()) {
        // A pipe or a device cannot be replaced and has nothing to lose.
        let mut out = std::fs::OpenOptions::new().write(true).open(&target).map_err(failed)?;
        return compress(bytes, Compression::of_name(path), &mut out).map_err(failed);
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".habitat-tui-");
    // Temporary files are private; the finished one is as any new file, or as it was.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut temporary = builder.tempfile_in(folder).map_err(failed)?;
    if let Some(there) = there {
        temporary.as_file().set_permissions(there.permissions()).map_err(failed)?;
    }
    compress(bytes, Compression::of_name(path), temporary.as_file_mut()).map_err(failed)?;
    temporary.as_file().sync_all().map_err(failed)?;
    let persisted = if replace { temporary.persist(&target) } else { temporary.persist_noclobber(&target) };
    persisted.map(drop).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists { path: path.to_owned() },
        _ => failed(error.error),
    })
}

fn compress(bytes: &[u8], compression: Compression, out: &mut impl Write) -> io::Result<()> {
    match compression {
        Compression::None => out.write_all(bytes)?,
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(&mut *out, flate2::Compression::best());
            encoder.write_all(bytes)?;
            encoder.finish()?;
        }
        Compression::Zstd => zstd::stream::copy_encode(bytes, &mut *out, 19)?,
    }
    out.flush()
}

/// The files of a folder with that extension, by name; none where there is no folder.
pub(super) fn read_folder(folder: &Path, extension: &str) -> Result<Vec<(PathBuf, String)>, StoreError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::read(folder, error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| StoreError::read(folder, error))?.path();
        if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            std::fs::read_to_string(&path)
                .map(|text| (path.clone(), text))
                .map_err(|error| StoreError::read(&path, error))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_gzip_file_that_is_cut_off_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.json.gz");
        save_atomically(&path, &vec![b'x'; 100_000], false).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(
            read_profile(&path).unwrap_err().to_string().contains("cut off"),
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
