//! Actual run to compare with a plan: a small JSON file (`habitat-run`, version 1), the output of `run --json`
//! (`habitat-job`, version 1), or a recorded step of the run.

use serde::Deserialize;

use habitat_base::text::clean;
use habitat_base::units::{GpuSlug, Hours, Micros, Samples, Usd};
use habitat_prediction::communicates;
use habitat_step::profile::Profile;

/// Known facts of a run.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// `habitat-run` in a file.
    #[serde(default)]
    pub format: String,
    /// Version of the format, 1.
    #[serde(default)]
    pub version: u32,
    /// Elapsed hours, including set-up and losses.
    #[serde(default)]
    pub hours: Option<Hours>,
    /// Amount paid.
    #[serde(default)]
    pub cost_usd: Option<Usd>,
    /// Samples processed.
    #[serde(default)]
    pub samples: Option<Samples>,
    /// Steps of the job, instead of samples.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Time of one step on all GPUs.
    #[serde(default)]
    pub step_time_us: Option<Micros>,
    /// The GPU that the step was measured on.
    #[serde(default)]
    pub gpu: Option<GpuSlug>,
    /// Samples of one step on one GPU.
    #[serde(default)]
    pub batch_size: Option<u64>,
    /// Hours of set-up, repeated work and waiting after losses.
    #[serde(default)]
    pub lost_hours: Option<Hours>,
    /// The part of these hours before the first step.
    #[serde(default)]
    pub setup_hours: Option<Hours>,
    /// Number of spot machines lost.
    #[serde(default)]
    pub losses: Option<u32>,
    /// Whether the step was recorded without communication with other GPUs.
    #[serde(skip)]
    pub alone: bool,
    /// Step times of a job that was followed to its end.
    #[serde(skip)]
    pub followed: Option<Followed>,
}

/// Step times of a job that `run` followed.
#[derive(Debug, Clone, PartialEq)]
pub struct Followed {
    /// Steps.
    pub steps: u64,
    /// Median time from one step to the next, in microseconds.
    pub median_us: f64,
    /// Mean time from one step to the next, in microseconds.
    pub mean_us: f64,
    /// Share of that time that the last steps waited for data.
    pub waited: f64,
    /// Pauses for recording, in microseconds.
    pub recording_us: f64,
}

/// Error in a file of a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunFileError {
    /// Not JSON, or an unknown or invalid field.
    #[error(
        "{0}; expected a recorded step of the run, the output of `run --json`, or JSON such as {{\"format\": \"habitat-run\", \"version\": 1, \"hours\": 25.1, \"cost_usd\": 31.5, \"steps\": 450000}}"
    )]
    Field(String),
    /// Another format or version.
    #[error(
        "format and version: found {0:?} and {1}, this habitat-tui reads \"habitat-run\" or \"habitat-job\", and 1"
    )]
    Form(String, u32),
    /// A number that must be positive.
    #[error("{0}: must be above 0")]
    Zero(&'static str),
    /// A job without any observed step.
    #[error(
        "no step of the job was seen{0}, so its work is unknown; describe the run in JSON such as {{\"format\": \"habitat-run\", \"version\": 1, \"hours\": 25.1, \"steps\": 450000}}"
    )]
    NoSteps(String),
}

/// Format of the output of `run --json`.
pub const JOB: &str = "habitat-job";

/// Fields of that output which are used.
#[derive(Deserialize)]
struct Job {
    format: String,
    version: u32,
    elapsed_s: f64,
    #[serde(default)]
    cost_usd: Option<Usd>,
    #[serde(default)]
    problem: Option<String>,
    processes: Vec<Process>,
}

#[derive(Deserialize)]
struct Process {
    steps: u64,
    #[serde(default)]
    step_time_us: Option<f64>,
    #[serde(default)]
    mean_step_time_us: Option<f64>,
    #[serde(default)]
    window_costs_us: Vec<f64>,
    #[serde(default)]
    waiting_for_data: Option<DataWait>,
}

