//! Collects the records of a window, within bounds.
//!
//! The memory is that of the user's program: keeps at most [`MOST_WORK`] kernels, copies and fills, the same number of
//! calls, and [`MOST_NAMES`] bytes of names, and counts the rest. A failed allocation does not end the process.

use std::collections::HashMap;

use crate::record::{Launch, Record, Work};

/// Most kernels, copies and fills of a window (96 bytes each).
pub const MOST_WORK: usize = 1 << 20;
/// Most NVTX ranges of a window.
pub const MOST_RANGES: usize = 1 << 18;
/// Most bytes of names.
pub const MOST_NAMES: usize = 16 << 20;
/// Most bytes of a name.
pub const LONGEST_NAME: usize = 4096;

/// Work on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A kernel: its name's number and its configuration.
    Kernel(u32, Launch),
    /// A copy: direction and places, bytes.
    Copy([u8; 3], u64),
    /// A fill: bytes.
    Set(u64),
}

/// A call that launches work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Begin and end in nanoseconds.
    pub times: [u64; 2],
    /// Process and thread.
    pub thread: [u32; 2],
    /// Correlation id that it shares with its work.
    pub correlation: u32,
    /// Number of its function.
    pub function: u32,
    /// Whether it is of the driver's API, not the runtime's.
    pub driver: bool,
}

/// An NVTX range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Begin in nanoseconds.
    pub start: u64,
    /// End; `None` while it is open.
    pub end: Option<u64>,
    /// Process and thread.
    pub thread: [u32; 2],
    /// Its name's number.
    pub name: u32,
    id: u32,
}

/// Records of a window.
#[derive(Debug, Default)]
pub struct Collected {
    /// Work of devices.
    pub work: Vec<(Work, What)>,
    /// Calls that launch work.
    pub calls: Vec<Call>,
    /// NVTX ranges.
    pub ranges: Vec<Range>,
    /// Names by number.
    pub names: Vec<Box<[u8]>>,
    /// Kernels among the work.
    pub kernels: u64,
    /// Records that were dropped: over the bounds, or without usable times.
    pub lost: u64,
    numbers: HashMap<Box<[u8]>, u32>,
    name_bytes: usize,
    open: HashMap<u32, usize>,
    launches: HashMap<(bool, u32), bool>,
}

impl Collected {
    /// Whether no more work fits.
    pub fn is_full(&self) -> bool {
        self.work.len() >= MOST_WORK
    }

    /// Adds a record. `text` reads the C string at an address; `launches` returns whether a function, of the driver's
    /// API if true, can launch work.
    pub fn take(
        &mut self,
        record: Record,
        text: &mut dyn FnMut(usize) -> Option<Vec<u8>>,
        launches: &mut dyn FnMut(bool, u32) -> bool,
    ) {
        match record {
            Record::Kernel { work, launch, name } => {
                let Some(name) = self.name(text(name).unwrap_or_default()) else {
                    self.lost += 1;
                    return;
                };
                if self.work(work, What::Kernel(name, launch)) {
                    self.kernels += 1;
                }
            }
            Record::Copy { work, kinds, bytes } => drop(self.work(work, What::Copy(kinds, bytes))),
            Record::Set { work, bytes } => drop(self.work(work, What::Set(bytes))),
            Record::Call { times, thread, correlation, function, driver } => {
                let key = (driver, function);
                if !*self.launches.entry(key).or_insert_with(|| launches(driver, function)) {
                    return;
                }
                self.lost +=
                    u64::from(!push(&mut self.calls, Call { times, thread, correlation, function, driver }, MOST_WORK));
            }
            Record::Begin { time, id, thread, name } => {
                let name = text(name).and_then(|name| self.name(name));
                let Some(name) = name else { return };
                if push(&mut self.ranges, Range { start: time, end: None, thread, name, id }, MOST_RANGES) {
                    self.open.insert(id, self.ranges.len() - 1);
                }
            }
            Record::End { time, id } => {
                if let Some(range) = self.open.remove(&id).and_then(|index| self.ranges.get_mut(index)) {
                    range.end = Some(time);
                }
            }
        }
    }

