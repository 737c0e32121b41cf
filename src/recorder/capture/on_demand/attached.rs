//! What an attach recorded.

use std::path::PathBuf;
use std::time::Duration;

use super::align::Span;
use crate::capture::folder::Folder;
use crate::capture::recording::{Process, Recorded, Recording};

/// A trace that was recorded.
#[derive(Debug, Clone)]
pub struct Traced {
    /// The process, as we count.
    pub pid: u32,
    /// Its rank.
    pub rank: Option<u32>,
    /// Its command line.
    pub command: Vec<String>,
    /// Device number, where it told one.
    pub gpu: Option<i32>,
    /// The trace.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its window.
    pub span: Option<Span>,
    /// Times it was asked.
    pub asked: u32,
    /// Time between its polls.
    pub interval: Option<Duration>,
}

/// Where the time went, in seconds from the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// The last of the recorded processes was heard.
    pub heard: f64,
    /// The last of them was given the request.
    pub asked: f64,
    /// The first window began, where the trace tells.
    pub began: Option<f64>,
    /// The last window ended.
    pub ended: Option<f64>,
    /// The last trace was complete.
    pub written: f64,
}

/// What was recorded.
#[derive(Debug)]
pub struct Attached {
    /// The traces, the first rank first.
    pub traces: Vec<Traced>,
    /// Whether the ranks' windows are of the same steps, where there are several.
    pub aligned: Option<bool>,
    /// Tries that it took.
    pub rounds: u32,
    /// Iterations of a window.
    pub iterations: u32,
    /// Where the time went.
    pub times: Times,
    /// Ranks that ended before their traces.
    pub gone: Vec<u32>,
    /// Datagrams that were no messages.
    pub ignored: u64,
    /// Messages that could not be answered in time.
    pub stale: u64,
    /// Removed with this value.
    pub folders: Vec<Folder>,
}

impl Attached {
    /// The windows in the form of those that the hook records. Ranks that the environment
    /// does not number are numbered in their order.
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
