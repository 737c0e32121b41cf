//! Arguments of `run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::WorkloadArgs;
use habitat_base::units::UsdPerHour;
use habitat_planning::values;

/// Arguments of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The job: python train.py …
    ///
    /// All words after the program belong to the job. Flags of habitat-tui come before it, optionally separated by --.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Output profile (default: named by script and date, in the current folder).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite existing files.
    #[arg(long)]
    pub force: bool,
    /// Optimizer steps before the recording.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = values::within::<u64>(1, u64::MAX), help_heading = "Recording")]
    pub after: u64,
    /// Steps to record per window.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = values::within::<u32>(1, 1000), help_heading = "Recording")]
    pub window: u32,
    /// Number of windows, at least ten steps apart.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within::<u32>(1, 100), help_heading = "Recording")]
    pub windows: u32,
    /// Record again every N steps, for the screens.
    ///
    /// The screens then show the current step; off by default. The profile contains the last window.
    #[arg(long, value_name = "N", value_parser = values::within::<u64>(20, u64::MAX), conflicts_with_all = ["windows", "cupti", "batches", "stop_after_recording", "no_tui", "json", "quiet"], help_heading = "Recording")]
    pub every: Option<u64>,
    /// Record these optimizer steps (20..22; from 2 on), instead of --after and --window.
    #[arg(long, value_name = "A..B", value_parser = steps, conflicts_with_all = ["after", "window", "windows"], help_heading = "Recording")]
    pub steps: Option<(u64, u32)>,
    /// Also record memory allocations.
    #[arg(long, help_heading = "Recording")]
    pub memory: bool,
    /// Also record module calls, so that operations show their module.
    ///
    /// Slows the recorded steps further.
    #[arg(long, help_heading = "Recording")]
    pub stacks: bool,
    /// Record every rank of a distributed job on this machine instead of the first only.
    #[arg(long, help_heading = "Recording")]
    pub all_ranks: bool,
    /// Record the job at each of these batch sizes (16,32,64).
    ///
    /// Each size replaces {batch} in the command and runs briefly. No screens open: the jobs have the terminal, and a
    /// line shows the result of each. The size counts as samples per step.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = values::batch_size, help_heading = "Job")]
    pub batches: Vec<u64>,
    /// Record the kernels of any CUDA program (Linux).
    ///
    /// In a window of time and without operators, for programs other than PyTorch.
    #[arg(long, conflicts_with_all = ["after", "window", "windows", "every", "steps", "memory", "all_ranks"], help_heading = "CUDA programs")]
    pub cupti: bool,
    /// Seconds from the start of CUDA to the recording.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds, requires = "cupti", help_heading = "CUDA programs")]
    pub after_seconds: f64,
    /// Seconds to record.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = length, requires = "cupti", help_heading = "CUDA programs")]
    pub for_seconds: f64,
    /// Name of the NVTX ranges that are steps, ignoring trailing numbers (default: ranges named step, iteration or
    /// batch, else repetition).
    #[arg(long, value_name = "NAME", requires = "cupti", help_heading = "CUDA programs")]
    pub step_range: Option<String>,
    /// Stop the job once enough is recorded (20 steps outside the windows).
    #[arg(long, help_heading = "Job")]
    pub stop_after_recording: bool,
    /// Stop the job after this long in any case (30s, 10m, 2h).
    #[arg(long, value_name = "TIME", value_parser = values::wait, help_heading = "Job")]
    pub timeout: Option<Duration>,
    /// Total steps of the job: shows the time left.
    ///
    /// Also shows the time of the same run on other GPUs.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Job")]
    pub total_steps: Option<u64>,
    /// Price of this machine in US dollars per hour.
    ///
    /// Shows the cost of the job.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Job")]
    pub price: Option<UsdPerHour>,
    /// Start the job in the background and return at once.
    ///
    /// Prints the name of the job, under which `join`, `jobs` and `history` know it. It runs on and is recorded without
    /// a terminal.
    #[arg(long, conflicts_with_all = ["batches", "no_tui"], help_heading = "Job")]
    pub detach: bool,
    /// Keep this job: the process that `run` starts for it.
    #[arg(long, value_name = "DIR", hide = true)]
    pub keeper: Option<PathBuf>,
    /// The plan that the job follows (TOML): shows work, time and money left, and what will be missed.
    ///
    /// Takes the steps and the price from it, unless --total-steps and --price say otherwise. On the screens, n plans
    /// the rest anew. A deadline that was given as a date stays that date.
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["batches", "cupti"], help_heading = "Job")]
    pub plan: Option<PathBuf>,
    /// Write the job's standard output and error to this file (default with screens or --detach: next to the profile,
    /// *.log).
    #[arg(long, value_name = "FILE", help_heading = "Job")]
    pub log: Option<PathBuf>,
    /// Do not open the screens: the job keeps the terminal.
    ///
    /// Needed for a job that asks for input. `jobs`, `join` and `history` do not know such a job.
    #[arg(long, help_heading = "Job")]
    pub no_tui: bool,
    /// Facts about the workload for the profile.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Write all observations to this file as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Print what happens as lines of JSON instead of opening the screens.
    ///
    /// The job's output goes to a file, as with the screens. The job goes on if the reader stops; else the exit code is
    /// the job's.
    #[arg(long, conflicts_with_all = ["batches", "detach", "no_tui", "quiet"], help_heading = "Output")]
    pub json_lines: bool,
    /// Print only errors.
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 =
        text.trim().trim_end_matches('s').parse().map_err(|_| format!("{text:?} is not a valid number of seconds"))?;
    if (0.0..=86_400.0).contains(&value) { Ok(value) } else { Err(format!("{text}: expected 0 to 86400 seconds")) }
}

fn length(text: &str) -> Result<f64, String> {
    let value = seconds(text)?;
    if (0.01..=600.0).contains(&value) { Ok(value) } else { Err(format!("{text}: expected 0.01 to 600 seconds")) }
}

/// Parses `A..B`, both inclusive, as the number of steps before A and the number of steps from A to B.
fn steps(text: &str) -> Result<(u64, u32), String> {
    let problem = || format!("{text:?} is not a valid range of steps; expected 20..22 (from step 20 to step 22)");
    let (first, last) = text.split_once("..").ok_or_else(problem)?;
    let first: u64 = first.trim().parse().map_err(|_| problem())?;
    let last: u64 = last.trim().trim_start_matches('=').parse().map_err(|_| problem())?;
    if first < 2 {
        return Err("the first step cannot be recorded; start at step 2 or later, such as 2..4".to_owned());
    }
    let count = last.checked_sub(first).ok_or_else(problem)? + 1;
    if count > 1000 {
        return Err(format!("{count} steps are too many; use two or three, at most 1000"));
    }
    Ok((first - 1, u32::try_from(count).map_err(|_| problem())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_bounds() {
        assert_eq!((seconds("0"), length("2.5s")), (Ok(0.0), Ok(2.5)));
        for wrong in ["", "x", "-1", "nan", "inf", "1e9"] {
            assert!(seconds(wrong).is_err() && length(wrong).is_err(), "{wrong}");
        }
        assert!(length("0").is_err());
    }

    #[test]
    fn steps_are_counted_from_both_ends() {
        assert_eq!(steps("20..22"), Ok((19, 3)));
        assert_eq!(steps("2..=2"), Ok((1, 1)));
        for wrong in ["", "5", "1..3", "9..3", "a..b", "2..9999"] {
            assert!(steps(wrong).is_err(), "{wrong}");
        }
    }
}
