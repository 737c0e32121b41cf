//! XPlane recordings (`*.xplane.pb`, of JAX and everything else that runs on XLA) made a
//! [`Profile`](super::Profile).
//!
//! A recording has a plane for each GPU with a line for each stream; every kernel names
//! the instruction of the compiled program that launched it, and a plane `/host:metadata`
//! has the programs, with the shapes of every instruction. So the operations of the
//! profile are instructions: products and convolutions under PyTorch's names, which the
//! predictors know, the rest under their own.
//!
//! Where the steps are: the recorder's own marks (a line `Steps`, or
//! `jax.profiler.StepTraceAnnotation` on the host), else the runs of the compiled program
//! that takes most of the GPU's time.

mod hlo;
mod space;
mod wire;

use std::collections::{BTreeMap, HashMap, HashSet};

use self::hlo::{Operator, Program};
use self::space::{Event, Line, Plane, Stat};
pub use self::wire::WireError;
use super::Phase;
use super::kineto::{
    self, DeviceInfo, Feed, Import, ImportOptions, KinetoError, Range, RangeKind, Recorder, StepMarks, Work, WorkKind,
};

/// Why a recording could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum XplaneError {
    /// The bytes.
    #[error("damaged or cut off at {0}; record or copy it again")]
    Damaged(#[from] WireError),
    /// No GPU in it.
    #[error("no GPU in the recording{}; only steps that ran on a GPU can be imported", planes(.found))]
    NoGpu {
        /// The planes there are.
        found: Vec<String>,
    },
    /// GPUs that did nothing.
    #[error(
        "nothing ran on a GPU while it was recorded; record a few whole steps, and wait for them (block_until_ready) before the recording ends"
    )]
    NoKernels,
    /// None of them is the one asked for.
    #[error("no kernel ran on device {device}; the recording has kernels of {}", devices(.known))]
    NoSuchDevice {
        /// What was asked for.
        device: u32,
        /// What there is.
        known: Vec<u32>,
    },
    /// As with every trace.
    #[error(transparent)]
    Trace(#[from] KinetoError),
}

fn planes(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!(" (its devices are {})", found.join(", ")) }
}

