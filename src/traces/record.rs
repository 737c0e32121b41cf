//! Records of a trace.

use std::collections::HashMap;

use super::intern::NONE;
use habitat_step::profile::Phase;

/// Kind of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeKind {
    /// An operator of the framework.
    Operator,
    /// A range that describes the step: a phase, an optimizer, a collective.
    Annotation,
    /// A call of an `nn.Module`.
    Module,
    /// A part of the program, marked by its own NVTX range. It groups kernels like a module does; parts whose names
    /// differ only in numbers belong together.
    Part,
}

/// A range on a host thread.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    pub(crate) start: f64,
    pub(crate) end: f64,
    /// Autograd's sequence number; -1 if there is none.
    pub(crate) sequence: i64,
    pub(crate) thread: u32,
    /// Index in `Trace::names`.
    pub(crate) name: u32,
    /// Indices in `Trace::tensors` and `Trace::scalars`.
    pub(crate) tensors: u32,
    pub(crate) scalars: u32,
    pub(crate) kind: RangeKind,
    /// Runs for a forward operator of another thread.
    pub(crate) of_forward: bool,
    /// Phase of everything in the range, if the recorder reports it.
    pub(crate) phase: Option<Phase>,
}

impl Range {
    /// A range with only kind, name, thread and times.
    pub(crate) const fn new(kind: RangeKind, name: u32, thread: u32, start: f64, end: f64) -> Self {
        let (tensors, scalars) = (NONE, NONE);
        Self { start, end, sequence: -1, thread, name, tensors, scalars, kind, of_forward: false, phase: None }
    }
}

/// Kind of work that a call of the CUDA or HIP runtime or driver starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// One kernel.
    Kernel,
    /// A whole CUDA graph.
    Graph,
    /// A copy, a fill or a function of the host.
    Other,
}

impl CallKind {
    /// Kind of a call that starts work, from its name (`cudaLaunchKernel`, `cuLaunchKernelEx`, `hipModuleLaunchKernel`,
    /// `cudaGraphLaunch`, each also with a version suffix).
    pub fn new(name: &[u8]) -> Self {
        let has = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
        if has(b"GraphLaunch") {
            Self::Graph
        } else if has(b"aunch") && !has(b"HostFunc") {
            Self::Kernel
        } else {
            Self::Other
        }
    }
}

/// A call that starts work on a device.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) correlation: u64,
    pub(crate) thread: u32,
    pub(crate) kind: CallKind,
}

/// Kind of device work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// A kernel (or a whole CUDA graph).
    Kernel,
    /// A copy of memory.
    Copy,
    /// Memory set to a value.
    Set,
}

/// A kernel, copy or set on a device.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) start: f64,
    pub(crate) end: f64,
    /// Correlation id of the call that launched it.
    pub(crate) correlation: u64,
    pub(crate) name: u32,
    /// Index in `Trace::configurations`.
    pub(crate) configuration: u32,
    /// Device number.
    pub(crate) device: u32,
    /// Stream of the device; 0 if unknown.
    pub(crate) stream: u32,
    pub(crate) kind: WorkKind,
    /// Whether its duration was recorded.
    pub(crate) is_timed: bool,
}

/// Launch configuration of a kernel; number 0 is the empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Configuration {
    pub(crate) grid: Option<[u32; 3]>,
    pub(crate) block: Option<[u32; 3]>,
    pub(crate) registers: Option<u32>,
    /// Static shared memory in bytes, or static and dynamic together if only the sum is known.
    pub(crate) shared_memory: Option<u64>,
    pub(crate) dynamic_memory: Option<u64>,
    /// For collectives: name, elements and ranks.
    pub(crate) collective: u32,
    pub(crate) elements: Option<u64>,
    pub(crate) group_size: Option<u64>,
}

/// Interned launch configurations.
#[derive(Debug)]
pub(crate) struct Configurations {
    numbers: HashMap<Configuration, u32>,
    list: Vec<Configuration>,
}

impl Default for Configurations {
    fn default() -> Self {
        Self { numbers: HashMap::from([(Configuration::default(), NONE)]), list: vec![Configuration::default()] }
    }
}

