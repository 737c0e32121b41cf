//! Nsight Systems recordings, exported to SQLite.
//!
//! A [`Source`] supplies the rows, whatever their storage. A kernel is matched to the runtime call with its correlation
//! id in the same process, and the call to the innermost NVTX range around it on its thread.
//! `torch.autograd.profiler.emit_nvtx` writes the same operators, autograd nodes and sequence numbers as PyTorch's own
//! profiler.
//!
//! A file may hold several processes, one per GPU. These are the ranks of one job, and their profiles are joined like
//! those of several traces.

mod marks;
mod source;

use self::marks::Marks;
pub use self::source::{CallRow, Facts, Gpu, Part, Process, RangeRow, Source, SourceError, WorkRow};
use super::nvtx::{Described, describe};
use super::{
    Configuration, EachRank, Fault, Format, Grouping, Launch, Range, RangeKind, ReadOptions, Recorder, Tensors, Trace,
    TraceError, Work, ranks, steps,
};

/// Reads a recording and passes the trace of every rank to `each`. Returns a note on omitted processes.
pub(crate) fn read(
    source: &mut dyn Source,
    options: &ReadOptions<'_>,
    each: &mut EachRank<'_>,
) -> Result<Option<String>, TraceError> {
    let facts = source.facts().map_err(tables)?;
    let times = |process: &Process| process.devices.iter().map(|(number, _, time)| (*number, *time as f64)).collect();
    let parts: Vec<Vec<(u32, f64)>> = facts.processes.iter().map(times).collect();
    let ranks = ranks::choose(&parts, options.device, "processes").map_err(fault)?;
    if ranks.chosen.is_empty() {
        return Err(fault(Fault::Idle { remedy: "record it with `nsys profile --trace=cuda,nvtx`" }));
    }
    for index in ranks.chosen {
        each(read_process(source, &facts, &facts.processes[index], options)?)?;
    }
    Ok(ranks.note)
}

fn fault(fault: Fault) -> TraceError {
    Format::Nsight.error(fault)
}

fn tables(error: SourceError) -> TraceError {
    fault(Fault::Tables(error))
}

fn read_process(
    source: &mut dyn Source,
    facts: &Facts,
    process: &Process,
    options: &ReadOptions<'_>,
) -> Result<Trace, TraceError> {
    let mut trace = Trace::new(recorder(facts));
    trace.room = options.room();
    let whole = Part { process: process.key, window: None };
    let mut marks = Marks::default();
    trace.is_part = process.rows > options.budget() as u64;
    let mut window = None;
    if trace.is_part {
        // First pass: marks only.
        let mut add = |row: RangeRow<'_>| marks.add(&row, &describe(row.text, row.domain), options.step_range);
        source.ranges(whole, &mut add).map_err(tables)?;
        std::mem::take(&mut marks).give(&mut trace, options.step_range).map_err(fault)?;
        trace.records = process.rows;
        trace.span = Some((micros(process.span.0), micros(process.span.1)));
        window = steps::select(&mut trace, options);
        (trace.records, trace.span) = (0, None);
    }
    let part = Part { window: window.map(|(from, to)| ((from * 1e3) as i64, (to * 1e3).min(9e18) as i64)), ..whole };
    let mut parts = 0_u64;
    source
        .ranges(part, &mut |row| {
            let described = describe(row.text, row.domain);
            if window.is_none() {
                marks.add(&row, &described, options.step_range);
            }
            // The contents of ranges that do not nest are unknown.
            if row.nests {
                parts += u64::from(described.kind == RangeKind::Part);
                let range = range(&mut trace, &row, &described);
                trace.add_range(range);
            }
        })
        .map_err(tables)?;
    if window.is_none() {
        marks.give(&mut trace, options.step_range).map_err(fault)?;
        steps::select(&mut trace, options);
    }
    source
        .calls(part, &mut |row| {
            let (start, end, correlation) = (micros(row.start), micros(row.end), row.correlation);
            let thread = trace.thread(&row.thread.to_le_bytes());
            trace.add_launch(Launch { start, end, correlation, thread, kind: row.kind });
        })
        .map_err(tables)?;
    // Ids increase with time, so this includes work whose call was not recorded.
    let numbers = || trace.launches.iter().map(|launch| launch.correlation);
    let launched = window.map(|_| numbers().min().unwrap_or(u64::MAX)..=numbers().max().unwrap_or(0));
    source
        .work(part, &mut |row| {
            let launched = launched.as_ref().is_none_or(|launched| launched.contains(&row.correlation));
            if launched && options.device.is_none_or(|device| device == row.device) {
                let work = work(&mut trace, &row);
                trace.add_work(work);
            }
        })
        .map_err(tables)?;
    gpu(&mut trace, facts, process, options);
    if trace.operators > 0 {
        trace.recorder.framework = Some("pytorch".to_owned());
    } else {
        let note = if parts > 0 {
            "no operators recorded: the operations are kernel names, grouped by the program's NVTX ranges"
        } else {
            "no operators or NVTX ranges recorded: the operations are kernel names"
        };
        trace.recorder.notes.push(note.to_owned());
    }
    trace.check()?;
    trace.needs_kernels()?;
    Ok(trace)
}

