//! Builds the trace from packed records.

use std::collections::{BTreeSet, HashMap};

use super::demangle;
use super::json::{extents, unescape, unquote, whole};
use super::pack::Extent;
use super::unpack::{PackedLaunch, PackedRange, PackedWork, Record, Unpacker};
use crate::arguments::{Layout, scalars_from_pytorch};
use crate::intern::{NAME_BYTES, NONE};
use crate::record::{CallKind, Configuration, Launch, Range, RangeKind, Work, WorkKind};
use crate::steps::{is_named, may_mark, stem};
use crate::{Recorder, Tensors, Trace, nvtx};

/// Lowest and highest correlation id of the launches in a time window. Ids increase with time, so work with an id in
/// between was launched in that window, even if its call was not recorded.
#[derive(Debug)]
pub(super) struct Correlations {
    least: u64,
    greatest: u64,
}

impl Correlations {
    pub(super) fn of(launches: &[Launch]) -> Self {
        let all = || launches.iter().map(|launch| launch.correlation);
        Self { least: all().min().unwrap_or(u64::MAX), greatest: all().max().unwrap_or(0) }
    }
}

/// Which records to keep.
#[derive(Debug)]
pub(super) enum Keep {
    /// All records.
    All,
    /// Only records that may mark a step, for a trace over the budget.
    Marks,
    /// For such a trace, the host's records in a time window.
    HostOf { from: f64, to: f64 },
    /// For such a trace, work launched between these launches.
    DevicesOf(Correlations),
}

impl Keep {
    /// Whether a part may contain records to keep or count.
    pub(super) fn meets(&self, extent: &Extent) -> bool {
        let (first, last) = extent.host;
        let (low, high) = extent.correlations;
        match self {
            Self::All | Self::Marks => true,
            Self::HostOf { from, to } => last >= *from && first < *to,
            Self::DevicesOf(launches) => launches.least <= high && low <= launches.greatest,
        }
    }

    /// Whether this is the first pass, which counts every record and keeps marks.
    fn is_first(&self) -> bool {
        matches!(self, Self::All | Self::Marks)
    }
}

/// Builds a trace from records.
#[derive(Debug)]
pub(super) struct Collector {
    pub(super) trace: Trace,
    /// Names of the program's ranges, for an error that lists them.
    pub(super) known_ranges: BTreeSet<String>,
    /// HIP launches by correlation id: the configuration, which only HIP launch events carry, and whether the grid is
    /// in threads instead of blocks.
    pub(super) hip_launches: HashMap<u64, (u32, bool)>,
}

/// Maximum number of marks: a training trace does not have a million steps.
const MARKS: usize = 1 << 20;
/// Range names listed in an error.
const RANGES: usize = 12;

impl Collector {
    pub(super) fn new(recorder: Recorder, step_range: Option<&str>) -> Self {
        let mut trace = Trace::new(recorder);
        trace.step_range = step_range.map(str::to_owned);
        Self { trace, known_ranges: BTreeSet::new(), hip_launches: HashMap::new() }
    }

    /// Adds the records of a part that `keep` selects.
    pub(super) fn part(&mut self, packed: &[u8], keep: &Keep) {
        let mut part = Unpacker::new(packed);
        while let Some(record) = part.next() {
            match record {
                Record::Range(range) => self.range(&mut part, &range, keep),
                Record::Launch(launch) => self.launch(&mut part, &launch, keep),
                Record::Work(work) => self.work(&mut part, &work, keep),
            }
        }
    }

    fn thread(&mut self, part: &mut Unpacker<'_>, thread: usize) -> u32 {
        part.threads.number(thread, |key| self.trace.thread(key))
    }

    fn range(&mut self, part: &mut Unpacker<'_>, packed: &PackedRange, keep: &Keep) {
        let &PackedRange { kind, start, end, .. } = packed;
        let is_first = keep.is_first();
        let wanted = match keep {
            Keep::All => true,
            Keep::HostOf { from, to } => end > *from && start < *to,
            Keep::Marks | Keep::DevicesOf(_) => false,
        };
        let raw = part.names.text(packed.name);
        let mut is_mark = false;
        if is_first {
            let has_shapes = kind == RangeKind::Operator && packed.tensors.is_some();
            self.trace.operators += u64::from(kind == RangeKind::Operator);
            self.trace.has_shapes |= has_shapes;
            let (low, high) = self.trace.span.unwrap_or((start, end));
            self.trace.span = Some((low.min(start), high.max(end)));
            is_mark = self.marks(raw, kind) && self.trace.marks.len() < MARKS;
        }
        let wanted = wanted && self.trace.has_room();
        if !(wanted || is_mark) {
            return;
        }
        let name = part.names.number(packed.name, |raw| self.trace.names.name(raw, unescape));
        let thread = self.thread(part, packed.thread);
        let was_annotation = kind == RangeKind::Operator && was_annotation(raw);
        let mut range = Range::new(if was_annotation { RangeKind::Annotation } else { kind }, name, thread, start, end);
        if kind == RangeKind::Part
            && let Some(phase) = nvtx::describe(self.trace.name(name), None).phase
        {
            // It marks a phase of the step, not a part of the model.
            (range.kind, range.phase) = (RangeKind::Annotation, Some(phase));
        }
        (range.sequence, range.of_forward) = (packed.sequence, packed.of_forward);
        if let Some(tensors) = packed.tensors {
            range.tensors = part.tensors.number(tensors, |key| self.tensors(key));
        }
        if let Some(scalars) = packed.scalars {
            range.scalars =
                part.scalars.number(scalars, |values| self.trace.scalars.number(values, scalars_from_pytorch));
        }
        self.trace.has_shapes |= wanted && range.tensors != NONE && kind == RangeKind::Operator;
        if is_mark {
            self.trace.marks.push(range.clone());
        }
        if wanted {
            self.trace.ranges.push(range);
        }
    }

