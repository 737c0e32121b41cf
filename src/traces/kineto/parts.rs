//! Stores the packed events of a trace while it is read: in memory up to a limit, then in a temporary file (for traces
//! of several gigabytes).

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::pack::Extent;

/// Maximum bytes of packed events per trace: about 100 GB of text, more than any profiler writes.
const MOST: u64 = 4 << 30;
/// Maximum number of parts per trace: 4 TB of text in pieces. Only a crafted file has more lists of events.
const PARTS: usize = 1 << 20;

/// A temporary file.
pub trait Scratch: Read + Write + Seek + Send {}

impl<F: Read + Write + Seek + Send> Scratch for F {}

/// Where to store packed events that exceed the memory limit.
#[derive(Debug, Clone, Copy)]
pub struct Spill {
    /// Bytes of packed events that stay in memory.
    pub memory: usize,
    /// Creates a temporary file for the rest.
    pub open: fn() -> io::Result<Box<dyn Scratch>>,
}

struct Part {
    extent: Extent,
    packed: Packed,
}

enum Packed {
    Here(Vec<u8>),
    /// In the temporary file, at this offset in bytes.
    There {
        at: u64,
        length: usize,
    },
}

/// Packed parts of a trace, in order.
#[derive(Default)]
pub(super) struct Parts {
    list: Vec<Part>,
    /// Bytes in memory, and in the file.
    here: usize,
    there: u64,
    spill: Option<Spill>,
    scratch: Option<Box<dyn Scratch>>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("here", &self.here).field("there", &self.there).finish_non_exhaustive()
    }
}

impl Parts {
    /// Creates an empty store.
    pub(super) fn new(spill: Option<Spill>) -> Self {
        Self { spill, ..Self::default() }
    }

    pub(super) fn push(&mut self, mut packed: Vec<u8>, extent: Extent) -> io::Result<()> {
        let length = packed.len();
        if length == 0 {
            return Ok(());
        }
        if self.there > MOST || self.list.len() >= PARTS {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too many events for a trace; record fewer steps"));
        }
        let Some(spill) = self.spill.filter(|spill| self.here + length > spill.memory) else {
            packed.shrink_to_fit();
            self.here += length;
            self.list.push(Part { extent, packed: Packed::Here(packed) });
            return Ok(());
        };
        self.write(&packed, spill).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("a temporary file cannot be written: {error} (TMPDIR sets its folder)"),
            )
        })?;
        self.list.push(Part { extent, packed: Packed::There { at: self.there, length } });
        self.there += length as u64;
        Ok(())
    }

    fn write(&mut self, part: &[u8], spill: Spill) -> io::Result<()> {
        let file = match &mut self.scratch {
            Some(file) => file,
            none => none.insert((spill.open)()?),
        };
        file.write_all(part)
    }

    /// Calls `take` with each part that is `wanted`.
    pub(super) fn each(&mut self, wanted: impl Fn(&Extent) -> bool, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut buffer = Vec::new();
        for part in self.list.iter().filter(|part| wanted(&part.extent)) {
            match &part.packed {
                Packed::Here(packed) => take(packed),
                Packed::There { at, length } => {
                    buffer.resize(*length, 0);
                    if let Some(file) = &mut self.scratch {
                        file.seek(SeekFrom::Start(*at))?;
                        file.read_exact(&mut buffer)?;
                    }
                    take(&buffer);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_for_memory_comes_back_from_a_file() {
        let spill = Spill { memory: 8, open: || Ok(Box::new(io::Cursor::new(Vec::new()))) };
        let mut parts = Parts::new(Some(spill));
        let all: Vec<Vec<u8>> = (1..9).map(|length| vec![length; usize::from(length)]).collect();
        for part in &all {
            parts.push(part.clone(), Extent::default()).unwrap();
        }
        assert_eq!((parts.here, parts.there), (6, 30));
        for _ in 0..2 {
            let mut found = Vec::new();
            parts.each(|_| true, |part| found.push(part.to_vec())).unwrap();
            assert_eq!(found, all);
        }
        let mut none = Parts::new(Some(Spill { memory: 0, open: || Err(io::Error::other("no room")) }));
        let said = none.push(vec![1], Extent::default()).unwrap_err().to_string();
        assert!(said.contains("no room") && said.contains("TMPDIR"), "{said}");
    }

    #[test]
    fn parts_without_end_take_no_memory() {
        let mut parts = Parts::new(None);
        for _ in 0..10 {
            parts.push(Vec::new(), Extent::default()).unwrap();
        }
        assert!(parts.list.is_empty());
        parts.list.resize_with(PARTS, || Part { extent: Extent::default(), packed: Packed::Here(Vec::new()) });
        let said = parts.push(vec![1], Extent::default()).unwrap_err().to_string();
        assert!(said.contains("too many events"), "{said}");
    }
}
