//! A job that runs while the screens are open: what the side that follows it tells the
//! side that draws it, and what that one wishes of it. Plain data, so that neither need
//! know the other.

mod tail;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

pub use tail::Tail;

use habitat_base::units::{Bytes, Megahertz, Micros, Range, UsdPerHour, Watts};
use habitat_step::profile::Profile;
pub use habitat_traces::import::Exchange;

/// What does not change while the job runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What was started, in one line.
    pub command: String,
    /// Its process, which leads its process group.
    pub pid: u32,
    /// The workload's name.
    pub name: String,
    /// The file of its output.
    pub log: String,
    /// The profile to be written.
    pub output: String,
    /// What is to be recorded.
    pub wanted: Wanted,
    /// What was said of it beforehand.
    pub aim: Aim,
}

/// What was said of a job beforehand.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Aim {
    /// Steps that it is to make in all.
    pub steps: Option<u64>,
    /// An hour of the machine that it runs on.
    pub price: Option<UsdPerHour>,
}

/// What is to be recorded of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Steps of PyTorch's optimizers.
    Steps {
        /// Windows.
        windows: u32,
        /// Steps made before the first window opens.
        after: u64,
        /// Steps of a window.
        window: u32,
        /// Steps from the beginning of a window to that of the next, where windows go on and on.
        every: Option<u64>,
    },
    /// Kernels of a CUDA program, for a time: no steps are seen while it runs.
    Kernels {
        /// From the start of CUDA to the window.
        after: Duration,
        /// The window.
        length: Duration,
    },
}

/// The signals that ask a job to end, the mildest first. Each is given its time before the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT, as Ctrl-C sends it: Python raises `KeyboardInterrupt`, and what saves a last
    /// checkpoint then does.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL, which no program survives.
    Kill,
}

impl StopSignal {
    /// The signal's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }

    /// How long the job may take to end of it.
    pub const fn grace(self) -> Duration {
        match self {
            // Time to save a checkpoint in.
            Self::Interrupt => Duration::from_secs(30),
            Self::Terminate | Self::Kill => Duration::from_secs(15),
        }
    }

    /// The signal after this one.
    pub const fn stronger(self) -> Option<Self> {
        match self {
            Self::Interrupt => Some(Self::Terminate),
            Self::Terminate => Some(Self::Kill),
            Self::Kill => None,
        }
    }
}

/// How far the job is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// Nothing of it was heard of: no Python, or no start of CUDA where kernels are wanted.
    #[default]
    Started,
    /// Python runs, PyTorch is not imported.
    Python,
    /// PyTorch is imported, no optimizer made a step.
    Torch,
    /// Steps are made, and no window is due.
    Steps,
    /// A window is open: its first and last step.
    Recording(u64, u64),
    /// CUDA was started; so many seconds later its window of time opens.
    Cuda(u64),
    /// A window of time is open, for so many seconds more.
    Kernels(u64),
    /// A window is closed and its trace is being written.
    Writing,
    /// It runs, and its window of time is past.
    Running,
    /// It was asked to end, last by this signal.
    Stopping(StopSignal),
    /// It does not run: a signal stopped it.
    Stopped,
    /// It ended, as told by these words.
    Ended {
        /// `ended with exit code 0`, `stopped by you (SIGINT)`.
        words: String,
        /// Whether that is an end without fault.
        well: bool,
    },
    /// It goes on, and is not followed any more.
    Left,
}

/// Times of steps outside windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// The last one.
    pub now: Micros,
    /// The middle one.
    pub median: Micros,
    /// The mean.
    pub mean: Micros,
    /// The mean, and those of the fastest and the slowest tenth of the steps, each of steps that
    /// followed one another; with few steps, the shortest and the longest.
    pub pace: Range<Micros>,
    /// The shortest and the longest.
    pub range: [Micros; 2],
    /// How many.
    pub count: u32,
    /// Whether there were others before them.
    pub only_last: bool,
}

/// What the last steps waited for data: the time in PyTorch's `DataLoader`, for a batch or until an epoch
/// has begun.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    /// Share of the time of those steps, 0 to 1.
    pub share: f64,
    /// How many steps.
    pub steps: u32,
    /// Worker processes of the loader (`num_workers`), where they are told.
    pub workers: Option<u32>,
    /// Processors that the training process and its workers share, if known.
    pub cores: Option<u32>,
}