fn micros(time: i64) -> f64 {
    time as f64 / 1e3
}

fn range(trace: &mut Trace, row: &RangeRow<'_>, described: &Described<'_>) -> Range {
    let (name, thread) = (trace.names.plain(described.name), trace.thread(&row.thread.to_le_bytes()));
    let sizes = if described.sizes == "[]" { "" } else { described.sizes };
    Range {
        tensors: trace.tensors.number(sizes.as_bytes(), |sizes| Tensors::from_pytorch(sizes, b"")),
        sequence: described.sequence,
        of_forward: described.of_forward,
        phase: described.phase,
        ..Range::new(described.kind, name, thread, micros(row.start), micros(row.end))
    }
}

fn work(trace: &mut Trace, row: &WorkRow<'_>) -> Work {
    Work {
        name: trace.names.plain(row.name),
        kind: row.kind,
        is_timed: true,
        start: micros(row.start),
        end: micros(row.end),
        correlation: row.correlation,
        device: row.device,
        stream: row.stream,
        configuration: trace.configurations.number(Configuration {
            grid: row.grid,
            block: row.block,
            registers: row.registers,
            shared_memory: row.static_memory,
            dynamic_memory: row.dynamic_memory,
            ..Configuration::default()
        }),
    }
}

/// Adds the GPU that the process used most, or the requested one.
fn gpu(trace: &mut Trace, facts: &Facts, process: &Process, options: &ReadOptions<'_>) {
    let main = process.devices.iter().max_by_key(|(.., time)| *time).map_or(0, |(number, ..)| *number);
    let main = options.device.unwrap_or(main);
    let own = |owner: &Option<u64>| owner.is_none_or(|owner| owner == process.key);
    let gpu = facts.gpus.iter().find(|(owner, number, _)| own(owner) && *number == main).map(|(.., gpu)| gpu);
    let Some(gpu) = gpu else { return };
    trace.devices.push((Some(u64::from(main)), gpu.info.clone()));
    if !options.is_gpu_given && !options.finds(&gpu.info) {
        trace.recorder.notes.extend(described(gpu));
    }
}

/// Specifications of a GPU that is not in the catalog.
fn described(gpu: &Gpu) -> Option<String> {
    let facts = [
        gpu.info.multiprocessors.map(|count| format!("{count} SMs")),
        gpu.clock_hz.map(|hertz| format!("{:.0} MHz", hertz / 1e6)),
        gpu.bandwidth.map(|bandwidth| format!("{:.0} GB/s", bandwidth / 1e9)),
        gpu.info.memory_bytes.map(|bytes| format!("{:.1} GB", bytes as f64 / 1e9)),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    (!facts.is_empty()).then(|| format!("GPU in the recording: {}", facts.join(", ")))
}

/// Newest supported major version of the tables.
const NEWEST_SCHEMA: u64 = 3;

/// 3.25.0 → 3
fn major(schema: &str) -> Option<u64> {
    schema.split('.').next()?.parse().ok()
}

fn recorder(facts: &Facts) -> Recorder {
    let mut notes = facts.missing.clone();
    let newer = facts.schema.as_ref().filter(|schema| major(schema).is_some_and(|major| major > NEWEST_SCHEMA));
    notes.extend(newer.map(|schema| {
        let schema = habitat_base::text::clean(schema, 20);
        format!("the tables have version {schema}, newer than the supported {NEWEST_SCHEMA}.x: check the figures")
    }));
    if facts.graphs > 0 {
        notes.push(format!(
            "{} CUDA graph launches were recorded without their kernels; `nsys profile --cuda-graph-trace=node` records each kernel",
            facts.graphs
        ));
    }
    Recorder {
        format: Format::Nsight,
        framework: None,
        runtime: None,
        driver: facts.driver.clone(),
        world_size: None,
        without_shapes: "the recording has no shapes: run the step in torch.autograd.profiler.emit_nvtx(record_shapes=True) for better predictions",
        joined_to: "an operator or an NVTX range",
        whole_remedy: " (--step-range names the NVTX range of a step)",
        finds_patterns: false,
        leaves_out_lists: false,
        slows_host: false,
        grouping: Grouping::Ranges,
        notes,
    }
}
