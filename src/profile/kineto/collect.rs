//! The events of a trace that matter, as small records.
//!
//! About 45 bytes an event in place of the 250 of its text. Traces of more records than
//! the budget are read again for a few whole steps ([`Keep`]), so memory stays bounded
//! whatever the size of the file.

use std::collections::{HashMap, HashSet};

use super::event::{Event, extents, fields, number, unquote, whole};
use super::feed::{Grouping, Recorder};
use super::intern::{NONE, Pool};
use super::record::{Device, DeviceKind, Host, HostKind, Launch, LaunchShape, Properties, Shapes};
use super::steps::{is_named, stem};
use crate::profile::nvtx;

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

/// The first event that could not be used, and how many there were.
#[derive(Debug, Clone, Default)]
pub(super) struct Bad {
    pub(super) count: u64,
    pub(super) index: u64,
    pub(super) name: String,
    pub(super) field: &'static str,
    pub(super) value: String,
}

/// Everything read from a trace.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) host: Vec<Host>,
    pub(super) launches: Vec<Launch>,
    pub(super) devices: Vec<Device>,
    /// Ranges that can mark steps, kept even when the budget is spent.
    pub(super) marks: Vec<Host>,
    pub(super) names: Pool,
    pub(super) texts: Pool,
    pub(super) shapes: Shapes,
    pub(super) properties: Vec<Properties>,
    pub(super) versions: HashMap<&'static str, u64>,
    /// Largest device memory allocated, by device.
    pub(super) peak_memory: HashMap<u32, u64>,
    /// Relevant events seen, whether kept or not.
    pub(super) seen: u64,
    pub(super) kernels_seen: u64,
    pub(super) operators_seen: u64,
    pub(super) shapes_seen: bool,
    /// The budget was spent and the records dropped.
    pub(super) overflowed: bool,
    /// Span of the host events.
    pub(super) span: Option<(f64, f64)>,
    pub(super) bad_times: Bad,
    pub(super) malformed: Bad,
    pub(super) events: u64,
    pub(super) recorder: Recorder,
    /// Name of the ranges that are steps, where the caller gave one.
    pub(super) step_range: Option<String>,
    /// Ranges of programs seen, for the one who named others.
    pub(super) ranges_seen: std::collections::BTreeSet<String>,
}

/// Marks kept at most: a trace of a million steps is no trace of a training job.
const MARKS: usize = 1 << 20;
/// Names of ranges that an error lists.
const RANGES: usize = 12;
/// Raw shapes longer than this are not kept.
const LONGEST_TEXT: usize = 256 << 10;

enum Category {
    Host(HostKind),
    Launch,
    Device(DeviceKind),
}

impl Records {
    /// The launch configuration of a number.
    pub(super) fn shape(&self, number: u32) -> &LaunchShape {
        self.shapes.get(number)
    }

    /// Whether a range of that name marks steps (and so groups nothing within them).
    pub(super) fn is_mark(&self, name: &str) -> bool {
        self.step_range.as_ref().map_or_else(|| says_step(name.as_bytes()), |wanted| is_named(name, wanted))
    }

    /// Reads a top-level property.
    pub(super) fn property(&mut self, key: &str, value: &[u8]) {
        match key {
            "deviceProperties" => {
                if let Ok(serde_json::Value::Array(list)) = serde_json::from_slice(value) {
                    self.properties = list.iter().map(Properties::of).collect();
                }
            }
            "cuda_runtime_version" => self.version("cuda_runtime", value),
            "cuda_driver_version" => self.version("cuda_driver", value),
            "hip_runtime_version" => self.version("hip_runtime", value),
            "kernels_only" if whole(value) == Some(1) => self.recorder.grouping = Grouping::RangesOnly,
            _ => {}
        }
    }

    fn version(&mut self, key: &'static str, value: &[u8]) {
        if let Some(version) = whole(value).filter(|version| *version > 0) {
            self.versions.insert(key, version);
        }
    }

