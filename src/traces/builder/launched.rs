//! Finds the launch of every kernel, copy and fill.
//!
//! Work is matched to the call that launched it by correlation id. Some work has no recorded call: PyTorch before 2.1
//! did not record driver launches (those of Triton kernels), records get lost, and some AMD traces have no correlation
//! ids. A stream runs its work in order, so such work was launched between its neighbours on the stream.

use std::collections::{HashMap, HashSet};

use super::Map;
use super::nest::{NO_RANGE, Nesting};
use crate::{CallKind, Trace, WorkKind};

/// Device work and its launch.
pub(super) struct Launched {
    /// Start of the call.
    pub(super) time: f64,
    /// Index of the call in `trace.launches`; `None` if it was not recorded.
    pub(super) call: Option<u32>,
    /// Index of the work in `trace.work`.
    pub(super) device: u32,
    /// Innermost host range around the call.
    pub(super) range: u32,
    /// Thread of the call.
    pub(super) thread: u32,
}

/// The launches of a trace.
#[derive(Default)]
pub(super) struct Launches {
    /// Launches in order of time.
    pub(super) list: Vec<Launched>,
    /// Number of kernels launched before the recording began.
    pub(super) before: u64,
    /// Number of kernels without a call, assigned by their time.
    pub(super) by_time: u64,
    /// Times of launches whose kernels are not in the recording, and starts of kernels left out that may belong to the
    /// step they ran in, in order.
    pub(super) lost: Vec<f64>,
}

impl Launches {
    /// Finds the launch of all work.
    pub(super) fn new(trace: &Trace, nesting: &Nesting) -> Self {
        let mut calls: Map<u64, (u32, bool)> = Map::default();
        calls.reserve(trace.launches.len());
        for (index, launch) in (0..).zip(&trace.launches) {
            calls.entry(launch.correlation).or_insert((index, false));
        }
        let mut launches = Self { list: Vec::with_capacity(trace.work.len()), ..Self::default() };
        let mut without: Vec<u32> = Vec::new();
        for (device, work) in (0..).zip(&trace.work) {
            if let Some((call, has_work)) = calls.get_mut(&work.correlation) {
                *has_work = true;
                let launch = &trace.launches[*call as usize];
                let range = nesting.of_launch[*call as usize];
                launches.list.push(Launched {
                    time: launch.start,
                    call: Some(*call),
                    device,
                    range,
                    thread: launch.thread,
                });
            } else if trace.launches.is_empty() {
                // If no call was recorded at all, use the time on the device.
                launches.list.push(Launched { time: work.start, call: None, device, range: NO_RANGE, thread: 0 });
            } else {
                without.push(device);
            }
        }
        let has_no_kernel = |(call, has_work): &(u32, bool)| {
            !has_work && matches!(trace.launches[*call as usize].kind, CallKind::Kernel | CallKind::Graph)
        };
        let mut lost: Vec<u32> = calls.into_values().filter(has_no_kernel).map(|(call, _)| call).collect();
        let time = |call: &u32| trace.launches[*call as usize].start;
        lost.sort_by(|a, b| time(a).total_cmp(&time(b)));
        if !without.is_empty() {
            launches.add_by_time(trace, nesting, without, &mut lost);
        }
        launches.lost.extend(lost.iter().map(time));
        launches.lost.sort_by(f64::total_cmp);
        let start = |launched: &Launched| trace.work[launched.device as usize].start;
        launches.list.sort_by(|a, b| a.time.total_cmp(&b.time).then_with(|| start(a).total_cmp(&start(b))));
        launches
    }

