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

mod marks;
mod source;

use std::collections::HashSet;

use self::marks::Marks;
pub use self::source::{CallRow, Facts, Gpu, Part, Process, RangeRow, Source, SourceError, WorkRow, WorkRowKind};
use super::kineto::{
    self, Feed, Grouping, Import, ImportOptions, KinetoError, NoSuchDevice, Range, RangeKind, Recorder, Work, WorkKind,
};
use super::nvtx::{Described, describe};

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
    #[error(transparent)]
    NoSuchDevice(#[from] NoSuchDevice),
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

fn others(known: &[String]) -> String {
    if known.is_empty() {
        " in the recording: it has none that repeats".to_owned()
    } else {
        format!("; ranges that repeat: {}", known.join(", "))
    }
}

/// Imports a recording.
///
/// # Errors
/// [`NsysError`], in words that say what to do.
pub fn import(source: &mut dyn Source, options: &ImportOptions<'_>, choice: &Choice<'_>) -> Result<Import, NsysError> {
    let facts = source.facts().map_err(NsysError::Source)?;
    let times = |process: &Process| process.devices.iter().map(|(number, _, time)| (*number, *time as f64)).collect();
    let parts: Vec<Vec<(u32, f64)>> = facts.processes.iter().map(times).collect();
    let ranks = kineto::choose(&parts, choice.device, "processes")?;
    if ranks.places.is_empty() {
        return Err(NsysError::NoKernels);
    }
    let mut imports = Vec::with_capacity(ranks.places.len());
    for place in ranks.places {
        imports.push(import_process(source, &facts, &facts.processes[place], options, choice)?);
    }
    let mut import = kineto::combine(imports)?;
    if let Some(recording) = &mut import.profile.recording {
        recording.notes.extend(ranks.note);
    }
    Ok(import)
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
        grouping: Grouping::Ranges,
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