    /// Reads one event and keeps it if `keep` says so.
    pub(super) fn event(&mut self, text: &[u8], keep: &Keep) {
        let index = self.events;
        self.events += 1;
        let Some(event) = Event::read(text) else {
            note(&mut self.malformed, index, "", "event", text);
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
        self.seen += 1;
        let end = start + duration;
        match category {
            Category::Host(kind) => self.host(&event, kind, start, end, keep),
            Category::Launch => self.launch(&event, start, end, keep),
            Category::Device(kind) => self.device(&event, kind, start, end, keep),
        }
        if let Keep::WithinBudget(budget) = keep
            && !self.overflowed
            && self.host.len() + self.launches.len() + self.devices.len() > *budget
        {
            self.overflowed = true;
            self.host = Vec::new();
            self.launches = Vec::new();
            self.devices = Vec::new();
        }
    }

    fn bad_time(&mut self, index: u64, event: &Event<'_>, field: &'static str, value: &[u8]) {
        let name = super::event::unescape(&event.name[..event.name.len().min(200)]);
        note(&mut self.bad_times, index, &name, field, value);
    }

    fn thread(&mut self, event: &Event<'_>) -> u32 {
        let mut key = [0_u8; 48];
        let pid = &event.pid[..event.pid.len().min(23)];
        let tid = &event.tid[..event.tid.len().min(24)];
        key[..pid.len()].copy_from_slice(pid);
        key[pid.len()] = b'/';
        key[pid.len() + 1..=pid.len() + tid.len()].copy_from_slice(tid);
        self.texts.raw(&key[..=pid.len() + tid.len()])
    }

    fn host(&mut self, event: &Event<'_>, kind: HostKind, start: f64, end: f64, keep: &Keep) {
        if kind == HostKind::Operator {
            self.operators_seen += 1;
        }
        let (low, high) = self.span.unwrap_or((start, end));
        self.span = Some((low.min(start), high.max(end)));
        let is_mark = match &self.step_range {
            None => kind != HostKind::Module && may_mark(event),
            Some(_) if kind == HostKind::Operator || kind == HostKind::Module => false,
            Some(wanted) => {
                let name = super::event::unescape(&event.name[..event.name.len().min(500)]);
                if self.ranges_seen.len() < RANGES {
                    self.ranges_seen.insert(crate::text::clean(stem(&name), 60));
                }
                is_named(&name, wanted)
            }
        };
        let wanted = match keep {
            Keep::WithinBudget(_) => !self.overflowed,
            Keep::HostOf { from, to } => end > *from && start < *to,
            Keep::DevicesOf(_) => false,
        };
        let is_first_pass = matches!(keep, Keep::WithinBudget(_));
        if !(wanted || is_mark && is_first_pass) {
            return;
        }
        let mut host = Host {
            start,
            end,
            sequence: -1,
            thread: self.thread(event),
            name: self.names.name(event.name),
            dims: NONE,
            types: NONE,
            values: NONE,
            kind: if kind == HostKind::Operator && was_annotation(event.name) { HostKind::Annotation } else { kind },
            of_forward: false,
            phase: None,
        };
        if kind == HostKind::Part
            && let Some(phase) = nvtx::describe(self.names.text(host.name), None).phase
        {
            // It says which part of the step it is, and is no part of the model.
            (host.kind, host.phase) = (HostKind::Annotation, Some(phase));
        }
        if !event.args.is_empty() && kind != HostKind::Module {
            let texts = &mut self.texts;
            let mut keep_text = |value: &[u8]| {
                if value.len() <= LONGEST_TEXT && !matches!(value, b"[]" | b"\"\"") { texts.raw(value) } else { NONE }
            };
            // A malformed `args` leaves what was read before the fault.
            let _ = fields(event.args, |key, value| match key {
                b"Input Dims" | b"Input dims" => host.dims = keep_text(value),
                b"Input type" | b"Input Types" => host.types = keep_text(value),
                b"Concrete Inputs" => host.values = keep_text(value),
                b"Sequence number" => {
                    host.sequence = whole(value).and_then(|number| i64::try_from(number).ok()).unwrap_or(-1);
                }
                b"Fwd thread id" | b"Fwd thread ID" => host.of_forward = whole(value).is_some_and(|id| id != 0),
                _ => {}
            });
            self.shapes_seen |= host.dims != NONE && kind == HostKind::Operator;
        }
        if is_mark && is_first_pass && self.marks.len() < MARKS {
            self.marks.push(host.clone());
        }
        if wanted {
            self.host.push(host);
        }
    }

    fn launch(&mut self, event: &Event<'_>, start: f64, end: f64, keep: &Keep) {
        let wanted = match keep {
            Keep::WithinBudget(_) => !self.overflowed,
            Keep::HostOf { from, to } => start >= *from && start < *to,
            Keep::DevicesOf(_) => false,
        };
        if !wanted {
            return;
        }
        let mut correlation = None;
        let mut shape = LaunchShape::default();
        let hip = event.name.starts_with(b"hip");
        // `hipExtModuleLaunchKernel` takes the grid in threads, and so traces show it.
        let grid_in_threads = event.name.starts_with(b"hipExtModule");
        let _ = fields(event.args, |key, value| match key {
            b"correlation" => correlation = whole(value),
            b"grid" if hip => shape.grid = extents(value),
            b"block" if hip => shape.block = extents(value),
            _ => {}
        });
        let Some(correlation) = correlation else { return };
        let shape = self.shapes.number(shape);
        let thread = self.thread(event);
        self.launches.push(Launch { start, end, correlation, thread, shape, grid_in_threads });
    }

    fn device(&mut self, event: &Event<'_>, kind: DeviceKind, start: f64, end: f64, keep: &Keep) {
        if kind == DeviceKind::Kernel {
            self.kernels_seen += 1;
        }
        match keep {
            Keep::WithinBudget(_) if !self.overflowed => {}
            Keep::DevicesOf(_) => {}
            _ => return,
        }
        let mut correlation = 0;
        let mut device = None;
        let mut collective = NONE;
        let mut shape = LaunchShape::default();
        let names = &mut self.names;
        let _ = fields(event.args, |key, value| match key {
            b"correlation" => correlation = whole(value).unwrap_or(0),
            b"device" => device = whole(value),
            b"grid" => shape.grid = extents(value),
            b"block" => shape.block = extents(value),
            b"registers per thread" => shape.registers = whole(value).and_then(|n| n.try_into().ok()),
            b"shared memory" => shape.shared_memory = whole(value),
            b"Collective name" => collective = names.name(unquote(value)),
            b"In msg nelems" => shape.elements = whole(value),
            b"Group size" => shape.group_size = whole(value),
            _ => {}
        });
        if matches!(keep, Keep::DevicesOf(wanted) if !wanted.contains(&correlation)) {
            return;
        }
        shape.collective = collective;
        let shape = self.shapes.number(shape);
        let name = self.names.kernel(event.name);
        let device = device.or_else(|| whole(event.pid)).unwrap_or(0) as u32;
        self.devices.push(Device { start, end, correlation, name, shape, on: device, kind });
    }

    /// Takes the launch configurations that only the launch calls have (AMD), and brings
    /// grids in threads to blocks; once all events are read.
    pub(super) fn settle_grids(&mut self) {
        let calls: HashMap<u64, (u32, bool)> = self
            .launches
            .iter()
            .filter(|launch| launch.shape != NONE || launch.grid_in_threads)
            .map(|launch| (launch.correlation, (launch.shape, launch.grid_in_threads)))
            .collect();
        if calls.is_empty() {
            return;
        }
        let mut devices = std::mem::take(&mut self.devices);
        for device in devices.iter_mut().filter(|device| device.kind == DeviceKind::Kernel) {
            let Some((call, in_threads)) = calls.get(&device.correlation).copied() else { continue };
            let mut shape = self.shape(device.shape).clone();
            if shape.grid.is_none() {
                let call = self.shape(call);
                (shape.grid, shape.block) = (call.grid, call.block);
            }
            if in_threads && let (Some(grid), Some(block)) = (&mut shape.grid, shape.block) {
                for (extent, threads) in grid.iter_mut().zip(block) {
                    *extent = extent.div_ceil(threads);
                }
            }
            device.shape = self.shapes.number(shape);
        }
        self.devices = devices;
    }

    /// Closes the optimizer's range that was open when the profiler stopped, as where
    /// `prof.step()` is called by a hook of the optimizer: PyTorch 2.1 writes it with no length,
    /// 2.6 with one. It lasts as long as its step.
    pub(super) fn settle_ranges(&mut self) {
        let named = |host: &Host, prefix: &str| {
            host.kind == HostKind::Annotation && self.names.text(host.name).starts_with(prefix)
        };
        let open = |host: &Host| host.end <= host.start && named(host, "Optimizer.step#");
        let ends: Vec<(usize, f64)> = self
            .host
            .iter()
            .enumerate()
            .filter(|(_, host)| open(host))
            .filter_map(|(index, range)| {
                let around =
                    |step: &&Host| step.thread == range.thread && step.start <= range.start && range.start < step.end;
                let mut steps = self.host.iter().filter(|host| named(host, "ProfilerStep"));
                Some((index, steps.find(around)?.end))
            })
            .collect();
        for (index, end) in ends {
            self.host[index].end = end;
        }
    }

    /// Of trainings in threads beside one another, keeps the one whose steps are marked, where
    /// no device took work of several; says so. Once all events are read.
    pub(super) fn settle_threads(&mut self) {
        let spans = |prefix: &str| -> HashMap<u32, (f64, f64)> {
            let mut spans = HashMap::new();
            for host in self.host.iter().filter(|host| host.kind == HostKind::Annotation) {
                if self.names.text(host.name).starts_with(prefix) {
                    let span = spans.entry(host.thread).or_insert((host.start, host.end));
                    *span = (span.0.min(host.start), span.1.max(host.end));
                }
            }
            spans
        };
        let updates = spans("Optimizer.step#");
        let marked = spans("ProfilerStep");
        let longest = |spans: &HashMap<u32, (f64, f64)>| {
            spans.iter().max_by(|a, b| (a.1.1 - a.1.0).total_cmp(&(b.1.1 - b.1.0)).then(b.0.cmp(a.0))).map(|one| *one.0)
        };
        let Some(main) = longest(&marked).filter(|main| updates.contains_key(main)).or_else(|| longest(&updates))
        else {
            return;
        };
        let (from, to) = updates[&main];
        let others: HashSet<u32> = updates
            .iter()
            .filter(|(thread, span)| **thread != main && span.0 < to && from < span.1)
            .map(|(thread, _)| *thread)
            .collect();
        if others.is_empty() {
            return;
        }
        self.recorder.notes.push(if self.kernels_seen == 0 {
            self.host.retain(|host| !others.contains(&host.thread));
            format!("{} threads train at once: this is the one whose steps were counted", others.len() + 1)
        } else {
            format!("{} threads train at once: the profile holds the work of all of them", others.len() + 1)
        });
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
            let peak = self.peak_memory.entry(device as u32).or_default();
            *peak = allocated.max(*peak);
        }
    }
}

