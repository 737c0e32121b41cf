//! Builds the profile of a trace.
//!
//! It knows no format: all readers fill the same [`Trace`](crate::Trace).
//! - Steps: from the marks, otherwise from a repeating sequence of kernels, otherwise the whole trace. A step owns the
//!   work *launched* in it.
//! - Matching: kernel → launch by correlation id → innermost operator on the thread.
//! - Operations: equal calls (name, shapes, type, attributes, phase, module group) with equal kernels are one
//!   operation. The sum of count × device time over all of them is the mean device time of a step.
//! - Step time: from the last device work of one step to that of the next, median.

mod accumulate;
mod choose;
mod describe;
mod exchange;
mod execution;
mod group;
mod join;
mod launched;
mod loader;
mod nest;
mod options;
mod parts;
mod pattern;
mod ranks;
mod samples;
mod shapes_only;
mod timeline;
mod timing;
mod twice;
mod update;
mod workload;

use std::collections::HashMap;

use self::join::Joined;
use self::launched::Launches;
use self::nest::Nesting;
pub use self::options::{Exchange, Import, ImportOptions, LoaderBatch, ModelInput, ResolveGpu, Summary};
pub use self::ranks::combine;
use self::timing::{StepWork, Wall, median};
use self::workload::workload;
use crate::{Fault, MarkedSteps, Span, StepMarks, Trace, TraceError, WorkKind};
use habitat_base::units::{Bytes, Micros};
use habitat_step::op::{self, Family};
use habitat_step::profile::{DeviceInfo, Execution, Origin, Phase, Profile, Recording, Step};

/// A map with a fast hash: a trace has as many keys as launches.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The steps of a trace and the work launched in them.
struct Steps {
    spans: Vec<Span>,
    marks: StepMarks,
    joined: Joined,
    work: Vec<StepWork>,
    kept: Vec<usize>,
    notes: Vec<String>,
}

impl Steps {
    fn new(trace: &Trace, nesting: &Nesting, launches: &Launches, spans: Vec<Span>, marks: StepMarks) -> Self {
        let joined = join::join(trace, nesting, &launches.list, &spans);
        let work = timing::work_of(trace, &joined, &spans, &launches.lost);
        let (kept, notes) = choose::choose(&work, &spans);
        Self { spans, marks, joined, work, kept, notes }
    }

    /// Joins marked micro-batches into steps.
    fn of_micro_batches(self, trace: &Trace, nesting: &Nesting, launches: &Launches) -> Self {
        if !self.marks.may_be_parts() {
            return self;
        }
        let Some((spans, note)) = accumulate::steps(trace, &self.joined, &self.spans) else { return self };
        let mut whole = Self::new(trace, nesting, launches, spans, self.marks);
        if whole.kept.is_empty() {
            return self;
        }
        whole.notes.insert(0, note);
        whole
    }

    /// Whether the steps are plausible: the program's ranges may mark anything, so as steps they must contain most of
    /// the work.
    fn cover(&self) -> bool {
        let inside: u64 = self.work.iter().map(|work| work.kernels).sum();
        self.marks != StepMarks::Annotation || inside >= self.joined.outside
    }

    fn kept_spans(&self) -> Vec<Span> {
        self.kept.iter().map(|step| self.spans[*step]).collect()
    }

    /// Mean of a measure over the kept steps.
    fn mean(&self, measure: impl Fn(&StepWork) -> f64) -> f64 {
        self.kept.iter().map(|step| measure(&self.work[*step])).sum::<f64>() / self.kept.len().max(1) as f64
    }
}

/// Builds the profile of a trace.
///
/// # Errors
/// [`Fault`] if no step has work, or if shapes are required and no operator has any.
pub(super) fn build(mut trace: Trace, options: &ImportOptions<'_>) -> Result<Import, TraceError> {
    twice::remove(&mut trace);
    if trace.recorder.leaves_out_lists {
        update::fill_lists(&mut trace);
    }
    let import = if options.shapes_only { shapes_only::import(&trace, options) } else { measured(&trace, options) };
    import.map_err(|fault| trace.recorder.format.error(fault))
}

