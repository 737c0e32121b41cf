//! What a recording holds, as rows; where they are kept is the business of a [`Source`].

use crate::{CallKind, WorkKind};
use habitat_step::profile::DeviceInfo;

/// One process of a recording, and the GPU it used most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// What tells it apart in the file (`globalPid` without its lowest 24 bits).
    pub key: u64,
    /// The system's number of it.
    pub pid: u64,
    /// Devices it ran kernels on: number, kernels, and nanoseconds of them.
    pub devices: Vec<(u32, u64, u64)>,
    /// Rows of its ranges, calls and work altogether.
    pub rows: u64,
    /// First and last nanosecond of its kernels.
    pub span: (i64, i64),
}

/// What a recording holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Processes that ran kernels.
    pub processes: Vec<Process>,
    /// GPUs by the device number that kernels name them by, in the process of that key
    /// (`None`: in any).
    pub gpus: Vec<(Option<u64>, u32, Gpu)>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// Version of the tables, such as `3.25.0`.
    pub schema: Option<String>,
    /// Whole CUDA graphs recorded as one piece of work each.
    pub graphs: u64,
    /// What is missing from the file and what follows from that.
    pub missing: Vec<String>,
}

/// A GPU as the recording describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gpu {
    /// Name and what identifies it.
    pub info: DeviceInfo,
    /// Highest clock in hertz.
    pub clock_hz: Option<f64>,
    /// Memory bandwidth in bytes a second.
    pub bandwidth: Option<f64>,
}

/// Which rows to read: of one process, and of a window of nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The process, by its key.
    pub process: u64,
    /// Ranges that overlap the window, calls that start in it, and work that starts at
    /// its beginning or later; everything where there is none.
    pub window: Option<(i64, i64)>,
}

/// A range of NVTX, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct RangeRow<'a> {
    /// Its text.
    pub text: &'a str,
    /// Name of its domain, where that is not the default one.
    pub domain: Option<&'a str>,
    /// When it starts.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// Its thread.
    pub thread: u64,
    /// Pushed and popped, so that ranges of a thread nest; otherwise started and ended
    /// wherever.
    pub nests: bool,
}

/// A call of the CUDA runtime or driver that starts work, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct CallRow {
    /// When it starts.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// Its thread.
    pub thread: u64,
    /// What the work it starts is found by.
    pub correlation: u64,
    /// What it starts.
    pub kind: CallKind,
}

/// What a GPU did, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct WorkRow<'a> {
    /// The kernel's name, or what kind of copy or fill it is.
    pub name: &'a str,
    /// Kernel, copy or fill.
    pub kind: WorkKind,
    /// When it starts.
    pub start: i64,
    /// When it ends.
    pub end: i64,
    /// Its call.
    pub correlation: u64,
    /// The device's number in its process.
    pub device: u32,
    /// The stream's number, 0 where it is not told.
    pub stream: u32,
    /// Thread blocks of a kernel.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block.
    pub block: Option<[u32; 3]>,
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block, in bytes.
    pub static_memory: Option<u64>,
    /// Dynamic shared memory of a block, in bytes.
    pub dynamic_memory: Option<u64>,
}

impl WorkRow<'_> {
    /// Work of which nothing but kind, times and origin is known.
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

/// A fault of the source, in words that name the place.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// Where rows come from, in any order, one at a time.
pub trait Source {
    /// What there is.
    ///
    /// # Errors
    /// Where it cannot be read, or is no such recording.
    fn facts(&mut self) -> Result<Facts, SourceError>;
    /// NVTX ranges that ended.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn ranges(&mut self, part: Part, row: &mut dyn FnMut(RangeRow<'_>)) -> Result<(), SourceError>;
    /// Calls that start work.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn calls(&mut self, part: Part, row: &mut dyn FnMut(CallRow)) -> Result<(), SourceError>;
    /// Kernels, copies and fills.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn work(&mut self, part: Part, row: &mut dyn FnMut(WorkRow<'_>)) -> Result<(), SourceError>;
}
