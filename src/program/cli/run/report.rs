//! Output about a job: the report, the remedy if nothing was recorded, and JSON.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::outcome::{End, lasting, words};
use crate::cli::error::CliError;
use crate::cli::hints;
use habitat_base::units::{Bytes, Micros, Usd};
use habitat_recorder::capture::assemble::Assembled;
use habitat_recorder::capture::recording::StepTimes;
use habitat_recorder::capture::{Finished, JobOptions, LostOutput, Process, Recording, RecordingStatus, Settings};
use habitat_reports::run::RunReport;
use habitat_reports::{format, summary};

/// One job of a set (`--batches`).
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Label such as `batch size 16 (1 of 3)`.
    pub(super) name: String,
    /// Start of the job.
    pub(super) began: Instant,
}

/// One line about a job of a set, and the notes of its profile.
pub(super) fn part(
    part: &Part,
    assembled: &Assembled,
    finished: &Finished,
    output: &Path,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let recorded = finished.recording.recorded();
    let mut words = Vec::new();
    if let Some(first) = recorded.first() {
        words.push(match first.windows.first().and_then(|window| window.cuda) {
            Some(cuda) => format!("recorded {:.1} s with {} kernels", cuda.seconds, cuda.kernels),
            None => format!("{} seen, recorded {}", steps(first), windows(&recorded)),
        });
    }
    words.extend(assembled.times.map(|times| format!("a step took {}", format::time(times.median))));
    let (words, took) = (words.join(", "), lasting(part.began.elapsed()));
    writeln!(out, "habitat-tui: {}: {words}; wrote {} after {took}", part.name, output.display())?;
    let notes = assembled.profile.recording.iter().flat_map(|recording| &recording.notes);
    for note in notes.map(|note| habitat_base::text::clean(note, 400)).chain(faults(&finished.recording)) {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}

/// Number of steps that a process reported.
fn steps(process: &Process) -> String {
    let steps = process.steps;
    let seen = if steps == 1 { "1 step".to_owned() } else { format!("{} steps", format::grouped(steps as f64)) };
    // The last steps are reported at the end, which a killed process does not reach.
    if process.exited { seen } else { format!("at least {seen}") }
}

/// First and last step of each window.
fn windows(recorded: &[&Process]) -> String {
    let windows = recorded.iter().flat_map(|process| &process.windows);
    windows.map(|window| format!("{}–{}", window.steps.0, window.steps.1)).collect::<Vec<_>>().join(", ")
}

/// The report on a recorded job.
pub(super) fn report(
    assembled: &Assembled,
    finished: &Finished,
    options: &JobOptions,
    output: &Path,
    run: &RunReport,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    summary::write_profile(&assembled.profile, &output.display().to_string(), out)?;
    let recording = &finished.recording;
    let end = format!("\njob {}; {}", words(finished, options), hints::lines(output, &assembled.profile));
    let recorded = recording.recorded();
    if let Some(cuda) = recorded.first().and_then(|process| process.windows.first()).and_then(|window| window.cuda) {
        writeln!(out, "  recorded {:.1} s with {} kernels", cuda.seconds, cuda.kernels)?;
        for fault in faults(recording) {
            writeln!(out, "  note: {fault}")?;
        }
        writeln!(out, "{end}")?;
        return Ok(());
    }
    let seen = recorded.first().map_or_else(|| "no steps".to_owned(), |process| steps(process));
    writeln!(out, "  {seen} seen, recorded {}", windows(&recorded))?;
    // Uses all steps: the profile may have been made long before the job's end.
    if let Some(times) = recorded.first().and_then(|process| process.step_times()) {
        writeln!(out, "  without the profiler {}", took(times))?;
    }
    let cost: f64 = recorded.iter().flat_map(|process| &process.costs).sum();
    let cost = Micros::new(cost).unwrap_or_default();
    writeln!(out, "  recording cost {}", format::time(cost))?;
    for (label, text) in run.lines() {
        writeln!(out, "  {label}: {text}")?;
    }
    let shortened = recorded.iter().filter_map(|process| process.shortened.as_deref());
    let work = recorded.first().and_then(|process| process.work.note());
    for note in shortened.map(|note| habitat_base::text::clean(note, 300)).chain(work).chain(faults(recording)) {
        writeln!(out, "  note: {note}")?;
    }
    writeln!(out, "{end}")?;
    Ok(())
}

/// The step time in words.
fn took(times: StepTimes) -> String {
    let [low, high] = times.range;
    let over = match times.count {
        1 => "1 step".to_owned(),
        count => format!("median of {} steps, {}", format::grouped(f64::from(count)), format::time_range(low, high)),
    };
    format!("a step took {} ({over})", format::time(times.median))
}

/// The measurements of a job that made steps but was not recorded.
pub(super) fn unrecorded(finished: &Finished, run: &RunReport, out: &mut dyn Write) -> Result<(), CliError> {
    let main = finished.recording.training().map(|(_, process)| process).max_by_key(|process| process.steps);
    let Some((process, times)) = main.and_then(|process| Some((process, process.step_times()?))) else {
        return Ok(());
    };
    writeln!(out, "  {} seen, {}", steps(process), took(times))?;
    for (label, text) in run.lines() {
        writeln!(out, "  {label}: {text}")?;
    }
    Ok(())
}

/// A note on output that is missing in the log.
pub(super) fn cut(cut: Option<&LostOutput>) -> Option<String> {
    let LostOutput { bytes, why } = cut?;
    let bytes = format::grouped(*bytes as f64);
    Some(format!("{bytes} bytes of the job's output are missing in the log: {why}; the job was not delayed"))
}

pub(super) fn faults(recording: &Recording) -> Vec<String> {
    let faults = recording.processes.values().flat_map(|process| &process.faults);
    let refused = recording.refused;
    let many = (refused > 0).then(|| format!("{refused} connections to the socket were refused: too many at once"));
    let unmeasured = recording.processes.values().filter_map(|process| process.no_waits.as_ref());
    faults
        .map(|fault| format!("the hook failed and stopped: {}", habitat_base::text::clean(fault, 200)))
        .chain(
            unmeasured.map(|why| format!("waiting for data is not measured: {}", habitat_base::text::clean(why, 200))),
        )
        .chain(recording.garbled.iter().map(|problem| format!("invalid message on the socket: {problem}")))
        .chain(many)
        .collect()
}

/// The hook's code for a window that the job's own profiler prevented; other reasons are sentences.
pub(super) const USERS_PROFILER: &str = "users_profiler";

/// The recorder of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorder {
    /// The hook in PyTorch's Python.
    Hook,
    /// The library for CUDA programs.
    Cupti,
}

