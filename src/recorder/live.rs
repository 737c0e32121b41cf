//! A job that runs while the screens are open: reports from the thread that follows it to the one that draws it, and
//! requests in the other direction. Plain data, so that neither side depends on the other.

pub mod history;
mod tail;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

pub use tail::Tail;

use serde::{Deserialize, Serialize};

use habitat_base::units::{Bytes, GpuSlug, Hours, Megahertz, Micros, Range, Usd, UsdPerHour, Watts};
use habitat_step::profile::Profile;
pub use habitat_traces::import::Exchange;

/// Constant properties of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Name under which `join` finds it.
    #[serde(default)]
    pub id: String,
    /// Command on one line.
    pub command: String,
    /// Process id, which leads its process group.
    pub pid: u32,
    /// Name of the workload.
    pub name: String,
    /// Log file of its output.
    pub log: String,
    /// Profile to write.
    pub output: String,
    /// The windows to record.
    pub wanted: RecordingWindows,
    /// The user's goal for the job.
    pub aim: Aim,
}

/// The user's goal for a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Aim {
    /// Total number of steps.
    pub steps: Option<u64>,
    /// Hourly price of its machine, as given with the job.
    pub price: Option<UsdPerHour>,
    /// The plan that it follows.
    #[serde(default)]
    pub plan: Option<PlanFigures>,
}

/// A plan's figures of a job from the start of its program, without the set-up of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanFigures {
    /// GPU of the first part.
    #[serde(default)]
    pub gpu: Option<GpuSlug>,
    /// Hourly price of its machines.
    #[serde(default)]
    pub price: Option<UsdPerHour>,
    /// Elapsed hours.
    pub hours: Range<Hours>,
    /// Cost.
    pub cost: Range<Usd>,
    /// Time of one step on all GPUs.
    pub step: Range<Micros>,
    /// Latest finish; `None` = no limit.
    pub deadline: Option<Hours>,
    /// Most dollars; `None` = no limit.
    pub budget: Option<Usd>,
}

/// Windows to record of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordingWindows {
    /// Steps of PyTorch's optimizers.
    Steps {
        /// Number of windows.
        windows: u32,
        /// Steps before the first window opens.
        after: u64,
        /// Steps per window.
        window: u32,
        /// Steps from the start of one window to that of the next, if windows repeat without end.
        every: Option<u64>,
    },
    /// Kernels of a CUDA program, in a time window; steps are not visible while it runs.
    Kernels {
        /// Time from the start of CUDA to the window.
        after: Duration,
        /// Length of the window.
        length: Duration,
    },
}

/// Signals that ask a job to end, mildest first. Each gets its time before the next one is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopSignal {
    /// SIGINT, as from Ctrl-C: Python raises `KeyboardInterrupt`, and programs that save a last checkpoint do so.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL, which cannot be ignored.
    Kill,
}

impl StopSignal {
    /// Name of the signal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }

    /// Time for the job to end after this signal.
    pub const fn grace(self) -> Duration {
        match self {
            // Time to save a checkpoint.
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

/// State of the job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum State {
    /// No messages yet: no Python, or no start of CUDA if kernels are recorded.
    #[default]
    Started,
    /// Python runs; PyTorch is not imported.
    Python,
    /// PyTorch is imported; no optimizer has made a step.
    Torch,
    /// The job makes steps; no window is due.
    Steps,
    /// A window is open: its first and last step.
    Recording(u64, u64),
    /// CUDA was started; the time window opens after this many seconds.
    Cuda(u64),
    /// A time window is open for this many more seconds.
    Kernels(u64),
    /// A window is closed and its trace is being written.
    Writing,
    /// It runs, and its time window has passed.
    Running,
    /// It was asked to end; the last signal sent.
    Stopping(StopSignal),
    /// Stopped by a signal.
    Stopped,
    /// It ended.
    Ended {
        /// Description: `ended with exit code 0`, `stopped by you (SIGINT)`.
        words: String,
        /// Whether it ended without an error.
        well: bool,
    },
    /// It continues, but the process that recorded it was killed.
    Left,
}

/// Whether a job runs, from its processes and from what was written of its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It runs and is recorded.
    Runs,
    /// It runs, but the process that recorded it was killed.
    Unwatched,
    /// It has ended, and its report is there.
    Ended,
    /// It has ended after the process that recorded it, or with it.
    Lost,
    /// The machine was restarted while it ran.
    Rebooted,
    /// It runs, or was killed, on this other machine.
    Elsewhere(String),
}

/// Times of steps outside windows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Last step.
    pub now: Micros,
    /// Median.
    pub median: Micros,
    /// Mean.
    pub mean: Micros,
    /// Mean step time, with the means of the fastest and the slowest tenth of consecutive steps; with few steps, the
    /// shortest and the longest instead.
    pub pace: Range<Micros>,
    /// Shortest and longest.
    pub range: [Micros; 2],
    /// Number of steps.
    pub count: u32,
    /// Whether earlier steps were dropped.
    pub only_last: bool,
}

/// Time that the last steps waited for data: the time in PyTorch's `DataLoader` for a batch or for the start of an
/// epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Share of the time of those steps, 0 to 1.
    pub share: f64,
    /// Number of steps.
    pub steps: u32,
    /// Worker processes of the loader (`num_workers`), if reported.
    pub workers: Option<u32>,
    /// Processors that the training process and its workers share, if known.
    pub cores: Option<u32>,
}