impl Configurations {
    /// Configuration of a number from this table.
    pub(crate) fn get(&self, number: u32) -> &Configuration {
        &self.list[number as usize]
    }

    /// Number of a configuration.
    pub(crate) fn number(&mut self, mut configuration: Configuration) -> u32 {
        // A profile has both or neither, and no extent of zero.
        let whole = |extent: Option<[u32; 3]>| extent.is_some_and(|extent| !extent.contains(&0));
        if !(whole(configuration.grid) && whole(configuration.block)) {
            (configuration.grid, configuration.block) = (None, None);
        }
        if let Some(&number) = self.numbers.get(&configuration) {
            return number;
        }
        let number = self.list.len() as u32;
        self.list.push(configuration.clone());
        self.numbers.insert(configuration, number);
        number
    }
}

/// First unusable event, and the number of unusable events.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unusable {
    pub(crate) count: u64,
    pub(crate) index: u64,
    pub(crate) name: String,
    pub(crate) field: &'static str,
    pub(crate) value: String,
}

impl Unusable {
    /// Counts one; `value` is the content of the field of the event with this index and name.
    pub(super) fn add(&mut self, index: u64, name: &str, field: &'static str, value: &str) {
        if self.count == 0 {
            let value = if value.is_empty() { "missing".to_owned() } else { habitat_base::text::clean(value, 40) };
            *self = Self { count: 0, index, name: habitat_base::text::clean(name, 80), field, value };
        }
        self.count += 1;
    }

    /// Adds the count of later events, whose indices start at `first`.
    pub(super) fn join(&mut self, other: Self, first: u64) {
        let count = self.count + other.count;
        if self.count == 0 && other.count > 0 {
            *self = Self { index: first + other.index, ..other };
        }
        self.count = count;
    }
}

/// Source of the step boundaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepMarks {
    /// `ProfilerStep#n` ranges, which `torch.profiler` writes when `step()` is called.
    ProfilerStep,
    /// Ends of `Optimizer.step#…` ranges.
    OptimizerStep,
    /// Ranges of the program whose names contain step, iteration or batch.
    Annotation,
    /// Ranges that the caller named.
    Named,
    /// Step marks of the recorder.
    Recorder,
    /// Runs of the compiled program with the most device time.
    ProgramRuns,
    /// A repeating sequence of kernels.
    Pattern,
    /// No marks: the whole trace is one step.
    WholeTrace,
}

impl StepMarks {
    /// Whether a mark may cover only part of a step, such as a micro-batch. Optimizer marks end a step, and
    /// `--step-range` names whole steps.
    pub(crate) const fn may_be_parts(self) -> bool {
        matches!(self, Self::ProfilerStep | Self::Annotation | Self::Recorder)
    }

    /// Label, as written to the profile.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ProfilerStep => "ProfilerStep marks",
            Self::OptimizerStep => "ends of Optimizer.step",
            Self::Annotation => "annotated ranges",
            Self::Named => "ranges named by --step-range",
            Self::Recorder => "step marks of the recorder",
            Self::ProgramRuns => "runs of the compiled program",
            Self::Pattern => "repeating sequence of kernels",
            Self::WholeTrace => "none: the whole trace is one step",
        }
    }
}

/// One step on the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: f64,
    /// Launches before this time belong to the step.
    pub(crate) end: f64,
    /// Wall time on the host in microseconds.
    pub(crate) duration: f64,
    /// The next span is the program's next step.
    pub(crate) followed: bool,
    /// Step number, if its mark has one.
    pub(crate) number: Option<u64>,
}

impl Span {
    /// Index of the span that contains a moment: the last one that has begun, unless it has ended. The spans are in
    /// order.
    pub(crate) fn at(spans: &[Self], time: f64) -> Option<usize> {
        let begun = spans.partition_point(|span| span.start <= time);
        begun.checked_sub(1).filter(|last| time < spans[*last].end)
    }
}

/// Steps of a recording to use.
#[derive(Debug, Clone)]
pub(crate) struct MarkedSteps {
    /// Consecutive steps from the middle, in order.
    pub(crate) spans: Vec<Span>,
    pub(crate) marks: StepMarks,
    /// Steps marked in the whole recording.
    pub(crate) found: usize,
}