    /// Adds work without a recorded call, and removes the calls from `lost` that must have launched it.
    fn add_by_time(&mut self, trace: &Trace, nesting: &Nesting, mut without: Vec<u32>, lost: &mut Vec<u32>) {
        let start = |device: &u32| trace.work[*device as usize].start;
        without.sort_by(|a, b| start(a).total_cmp(&start(b)));
        let neighbours = Neighbours::new(trace, &self.list, &without);
        let is_lone = self.list.is_empty();
        // A stream runs its work in order: no work was launched before the work that ran before it.
        let mut latest: HashMap<(u32, u32), f64> = HashMap::new();
        let (mut earlier, mut unlaunched) = (Vec::new(), HashSet::new());
        for device in without {
            let work = &trace.work[device as usize];
            let is_kernel = work.kind == WorkKind::Kernel;
            let (before, after) = neighbours.around(work.device, work.stream, work.start);
            let previous = latest.entry((work.device, work.stream)).or_insert(f64::NEG_INFINITY);
            let from = before.map_or(f64::NEG_INFINITY, |known| known.time);
            let to = after.map_or(f64::INFINITY, |known| known.time).min(work.start);
            let first = lost.partition_point(|call| trace.launches[*call as usize].start < from);
            let call = lost.get(first).copied().filter(|call| {
                let launch = &trace.launches[*call as usize];
                is_kernel && work.is_timed && launch.kind == CallKind::Kernel && launch.start <= to
            });
            let (time, range, thread) = if let Some(call) = call {
                lost.remove(first);
                let launch = &trace.launches[call as usize];
                (launch.start, nesting.of_launch[call as usize], launch.thread)
            } else if let Some((time, thread)) = neighbours.launch(work.device, work.stream, work.start) {
                self.by_time += u64::from(is_kernel);
                unlaunched.insert(work.name);
                (time.max(previous.min(to)), NO_RANGE, thread)
            } else if is_lone {
                // No work has a call.
                self.by_time += u64::from(is_kernel);
                (work.start, NO_RANGE, 0)
            } else {
                self.before += u64::from(is_kernel);
                earlier.extend(is_kernel.then_some(work));
                continue;
            };
            *previous = previous.max(time);
            self.list.push(Launched { time, call, device, range, thread });
        }
        // Later kernels of the name have no launch either, so these need not be from before the recording.
        let uncertain = earlier.iter().filter(|work| unlaunched.contains(&work.name));
        self.lost.extend(uncertain.map(|work| work.start));
    }
}

/// Idle time of a device, µs, after which work was launched just before it ran: longer than the pauses between queued
/// kernels.
const IDLE: f64 = 10.0;
/// Longest time from a launch to its work on an idle device, µs.
const LATENCY: f64 = 5.0;

/// Work with a known launch: device start, launch time and launching thread.
#[derive(Clone, Copy)]
struct Known {
    start: f64,
    time: f64,
    thread: u32,
}

/// Work with known launches, for placing work without.
struct Neighbours {
    /// By device and stream, in order of start.
    streams: HashMap<(u32, u32), Vec<Known>>,
    /// By device, over all its streams.
    devices: HashMap<u32, Vec<Known>>,
    /// Time by which all work launched before the recording had started, given the longest lag of the device.
    drained: f64,
    /// Shortest time from a launch to its work.
    delay: f64,
    /// By device, starts of work that ran after the device had been idle, in order.
    woken: HashMap<u32, Vec<f64>>,
}

impl Neighbours {
    fn new(trace: &Trace, list: &[Launched], without: &[u32]) -> Self {
        let streams = without.iter().map(|device| &trace.work[*device as usize]);
        let mut streams: HashMap<(u32, u32), Vec<Known>> =
            streams.map(|work| ((work.device, work.stream), Vec::new())).collect();
        let mut devices: HashMap<u32, Vec<Known>> = streams.keys().map(|key| (key.0, Vec::new())).collect();
        let (mut delay, mut longest) = (f64::INFINITY, 0.0_f64);
        for launched in list {
            let work = &trace.work[launched.device as usize];
            if !work.is_timed {
                continue;
            }
            let known = Known { start: work.start, time: launched.time, thread: launched.thread };
            delay = delay.min((known.start - known.time).max(0.0));
            longest = longest.max(known.start - known.time);
            if let Some(stream) = streams.get_mut(&(work.device, work.stream)) {
                stream.push(known);
            }
            if let Some(device) = devices.get_mut(&work.device) {
                device.push(known);
            }
        }
        for list in streams.values_mut().chain(devices.values_mut()) {
            list.sort_by(|a, b| a.start.total_cmp(&b.start));
        }
        let began = trace.launches.iter().map(|launch| launch.start).fold(f64::INFINITY, f64::min);
        let delay = if delay.is_finite() { delay } else { 0.0 };
        let woken = devices.keys().map(|device| (*device, woken(trace, *device))).collect();
        Self { streams, devices, drained: began + longest, delay, woken }
    }

    /// Whether the device was idle before work that started at `start`.
    fn was_idle(&self, device: u32, start: f64) -> bool {
        self.woken.get(&device).is_some_and(|woken| woken.binary_search_by(|one| one.total_cmp(&start)).is_ok())
    }