    /// Whether a range with this raw name may mark a step.
    fn marks(&mut self, raw: &[u8], kind: RangeKind) -> bool {
        let Some(wanted) = &self.trace.step_range else {
            let is_of_program = matches!(kind, RangeKind::Annotation | RangeKind::Part);
            return kind != RangeKind::Module && may_mark(raw, is_of_program);
        };
        if matches!(kind, RangeKind::Operator | RangeKind::Module) {
            return false;
        }
        let name = unescape(&raw[..raw.len().min(500)]);
        if self.known_ranges.len() < RANGES {
            self.known_ranges.insert(habitat_base::text::clean(stem(&name), 60));
        }
        is_named(&name, wanted)
    }

    fn tensors(&mut self, key: &[u8]) -> u32 {
        let [dims, types, strides] = Unpacker::arguments(key);
        // Calls that differ only in strides of the same layout are equal.
        let layout = Layout::from_pytorch(dims, strides);
        let key = [dims, types, &[layout.number()]].concat();
        let read = |_: &[u8]| Tensors { layout, ..Tensors::from_pytorch(dims, types) };
        self.trace.tensors.number(&key, read)
    }

    fn launch(&mut self, part: &mut Unpacker<'_>, packed: &PackedLaunch, keep: &Keep) {
        let &PackedLaunch { start, end, correlation, .. } = packed;
        let name = part.names.text(packed.name);
        if keep.is_first() {
            self.trace.kernel_launches += u64::from(CallKind::new(name) == CallKind::Kernel);
        }
        let wanted = match keep {
            Keep::All => true,
            Keep::HostOf { from, to } => start >= *from && start < *to,
            Keep::Marks | Keep::DevicesOf(_) => false,
        };
        if !wanted || !self.trace.has_room() {
            return;
        }
        // Only HIP launch events carry the configuration.
        let configuration =
            packed.launch.map_or(NONE, |launch| part.launches.number(launch, |key| self.configuration(key)));
        // `hipExtModuleLaunchKernel` takes the grid in threads, and traces record it like that.
        let in_threads = name.starts_with(b"hipExtModule");
        if configuration != NONE || in_threads {
            self.hip_launches.insert(correlation, (configuration, in_threads));
        }
        let thread = self.thread(part, packed.thread);
        self.trace.launches.push(Launch { start, end, correlation, thread, kind: CallKind::new(name) });
    }

    fn work(&mut self, part: &mut Unpacker<'_>, packed: &PackedWork, keep: &Keep) {
        let &PackedWork { kind, start, end, correlation, device, stream, .. } = packed;
        if keep.is_first() {
            self.trace.kernels += u64::from(kind == WorkKind::Kernel);
        }
        let wanted = match keep {
            Keep::All => true,
            Keep::DevicesOf(launches) => (launches.least..=launches.greatest).contains(&correlation),
            Keep::Marks | Keep::HostOf { .. } => false,
        };
        if !wanted || !self.trace.has_room() {
            return;
        }
        let configuration =
            packed.launch.map_or(NONE, |launch| part.launches.number(launch, |key| self.configuration(key)));
        let name = part.names.number(packed.name, |raw| self.kernel_name(raw));
        let (end, is_timed) = if end.is_nan() { (start, false) } else { (end, true) };
        self.trace.work.push(Work { start, end, correlation, name, configuration, device, stream, kind, is_timed });
    }

    fn configuration(&mut self, key: &[u8]) -> u32 {
        let [grid, block, registers, shared, collective, elements, ranks] = Unpacker::launch(key);
        let configuration = Configuration {
            grid: extents(grid),
            block: extents(block),
            registers: whole(registers).and_then(|number| number.try_into().ok()),
            shared_memory: whole(shared),
            dynamic_memory: None,
            collective: self.trace.names.name(unquote(collective), unescape),
            elements: whole(elements),
            group_size: whole(ranks),
        };
        self.trace.configurations.number(configuration)
    }

    /// Number of a kernel's name, demangled if necessary.
    fn kernel_name(&mut self, raw: &[u8]) -> u32 {
        if !raw.starts_with(b"_Z") || raw.len() > NAME_BYTES {
            return self.trace.names.name(raw, unescape);
        }
        self.trace.names.name(raw, |raw| demangle::kernel(&unescape(raw)))
    }
}

/// Annotations that traces until 2022 list as operators.
fn was_annotation(name: &[u8]) -> bool {
    [&b"ProfilerStep"[..], b"Optimizer.", b"enumerate(DataLoader)"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kineto::{Packer, Recorded};

    /// A trace over the budget keeps marks and their threads, up to the limit.
    #[test]
    fn threads_without_end_take_no_memory() {
        let mark = |number: usize| {
            let text = format!(
                r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": {number}, "ts": 1, "dur": 1}}"#
            );
            Packer::default().read(text.as_bytes()).packed
        };
        let mut collector = Collector::new(Recorded::new(None).recorder, None);
        collector.part(&mark(1), &Keep::Marks);
        collector.trace.marks.resize(MARKS, collector.trace.marks[0].clone());
        let threads = collector.trace.thread(b"next");
        collector.part(&mark(2), &Keep::Marks);
        assert_eq!(collector.trace.thread(b"another"), threads + 1);
    }
}
