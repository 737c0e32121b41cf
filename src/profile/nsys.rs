//! Nsight Systems recordings (exported to SQLite) made a [`Profile`](super::Profile).
//!
//! The rows come from a [`Source`]; where they are kept is its business. A kernel is
//! joined to the runtime call of its correlation number in the same process, and the call
//! to the innermost NVTX range around it on its thread; from there on everything is as
//! with a trace of PyTorch's own profiler (`super::kineto`), because
//! `torch.autograd.profiler.emit_nvtx` writes the same operators, autograd nodes and
//! sequence numbers.
//!
//! A file may hold several processes, one a GPU: they are the ranks of one job, and their
//! profiles are joined as those of several traces are.

mod range;

use std::collections::{BTreeMap, HashSet};

use self::range::{Described, Mark, describe};
use super::kineto::{
    self, DeviceInfo, Feed, Import, ImportOptions, KinetoError, Range, RangeKind, Recorder, StepMarks, Work, WorkKind,
};

/// One process of a recording, and the GPU it used most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// What tells it apart in the file (`globalPid` without its lowest 24 bits).
    pub key: u64,
    /// The system's number of it.
    pub pid: u64,
    /// Devices it ran kernels on: number, kernels, and nanoseconds of them.
    pub devices: Vec<(u32, u64, u64)>,
    /// Rows of its ranges, calls and work altogether.
    pub rows: u64,
    /// First and last nanosecond of its kernels.
    pub span: (i64, i64),
}

/// What a recording holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Processes that ran kernels.
    pub processes: Vec<Process>,
    /// GPUs by the device number that kernels name them by, in the process of that key
    /// (`None`: in any).
    pub gpus: Vec<(Option<u64>, u32, Gpu)>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// Version of the tables, such as `3.25.0`.
    pub schema: Option<String>,
    /// Whole CUDA graphs recorded as one piece of work each.
    pub graphs: u64,
    /// What is missing from the file and what follows from that.
    pub missing: Vec<String>,
}

/// A GPU as the recording describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gpu {
    /// Name and what identifies it.
    pub info: DeviceInfo,
    /// Highest clock in hertz.
    pub clock_hz: Option<f64>,
    /// Memory bandwidth in bytes a second.
    pub bandwidth: Option<f64>,
}

/// Which rows to read: of one process, and of a window of nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The process, by its key.
    pub process: u64,
    /// Ranges that overlap the window, calls that start in it, and work that starts at
    /// its beginning or later; everything where there is none.
    pub window: Option<(i64, i64)>,
}

/// A range of NVTX, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct RangeRow<'a> {
    /// Its text.
    pub text: &'a str,
    /// Name of its domain, where that is not the default one.
    pub domain: Option<&'a str>,
    /// When it starts.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// Its thread.
    pub thread: u64,
    /// Pushed and popped, so that ranges of a thread nest; otherwise started and ended
    /// wherever.
    pub nests: bool,
}

/// A call of the CUDA runtime or driver that starts work, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct CallRow {
    /// When it starts.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// Its thread.
    pub thread: u64,
    /// What the work it starts is found by.
    pub correlation: u64,
}

/// What a GPU did, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct WorkRow<'a> {
    /// The kernel's name, or what kind of copy or fill it is.
    pub name: &'a str,
    /// Kernel, copy or fill.
    pub kind: WorkRowKind,
    /// When it starts.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// Its call.
    pub correlation: u64,
    /// The device's number in its process.
    pub device: u32,
    /// Thread blocks of a kernel.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block.
    pub block: Option<[u32; 3]>,
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block, in bytes.
    pub static_memory: Option<u64>,
    /// Dynamic shared memory of a block, in bytes.
    pub dynamic_memory: Option<u64>,
}

/// What a GPU can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkRowKind {
    /// A kernel (or a whole CUDA graph).
    Kernel,
    /// A copy.
    Copy,
    /// A fill.
    Set,
}

/// A fault of the source, in words that name the place.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Where rows come from, in any order, one at a time.
pub trait Source {
    /// What there is.
    ///
    /// # Errors
    /// Where it cannot be read, or is no such recording.
    fn facts(&mut self) -> Result<Facts, SourceError>;
    /// NVTX ranges that ended.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn ranges(&mut self, part: Part, row: &mut dyn FnMut(RangeRow<'_>)) -> Result<(), SourceError>;
    /// Calls that start work.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn calls(&mut self, part: Part, row: &mut dyn FnMut(CallRow)) -> Result<(), SourceError>;
    /// Kernels, copies and fills.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn work(&mut self, part: Part, row: &mut dyn FnMut(WorkRow<'_>)) -> Result<(), SourceError>;
}

