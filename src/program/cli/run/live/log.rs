//! The file with the job's output: picks an unused name and reads the end.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::error::CliError;
use habitat_recorder::live::Tail;

/// Most bytes to read at a time.
const MOST: u64 = 1 << 18;

/// Creates an empty log next to the profile with a matching name. Never touches an existing file.
pub(super) fn reserve(profile: &Path) -> Result<PathBuf, CliError> {
    let name = profile.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split(".habitat.json").next().unwrap_or(&name);
    let stem = name.strip_suffix(".json").unwrap_or(name);
    for number in 1..10_000 {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        let path = profile.with_file_name(format!("{stem}{number}.log"));
        match File::create_new(&path) {
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(CliError::Refused(format!(
                    "{}: cannot be written: {error}; the job was not started (choose another file for its output with --log)",
                    path.display()
                )));
            }
        }
    }
    Err(CliError::Refused(format!("{stem}.log and its numbered variants all exist; choose another file with --log")))
}

/// Reader of the last lines of the file.
pub(super) struct Log {
    path: PathBuf,
    file: Option<File>,
    at: u64,
    tail: Tail,
}

impl Log {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None, at: 0, tail: Tail::default() }
    }

    /// Reads new output and returns whether there was any.
    pub(super) fn read(&mut self) -> bool {
        // Ignore errors: the job does not depend on the file.
        self.read_on().unwrap_or(false)
    }

    fn read_on(&mut self) -> std::io::Result<bool> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(&self.path)?),
        };
        let there = file.metadata()?;
        let length = there.len();
        if !there.is_file() || length == self.at {
            return Ok(false);
        }
        if length < self.at || length - self.at > MOST {
            // Truncated, or more than anyone could read.
            self.tail.skip();
            self.at = length.saturating_sub(MOST);
        }
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        self.at += file.take(length - self.at).read_to_end(&mut bytes)? as u64;
        self.tail.feed(&bytes);
        Ok(true)
    }

    /// The last lines.
    pub(super) fn lines(&self) -> Arc<Vec<String>> {
        Arc::new(self.tail.lines())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_log_is_named_like_the_profile_and_never_one_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let reserved = |name: &str| {
            let path = reserve(&folder.path().join(name)).unwrap();
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(reserved("train-2026-11-21.habitat.json.zst"), "train-2026-11-21.log");
        assert_eq!(reserved("train-2026-11-21.habitat.json.zst"), "train-2026-11-21-2.log");
        assert_eq!(reserved("p.json"), "p.log");
        assert!(reserve(&folder.path().join("no/such/p.json")).unwrap_err().to_string().contains("--log"));
    }

    #[test]
    fn the_end_is_read_as_it_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = Log::new(path.clone());
        assert!(!log.read(), "not there yet");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert!(log.read() && !log.read());
        file.write_all(b"o\n").unwrap();
        assert!(log.read());
        assert_eq!(*log.lines(), ["one", "two"]);
        file.write_all(&vec![b'x'; MOST as usize + 10]).unwrap();
        file.write_all(b"\nend\n").unwrap();
        assert!(log.read());
        assert!(log.lines().contains(&"… (left out)".to_owned()));
        assert_eq!(log.lines().last().unwrap(), "end");
        // Truncated, as by a tool that rotates logs.
        file.set_len(0).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        assert!(log.read());
        file.write_all(b"anew\n").unwrap();
        assert!(log.read());
        assert_eq!(log.lines().last().unwrap(), "anew");
    }
}
