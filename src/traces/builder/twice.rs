//! Removes events that are in a file twice, for example if exports were concatenated.

use std::collections::HashSet;
use std::hash::Hash;

use foldhash::fast::RandomState;

use crate::{Range, Trace, Work, WorkKind};

/// Number of records to probe for duplicates; if none has one, the rest are not compared.
const PROBES: usize = 256;

/// Removes duplicate ranges, launches and work, and adds a note.
pub(super) fn remove(trace: &mut Trace) {
    let work =
        |work: &Work| (work.start.to_bits(), work.end.to_bits(), work.correlation, work.name, work.stream, work.device);
    let range = |range: &Range| (range.start.to_bits(), range.end.to_bits(), range.thread, range.name, range.sequence);
    // A stream never runs a kernel twice at the same time, but in old traces with whole microseconds an operator may
    // call another of the same name with equal times.
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
    trace.recorder.notes.push(format!("{removed} duplicate events in the file: each counts once"));
}

/// Share of some records, spread over all, that occur again.
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
