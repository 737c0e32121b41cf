//! Typed recordings: every reader fills a `Trace`, and profiles are built from it.
//!
//! A `Trace` holds the ranges of host threads (operator calls with typed arguments, modules, named parts), the calls
//! that launch work, the work of devices (kernel, copy, set), the ranges that mark steps, and the devices. Times are
//! microseconds on one clock. Each reader is a folder: [`kineto`] (PyTorch's profiler, and the CUPTI recorder in
//! `profiler/cupti`, which writes the same JSON), [`nsight`] and [`xplane`]. `builder` makes the profile and knows
//! none of the formats; [`import`] brings both together.
//!
//! A record takes about 50 bytes: texts, arguments and launch configurations are interned. Readers stay within a budget
//! of records. If a recording exceeds it, they keep a few whole steps from its middle, so memory is bounded.
//!
//! It must not know: GPUs of the catalog, predictions, prices, files, terminals.

mod arguments;
mod builder;
mod error;
pub mod import;
mod intern;
pub mod kineto;
pub mod nsight;
mod nvtx;
mod ranks;
mod record;
pub(crate) mod steps;
pub mod xplane;

use std::collections::HashMap;
use std::ops::ControlFlow;

pub(crate) use self::arguments::{Layout, Scalars, TENSORS, Tensors};
pub use self::error::{Fault, Foreign, Format, TraceError};
use self::intern::Interned;
pub(crate) use self::intern::NONE;
pub use self::record::{CallKind, StepMarks, WorkKind};
pub(crate) use self::record::{Configuration, Launch, MarkedSteps, Range, RangeKind, Span, Work};
use self::record::{Configurations, Unusable};
use habitat_base::units::Micros;
use habitat_step::profile::DeviceInfo;

/// Options of a reader.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReadOptions<'a> {
    /// Maximum number of steps, taken from the middle of the recording.
    pub(crate) max_steps: Option<usize>,
    /// Budget of records held in memory (about 50 bytes each); 1.5 million by default.
    pub(crate) max_records: Option<usize>,
    /// Ranges with this name, ignoring trailing numbers, are the steps, whatever else is marked.
    pub(crate) step_range: Option<&'a str>,
    /// Accepts recordings with operators but no device work.
    pub(crate) shapes_only: bool,
    /// GPU to use, by its number in the recording, if it has several.
    pub(crate) device: Option<u32>,
    /// The user named the GPU, whatever the recording reports.
    pub(crate) is_gpu_given: bool,
    /// Whether the caller recognises a GPU.
    pub(crate) knows_gpu: Option<&'a (dyn Fn(&DeviceInfo) -> bool + 'a)>,
}

impl ReadOptions<'_> {
    /// Default budget in records: about 150 MB including all tables.
    const RECORDS: usize = 1_500_000;

    /// Records allowed for the part that is used, which may be one step over the budget.
    fn room(&self) -> usize {
        self.budget().saturating_mul(8)
    }

    fn budget(&self) -> usize {
        self.max_records.unwrap_or(Self::RECORDS)
    }

    /// Whether the caller recognises this GPU.
    fn finds(&self, gpu: &DeviceInfo) -> bool {
        self.knows_gpu.is_some_and(|knows| knows(gpu))
    }
}

/// Receives the trace of one rank after another, so that only one is in memory.
pub(crate) type EachRank<'a> = dyn FnMut(Trace) -> Result<(), TraceError> + 'a;

/// Progress of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of text read so far.
    pub bytes: u64,
    /// Events read so far.
    pub events: u64,
}

/// Called regularly; [`ControlFlow::Break`] stops the reader with [`Fault::Cancelled`].
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// Properties of a recorder and its files.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    pub(crate) format: Format,
    /// Framework, if known.
    pub(crate) framework: Option<String>,
    /// CUDA or HIP version.
    pub(crate) runtime: Option<String>,
    pub(crate) driver: Option<String>,
    /// Number of GPUs of the job, if the recorder reports it; this recording is one rank.
    pub(crate) world_size: Option<u64>,
    /// Note on a trace without shapes.
    pub(crate) without_shapes: &'static str,
    /// Name of the things that kernels are matched to, for messages.
    pub(crate) joined_to: &'static str,
    /// Appended to the note that the whole file is one step.
    pub(crate) whole_remedy: &'static str,
    /// Without marks, steps may be derived from a repeating sequence of kernels.
    pub(crate) finds_patterns: bool,
    /// Operators on long lists of tensors lack their shapes.
    pub(crate) leaves_out_lists: bool,
    /// The recorder slows the host much more than the device, as `torch.profiler` does.
    pub(crate) slows_host: bool,
    pub(crate) grouping: Grouping,
    /// Notes on the file for the user of the profile.
    pub(crate) notes: Vec<String>,
}

