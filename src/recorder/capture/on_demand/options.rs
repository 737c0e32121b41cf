//! Options and events of an attach.

use std::path::PathBuf;
use std::time::Duration;

use super::roles::Selection;

/// Options of an attach.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// Folder of the socket.
    pub folder: PathBuf,
    /// Whether to listen at dynolog's abstract name too.
    pub at_abstract_name: bool,
    /// Processes to record.
    pub wanted: Selection,
    /// Iterations per window.
    pub iterations: u32,
    /// Whether to record shapes.
    pub shapes: bool,
    /// Whether to record Python stacks.
    pub stacks: bool,
    /// Time to listen for processes.
    pub wait: Duration,
    /// Maximum time for the traces, from the choice on.
    pub timeout: Duration,
}

/// Event of an attach.
#[derive(Debug, Clone, PartialEq)]
pub enum AttachEvent {
    /// Another daemon uses dynolog's abstract name.
    OtherDaemon,
    /// A process is importing PyTorch; listening waits until it is done.
    Starting(u32),
    /// These processes are recorded.
    Chosen(Vec<u32>),
    /// A process received the request.
    Asked(u32),
    /// A process received the request again, because it showed no effect.
    AskedAgain(u32),
    /// A process's trace was cut off, and the process received the request again.
    CutOff(u32),
    /// Fewer ranks polled than the launcher started on this machine: number polled, number started.
    Fewer(usize, u32),
    /// A process runs its own profiler.
    OwnProfiler(u32),
    /// A process started its trace.
    Began(u32),
    /// A process's trace is complete.
    Written(u32),
    /// The windows cover different steps; ranks receive a new request, to start at a multiple of this many iterations.
    NotAligned(u32),
    /// A rank ended.
    Gone(u32),
}
