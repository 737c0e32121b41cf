//! What can be put right only once all events are read.

use std::collections::{HashMap, HashSet};

use super::collect::Collector;
use crate::trace::{Range, RangeKind, Trace, WorkKind};

/// Takes the launch configurations that only the launch calls have (AMD), and brings
/// grids in threads to blocks.
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

/// Closes the optimizer's range that was open when the profiler stopped, as where
/// `prof.step()` is called by a hook of the optimizer: PyTorch 2.1 writes it with no length,
/// 2.6 with one. It lasts as long as its step.
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

/// Of trainings in threads beside one another, keeps the one whose steps are marked, where
/// no device took work of several; a note says so.
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
        format!("{} threads train at once: this is the one whose steps were counted", others.len() + 1)
    } else {
        format!("{} threads train at once: the profile holds the work of all of them", others.len() + 1)
    });
}