impl Recorder {
    pub(super) fn new(options: &JobOptions) -> Self {
        if options.cupti.is_some() { Self::Cupti } else { Self::Hook }
    }
}

/// Why nothing was recorded, and the remedy if there is one.
pub(super) fn remedy(seen: &RecordingStatus, settings: &Settings, recorder: Recorder, end: End) -> String {
    match seen {
        RecordingStatus::Recorded => String::new(),
        RecordingStatus::NoPython if recorder == Recorder::Cupti && end.is_early() => {
            "nothing recorded: no process of the job started CUDA with the recorder in time".to_owned()
        }
        RecordingStatus::NoPython if recorder == Recorder::Cupti && end == End::NotYet => {
            "nothing recorded yet: no process of the job has started CUDA with the recorder. Is it a CUDA program, and \
             is there an NVIDIA driver? In a container or on another machine the recorder is not loaded: run habitat-tui there"
                .to_owned()
        }
        RecordingStatus::NoPython if recorder == Recorder::Cupti => {
            "nothing recorded: no process of the job started CUDA with the recorder. Is it a CUDA program, and is \
             there an NVIDIA driver? In a container or on another machine the recorder is not loaded: run habitat-tui there"
                .to_owned()
        }
        RecordingStatus::NoKernels(_) if end == End::Stopped => {
            "nothing recorded: the recording was not complete".to_owned()
        }
        RecordingStatus::NoKernels(reasons) if reasons.is_empty() => {
            "nothing recorded: the program ended before the window opened; try a smaller --after-seconds".to_owned()
        }
        RecordingStatus::NoKernels(reasons) => {
            let reasons: Vec<String> =
                reasons.iter().take(3).map(|reason| habitat_base::text::clean(reason, 400)).collect();
            format!("nothing recorded: {}", reasons.join("; "))
        }
        RecordingStatus::NoPython if end == End::Stopped => {
            "nothing recorded: no Python of the job loaded the hook in time".to_owned()
        }
        RecordingStatus::NoPython => {
            "nothing recorded: no Python of the job loaded the hook. Is it a Python program? `python -I`, -E and -S \
             disable the hook, and it does not reach containers or other machines: run habitat-tui there, or save a \
             trace with torch.profiler and use `habitat-tui import`"
                .to_owned()
        }
        RecordingStatus::NoTorch if end.is_early() => {
            "nothing recorded: the job's Python did not import torch.optim in time".to_owned()
        }
        RecordingStatus::NoTorch => {
            "nothing recorded: the job's Python never imported torch.optim. Is this the training script, \
             and the Python that PyTorch is installed in?"
                .to_owned()
        }
        RecordingStatus::TooOld(version) => format!(
            "nothing recorded: PyTorch {} is older than 2.1, which the hook needs; save a trace with torch.profiler \
             and use `habitat-tui import`",
            habitat_base::text::clean(version, 40)
        ),
        RecordingStatus::NoSteps if end.is_early() || end == End::Failed => {
            "nothing recorded: PyTorch was imported, but no torch optimizer made a step in time".to_owned()
        }
        RecordingStatus::NoSteps => {
            "nothing recorded: PyTorch was imported, but no torch optimizer made a step. Steps are counted \
             by calls of optimizer.step(), which torch.compile hides in PyTorch 2.1; without such calls, save a \
             trace with torch.profiler and use `habitat-tui import`"
                .to_owned()
        }
        RecordingStatus::TooFew { steps, in_window: true, .. } => {
            format!("nothing recorded: the job ended during the recording, at step {steps} or soon after")
        }
        RecordingStatus::TooFew { steps, is_all: false, .. } if end == End::Well => format!(
            "nothing recorded: the job sent no message after step {steps}, not even at its end. Did it close \
             files that it had not opened, or end by os._exit()?"
        ),
        RecordingStatus::TooFew { steps, .. } => too_few(*steps, settings, end),
        RecordingStatus::OtherRanks => {
            "nothing recorded: the first rank is not on this machine; use --all-ranks to record the others".to_owned()
        }
        RecordingStatus::Dropped(reasons) if reasons.iter().all(|reason| reason == USERS_PROFILER) => {
            "nothing recorded: the job runs its own profiler, which has priority. Import its trace with \
             `habitat-tui import`, or run without it"
                .to_owned()
        }
        RecordingStatus::Dropped(reasons) => {
            let reason = reasons.iter().find(|reason| *reason != USERS_PROFILER).map_or("", String::as_str);
            format!("nothing recorded: {}", habitat_base::text::clean(reason, 300))
        }
    }
}

