//! Events of other recorders than PyTorch's, brought into the same records.
//!
//! Nesting, joining, steps, grouping and timing are the same whatever a step was recorded
//! with. Another importer turns its file into ranges, launches and device work, and says
//! in a [`Recorder`] what its file is called and what is to be expected of it.

use std::collections::HashMap;

use super::collect::Records;
use super::intern::NONE;
use super::record::{Device, DeviceKind, Host, HostKind, Launch, LaunchShape, Properties};
use super::scan::Totals;
use super::steps::{self, Span, StepMarks};
use super::{DeviceInfo, Import, ImportOptions, KinetoError, RECORDS, build, middle, window};
use crate::profile::Phase;
use crate::units::Micros;

/// What is particular to a recorder and its files.
#[derive(Debug, Clone)]
pub(in crate::profile) struct Recorder {
    /// What the profile says it was made from.
    pub(in crate::profile) source: &'static str,
    /// The framework, where known.
    pub(in crate::profile) framework: Option<String>,
    /// The driver, where known by its own number.
    pub(in crate::profile) driver: Option<String>,
    /// Said where there are no shapes.
    pub(in crate::profile) without_shapes: &'static str,
    /// What kernels are joined to.
    pub(in crate::profile) joined_to: &'static str,
    /// Added to the note that the whole file is one step.
    pub(in crate::profile) whole_remedy: &'static str,
    /// Without marks, steps may be looked for in the sequence of kernels.
    pub(in crate::profile) finds_patterns: bool,
    /// What stands in for operators where work has none.
    pub(in crate::profile) grouping: Grouping,
    /// What the reader should know of the file.
    pub(in crate::profile) notes: Vec<String>,
}

/// What stands in for operators where work has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::profile) enum Grouping {
    /// The kernels, by their names.
    Kernels,
    /// The kernels, grouped by the program's own ranges around them.
    Ranges,
    /// The same of a recorder that knows no operators at all.
    RangesOnly,
}

impl Grouping {
    /// Whether ranges group the work.
    pub(in crate::profile) fn is_by_range(self) -> bool {
        self != Self::Kernels
    }

    /// Whether there can be no operators.
    pub(in crate::profile) fn is_without_operators(self) -> bool {
        self == Self::RangesOnly
    }
}

impl Default for Recorder {
    /// PyTorch's own profiler.
    fn default() -> Self {
        Self {
            source: "kineto trace",
            framework: Some("pytorch".to_owned()),
            driver: None,
            without_shapes: "the trace has no shapes: record it with record_shapes=True for better predictions",
            joined_to: "an operator",
            whole_remedy: "",
            finds_patterns: true,
            grouping: Grouping::Kernels,
            notes: Vec::new(),
        }
    }
}

/// What a host range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::profile) enum RangeKind {
    /// An operator of the framework.
    Operator,
    /// A range that says something about the step (a phase, an optimizer, a collective).
    Annotation,
    /// A part of the program: its name groups what is in it.
    Part,
}

/// A range on a host thread; times in microseconds.
#[derive(Debug, Clone, Copy)]
pub(in crate::profile) struct Range<'a> {
    pub(in crate::profile) name: &'a str,
    pub(in crate::profile) start: f64,
    pub(in crate::profile) end: f64,
    /// Any number that tells threads apart.
    pub(in crate::profile) thread: u64,
    pub(in crate::profile) kind: RangeKind,
    /// Autograd's sequence number, -1 where there is none.
    pub(in crate::profile) sequence: i64,
    /// A node of the backward pass.
    pub(in crate::profile) of_forward: bool,
    /// Shapes, types and values of the arguments, as JSON lists.
    pub(in crate::profile) dims: &'a str,
    pub(in crate::profile) types: &'a str,
    pub(in crate::profile) values: &'a str,
    /// The phase of everything in it.
    pub(in crate::profile) phase: Option<Phase>,
}

impl<'a> Range<'a> {
    /// A range that says something about the step, of which no more is known.
    pub(in crate::profile) const fn annotation(name: &'a str, start: f64, end: f64, thread: u64) -> Self {
        Self {
            name,
            start,
            end,
            thread,
            kind: RangeKind::Annotation,
            sequence: -1,
            of_forward: false,
            dims: "",
            types: "",
            values: "",
            phase: None,
        }
    }
}

/// What a device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::profile) enum WorkKind {
    Kernel,
    Copy,
    Set,
}

