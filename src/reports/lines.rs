//! A job as lines of JSON, one as each thing happens (`--json-lines`).

use schemars::JsonSchema;
use serde::Serialize;

use super::kept::JobRow;
use super::verdict::Verdict;
use habitat_recorder::live::{Snapshot, Standing};

/// A line. More kinds may follow: ignore unknown ones.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobLine {
    /// A job: the first line about it.
    Job {
        /// Always `habitat-job-lines`.
        format: &'static str,
        /// Version of the format.
        version: u32,
        /// The job.
        #[serde(flatten)]
        job: JobRow,
    },
    /// Its state at one moment.
    State(Box<JobState>),
    /// A profile of what is recorded so far was written.
    Recorded {
        /// The file.
        profile: String,
    },
    /// A file could not be written.
    Problem {
        /// Reason.
        text: String,
    },
    /// The last line about a job.
    End {
        /// Exit code of the job; null if unknown.
        code: Option<u8>,
        /// The end in words.
        state: String,
        /// The report on the job.
        report: String,
    },
}

/// A job at one moment.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct JobState {
    /// Seconds since its start.
    pub elapsed_s: f64,
    /// The state in words.
    pub state: String,
    /// Steps made.
    pub steps: u64,
    /// Last step, in microseconds.
    pub last_step_us: Option<f64>,
    /// Median of the last steps, in microseconds.
    pub step_us: Option<f64>,
    /// Share of the time of the last steps that they waited for data.
    pub data_wait_share: Option<f64>,
    /// First and last step of each recorded window.
    pub windows: Vec<(u64, u64)>,
    /// Seconds without a message of the training, if these are many.
    pub silent_s: Option<u64>,
    /// Bottleneck; null as long as it is unknown.
    pub verdict: Option<Verdict>,
}

impl JobLine {
    /// The first line about a job.
    pub const fn job(job: JobRow) -> Self {
        Self::Job { format: "habitat-job-lines", version: 1, job }
    }

    /// The state of a job.
    pub fn state(standing: &Standing, seen: &Snapshot, verdict: Option<Verdict>) -> Self {
        Self::State(Box::new(JobState {
            elapsed_s: seen.elapsed.as_secs_f64(),
            state: super::kept::words(standing, seen),
            steps: seen.steps,
            last_step_us: seen.times.map(|times| times.now.get()),
            step_us: seen.times.map(|times| times.median.get()),
            data_wait_share: seen.waiting.map(|waiting| waiting.share),
            windows: seen.windows.clone(),
            silent_s: seen.silent,
            verdict,
        }))
    }
}