fn devices(known: &[u32]) -> String {
    known.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether the beginning of a file is that of such a recording: its first field is a plane
/// whose name begins as those of planes do.
pub fn looks_like_xplane(head: &[u8]) -> bool {
    let Some(rest) = head.strip_prefix(&[0x0a]) else { return false };
    // The length of the plane, at most ten bytes, then its number, if any, and its name.
    let length = rest.iter().take(10).take_while(|byte| **byte >= 0x80).count() + 1;
    let Some(mut plane) = rest.get(length..) else { return false };
    if plane.first() == Some(&0x08) {
        let number = plane[1..].iter().take(10).take_while(|byte| **byte >= 0x80).count() + 2;
        plane = plane.get(number..).unwrap_or_default();
    }
    matches!(plane, [0x12, _, name @ ..] if ["/host:", "/device:", "Task Environment", "/job:"].iter().any(|start| name.starts_with(start.as_bytes())))
}

/// Imports a recording; `device` takes one of several GPUs.
///
/// # Errors
/// [`XplaneError`], in words that say what to do.
pub fn import(bytes: &[u8], options: &ImportOptions<'_>, device: Option<u32>) -> Result<Import, XplaneError> {
    let mut programs = Programs::default();
    let mut gpus: BTreeMap<u32, Plane<'_>> = BTreeMap::new();
    let mut hosts = Vec::new();
    let mut found = Vec::new();
    for message in space::planes(bytes)? {
        let plane = Plane::read(message)?;
        if let Some(number) = plane.name.strip_prefix("/device:GPU:") {
            gpus.insert(number.trim().parse().unwrap_or(0), plane);
        } else if plane.name == "/host:metadata" {
            programs.read(&plane)?;
        } else if plane.name.starts_with("/host:") {
            hosts.push(plane);
        } else if let Some(name) = plane.name.strip_prefix("/device:").filter(|name| !name.starts_with("CUSTOM")) {
            found.push(crate::text::clean(name, 40));
        }
    }
    if gpus.is_empty() {
        return Err(XplaneError::NoGpu { found });
    }
    let marks = host_steps(&hosts)?;
    let mut known = Vec::new();
    let mut imports = Vec::new();
    for (number, plane) in &gpus {
        let mut recording = Recording::read(*number, plane, &programs)?;
        if recording.events.is_empty() {
            continue;
        }
        known.push(*number);
        if device.is_none_or(|device| device == *number) {
            recording.steps(plane, &marks)?;
            imports.push(recording.import(plane, options)?);
        }
    }
    match (imports.is_empty(), device) {
        (false, _) => Ok(kineto::combine(imports)?),
        (true, Some(device)) if !known.is_empty() => Err(XplaneError::NoSuchDevice { device, known }),
        (true, _) => Err(XplaneError::NoKernels),
    }
}

/// The compiled programs, by number and by name.
#[derive(Default)]
struct Programs {
    by_number: HashMap<u64, Program>,
    by_name: HashMap<String, u64>,
    unread: u64,
}

impl Programs {
    fn read(&mut self, plane: &Plane<'_>) -> Result<(), WireError> {
        let proto = plane.number_of("Hlo Proto").or_else(|| plane.number_of("hlo_proto"));
        for (number, kind) in &plane.kinds {
            let stat = kind.stats.iter().find(|(name, _)| Some(*name) == proto);
            if let Some((_, Stat::Text(proto))) = stat {
                let program = hlo::program(*proto)?;
                if program.operators.is_empty() {
                    self.unread += 1;
                }
                self.by_number.insert(*number, program);
                // "jit_step(17)"
                let name = kind.name.rsplit_once('(').map_or(kind.name.as_str(), |(name, _)| name);
                self.by_name.insert(name.to_owned(), *number);
            }
        }
        Ok(())
    }

    fn find(&self, number: Option<u64>, name: &str) -> Option<&Program> {
        let name = name.rsplit_once('(').map_or(name, |(name, _)| name);
        let by_name = || self.by_number.get(self.by_name.get(name)?);
        number.and_then(|number| self.by_number.get(&number)).or_else(by_name)
    }
}

/// What ran on one GPU; times in microseconds from its first line's beginning.
struct Recording<'a> {
    device: u32,
    events: Vec<Ran>,
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
struct Ran {
    start: f64,
    end: f64,
    name: u32,
    kind: WorkKind,
    stream: u64,
    /// Of `operators`; none where no instruction is named.
    operator: Option<u32>,
    details: u32,
    /// The program's number, and the instruction's place among names.
    program: u64,
    correlation: i64,
}

/// A launch configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Launch {
    grid: Option<[u32; 3]>,
    block: Option<[u32; 3]>,
    registers: Option<u32>,
    static_memory: Option<u64>,
    dynamic_memory: Option<u64>,
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
    fn read(device: u32, plane: &Plane<'_>, programs: &'a Programs) -> Result<Self, WireError> {
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
    fn steps(&mut self, plane: &Plane<'_>, host: &HostSteps) -> Result<(), WireError> {
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

    fn import(mut self, plane: &Plane<'_>, options: &ImportOptions<'_>) -> Result<Import, XplaneError> {
        let info = device_info(plane);
        if options.origin.is_none() && options.resolve_gpu.is_some_and(|find| find(&info).is_some()) {
            self.notes
                .push("the recording does not name its GPU: it is told by its figures; --origin sets it".to_owned());
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
            groups_by_range: false,
            notes: std::mem::take(&mut self.notes),
        });
        feed.gpu(self.device, &info);
        for (start, end) in &self.marks {
            feed.mark(&plain_range("step", *start, *end, 0));
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
            options.mode = Some(super::Mode::Training);
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
            ..plain_range(&operator.name, start, end, stream)
        }
    }
}

fn plain_range(name: &str, start: f64, end: f64, thread: u64) -> Range<'_> {
    Range {
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

/// Microseconds from `base` of an event `offset` picoseconds into a line.
fn microseconds(line: i64, base: i64, offset: i64) -> f64 {
    line.saturating_sub(base) as f64 / 1e3 + offset as f64 / 1e6
}

fn work_kind(name: &str) -> WorkKind {
    if name.starts_with("Memcpy") {
        WorkKind::Copy
    } else if name.starts_with("Memset") {
        WorkKind::Set
    } else {
        WorkKind::Kernel
    }
}

/// Copies in the words of PyTorch's profiler; of kernels the name without the loader's
/// suffix.
fn shown(name: &str) -> String {
    match name.strip_prefix("Memcpy") {
        Some("H2D") => "Memcpy HtoD".to_owned(),
        Some("D2H") => "Memcpy DtoH".to_owned(),
        Some("D2D") => "Memcpy DtoD".to_owned(),
        Some("P2P") => "Memcpy PtoP".to_owned(),
        Some(_) => name.to_owned(),
        None => name.trim_end_matches(" [clone .kd]").trim_end_matches(".kd").to_owned(),
    }
}

/// ` grid:32,16,2 block:256,1,1 regs:32 static_shared:0 dynamic_shared:1024 …`, of AMD
/// `group_mem:` in place of the shared memory.
fn launch(details: &str) -> Launch {
    let mut launch = Launch::default();
    for fact in details.split_ascii_whitespace() {
        let Some((name, value)) = fact.split_once(':') else { continue };
        let extent = || {
            let mut parts = value.split(',').map(|part| part.parse().ok());
            Some([parts.next()??, parts.next()??, parts.next()??])
        };
        match name {
            "grid" => launch.grid = extent(),
            "block" => launch.block = extent(),
            "regs" => launch.registers = value.parse().ok().filter(|count| *count > 0),
            "static_shared" | "group_mem" => launch.static_memory = value.parse().ok(),
            "dynamic_shared" => launch.dynamic_memory = value.parse().ok(),
            _ => {}
        }
    }
    launch
}

/// What a plane says of its GPU; it has figures, not a name.
fn device_info(plane: &Plane<'_>) -> DeviceInfo {
    let whole = |name: &str| plane.stat(name).and_then(Stat::whole).and_then(|number| u64::try_from(number).ok());
    let small = |name: &str| whole(name).and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
    let vendor = plane.stat("device_vendor").map(|stat| plane.text(stat)).unwrap_or_default();
    let (cores, memory) = (small("core_count"), whole("memory_size").filter(|bytes| *bytes > 0));
    let capability = small("compute_cap_major").zip(whole("compute_cap_minor").and_then(|n| u32::try_from(n).ok()));
    let facts = [
        (!vendor.is_empty()).then(|| format!("{} GPU", crate::text::clean(&vendor, 20))),
        capability.map(|(major, minor)| format!("compute capability {major}.{minor}")),
        cores.map(|count| format!("{count} multiprocessors")),
        memory.map(|bytes| format!("{:.0} GB", bytes as f64 / 1e9)),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    DeviceInfo {
        name: if facts.is_empty() { String::new() } else { format!("{}{}", DeviceInfo::UNNAMED, facts.join(", ")) },
        compute_capability: capability,
        multiprocessors: cores,
        memory_bytes: memory,
    }
}

/// Steps that the program marked on the host, and the launches of the GPU's work.
struct HostSteps {
    /// From and to, in nanoseconds of the host's clock.
    steps: Vec<(f64, f64)>,
    launches: HashMap<i64, f64>,
}

fn host_steps(hosts: &[Plane<'_>]) -> Result<HostSteps, WireError> {
    let mut found = HostSteps { steps: Vec::new(), launches: HashMap::new() };
    for plane in hosts {
        let (step, correlation) = (plane.number_of("step_num"), plane.number_of("correlation_id"));
        if step.is_none() && correlation.is_none() {
            continue;
        }
        for line in &plane.lines {
            let line = Plane::line(*line)?;
            for event in &line.events {
                let event = Event::read(*event)?;
                let start = line.start as f64 + event.offset as f64 / 1e3;
                for (name, stat) in &event.stats {
                    if Some(*name) == step {
                        found.steps.push((start, start + event.duration as f64 / 1e3));
                    } else if Some(*name) == correlation
                        && let Some(number) = stat.whole()
                    {
                        found.launches.entry(number).or_insert(start);
                    }
                }
            }
        }
    }
    found.steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(found)
}

impl HostSteps {
    /// The steps in the device's time: from the first work launched in a step to the last.
    fn on_device(&self, events: &[Ran]) -> Vec<(f64, f64)> {
        let mut spans: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for event in events {
            let Some(launch) = self.launches.get(&event.correlation) else { continue };
            let Some(step) = self.steps.partition_point(|step| step.0 <= *launch).checked_sub(1) else { continue };
            if *launch > self.steps[step].1 {
                continue;
            }
            let span = spans.entry(step).or_insert((event.start, event.end));
            *span = (span.0.min(event.start), span.1.max(event.end));
        }
        spans.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn launch_configurations() {
        let nvidia = launch("regs:32 static_shared:16 dynamic_shared:1024 grid:8,2,1 block:128,1,1 occ_pct:50");
        assert_eq!((nvidia.grid, nvidia.block, nvidia.registers), (Some([8, 2, 1]), Some([128, 1, 1]), Some(32)));
        assert_eq!((nvidia.static_memory, nvidia.dynamic_memory), (Some(16), Some(1024)));
        let amd = launch(" grid:3072,1,1 block:256,1,1 private_mem:0 group_mem:16384 occ_pct:0");
        assert_eq!((amd.static_memory, amd.registers), (Some(16384), None));
        assert_eq!(launch("grid:1,2 block: nonsense"), Launch::default());
    }

    #[test]
    fn recordings_are_told_by_their_first_plane() {
        assert!(looks_like_xplane(b"\x0a\xc0\x01\x08\x07\x12\x0d/device:GPU:0"));
        assert!(looks_like_xplane(b"\x0a\x05\x12\x09/host:CPU"));
        for other in [&b"{\"traceEvents\""[..], b"", b"\x0a", b"\x0a\x05\x12\x03abc", b"SQLite format 3\0", b"\n\n[1]"]
        {
            assert!(!looks_like_xplane(other), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = looks_like_xplane(&bytes);
            let _ = import(&bytes, &ImportOptions::default(), None);
        }
    }
}
