//! What to attach to, and what is said on the way.

use std::path::PathBuf;
use std::time::Duration;

use super::roles::Wanted;

/// What to attach to, and what to record.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// The folder of the socket.
    pub folder: PathBuf,
    /// Listen at dynolog's abstract name too.
    pub at_abstract_name: bool,
    /// Whom to record.
    pub wanted: Wanted,
    /// Iterations of each window.
    pub iterations: u32,
    /// Record shapes.
    pub shapes: bool,
    /// Record Python stacks.
    pub stacks: bool,
    /// How long to listen for processes.
    pub wait: Duration,
    /// How long the traces may take, from the choice on.
    pub timeout: Duration,
}

/// What happens on the way.
#[derive(Debug, Clone, PartialEq)]
pub enum AttachEvent {
    /// Another daemon has dynolog's abstract name.
    OtherDaemon,
    /// A process is just importing PyTorch, and is let do so before anybody listens.
    Starting(u32),
    /// These are recorded.
    Chosen(Vec<u32>),
    /// A process was given the request.
    Asked(u32),
    /// A process was given it again, since it showed no effect.
    AskedAgain(u32),
    /// A process's trace was cut off, and the process was given the request again.
    CutOff(u32),
    /// Fewer ranks than the launcher started on this machine have been heard: so many, of
    /// so many.
    Fewer(usize, u32),
    /// A process runs a profiler of its own.
    OwnProfiler(u32),
    /// A process began its trace.
    Began(u32),
    /// A process's trace is complete.
    Written(u32),
    /// The windows were of different steps; ranks are asked again, to begin at a multiple
    /// of so many iterations.
    NotAligned(u32),
    /// A rank ended.
    Gone(u32),
}
