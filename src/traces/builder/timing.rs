//! Times of each step.

use super::join::Joined;
use crate::{RangeKind, Span, Trace, WorkKind};
use habitat_base::regress::quantile;
use habitat_step::profile::Phase;

/// Device work of one step.
#[derive(Debug, Clone, Default)]
pub(super) struct StepWork {
    pub(super) kernels: u64,
    /// Number of operators that the host called, and of those that launched work.
    pub(super) operators: u64,
    pub(super) calls: u64,
    /// Number of launched kernels that are not in the recording.
    pub(super) lost: u64,
    /// Number of kernels without times.
    pub(super) untimed: u64,
    /// Number of kernels of the forward pass, and of work outside the training step.
    pub(super) forward: u64,
    pub(super) kernel_time: f64,
    /// Time of kernels, copies and fills.
    pub(super) device_time: f64,
    /// Union of their intervals.
    pub(super) busy: f64,
    pub(super) first: f64,
    pub(super) last: f64,
}

/// Sums the work of every step.
pub(super) fn work_of(trace: &Trace, joined: &Joined, spans: &[Span], lost: &[f64]) -> Vec<StepWork> {
    let mut intervals: Vec<Vec<Interval>> = vec![Vec::new(); spans.len()];
    let mut work = vec![StepWork::default(); spans.len()];
    for step in lost.iter().filter_map(|time| Span::at(spans, *time)) {
        work[step].lost += 1;
    }
    for operator in trace.ranges.iter().filter(|range| range.kind == RangeKind::Operator) {
        if let Some(step) = Span::at(spans, operator.start) {
            work[step].operators += 1;
        }
    }
    for occurrence in &joined.occurrences {
        let step = occurrence.step as usize;
        work[step].calls += u64::from(occurrence.operator.is_some());
        for device in occurrence.work.iter().map(|index| &trace.work[*index as usize]) {
            let time = device.end - device.start;
            work[step].device_time += time;
            if device.kind == WorkKind::Kernel {
                work[step].kernels += 1;
                work[step].forward += u64::from(matches!(occurrence.phase, Phase::Forward | Phase::Other));
                work[step].kernel_time += time;
            }
            if device.is_timed {
                intervals[step].push(Interval { start: device.start, end: device.end, communicates: false });
            } else {
                work[step].untimed += 1;
            }
        }
    }
    for (work, intervals) in work.iter_mut().zip(&mut intervals) {
        intervals.sort_by(|a, b| a.start.total_cmp(&b.start));
        work.busy = union(intervals.iter());
        work.first = intervals.first().map_or(0.0, |interval| interval.start);
        work.last = intervals.iter().map(|interval| interval.end).fold(work.first, f64::max);
    }
    work
}

/// Mean time over the kept steps in which the device only communicates; `None` without communication.
pub(super) fn exposed_communication(
    trace: &Trace,
    joined: &Joined,
    kept: &[usize],
    communicates: impl Fn(usize) -> bool,
) -> Option<f64> {
    if !(0..joined.occurrences.len()).any(&communicates) {
        return None;
    }
    let mut steps: Vec<Vec<Interval>> = vec![Vec::new(); kept.len()];
    for (place, occurrence) in joined.occurrences.iter().enumerate() {
        let Ok(step) = kept.binary_search(&(occurrence.step as usize)) else { continue };
        let communicates = communicates(place);
        let work = occurrence.work.iter().map(|index| &trace.work[*index as usize]);
        steps[step].extend(work.map(|work| Interval { start: work.start, end: work.end, communicates }));
    }
    let exposed = |intervals: &mut Vec<Interval>| {
        intervals.sort_by(|a, b| a.start.total_cmp(&b.start));
        union(intervals.iter()) - union(intervals.iter().filter(|interval| !interval.communicates))
    };
    Some(steps.iter_mut().map(exposed).sum::<f64>() / kept.len().max(1) as f64)
}

/// Interval of a piece of work.
#[derive(Debug, Clone, Copy)]
struct Interval {
    start: f64,
    end: f64,
    communicates: bool,
}

/// Length of the union of intervals sorted by start.
fn union<'a>(intervals: impl Iterator<Item = &'a Interval>) -> f64 {
    let mut covered_to = f64::NEG_INFINITY;
    let mut length = 0.0;
    for &Interval { start, end, .. } in intervals {
        length += (end - start.max(covered_to)).max(0.0);
        covered_to = covered_to.max(end);
    }
    length
}

/// Work of each step measured in host operators.
pub(super) fn operators_of(joined: &Joined, steps: usize) -> Vec<StepWork> {
    let mut work = vec![StepWork::default(); steps];
    for occurrence in &joined.occurrences {
        let work = &mut work[occurrence.step as usize];
        work.kernels += 1;
        work.forward += u64::from(occurrence.phase == Phase::Forward);
        work.device_time = 1.0;
    }
    work
}

