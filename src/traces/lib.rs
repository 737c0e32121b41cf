//! The typed form of a recording: what every reader fills and a profile is built from.
//!
//! A `Trace` holds the ranges of host threads (operator calls with typed arguments, modules,
//! named parts), the calls that launch work, the work of devices (kernel, copy, set), the ranges
//! that mark steps, and what is known of the devices. Times are microseconds on one clock.
//! A reader is a folder: [`kineto`] (PyTorch's profiler; the CUPTI recorder in `profiler/cupti`
//! writes the same JSON and needs no reader of its own), [`nsight`] and [`xplane`].
//! `profile/builder` makes the profile and knows none of the formats.
//!
//! A record takes about 50 bytes: texts, arguments and launch configurations are stored once
//! and named by a number. Readers stay within a budget of records: of a longer recording they
//! keep a few whole steps from its middle, so memory is bounded.

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

/// What a reader is asked for.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReadOptions<'a> {
    /// Steps read at most, from the middle of the recording.
    pub(crate) max_steps: Option<usize>,
    /// Records held in memory at once (about 50 bytes each); 1.5 million by default.
    pub(crate) max_records: Option<usize>,
    /// Ranges of that name (numbers at its end aside) are the steps, whatever else is marked.
    pub(crate) step_range: Option<&'a str>,
    /// Operators without work of a device are enough.
    pub(crate) shapes_only: bool,
    /// The GPU, by its number in the recording, where it has several.
    pub(crate) device: Option<u32>,
    /// The GPU is given, whatever the recording says.
    pub(crate) is_gpu_given: bool,
    /// Whether a GPU is one that the caller knows.
    pub(crate) knows_gpu: Option<&'a (dyn Fn(&DeviceInfo) -> bool + 'a)>,
}

impl ReadOptions<'_> {
    /// Records held by default: with all tables about 150 MB.
    const RECORDS: usize = 1_500_000;

    /// Records of the part that is used, which may be one step that is over the budget.
    fn room(&self) -> usize {
        self.budget().saturating_mul(8)
    }

    fn budget(&self) -> usize {
        self.max_records.unwrap_or(Self::RECORDS)
    }

    /// Whether the caller finds a GPU by what the recording says of it.
    fn finds(&self, gpu: &DeviceInfo) -> bool {
        self.knows_gpu.is_some_and(|knows| knows(gpu))
    }
}

/// Takes the trace of one rank after another, so that only one is in memory.
pub(crate) type EachRank<'a> = dyn FnMut(Trace) -> Result<(), TraceError> + 'a;

/// How far a reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of text read.
    pub bytes: u64,
    /// Events read.
    pub events: u64,
}

/// Called now and then; [`ControlFlow::Break`] stops the reader with [`Fault::Cancelled`].
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// What is particular to a recorder and its files.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    pub(crate) format: Format,
    /// The framework, where known.
    pub(crate) framework: Option<String>,
    /// Version of CUDA or HIP.
    pub(crate) runtime: Option<String>,
    pub(crate) driver: Option<String>,
    /// GPUs of the job that the recording is one rank of, if the recorder reports them.
    pub(crate) world_size: Option<u64>,
    /// The note on a trace without shapes.
    pub(crate) without_shapes: &'static str,
    /// What kernels are joined to.
    pub(crate) joined_to: &'static str,
    /// Added to the note that the whole file is one step.
    pub(crate) whole_remedy: &'static str,
    /// Without marks, steps may be looked for in the sequence of kernels.
    pub(crate) finds_patterns: bool,
    /// Operators on long lists of tensors lack their shapes.
    pub(crate) leaves_out_lists: bool,
    /// It slows the host down by much more than the device, as `torch.profiler` does.
    pub(crate) slows_host: bool,
    pub(crate) grouping: Grouping,
    /// What the reader of the profile should know of the file.
    pub(crate) notes: Vec<String>,
}

/// What stands in for operators where work has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// The kernels, by their names.
    Kernels,
    /// The kernels, grouped by the program's own ranges around them.
    Ranges,
    /// The same of a recorder that knows no operators at all.
    RangesOnly,
}

