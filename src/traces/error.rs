//! Reasons why a recording cannot become a profile.

use std::fmt;

use habitat_step::profile::ProfileError;

/// Format of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON of PyTorch's profiler (Kineto), or of the CUPTI recorder.
    Kineto,
    /// Nsight Systems, exported to SQLite.
    Nsight,
    /// XPlane, written by JAX and other programs on XLA.
    Xplane,
}

impl Format {
    /// Error of a recording in this format.
    pub(crate) const fn error(self, fault: Fault) -> TraceError {
        TraceError { format: self, rank: None, fault }
    }

    /// Name in a profile's `recording`.
    pub(crate) const fn source(self) -> &'static str {
        match self {
            Self::Kineto => "kineto trace",
            Self::Nsight => "nsight systems recording",
            Self::Xplane => "xplane recording",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kineto => "PyTorch trace",
            Self::Nsight => "Nsight Systems recording",
            Self::Xplane => "XPlane recording",
        })
    }
}

/// Error of a recording. Every message includes a remedy.
#[derive(Debug, thiserror::Error)]
#[error("{format}{}: {fault}", .rank.map(|rank| format!(" of rank {rank}")).unwrap_or_default())]
pub struct TraceError {
    /// Assumed format.
    pub format: Format,
    /// Position among several recordings, from 0.
    pub rank: Option<usize>,
    /// The fault.
    #[source]
    pub fault: Fault,
}

/// Fault of a recording.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file is empty.
    #[error("the file is empty; expected JSON as `export_chrome_trace` writes it")]
    Empty,
    /// Reading or decompressing failed.
    #[error(
        "reading failed after {events} events: {source}; if the file is compressed it may be cut off: copy or export it again"
    )]
    Io {
        /// Events read before the failure.
        events: u64,
        /// Error of the reader.
        source: std::io::Error,
    },
    /// The tables cannot be read.
    #[error("{0}")]
    Tables(Box<dyn std::error::Error + Send + Sync>),
    /// A message is malformed.
    #[error("damaged or cut off at byte {offset}: {problem}; record or copy it again")]
    Damaged {
        /// Byte offset in the decompressed file, from 0.
        offset: usize,
        /// The problem.
        problem: &'static str,
    },
    /// The text is not JSON.
    #[error(
        "byte {offset} is {found:?}, not JSON; expected a PyTorch profiler trace (\".gz\" and \".zst\" files are recognised by their first bytes)"
    )]
    NotJson {
        /// Byte offset in the decompressed text, from 0.
        offset: u64,
        /// Text at that offset.
        found: String,
    },
    /// The list of events is malformed from some offset on.
    #[error(
        "after {events} events, byte {offset} is {found:?}, not JSON: the file is damaged, or several ranks wrote it at the same time; record each rank to a file of its own"
    )]
    Garbled {
        /// Events before it.
        events: u64,
        /// Byte offset in the decompressed text, from 0.
        offset: u64,
        /// Text at that offset.
        found: String,
    },
    /// The JSON ends before its closing bracket.
    #[error(
        "the JSON is cut off after {events} events ({bytes} bytes): the trace was not written to its end; export or copy it again"
    )]
    Truncated {
        /// Complete events before the end.
        events: u64,
        /// Bytes of text read.
        bytes: u64,
    },
    /// JSON of another kind.
    #[error("this is JSON but not a profiler trace: it has no \"traceEvents\"{}", keys(.found))]
    NotATrace {
        /// Its first few top-level keys.
        found: Vec<String>,
    },
    /// One event is larger than any that a profiler writes.
    #[error("event {index} is longer than {limit} bytes; this is not a profiler trace")]
    EventTooLarge {
        /// Index of the event, from 0.
        index: u64,
        /// Limit in bytes.
        limit: usize,
    },
    /// One step has more records than the limit.
    #[error(
        "a step has more than {most} operators, launches and kernels, the limit; record a shorter one, without Python stacks (with_stack=False)"
    )]
    StepTooLarge {
        /// The limit.
        most: usize,
    },
    /// A message has more parts than the limit.
    #[error("more than {most} {what}, the limit; record fewer steps")]
    TooMany {
        /// Kind of part.
        what: &'static str,
        /// The limit.
        most: usize,
    },
    /// Too many events have unusable times to trust the rest.
    #[error(
        "{count} of {events} events have unusable times, the first is event {index} ({name:?}): {field} is {value}; expected a finite number of microseconds, and a duration of 0 or more"
    )]
    BadTimes {
        /// Number of such events.
        count: u64,
        /// Total number of events.
        events: u64,
        /// Index of the first one, from 0.
        index: u64,
        /// Its name.
        name: String,
        /// Field, such as `ts` or `dur`.
        field: &'static str,
        /// Text of the value.
        value: String,
    },
    /// The times of a step are too far apart, although each is valid alone.
    #[error("a step of {seconds:.0} s, longer than a year: the times of the recording are damaged; record it again")]
    StepTooLong {
        /// Length of the step in seconds.
        seconds: f64,
    },
    /// Too many events are malformed to trust the rest.
    #[error(
        "{count} of {events} events are malformed, the first is event {index}: the file is damaged, or several ranks wrote it at the same time; export it again, each rank to a file of its own"
    )]
    Malformed {
        /// Number of such events.
        count: u64,
        /// Total number of events.
        events: u64,
        /// Index of the first one, from 0.
        index: u64,
    },
    /// The recording has no GPU plane.
    #[error("no GPU in the recording{}; only steps that ran on a GPU can be imported", planes(.found))]
    NoGpu {
        /// Devices in the recording.
        found: Vec<String>,
    },
    /// A trace without events of PyTorch's profiler.
    #[error("{}", foreign(*.events, .kind))]
    NotOfPyTorch {
        /// Events in the file.
        events: u64,
        /// Origin of the trace.
        kind: Foreign,
    },
    /// Operators or launches, but no GPU work.
    #[error("the trace has no GPU kernels ({}){}", counts(*.operators, *.launches), remedy(*.launches, *.with_shapes))]
    NoKernels {
        /// Operators in the trace.
        operators: u64,
        /// Kernel launches in the trace.
        launches: u64,
        /// Whether some operators have input shapes.
        with_shapes: bool,
    },
    /// No GPU of the recording was used.
    #[error("nothing ran on a GPU during the recording; {remedy}")]
    Idle {
        /// How to record GPU work.
        remedy: &'static str,
    },
    /// No kernel ran on the requested GPU.
    #[error("no kernel ran on device {device}; the recording has kernels of device{} {}", if .known.len() == 1 { "" } else { "s" }, list(.known))]
    NoSuchDevice {
        /// Requested device.
        device: u32,
        /// Devices in the recording.
        known: Vec<u32>,
    },
    /// There are kernels, but none belongs to a step.
    #[error(
        "none of the {kernels} kernels was launched within a recorded step; record at least one whole step (schedule with active=2 or more)"
    )]
    NoWholeStep {
        /// Kernels in the trace.
        kernels: u64,
    },
    /// A step range was named, but no range has that name.
    #[error("no range is named {name:?}{}", ranges(.known))]
    NoStepRange {
        /// The given name.
        name: String,
        /// The first few names in the recording.
        known: Vec<String>,
    },
    /// Shapes were requested, but there are none.
    #[error(
        "no operator of the trace has input shapes; record it with torch.profiler.profile(record_shapes=True) or give a trace with GPU kernels"
    )]
    NoShapes,
    /// The caller cancelled the import.
    #[error("import cancelled")]
    Cancelled,
    /// No recording was given.
    #[error("no recording given; name at least one file")]
    NoSources,
    /// The result violates a rule of the profile format.
    #[error("the imported profile is not valid: {0}")]
    Profile(#[from] ProfileError),
}