/// Builds the profile of a trace with GPU work.
fn measured(trace: &Trace, options: &ImportOptions<'_>) -> Result<Import, Fault> {
    let nesting = nest::nest(trace);
    let launches = Launches::new(trace, &nesting);
    let steps = steps_of(trace, &nesting, &launches, options);
    if steps.kept.is_empty() {
        return Err(Fault::NoWholeStep { kernels: trace.kernels });
    }
    let grouped = group::operations(trace, &steps.joined, &nesting.modules, &steps.kept);
    let device = timing::Busy::new(trace, steps.joined.device);
    let walls = timing::walls(&steps.spans, &steps.work, &steps.kept, &device);
    let [kernel_time, device_time] = [steps.mean(|work| work.kernel_time), steps.mean(|work| work.device_time)];
    let longest = walls.iter().map(|wall| wall.duration).chain([kernel_time, device_time]).fold(0.0, f64::max);
    if longest > Micros::MOST {
        return Err(Fault::StepTooLong { seconds: longest / 1e6 });
    }
    let joined_share = joined_share(trace, &steps);
    let mut notes = Notes::new(trace, &nesting, &steps, &launches);
    notes.durations(&steps, &walls);
    notes.joined(trace, joined_share, grouped.inferred);
    let (workload, tf32_known) =
        workload(trace, &nesting, &steps.kept_spans(), &grouped.operations, options, &mut notes.0);
    let origin = origin(trace, steps.joined.device, options, &mut notes.0);
    let (execution, how) = execution::execution(trace, &steps);
    notes.0.extend(how);
    let communicates = |place: usize| {
        let operation = grouped.of[place].and_then(|number| grouped.operations.get(number as usize));
        operation.is_some_and(|operation| op::family(operation) == Family::Communication)
    };
    let exposed = timing::exposed_communication(trace, &steps.joined, &steps.kept, communicates);
    let mut step = step(trace, &steps, &walls, execution);
    step.exposed_communication = exposed.map(Micros::known);
    let summary = Summary {
        marks: steps.marks,
        steps_found: trace.steps.as_ref().map_or(steps.spans.len(), |steps| steps.found),
        steps_used: steps.kept.len(),
        events: trace.events,
        bytes: trace.bytes,
        kernels_per_step: steps.mean(|work| work.kernels as f64),
        kernel_time: Micros::known(kernel_time),
        device_time: Micros::known(device_time),
        joined_share,
        joined_to: trace.recorder.joined_to,
        overlaps: nesting.overlaps,
        host_step: Micros::known(
            steps.kept.iter().map(|step| steps.spans[*step].duration).reduce(f64::min).unwrap_or(0.0),
        ),
        exchanges: vec![exchange::on_device(trace, steps.joined.device, &walls)],
    };
    let timeline = timeline::timeline(trace, &nesting, &launches.list, &steps.joined, &grouped.of, &walls);
    let mut profile = Profile::new(workload, Some(origin), Some(step), grouped.operations)?;
    profile.timeline = timeline;
    profile.recording = Some(Recording {
        source: trace.recorder.format.source().to_owned(),
        step_marks: Some(steps.marks.name().to_owned()),
        ranks: None,
        joined_share: (!trace.recorder.grouping.is_without_operators()).then_some(joined_share),
        tf32_known,
        notes: notes.0,
    });
    Ok(Import { profile, summary })
}

/// The steps that the trace marks, else those that a repeated pattern of kernels shows.
fn steps_of(trace: &Trace, nesting: &Nesting, launches: &Launches, options: &ImportOptions<'_>) -> Steps {
    let marked =
        trace.steps.clone().map(|MarkedSteps { spans, marks, .. }| Steps::new(trace, nesting, launches, spans, marks));
    // Marks without launches around them (marks of another process) are useless.
    match marked {
        Some(steps) if !steps.kept.is_empty() && steps.cover() => steps.of_micro_batches(trace, nesting, launches),
        _ => {
            let main = join::main_device(&trace.work);
            let kernels: Vec<pattern::Launch> = launches
                .list
                .iter()
                .map(|launched| (launched.time, &trace.work[launched.device as usize]))
                .filter(|(_, work)| work.kind == WorkKind::Kernel && work.device == main)
                .map(|(time, work)| (time, work.name, work.configuration))
                .collect();
            let (mut spans, marks) =
                if trace.recorder.finds_patterns { pattern::without_marks(trace, &kernels) } else { pattern::whole() };
            spans.truncate(options.max_steps.unwrap_or(usize::MAX).max(1));
            Steps::new(trace, nesting, launches, spans, marks)
        }
    }
}

