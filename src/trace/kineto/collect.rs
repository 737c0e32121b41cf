//! The events of a trace that matter, as small records.
//!
//! About 45 bytes an event in place of the 250 of its text. Traces of more records than
//! the budget are read again for a few whole steps ([`Keep`]), so memory stays bounded
//! whatever the size of the file.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::demangle;
use super::event::{Event, extents, fields, number, unescape, unquote, whole};
use crate::profile::DeviceInfo;
use crate::trace::arguments::{channels_last_from_pytorch, scalars_from_pytorch};
use crate::trace::intern::NAME_BYTES;
use crate::trace::steps::{is_named, may_mark, stem};
use crate::trace::{
    Configuration, Format, Grouping, Launch, NONE, Range, RangeKind, Recorder, Tensors, Trace, Work, WorkKind, nvtx,
};

/// Which events a pass keeps.
#[derive(Debug)]
pub(super) enum Keep {
    /// Everything, until the budget is spent; then only marks.
    WithinBudget(usize),
    /// Host events of a window of time, for a second pass.
    HostOf { from: f64, to: f64 },
    /// Device events of the launches kept, for a third pass.
    DevicesOf(HashSet<u64>),
}

/// What is collected over the passes.
#[derive(Debug)]
pub(super) struct Collector {
    pub(super) trace: Trace,
    /// Names of ranges of the program, for an error that lists them.
    pub(super) known_ranges: BTreeSet<String>,
    /// Of launches on AMD, by correlation: the configuration, which only they have, and whether
    /// the kernel's grid is in threads, not in blocks.
    pub(super) hip_launches: HashMap<u64, (u32, bool)>,
    /// Text of shapes and element types, to look them up.
    key: Vec<u8>,
}

/// Marks kept at most: a trace of a million steps is no trace of a training job.
const MARKS: usize = 1 << 20;
/// Devices whose memory is kept at most; no machine has as many.
const DEVICES: usize = 4096;
/// Names of ranges that an error lists.
const RANGES: usize = 12;
/// Raw shapes longer than this are not kept.
const LONGEST_TEXT: usize = 256 << 10;
/// In the names of the calls that launch a whole graph, such as `cudaGraphLaunch`.
const GRAPH_LAUNCH: &[u8] = b"GraphLaunch";

enum Category {
    Host(RangeKind),
    Launch,
    Device(WorkKind),
}

impl Collector {
    pub(super) fn new(step_range: Option<&str>) -> Self {
        let mut trace = Trace::new(Recorder {
            format: Format::Kineto,
            framework: Some("pytorch".to_owned()),
            runtime: None,
            driver: None,
            without_shapes: "the trace has no shapes: record it with record_shapes=True for better predictions",
            joined_to: "an operator",
            whole_remedy: "",
            finds_patterns: true,
            leaves_out_lists: true,
            slows_host: true,
            grouping: Grouping::Kernels,
            notes: Vec::new(),
        });
        trace.step_range = step_range.map(str::to_owned);
        Self { trace, known_ranges: BTreeSet::new(), hip_launches: HashMap::new(), key: Vec::new() }
    }

    /// Reads a top-level property.
    pub(super) fn property(&mut self, key: &str, value: &[u8]) {
        let version = || whole(value).filter(|version| *version > 0);
        let recorder = &mut self.trace.recorder;
        match key {
            "deviceProperties" => {
                if let Ok(Value::Array(list)) = serde_json::from_slice(value) {
                    self.trace.devices = list.iter().map(device).collect();
                }
            }
            "cuda_runtime_version" => recorder.runtime = version().map(cuda_version).or(recorder.runtime.take()),
            "hip_runtime_version" => recorder.runtime = recorder.runtime.take().or(version().map(hip_version)),
            "cuda_driver_version" => {
                recorder.driver = version().map(|version| format!("CUDA {}", cuda_version(version)));
            }
            "kernels_only" if whole(value) == Some(1) => recorder.grouping = Grouping::RangesOnly,
            _ => {}
        }
    }