fn keys(found: &[String]) -> String {
    if found.iter().any(|key| key == "format") {
        "; it looks like a habitat profile: open it directly".to_owned()
    } else if found.is_empty() {
        String::new()
    } else {
        format!(" (its keys are {})", found.join(", "))
    }
}

fn planes(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!(" (its devices are {})", found.join(", ")) }
}

fn list(devices: &[u32]) -> String {
    devices.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn ranges(known: &[String]) -> String {
    if known.is_empty() {
        "; the recording has none that could be a step".to_owned()
    } else {
        format!("; the recording has {}", known.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "))
    }
}

/// Origin of a trace in Chrome's format without events of PyTorch's profiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Foreign {
    /// No events, or metadata only.
    Nothing,
    /// `torch.autograd.profiler` without Kineto, as before PyTorch 1.8.1.
    LegacyAutograd,
    /// The profile plugin of `TensorBoard`, for JAX and TensorFlow.
    Xprof,
    /// Another program, with the first few categories of its events.
    Other(Vec<String>),
}

fn foreign(events: u64, kind: &Foreign) -> String {
    match kind {
        Foreign::Nothing if events == 0 => {
            "the list of events is empty: nothing ran while the profiler was on, or it was exported too early; record at least one whole step and export it after the profiler has stopped".to_owned()
        }
        Foreign::Nothing => format!(
            "all {events} events are metadata without a duration: nothing ran while the profiler was on, or it was exported too early; record at least one whole step"
        ),
        Foreign::LegacyAutograd => {
            "an export of the old torch.autograd.profiler, which has no kernels, launches or shapes; record the step with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True)".to_owned()
        }
        Foreign::Xprof => {
            "a trace viewer's copy of an XProf profile (JAX, TensorFlow); give the .xplane.pb file beside it".to_owned()
        }
        Foreign::Other(categories) => {
            let categories = categories.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            let categories = if categories.is_empty() { String::new() } else { format!(" (categories: {categories})") };
            format!(
                "not a trace of PyTorch's profiler: none of its {events} events{categories} is an operator, launch or kernel; record the step with torch.profiler, ProfilerActivity.CUDA and record_shapes=True"
            )
        }
    }
}

fn counts(operators: u64, launches: u64) -> String {
    let operators = format!("{operators} operators on the CPU");
    if launches > 0 { format!("{operators}, {launches} kernel launches") } else { operators }
}

fn remedy(launches: u64, with_shapes: bool) -> String {
    if launches == 0 {
        return shapes_remedy(with_shapes).to_owned();
    }
    let shapes = if with_shapes { "; --shapes-only imports the shapes, and all times are then predicted" } else { "" };
    format!(
        "; kernels were launched, but CUPTI did not record them: it may lack permission (NVreg_RestrictProfilingToAdminUsers), another profiler may have been attached, or the WSL driver may not support it{shapes}"
    )
}

fn shapes_remedy(with_shapes: bool) -> &'static str {
    if with_shapes {
        "; record it with ProfilerActivity.CUDA, or import the shapes only (--shapes-only): all times are then predicted"
    } else {
        "; record it with ProfilerActivity.CUDA and record_shapes=True"
    }
}
