//! What ran on one GPU: its events, the steps among them, and how they are told to the feed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::device::{Launch, device_info, launch, microseconds, shown, work_kind};
use super::hlo::Operator;
use super::host::HostSteps;
use super::space::{Event, Line, Plane, Stat};
use super::{Programs, WireError, XplaneError};
use crate::profile::kineto::{
    Feed, Grouping, Import, ImportOptions, Range, RangeKind, Recorder, StepMarks, Work, WorkKind,
};
use crate::profile::{Mode, Phase};

/// What ran on one GPU; times in microseconds from its first line's beginning.
pub(super) struct Recording<'a> {
    pub(super) device: u32,
    pub(super) events: Vec<Ran>,
    operators: Vec<Operator>,
    names: Vec<String>,
    details: Vec<Launch>,
    /// The clock's beginning, in nanoseconds.
    base: i64,
    marks: Vec<(f64, f64)>,
    how: Option<StepMarks>,
    notes: Vec<String>,
    /// Kernel time of instructions whose program is in the recording, and of all.
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
    /// Of `operators`; none where no instruction is named.
    operator: Option<u32>,
    details: u32,
    /// The program's number, and the instruction's place among names.
    program: u64,
    pub(super) correlation: i64,
}

/// Texts numbered once.
struct Numbers<'a, T> {
    known: HashMap<String, u32>,
    list: &'a mut Vec<T>,
}

impl<T> Numbers<'_, T> {
    fn of(&mut self, key: String, value: impl FnOnce(&str) -> T) -> u32 {
        if let Some(number) = self.known.get(&key) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.list.push(value(&key));
        self.known.insert(key, number);
        number
    }
}

