//! A process that polls, and what came of the request to it.

use std::time::{Duration, Instant};

/// A process that polls.
#[derive(Debug, Clone)]
pub struct Client {
    /// Itself, its parent, and so on, as it counts.
    pub lineage: Vec<i32>,
    /// Device number, where it told one.
    pub gpu: Option<i32>,
    /// Job of the batch system, 0 without one.
    pub job: i64,
    /// First heard.
    pub since: Instant,
    /// Last poll.
    pub last: Instant,
    /// Time between its last two polls.
    pub interval: Option<Duration>,
    /// Polls so far.
    pub polls: u32,
    /// Whether its last poll said that it could not take a request.
    pub is_busy: bool,
    /// Whether it was ever so before anything was asked of it: a profiler of its own.
    pub was_busy_unasked: bool,
    /// Times the request was given to it, in all rounds.
    pub asked: u32,
    /// Traces of the present round that were begun and cut off.
    pub cut_off: u32,
    /// What came of the present round's request.
    pub state: State,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing was asked.
    Idle,
    /// Given, so many polls ago.
    Asked {
        /// When.
        at: Instant,
        /// Polls since.
        polls: u32,
        /// Whether it was busy since.
        was_busy: bool,
    },
    /// Its trace has been begun.
    Began {
        /// When it was asked.
        asked: Instant,
        /// Polls in a row since, the last ones, at which it could take a request.
        free: u32,
    },
    /// A profiler of its own came first, and it is not safe to ask it again.
    Yielded,
    /// Every trace that it may begin was cut off.
    GivenUp,
    /// Its trace is complete.
    Written {
        /// When it was asked.
        asked: Instant,
    },
}

impl Client {
    /// One first heard `at`, which counts itself as process `own`.
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

    /// Takes in that it polled.
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
            // A poll that has waited tells of a time at which the trace may have been incomplete still.
            State::Began { free, .. } => *free = if is_busy || is_stale { 0 } else { *free + 1 },
            State::Idle if self.asked == 0 => self.was_busy_unasked |= is_busy,
            _ => {}
        }
    }
}
