//! Rows of a recording, independent of their storage; a [`Source`] supplies them.

use crate::{CallKind, WorkKind};
use habitat_step::profile::DeviceInfo;

/// One process of a recording, and the GPU it used most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Unique key in the file (`globalPid` without its lowest 24 bits).
    pub key: u64,
    /// Process id.
    pub pid: u64,
    /// Devices it ran kernels on: number, kernels, kernel time in nanoseconds.
    pub devices: Vec<(u32, u64, u64)>,
    /// Number of rows of its ranges, calls and work.
    pub rows: u64,
    /// First and last nanosecond of its kernels.
    pub span: (i64, i64),
}

/// Contents of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Processes that ran kernels.
    pub processes: Vec<Process>,
    /// GPUs by the device number that kernels refer to, within the process with this key (`None`: any).
    pub gpus: Vec<(Option<u64>, u32, Gpu)>,
    /// Driver version.
    pub driver: Option<String>,
    /// Version of the tables, such as `3.25.0`.
    pub schema: Option<String>,
    /// Number of CUDA graphs recorded as one piece of work each.
    pub graphs: u64,
    /// Missing tables or columns, with the consequence of each.
    pub missing: Vec<String>,
}

/// A GPU as the recording describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gpu {
    /// Name and specifications.
    pub info: DeviceInfo,
    /// Highest clock in hertz.
    pub clock_hz: Option<f64>,
    /// Memory bandwidth in bytes per second.
    pub bandwidth: Option<f64>,
}

/// Rows to read: one process, and a window in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Process key.
    pub process: u64,
    /// Ranges that overlap the window, calls that start in it, and work that starts at its beginning or later;
    /// everything if `None`.
    pub window: Option<(i64, i64)>,
}

/// An NVTX range; times in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct RangeRow<'a> {
    /// Text of the range.
    pub text: &'a str,
    /// Name of its domain, unless it is the default one.
    pub domain: Option<&'a str>,
    /// Start.
    pub start: i64,
    /// End.
    pub end: i64,
    /// Thread.
    pub thread: u64,
    /// Whether it was pushed and popped, so that ranges of a thread nest; otherwise it was started and ended anywhere.
    pub nests: bool,
}

/// A call of the CUDA runtime or driver that starts work; times in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct CallRow {
    /// Start.
    pub start: i64,
    /// End.
    pub end: i64,
    /// Thread.
    pub thread: u64,
    /// Correlation id, which the launched work shares.
    pub correlation: u64,
    /// Kind of work it starts.
    pub kind: CallKind,
}

/// Work of a GPU; times in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct WorkRow<'a> {
    /// Kernel name, or the kind of copy or fill.
    pub name: &'a str,
    /// Kernel, copy or fill.
    pub kind: WorkKind,
    /// Start.
    pub start: i64,
    /// End.
    pub end: i64,
    /// Correlation id of its call.
    pub correlation: u64,
    /// Device number in its process.
    pub device: u32,
    /// Stream number; 0 if unknown.
    pub stream: u32,
    /// Thread blocks of a kernel.
    pub grid: Option<[u32; 3]>,
    /// Threads per block.
    pub block: Option<[u32; 3]>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Static shared memory per block in bytes.
    pub static_memory: Option<u64>,
    /// Dynamic shared memory per block in bytes.
    pub dynamic_memory: Option<u64>,
}

impl WorkRow<'_> {
    /// Work with only kind, times and origin known.
    pub const fn new(kind: WorkKind, start: i64, end: i64, correlation: u64, device: u32) -> Self {
        let (grid, block, registers) = (None, None, None);
        let (static_memory, dynamic_memory) = (None, None);
        Self {
            name: "",
            kind,
            start,
            end,
            correlation,
            device,
            stream: 0,
            grid,
            block,
            registers,
            static_memory,
            dynamic_memory,
        }
    }
}

/// Error of the source; the message names the place.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Supplies rows, one at a time, in any order.
pub trait Source {
    /// Contents of the recording.
    ///
    /// # Errors
    /// If it cannot be read or is not such a recording.
    fn facts(&mut self) -> Result<Facts, SourceError>;
    /// Completed NVTX ranges.
    ///
    /// # Errors
    /// If they cannot be read.
    fn ranges(&mut self, part: Part, row: &mut dyn FnMut(RangeRow<'_>)) -> Result<(), SourceError>;
    /// Calls that start work.
    ///
    /// # Errors
    /// If they cannot be read.
    fn calls(&mut self, part: Part, row: &mut dyn FnMut(CallRow)) -> Result<(), SourceError>;
    /// Kernels, copies and fills.
    ///
    /// # Errors
    /// If they cannot be read.
    fn work(&mut self, part: Part, row: &mut dyn FnMut(WorkRow<'_>)) -> Result<(), SourceError>;
}
