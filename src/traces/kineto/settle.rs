//! Corrections that need all events.

use std::collections::{HashMap, HashSet};

use super::collect::Collector;
use crate::{CallKind, Range, RangeKind, Trace, Work, WorkKind};

/// Copies launch configurations that only launch calls have (AMD), and converts grids from threads to blocks.
pub(super) fn grids(collector: &mut Collector) {
    let Collector { trace, hip_launches, .. } = collector;
    for work in trace.work.iter_mut().filter(|work| work.kind == WorkKind::Kernel) {
        let Some(&(call, in_threads)) = hip_launches.get(&work.correlation) else { continue };
        let mut configuration = trace.configurations.get(work.configuration).clone();
        if configuration.grid.is_none() {
            let call = trace.configurations.get(call);
            (configuration.grid, configuration.block) = (call.grid, call.block);
        }
        if in_threads && let (Some(grid), Some(block)) = (&mut configuration.grid, configuration.block) {
            for (extent, threads) in grid.iter_mut().zip(block) {
                *extent = extent.div_ceil(threads);
            }
        }
        work.configuration = trace.configurations.number(configuration);
    }
}

/// Closes an optimizer range that was open when the profiler stopped, for example if a hook of the optimizer calls
/// `prof.step()`. PyTorch 2.1 writes it with zero length, 2.6 with a length. It ends with its step.
pub(super) fn ranges(trace: &mut Trace) {
    let named =
        |range: &Range, prefix: &str| range.kind == RangeKind::Annotation && trace.name(range.name).starts_with(prefix);
    let open = |range: &Range| range.end <= range.start && named(range, "Optimizer.step#");
    let mut steps: Vec<&Range> = trace.ranges.iter().filter(|range| named(range, "ProfilerStep")).collect();
    steps.sort_by(|a, b| a.thread.cmp(&b.thread).then(a.start.total_cmp(&b.start)));
    let ends: Vec<(usize, f64)> = trace
        .ranges
        .iter()
        .enumerate()
        .filter(|(_, range)| open(range))
        .filter_map(|(index, range)| {
            let after = steps.partition_point(|step| (step.thread, step.start) <= (range.thread, range.start));
            let around = steps[after.checked_sub(1)?];
            (around.thread == range.thread && range.start < around.end).then_some((index, around.end))
        })
        .collect();
    for (index, end) in ends {
        trace.ranges[index].end = end;
    }
}

/// Minimum share of the kernel launches for a process to count as a rank.
const RANK: f64 = 0.1;

/// Keeps one rank of a job whose ranks were merged into one file, and adds a note. Ranks use the same correlation ids,
/// so kernels of one would match calls of another.
pub(super) fn processes(trace: &mut Trace) {
    let process_of = trace.processes();
    let process = |thread: u32| process_of.get(&thread).copied().unwrap_or(0);
    let mut launches: HashMap<u32, usize> = HashMap::new();
    for launch in trace.launches.iter().filter(|launch| launch.kind == CallKind::Kernel) {
        *launches.entry(process(launch.thread)).or_default() += 1;
    }
    let all: usize = launches.values().sum();
    launches.retain(|_, count| *count as f64 >= RANK * all as f64);
    if launches.len() < 2 {
        return;
    }
    // Launches by correlation id, one per rank, in file order.
    let mut calls: HashMap<u64, Vec<(u32, f64)>> = HashMap::new();
    for launch in trace.launches.iter().filter(|launch| launches.contains_key(&process(launch.thread))) {
        let calls = calls.entry(launch.correlation).or_default();
        if !calls.iter().any(|(known, _)| *known == process(launch.thread)) {
            calls.push((process(launch.thread), launch.start));
        }
    }
    let owners = owners(trace, &calls);
    let mut times: HashMap<u32, f64> = HashMap::new();
    for (work, owner) in trace.work.iter().zip(&owners) {
        if let Some(owner) = owner {
            *times.entry(*owner).or_default() += work.end - work.start;
        }
    }
    let Some(main) = times.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0))).map(|(main, _)| *main) else {
        return;
    };
    let is_own = |thread: u32| process(thread) == main;
    let mut owners = owners.into_iter();
    trace.work.retain(|_| owners.next().flatten().is_none_or(|owner| owner == main));
    trace.ranges.retain(|range| is_own(range.thread));
    trace.marks.retain(|mark| is_own(mark.thread));
    trace.launches.retain(|launch| is_own(launch.thread));
    trace.kernels = trace.work.iter().filter(|work| work.kind == WorkKind::Kernel).count() as u64;
    trace.recorder.notes.push(format!(
        "the file has {} processes that launch kernels (merged ranks?): this is one of them; import one file per rank in one command for medians over the ranks",
        launches.len()
    ));
}