/// What a window of time holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernels {
    /// Kernels of all processes whose windows make the profile.
    pub count: u64,
    /// Records that could not be kept.
    pub lost: u64,
    /// The time that it was open.
    pub length: Micros,
}

/// A GPU at one moment, as `nvidia-smi` tells; `None` is what it does not tell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Board {
    /// Its number.
    pub index: u32,
    /// Share of the last moments in which a kernel ran, 0 to 1.
    pub busy: Option<f64>,
    /// Memory in use, of all programs.
    pub used: Option<Bytes>,
    /// All of its memory.
    pub memory: Option<Bytes>,
    /// Clock of the multiprocessors.
    pub clock: Option<Megahertz>,
    /// The highest that was seen under load.
    pub best_clock: Option<Megahertz>,
    /// Power.
    pub power: Option<Watts>,
    /// Temperature in °C.
    pub celsius: Option<f64>,
    /// What holds the clock down, in words.
    pub limited_by: Vec<&'static str>,
}

/// One process of the job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its rank, where there are several.
    pub rank: Option<u32>,
    /// Version of Python.
    pub python: Option<String>,
    /// Version of PyTorch, once imported.
    pub torch: Option<String>,
    /// Steps that it made.
    pub steps: u64,
    /// The middle one of its last step times outside windows.
    pub median: Option<Micros>,
    /// What its last steps waited for data.
    pub waiting: Option<Waiting>,
    /// What its steps waited for other ranks.
    pub exchange: Option<Exchange>,
    /// Whether it is one of several ranks of the training that the profile is of.
    pub is_rank: bool,
}

/// What is known of the job at one moment. Nothing in it is guessed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// How far it is.
    pub state: State,
    /// Its processes that run Python: those that train first, by rank. Where kernels are
    /// wanted, those that started CUDA.
    pub processes: Vec<Process>,
    /// Steps made, of the process that made most.
    pub steps: u64,
    /// Number of separate trainings if there are several, and the process that the profile is of.
    pub trainings: Option<(usize, u32)>,
    /// Step times of that process.
    pub times: Option<Times>,
    /// Since its start, in whole seconds.
    pub elapsed: Duration,
    /// The GPUs of the machine, where `nvidia-smi` tells of them.
    pub boards: Vec<Board>,
    /// The last of them, in their order.
    pub recent: Vec<Micros>,
    /// What they waited for data; `None` where no `DataLoader` was asked, or it is not measured.
    pub waiting: Option<Waiting>,
    /// First and last step of the recorded windows of that process.
    pub windows: Vec<(u64, u64)>,
    /// The recorded window of time, where kernels are wanted.
    pub kernels: Option<Kernels>,
    /// What opening and closing windows held it up for.
    pub cost: Micros,
    /// Windows that were dropped, and faults; in words.
    pub notes: Vec<String>,
    /// Seconds since the training was last heard of, where that is long.
    pub silent: Option<u64>,
    /// What to do where nothing was recorded, once that is certain.
    pub remedy: Option<String>,
}

impl Snapshot {
    /// Whether the job has ended, or is followed no more.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Ended { .. } | State::Left)
    }
}

/// News of the job.
#[derive(Debug, Clone)]
pub enum Update {
    /// It is further.
    Snapshot(Box<Snapshot>),
    /// The last lines of its output.
    Output(Arc<Vec<String>>),
    /// A profile was made of what is recorded so far, and written.
    Recorded(Box<Profile>),
    /// What was recorded makes no profile, or it cannot be written.
    NotWritten(String),
}

/// What is wished of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// That it end ([`StopSignal`]); again, that it be asked more strongly at once.
    Stop,
    /// That it go on by itself.
    Leave,
}

/// The line to the side that follows the job.
pub struct Session {
    /// The job.
    pub job: Job,
    /// Its news.
    pub updates: Receiver<Update>,
    /// Takes wishes; never waits.
    pub control: Arc<dyn Fn(Wish) + Send + Sync>,
    /// Leaves the job where it still runs, waits until all is written, says on standard
    /// error what came of it, and gives the exit code.
    pub finish: Box<dyn FnOnce() -> u8 + Send>,
    /// Whether all is written.
    pub is_done: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("job", &self.job).finish_non_exhaustive()
    }
}
