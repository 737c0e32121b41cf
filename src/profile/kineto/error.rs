//! Why a file could not be turned into a profile.

use crate::profile::ProfileError;

/// Why a trace could not be imported. Every message says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum KinetoError {
    /// Nothing in the file.
    #[error("the file is empty; expected a PyTorch profiler trace (JSON, as `export_chrome_trace` writes it)")]
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
    /// Too many events have unusable times to trust the rest.
    #[error(
        "{count} of {events} events have unusable times, the first is event {index} ({name:?}): {field} is {value}; expected a finite number of microseconds, 0 or more"
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
        /// `ts` or `dur`.
        field: &'static str,
        /// The text of the value.
        value: String,
    },
    /// Too many events are not readable to trust the rest.
    #[error(
        "{count} of {events} events are malformed, the first is event {index}: the file is damaged; export it again"
    )]
    Malformed {
        /// How many.
        count: u64,
        /// Out of how many.
        events: u64,
        /// The first, counted from 0.
        index: u64,
    },
    /// A trace of the CPU only.
    #[error("the trace has no GPU kernels ({operators} operators on the CPU){}", shapes_remedy(*.with_shapes))]
    NoKernels {
        /// Operators in the trace.
        operators: u64,
        /// Whether some of them have input shapes.
        with_shapes: bool,
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
    #[error("no range is called {name:?}{}", ranges(.seen))]
    NoStepRange {
        /// The name given.
        name: String,
        /// Names there are (the first few).
        seen: Vec<String>,
    },
    /// Shapes were asked for and there are none.
    #[error(
        "no operator of the trace has input shapes; record it with torch.profiler.profile(record_shapes=True) or give a trace with GPU kernels"
    )]
    NoShapes,
    /// The caller stopped the import.
    #[error("import cancelled")]
    Cancelled,
    /// No traces were given.
    #[error("no trace given; name at least one file")]
    NoSources,
    /// One of several ranks failed.
    #[error("rank {rank}: {source}")]
    Rank {
        /// Which, in the order given, from 0.
        rank: usize,
        /// Why.
        source: Box<KinetoError>,
    },
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

fn ranges(seen: &[String]) -> String {
    if seen.is_empty() {
        "; the trace has no ranges at all".to_owned()
    } else {
        format!("; there are {}", seen.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "))
    }
}

fn shapes_remedy(with_shapes: bool) -> &'static str {
    if with_shapes {
        "; record it with ProfilerActivity.CUDA, or import the shapes only (--shapes-only): all times are then predicted"
    } else {
        "; record it with ProfilerActivity.CUDA and record_shapes=True"
    }
}