/// Wall time and device busy time of one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wall {
    /// Start on the recorder's clock.
    pub(super) start: f64,
    pub(super) duration: f64,
    pub(super) busy: f64,
}

/// Wall time of the `kept` steps, and the device busy time within it.
///
/// A step lasts from the last device work of the previous step to its own last device work: that is the rate at which
/// steps complete. The host marks give the same rate once the queue between host and device is full or always empty,
/// but while it fills, the host runs ahead and its marks are too close. Prefetched copies make the *first* work of a
/// step a worse mark than the last. If no step follows another, uses the longer of the host range and the span of the
/// device work. This is also added if there are only one or two steps and one stalled, because their median would
/// include half of the stall.
pub(super) fn walls(spans: &[Span], work: &[StepWork], kept: &[usize], device: &Busy) -> Vec<Wall> {
    let after = |step: usize, strict: bool| {
        let before = &work[step.checked_sub(1).filter(|before| spans[*before].followed)?];
        // A step that lost its last kernels appears to end too early.
        let is_whole = !strict || before.lost + before.untimed <= work[step].lost + work[step].untimed;
        let (start, end) = (before.last, work[step].last);
        (is_whole && before.device_time > 0.0 && end > start).then(|| Wall {
            start,
            duration: end - start,
            busy: device.within(start, end),
        })
    };
    let alone = |step: usize| Wall {
        // A span for the whole trace has no start of its own.
        start: if spans[step].duration > 0.0 { spans[step].start.min(work[step].first) } else { work[step].first },
        duration: spans[step].duration.max(work[step].last - work[step].first),
        busy: work[step].busy,
    };
    let strict = kept.iter().any(|step| after(*step, true).is_some());
    // After a damaged step only a time that the steps themselves confirm: without its last kernels it would be too long.
    let longest = kept.iter().map(|step| alone(*step).duration).fold(0.0, f64::max);
    let (mut walls, mut others) = (Vec::new(), Vec::new());
    for step in kept {
        match after(*step, strict).filter(|wall| strict || wall.duration <= longest) {
            Some(wall) => walls.push(wall),
            None => others.push(alone(*step)),
        }
    }
    if walls.is_empty() {
        return others;
    }
    let least = walls.iter().chain(&others).map(|wall| wall.duration).fold(f64::INFINITY, f64::min);
    if walls.len() < FEW && walls.iter().any(|wall| wall.duration > STALLED * least) {
        walls.extend(others);
        if walls.len() < FEW {
            walls.retain(|wall| wall.duration <= STALLED * least);
        }
    }
    walls
}

/// Number of steps from which a single one does not move the median.
const FEW: usize = 3;
/// Multiple of the shortest step beyond which a step counts as stalled.
const STALLED: f64 = 1.5;

/// Busy intervals of a device.
pub(super) struct Busy {
    /// Disjoint intervals in order, each with the busy time before it.
    intervals: Vec<(f64, f64, f64)>,
}

impl Busy {
    pub(super) fn new(trace: &Trace, device: u32) -> Self {
        Self::of(trace.work.iter().filter(|event| event.device == device).map(|event| (event.start, event.end)))
    }

    /// The union of these intervals.
    pub(super) fn of(intervals: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut all: Vec<(f64, f64)> = intervals.collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut intervals: Vec<(f64, f64, f64)> = Vec::new();
        let mut before = 0.0;
        for (start, end) in all {
            match intervals.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                last => {
                    before += last.map_or(0.0, |last| last.1 - last.0);
                    intervals.push((start, end, before));
                }
            }
        }
        Self { intervals }
    }

    /// Whether there are no intervals.
    pub(super) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Busy time from `start` to `end`.
    pub(super) fn within(&self, start: f64, end: f64) -> f64 {
        self.until(end) - self.until(start)
    }

    fn until(&self, time: f64) -> f64 {
        let after = self.intervals.partition_point(|interval| interval.0 < time);
        after.checked_sub(1).map_or(0.0, |at| {
            let (start, end, before) = self.intervals[at];
            before + time.min(end) - start
        })
    }
}

/// The median; 0 without values.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile::median(&mut values.collect::<Vec<f64>>()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "sums of small whole numbers are exact")]

    use super::*;

    #[test]
    fn a_union_counts_overlap_once() {
        let intervals = [(0.0, 4.0), (1.0, 2.0), (3.0, 6.0), (10.0, 11.0)].map(|(start, end)| Interval {
            start,
            end,
            communicates: false,
        });
        assert_eq!(union(intervals.iter()), 7.0);
    }

    #[test]
    fn busy_time_is_that_within_the_window() {
        let busy = Busy { intervals: vec![(0.0, 4.0, 0.0), (6.0, 7.0, 4.0), (10.0, 12.0, 5.0)] };
        assert_eq!(busy.within(2.0, 11.0), 2.0 + 1.0 + 1.0);
        assert_eq!(busy.within(4.5, 5.5), 0.0);
        assert_eq!(busy.within(-1.0, 100.0), 7.0);
    }
}