/// The remedy if the folder for traces was removed while the job ran, so that nothing could be written or reported.
pub(super) fn gone(folder: &Path) -> String {
    format!(
        "nothing recorded: {}, the folder for traces, was removed while the job ran; set XDG_CACHE_HOME to a \
         folder that nothing cleans up",
        folder.display()
    )
}

/// Reports too few steps, with a window that a job of this length reaches.
fn too_few(steps: u64, settings: &Settings, end: End) -> String {
    let last = settings.after + u64::from(settings.window);
    let made = if steps == 1 { "1 step".to_owned() } else { format!("{steps} steps") };
    if steps >= last {
        return format!("nothing recorded, although the job made {made}");
    }
    let text = format!(
        "nothing recorded: the job made {made}, but recording needs {last} (--after {} and --window {})",
        settings.after, settings.window
    );
    if steps < 3 || matches!(end, End::Stopped | End::Failed) {
        return text;
    }
    let window = u64::from(settings.window).min(steps - 1).min(3);
    let after = (steps - window).min(settings.after).max(1);
    let longer = if end == End::Timeout { "a longer --timeout, or " } else { "" };
    format!("{text}; try {longer}--after {after} --window {window}")
}

/// Number of last steps whose times are listed.
pub(super) const RECENT: usize = 240;