/// Lines that tell the streams' events again, put together for viewers.
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
    pub(super) fn read(device: u32, plane: &Plane<'_>, programs: &'a Programs) -> Result<Self, WireError> {
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
        let lines = plane.lines.iter().map(|line| Plane::line(*line)).collect::<Result<Vec<_>, _>>()?;
        recording.base = lines.iter().filter(|line| !line.events.is_empty()).map(|line| line.start).min().unwrap_or(0);
        let streams = |line: &&Line<'_>| line.name.starts_with("Stream");
        let any = lines.iter().any(|line| streams(&line));
        let number = |name: &str| plane.number_of(name);
        let (op, module, program, details, correlation) = (
            number("hlo_op"),
            number("hlo_module"),
            number("program_id"),
            number("kernel_details"),
            number("correlation_id"),
        );
        let (mut names, mut operators, mut launches) = (Vec::new(), Vec::new(), Vec::new());
        let mut name_of = Numbers { known: HashMap::new(), list: &mut names };
        let mut operator_of = Numbers { known: HashMap::new(), list: &mut operators };
        let mut launch_of = Numbers { known: HashMap::new(), list: &mut launches };
        let mut trained: HashSet<u64> = HashSet::new();
        for line in lines.iter().filter(|line| if any { streams(line) } else { !DERIVED.contains(&line.name.as_str()) })
        {
            for message in &line.events {
                let event = Event::read(*message)?;
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
                if kind == WorkKind::Kernel && end >= start {
                    recording.described.1 += end - start;
                    let has = found.is_some_and(|program| program.operators.contains_key(&instruction));
                    recording.described.0 += if has { end - start } else { 0.0 };
                }
                if found.is_some_and(|program| program.trains) {
                    trained.insert(number.unwrap_or(0));
                }
                let operator = (!instruction.is_empty()).then(|| {
                    operator_of.of(format!("{module}\u{0}{}\u{0}{instruction}", number.unwrap_or(0)), |_| {
                        found.and_then(|program| program.operators.get(&instruction)).cloned().unwrap_or_else(|| {
                            Operator {
                                name: instruction.clone(),
                                dims: String::new(),
                                types: String::new(),
                                values: String::new(),
                                phase: Phase::Other,
                            }
                        })
                    })
                });
                recording.events.push(Ran {
                    start,
                    end,
                    name: name_of.of(shown(name), str::to_owned),
                    kind,
                    stream: line.id,
                    operator,
                    details: launch_of.of(text(details), launch),
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

    /// Finds the steps: by the plane's own line, by the host's marks, by runs of a program.
    pub(super) fn steps(&mut self, plane: &Plane<'_>, host: &HostSteps) -> Result<(), WireError> {
        for message in &plane.lines {
            let line = Plane::line(*message)?;
            if line.name != "Steps" {
                continue;
            }
            for event in &line.events {
                let event = Event::read(*event)?;
                let start = microseconds(line.start, self.base, event.offset);
                self.marks.push((start, start + event.duration as f64 / 1e6));
            }
        }
        if !self.marks.is_empty() {
            self.how = Some(StepMarks::Recorder);
            return Ok(());
        }
        self.marks = host.on_device(&self.events);
        if !self.marks.is_empty() {
            self.how = Some(StepMarks::Recorder);
            return Ok(());
        }
        self.runs();
        Ok(())
    }

    /// Runs of the program with most device time: an instruction that is carried out once
    /// in a run (not one in a loop) occurs least often.
    fn runs(&mut self) {
        let mut times: BTreeMap<u64, f64> = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.operator.is_some()) {
            *times.entry(event.program).or_default() += event.end - event.start;
        }
        let Some((main, _)) = times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
        let own = || self.events.iter().filter(|event| event.program == main && event.operator.is_some());
        let mut places: HashMap<(Option<u32>, u32), Vec<f64>> = HashMap::new();
        for event in own() {
            places.entry((event.operator, event.name)).or_default().push(event.start);
        }
        let starts = places.into_values().min_by(|a, b| {
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

    pub(super) fn import(mut self, plane: &Plane<'_>, options: &ImportOptions<'_>) -> Result<Import, XplaneError> {
        let info = device_info(plane);
        if options.origin.is_none() && options.resolve_gpu.is_some_and(|find| find(&info).is_some()) {
            self.notes.push(
                "the recording does not name its GPU, which was found by its figures; --origin sets it".to_owned(),
            );
        }
        let (described, all) = self.described;
        if all > 0.0 && described < 0.995 * all {
            self.notes.push(format!(
                "{:.1} % of the kernel time is of instructions whose program is in the recording; the rest has no shapes",
                100.0 * described / all
            ));
        }
        if self.programs.unread > 0 {
            self.notes.push(format!("{} programs of the recording have no instructions", self.programs.unread));
        }
        let mut feed = Feed::new(Recorder {
            source: "xplane recording",
            framework: Some("xla".to_owned()),
            driver: None,
            without_shapes: "the recording has no programs, so no shapes: record it with JAX's profiler in the process that compiled them",
            joined_to: "an instruction of a compiled program",
            whole_remedy: " (jax.profiler.StepTraceAnnotation marks steps)",
            finds_patterns: false,
            grouping: Grouping::Kernels,
            notes: std::mem::take(&mut self.notes),
        });
        feed.gpu(self.device, &info);
        for (start, end) in &self.marks {
            feed.mark(&Range::annotation("step", *start, *end, 0));
        }
        if let Some(how) = self.how {
            feed.steps_are_marks(how);
        }
        // A kernel becomes three records.
        let records = 3 * self.events.len() as u64;
        let window = (records > Feed::budget(options)).then(|| {
            let span = (self.events[0].start, self.events.iter().map(|event| event.end).fold(0.0, f64::max));
            feed.window(records, span, options)
        });
        let within = |event: &Ran| window.is_none_or(|(from, to)| event.start >= from && event.start < to);
        self.feed(&mut feed, &within);
        let mut options = options.clone();
        if options.mode.is_none() && self.trains {
            options.mode = Some(Mode::Training);
        }
        Ok(feed.finish(&options, window)?)
    }

    /// Gives everything to the feed. An instruction's kernels follow one another on a
    /// stream: the range around them is the operator.
    fn feed(&self, feed: &mut Feed, within: &dyn Fn(&Ran) -> bool) {
        let mut open: HashMap<u64, (u32, f64, f64)> = HashMap::new();
        for (place, event) in self.events.iter().enumerate() {
            if !within(event) {
                continue;
            }
            let run = open.get_mut(&event.stream);
            match (run, event.operator) {
                (Some((operator, _, end)), Some(own)) if *operator == own => *end = end.max(event.end),
                (_, own) => {
                    if let Some((operator, start, end)) = open.remove(&event.stream) {
                        // Some clocks let a kernel start just before the one ahead of it ends.
                        feed.range(&self.range(operator, start, end.min(event.start).max(start), event.stream));
                    }
                    if let Some(own) = own {
                        open.insert(event.stream, (own, event.start, event.end));
                    }
                }
            }
            let correlation = place as u64 + 1;
            feed.launch(event.start, event.start, correlation, event.stream);
            let details = self.details[event.details as usize];
            feed.work(&Work {
                name: &self.names[event.name as usize],
                kind: event.kind,
                start: event.start,
                end: event.end,
                correlation,
                device: self.device,
                grid: details.grid,
                block: details.block,
                registers: details.registers,
                static_memory: details.static_memory,
                dynamic_memory: details.dynamic_memory,
            });
        }
        for (stream, (operator, start, end)) in open {
            feed.range(&self.range(operator, start, end, stream));
        }
    }

    fn range(&self, operator: u32, start: f64, end: f64, stream: u64) -> Range<'_> {
        let operator = &self.operators[operator as usize];
        Range {
            kind: RangeKind::Operator,
            dims: &operator.dims,
            types: &operator.types,
            values: &operator.values,
            phase: Some(operator.phase),
            ..Range::annotation(&operator.name, start, end, stream)
        }
    }
}
