//! The profile of a trace with GPU work.

use super::collect::Records;
use super::join::{self, Joined, Launched};
use super::nest::{self, Nesting};
use super::record::{DeviceKind, Properties};
use super::scan::Totals;
use super::steps::{self, Span, StepMarks};
use super::timing::{self, StepWork, Wall, median};
use super::{DeviceInfo, Import, ImportOptions, KinetoError, Summary, group, infer, samples};
use crate::profile::{Mode, Operation, Origin, Phase, Profile, Recording, Step, Workload};
use crate::units::{Bytes, Micros};

/// A trace as read, and its steps where they are marked.
pub(super) struct Source<'a> {
    pub(super) records: &'a Records,
    /// The steps to use, of those found.
    pub(super) marked: Option<(Vec<Span>, StepMarks)>,
    /// Steps marked in the trace.
    pub(super) found: Option<usize>,
    pub(super) totals: Totals,
}

/// The steps of a trace and what was launched in them.
struct Steps {
    spans: Vec<Span>,
    marks: StepMarks,
    joined: Joined,
    work: Vec<StepWork>,
    kept: Vec<usize>,
    notes: Vec<String>,
}

impl Steps {
    fn of(records: &Records, nesting: &Nesting, launched: &[Launched], spans: Vec<Span>, marks: StepMarks) -> Self {
        let joined = join::join(records, nesting, launched, &spans);
        let work = timing::work_of(records, &joined, spans.len());
        let (kept, notes) = timing::choose(&work, &spans);
        Self { spans, marks, joined, work, kept, notes }
    }

    /// Ranges of the program may mark anything: as steps they must hold most of the work.
    fn cover(&self) -> bool {
        let inside: u64 = self.work.iter().map(|work| work.kernels).sum();
        self.marks != StepMarks::Annotation || inside >= self.joined.outside
    }

    fn kept_spans(&self) -> Vec<Span> {
        self.kept.iter().map(|step| self.spans[*step]).collect()
    }

    /// The mean of a measure over the steps kept.
    fn mean(&self, measure: impl Fn(&StepWork) -> f64) -> f64 {
        self.kept.iter().map(|step| measure(&self.work[*step])).sum::<f64>() / self.kept.len().max(1) as f64
    }
}

/// Makes the profile.
pub(super) fn build(source: &Source<'_>, options: &ImportOptions<'_>) -> Result<Import, KinetoError> {
    let records = source.records;
    let nesting = nest::nest(records);
    let (launched, without_launch) = join::launched(records, &nesting);
    let marked = source.marked.clone().map(|(spans, marks)| Steps::of(records, &nesting, &launched, spans, marks));
    // Marks around which nothing is launched (another process') are no better than none.
    let steps = match marked {
        Some(steps) if !steps.kept.is_empty() && steps.cover() => steps,
        _ => {
            let main = join::main_device(&records.devices);
            let kernels: Vec<steps::Launch> = launched
                .iter()
                .map(|launched| (launched.time, &records.devices[launched.device as usize]))
                .filter(|(_, device)| device.kind == DeviceKind::Kernel && device.on == main)
                .map(|(time, device)| (time, device.name, device.shape))
                .collect();
            let (mut spans, marks) =
                if records.recorder.finds_patterns { steps::without_marks(records, &kernels) } else { steps::whole() };
            spans.truncate(options.max_steps.unwrap_or(usize::MAX).max(1));
            Steps::of(records, &nesting, &launched, spans, marks)
        }
    };
    if steps.kept.is_empty() {
        return Err(KinetoError::NoWholeStep { kernels: records.kernels_seen });
    }
    let grouped = group::operations(records, &steps.joined, &nesting.modules, &steps.kept);
    let device = timing::Busy::of(records, steps.joined.device);
    let walls = timing::walls(&steps.spans, &steps.work, &steps.kept, &device);
    let joined_share = joined_share(records, &steps);
    let mut notes = Notes::new(records, &nesting, &steps, without_launch);
    notes.durations(&steps, &walls);
    notes.joined(records, joined_share, grouped.inferred);
    let workload = workload(source, &nesting, &steps.kept_spans(), &grouped.operations, options, &mut notes.0);
    let origin = origin(records, steps.joined.device, options, &mut notes.0);
    let step = step(records, &steps, &walls);
    let summary = Summary {
        marks: steps.marks,
        steps_found: source.found.unwrap_or(steps.spans.len()),
        steps_used: steps.kept.len(),
        events: source.totals.events,
        bytes: source.totals.bytes,
        kernels_per_step: steps.mean(|work| work.kernels as f64),
        kernel_time: Micros::known(steps.mean(|work| work.kernel_time)),
        device_time: Micros::known(steps.mean(|work| work.device_time)),
        joined_share,
        joined_to: records.recorder.joined_to,
        overlaps: nesting.overlaps,
        host_step: Micros::known(
            steps.kept.iter().map(|step| steps.spans[*step].duration).reduce(f64::min).unwrap_or(0.0),
        ),
    };
    let mut profile = Profile::new(workload, Some(origin), Some(step), grouped.operations)?;
    profile.recording = Some(Recording {
        source: records.recorder.source.to_owned(),
        step_marks: Some(steps.marks.name().to_owned()),
        ranks: None,
        joined_share: (!records.recorder.grouping.is_without_operators()).then_some(joined_share),
        notes: notes.0,
    });
    Ok(Import { profile, summary })
}

