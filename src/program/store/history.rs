//! Files of a job's history. Each list ([`Level`]) has two files of at most [`RECORDS`] records, of which the older one is
//! replaced when the newer one is full; so what is kept is bounded, and never less than one file's worth.
//!
//! A file begins with 16 bytes: `HABH`, the version and the size of a record (two bytes each), and the number of the file
//! (eight bytes), all little-endian. Records follow, each with its own check sum.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::files::{self, StoreError, regular, there};
use super::jobs::JobFolder;
use habitat_recorder::live::history::{History, Level, Step, Stretch};

/// Most records of a file.
pub const RECORDS: usize = 20_000;
const MAGIC: &[u8; 4] = b"HABH";
const VERSION: u16 = 1;
const HEADER: usize = 16;

/// Writes the history of a job.
#[derive(Debug)]
pub struct HistoryWriter(Vec<List>);

/// Writer of one list.
#[derive(Debug)]
struct List {
    folder: JobFolder,
    level: Level,
    /// The file that is written.
    file: Option<File>,
    /// Number of the next file.
    next: u64,
    /// Records of the file.
    records: usize,
}

impl HistoryWriter {
    /// Writes to a folder without a history.
    pub fn new(folder: &JobFolder) -> Self {
        let list = |level| List { folder: folder.clone(), level, file: None, next: 0, records: 0 };
        Self(Level::ALL.map(list).into())
    }

    /// Appends records. Drops those that cannot be written; later ones may fit again.
    pub fn append(&mut self, records: &[(Level, Vec<u8>)]) {
        for list in &mut self.0 {
            let own: Vec<&[u8]> =
                records.iter().filter(|(level, _)| *level == list.level).map(|(_, bytes)| &**bytes).collect();
            let mut rest = &own[..];
            while !rest.is_empty() {
                let room = if list.file.is_some() { RECORDS.saturating_sub(list.records) } else { 0 };
                let (now, later) = rest.split_at(room.min(rest.len()));
                rest = later;
                let is_written = now.is_empty() || list.write(&now.concat()).is_ok();
                if !is_written || (!rest.is_empty() && list.begin().is_err()) {
                    break;
                }
            }
        }
    }
}

impl List {
    /// Begins another file, which replaces the older one.
    fn begin(&mut self) -> io::Result<()> {
        let bytes = u16::try_from(self.level.bytes()).unwrap_or_default();
        let header = [&MAGIC[..], &VERSION.to_le_bytes(), &bytes.to_le_bytes(), &self.next.to_le_bytes()].concat();
        let new = self.folder.file("history.new");
        let mut file = File::create(&new)?;
        file.write_all(&header)?;
        std::fs::rename(&new, path(&self.folder, self.level, self.next % 2))?;
        (self.file, self.records, self.next) = (Some(file), 0, self.next + 1);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let written = file.write_all(bytes);
        self.records += bytes.len() / self.level.bytes();
        if written.is_err() {
            self.recover();
        }
        written
    }

    /// After a full disk: keeps the whole records, and cuts off a part of one, which would displace all that follow. If
    /// that fails, the next records begin another file.
    fn recover(&mut self) {
        let size = self.level.bytes() as u64;
        let cut = |file: &mut File| {
            let records = file.metadata()?.len().saturating_sub(HEADER as u64) / size;
            let end = file.seek(SeekFrom::Start(HEADER as u64 + records * size))?;
            file.set_len(end).map(|()| records as usize)
        };
        match self.file.as_mut().map(cut) {
            Some(Ok(records)) => self.records = records,
            _ => self.file = None,
        }
    }
}

fn path(folder: &JobFolder, level: Level, part: u64) -> PathBuf {
    folder.file(&format!("{}.{part}", level.name()))
}

/// Reads the history of a job; empty if it has none. Leaves out damaged records.
///
/// # Errors
/// [`StoreError`] if a file cannot be read or is of another version.
pub fn read_history(folder: &JobFolder) -> Result<History, StoreError> {
    let mut reader = HistoryReader::new(folder);
    reader.read()?;
    Ok(reader.found)
}

/// Reads a history that grows: each time only what was appended since.
#[derive(Debug)]
pub struct HistoryReader {
    folder: JobFolder,
    found: History,
    parts: [Vec<Part>; 3],
}

/// A file of a list that was read.
#[derive(Debug, Clone, Copy)]
struct Part {
    order: u64,
    /// Place in the file up to which its records were read.
    end: u64,
    /// Records of it in the list.
    kept: usize,
}

