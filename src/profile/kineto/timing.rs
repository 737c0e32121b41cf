//! What each step took, and which steps are alike enough to be one profile.

use super::collect::{DeviceKind, Records};
use super::join::Joined;
use super::steps::Span;

/// What the device did for one step.
#[derive(Debug, Clone, Default)]
pub(super) struct StepWork {
    pub(super) kernels: u64,
    pub(super) kernel_time: f64,
    /// Kernels, copies and fills.
    pub(super) device_time: f64,
    /// Union of their intervals.
    pub(super) busy: f64,
    pub(super) first: f64,
    pub(super) last: f64,
}

/// Adds up the work of every step.
pub(super) fn work_of(records: &Records, joined: &Joined, steps: usize) -> Vec<StepWork> {
    let mut intervals: Vec<Vec<(f64, f64)>> = vec![Vec::new(); steps];
    let mut work = vec![StepWork::default(); steps];
    for occurrence in &joined.occurrences {
        let step = occurrence.step as usize;
        for device in occurrence.work.iter().map(|index| &records.devices[*index as usize]) {
            let time = device.end - device.start;
            work[step].device_time += time;
            if device.kind == DeviceKind::Kernel {
                work[step].kernels += 1;
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
pub(super) fn choose(work: &[StepWork]) -> (Vec<usize>, Vec<String>) {
    let mut notes = Vec::new();
    let mut kept: Vec<usize> = (0..work.len()).filter(|step| work[*step].device_time > 0.0).collect();
    let empty = work.len() - kept.len();
    if empty > 0 && !kept.is_empty() {
        notes.push(format!("{empty} of {} steps launched nothing on the GPU and were left out", work.len()));
    }
    let mut alike = |kept: &mut Vec<usize>, measure: &dyn Fn(&StepWork) -> f64, tolerance: f64, what: &str| {
        let middle = median(kept.iter().map(|step| measure(&work[*step])));
        let (like, unlike): (Vec<usize>, Vec<usize>) =
            kept.iter().copied().partition(|step| (measure(&work[*step]) - middle).abs() <= tolerance * middle);
        // With two steps none can be told to be the odd one.
        if !unlike.is_empty() && like.len() > unlike.len() {
            notes.push(format!(
                "{} of {} steps differ in {what} by more than {:.0} % from the median (cut off, or warming up) and were left out",
                unlike.len(),
                kept.len(),
                tolerance * 100.0
            ));
            *kept = like;
        }
    };
    alike(&mut kept, &|work| work.kernels as f64, KERNEL_TOLERANCE, "their number of kernels");
    alike(&mut kept, &|work| work.device_time, TIME_TOLERANCE, "device time");
    (kept, notes)
}

/// Wall time of the steps in `kept`.
///
/// The time from the first device work of a step to the first device work of the next:
/// that is the rate at which steps complete. The host marks say the same once the queue
/// between host and device is full or always empty, but while it fills the host runs
/// ahead and its marks are too short. Where no step is followed by another, the longer of
/// the host range and the span of the device work.
pub(super) fn durations(spans: &[Span], work: &[StepWork], kept: &[usize]) -> Vec<f64> {
    let on_device: Vec<f64> = kept
        .iter()
        .filter(|step| spans[**step].followed && work.get(**step + 1).is_some_and(|next| next.device_time > 0.0))
        .map(|step| work[*step + 1].first - work[*step].first)
        .filter(|duration| *duration > 0.0)
        .collect();
    if !on_device.is_empty() {
        return on_device;
    }
    kept.iter().map(|step| spans[*step].duration.max(work[*step].last - work[*step].first)).collect()
}

/// The median; of an even number the mean of the two in the middle, 0 of none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_counts_overlap_once() {
        assert_eq!(union(&[(0.0, 4.0), (1.0, 2.0), (3.0, 6.0), (10.0, 11.0)]), 7.0);
    }

    #[test]
    fn odd_steps_are_left_out_if_they_are_few() {
        let step = |kernels, time| StepWork { kernels, device_time: time, ..StepWork::default() };
        let (kept, notes) = choose(&[step(4, 9.0), step(10, 20.0), step(10, 21.0), step(10, 60.0), step(10, 20.0)]);
        assert_eq!(kept, [1, 2, 4]);
        assert_eq!(notes.len(), 2);
        assert_eq!(choose(&[step(4, 9.0), step(10, 20.0)]).0, [0, 1]);
    }
}
