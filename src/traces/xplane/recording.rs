//! Events of one GPU, its steps, and their conversion to a trace.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::device::{configuration, device_info, microseconds, shown, work_kind};
use super::hlo::Operator;
use super::host::HostSteps;
use super::programs::Programs;
use super::space::{Event, Line, Plane, Stat};
use crate::{
    CallKind, Configuration, Fault, Format, Grouping, Launch, NONE, Range, RangeKind, ReadOptions, Recorder, StepMarks,
    Tensors, Trace, Work, WorkKind, steps,
};

/// Events of one GPU; times in microseconds since the start of its first line.
pub(super) struct Recording<'a> {
    pub(super) device: u32,
    pub(super) events: Vec<Ran>,
    operators: Vec<Operator>,
    names: Vec<String>,
    details: Vec<Configuration>,
    /// Time origin in nanoseconds.
    base: i64,
    marks: Vec<(f64, f64)>,
    how: Option<StepMarks>,
    notes: Vec<String>,
    /// Kernel time of instructions whose program is in the recording, and of all kernels, in microseconds.
    described: (f64, f64),
    trains: bool,
    programs: &'a Programs,
}

/// A kernel, copy or fill.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran {
    pub(super) start: f64,
    pub(super) end: f64,
    name: u32,
    kind: WorkKind,
    stream: u64,
    /// Index in `operators`; `None` if the event names no instruction.
    operator: Option<u32>,
    details: u32,
    /// Program number.
    program: u64,
    correlation: i64,
}

/// Interned texts.
struct Numbers<'a, T> {
    known: HashMap<String, u32>,
    list: &'a mut Vec<T>,
}

impl<T> Numbers<'_, T> {
    fn number(&mut self, key: String, value: impl FnOnce(&str) -> T) -> u32 {
        if let Some(number) = self.known.get(&key) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.list.push(value(&key));
        self.known.insert(key, number);
        number
    }
}

/// Maximum number of events of a GPU, about 100 bytes each.
const EVENTS: usize = 1 << 22;

/// Lines that repeat the streams' events in other groupings, for viewers.
const DERIVED: [&str; 9] = [
    "Steps",
    "XLA Modules",
    "XLA Ops",
    "Async XLA Ops",
    "Framework Ops",
    "Framework Name Scope",
    "Source code",
    "XLA TraceMe",
    "Launch Stats",
];

impl<'a> Recording<'a> {
    pub(super) fn read(device: u32, plane: &Plane<'_>, programs: &'a Programs) -> Result<Self, Fault> {
        let mut recording = Self {
            device,
            events: Vec::new(),
            operators: Vec::new(),
            names: Vec::new(),
            details: Vec::new(),
            base: 0,
            marks: Vec::new(),
            how: None,
            notes: Vec::new(),
            described: (0.0, 0.0),
            trains: false,
            programs,
        };
        let (base, lines) = lines_of_kernels(plane)?;
        recording.base = base;
        let [op, module, program, details, correlation] =
            ["hlo_op", "hlo_module", "program_id", "kernel_details", "correlation_id"]
                .map(|name| plane.number_of(name));
        let (mut names, mut operators, mut launches) = (Vec::new(), Vec::new(), Vec::new());
        let mut name_of = Numbers { known: HashMap::new(), list: &mut names };
        let mut operator_of = Numbers { known: HashMap::new(), list: &mut operators };
        let mut launch_of = Numbers { known: HashMap::new(), list: &mut launches };
        let mut trained: HashSet<u64> = HashSet::new();
        for line in &lines {
            for message in line.events() {
                if recording.events.len() >= EVENTS {
                    return Err(Fault::TooMany { what: "kernels and copies of a GPU", most: EVENTS });
                }
                let event = Event::read(message)?;
                let kind = plane.kinds.get(&event.kind);
                let value = |name: Option<u64>| {
                    let own = event.stats.iter().find(|(key, _)| Some(*key) == name);
                    let shared = || kind?.stats.iter().find(|(key, _)| Some(*key) == name);
                    own.or_else(shared).map(|(_, stat)| *stat)
                };
                let text = |name| value(name).map(|stat| plane.text(stat)).unwrap_or_default();
                let (instruction, module) = (text(op), text(module));
                let number = value(program).and_then(Stat::whole).map(i64::cast_unsigned);
                let start = microseconds(line.start, recording.base, event.offset);
                let end = start + event.duration as f64 / 1e6;
                let name = kind.map_or("", |kind| kind.name.as_str());
                let kind = work_kind(name);
                let found = programs.find(number, &module);
                let known = found.and_then(|(of, program)| Some((of, program.operators.get(&instruction)?)));
                if kind == WorkKind::Kernel && end >= start {
                    recording.described.1 += end - start;
                    recording.described.0 += if known.is_some() { end - start } else { 0.0 };
                }
                if found.is_some_and(|(_, program)| program.trains) {
                    trained.insert(number.unwrap_or(0));
                }
                let operator = (!instruction.is_empty()).then(|| {
                    if let Some((of, known)) = known {
                        // One entry, whatever name the event has for the program.
                        return operator_of.number(format!("{of}\u{0}{instruction}"), |_| known.clone());
                    }
                    let key = format!("{module}\u{0}{}\u{0}{instruction}", number.unwrap_or(0));
                    operator_of.number(key, |_| Operator::new(&instruction, Tensors::default()))
                });
                recording.events.push(Ran {
                    start,
                    end,
                    name: name_of.number(shown(name), str::to_owned),
                    kind,
                    stream: line.id,
                    operator,
                    details: launch_of.number(text(details), configuration),
                    program: number.unwrap_or(0),
                    correlation: value(correlation).and_then(Stat::whole).unwrap_or(-1),
                });
            }
        }
        recording.trains = !trained.is_empty();
        (recording.names, recording.operators, recording.details) = (names, operators, launches);
        recording.events.sort_by(|a, b| a.start.total_cmp(&b.start));
        Ok(recording)
    }