/// A kernel, copy or fill; times in microseconds.
#[derive(Debug, Clone, Copy)]
pub(in crate::profile) struct Work<'a> {
    pub(in crate::profile) name: &'a str,
    pub(in crate::profile) kind: WorkKind,
    pub(in crate::profile) start: f64,
    pub(in crate::profile) end: f64,
    pub(in crate::profile) correlation: u64,
    pub(in crate::profile) device: u32,
    pub(in crate::profile) grid: Option<[u32; 3]>,
    pub(in crate::profile) block: Option<[u32; 3]>,
    pub(in crate::profile) registers: Option<u32>,
    pub(in crate::profile) static_memory: Option<u64>,
    pub(in crate::profile) dynamic_memory: Option<u64>,
}

/// Takes events in, in any order.
#[derive(Debug, Default)]
pub(in crate::profile) struct Feed {
    records: Records,
    threads: HashMap<u64, u32>,
    marked: Option<(Vec<Span>, StepMarks)>,
}

impl Feed {
    /// An empty one for a recorder.
    pub(in crate::profile) fn new(recorder: Recorder) -> Self {
        Self { records: Records { recorder, ..Records::default() }, ..Self::default() }
    }

    /// To add to what is known of the recorder.
    pub(in crate::profile) fn recorder(&mut self) -> &mut Recorder {
        &mut self.records.recorder
    }

    /// Records held at most.
    pub(in crate::profile) fn budget(options: &ImportOptions<'_>) -> u64 {
        options.max_records.unwrap_or(RECORDS) as u64
    }

    /// Counts an event whose times cannot be.
    fn is_bad(&mut self, name: &str, start: f64, end: f64) -> bool {
        let (field, value) = if !(start.is_finite() && start >= 0.0) {
            ("start", start)
        } else if (0.0..Micros::MOST).contains(&(end - start)) {
            return false;
        } else {
            ("end", end)
        };
        let bad = &mut self.records.bad_times;
        if bad.count == 0 {
            (bad.index, bad.name, bad.field) = (self.records.events, crate::text::clean(name, 80), field);
            bad.value = format!("{value} µs");
        }
        bad.count += 1;
        true
    }

    fn host(&mut self, range: &Range<'_>) -> Host {
        let next = self.threads.len() as u32 + 1;
        let thread = *self.threads.entry(range.thread).or_insert(next);
        let texts = &mut self.records.texts;
        let mut text = |text: &str| if matches!(text, "" | "[]") { NONE } else { texts.raw(text.as_bytes()) };
        Host {
            start: range.start,
            end: range.end,
            sequence: range.sequence,
            thread,
            dims: text(range.dims),
            types: text(range.types),
            values: text(range.values),
            name: self.records.names.plain(range.name),
            kind: match range.kind {
                RangeKind::Operator => HostKind::Operator,
                RangeKind::Annotation => HostKind::Annotation,
                RangeKind::Part => HostKind::Part,
            },
            of_forward: range.of_forward,
            phase: range.phase,
        }
    }

    /// Takes a range that may mark a step; it is no range of its own by that.
    pub(in crate::profile) fn mark(&mut self, range: &Range<'_>) {
        if !self.is_bad(range.name, range.start, range.end) {
            let host = self.host(range);
            self.records.marks.push(host);
        }
    }

    /// Takes a range.
    pub(in crate::profile) fn range(&mut self, range: &Range<'_>) {
        self.records.events += 1;
        if self.is_bad(range.name, range.start, range.end) {
            return;
        }
        self.records.seen += 1;
        let (low, high) = self.records.span.unwrap_or((range.start, range.end));
        self.records.span = Some((low.min(range.start), high.max(range.end)));
        let host = self.host(range);
        if range.kind == RangeKind::Operator {
            self.records.operators_seen += 1;
            self.records.shapes_seen |= host.dims != NONE;
        }
        self.records.host.push(host);
    }

    /// Takes a call that starts work on a device.
    pub(in crate::profile) fn launch(&mut self, start: f64, end: f64, correlation: u64, thread: u64) {
        self.records.events += 1;
        if self.is_bad("launch", start, end) {
            return;
        }
        self.records.seen += 1;
        let next = self.threads.len() as u32 + 1;
        let thread = *self.threads.entry(thread).or_insert(next);
        self.records.launches.push(Launch { start, end, correlation, thread, shape: NONE, grid_in_threads: false });
    }

