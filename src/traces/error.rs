//! Why a recording could not be made a profile.

use std::fmt;

use habitat_step::profile::ProfileError;

/// The formats of recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON of PyTorch's profiler (Kineto), or of the CUPTI recorder.
    Kineto,
    /// Nsight Systems, exported to SQLite.
    Nsight,
    /// XPlane, of JAX and other programs on XLA.
    Xplane,
}

impl Format {
    /// An error of a recording in this format.
    pub(crate) const fn error(self, fault: Fault) -> TraceError {
        TraceError { format: self, rank: None, fault }
    }

    /// The name in a profile's `recording`.
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

/// What was read, and what is wrong with it. Every message says what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{format}{}: {fault}", .rank.map(|rank| format!(" of rank {rank}")).unwrap_or_default())]
pub struct TraceError {
    /// The format it was read as.
    pub format: Format,
    /// Which of several recordings, in the order given, from 0.
    pub rank: Option<usize>,
    /// What is wrong.
    #[source]
    pub fault: Fault,
}

/// What is wrong with a recording.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Nothing in the file.
    #[error("the file is empty; expected JSON as `export_chrome_trace` writes it")]
    Empty,
    /// Reading or decompressing failed.
    #[error(
        "reading failed after {events} events: {source}; if the file is compressed it may be cut off: copy or export it again"
    )]
    Io {
        /// Events read until then.
        events: u64,
        /// What the reader said.
        source: std::io::Error,
    },
    /// The tables cannot be read.
    #[error("{0}")]
    Tables(Box<dyn std::error::Error + Send + Sync>),
    /// The bytes of a message make no sense.
    #[error("damaged or cut off at byte {offset}: {problem}; record or copy it again")]
    Damaged {
        /// The byte of the (decompressed) file, from 0.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// The text is not JSON.
    #[error(
        "byte {offset} is {found:?}, not JSON; expected a PyTorch profiler trace (\".gz\" and \".zst\" files are recognised by their first bytes)"
    )]
    NotJson {
        /// Where in the (decompressed) text, from 0.
        offset: u64,
        /// What stands there.
        found: String,
    },
    /// The list of events makes no sense from some place on.
    #[error(
        "after {events} events, byte {offset} is {found:?}, not JSON: the file is damaged, or several ranks wrote it at the same time; record each rank to a file of its own"
    )]
    Garbled {
        /// Events before it.
        events: u64,
        /// Where in the (decompressed) text, from 0.
        offset: u64,
        /// The text there.
        found: String,
    },
    /// The JSON ends before its closing bracket.
    #[error(
        "the JSON is cut off after {events} events ({bytes} bytes): the trace was not written to its end; export or copy it again"
    )]
    Truncated {
        /// Whole events before the end.
        events: u64,
        /// Bytes of text read.
        bytes: u64,
    },
    /// JSON of another kind.
    #[error("this is JSON but not a profiler trace: it has no \"traceEvents\"{}", keys(.found))]
    NotATrace {
        /// Its top-level keys (the first few).
        found: Vec<String>,
    },
    /// One event is larger than anything a profiler writes.
    #[error("event {index} is longer than {limit} bytes; this is not a profiler trace")]
    EventTooLarge {
        /// Which event, from 0.
        index: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// One step has more records than are held.
    #[error(
        "a step has more than {most} operators, launches and kernels, the most that are read; record a shorter one, without Python stacks (with_stack=False)"
    )]
    StepTooLarge {
        /// The most.
        most: usize,
    },
    /// A message has more parts than are held.
    #[error("more than {most} {what}, the most that are read; record fewer steps")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The most.
        most: usize,
    },
    /// Too many events have unusable times to trust the rest.
    #[error(
        "{count} of {events} events have unusable times, the first is event {index} ({name:?}): {field} is {value}; expected a finite number of microseconds, and a duration of 0 or more"
    )]
    BadTimes {
        /// How many.
        count: u64,
        /// Out of how many.
        events: u64,
        /// The first, counted from 0.
        index: u64,
        /// Its name.
        name: String,
        /// Such as `ts` or `dur`.
        field: &'static str,
        /// The text of the value.
        value: String,
    },
    /// The times of a step are too far apart, each of which may be.
    #[error("a step of {seconds:.0} s, longer than a year: the times of the recording are damaged; record it again")]
    StepTooLong {
        /// How long.
        seconds: f64,
    },
    /// Too many events are not readable to trust the rest.
    #[error(
        "{count} of {events} events are malformed, the first is event {index}: the file is damaged, or several ranks wrote it at the same time; export it again, each rank to a file of its own"
    )]
    Malformed {
        /// How many.
        count: u64,
        /// Out of how many.
        events: u64,
        /// The first, counted from 0.
        index: u64,
    },
    /// No plane of a GPU.
    #[error("no GPU in the recording{}; only steps that ran on a GPU can be imported", planes(.found))]
    NoGpu {
        /// The devices there are.
        found: Vec<String>,
    },
    /// Events of a trace, none of which is of PyTorch's profiler.
    #[error("{}", foreign(*.events, .kind))]
    NotOfPyTorch {
        /// Events in the file.
        events: u64,
        /// Who wrote them.
        kind: Foreign,
    },
    /// Operators or launches, and no work of a GPU.
    #[error("the trace has no GPU kernels ({}){}", counts(*.operators, *.launches), remedy(*.launches, *.with_shapes))]
    NoKernels {
        /// Operators in the trace.
        operators: u64,
        /// Launches of kernels in the trace.
        launches: u64,
        /// Whether some operators have input shapes.
        with_shapes: bool,
    },
    /// Nothing ran on any GPU of the recording.
    #[error("nothing ran on a GPU while it was recorded; {remedy}")]
    Idle {
        /// How to record it.
        remedy: &'static str,
    },
    /// No kernel ran on the GPU asked for.
    #[error("no kernel ran on device {device}; the recording has kernels of device{} {}", if .known.len() == 1 { "" } else { "s" }, list(.known))]
    NoSuchDevice {
        /// What was asked for.
        device: u32,
        /// What there is.
        known: Vec<u32>,
    },
    /// Kernels there are, but none can be assigned to a step.
    #[error(
        "none of the {kernels} kernels was launched within a recorded step; record at least one whole step (schedule with active=2 or more)"
    )]
    NoWholeStep {
        /// Kernels in the trace.
        kernels: u64,
    },
    /// Steps were named, and no range has the name.
    #[error("no range is called {name:?}{}", ranges(.known))]
    NoStepRange {
        /// The name given.
        name: String,
        /// Names there are (the first few).
        known: Vec<String>,
    },
    /// Shapes were asked for and there are none.
    #[error(
        "no operator of the trace has input shapes; record it with torch.profiler.profile(record_shapes=True) or give a trace with GPU kernels"
    )]
    NoShapes,
    /// The caller stopped the import.
    #[error("import cancelled")]
    Cancelled,
    /// No recordings were given.
    #[error("no recording given; name at least one file")]
    NoSources,
    /// The result broke a rule of the profile format.
    #[error("the imported profile is not valid: {0}")]
    Profile(#[from] ProfileError),
}