impl HistoryReader {
    /// At the start of the file.
    pub fn new(folder: &JobFolder) -> Self {
        Self { folder: folder.clone(), found: History::default(), parts: Default::default() }
    }

    /// The history up to now.
    ///
    /// # Errors
    /// [`StoreError`] if a file cannot be read or is of another version.
    pub fn read(&mut self) -> Result<&History, StoreError> {
        let Self { folder, found, parts: [steps, minutes, hours] } = self;
        append(folder, Level::Steps, steps, &mut found.steps, Step::from_bytes)?;
        append(folder, Level::Minutes, minutes, &mut found.minutes, Stretch::from_bytes)?;
        append(folder, Level::Hours, hours, &mut found.hours, Stretch::from_bytes)?;
        Ok(found)
    }
}

/// Brings a list up to its files: drops records of files that another one replaced, and appends those behind the place of
/// the last reading.
fn append<T>(
    folder: &JobFolder,
    level: Level,
    known: &mut Vec<Part>,
    list: &mut Vec<T>,
    record: fn(&[u8]) -> Option<T>,
) -> Result<(), StoreError> {
    let mut parts = Vec::new();
    for part in 0..2 {
        parts.extend(header(&path(folder, level, part), level)?);
    }
    parts.sort_by_key(|(order, ..)| *order);
    // A file that became shorter is read anew.
    let is_there = |part: &Part| parts.iter().any(|(order, _, length)| part.order == *order && part.end <= *length);
    let replaced = known.iter().rposition(|part| !is_there(part)).map_or(0, |last| last + 1);
    let dropped: usize = known.drain(..replaced).map(|part| part.kept).sum();
    list.drain(..dropped);
    for (order, file, _) in parts {
        let at = known.iter().position(|part| part.order == order).unwrap_or_else(|| {
            known.push(Part { order, end: HEADER as u64, kept: 0 });
            known.len() - 1
        });
        let part = &mut known[at];
        let bytes = files::part(&file, part.end, (RECORDS * level.bytes()) as u64)
            .map_err(|error| StoreError::read(&path(folder, level, order % 2), error))?;
        let whole = bytes.chunks_exact(level.bytes());
        let length = bytes.len() - whole.remainder().len();
        let before = list.len();
        list.extend(whole.filter_map(record));
        part.kept += list.len() - before;
        part.end += length as u64;
    }
    Ok(())
}