    /// Keeps work with usable times; work that was cut off has an end of 0.
    fn work(&mut self, work: Work, what: What) -> bool {
        let kept = work.start > 0 && work.end >= work.start && push(&mut self.work, (work, what), MOST_WORK);
        self.lost += u64::from(!kept);
        kept
    }

    fn name(&mut self, mut text: Vec<u8>) -> Option<u32> {
        text.truncate(LONGEST_NAME);
        if let Some(number) = self.numbers.get(&text[..]) {
            return Some(*number);
        }
        if self.name_bytes + text.len() > MOST_NAMES {
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        self.name_bytes += text.len();
        let text = text.into_boxed_slice();
        self.names.push(text.clone());
        self.numbers.insert(text, number);
        Some(number)
    }
}

/// Adds to a list, if it is within bounds and memory suffices.
fn push<T>(list: &mut Vec<T>, item: T, most: usize) -> bool {
    let fits = list.len() < most && (list.len() < list.capacity() || list.try_reserve(list.len().max(64)).is_ok());
    if fits {
        list.push(item);
    }
    fits
}

/// Whether a function of this name can launch work on a device: `cudaLaunchKernel`, `cuGraphLaunch`, `cudaMemcpyAsync`,
/// `cuMemsetD8Async` …
pub fn launches_work(name: &[u8]) -> bool {
    ["aunch", "emcpy", "emset"].iter().any(|part| name.windows(part.len()).any(|window| window == part.as_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn work(start: u64, end: u64) -> Work {
        Work { start, end, device: 0, context: 1, stream: 7, correlation: 1, graph_node: 0 }
    }

    const LAUNCH: Launch = Launch { grid: [1; 3], block: [1; 3], registers: 1, static_shared: 0, dynamic_shared: 0 };

    #[test]
    fn names_are_kept_once_and_bad_times_counted() {
        let mut collected = Collected::default();
        let mut take = |record| {
            collected.take(record, &mut |at| (at != 0).then(|| vec![b'k'; at]), &mut |_, function| function == 5);
        };
        for name in [3, 3, 0] {
            take(Record::Kernel { work: work(1, 2), launch: LAUNCH, name });
        }
        take(Record::Kernel { work: work(5, 0), launch: LAUNCH, name: 3 });
        take(Record::Set { work: work(0, 0), bytes: 1 });
        for function in [4, 5] {
            take(Record::Call { times: [1, 2], thread: [1, 1], correlation: 1, function, driver: false });
        }
        assert_eq!((collected.kernels, collected.work.len(), collected.lost, collected.calls.len()), (3, 3, 2, 1));
        assert_eq!(collected.names.iter().map(|name| name.len()).collect::<Vec<_>>(), [3, 0]);
    }

    #[test]
    fn ranges_end_with_their_number() {
        let mut collected = Collected::default();
        let mut take = |record| collected.take(record, &mut |_| Some(b"step".to_vec()), &mut |_, _| true);
        take(Record::End { time: 1, id: 9 });
        take(Record::Begin { time: 2, id: 1, thread: [1, 1], name: 1 });
        take(Record::Begin { time: 3, id: 2, thread: [1, 1], name: 1 });
        take(Record::End { time: 4, id: 1 });
        let ends: Vec<_> = collected.ranges.iter().map(|range| range.end).collect();
        assert_eq!(ends, [Some(4), None]);
    }

    #[test]
    fn a_list_has_an_end() {
        let mut list = vec![0; 3];
        assert!(push(&mut list, 1, 4) && !push(&mut list, 1, 4));
        assert!(launches_work(b"cudaMemcpyAsync_v3020") && launches_work(b"cuLaunchKernel"));
        assert!(!launches_work(b"cudaStreamSynchronize_v3020") && !launches_work(b""));
    }
}
