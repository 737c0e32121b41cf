//! A polling process, and the state of its request.

use std::time::{Duration, Instant};

/// A polling process.
#[derive(Debug, Clone)]
pub struct Client {
    /// Ids of the process, its parent and so on, in its own namespace.
    pub lineage: Vec<i32>,
    /// Device number, if the process reported one.
    pub gpu: Option<i32>,
    /// Job of the batch system; 0 without one.
    pub job: i64,
    /// First contact.
    pub since: Instant,
    /// Last poll.
    pub last: Instant,
    /// Interval between its last two polls.
    pub interval: Option<Duration>,
    /// Number of polls so far.
    pub polls: u32,
    /// Whether it reported at its last poll that it cannot take a request.
    pub is_busy: bool,
    /// Whether it was ever busy before any request, that is, has a profiler of its own.
    pub was_busy_unasked: bool,
    /// Number of requests sent to it, in all rounds.
    pub asked: u32,
    /// Number of traces of the current round that were started and cut off.
    pub cut_off: u32,
    /// State of the current round's request.
    pub state: State,
}

/// State of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is no request.
    Idle,
    /// The request was sent.
    Asked {
        /// Time of the request.
        at: Instant,
        /// Number of polls since.
        polls: u32,
        /// Whether it was busy since.
        was_busy: bool,
    },
    /// Its trace was started.
    Began {
        /// Time of the request.
        asked: Instant,
        /// Number of consecutive latest polls at which it could take a request.
        free: u32,
    },
    /// Its own profiler took precedence, and another request is not safe.
    Yielded,
    /// Every trace that it may start was cut off.
    GivenUp,
    /// Its trace is complete.
    Written {
        /// Time of the request.
        asked: Instant,
    },
}

impl Client {
    /// A process first heard `at`, with the id `own` in its namespace.
    pub(super) fn new(own: i32, at: Instant) -> Self {
        Self {
            lineage: vec![own],
            gpu: None,
            job: 0,
            since: at,
            last: at,
            interval: None,
            polls: 0,
            is_busy: false,
            was_busy_unasked: false,
            asked: 0,
            cut_off: 0,
            state: State::Idle,
        }
    }

    /// Handles a poll.
    pub(super) fn poll(&mut self, is_busy: bool, is_stale: bool, job: i64, lineage: Vec<i32>, at: Instant) {
        if self.polls > 0 {
            self.interval = Some(at.duration_since(self.last)).filter(|interval| *interval > Duration::from_millis(1));
        }
        self.polls += 1;
        (self.last, self.job, self.lineage, self.is_busy) = (at, job, lineage, is_busy);
        match &mut self.state {
            State::Asked { polls, was_busy, .. } => {
                *polls += 1;
                *was_busy |= is_busy;
            }
            // A late poll may date from a time at which the trace was still incomplete.
            State::Began { free, .. } => *free = if is_busy || is_stale { 0 } else { *free + 1 },
            State::Idle if self.asked == 0 => self.was_busy_unasked |= is_busy,
            _ => {}
        }
    }
}