    /// Finds the steps: from the plane's own line, otherwise from the host's marks, otherwise from runs of a program.
    pub(super) fn find_steps(&mut self, plane: &Plane<'_>, host: &HostSteps) -> Result<(), Fault> {
        for message in &plane.lines {
            let line = Plane::line(*message)?;
            if line.name != "Steps" {
                continue;
            }
            for event in line.events().take(EVENTS) {
                let event = Event::read(event)?;
                let start = microseconds(line.start, self.base, event.offset);
                self.marks.push((start, start + event.duration as f64 / 1e6));
            }
        }
        if !self.marks.is_empty() {
            self.how = Some(StepMarks::Recorder);
            return Ok(());
        }
        self.marks = host.on_device(self.events.iter().map(|event| (event.correlation, event.start, event.end)));
        if !self.marks.is_empty() {
            self.how = Some(StepMarks::Recorder);
            return Ok(());
        }
        self.runs();
        Ok(())
    }

    /// Runs of the program with the most device time. The least frequent instruction is assumed to run once per run,
    /// not in a loop.
    fn runs(&mut self) {
        let mut times: BTreeMap<u64, f64> = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.operator.is_some()) {
            *times.entry(event.program).or_default() += event.end - event.start;
        }
        let Some((main, _)) = times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
        let own = || self.events.iter().filter(|event| event.program == main && event.operator.is_some());
        let mut occurrences: HashMap<(Option<u32>, u32), Vec<f64>> = HashMap::new();
        for event in own() {
            occurrences.entry((event.operator, event.name)).or_default().push(event.start);
        }
        let starts = occurrences.into_values().min_by(|a, b| {
            a.len()
                .cmp(&b.len())
                .then_with(|| a.first().copied().unwrap_or(0.0).total_cmp(&b.first().copied().unwrap_or(0.0)))
        });
        let Some(starts) = starts.filter(|starts| starts.len() >= 2) else { return };
        let end = own().map(|event| event.end).fold(0.0, f64::max);
        self.marks = starts
            .iter()
            .zip(starts.iter().skip(1).chain(std::iter::once(&end)))
            .map(|(start, end)| (*start, *end))
            .collect();
        self.how = Some(StepMarks::ProgramRuns);
    }

    /// Builds the trace. Consecutive kernels of an instruction on a stream form one range, which becomes the operator.
    pub(super) fn trace(mut self, plane: &Plane<'_>, options: &ReadOptions<'_>) -> Trace {
        let info = device_info(plane);
        let (described, all) = self.described;
        if all > 0.0 && described < 0.995 * all {
            self.notes.push(format!(
                "shapes are known for {:.1} % of the kernel time; the programs of the rest are not in the recording",
                100.0 * described / all
            ));
        }
        if self.programs.unread > 0 {
            self.notes.push(format!("{} programs in the recording have no instructions", self.programs.unread));
        }
        let mut trace = Trace::new(Recorder {
            format: Format::Xplane,
            framework: Some("xla".to_owned()),
            runtime: None,
            driver: None,
            world_size: None,
            without_shapes: "the recording has no programs and so no shapes: record it with JAX's profiler in the process that compiled them",
            joined_to: "an instruction of a compiled program",
            whole_remedy: " (jax.profiler.StepTraceAnnotation marks steps)",
            finds_patterns: false,
            leaves_out_lists: false,
            slows_host: false,
            grouping: Grouping::Kernels,
            notes: std::mem::take(&mut self.notes),
        });
        trace.room = options.room();
        trace.trains = self.trains;
        trace.devices.push((Some(u64::from(self.device)), info));
        trace.marked_by = self.how;
        let step = trace.names.plain("step");
        for (start, end) in &self.marks {
            trace.add_mark(Range::new(RangeKind::Annotation, step, NONE, *start, *end));
        }
        let operators: Vec<Range> = self.operators.iter().map(|operator| range(&mut trace, operator)).collect();
        let names: Vec<u32> = self.names.iter().map(|name| trace.names.plain(name)).collect();
        let configurations: Vec<u32> =
            self.details.iter().map(|details| trace.configurations.number(details.clone())).collect();
        // Each kernel becomes three records.
        trace.records = 3 * self.events.len() as u64;
        trace.is_part = trace.records > options.budget() as u64;
        trace.span = self
            .events
            .first()
            .map(|first| (first.start, self.events.iter().map(|event| event.end).fold(0.0, f64::max)));
        let window = steps::select(&mut trace, options);
        (trace.records, trace.span) = (0, None);
        self.add_events(&mut trace, window, &operators, &names, &configurations);
        trace
    }

    /// Adds the kernels within the window, and the ranges of their operators; the numbers of their names and launch
    /// parameters in the trace are given.
    fn add_events(
        &self,
        trace: &mut Trace,
        window: Option<(f64, f64)>,
        operators: &[Range],
        names: &[u32],
        configurations: &[u32],
    ) {
        let mut open: BTreeMap<u32, (u32, Range)> = BTreeMap::new();
        for (index, event) in self.events.iter().enumerate() {
            if window.is_some_and(|(from, to)| event.start < from || event.start >= to) {
                continue;
            }
            let thread = trace.thread(&event.stream.to_le_bytes());
            match (open.get_mut(&thread), event.operator) {
                (Some((operator, range)), Some(own)) if *operator == own => range.end = range.end.max(event.end),
                (_, own) => {
                    if let Some((_, range)) = open.remove(&thread) {
                        // On some clocks a kernel starts just before the previous one ends.
                        trace.add_range(Range { end: range.end.min(event.start).max(range.start), ..range });
                    }
                    if let Some(own) = own {
                        let (start, end) = (event.start, event.end);
                        open.insert(thread, (own, Range { start, end, thread, ..operators[own as usize].clone() }));
                    }
                }
            }
            let correlation = index as u64 + 1;
            trace.add_launch(Launch {
                start: event.start,
                end: event.start,
                correlation,
                thread,
                kind: CallKind::Kernel,
            });
            trace.add_work(Work {
                start: event.start,
                end: event.end,
                correlation,
                name: names[event.name as usize],
                configuration: configurations[event.details as usize],
                device: self.device,
                stream: event.stream as u32,
                kind: event.kind,
                is_timed: true,
            });
        }
        for (_, range) in open.into_values() {
            trace.add_range(range);
        }
    }
}