    /// Reads one event and keeps it if `keep` says so.
    pub(super) fn event(&mut self, text: &[u8], keep: &Keep) {
        let index = self.trace.events;
        self.trace.events += 1;
        let Some(event) = Event::read(text) else {
            let text = String::from_utf8_lossy(&text[..text.len().min(100)]);
            self.trace.malformed.add(index, "", "event", &text);
            return;
        };
        match event.ph {
            b'X' => {}
            b'i' if event.name == b"[memory]" => return self.memory(&event),
            _ => return,
        }
        let Some(category) = category(&event) else { return };
        let Some(start) = number(event.ts).filter(|time| time.is_finite() && *time >= 0.0) else {
            return self.bad_time(index, &event, "ts", event.ts);
        };
        let duration = if event.dur.is_empty() { Some(0.0) } else { number(event.dur) };
        // Beyond a year something is wrong with the number.
        let Some(duration) = duration.filter(|time| (0.0..3.2e13).contains(time)) else {
            return self.bad_time(index, &event, "dur", event.dur);
        };
        self.trace.records += 1;
        let end = start + duration;
        match category {
            Category::Host(kind) => self.range(&event, kind, start, end, keep),
            Category::Launch => self.launch(&event, start, end, keep),
            Category::Device(kind) => self.work(&event, kind, start, end, keep),
        }
        let trace = &mut self.trace;
        if let Keep::WithinBudget(budget) = keep
            && !trace.is_part
            && trace.ranges.len() + trace.launches.len() + trace.work.len() > *budget
        {
            trace.is_part = true;
            trace.ranges = Vec::new();
            trace.launches = Vec::new();
            trace.work = Vec::new();
        }
    }

    fn bad_time(&mut self, index: u64, event: &Event<'_>, field: &'static str, value: &[u8]) {
        let name = unescape(&event.name[..event.name.len().min(200)]);
        let value = String::from_utf8_lossy(&value[..value.len().min(100)]);
        self.trace.bad_times.add(index, &name, field, &value);
    }

    fn thread(&mut self, event: &Event<'_>) -> u32 {
        let mut key = [0_u8; 48];
        let pid = &event.pid[..event.pid.len().min(23)];
        let tid = &event.tid[..event.tid.len().min(24)];
        key[..pid.len()].copy_from_slice(pid);
        key[pid.len()] = b'/';
        key[pid.len() + 1..=pid.len() + tid.len()].copy_from_slice(tid);
        self.trace.thread(&key[..=pid.len() + tid.len()])
    }

    fn range(&mut self, event: &Event<'_>, kind: RangeKind, start: f64, end: f64, keep: &Keep) {
        if kind == RangeKind::Operator {
            self.trace.operators += 1;
        }
        let (low, high) = self.trace.span.unwrap_or((start, end));
        self.trace.span = Some((low.min(start), high.max(end)));
        let is_mark = match &self.trace.step_range {
            None => {
                kind != RangeKind::Module
                    && may_mark(event.name, matches!(event.category, b"user_annotation" | b"nvtx"))
            }
            Some(_) if kind == RangeKind::Operator || kind == RangeKind::Module => false,
            Some(wanted) => {
                let name = unescape(&event.name[..event.name.len().min(500)]);
                if self.known_ranges.len() < RANGES {
                    self.known_ranges.insert(crate::text::clean(stem(&name), 60));
                }
                is_named(&name, wanted)
            }
        };
        let wanted = match keep {
            Keep::WithinBudget(_) => !self.trace.is_part,
            Keep::HostOf { from, to } => end > *from && start < *to,
            Keep::DevicesOf(_) => false,
        };
        let is_first_pass = matches!(keep, Keep::WithinBudget(_));
        let is_kept_mark = is_mark && is_first_pass && self.trace.marks.len() < MARKS;
        if !(wanted || is_kept_mark) {
            return;
        }
        let was_annotation = kind == RangeKind::Operator && was_annotation(event.name);
        let name = self.trace.names.name(event.name, unescape);
        let thread = self.thread(event);
        let mut range = Range::new(if was_annotation { RangeKind::Annotation } else { kind }, name, thread, start, end);
        if kind == RangeKind::Part
            && let Some(phase) = nvtx::describe(self.trace.name(name), None).phase
        {
            // It says which part of the step it is, and is no part of the model.
            (range.kind, range.phase) = (RangeKind::Annotation, Some(phase));
        }
        if !event.args.is_empty() && kind != RangeKind::Module {
            self.arguments(event, &mut range);
            self.trace.has_shapes |= range.tensors != NONE && kind == RangeKind::Operator;
        }
        if is_kept_mark {
            self.trace.marks.push(range.clone());
        }
        if wanted && self.trace.has_room() {
            self.trace.ranges.push(range);
        }
    }

