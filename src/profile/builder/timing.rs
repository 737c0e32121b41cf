//! What each step took, and which steps are alike enough to be one profile.

use super::join::Joined;
use crate::profile::Phase;
use crate::regress::quantile;
use crate::trace::{Span, Trace, WorkKind};

/// What the device did for one step.
#[derive(Debug, Clone, Default)]
pub(super) struct StepWork {
    pub(super) kernels: u64,
    /// Of the forward pass, and of what runs beside the training.
    pub(super) forward: u64,
    pub(super) kernel_time: f64,
    /// Kernels, copies and fills.
    pub(super) device_time: f64,
    /// Union of their intervals.
    pub(super) busy: f64,
    pub(super) first: f64,
    pub(super) last: f64,
}

/// Adds up the work of every step.
pub(super) fn work_of(trace: &Trace, joined: &Joined, steps: usize) -> Vec<StepWork> {
    let mut intervals: Vec<Vec<(f64, f64)>> = vec![Vec::new(); steps];
    let mut work = vec![StepWork::default(); steps];
    for occurrence in &joined.occurrences {
        let step = occurrence.step as usize;
        for device in occurrence.work.iter().map(|index| &trace.work[*index as usize]) {
            let time = device.end - device.start;
            work[step].device_time += time;
            if device.kind == WorkKind::Kernel {
                work[step].kernels += 1;
                work[step].forward += u64::from(matches!(occurrence.phase, Phase::Forward | Phase::Other));
                work[step].kernel_time += time;
            }
            intervals[step].push((device.start, device.end));
        }
    }
    for (work, intervals) in work.iter_mut().zip(&mut intervals) {
        intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
        work.busy = union(intervals);
        work.first = intervals.first().map_or(0.0, |interval| interval.0);
        work.last = intervals.iter().map(|interval| interval.1).fold(work.first, f64::max);
    }
    work
}

/// Length of the union of intervals sorted by start.
fn union(intervals: &[(f64, f64)]) -> f64 {
    let mut covered_to = f64::NEG_INFINITY;
    let mut length = 0.0;
    for &(start, end) in intervals {
        length += (end - start.max(covered_to)).max(0.0);
        covered_to = covered_to.max(end);
    }
    length
}

/// Kernels of a step may differ by this much from the median: a scheduler or a metric now
/// and then adds some.
const KERNEL_TOLERANCE: f64 = 0.1;
/// Device time of a step may differ by this much from the median.
const TIME_TOLERANCE: f64 = 0.25;

/// The steps to use, and why others are left out.
///
/// Steps whose backward pass and update are alike make the same step of the training. What
/// one of them has more of before that is something else, such as a validation, so the
/// shortest forward pass of them is the step's.
pub(super) fn choose(work: &[StepWork], spans: &[Span]) -> (Vec<usize>, Vec<String>) {
    let mut notes = Vec::new();
    let mut kept: Vec<usize> = (0..work.len()).filter(|step| work[*step].device_time > 0.0).collect();
    let empty = work.len() - kept.len();
    if empty > 0 && !kept.is_empty() {
        notes.push(format!("{empty} of {} steps have no work and were left out", work.len()));
    }
    let alike = |kept: &mut Vec<usize>,
                 notes: &mut Vec<String>,
                 measure: &dyn Fn(&StepWork) -> f64,
                 tolerance: f64,
                 what: &str| {
        let middle = median(kept.iter().map(|step| measure(&work[*step])));
        let (like, unlike): (Vec<usize>, Vec<usize>) =
            kept.iter().copied().partition(|step| (measure(&work[*step]) - middle).abs() <= tolerance * middle);
        // With two steps none can be told to be the odd one.
        if like.len() > unlike.len() {
            let why = format!("in {what} by more than {:.0} %", tolerance * 100.0);
            notes.extend(unlike.iter().map(|step| left_out(spans, *step, &like, &why)));
            *kept = like;
        } else if !unlike.is_empty() {
            notes.push(format!("the {} recorded steps differ in {what}: the profile is their mean", kept.len()));
        }
    };
    let rest = |work: &StepWork| (work.kernels - work.forward) as f64;
    alike(&mut kept, &mut notes, &rest, KERNEL_TOLERANCE, "backward pass and update");
    if kept.iter().any(|step| rest(&work[*step]) > 0.0) {
        let least = kept.iter().map(|step| work[*step].forward).min().unwrap_or(0) as f64;
        let (like, unlike): (Vec<usize>, Vec<usize>) =
            kept.iter().partition(|step| work[**step].forward as f64 <= (1.0 + KERNEL_TOLERANCE) * least);
        let why = "in operators before its backward pass: a validation, or longer sequences";
        notes.extend(unlike.iter().map(|step| left_out(spans, *step, &like, why)));
        kept = like;
    } else {
        alike(&mut kept, &mut notes, &|work| work.forward as f64, KERNEL_TOLERANCE, "number of operators");
    }
    alike(&mut kept, &mut notes, &|work| work.device_time, TIME_TOLERANCE, "device time");
    (kept, notes)
}

/// A step as it is called in notes.
pub(super) fn name(spans: &[Span], step: usize) -> String {
    match spans[step].number {
        Some(number) => format!("step {number}"),
        None => format!("step {} of the {} recorded", step + 1, spans.len()),
    }
}