/// Start of a plane's first line with events, and the lines with kernels and copies: those of streams if there are any.
fn lines_of_kernels<'p>(plane: &Plane<'p>) -> Result<(i64, Vec<Line<'p>>), Fault> {
    let mut lines = plane.lines.iter().map(|line| Plane::line(*line)).collect::<Result<Vec<_>, _>>()?;
    let begun = lines.iter().filter(|line| line.events().next().is_some());
    let base = begun.map(|line| line.start).min().unwrap_or(0);
    let is_stream = |line: &Line<'_>| line.name.starts_with("Stream");
    let any = lines.iter().any(is_stream);
    lines.retain(|line| if any { is_stream(line) } else { !DERIVED.contains(&line.name.as_str()) });
    Ok((base, lines))
}

/// Range of an operator, without thread and times.
fn range(trace: &mut Trace, operator: &Operator) -> Range {
    let name = trace.names.plain(&operator.name);
    let tensors = if operator.tensors.shapes.is_empty() { NONE } else { trace.tensors.value(operator.tensors.clone()) };
    let scalars = trace.scalars.value(operator.scalars.clone());
    let phase = Some(operator.phase);
    Range { tensors, scalars, phase, ..Range::new(RangeKind::Operator, name, NONE, 0.0, 0.0) }
}
