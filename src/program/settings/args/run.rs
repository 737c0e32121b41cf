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
    /// All words after the program are the job's; flags of habitat-tui come before it, with -- between
    /// them if you like.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// The profile to write (default: the script's name and the date, in this folder).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace files that are there.
    #[arg(long)]
    pub force: bool,
    /// Steps of the optimizer to make before recording.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = values::within::<u64>(1, u64::MAX), help_heading = "Recording")]
    pub after: u64,
    /// Steps to record in a window.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = values::within::<u32>(1, 1000), help_heading = "Recording")]
    pub window: u32,
    /// Windows to record, ten steps or more apart.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::within::<u32>(1, 100), help_heading = "Recording")]
    pub windows: u32,
    /// Record again every N steps, for the screens.
    ///
    /// They show the step as it is now; off by default. The profile is that of the last window.
    #[arg(long, value_name = "N", value_parser = values::within::<u64>(20, u64::MAX), conflicts_with_all = ["windows", "cupti", "batches", "stop_after_recording", "no_tui", "json", "quiet"], help_heading = "Recording")]
    pub every: Option<u64>,
    /// Record these steps of the optimizer (20..22; the first is 2 or later), in place of
    /// --after and --window.
    #[arg(long, value_name = "A..B", value_parser = steps, conflicts_with_all = ["after", "window", "windows"], help_heading = "Recording")]
    pub steps: Option<(u64, u32)>,
    /// Record allocations of memory too.
    #[arg(long, help_heading = "Recording")]
    pub memory: bool,
    /// Record calls of modules too, so that operations name theirs.
    ///
    /// This slows the recorded steps down further.
    #[arg(long, help_heading = "Recording")]
    pub stacks: bool,
    /// Record every rank of a distributed job on this machine, not the first only.
    #[arg(long, help_heading = "Recording")]
    pub all_ranks: bool,
    /// Record the job at each of these batch sizes (16,32,64).
    ///
    /// Each replaces {batch} in the command, and runs briefly. No screens open: the jobs have the
    /// terminal, and a line shows how each went. The number counts as the samples of a step.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = values::batch_size, help_heading = "Job")]
    pub batches: Vec<u64>,
    /// Record the kernels of any CUDA program (Linux).
    ///
    /// By time and without operators, for programs that are not PyTorch.
    #[arg(long, conflicts_with_all = ["after", "window", "windows", "every", "steps", "memory", "all_ranks"], help_heading = "CUDA programs")]
    pub cupti: bool,
    /// Seconds from the start of CUDA to the recording.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds, requires = "cupti", help_heading = "CUDA programs")]
    pub after_seconds: f64,
    /// Seconds to record.
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = length, requires = "cupti", help_heading = "CUDA programs")]
    pub for_seconds: f64,
    /// NVTX ranges of this name are the steps (numbers at its end aside), in place of ranges
    /// named step, iteration or batch, and of what repeats.
    #[arg(long, value_name = "NAME", requires = "cupti", help_heading = "CUDA programs")]
    pub step_range: Option<String>,
    /// End the job once enough is recorded (20 steps beside the windows).
    #[arg(long, help_heading = "Job")]
    pub stop_after_recording: bool,
    /// End the job after this long in any case (30s, 10m, 2h).
    #[arg(long, value_name = "TIME", value_parser = values::wait, help_heading = "Job")]
    pub timeout: Option<Duration>,
    /// Steps of the whole job: shows the time left.
    ///
    /// Also what the same run takes on other GPUs.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Job")]
    pub total_steps: Option<u64>,
    /// The price of an hour of this machine in US dollars.
    ///
    /// Shows what the job costs.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Job")]
    pub price: Option<UsdPerHour>,
    /// Write the job's standard output and error to this file (default with screens: beside
    /// the profile, *.log).
    #[arg(long, value_name = "FILE", help_heading = "Job")]
    pub log: Option<PathBuf>,
    /// Open no screens: the job keeps the terminal.
    ///
    /// A job that asks questions needs this.
    #[arg(long, help_heading = "Job")]
    pub no_tui: bool,
    /// What the profile says of the workload.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Write what was seen to this file as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Say nothing but errors.
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

/// `A..B`, both included: the steps before A, and the steps from A to B.
fn steps(text: &str) -> Result<(u64, u32), String> {
    let problem = || format!("{text:?} is not a valid range of steps; write 20..22 (from step 20 to step 22)");
    let (first, last) = text.split_once("..").ok_or_else(problem)?;
    let first: u64 = first.trim().parse().map_err(|_| problem())?;
    let last: u64 = last.trim().trim_start_matches('=').parse().map_err(|_| problem())?;
    if first < 2 {
        return Err("the first step is not counted; record from step 2 on, as 2..4".to_owned());
    }
    let count = last.checked_sub(first).ok_or_else(problem)? + 1;
    if count > 1000 {
        return Err(format!("{count} steps are too many; two or three make a profile, 1000 are the most"));
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