/// Substitute for operators if work has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Kernels, by name.
    Kernels,
    /// Kernels, grouped by the program's own ranges around them.
    Ranges,
    /// The same, for a recorder that never records operators.
    RangesOnly,
}

impl Grouping {
    /// Whether ranges group the work.
    pub(crate) fn is_by_range(self) -> bool {
        self != Self::Kernels
    }

    /// Whether the recorder never records operators.
    pub(crate) fn is_without_operators(self) -> bool {
        self == Self::RangesOnly
    }
}

/// Recording of one rank.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) recorder: Recorder,
    pub(crate) ranges: Vec<Range>,
    pub(crate) launches: Vec<Launch>,
    pub(crate) work: Vec<Work>,
    /// Ranges that can mark steps, kept even over budget.
    pub(crate) marks: Vec<Range>,
    /// Kind of step marks, if every mark is known to be a step.
    pub(crate) marked_by: Option<StepMarks>,
    /// Name of the ranges that are steps, if the caller gave one.
    pub(crate) step_range: Option<String>,
    /// Steps to use; `None` without marks.
    pub(crate) steps: Option<MarkedSteps>,
    pub(crate) names: Interned<Box<str>>,
    pub(crate) tensors: Interned<Tensors>,
    pub(crate) scalars: Interned<Scalars>,
    pub(crate) configurations: Configurations,
    threads: HashMap<Box<[u8]>, u32>,
    /// Devices by number; some recorders do not report the number.
    pub(crate) devices: Vec<(Option<u64>, DeviceInfo)>,
    /// Peak allocated device memory in bytes, by device.
    pub(crate) peak_memory: HashMap<u32, u64>,
    /// Events in the file, bytes of its text, and records made of them, whether kept or not.
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    pub(crate) kernels: u64,
    pub(crate) operators: u64,
    /// Calls that launch a kernel.
    pub(crate) kernel_launches: u64,
    /// At least one operator has arguments with shapes.
    pub(crate) has_shapes: bool,
    /// The recorder reports that the program trains.
    pub(crate) trains: bool,
    /// The recording exceeds the budget; this is a part of it.
    pub(crate) is_part: bool,
    /// Maximum number of records, and whether there were more.
    room: usize,
    is_over: bool,
    /// First start and last end of the ranges.
    pub(crate) span: Option<(f64, f64)>,
    pub(crate) bad_times: Unusable,
    pub(crate) malformed: Unusable,
}