impl Grouping {
    /// Whether ranges group the work.
    pub(crate) fn is_by_range(self) -> bool {
        self != Self::Kernels
    }

    /// Whether there can be no operators.
    pub(crate) fn is_without_operators(self) -> bool {
        self == Self::RangesOnly
    }
}

/// A recording of one rank.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) recorder: Recorder,
    pub(crate) ranges: Vec<Range>,
    pub(crate) launches: Vec<Launch>,
    pub(crate) work: Vec<Work>,
    /// Ranges that can mark steps, kept even when the budget is spent.
    pub(crate) marks: Vec<Range>,
    /// How the steps are marked, where every mark is known to be a step.
    pub(crate) marked_by: Option<StepMarks>,
    /// Name of the ranges that are steps, where the caller gave one.
    pub(crate) step_range: Option<String>,
    /// The steps to use; none where nothing marks them.
    pub(crate) steps: Option<MarkedSteps>,
    pub(crate) names: Interned<Box<str>>,
    pub(crate) tensors: Interned<Tensors>,
    pub(crate) scalars: Interned<Scalars>,
    pub(crate) configurations: Configurations,
    threads: HashMap<Box<[u8]>, u32>,
    /// The devices by number; of some recorders the number is not known.
    pub(crate) devices: Vec<(Option<u64>, DeviceInfo)>,
    /// Largest device memory allocated, by device, in bytes.
    pub(crate) peak_memory: HashMap<u32, u64>,
    /// Events of the file, bytes of its text, and records made of them, whether kept or not.
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    pub(crate) kernels: u64,
    pub(crate) operators: u64,
    /// Calls that launch a kernel.
    pub(crate) kernel_launches: u64,
    /// Some operator has arguments with shapes.
    pub(crate) has_shapes: bool,
    /// The recorder says that the program trains.
    pub(crate) trains: bool,
    /// The recording was over the budget, and this is a part of it.
    pub(crate) is_part: bool,
    /// Records held at most, and whether there were more.
    room: usize,
    is_over: bool,
    /// First start and last end of the ranges.
    pub(crate) span: Option<(f64, f64)>,
    pub(crate) bad_times: Unusable,
    pub(crate) malformed: Unusable,
}

impl Trace {
    /// An empty trace of a recorder.
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

    /// The name of a range or of work.
    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number)
    }

    /// The shapes and the element type that a range was given.
    pub(crate) fn tensors(&self, range: &Range) -> &Tensors {
        self.tensors.get(range.tensors)
    }

    /// Takes what is known of the whole recording, of which this is a part.
    fn take_totals(&mut self, whole: Self) {
        let Self { recorder, steps, devices, peak_memory, events, bytes, records, kernels, operators, .. } = whole;
        (self.recorder, self.steps, self.devices, self.peak_memory) = (recorder, steps, devices, peak_memory);
        (self.events, self.bytes, self.records) = (events, bytes, records);
        (self.kernels, self.operators, self.span) = (kernels, operators, whole.span);
        (self.bad_times, self.malformed) = (whole.bad_times, whole.malformed);
        self.is_part = true;
    }

    /// The number of a thread, by anything that tells threads apart.
    fn thread(&mut self, key: &[u8]) -> u32 {
        if let Some(&thread) = self.threads.get(key) {
            return thread;
        }
        let thread = self.threads.len() as u32 + 1;
        self.threads.insert(key.into(), thread);
        thread
    }

    /// The process of each thread of a Kineto trace, as numbers.
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

    /// Counts an event whose times cannot be.
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

    /// Takes a range that may mark a step; it is no range of its own by that.
    fn add_mark(&mut self, mark: Range) {
        if !self.has_bad_times(Some(mark.name), mark.start, mark.end) {
            self.marks.push(mark);
        }
    }

    /// Whether one more record can be held; where not, the recording is refused in the end.
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

    /// Refuses a recording that has more than is held, or of which too much is unusable: one event
    /// in a hundred may be chance; more say that the rest is unusable too.
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

    /// Refuses a recording without kernels.
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