fn keys(found: &[String]) -> String {
    if found.iter().any(|key| key == "format") {
        "; it looks like a habitat profile: open it as it is".to_owned()
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
        format!("; there are {}", known.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "))
    }
}

/// The origin of a trace in Chrome's format without events of PyTorch's profiler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Foreign {
    /// Not even events: none at all, or metadata alone.
    Nothing,
    /// `torch.autograd.profiler` without Kineto, as before PyTorch 1.8.1.
    LegacyAutograd,
    /// The profile plugin of `TensorBoard`, for JAX and TensorFlow.
    Xprof,
    /// Another program, with the categories of its events (the first few).
    Other(Vec<String>),
}

fn foreign(events: u64, kind: &Foreign) -> String {
    match kind {
        Foreign::Nothing if events == 0 => {
            "the list of events is empty: nothing ran while the profiler was on, or it was exported too early; record at least one whole step and export it after the profiler has stopped".to_owned()
        }
        Foreign::Nothing => format!(
            "its {events} events are metadata, none has a duration: nothing ran while the profiler was on, or it was exported too early; record at least one whole step"
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
                "a trace of another program than PyTorch's profiler: none of its {events} events{categories} is an operator, launch or kernel; record the step with torch.profiler, ProfilerActivity.CUDA and record_shapes=True"
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
        "; kernels were launched, but CUPTI gave no records of them: it may lack the permission (NVreg_RestrictProfilingToAdminUsers), another profiler may have been attached, or the driver of WSL may not support it{shapes}"
    )
}

fn shapes_remedy(with_shapes: bool) -> &'static str {
    if with_shapes {
        "; record it with ProfilerActivity.CUDA, or import the shapes only (--shapes-only): all times are then predicted"
    } else {
        "; record it with ProfilerActivity.CUDA and record_shapes=True"
    }
}