    /// Work on the stream before and after work that started at `start`.
    fn around(&self, device: u32, stream: u32, start: f64) -> (Option<Known>, Option<Known>) {
        let own = self.streams.get(&(device, stream)).map_or(&[][..], Vec::as_slice);
        let after = own.partition_point(|known| known.start <= start);
        (after.checked_sub(1).map(|before| own[before]), own.get(after).copied())
    }

    /// Launch time and thread of work that started at `start`; `None` if it was launched before the recording.
    fn launch(&self, device: u32, stream: u32, start: f64) -> Option<(f64, u32)> {
        let own = self.streams.get(&(device, stream)).map_or(&[][..], Vec::as_slice);
        let is_after_first = own.first().is_some_and(|first| first.start <= start);
        let is_before_last = own.last().is_some_and(|last| last.start > start);
        let was_idle = self.was_idle(device, start);
        if is_after_first && is_before_last {
            return self.between(own, start, was_idle);
        }
        if !is_after_first && is_before_last && start <= self.drained {
            return None;
        }
        self.between(self.devices.get(&device)?, start, was_idle)
    }

    /// Launch time estimated from the work before and after it.
    fn between(&self, list: &[Known], start: f64, was_idle: bool) -> Option<(f64, u32)> {
        let after = list.partition_point(|known| known.start <= start);
        let before = list[after.checked_sub(1)?];
        // A device that does not lag runs work as soon as it is launched, and so does one that was idle. For a lagging
        // device the launch time is unknown; the previous launch is the nearest known one.
        let soon = start - if was_idle { self.delay.min(LATENCY) } else { self.delay };
        let time = match list.get(after) {
            None if was_idle => soon.max(before.time),
            Some(next) if was_idle => soon.min(next.time).max(before.time),
            Some(next) if soon < next.time => soon.max(before.time),
            _ => before.time,
        };
        Some((time, before.thread))
    }
}

/// Starts of work on a device after it had been idle, in order.
fn woken(trace: &Trace, device: u32) -> Vec<f64> {
    let own = trace.work.iter().filter(|work| work.device == device && work.is_timed);
    let mut spans: Vec<(f64, f64)> = own.map(|work| (work.start, work.end)).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut woken = Vec::new();
    // Whether it was idle before its first work is unknown.
    let mut until = f64::INFINITY;
    for (start, end) in spans {
        if start > until + IDLE {
            woken.push(start);
        }
        until = if until.is_finite() { until.max(end) } else { end };
    }
    woken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbours(stream: Vec<Known>, device: Vec<Known>) -> Neighbours {
        let (streams, devices) = (HashMap::from([((0, 7), stream)]), HashMap::from([(0, device)]));
        Neighbours { streams, devices, drained: 50.0, delay: 5.0, woken: HashMap::new() }
    }

    fn known(start: f64, time: f64) -> Known {
        Known { start, time, thread: 1 }
    }

    #[test]
    fn work_without_a_call_was_launched_between_its_neighbours() {
        let list = vec![known(20.0, 10.0), known(100.0, 60.0), known(300.0, 70.0)];
        let found = neighbours(list.clone(), list);
        let time = |start: f64| found.launch(0, 7, start).map(|(time, _)| time);
        assert_eq!(time(15.0), None, "before the first of its stream");
        // The device does not lag: 40 - 5 is before the next launch.
        assert_eq!(time(40.0), Some(35.0));
        assert_eq!(time(22.0), Some(17.0));
        // It lags: uses the previous launch.
        assert_eq!(time(150.0), Some(60.0));
        assert_eq!(time(400.0), Some(70.0));
    }

    #[test]
    fn a_stream_without_any_call_is_placed_by_the_others_of_the_device() {
        let list = vec![known(20.0, 10.0), known(100.0, 60.0)];
        let found = neighbours(Vec::new(), list.clone());
        assert_eq!(found.launch(0, 7, 150.0), Some((60.0, 1)));
        assert_eq!(found.launch(0, 7, 10.0), None);
        // After everything launched before the recording.
        let late = neighbours(vec![known(200.0, 190.0)], list);
        assert_eq!(late.launch(0, 7, 49.0), None);
        assert_eq!(late.launch(0, 7, 150.0), Some((60.0, 1)));
    }
}