/// What a recording of this kind can be asked in addition.
#[derive(Debug, Clone, Copy, Default)]
pub struct Choice<'a> {
    /// The GPU, by its number in the recording.
    pub device: Option<u32>,
    /// The range that is one step, by its text (or what stands before a number in it).
    pub step_range: Option<&'a str>,
}

/// Why a recording could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum NsysError {
    /// The file.
    #[error("{0}")]
    Source(SourceError),
    /// No kernels at all.
    #[error("the recording has no GPU kernels; record it with `nsys profile --trace=cuda,nvtx`")]
    NoKernels,
    /// None of them on the GPU asked for.
    #[error("no kernel ran on device {device}; the recording has {}", list(.known))]
    NoSuchDevice {
        /// What was asked for.
        device: u32,
        /// What there is.
        known: Vec<u32>,
    },
    /// No range of that name.
    #[error("no NVTX range {name:?}{}", others(.known))]
    NoSuchRange {
        /// What was asked for.
        name: String,
        /// Ranges that repeat.
        known: Vec<String>,
    },
    /// As with every trace.
    #[error(transparent)]
    Trace(#[from] KinetoError),
}

fn list(devices: &[u32]) -> String {
    let numbers: Vec<String> = devices.iter().map(u32::to_string).collect();
    format!("device{} {}", if devices.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

fn others(known: &[String]) -> String {
    if known.is_empty() {
        " in the recording: it has none that repeats".to_owned()
    } else {
        format!("; ranges that repeat: {}", known.join(", "))
    }
}

/// Processes with less than this share of the busiest one's kernel time are no ranks.
const RANK_SHARE: f64 = 0.5;

/// Imports a recording.
///
/// # Errors
/// [`NsysError`], in words that say what to do.
pub fn import(source: &mut dyn Source, options: &ImportOptions<'_>, choice: &Choice<'_>) -> Result<Import, NsysError> {
    let facts = source.facts().map_err(NsysError::Source)?;
    let ranks = ranks(&facts, choice.device)?;
    let mut imports = Vec::with_capacity(ranks.len());
    for (process, _) in &ranks {
        imports.push(import_process(source, &facts, process, options, choice)?);
    }
    let left_out = facts.processes.len() - ranks.len();
    let mut import = kineto::combine(imports)?;
    if left_out > 0
        && let Some(recording) = &mut import.profile.recording
    {
        recording.notes.push(match choice.device {
            Some(device) => {
                format!("{left_out} other processes of the recording are left out, as device {device} was asked for")
            }
            None => format!("{left_out} processes that used their GPU far less than the others are left out"),
        });
    }
    Ok(import)
}

/// The processes to read, and the device of each.
fn ranks(facts: &Facts, device: Option<u32>) -> Result<Vec<(Process, u64)>, NsysError> {
    let time = |process: &Process| {
        let times = process.devices.iter().filter(|(number, ..)| device.is_none_or(|device| device == *number));
        times.map(|(.., time)| *time).max().unwrap_or(0)
    };
    let mut found: Vec<(Process, u64)> =
        facts.processes.iter().map(|process| (process.clone(), time(process))).filter(|(_, time)| *time > 0).collect();
    let most = found.iter().map(|(_, time)| *time).max();
    let Some(most) = most else {
        let known: std::collections::BTreeSet<u32> =
            facts.processes.iter().flat_map(|process| process.devices.iter().map(|(number, ..)| *number)).collect();
        return Err(match device {
            Some(device) if !known.is_empty() => NsysError::NoSuchDevice { device, known: known.into_iter().collect() },
            _ => NsysError::NoKernels,
        });
    };
    found.retain(|(_, time)| *time as f64 >= RANK_SHARE * most as f64);
    if device.is_some() {
        // One process alone: with CUDA_VISIBLE_DEVICES every rank calls its GPU 0.
        found.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        found.truncate(1);
    }
    Ok(found)
}

fn import_process(
    source: &mut dyn Source,
    facts: &Facts,
    process: &Process,
    options: &ImportOptions<'_>,
    choice: &Choice<'_>,
) -> Result<Import, NsysError> {
    let mut feed = Feed::new(recorder(facts));
    let whole = Part { process: process.key, window: None };
    let mut reader = Reader { marks: Marks::default(), step_range: choice.step_range, operators: 0, parts: 0 };
    let window = if process.rows > Feed::budget(options) {
        source.ranges(whole, &mut |row| reader.look(&row)).map_err(NsysError::Source)?;
        reader.marks.settle(&mut feed, choice.step_range)?;
        Some(feed.window(process.rows, (micros(process.span.0), micros(process.span.1)), options))
    } else {
        None
    };
    let part = Part { window: window.map(|(from, to)| ((from * 1e3) as i64, (to * 1e3).min(9e18) as i64)), ..whole };
    source.ranges(part, &mut |row| reader.take(&row, &mut feed, window.is_none())).map_err(NsysError::Source)?;
    if window.is_none() {
        reader.marks.settle(&mut feed, choice.step_range)?;
    }
    source
        .calls(part, &mut |row| {
            feed.launch(micros(row.start), micros(row.end), row.correlation, row.thread);
        })
        .map_err(NsysError::Source)?;
    let wanted: Option<HashSet<u64>> = window.map(|_| feed.correlations());
    let device = choice.device;
    source
        .work(part, &mut |row| {
            let launched = wanted.as_ref().is_none_or(|wanted| wanted.contains(&row.correlation));
            if launched && device.is_none_or(|device| device == row.device) {
                feed.work(&work(&row));
            }
        })
        .map_err(NsysError::Source)?;
    let main = process.devices.iter().max_by_key(|(.., time)| *time).map_or(0, |(number, ..)| *number);
    let main = device.unwrap_or(main);
    let own = |owner: &Option<u64>| owner.is_none_or(|owner| owner == process.key);
    let gpu = facts.gpus.iter().find(|(owner, number, _)| own(owner) && *number == main).map(|(.., gpu)| gpu);
    if let Some(gpu) = gpu {
        feed.gpu(main, &gpu.info);
        let known = options.origin.is_some() || options.resolve_gpu.is_some_and(|find| find(&gpu.info).is_some());
        if !known {
            feed.recorder().notes.extend(described(gpu));
        }
    }
    reader.tell(feed.recorder());
    Ok(feed.finish(options, window)?)
}

fn micros(time: i64) -> f64 {
    time as f64 / 1e3
}

fn work<'a>(row: &WorkRow<'a>) -> Work<'a> {
    Work {
        name: row.name,
        kind: match row.kind {
            WorkRowKind::Kernel => WorkKind::Kernel,
            WorkRowKind::Copy => WorkKind::Copy,
            WorkRowKind::Set => WorkKind::Set,
        },
        start: micros(row.start),
        end: micros(row.end),
        correlation: row.correlation,
        device: row.device,
        grid: row.grid,
        block: row.block,
        registers: row.registers,
        static_memory: row.static_memory,
        dynamic_memory: row.dynamic_memory,
    }
}