fn step(records: &Records, steps: &Steps, walls: &[Wall]) -> Step {
    let fold = |start: f64, pick: fn(f64, f64) -> f64| walls.iter().map(|wall| wall.duration).fold(start, pick);
    let range = [Micros::known(fold(f64::INFINITY, f64::min)), Micros::known(fold(0.0, f64::max))];
    let peak = records
        .peak_memory
        .get(&steps.joined.device)
        .or_else(|| records.peak_memory.values().max())
        .map(|bytes| Bytes::known(*bytes as f64));
    Step {
        duration: Some(Micros::known(median(walls.iter().map(|wall| wall.duration)))),
        duration_range: (walls.len() > 1).then_some(range),
        device_busy: Some(Micros::known(median(walls.iter().map(|wall| wall.busy)))),
        peak_memory_bytes: peak,
        memory: None,
        samples: u32::try_from(steps.kept.len()).ok(),
    }
}

/// Share of the kernel time whose launch lies in an operator (or, for collectives, in the
/// range of its collective).
fn joined_share(records: &Records, steps: &Steps) -> f64 {
    let (mut all, mut joined) = (0.0, 0.0);
    for occurrence in &steps.joined.occurrences {
        if steps.kept.binary_search(&(occurrence.step as usize)).is_err() {
            continue;
        }
        let time: f64 = occurrence
            .work
            .iter()
            .map(|index| &records.devices[*index as usize])
            .filter(|device| device.kind == DeviceKind::Kernel)
            .map(|device| device.end - device.start)
            .sum();
        all += time;
        // A range of the program that says the phase is a name, too.
        let in_phase = records.recorder.grouping.is_by_range()
            && !matches!(occurrence.phase, Phase::Other | Phase::Communication | Phase::Copy);
        if occurrence.operator.is_some() || occurrence.within_range || occurrence.module != 0 || in_phase {
            joined += time;
        }
    }
    if all > 0.0 { joined / all } else { 0.0 }
}

/// What the trace and the caller say about the workload.
pub(super) fn workload(
    source: &Source<'_>,
    nesting: &Nesting,
    spans: &[Span],
    operations: &[Operation],
    options: &ImportOptions<'_>,
    notes: &mut Vec<String>,
) -> Workload {
    let records = source.records;
    let mode = options.mode.unwrap_or_else(|| {
        if records.recorder.grouping.is_without_operators() {
            notes.push(
                "whether this is training or inference is not known: training is assumed; --mode sets it".to_owned(),
            );
            return Mode::Training;
        }
        infer::mode(records, nesting)
    });
    let model = options.model.as_ref();
    let found = samples::samples(records, nesting, spans, model);
    let batch_size = options.batch_size.or(found.as_ref().and_then(|found| Some(found.as_ref().ok()?.count)));
    notes.extend(match (&found, options.batch_size, model) {
        (Some(Ok(found)), Some(given), Some(_)) if given != found.count => {
            Some(format!("batch size {given} as given; from {} it would be {}", found.seen, found.count))
        }
        (Some(Ok(found)), None, Some(_)) => {
            let doubt = if found.is_sum { " (--batch-size if that is wrong)" } else { "" };
            Some(format!("batch size {} from {}{doubt}", found.count, found.seen))
        }
        (Some(Ok(found)), None, None) => {
            Some(format!("batch size {} is read off {}; --batch-size sets it", found.count, found.seen))
        }
        (Some(Err(reason)), None, _) => Some(format!("the batch size is not known: {reason}; --batch-size sets it")),
        _ => None,
    });
    let sequence_length = options.sequence_length.or_else(|| {
        if model.is_some() {
            return found?.ok()?.length;
        }
        let length = infer::length(infer::first_layer(records, nesting, spans.first()?)?, options.batch_size)?;
        notes.push(format!("sequence length {length} is read off the first layer's input"));
        Some(length)
    });
    let precision = options.precision.or_else(|| {
        let (precision, how) = infer::precision(operations)?;
        notes.push(format!("precision {precision}, {how}; --precision sets it"));
        Some(precision)
    });
    let parameter_count = options.parameter_count.or_else(|| {
        let count = (mode == Mode::Training)
            .then(|| spans.first().and_then(|span| infer::parameters(records, span)))
            .flatten()?;
        notes.push(format!("{count} parameters are counted from the gradients that the backward pass accumulates"));
        Some(count)
    });
    let name = if options.workload.trim().is_empty() { "imported".to_owned() } else { options.workload.clone() };
    Workload { name, mode, batch_size, sequence_length, precision, parameter_count }
}

