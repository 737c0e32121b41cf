//! Events that are in a file twice, as where exports were joined: each counts once.

use std::collections::HashSet;
use std::hash::Hash;

use foldhash::fast::RandomState;

use crate::{Range, Trace, Work, WorkKind};

/// Records that are looked for a second time; if they have no twins, no others are compared.
const PROBES: usize = 256;

/// Removes ranges, launches and work that are in the trace twice, and says so in its notes.
pub(super) fn remove(trace: &mut Trace) {
    let work =
        |work: &Work| (work.start.to_bits(), work.end.to_bits(), work.correlation, work.name, work.stream, work.device);
    let range = |range: &Range| (range.start.to_bits(), range.end.to_bits(), range.thread, range.name, range.sequence);
    // A stream runs no kernel twice at one time, but an operator may call another of its name within
    // the whole microseconds of old traces.
    let is_twice =
        if trace.work.is_empty() { twins(&trace.ranges, range) > 0.5 } else { twins(&trace.work, work) > 0.0 };
    if !is_twice {
        return;
    }
    let before = trace.work.len() + trace.ranges.len() + trace.launches.len();
    keep_first(&mut trace.work, work);
    keep_first(&mut trace.ranges, range);
    keep_first(&mut trace.launches, |launch| (launch.start.to_bits(), launch.correlation, launch.thread));
    if !trace.is_part {
        trace.kernels = trace.work.iter().filter(|work| work.kind == WorkKind::Kernel).count() as u64;
    }
    let removed = before - trace.work.len() - trace.ranges.len() - trace.launches.len();
    trace.recorder.notes.push(format!("{removed} events are in the file twice: each counts once"));
}

/// The share of some records, spread over all, that are there again.
fn twins<T, K: Hash + Eq>(records: &[T], key: impl Fn(&T) -> K) -> f64 {
    let stride = records.len().div_ceil(PROBES).max(1);
    let probes: HashSet<K, RandomState> = records.iter().step_by(stride).map(&key).collect();
    let found = records.iter().filter(|record| probes.contains(&key(record))).count();
    found.saturating_sub(probes.len()) as f64 / probes.len().max(1) as f64
}

fn keep_first<T, K: Hash + Eq>(records: &mut Vec<T>, mut key: impl FnMut(&T) -> K) {
    let mut seen: HashSet<K, RandomState> = HashSet::default();
    records.retain(|record| seen.insert(key(record)));
}
