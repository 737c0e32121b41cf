//! Detects processes that are importing PyTorch, during which it is not safe to listen.
//!
//! During the import, two threads of a process create a client of the daemon each, and one closes the other's socket.
//! Without a listener this is harmless. With one, the other thread may have sent its first message and wait for the
//! reply, and with `PyTorch` 2.6 the process then ends: "Bad file descriptor" (seen in system calls; ranks of torchrun
//! almost always). 2.15 tolerates it. So while any process that would use our socket is in that state or about to enter
//! it, the socket is not created, or is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{endpoint, process};

/// Time after its start during which a Python is likely to import PyTorch.
const YOUNG: Duration = Duration::from_secs(10);
/// Maximum time for the import; a process that takes longer has no such client.
const LOADING: Duration = Duration::from_secs(20);
/// Time after the creation of its socket from which a process is safe.
const SETTLING: Duration = Duration::from_secs(1);

/// State of the processes that would use our socket.
#[derive(Debug, Default)]
pub(super) struct Starting {
    /// Sockets of clients, with the time each was first seen. A forked child has its parent's and creates none.
    sockets: BTreeMap<u64, Instant>,
    /// Processes that have loaded PyTorch but not created a socket, and since when.
    loading: BTreeMap<u32, Instant>,
    /// Safe processes, with their start time.
    safe: BTreeSet<(u32, u64)>,
}

impl Starting {
    /// A process that makes listening unsafe now, among those that use this folder (or the daemon's abstract name).
    pub(super) fn look(&mut self, folder: &Path, at_abstract_name: bool, now: Instant) -> Option<u32> {
        let all: Vec<(u32, u64)> = process::pythons().filter(|one| !self.safe.contains(one)).collect();
        let come_here = |pid: u32| process::meets(pid, folder, at_abstract_name) || process::is_contained(pid);
        let all: Vec<(u32, u64)> = all
            .into_iter()
            .filter(|(pid, _)| matches!(process::started(*pid), process::Started::With(_)) && come_here(*pid))
            .collect();
        if all.is_empty() {
            return None;
        }
        let inodes = endpoint::polling_inodes();
        all.into_iter().filter(|one| self.is_unsafe(*one, &inodes, now)).map(|(pid, _)| pid).last()
    }

    fn is_unsafe(&mut self, one: (u32, u64), inodes: &[u64], now: Instant) -> bool {
        let (pid, start) = one;
        let made = process::sockets(pid, inodes);
        let newest = made.iter().map(|inode| *self.sockets.entry(*inode).or_insert(now)).max();
        let is_done = match newest {
            Some(newest) => now.duration_since(newest) >= SETTLING,
            None if process::has_torch(pid) => now.duration_since(*self.loading.entry(pid).or_insert(now)) >= LOADING,
            // It may import PyTorch at any time, so keep checking it.
            None => return process::age(start).is_some_and(|age| age < YOUNG),
        };
        if is_done {
            self.safe.insert(one);
            self.loading.remove(&pid);
        }
        !is_done
    }
}