fn origin(records: &Records, device: u32, options: &ImportOptions<'_>, notes: &mut Vec<String>) -> Origin {
    let info = device_info(&records.properties, device);
    let found = info.as_ref().and_then(|info| options.resolve_gpu.and_then(|resolve| resolve(info)));
    let gpu = options.origin.clone().or(found);
    if gpu.is_none() {
        notes.push(match &info {
            Some(info) if options.resolve_gpu.is_some() => {
                format!("the catalog has no GPU that is {:?}; --origin sets it", info.name)
            }
            Some(info) => format!("the GPU is {:?}; --origin sets which of the catalog that is", info.name),
            None => "the file does not name its GPU; --origin sets it".to_owned(),
        });
    }
    let cuda = records.versions.get("cuda_runtime").map(|version| cuda_version(*version));
    let hip = records.versions.get("hip_runtime").map(|version| hip_version(*version));
    let driver = records.versions.get("cuda_driver").map(|version| format!("CUDA {}", cuda_version(*version)));
    Origin {
        gpu,
        gpu_name: info.map(|info| info.name),
        framework: records.recorder.framework.clone().filter(|_| !records.recorder.grouping.is_without_operators()),
        cuda: cuda.or(hip),
        driver: records.recorder.driver.clone().or(driver),
    }
}

/// The properties of a device: those with its number, else those of all devices if they
/// are of one kind (AMD numbers devices differently in its events).
fn device_info(properties: &[Properties], device: u32) -> Option<DeviceInfo> {
    let own = properties.iter().find(|one| one.id == Some(u64::from(device)));
    let any = || properties.first().filter(|first| properties.iter().all(|one| one.name == first.name));
    let found = own.or_else(any).filter(|found| !found.name.is_empty())?;
    Some(DeviceInfo {
        name: found.name.clone(),
        compute_capability: found.major.zip(found.minor),
        multiprocessors: found.multiprocessors,
        memory_bytes: found.memory_bytes,
    })
}

/// 12040 → 12.4
fn cuda_version(version: u64) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// 60443483 → HIP 6.4.43483
fn hip_version(version: u64) -> String {
    format!("HIP {}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
}

/// What the reader of the profile should know.
struct Notes(Vec<String>);

impl Notes {
    fn new(records: &Records, nesting: &Nesting, steps: &Steps, without_launch: u64) -> Self {
        let mut notes = Self(records.recorder.notes.clone());
        notes.0.extend(steps.notes.iter().cloned());
        notes.count(without_launch, "kernels were launched before the recording began and belong to no step");
        notes.count(steps.joined.outside, "kernels were launched outside the steps and are left out");
        notes.count(steps.joined.elsewhere, "kernels ran on other devices than the step's and are left out");
        notes.count(nesting.overlaps, "host ranges overlap others of their thread without nesting");
        if records.overflowed {
            notes.0.push("the trace is large: a few whole steps from its middle were read".to_owned());
        }
        let bad = &records.bad_times;
        if bad.count > 0 {
            notes.0.push(format!(
                "{} events with unusable times were left out, the first is event {} ({:?}, {} = {})",
                bad.count, bad.index, bad.name, bad.field, bad.value
            ));
        }
        let bad = &records.malformed;
        if bad.count > 0 {
            notes.0.push(format!("{} malformed events were left out, the first is event {}", bad.count, bad.index));
        }
        notes.count(
            records.names.overflowed + records.texts.overflowed,
            "names or shapes were not kept: the trace has too many different ones",
        );
        if steps.marks == StepMarks::WholeTrace {
            notes
                .0
                .push(format!("no step marks: the whole trace is taken as one step{}", records.recorder.whole_remedy));
        }
        notes
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
                    "the GPU is busy for {:.1} % of the trace: its length says little about the time of a step",
                    100.0 * busy / device
                ));
            }
        } else if device > 0.0 && ((host - device) / device).abs() > 0.03 {
            self.0.push(format!(
                "the step time is that of the device ({:.3} ms from step to step); the host marks are {:.3} ms apart",
                device / 1e3,
                host / 1e3
            ));
        }
    }

    fn joined(&mut self, records: &Records, share: f64, inferred: usize) {
        if records.recorder.grouping.is_without_operators() {
            self.0.push(
                "kernels alone: no operators and shapes were recorded, so every prediction scales kernel times"
                    .to_owned(),
            );
            return;
        }
        if share < 0.99 {
            let what = records.recorder.joined_to;
            self.0.push(format!("{:.1} % of the kernel time could be joined to {what}", share * 100.0));
        }
        if !records.shapes_seen {
            self.0.push(records.recorder.without_shapes.to_owned());
        }
        if inferred > 0 {
            self.0.push(format!("stride and padding of {inferred} convolutions are worked out from shapes"));
        }
    }
}
