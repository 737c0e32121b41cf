//! Result of an attach.

use std::path::PathBuf;
use std::time::Duration;

use super::align::Span;
use crate::capture::folder::Folder;
use crate::capture::recording::{Process, Recorded, Recording};

/// A recorded trace.
#[derive(Debug, Clone)]
pub struct Traced {
    /// Process id in our namespace.
    pub pid: u32,
    /// Rank of the process.
    pub rank: Option<u32>,
    /// Command line of the process.
    pub command: Vec<String>,
    /// Device number, if the process reported one.
    pub gpu: Option<i32>,
    /// Path of the trace.
    pub path: PathBuf,
    /// File size.
    pub bytes: u64,
    /// Recorded window.
    pub span: Option<Span>,
    /// Number of requests sent to the process.
    pub asked: u32,
    /// Interval between its polls.
    pub interval: Option<Duration>,
}

/// Times of the stages, in seconds from the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// The last of the recorded processes was heard.
    pub heard: f64,
    /// The last of them received the request.
    pub asked: f64,
    /// The first window began, if the trace contains it.
    pub began: Option<f64>,
    /// The last window ended.
    pub ended: Option<f64>,
    /// The last trace was complete.
    pub written: f64,
}

/// The recorded traces, with details.
#[derive(Debug)]
pub struct Attached {
    /// Traces, the first rank first.
    pub traces: Vec<Traced>,
    /// Whether the ranks' windows cover the same steps, if there are several.
    pub aligned: Option<bool>,
    /// Number of tries.
    pub rounds: u32,
    /// Iterations per window.
    pub iterations: u32,
    /// Times of the stages.
    pub times: Times,
    /// Ranks that ended before their traces were complete.
    pub gone: Vec<u32>,
    /// Number of invalid datagrams.
    pub ignored: u64,
    /// Number of messages that could not be answered in time.
    pub stale: u64,
    /// Folders of the traces; removed with this value.
    pub folders: Vec<Folder>,
}

impl Attached {
    /// Converts the windows to the form of those that the hook records. If the environment does not give every rank a
    /// number, they are numbered in order.
    pub fn recording(&self) -> Recording {
        let mut recording = Recording::default();
        let several = self.traces.len() > 1;
        let are_numbered = self.traces.iter().all(|trace| trace.rank.is_some());
        for (number, trace) in (0_u32..).zip(&self.traces) {
            let rank = if several && !are_numbered { Some(number) } else { trace.rank };
            let steps = (1, u64::from(self.iterations));
            let file = trace.path.display().to_string();
            let windows = vec![Recorded { number: 1, steps, file, bytes: trace.bytes, cuda: None }];
            let process = Process { pid: trace.pid, has_torch: true, rank, windows, ..Process::default() };
            recording.processes.insert(trace.pid, process);
        }
        recording
    }
}