    /// Takes work of a device.
    pub(in crate::profile) fn work(&mut self, work: &Work<'_>) {
        self.records.events += 1;
        if self.is_bad(work.name, work.start, work.end) {
            return;
        }
        self.records.seen += 1;
        self.records.kernels_seen += u64::from(work.kind == WorkKind::Kernel);
        let shape = self.records.shapes.number(LaunchShape {
            grid: work.grid,
            block: work.block,
            registers: work.registers,
            shared_memory: work.static_memory,
            dynamic_memory: work.dynamic_memory,
            ..LaunchShape::default()
        });
        let device = Device {
            start: work.start,
            end: work.end,
            correlation: work.correlation,
            name: self.records.names.plain(work.name),
            shape,
            on: work.device,
            kind: match work.kind {
                WorkKind::Kernel => DeviceKind::Kernel,
                WorkKind::Copy => DeviceKind::Copy,
                WorkKind::Set => DeviceKind::Set,
            },
        };
        self.records.devices.push(device);
    }

    /// Takes what is known of a GPU.
    pub(in crate::profile) fn gpu(&mut self, device: u32, info: &DeviceInfo) {
        self.records.properties.push(Properties {
            id: Some(u64::from(device)),
            name: crate::text::clean(&info.name, 120),
            major: info.compute_capability.map(|(major, _)| major),
            minor: info.compute_capability.map(|(_, minor)| minor),
            multiprocessors: info.multiprocessors,
            memory_bytes: info.memory_bytes,
        });
    }

    /// Says that the steps are the marks taken, each one.
    pub(in crate::profile) fn steps_are_marks(&mut self, marks: StepMarks) {
        let mut hosts: Vec<&Host> = self.records.marks.iter().collect();
        hosts.sort_by(|a, b| a.start.total_cmp(&b.start));
        let spans = steps::ranges(&self.records, &hosts);
        if !spans.is_empty() {
            self.marked = Some((spans, marks));
        }
    }

    /// Of a file of `records` events, over the budget, the window of time to read: some
    /// whole steps of the marks taken, else the middle of `span`.
    pub(in crate::profile) fn window(
        &mut self,
        records: u64,
        span: (f64, f64),
        options: &ImportOptions<'_>,
    ) -> (f64, f64) {
        let budget = Self::budget(options);
        self.records.overflowed = true;
        self.records.seen = records;
        self.records.span = Some(span);
        let spans = self.marked().map(|(spans, _)| {
            let per_step = records / (spans.len() as u64).max(1);
            let fitting = (budget / per_step.max(1)) as usize;
            middle(spans, fitting.min(options.max_steps.unwrap_or(usize::MAX)).max(1))
        });
        let found = window(&self.records, spans.as_deref(), budget as usize);
        self.records.seen = 0;
        self.records.span = None;
        found
    }

    fn marked(&self) -> Option<(Vec<Span>, StepMarks)> {
        self.marked.clone().or_else(|| steps::from_marks(&self.records))
    }

    /// Whether work of that correlation was launched by a call taken.
    pub(in crate::profile) fn correlations(&self) -> std::collections::HashSet<u64> {
        self.records.launches.iter().map(|launch| launch.correlation).collect()
    }

    /// Makes the profile. `window` is that of [`Self::window`], where one was needed.
    pub(in crate::profile) fn finish(
        mut self,
        options: &ImportOptions<'_>,
        window: Option<(f64, f64)>,
    ) -> Result<Import, KinetoError> {
        super::check(&self.records)?;
        if self.records.kernels_seen == 0 {
            let (operators, with_shapes) = (self.records.operators_seen, self.records.shapes_seen);
            return Err(KinetoError::NoKernels { operators, with_shapes });
        }
        self.records.settle_grids();
        let marked = self.marked();
        let found = marked.as_ref().map(|(spans, _)| spans.len());
        let marked = marked.map(|(mut spans, marks)| {
            if let Some((from, to)) = window {
                spans.retain(|span| span.start >= from && span.end <= to);
            }
            (middle(spans, options.max_steps.unwrap_or(usize::MAX).max(1)), marks)
        });
        let marked = marked.filter(|(spans, _)| !spans.is_empty());
        let totals = Totals { events: self.records.events, bytes: 0 };
        build::build(&build::Source { records: &self.records, marked, found, totals }, options)
    }
}