/// A GPU that the catalog does not have, in figures.
fn described(gpu: &Gpu) -> Option<String> {
    let facts = [
        gpu.info.multiprocessors.map(|count| format!("{count} SMs")),
        gpu.clock_hz.map(|hertz| format!("{:.0} MHz", hertz / 1e6)),
        gpu.bandwidth.map(|bandwidth| format!("{:.0} GB/s", bandwidth / 1e9)),
        gpu.info.memory_bytes.map(|bytes| format!("{:.1} GB", bytes as f64 / 1e9)),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    (!facts.is_empty()).then(|| format!("the recording says of the GPU: {}", facts.join(", ")))
}

/// The tables that this was written for.
const NEWEST_SCHEMA: u64 = 3;

/// 3.25.0 → 3
fn major(schema: &str) -> Option<u64> {
    schema.split('.').next()?.parse().ok()
}

fn recorder(facts: &Facts) -> Recorder {
    let mut notes = facts.missing.clone();
    let newer = facts.schema.as_ref().filter(|schema| major(schema).is_some_and(|major| major > NEWEST_SCHEMA));
    notes.extend(newer.map(|schema| {
        let schema = crate::text::clean(schema, 20);
        format!("the tables are of version {schema}, newer than what this program was made for ({NEWEST_SCHEMA}.x): check the figures")
    }));
    if facts.graphs > 0 {
        notes.push(format!(
            "{} launches of whole CUDA graphs stand for the kernels in them; `nsys profile --cuda-graph-trace=node` records each",
            facts.graphs
        ));
    }
    Recorder {
        source: "nsight systems recording",
        framework: None,
        driver: facts.driver.clone(),
        without_shapes: "the recording has no shapes: run the step in torch.autograd.profiler.emit_nvtx(record_shapes=True) for better predictions",
        joined_to: "an operator or an NVTX range",
        whole_remedy: " (--step-range names the NVTX range of a step)",
        finds_patterns: false,
        groups_by_range: true,
        notes,
    }
}

/// Takes ranges in and remembers those that may mark steps.
struct Reader<'a> {
    marks: Marks,
    step_range: Option<&'a str>,
    operators: u64,
    parts: u64,
}

