//! PyTorch profiler (Kineto) traces → [`Profile`].
//!
//! Reads the Chrome-trace JSON that `torch.profiler` exports, of NVIDIA and (as far as
//! their fields go) AMD GPUs, in the names of 2021 and the present ones. A trace is read
//! as a stream: small ones once, large ones three times for a few whole steps, so memory
//! is bounded whatever the size of the file. The caller gives a way to open the text
//! again and does the decompression.
//!
//! How the parts work:
//! - the steps: [`steps`](self::StepMarks) from `ProfilerStep#n` marks, else the ends of
//!   `Optimizer.step`, else annotated ranges (of a name that the caller gives, before all
//!   others), else the repeating sequence of kernels, else the whole trace. A step owns
//!   what was *launched* in it;
//! - the join: kernel → launch by correlation → innermost operator on the thread;
//! - the operations: equal calls (name, shapes, type, attributes, phase, module group)
//!   with equal kernels are one operation; the sum of count × device time over all of them
//!   is the mean device time of a step;
//! - the step time: from the last device work of one step to that of the next, median.
//!
//! An event with an unusable time (negative, not finite) or broken text is left out and
//! counted in the notes; more than one in a hundred of them is an error.

mod args;
mod build;
mod collect;
mod demangle;
mod error;
mod event;
mod feed;
mod group;
mod infer;
mod intern;
mod join;
mod nest;
mod outputs;
mod pattern;
mod ranks;
mod record;
mod samples;
mod scan;
mod shapes_only;
mod steps;
mod timing;
mod update;

use std::collections::HashSet;
use std::io::{self, Read};
use std::ops::ControlFlow;

pub use self::error::KinetoError;
pub(in crate::profile) use self::feed::{Feed, Grouping, Range, RangeKind, Recorder, Work, WorkKind};
pub(in crate::profile) use self::ranks::choose;
pub use self::ranks::{NoSuchDevice, combine};
pub use self::samples::ModelInput;
pub use self::steps::StepMarks;

use self::collect::{Keep, Records};
use self::scan::{Item, Totals};
use self::steps::Span;
use super::{Mode, Precision, Profile};
use crate::units::{GpuSlug, Micros};

/// Opens the (decompressed) text of a trace from its beginning; called once for a small
/// trace and three times for a large one.
pub type Open<'a> = dyn FnMut() -> io::Result<Box<dyn Read>> + 'a;

/// Finds the catalog's slug of a GPU, by what a trace says of it.
pub type ResolveGpu<'a> = dyn Fn(&DeviceInfo) -> Option<GpuSlug> + Sync + 'a;

/// What a trace says of the GPU it was recorded on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The driver's name, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Major and minor compute capability (of AMD GPUs the architecture, as 9 and 4).
    pub compute_capability: Option<(u32, u32)>,
    /// Streaming multiprocessors (compute units).
    pub multiprocessors: Option<u32>,
    /// Device memory in bytes.
    pub memory_bytes: Option<u64>,
}

impl DeviceInfo {
    /// What stands in front of a name that is made of figures.
    pub const UNNAMED: &'static str = "unnamed ";

    /// Whether the name is the driver's.
    pub fn is_named(&self) -> bool {
        !self.name.starts_with(Self::UNNAMED)
    }
}

/// What the caller knows and wants; everything left at its default is taken from the
/// trace as far as possible.
#[derive(Clone, Default)]
pub struct ImportOptions<'a> {
    /// Name of the workload; `imported` where empty.
    pub workload: String,
    /// Training or inference.
    pub mode: Option<Mode>,
    /// Samples of a step on one GPU.
    pub batch_size: Option<u64>,
    /// Tokens of a sample.
    pub sequence_length: Option<u64>,
    /// What the model was seen to be given, to tell the batch size from.
    pub model: Option<ModelInput>,
    /// The arithmetic of the step.
    pub precision: Option<Precision>,
    /// Trainable parameters of the model.
    pub parameter_count: Option<u64>,
    /// The GPU it was recorded on, where the caller knows better than the trace.
    pub origin: Option<GpuSlug>,
    /// Looks a GPU up in the catalog.
    pub resolve_gpu: Option<&'a ResolveGpu<'a>>,
    /// Steps read at most, from the middle of the recording.
    pub max_steps: Option<usize>,
    /// Take operators and shapes only and leave everything measured out: works without a
    /// GPU in the trace.
    pub shapes_only: bool,
    /// Ranges of that name (numbers at its end aside) are the steps, whatever else is marked.
    pub step_range: Option<String>,
    /// Records held in memory at once (about 50 bytes each); 1.5 million by default.
    pub max_records: Option<usize>,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Which trace, from 0.
    pub rank: usize,
    /// Which pass over it, from 1.
    pub pass: u32,
    /// Bytes of text read in this pass.
    pub bytes: u64,
    /// Events read in this pass.
    pub events: u64,
}