/// Split of the time of the last steps of a training on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Mean step time.
    pub step: Micros,
    /// Waiting for a `DataLoader`.
    pub input: Micros,
    /// Up to the backward pass ([`history::Parts::forward`]).
    pub forward: Micros,
    /// Backward passes.
    pub backward: Micros,
    /// From the last backward pass to the end of the optimizer's step.
    pub optimizer: Micros,
}

impl Split {
    /// Time outside the parts: loading without a `DataLoader`, logging, pauses.
    pub fn rest(&self) -> Micros {
        let parts = self.input + self.forward + self.backward + self.optimizer;
        self.step.checked_sub(parts).unwrap_or_default()
    }
}

/// Contents of a time window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Kernels {
    /// Kernels of all processes whose windows make the profile.
    pub count: u64,
    /// Number of lost records.
    pub lost: u64,
    /// Length of the window.
    pub length: Micros,
}

/// State of a GPU, as `nvidia-smi` reports it; `None` for unreported values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Board {
    /// GPU number.
    pub index: u32,
    /// Share of the last moments in which a kernel ran, 0 to 1.
    pub busy: Option<f64>,
    /// Memory in use by all programs.
    pub used: Option<Bytes>,
    /// Total memory.
    pub memory: Option<Bytes>,
    /// SM clock.
    pub clock: Option<Megahertz>,
    /// Highest SM clock seen under load.
    pub best_clock: Option<Megahertz>,
    /// Power draw.
    pub power: Option<Watts>,
    /// Temperature in °C.
    pub celsius: Option<f64>,
    /// Throttle reasons.
    pub limited_by: Vec<String>,
}

/// A process of the job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Rank, if there are several.
    pub rank: Option<u32>,
    /// Python version.
    pub python: Option<String>,
    /// PyTorch version, once imported.
    pub torch: Option<String>,
    /// Steps made.
    pub steps: u64,
    /// Median of its last step times outside windows.
    pub median: Option<Micros>,
    /// Time that its last steps waited for data.
    pub waiting: Option<Waiting>,
    /// Time that its steps waited for other ranks.
    pub exchange: Option<Exchange>,
    /// Whether it is one of several ranks of the profile's training.
    pub is_rank: bool,
}

/// State of the job at one moment. It contains no guesses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Stage.
    pub state: State,
    /// Processes that run Python, training ones first, by rank. If kernels are recorded, processes that started CUDA.
    pub processes: Vec<Process>,
    /// Steps of the process that made most.
    pub steps: u64,
    /// Whether it may have made more of them: it was killed before it could report the last ones, or whoever counted
    /// them was.
    pub steps_at_least: bool,
    /// Number of separate trainings if there are several, and the process that the profile is of.
    pub trainings: Option<(usize, u32)>,
    /// Step times of that process.
    pub times: Option<Times>,
    /// Time since its start, in whole seconds.
    pub elapsed: Duration,
    /// Whether that is only the time until the process that recorded it was killed.
    pub elapsed_at_least: bool,
    /// GPUs of the machine, if `nvidia-smi` reports them.
    pub boards: Vec<Board>,
    /// Latest step times, in order.
    pub recent: Vec<Micros>,
    /// Time that they waited for data; `None` if no `DataLoader` was used or it is not measured.
    pub waiting: Option<Waiting>,
    /// Split of the time of the last steps, if it is measured and the training is on a CPU.
    pub split: Option<Split>,
    /// First and last step of the recorded windows of that process.
    pub windows: Vec<(u64, u64)>,
    /// Recorded time window, if kernels are recorded.
    pub kernels: Option<Kernels>,
    /// Pauses of the training for opening and closing windows.
    pub cost: Micros,
    /// Dropped windows and errors, as text.
    pub notes: Vec<String>,
    /// Seconds since the last message of the training, if that is long ago.
    pub silent: Option<u64>,
    /// Remedy if nothing was recorded, once that is certain.
    pub remedy: Option<String>,
}

impl Snapshot {
    /// Whether the job has ended or is no longer followed.
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Ended { .. } | State::Left)
    }

    /// Hours since its start.
    pub fn hours(&self) -> Hours {
        Hours::known(self.elapsed.as_secs_f64() / 3600.0)
    }
}

/// A report on the job.
#[derive(Debug, Clone)]
pub enum Update {
    /// New state.
    Snapshot(Box<Snapshot>),
    /// Last lines of its output.
    Output(Arc<Vec<String>>),
    /// New history.
    History(Box<history::Digest>),
    /// A profile of the recording so far was written.
    Recorded(Box<Profile>),
    /// The recording does not make a profile, or it cannot be written.
    NotWritten(String),
}

/// A user request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRequest {
    /// End the job ([`StopSignal`]); repeated, send the next stronger signal at once.
    Stop,
}

/// Connection to the thread that follows the job.
pub struct Session {
    /// The job.
    pub job: Job,
    /// Reports on it.
    pub updates: Receiver<Update>,
    /// Accepts requests; never blocks.
    pub control: Arc<dyn Fn(JobRequest) + Send + Sync>,
    /// Reports the outcome on standard error, or that the job keeps running, and returns the exit code.
    pub finish: Box<dyn FnOnce() -> u8 + Send>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("job", &self.job).finish_non_exhaustive()
    }
}