impl Reader<'_> {
    /// Only for marks.
    fn look(&mut self, row: &RangeRow<'_>) {
        let described = describe(row.text, row.domain);
        self.marks.see(row, &described, self.step_range);
    }

    fn take(&mut self, row: &RangeRow<'_>, feed: &mut Feed, marks: bool) {
        let described = describe(row.text, row.domain);
        if marks {
            self.marks.see(row, &described, self.step_range);
        }
        // Ranges that do not nest say nothing of what is in them.
        if !row.nests {
            return;
        }
        match described.kind {
            RangeKind::Operator => self.operators += 1,
            RangeKind::Part => self.parts += 1,
            RangeKind::Annotation => {}
        }
        feed.range(&of_row(row, &described));
    }

    /// What the ranges were.
    fn tell(&self, recorder: &mut Recorder) {
        if self.operators > 0 {
            recorder.framework = Some("pytorch".to_owned());
        } else if self.parts > 0 {
            recorder.notes.push(
                "no operators: the operations are kernels by their names, grouped by the program's own NVTX ranges"
                    .to_owned(),
            );
        } else {
            recorder
                .notes
                .push("no operators and no NVTX ranges: the operations are kernels by their names".to_owned());
        }
    }
}

fn of_row<'a>(row: &RangeRow<'_>, described: &Described<'a>) -> Range<'a> {
    Range {
        name: described.name,
        start: micros(row.start),
        end: micros(row.end),
        thread: row.thread,
        kind: described.kind,
        sequence: described.sequence,
        of_forward: described.of_forward,
        dims: described.sizes,
        types: "",
        values: "",
        phase: described.phase,
    }
}

/// Ranges that may be steps.
#[derive(Default)]
struct Marks {
    steps: Vec<Owned>,
    optimizers: Vec<Owned>,
    /// How often the program's ranges occur, by name without digits.
    names: BTreeMap<String, u64>,
}

/// Marks kept at most, and names counted.
const MARKS: usize = 1 << 20;
const NAMES: usize = 1 << 12;

struct Owned {
    name: String,
    start: i64,
    end: i64,
    thread: u64,
}

impl Marks {
    fn see(&mut self, row: &RangeRow<'_>, described: &Described<'_>, wanted: Option<&str>) {
        let owned = || Owned { name: described.name.to_owned(), start: row.start, end: row.end, thread: row.thread };
        if let Some(wanted) = wanted {
            if is_named(described.name, wanted) && self.steps.len() < MARKS {
                self.steps.push(owned());
            } else if described.kind == RangeKind::Part || described.mark != Mark::No {
                let stem: String = described.name.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
                if self.names.len() < NAMES || self.names.contains_key(&stem) {
                    *self.names.entry(stem).or_default() += 1;
                }
            }
            return;
        }
        let list = match described.mark {
            Mark::No => return,
            Mark::Step => &mut self.steps,
            Mark::Optimizer => &mut self.optimizers,
        };
        if list.len() < MARKS {
            list.push(owned());
        }
    }

    /// Gives the marks to the feed.
    fn settle(&mut self, feed: &mut Feed, wanted: Option<&str>) -> Result<(), NsysError> {
        let mut give = |marks: &[Owned], name: Option<&str>| {
            for mark in marks {
                feed.mark(&Range {
                    name: name.unwrap_or(&mark.name),
                    start: micros(mark.start),
                    end: micros(mark.end),
                    thread: mark.thread,
                    kind: RangeKind::Annotation,
                    sequence: -1,
                    of_forward: false,
                    dims: "",
                    types: "",
                    values: "",
                    phase: None,
                });
            }
        };
        if let Some(wanted) = wanted {
            if self.steps.is_empty() {
                let mut known: Vec<(&String, &u64)> = self.names.iter().filter(|(_, count)| **count > 1).collect();
                known.sort_by(|a, b| b.1.cmp(a.1));
                let known = known.iter().take(6).map(|(name, _)| format!("{:?}", crate::text::clean(name, 40)));
                return Err(NsysError::NoSuchRange { name: wanted.to_owned(), known: known.collect() });
            }
            give(&self.steps, None);
            feed.steps_are_marks(StepMarks::Named);
        } else {
            give(&self.steps, None);
            // A program that marks its optimizer and no steps: they end where it ends.
            if self.steps.len() < 2 {
                give(&self.optimizers, Some("Optimizer.step#range"));
            }
        }
        (self.steps, self.optimizers) = (Vec::new(), Vec::new());
        Ok(())
    }
}

/// Whether a range is one of those named: the same text, or that text and a number.
fn is_named(name: &str, wanted: &str) -> bool {
    name.strip_prefix(wanted.trim()).is_some_and(|rest| {
        rest.chars().all(|c| c.is_ascii_digit() || c.is_whitespace() || matches!(c, '#' | '_' | '-' | ':' | '.' | '/'))
    })
}