/// Everything known of the job in the format `habitat-job`, version 1, which `compare` reads.
#[expect(clippy::too_many_arguments, reason = "all facts about a job")]
pub(super) fn json(
    options: &JobOptions,
    pid: u32,
    finished: &Finished,
    seen: &RecordingStatus,
    assembled: Option<&Assembled>,
    problem: Option<&str>,
    output: &Path,
    run: &RunReport,
) -> Value {
    let command: Vec<_> = options.command.iter().map(|word| word.to_string_lossy()).collect();
    let command = habitat_base::text::without_secrets(&command);
    let processes: Vec<Value> = finished
        .recording
        .processes
        .iter()
        .map(|(pid, process)| {
            let times = process.step_times();
            json!({
                "pid": pid,
                "cuda": process.has_cuda,
                "python": process.python,
                "torch": process.torch,
                "rank": process.rank,
                "steps": process.steps,
                "windows": process.windows.iter().map(|window| json!({
                    "first": window.steps.0, "last": window.steps.1, "trace_bytes": window.bytes,
                    "kernels": window.cuda.map(|cuda| cuda.kernels), "lost": window.cuda.map(|cuda| cuda.lost),
                    "seconds": window.cuda.map(|cuda| cuda.seconds),
                })).collect::<Vec<_>>(),
                "dropped": process.dropped,
                "faults": process.faults,
                "window_costs_us": process.costs,
                "later_work": process.work.later(),
                "timed_steps": times.map_or(0, |times| times.count),
                "step_time_us": times.map(|times| times.median.get()),
                "step_time_range_us": times.map(|times| times.range.map(Micros::get)),
                "mean_step_time_us": times.map(|times| times.mean.get()),
                "recent_step_times_us": process.times[process.times.len().saturating_sub(RECENT)..]
                    .iter()
                    .map(|timed| timed.time_us)
                    .collect::<Vec<_>>(),
                "waiting_for_data": process.waiting().map(|waiting| json!({
                    "share": waiting.share, "steps": waiting.steps, "workers": waiting.workers, "cores": waiting.cores,
                })),
            })
        })
        .collect();
    json!({
        "format": habitat_reports::outcome::JOB,
        "version": 1,
        "command": command,
        "exit_code": finished.ended.exit_code(),
        "pid": pid,
        "log": options.log.as_ref().map(|log| log.display().to_string()),
        "ended_by_habitat": finished.stop_reason.is_some(),
        "ended": words(finished, options),
        "seen": name(seen),
        "problem": problem,
        "profile": assembled.map(|_| output.display().to_string()),
        "operations": assembled.map(|assembled| assembled.profile.operations.len()),
        "steps_used": assembled.map(|assembled| assembled.summary.steps_used),
        "notes": assembled.and_then(|assembled| assembled.profile.recording.as_ref()).map(|recording| &recording.notes),
        "processes": processes,
        "not_understood": finished.recording.garbled,
        "elapsed_s": finished.lasted.as_secs_f64(),
        "usd_per_hour": run.price.as_ref().map(|price| price.per_hour.get()),
        "cost_usd": run.cost.map(Usd::get),
        "peak_memory_bytes": run.peak_memory.map(Bytes::get),
        "verdict": run.verdict.as_ref().ok(),
        "run": run.lines().iter().map(|(label, text)| json!([label, text])).collect::<Vec<_>>(),
        "log_lacks_bytes": finished.cut.as_ref().map(|cut| cut.bytes),
    })
}

fn name(seen: &RecordingStatus) -> &'static str {
    match seen {
        RecordingStatus::Recorded => "recorded",
        RecordingStatus::NoPython => "no python",
        RecordingStatus::NoTorch => "no torch",
        RecordingStatus::TooOld(_) => "torch too old",
        RecordingStatus::NoSteps => "no steps",
        RecordingStatus::TooFew { in_window: true, .. } => "ended in the window",
        RecordingStatus::TooFew { .. } => "too few steps",
        RecordingStatus::OtherRanks => "other ranks",
        RecordingStatus::Dropped(_) => "dropped",
        RecordingStatus::NoKernels(_) => "no kernels",
    }
}
