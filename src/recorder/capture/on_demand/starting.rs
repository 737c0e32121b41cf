//! Processes that are just importing PyTorch, beside which nobody may listen.
//!
//! While it is imported, two threads of a process make a client of the daemon each, and one
//! closes the other's socket. Where nobody listens that does no harm. Where somebody does,
//! the other may have sent its first message and be waiting for the answer, and with
//! `PyTorch` 2.6 the process then ends: "Bad file descriptor" (seen in system calls; ranks of
//! torchrun nearly always). 2.15 bears it. So there is no socket while any process that would
//! come to it is in that state, or about to be: it is not there yet, or is taken away.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{endpoint, process};

/// How long after its start a Python is likely to import PyTorch.
const YOUNG: Duration = Duration::from_secs(10);
/// How long the import may take; one that takes longer has no such client.
const LOADING: Duration = Duration::from_secs(20);
/// How long after it made its socket a process is safe.
const SETTLING: Duration = Duration::from_secs(1);

/// What is known of the processes that would come to our socket.
#[derive(Debug, Default)]
pub(super) struct Starting {
    /// Sockets of clients, and when each was seen first. A child that was forked has its
    /// parent's, and makes none.
    sockets: BTreeMap<u64, Instant>,
    /// Processes that have loaded PyTorch and made no socket, and since when.
    loading: BTreeMap<u32, Instant>,
    /// Processes that are safe, with their start.
    safe: BTreeSet<(u32, u64)>,
}

impl Starting {
    /// A process beside which nobody may listen now, of those that poll in this folder (or
    /// at the daemon's abstract name).
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
            // It may import PyTorch at any time, and is looked at until then.
            None => return process::age(start).is_some_and(|age| age < YOUNG),
        };
        if is_done {
            self.safe.insert(one);
            self.loading.remove(&pid);
        }
        !is_done
    }
}