    fn arguments(&mut self, event: &Event<'_>, range: &mut Range) {
        let [mut dims, mut types, mut strides, mut values] = [&b""[..]; 4];
        // A malformed `args` leaves what was read before the fault.
        let _ = fields(event.args, |key, value| match key {
            b"Input Dims" | b"Input dims" => dims = kept(value),
            b"Input type" | b"Input Types" => types = kept(value),
            b"Input Strides" => strides = kept(value),
            b"Concrete Inputs" => values = kept(value),
            b"Sequence number" => {
                range.sequence = whole(value).and_then(|number| i64::try_from(number).ok()).unwrap_or(-1);
            }
            b"Fwd thread id" | b"Fwd thread ID" => range.of_forward = whole(value).is_some_and(|id| id != 0),
            _ => {}
        });
        if !dims.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(dims);
            self.key.extend_from_slice(types);
            // Other strides make no other call.
            let channels_last = channels_last_from_pytorch(dims, strides);
            self.key.push(u8::from(channels_last));
            let read = |_: &[u8]| Tensors { channels_last, ..Tensors::from_pytorch(dims, types) };
            range.tensors = self.trace.tensors.number(&self.key, read);
        }
        range.scalars = self.trace.scalars.number(values, scalars_from_pytorch);
    }

    fn launch(&mut self, event: &Event<'_>, start: f64, end: f64, keep: &Keep) {
        let wanted = match keep {
            Keep::WithinBudget(_) => !self.trace.is_part,
            Keep::HostOf { from, to } => start >= *from && start < *to,
            Keep::DevicesOf(_) => false,
        };
        if !wanted || !self.trace.has_room() {
            return;
        }
        let mut correlation = None;
        let mut configuration = Configuration::default();
        let hip = event.name.starts_with(b"hip");
        let _ = fields(event.args, |key, value| match key {
            b"correlation" => correlation = whole(value),
            b"grid" if hip => configuration.grid = extents(value),
            b"block" if hip => configuration.block = extents(value),
            _ => {}
        });
        let Some(correlation) = correlation else { return };
        if hip {
            let configuration = self.trace.configurations.number(configuration);
            // `hipExtModuleLaunchKernel` takes the grid in threads, and so traces show it.
            let in_threads = event.name.starts_with(b"hipExtModule");
            if configuration != NONE || in_threads {
                self.hip_launches.insert(correlation, (configuration, in_threads));
            }
        }
        let thread = self.thread(event);
        // `cudaGraphLaunch`, `cuGraphLaunch`, `hipGraphLaunch`, each also with a version.
        let is_graph = event.name.windows(GRAPH_LAUNCH.len()).any(|part| part == GRAPH_LAUNCH);
        self.trace.launches.push(Launch { start, end, correlation, thread, is_graph });
    }

    fn work(&mut self, event: &Event<'_>, kind: WorkKind, start: f64, end: f64, keep: &Keep) {
        if kind == WorkKind::Kernel {
            self.trace.kernels += 1;
        }
        match keep {
            Keep::WithinBudget(_) if !self.trace.is_part => {}
            Keep::DevicesOf(_) => {}
            _ => return,
        }
        let mut correlation = 0;
        let mut device = None;
        let mut stream = None;
        let mut collective = NONE;
        let mut configuration = Configuration::default();
        let names = &mut self.trace.names;
        let _ = fields(event.args, |key, value| match key {
            b"correlation" => correlation = whole(value).unwrap_or(0),
            b"device" => device = whole(value),
            b"stream" => stream = whole(value),
            b"grid" => configuration.grid = extents(value),
            b"block" => configuration.block = extents(value),
            b"registers per thread" => configuration.registers = whole(value).and_then(|n| n.try_into().ok()),
            b"shared memory" => configuration.shared_memory = whole(value),
            b"Collective name" => collective = names.name(unquote(value), unescape),
            b"In msg nelems" => configuration.elements = whole(value),
            b"Group size" => configuration.group_size = whole(value),
            _ => {}
        });
        if matches!(keep, Keep::DevicesOf(wanted) if !wanted.contains(&correlation)) || !self.trace.has_room() {
            return;
        }
        configuration.collective = collective;
        let configuration = self.trace.configurations.number(configuration);
        let name = self.kernel_name(event.name);
        let device = device.or_else(|| whole(event.pid)).unwrap_or(0) as u32;
        let stream = stream.or_else(|| whole(event.tid)).unwrap_or(0) as u32;
        self.trace.work.push(Work { start, end, correlation, name, configuration, device, stream, kind });
    }

    /// The number of a kernel's name: as in C++ where the trace has the linker's.
    fn kernel_name(&mut self, raw: &[u8]) -> u32 {
        if !raw.starts_with(b"_Z") || raw.len() > NAME_BYTES {
            return self.trace.names.name(raw, unescape);
        }
        self.trace.names.name(raw, |raw| demangle::kernel(&unescape(raw)))
    }

    fn memory(&mut self, event: &Event<'_>) {
        let (mut kind, mut device, mut allocated) = (None, None, None);
        let _ = fields(event.args, |key, value| match key {
            b"Device Type" => kind = whole(value),
            b"Device Id" => device = whole(value),
            b"Total Allocated" => allocated = whole(value),
            _ => {}
        });
        // Type 1 is CUDA (and ROCm under its name).
        if let (Some(1), Some(device), Some(allocated)) = (kind, device, allocated) {
            let peaks = &mut self.trace.peak_memory;
            if peaks.len() < DEVICES || peaks.contains_key(&(device as u32)) {
                let peak = peaks.entry(device as u32).or_default();
                *peak = allocated.max(*peak);
            }
        }
    }
}