/// Number, open file and length of a file of a list; `None` if it is missing or has no header yet.
fn header(path: &Path, level: Level) -> Result<Option<(u64, File, u64)>, StoreError> {
    let opened = regular(path).map_err(|error| StoreError::read(path, error));
    let Some(file) = there(opened)? else { return Ok(None) };
    let read = files::part(&file, 0, HEADER as u64).and_then(|header| Ok((header, file.metadata()?.len())));
    let (header, length) = read.map_err(|error| StoreError::read(path, error))?;
    if header.len() < HEADER {
        return Ok(None);
    }
    let number = |from: usize| u16::from_le_bytes([header[from], header[from + 1]]);
    if &header[..4] != MAGIC || number(4) != VERSION || usize::from(number(6)) != level.bytes() {
        return Err(StoreError::content(path, "is not a history that this version reads"));
    }
    let order = header[8..].iter().rev().fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
    Ok(Some((order, file, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Paths;
    use habitat_recorder::live::history::{Kind, Parts};

    fn step(number: u64) -> (Level, Vec<u8>) {
        let step = Step { step: number, at: 0, kind: Kind::Training, total: 1.0, parts: Parts::default() };
        (Level::Steps, step.to_bytes())
    }

    fn numbers(found: &History) -> Vec<u64> {
        found.steps.iter().map(|step| step.step).collect()
    }

    fn steps(folder: &JobFolder) -> Vec<u64> {
        numbers(&read_history(folder).unwrap())
    }

    #[test]
    fn the_last_records_stay_and_the_files_are_bounded() {
        let place = tempfile::tempdir().unwrap();
        let folder = JobFolder::reserve(&Paths::at(place.path()), "job").unwrap();
        assert_eq!(read_history(&folder).unwrap(), History::default());
        let mut writer = HistoryWriter::new(&folder);
        for from in (0..3 * RECORDS as u64 + 500).step_by(700) {
            writer.append(&(from..from + 700).map(step).collect::<Vec<_>>());
        }
        let kept = steps(&folder);
        assert!(kept.len() > RECORDS && kept.len() <= 2 * RECORDS, "{}", kept.len());
        assert!(kept.windows(2).all(|pair| pair[1] == pair[0] + 1));
        let bytes: u64 =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes <= (2 * (RECORDS * Level::Steps.bytes() + HEADER)) as u64, "{bytes}");
    }

    /// Steps, then what a reader reads each time, over several files: the same as a reader that starts anew.
    #[test]
    fn only_what_was_appended_is_read() {
        let place = tempfile::tempdir().unwrap();
        let folder = JobFolder::reserve(&Paths::at(place.path()), "job").unwrap();
        let (mut writer, mut reader) = (HistoryWriter::new(&folder), HistoryReader::new(&folder));
        assert!(numbers(reader.read().unwrap()).is_empty());
        for from in (0..4 * RECORDS as u64).step_by(3_001) {
            writer.append(&(from..from + 3_001).map(step).collect::<Vec<_>>());
            assert_eq!(numbers(reader.read().unwrap()), steps(&folder), "from {from}");
        }
        // Records are read once: later damage to them goes unseen.
        let (kept, files) = (steps(&folder), [0, 1].map(|part| path(&folder, Level::Steps, part)));
        let whole = files.each_ref().map(|path| std::fs::read(path).unwrap());
        for (path, whole) in files.iter().zip(&whole) {
            let holed = [&whole[..HEADER], &vec![0; whole.len() - HEADER]].concat();
            std::fs::write(path, holed).unwrap();
        }
        assert!(steps(&folder).is_empty() && numbers(reader.read().unwrap()) == kept);
        for (path, whole) in files.iter().zip(&whole) {
            std::fs::write(path, whole).unwrap();
        }
        // A reader that comes late, after both of its files were replaced.
        let mut late = HistoryReader::new(&folder);
        late.read().unwrap();
        writer.append(&(0..5 * RECORDS as u64).map(step).collect::<Vec<_>>());
        assert_eq!(numbers(late.read().unwrap()), steps(&folder));
        // A file that lost its end.
        let newest = [0, 1]
            .map(|part| path(&folder, Level::Steps, part))
            .into_iter()
            .max_by_key(|path| header(path, Level::Steps).unwrap().map(|(order, ..)| order));
        let newest = File::options().write(true).open(newest.unwrap()).unwrap();
        newest.set_len(newest.metadata().unwrap().len() - 5 * Level::Steps.bytes() as u64).unwrap();
        assert_eq!(numbers(late.read().unwrap()), steps(&folder));
    }

    /// The disk is full in the middle of a record: the whole ones before it stay, and later ones follow them.
    #[test]
    fn a_write_that_failed_in_part_displaces_nothing() {
        let place = tempfile::tempdir().unwrap();
        let folder = JobFolder::reserve(&Paths::at(place.path()), "job").unwrap();
        let (mut writer, mut reader) = (HistoryWriter::new(&folder), HistoryReader::new(&folder));
        writer.append(&[step(0), step(1)]);
        let list = writer.0.iter_mut().find(|list| list.level == Level::Steps).unwrap();
        let partial = &[step(2).1, step(3).1].concat()[..Level::Steps.bytes() + 7];
        list.file.as_mut().unwrap().write_all(partial).unwrap();
        assert_eq!(numbers(reader.read().unwrap()), [0, 1, 2]);
        list.recover();
        assert_eq!(list.records, 3);
        writer.append(&[step(4), step(5)]);
        assert_eq!(numbers(reader.read().unwrap()), [0, 1, 2, 4, 5]);
        assert_eq!(steps(&folder), [0, 1, 2, 4, 5]);
    }

    #[test]
    fn a_record_that_was_cut_off_is_dropped_wherever_it_was_cut() {
        let place = tempfile::tempdir().unwrap();
        let folder = JobFolder::reserve(&Paths::at(place.path()), "job").unwrap();
        HistoryWriter::new(&folder).append(&(0..10).map(step).collect::<Vec<_>>());
        let path = path(&folder, Level::Steps, 0);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let kept = length.saturating_sub(HEADER) / Level::Steps.bytes();
            assert_eq!(steps(&folder), (0..kept as u64).collect::<Vec<_>>(), "cut at {length}");
        }
        // A power failure may leave zeros in the middle.
        let mut holed = whole.clone();
        holed[HEADER + 2 * 40..HEADER + 4 * 40].fill(0);
        std::fs::write(&path, holed).unwrap();
        assert_eq!(steps(&folder), [0, 1, 4, 5, 6, 7, 8, 9]);
        std::fs::write(&path, b"HABH\x09\0\x28\0\0\0\0\0\0\0\0\0").unwrap();
        assert!(read_history(&folder).unwrap_err().to_string().contains("not a history that this version reads"));
    }
}
