//! What happens around a job, as the one that follows it hears of it.

use std::sync::mpsc;

use super::messages::Message;
use crate::live::Wish;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Somebody else took its status.
    Unknown,
    /// Not at all: it was left running.
    Left,
}

impl Ended {
    /// The exit code as shells give it: 128 and the signal for a job ended by one.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => (code & 0xff) as u8,
            Self::Signal(signal) => (128 + signal).min(255) as u8,
            Self::Unknown => 2,
            Self::Left => 0,
        }
    }
}

/// Why we asked a job to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It was wished.
    Wished,
    /// Its time was over.
    Timeout,
    /// Enough was recorded.
    Recorded,
}

/// Passes wishes on to [`Running::follow`](super::Running::follow), from any thread.
#[derive(Debug, Clone)]
pub struct Control(pub(super) mpsc::Sender<Event>);

impl Control {
    /// Passes a wish on; `false` where nobody follows the job any more.
    pub fn wish(&self, wish: Wish) -> bool {
        self.0.send(Event::Wished(wish)).is_ok()
    }
}

/// Output that is not in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// How much.
    pub bytes: u64,
    /// Why.
    pub why: String,
}

/// What is heard on the socket.
#[derive(Debug)]
pub(super) enum Heard {
    Connected,
    /// Too many were there already.
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

/// The process that our own closing word names.
pub(super) const OURSELVES: u32 = 0;

/// What happens around a job.
#[derive(Debug)]
pub(super) enum Event {
    /// Something was heard on the socket, whose sender waits `until` it was taken.
    Heard {
        what: Heard,
        #[allow(dead_code, reason = "dropping it is what tells")]
        until: mpsc::Sender<()>,
    },
    /// The log lacks something.
    Cut(Cut),
    /// The job's output has ended, and is in the log.
    Logged,
    Signal(i32),
    /// Stopped; whether it was the terminal that did it.
    Stopped {
        by_terminal: bool,
    },
    Continued,
    Wished(Wish),
    Ended(Ended),
}
