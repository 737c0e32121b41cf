//! The file with the job's output: picks an unused name and reads the end.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::error::CliError;
use habitat_recorder::live::Tail;

/// Most bytes to read at a time.
const MOST: u64 = 1 << 18;

/// Creates an empty log next to the profile with a matching name. Never touches an existing file. Returns it and the
/// profile, which gets the log's number if `renames`: of two jobs that start at the same moment, each has its own.
pub(super) fn reserve(profile: &Path, renames: bool) -> Result<(PathBuf, PathBuf), CliError> {
    let whole = profile.file_name().unwrap_or_default().to_string_lossy();
    let name = whole.split(".habitat.json").next().unwrap_or(&whole);
    let stem = name.strip_suffix(".json").unwrap_or(name);
    let end = &whole[stem.len()..];
    for number in 1..10_000 {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        let path = profile.with_file_name(format!("{stem}{number}.log"));
        let own = profile.with_file_name(format!("{stem}{number}{end}"));
        if renames && own.exists() {
            continue;
        }
        match File::create_new(&path) {
            Ok(_) => return Ok((path, if renames { own } else { profile.to_owned() })),
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
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let reserved = |profile: &str, renames| {
            let (log, profile) = reserve(&folder.path().join(profile), renames).unwrap();
            [log, profile].map(name)
        };
        let train = "train-2026-11-21.habitat.json.zst";
        assert_eq!(reserved(train, true), ["train-2026-11-21.log", train]);
        assert_eq!(reserved(train, false), ["train-2026-11-21-2.log", train]);
        // Another job reserved the first names meanwhile, and the fourth profile is there without its log.
        File::create_new(folder.path().join("train-2026-11-21-4.habitat.json.zst")).unwrap();
        assert_eq!(reserved(train, true), ["train-2026-11-21-3.log", "train-2026-11-21-3.habitat.json.zst"]);
        assert_eq!(reserved(train, true), ["train-2026-11-21-5.log", "train-2026-11-21-5.habitat.json.zst"]);
        assert_eq!(reserved("p.json", false), ["p.log", "p.json"]);
        assert!(reserve(&folder.path().join("no/such/p.json"), true).unwrap_err().to_string().contains("--log"));
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