fn step(trace: &Trace, steps: &Steps, walls: &[Wall], execution: Option<Execution>) -> Step {
    let fold = |start: f64, pick: fn(f64, f64) -> f64| walls.iter().map(|wall| wall.duration).fold(start, pick);
    let range = || [Micros::known(fold(f64::INFINITY, f64::min)), Micros::known(fold(0.0, f64::max))];
    let peak = trace
        .peak_memory
        .get(&steps.joined.device)
        .or_else(|| trace.peak_memory.values().max())
        .map(|bytes| Bytes::known(*bytes as f64));
    Step {
        exposed_communication: None,
        duration: Some(Micros::known(median(walls.iter().map(|wall| wall.duration)))),
        duration_range: (walls.len() > 1).then(range),
        device_busy: Some(Micros::known(median(walls.iter().map(|wall| wall.busy)))),
        peak_memory_bytes: peak,
        memory: None,
        samples: u32::try_from(steps.kept.len()).ok(),
        profiled: trace.recorder.slows_host,
        execution,
        cpu: None,
        data_wait: None,
        loader_period: None,
        loader_workers: None,
        cpus: None,
    }
}

/// Share of the kernel time whose launch lies within an operator (for collectives, within the range of the collective).
fn joined_share(trace: &Trace, steps: &Steps) -> f64 {
    let (mut all, mut joined) = (0.0, 0.0);
    for occurrence in &steps.joined.occurrences {
        if steps.kept.binary_search(&(occurrence.step as usize)).is_err() {
            continue;
        }
        let time: f64 = occurrence
            .work
            .iter()
            .map(|index| &trace.work[*index as usize])
            .filter(|device| device.kind == WorkKind::Kernel)
            .map(|device| device.end - device.start)
            .sum();
        all += time;
        // A range of the program that states the phase also counts as a match.
        let in_phase = trace.recorder.grouping.is_by_range()
            && !matches!(occurrence.phase, Phase::Other | Phase::Communication | Phase::Copy);
        if occurrence.operator.is_some() || occurrence.within_range || occurrence.module != 0 || in_phase {
            joined += time;
        }
    }
    if all > 0.0 { joined / all } else { 0.0 }
}

/// Note for a GPU without a name.
const BY_FIGURES: &str = "the recording does not name its GPU: identified by its specifications; --origin sets it";

fn origin(trace: &Trace, device: u32, options: &ImportOptions<'_>, notes: &mut Vec<String>) -> Origin {
    let info = device_info(&trace.devices, device);
    let found = match (&info, options.resolve_gpu) {
        (Some(info), Some(resolve)) => resolve(info),
        (Some(info), None) => Err(format!("the GPU {:?} is not in the catalog", info.name)),
        (None, _) => Err("the file does not name its GPU".to_owned()),
    };
    let gpu = options.origin.clone().or_else(|| {
        let reason = match found {
            Ok(gpu) => {
                let is_by_figures = info.as_ref().is_some_and(|info| !info.is_named());
                notes.extend(is_by_figures.then(|| BY_FIGURES.to_owned()));
                return Some(gpu);
            }
            Err(reason) => reason,
        };
        notes.push(format!("{reason}; --origin sets it"));
        None
    });
    Origin {
        gpu,
        gpu_name: info.map(|info| info.name),
        framework: trace.recorder.framework.clone().filter(|_| !trace.recorder.grouping.is_without_operators()),
        cuda: trace.recorder.runtime.clone(),
        driver: trace.recorder.driver.clone(),
    }
}

/// Device with this number, otherwise any device if all are of one kind (AMD numbers devices differently in its
/// events).
fn device_info(devices: &[(Option<u64>, DeviceInfo)], device: u32) -> Option<DeviceInfo> {
    let own = devices.iter().find(|(number, _)| *number == Some(u64::from(device)));
    let any = || devices.first().filter(|first| devices.iter().all(|one| one.1.name == first.1.name));
    own.or_else(any).map(|(_, info)| info.clone()).filter(|info| !info.name.is_empty())
}

/// Notes on the recording for the user of the profile.
struct Notes(Vec<String>);