/// Called now and then; [`ControlFlow::Break`] stops the import with
/// [`KinetoError::Cancelled`].
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// An imported trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// The step.
    pub profile: Profile,
    /// What the import found, for those who want to judge it.
    pub summary: Summary,
}

/// Figures about an import.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// How steps were found.
    pub marks: StepMarks,
    /// Steps in the trace.
    pub steps_found: usize,
    /// Steps that the medians and means are over.
    pub steps_used: usize,
    /// Events in the trace.
    pub events: u64,
    /// Bytes of (decompressed) text.
    pub bytes: u64,
    /// Kernels of a step, mean.
    pub kernels_per_step: f64,
    /// Kernel time of a step, mean, overlap counted twice.
    pub kernel_time: Micros,
    /// Kernel, copy and fill time of a step, mean, overlap counted twice.
    pub device_time: Micros,
    /// Share of the kernel time joined to operators, 0 to 1.
    pub joined_share: f64,
    /// What kernels are joined to, in words.
    pub joined_to: &'static str,
    /// Ranges that overlap others of their thread without nesting.
    pub overlaps: u64,
    /// Time of the shortest used step on the host while it was recorded.
    pub host_step: Micros,
}

/// Records held at once by default: with all tables about 150 MB.
const RECORDS: usize = 1_500_000;
/// Progress is told every so many events.
const PROGRESS_EVENTS: u64 = 1 << 14;

/// Imports one trace.
///
/// # Errors
/// [`KinetoError`], in words that say what to do.
pub fn import(
    open: &mut Open<'_>,
    options: &ImportOptions<'_>,
    progress: &mut OnProgress<'_>,
) -> Result<Import, KinetoError> {
    import_rank(0, open, options, progress)
}