/// Process of each piece of work; `None` if no rank launched it.
fn owners(trace: &Trace, calls: &HashMap<u64, Vec<(u32, f64)>>) -> Vec<Option<u32>> {
    // The process that can have used each GPU: the one whose launches precede the kernels with the shortest waits.
    let mut waits: HashMap<(u32, u32), (usize, f64)> = HashMap::new();
    let mut count: HashMap<(u32, u64), usize> = HashMap::new();
    for work in &trace.work {
        *count.entry((work.device, work.correlation)).or_default() += 1;
        for (process, start) in calls.get(&work.correlation).into_iter().flatten() {
            let (early, wait) = waits.entry((work.device, *process)).or_default();
            *early += usize::from(work.start < *start);
            *wait += work.start - start;
        }
    }
    let devices: HashSet<u32> = waits.keys().map(|(device, _)| *device).collect();
    let owner_of: HashMap<u32, u32> = devices
        .iter()
        .filter_map(|device| {
            let of_device = waits.iter().filter(|((other, _), _)| other == device);
            let best = of_device.min_by(|(a, x), (b, y)| x.0.cmp(&y.0).then(x.1.total_cmp(&y.1)).then(a.1.cmp(&b.1)));
            best.map(|((_, process), _)| (*device, *process))
        })
        .collect();
    let mut seen: HashMap<u64, usize> = HashMap::new();
    let by_device = devices.len() > 1;
    let owner = |work: &Work| {
        let calls = calls.get(&work.correlation)?;
        if by_device {
            let owner = owner_of.get(&work.device).copied();
            return owner.filter(|owner| calls.iter().any(|(process, _)| process == owner)).or(Some(calls[0].0));
        }
        // Every rank calls its GPU 0: kernels with the same id are in rank order.
        let number = seen.entry(work.correlation).or_default();
        let each = count[&(work.device, work.correlation)].div_ceil(calls.len());
        *number += 1;
        calls.get((*number - 1) / each.max(1)).map(|(process, _)| *process)
    };
    trace.work.iter().map(owner).collect()
}

/// If several threads train at once, keeps the one with marked steps, provided that no device work was recorded; adds a
/// note either way.
pub(super) fn threads(trace: &mut Trace) {
    let spans = |prefix: &str| -> HashMap<u32, (f64, f64)> {
        let mut spans = HashMap::new();
        for range in trace.ranges.iter().filter(|range| range.kind == RangeKind::Annotation) {
            if trace.name(range.name).starts_with(prefix) {
                let span = spans.entry(range.thread).or_insert((range.start, range.end));
                *span = (span.0.min(range.start), span.1.max(range.end));
            }
        }
        spans
    };
    let updates = spans("Optimizer.step#");
    let marked = spans("ProfilerStep");
    let longest = |spans: &HashMap<u32, (f64, f64)>| {
        spans.iter().max_by(|a, b| (a.1.1 - a.1.0).total_cmp(&(b.1.1 - b.1.0)).then(b.0.cmp(a.0))).map(|one| *one.0)
    };
    let Some(main) = longest(&marked).filter(|main| updates.contains_key(main)).or_else(|| longest(&updates)) else {
        return;
    };
    let (from, to) = updates[&main];
    let others: HashSet<u32> = updates
        .iter()
        .filter(|(thread, span)| **thread != main && span.0 < to && from < span.1)
        .map(|(thread, _)| *thread)
        .collect();
    if others.is_empty() {
        return;
    }
    trace.recorder.notes.push(if trace.kernels == 0 {
        trace.ranges.retain(|range| !others.contains(&range.thread));
        format!("{} threads train at once: the profile contains only one of them", others.len() + 1)
    } else {
        format!("{} threads train at once: the profile contains the work of all of them", others.len() + 1)
    });
}