impl Notes {
    fn new(trace: &Trace, nesting: &Nesting, steps: &Steps, launches: &Launches) -> Self {
        let mut notes = Self(trace.recorder.notes.clone());
        notes.0.extend(steps.notes.iter().cloned());
        notes.count(launches.before, "kernels were launched before the recording began and are left out");
        notes.count(
            launches.by_time,
            "kernels have no launch in the recording: assigned to steps by time, and to no operator",
        );
        notes.missing(trace, steps);
        notes.count(steps.joined.outside, "kernels were launched outside the steps and are left out");
        notes.count(steps.joined.elsewhere, "kernels ran on other devices and are left out");
        notes.count(nesting.overlaps, "host ranges overlap others of their thread without nesting");
        if trace.is_part {
            notes.0.push("the trace is large: a few whole steps from its middle were read".to_owned());
        }
        let bad = &trace.bad_times;
        if bad.count > 0 {
            notes.0.push(format!(
                "{} events with unusable times were left out, the first is event {} ({:?}, {} = {})",
                bad.count, bad.index, bad.name, bad.field, bad.value
            ));
        }
        let bad = &trace.malformed;
        if bad.count > 0 {
            notes.0.push(format!("{} malformed events were left out, the first is event {}", bad.count, bad.index));
        }
        notes.count(
            trace.names.overflowed + trace.tensors.overflowed + trace.scalars.overflowed,
            "names or shapes were dropped: the trace has too many distinct ones",
        );
        if let Some(ranks) = trace.recorder.world_size.filter(|ranks| *ranks > 1)
            && !steps.joined.occurrences.iter().any(|occurrence| occurrence.phase == Phase::Communication)
        {
            notes.0.push(format!(
                "recorded on one of {ranks} GPUs (distributedInfo), but the steps have no communication: kernels of an unknown communication library would count as computation"
            ));
        }
        if steps.marks == StepMarks::WholeTrace {
            notes.0.push(format!(
                "no step marks: assuming that the whole trace is one step{}",
                trace.recorder.whole_remedy
            ));
        }
        notes
    }

    /// Notes kernels of the steps with missing times.
    fn missing(&mut self, trace: &Trace, steps: &Steps) {
        let kernels = steps.mean(|work| (work.kernels + work.lost) as f64);
        let lost = steps.mean(|work| work.lost as f64);
        if lost > 0.0 {
            let share = 100.0 * lost / kernels;
            self.0.push(format!(
                "{share:.1} % of the kernels of a step were launched but are not in the recording: their time is missing"
            ));
        }
        let kernels = || trace.work.iter().filter(|work| work.kind == WorkKind::Kernel);
        let untimed = kernels().filter(|kernel| !kernel.is_timed).count();
        if untimed > 0 {
            let used = steps.mean(|work| work.untimed as f64);
            let what = if used > 0.0 { "their time is missing" } else { "none of them in the steps used" };
            self.0.push(format!("{untimed} of {} kernels have no times in the recording: {what}", trace.kernels));
        }
        let short = kernels().filter(|kernel| kernel.is_timed && kernel.end <= kernel.start).count();
        if short > 0 {
            self.0.push(format!(
                "{short} of {} kernels have a duration of 0 (rounded down to whole microseconds, or not recorded): their time is missing",
                trace.kernels
            ));
        }
    }

    fn count(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.0.push(format!("{count} {what}"));
        }
    }

    fn durations(&mut self, steps: &Steps, walls: &[Wall]) {
        let device = median(walls.iter().map(|wall| wall.duration));
        let host = median(steps.kept.iter().map(|step| steps.spans[*step].duration));
        if steps.marks == StepMarks::WholeTrace {
            let busy = median(walls.iter().map(|wall| wall.busy));
            if busy < 0.5 * device {
                self.0.push(format!(
                    "the GPU is busy {:.1} % of the trace: its length is a poor estimate of the step time",
                    100.0 * busy / device
                ));
            }
            return;
        }
        let longest = walls.iter().map(|wall| wall.duration).fold(0.0, f64::max);
        if longest >= 2.0 * device && device > 0.0 {
            self.0.push(format!(
                "the longest of {} steps took {:.1} times the median: it may have stalled",
                walls.len(),
                longest / device
            ));
        }
        if device > 0.0 && ((host - device) / device).abs() > 0.03 {
            self.0.push(format!(
                "the step time is from the GPU ({:.3} ms from step to step); the host marks are {:.3} ms apart",
                device / 1e3,
                host / 1e3
            ));
        }
    }

    fn joined(&mut self, trace: &Trace, share: f64, inferred: usize) {
        if trace.recorder.grouping.is_without_operators() {
            self.0.push("kernels only, without operators and shapes: every prediction scales kernel times".to_owned());
            return;
        }
        if share < 0.99 {
            let what = trace.recorder.joined_to;
            self.0.push(format!("{:.1} % of the kernel time was matched to {what}", share * 100.0));
        }
        if !trace.has_shapes {
            self.0.push(trace.recorder.without_shapes.to_owned());
        }
        if inferred > 0 {
            self.0.push(format!("stride and padding of {inferred} convolutions were derived from shapes"));
        }
    }
}