impl Trace {
    /// Creates an empty trace.
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            ranges: Vec::new(),
            launches: Vec::new(),
            work: Vec::new(),
            marks: Vec::new(),
            marked_by: None,
            step_range: None,
            steps: None,
            names: Interned::default(),
            tensors: Interned::default(),
            scalars: Interned::default(),
            configurations: Configurations::default(),
            threads: HashMap::new(),
            devices: Vec::new(),
            peak_memory: HashMap::new(),
            events: 0,
            bytes: 0,
            records: 0,
            kernels: 0,
            operators: 0,
            kernel_launches: 0,
            has_shapes: false,
            trains: false,
            is_part: false,
            room: usize::MAX,
            is_over: false,
            span: None,
            bad_times: Unusable::default(),
            malformed: Unusable::default(),
        }
    }

    /// Name of a range or of work.
    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number)
    }

    /// Tensors passed to the call of a range.
    pub(crate) fn tensors(&self, range: &Range) -> &Tensors {
        self.tensors.get(range.tensors)
    }

    /// Copies totals of the whole recording, of which this trace is a part.
    fn take_totals(&mut self, whole: Self) {
        let Self { recorder, steps, devices, peak_memory, events, bytes, records, kernels, operators, .. } = whole;
        (self.recorder, self.steps, self.devices, self.peak_memory) = (recorder, steps, devices, peak_memory);
        (self.events, self.bytes, self.records) = (events, bytes, records);
        (self.kernels, self.operators, self.span) = (kernels, operators, whole.span);
        (self.bad_times, self.malformed) = (whole.bad_times, whole.malformed);
        self.is_part = true;
    }

    /// Number of a thread, identified by any unique key.
    fn thread(&mut self, key: &[u8]) -> u32 {
        if let Some(&thread) = self.threads.get(key) {
            return thread;
        }
        let thread = self.threads.len() as u32 + 1;
        self.threads.insert(key.into(), thread);
        thread
    }

    /// Process of each thread of a Kineto trace, as consecutive numbers.
    fn processes(&self) -> HashMap<u32, u32> {
        let mut numbers: HashMap<&[u8], u32> = HashMap::new();
        let mut processes = HashMap::new();
        let mut threads: Vec<(&Box<[u8]>, &u32)> = self.threads.iter().collect();
        threads.sort_by_key(|(_, thread)| **thread);
        for (key, thread) in threads {
            let next = numbers.len() as u32 + 1;
            let process = key.split(|byte| *byte == b'/').next().unwrap_or(key);
            processes.insert(*thread, *numbers.entry(process).or_insert(next));
        }
        processes
    }

    /// Whether an event has invalid times; counts it if so.
    fn has_bad_times(&mut self, name: Option<u32>, start: f64, end: f64) -> bool {
        let (field, value) = if !start.is_finite() {
            ("start", start)
        } else if (0.0..Micros::MOST).contains(&(end - start)) {
            return false;
        } else {
            ("end", end)
        };
        let name = name.map_or("launch", |name| self.names.get(name));
        self.bad_times.add(self.events, name, field, &format!("{value} µs"));
        true
    }

    /// Adds a mark, a range that may delimit a step; it does not count as a range of the trace.
    fn add_mark(&mut self, mark: Range) {
        if !self.has_bad_times(Some(mark.name), mark.start, mark.end) {
            self.marks.push(mark);
        }
    }

    /// Whether there is room for another record. If there is none, [`Self::check`] rejects the recording later.
    fn has_room(&mut self) -> bool {
        self.is_over |= self.ranges.len() + self.launches.len() + self.work.len() >= self.room;
        !self.is_over
    }

    fn add_range(&mut self, range: Range) {
        self.events += 1;
        if !self.has_room() || self.has_bad_times(Some(range.name), range.start, range.end) {
            return;
        }
        self.records += 1;
        let (low, high) = self.span.unwrap_or((range.start, range.end));
        self.span = Some((low.min(range.start), high.max(range.end)));
        if range.kind == RangeKind::Operator {
            self.operators += 1;
            self.has_shapes |= range.tensors != NONE;
        }
        self.ranges.push(range);
    }

    fn add_launch(&mut self, launch: Launch) {
        self.events += 1;
        if self.has_room() && !self.has_bad_times(None, launch.start, launch.end) {
            self.records += 1;
            self.kernel_launches += u64::from(launch.kind == CallKind::Kernel);
            self.launches.push(launch);
        }
    }

    fn add_work(&mut self, work: Work) {
        self.events += 1;
        if self.has_room() && !self.has_bad_times(Some(work.name), work.start, work.end) {
            self.records += 1;
            self.kernels += u64::from(work.kind == WorkKind::Kernel);
            self.work.push(work);
        }
    }

    /// Rejects a recording with too many records or too many unusable events. One in a hundred may be bad by chance;
    /// with more, the rest is not trustworthy either.
    fn check(&self) -> Result<(), TraceError> {
        self.check_room()?;
        let bad = &self.malformed;
        if bad.count * 100 > self.events {
            let fault = Fault::Malformed { count: bad.count, events: self.events, index: bad.index };
            return Err(self.recorder.format.error(fault));
        }
        let bad = self.bad_times.clone();
        let events = self.records + bad.count;
        if bad.count * 100 > events {
            let Unusable { count, index, name, field, value } = bad;
            return Err(self.recorder.format.error(Fault::BadTimes { count, events, index, name, field, value }));
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), TraceError> {
        let error = || self.recorder.format.error(Fault::StepTooLarge { most: self.room });
        if self.is_over { Err(error()) } else { Ok(()) }
    }

    /// Rejects a recording without kernels.
    fn needs_kernels(&self) -> Result<(), TraceError> {
        if self.kernels > 0 {
            return Ok(());
        }
        Err(self.recorder.format.error(Fault::NoKernels {
            operators: self.operators,
            launches: self.kernel_launches,
            with_shapes: self.has_shapes,
        }))
    }
}