/// The text of arguments; nothing where it says nothing or is too long to be kept.
fn kept(value: &[u8]) -> &[u8] {
    if matches!(value, b"[]" | b"\"\"") || value.len() > LONGEST_TEXT { b"" } else { value }
}

/// A device as one entry of `deviceProperties` describes it.
fn device(value: &Value) -> (Option<u64>, DeviceInfo) {
    let number = |key: &str| value.get(key).and_then(Value::as_u64);
    let small = |key: &str| number(key).and_then(|number| u32::try_from(number).ok());
    let info = DeviceInfo {
        name: crate::text::clean(value.get("name").and_then(Value::as_str).unwrap_or(""), 120),
        compute_capability: small("computeMajor").zip(small("computeMinor")),
        multiprocessors: small("numSms"),
        memory_bytes: number("totalGlobalMem"),
    };
    (number("id"), info)
}

/// 12040 → 12.4
fn cuda_version(version: u64) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// 60443483 → HIP 6.4.43483
fn hip_version(version: u64) -> String {
    format!("HIP {}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
}

/// The kind of an event by its category, in the old names and the present ones.
fn category(event: &Event<'_>) -> Option<Category> {
    Some(match event.category {
        b"cpu_op" | b"Operator" => Category::Host(RangeKind::Operator),
        b"user_annotation" => Category::Host(RangeKind::Annotation),
        b"nvtx" => Category::Host(RangeKind::Part),
        b"python_function" if event.name.starts_with(b"nn.Module: ") => Category::Host(RangeKind::Module),
        b"cuda_runtime" | b"cuda_driver" | b"Runtime" if launches(event.name) => Category::Launch,
        b"kernel" | b"Kernel" => Category::Device(WorkKind::Kernel),
        b"gpu_memcpy" | b"Memcpy" => Category::Device(WorkKind::Copy),
        b"gpu_memset" | b"Memset" => Category::Device(WorkKind::Set),
        _ => return None,
    })
}

/// Whether a runtime or driver call can start work on the device: `cudaLaunchKernel`,
/// `cuLaunchKernelEx`, `hipModuleLaunchKernel`, `cudaGraphLaunch`, `cudaMemcpyAsync`,
/// `cuMemsetD8Async` …
fn launches(name: &[u8]) -> bool {
    name.windows(4).any(|part| matches!(part, b"aunc" | b"emcp" | b"emse"))
}

/// Ranges that traces until 2022 list among the operators.
fn was_annotation(name: &[u8]) -> bool {
    [&b"ProfilerStep"[..], b"Optimizer.", b"enumerate(DataLoader)"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_threads_without_end_take_no_memory() {
        let mut collector = Collector::new(None);
        for number in 0..2 * DEVICES {
            let memory = format!(
                r#"{{"ph": "i", "name": "[memory]", "ts": 1, "args": {{"Device Type": 1, "Device Id": {number}, "Total Allocated": {number}}}}}"#
            );
            collector.event(memory.as_bytes(), &Keep::WithinBudget(10));
        }
        assert_eq!((collector.trace.peak_memory.len(), collector.trace.peak_memory[&7]), (DEVICES, 7));
        // Marks are kept beyond the budget, and their threads with them, but no more than so many.
        let mark = |number: usize| {
            format!(
                r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": {number}, "ts": 1, "dur": 1}}"#
            )
        };
        collector.event(mark(1).as_bytes(), &Keep::WithinBudget(0));
        collector.trace.marks.resize(MARKS, collector.trace.marks[0].clone());
        let threads = collector.trace.thread(b"next");
        collector.event(mark(2).as_bytes(), &Keep::WithinBudget(0));
        assert_eq!(collector.trace.thread(b"another"), threads + 1);
    }
}