fn note(bad: &mut Bad, index: u64, name: &str, field: &'static str, value: &[u8]) {
    if bad.count == 0 {
        let value = String::from_utf8_lossy(&value[..value.len().min(100)]);
        let value = if value.is_empty() { "missing".to_owned() } else { crate::text::clean(&value, 40) };
        *bad = Bad { count: 0, index, name: crate::text::clean(name, 80), field, value };
    }
    bad.count += 1;
}

/// The kind of an event by its category, in the old names and the present ones.
fn category(event: &Event<'_>) -> Option<Category> {
    Some(match event.category {
        b"cpu_op" | b"Operator" => Category::Host(HostKind::Operator),
        b"user_annotation" => Category::Host(HostKind::Annotation),
        b"nvtx" => Category::Host(HostKind::Part),
        b"python_function" if event.name.starts_with(b"nn.Module: ") => Category::Host(HostKind::Module),
        b"cuda_runtime" | b"cuda_driver" | b"Runtime" if launches(event.name) => Category::Launch,
        b"kernel" | b"Kernel" => Category::Device(DeviceKind::Kernel),
        b"gpu_memcpy" | b"Memcpy" => Category::Device(DeviceKind::Copy),
        b"gpu_memset" | b"Memset" => Category::Device(DeviceKind::Set),
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

/// Whether a range may mark a step: the profiler's and the optimizers' own, and those of
/// the program that say step, iteration or batch (and not batch norm).
fn may_mark(event: &Event<'_>) -> bool {
    if event.name.starts_with(b"ProfilerStep") || event.name.starts_with(b"Optimizer.step#") {
        return true;
    }
    matches!(event.category, b"user_annotation" | b"nvtx") && says_step(event.name)
}

fn says_step(name: &[u8]) -> bool {
    let name = &name[..name.len().min(200)];
    let has = |word: &[u8]| name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    has(b"step") || has(b"iter") || (has(b"batch") && !has(b"norm"))
}