/// Says that a step is left out, and why.
fn left_out(spans: &[Span], step: usize, like: &[usize], why: &str) -> String {
    let name = name(spans, step);
    let times = spans[step].duration / median(like.iter().map(|step| spans[*step].duration));
    if times.is_finite() && times >= 1.5 {
        let places = usize::from(times < 10.0);
        format!("{name} was left out: it took {times:.places$} times as long as the others, and differs {why}")
    } else {
        format!("{name} was left out: it differs {why}")
    }
}

/// What each step computes, in operators of the host.
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

/// Wall time and busy device time of one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wall {
    /// When it begins, on the recorder's clock.
    pub(super) start: f64,
    pub(super) duration: f64,
    pub(super) busy: f64,
}

/// Wall time of the steps in `kept`, and how much of it the device was busy.
///
/// A step lasts from the last device work of the step before to its own last device work:
/// that is the rate at which steps complete. The host marks say the same once the queue
/// between host and device is full or always empty, but while it fills the host runs
/// ahead and its marks are too short. Prefetched copies make the *first* work of a step
/// a worse mark than the last. Where no step follows another: the longer of the host range
/// and the span of the device work.
pub(super) fn walls(spans: &[Span], work: &[StepWork], kept: &[usize], device: &Busy) -> Vec<Wall> {
    let between: Vec<Wall> = kept
        .iter()
        .filter(|step| **step > 0 && spans[**step - 1].followed && work[**step - 1].device_time > 0.0)
        .map(|step| (work[*step - 1].last, work[*step].last))
        .filter(|(start, end)| end > start)
        .map(|(start, end)| Wall { start, duration: end - start, busy: device.within(start, end) })
        .collect();
    if !between.is_empty() {
        return between;
    }
    kept.iter()
        .map(|step| Wall {
            // A span that stands for the whole trace has no start of its own.
            start: if spans[*step].duration > 0.0 {
                spans[*step].start.min(work[*step].first)
            } else {
                work[*step].first
            },
            duration: spans[*step].duration.max(work[*step].last - work[*step].first),
            busy: work[*step].busy,
        })
        .collect()
}

/// When a device was busy, with whatever.
pub(super) struct Busy {
    /// Disjoint intervals in order, each with the busy time before it.
    intervals: Vec<(f64, f64, f64)>,
}

impl Busy {
    pub(super) fn new(trace: &Trace, device: u32) -> Self {
        Self::of(trace.work.iter().filter(|event| event.device == device).map(|event| (event.start, event.end)))
    }

    /// When anything of these intervals was on.
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

    /// Whether it never was.
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

/// The median, 0 of none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile::median(&mut values.collect::<Vec<f64>>()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "sums of small whole numbers are exact")]

    use super::*;

    #[test]
    fn a_union_counts_overlap_once() {
        assert_eq!(union(&[(0.0, 4.0), (1.0, 2.0), (3.0, 6.0), (10.0, 11.0)]), 7.0);
    }

    #[test]
    fn busy_time_is_that_within_the_window() {
        let busy = Busy { intervals: vec![(0.0, 4.0, 0.0), (6.0, 7.0, 4.0), (10.0, 12.0, 5.0)] };
        assert_eq!(busy.within(2.0, 11.0), 2.0 + 1.0 + 1.0);
        assert_eq!(busy.within(4.5, 5.5), 0.0);
        assert_eq!(busy.within(-1.0, 100.0), 7.0);
    }

    fn spans(durations: &[f64]) -> Vec<Span> {
        let span = |(number, duration): (u64, &f64)| Span {
            start: 0.0,
            end: *duration,
            duration: *duration,
            followed: true,
            number: Some(number),
        };
        (11..).zip(durations).map(span).collect()
    }

    #[test]
    fn odd_steps_are_left_out_if_they_are_few() {
        let step = |kernels, time| StepWork { kernels, device_time: time, ..StepWork::default() };
        let steps = [step(4, 9.0), step(10, 20.0), step(10, 21.0), step(10, 60.0), step(10, 20.0)];
        let (kept, notes) = choose(&steps, &spans(&[1.0, 2.0, 2.0, 6.0, 2.0]));
        assert_eq!(kept, [1, 2, 4]);
        assert_eq!(
            notes,
            [
                "step 11 was left out: it differs in backward pass and update by more than 10 %",
                "step 14 was left out: it took 3.0 times as long as the others, and differs in device time by more than 25 %"
            ]
        );
        let (kept, notes) = choose(&[step(4, 9.0), step(10, 20.0)], &spans(&[1.0, 2.0]));
        assert_eq!((kept.len(), notes.len()), (2, 2), "{notes:?}");
    }

    /// Whether it is in one of three steps or in two.
    #[test]
    fn a_validation_is_no_part_of_a_step() {
        let step = |forward| StepWork { kernels: forward + 20, forward, device_time: 1.0, ..StepWork::default() };
        let (kept, notes) = choose(&[step(9), step(477), step(9)], &spans(&[2.0, 52.0, 2.0]));
        assert_eq!(kept, [0, 2]);
        assert!(notes[0].starts_with("step 12 was left out: it took 26 times as long as the others"), "{notes:?}");
        let (kept, notes) = choose(&[step(477), step(9), step(477)], &spans(&[52.0, 2.0, 52.0]));
        assert_eq!((kept, notes.len()), (vec![1], 2), "{notes:?}");
    }
}