/// Imports the traces of several ranks of one job into one profile: the operations of the
/// rank with the median step, each with the median device time over the ranks.
///
/// # Errors
/// [`KinetoError::Rank`] around the error of the first trace that fails;
/// [`KinetoError::NoSources`] for an empty list.
pub fn import_ranks(
    sources: &mut [&mut Open<'_>],
    options: &ImportOptions<'_>,
    progress: &mut OnProgress<'_>,
) -> Result<Import, KinetoError> {
    let mut imports = Vec::with_capacity(sources.len());
    for (rank, open) in sources.iter_mut().enumerate() {
        match import_rank(rank, open, options, progress) {
            Ok(import) => imports.push(import),
            Err(KinetoError::Cancelled) => return Err(KinetoError::Cancelled),
            Err(source) => return Err(KinetoError::Rank { rank, source: Box::new(source) }),
        }
    }
    ranks::combine(imports)
}

fn import_rank(
    rank: usize,
    open: &mut Open<'_>,
    options: &ImportOptions<'_>,
    progress: &mut OnProgress<'_>,
) -> Result<Import, KinetoError> {
    let mut passes = Passes { rank, pass: 0, open, progress };
    let budget = options.max_records.unwrap_or(RECORDS);
    let mut records = Records { step_range: options.step_range.clone(), ..Records::default() };
    let totals = passes.read(&mut records, &Keep::WithinBudget(budget))?;
    check(&records)?;
    if records.kernels_seen == 0 && !options.shapes_only {
        return Err(KinetoError::NoKernels { operators: records.operators_seen, with_shapes: records.shapes_seen });
    }
    let marked = steps::from_marks(&records);
    if let (None, Some(name)) = (&marked, &options.step_range) {
        let seen = std::mem::take(&mut records.ranges_seen).into_iter().collect();
        return Err(KinetoError::NoStepRange { name: crate::text::clean(name, 60), seen });
    }
    let found = marked.as_ref().map(|(spans, _)| spans.len());
    let marked = marked.map(|(spans, marks)| {
        let per_step = records.seen / (spans.len() as u64).max(1);
        let fitting = if records.overflowed { (budget as u64 / per_step.max(1)) as usize } else { usize::MAX };
        (middle(spans, fitting.min(options.max_steps.unwrap_or(usize::MAX)).max(1)), marks)
    });
    if records.overflowed {
        let (from, to) = window(&records, marked.as_ref().map(|(spans, _)| &spans[..]), budget);
        let (step_range, recorder) = (records.step_range.take(), records.recorder.clone());
        let mut part = Records { recorder, step_range, ..Records::default() };
        passes.read(&mut part, &Keep::HostOf { from, to })?;
        let wanted: HashSet<u64> = part.launches.iter().map(|launch| launch.correlation).collect();
        passes.read(&mut part, &Keep::DevicesOf(wanted))?;
        part.properties = std::mem::take(&mut records.properties);
        part.versions = std::mem::take(&mut records.versions);
        part.peak_memory = std::mem::take(&mut records.peak_memory);
        part.bad_times = std::mem::take(&mut records.bad_times);
        part.malformed = std::mem::take(&mut records.malformed);
        part.overflowed = true;
        records = part;
    }
    records.settle_grids();
    records.settle_ranges();
    records.settle_threads();
    update::fill_lists(&mut records);
    let source = build::Source { records: &records, marked, found, totals };
    if options.shapes_only { shapes_only::build(&source, options) } else { build::build(&source, options) }
}

/// The passes over one trace.
struct Passes<'a, 'o> {
    rank: usize,
    pass: u32,
    open: &'a mut Open<'o>,
    progress: &'a mut OnProgress<'o>,
}

impl Passes<'_, '_> {
    fn read(&mut self, records: &mut Records, keep: &Keep) -> Result<Totals, KinetoError> {
        self.pass += 1;
        records.events = 0;
        let mut reader = (self.open)().map_err(|source| KinetoError::Io { events: 0, source })?;
        scan::scan(&mut *reader, &mut |item, totals| {
            match item {
                Item::Event(text) => records.event(text, keep),
                Item::Property(key, value) => records.property(key, value),
            }
            if totals.events % PROGRESS_EVENTS == 0 {
                let Totals { events, bytes } = totals;
                (self.progress)(Progress { rank: self.rank, pass: self.pass, bytes, events })
            } else {
                ControlFlow::Continue(())
            }
        })
    }
}

/// One unusable event in a hundred may be chance; more say that the rest is unusable too.
fn check(records: &Records) -> Result<(), KinetoError> {
    let bad = &records.malformed;
    if bad.count * 100 > records.events {
        return Err(KinetoError::Malformed { count: bad.count, events: records.events, index: bad.index });
    }
    let bad = &records.bad_times;
    let events = records.seen + bad.count;
    if bad.count * 100 > events {
        return Err(KinetoError::BadTimes {
            count: bad.count,
            events,
            index: bad.index,
            name: bad.name.clone(),
            field: bad.field,
            value: bad.value.clone(),
        });
    }
    Ok(())
}

/// A run of `count` steps from the middle: whole, past the warm-up, and followed by one
/// another, which tells their rate.
fn middle(mut spans: Vec<Span>, count: usize) -> Vec<Span> {
    if spans.len() > count {
        let first = (spans.len() - count).div_ceil(2);
        spans = spans[first..first + count].to_vec();
    }
    spans
}

/// The window of time to keep of a trace that is over the budget.
fn window(records: &Records, spans: Option<&[Span]>, budget: usize) -> (f64, f64) {
    if let Some([first, .., last] | [first @ last]) = spans {
        return (first.start, last.end);
    }
    let (low, high) = records.span.unwrap_or((0.0, f64::MAX));
    let share = (0.8 * budget as f64 / records.seen.max(1) as f64).min(1.0);
    let margin = (high - low) * (1.0 - share) / 2.0;
    (low + margin, high - margin)
}
