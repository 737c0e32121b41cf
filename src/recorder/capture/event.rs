//! Events of a job, for the thread that follows it.

use std::sync::mpsc;

use super::messages::Message;
use crate::live::JobRequest;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobExit {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Unknown: another process collected its status.
    Unknown,
}

impl JobExit {
    /// Exit code as shells report it: 128 plus the signal for a job ended by a signal.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => (code & 0xff) as u8,
            Self::Signal(signal) => (128 + signal).min(255) as u8,
            Self::Unknown => 2,
        }
    }
}

/// Reason for which we asked a job to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The user requested it.
    User,
    /// Its time limit was reached.
    Timeout,
    /// Enough was recorded.
    Recorded,
}

/// Passes user requests to [`Running::follow`](super::Running::follow), from any thread.
#[derive(Debug, Clone)]
pub struct Control(pub(super) mpsc::Sender<Event>);

impl Control {
    /// Passes a request on; returns `false` if the job is no longer followed.
    pub fn request(&self, request: JobRequest) -> bool {
        self.0.send(Event::Requested(request)).is_ok()
    }
}

/// Output missing from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostOutput {
    /// Number of bytes.
    pub bytes: u64,
    /// Reason.
    pub why: String,
}

/// Events on the socket.
#[derive(Debug)]
pub(super) enum SocketEvent {
    Connected,
    /// Refused, because there were too many connections.
    Refused,
    Disconnected {
        connection: u64,
        problem: Option<String>,
    },
    Message {
        pid: u32,
        message: Message,
    },
}

/// Process id in our own closing message.
pub(super) const OURSELVES: u32 = 0;

/// Events of a job.
#[derive(Debug)]
pub(super) enum Event {
    /// An event on the socket; its sender waits until `until` is dropped.
    Socket {
        event: SocketEvent,
        #[allow(dead_code, reason = "dropped as a signal")]
        until: mpsc::Sender<()>,
    },
    /// Output is missing from the log.
    LostOutput(LostOutput),
    /// The job's output has ended and was written to the log.
    Logged,
    Signal(i32),
    /// Stopped, and whether the terminal did it.
    Stopped {
        by_terminal: bool,
    },
    Continued,
    Requested(JobRequest),
    Ended(JobExit),
}