#[derive(Deserialize)]
struct DataWait {
    share: f64,
}

impl Process {
    /// `None` if no step was timed, or a figure is out of range.
    fn followed(&self) -> Option<Followed> {
        let waited = self.waiting_for_data.as_ref().map_or(0.0, |wait| wait.share).clamp(0.0, 1.0);
        let is_time = |time: &f64| time.is_finite() && *time > 0.0;
        Some(Followed {
            steps: self.steps,
            median_us: self.step_time_us.filter(is_time)?,
            mean_us: self.mean_step_time_us.filter(is_time)?,
            waited,
            recording_us: self.window_costs_us.iter().copied().filter(is_time).sum(),
        })
    }
}

impl Job {
    fn run(self) -> Result<Run, RunFileError> {
        let hours = Hours::new(self.elapsed_s / 3600.0);
        let hours = hours.map_err(|error| RunFileError::Field(format!("elapsed_s: {error}")))?;
        // All ranks take part in every step.
        let main = self.processes.iter().max_by_key(|process| process.steps).filter(|process| process.steps > 0);
        let (steps, followed) = (main.map(|process| process.steps), main.and_then(Process::followed));
        if steps.is_none() {
            let why = self.problem.map_or_else(String::new, |why| format!(" ({})", clean(&why, 200)));
            return Err(RunFileError::NoSteps(why));
        }
        let (format, version) = (self.format, self.version);
        Ok(Run { format, version, hours: Some(hours), cost_usd: self.cost_usd, steps, followed, ..Run::default() })
    }
}

impl Run {
    /// Parses one of the JSON formats.
    ///
    /// # Errors
    /// [`RunFileError`] with the field and its position.
    pub fn parse(text: &str) -> Result<Self, RunFileError> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            format: String,
        }
        let field = |error: serde_json::Error| RunFileError::Field(error.to_string());
        let is_job = serde_json::from_str::<Head>(text).is_ok_and(|head| head.format == JOB);
        let run: Self = if is_job {
            serde_json::from_str::<Job>(text).map_err(field)?.run()?
        } else {
            serde_json::from_str(text).map_err(field)?
        };
        if !["habitat-run", JOB].contains(&&*run.format) || run.version != 1 {
            return Err(RunFileError::Form(habitat_base::text::clean(&run.format, 40), run.version));
        }
        let zero = |value: Option<f64>| value.is_some_and(|value| value <= 0.0);
        for (name, value) in [
            ("hours", run.hours.map(Hours::get)),
            ("samples", run.samples.map(Samples::get)),
            ("steps", run.steps.map(|steps| steps as f64)),
            ("step_time_us", run.step_time_us.map(Micros::get)),
        ] {
            if zero(value) {
                return Err(RunFileError::Zero(name));
            }
        }
        Ok(run)
    }

    /// Takes the step from a recording of the run.
    pub fn of_profile(profile: &Profile) -> Self {
        Self {
            step_time_us: profile.measured_step(),
            gpu: profile.origin.as_ref().and_then(|origin| origin.gpu.clone()),
            batch_size: profile.workload.batch_size,
            alone: !communicates(profile),
            ..Self::default()
        }
    }

    /// Fills in missing facts from `other`.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        // Take a step with its GPU and batch size from the same source.
        let step = if self.step_time_us.is_some() { &self } else { other };
        let (step_time_us, gpu, batch_size, alone) = (step.step_time_us, step.gpu.clone(), step.batch_size, step.alone);
        Self {
            format: self.format,
            version: self.version,
            hours: self.hours.or(other.hours),
            cost_usd: self.cost_usd.or(other.cost_usd),
            samples: self.samples.or(other.samples),
            steps: self.steps.or(other.steps),
            step_time_us,
            gpu,
            batch_size,
            lost_hours: self.lost_hours.or(other.lost_hours),
            setup_hours: self.setup_hours.or(other.setup_hours),
            losses: self.losses.or(other.losses),
            alone,
            followed: self.followed.or_else(|| other.followed.clone()),
        }
    }
}
