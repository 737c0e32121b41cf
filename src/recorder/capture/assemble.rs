//! Makes a [`Profile`] of recorded windows and step times.
//!
//! Operators, shapes and kernels come from the windows; the step time comes from the steps *outside* of them, because
//! the profiler slows the host. The hook's observations of the model (its first input, autocast, the parameters of the
//! optimizers) take precedence over guesses from the trace, and the user's options over both.

mod memory;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::folder;
use super::messages::{Batch, Input, Model};
use super::recording::{Process, Recording, StepTimes};
use habitat_base::units::{Bytes, Micros};
use habitat_step::profile::{CpuStep, Precision, Profile, Step};
use habitat_traces::import::{self, Exchange, Import, ImportOptions, LoaderBatch, ModelInput, Summary};
use habitat_traces::kineto::{Recorded, Spill};
use habitat_traces::{Fault, Format, StepMarks, TraceError};

/// Error if the recorded windows do not make a profile.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// There is no window.
    #[error("no window was recorded")]
    NoWindow,
    /// A trace cannot be read.
    #[error("{}: {source}", .path.display())]
    Trace {
        /// Path of the trace.
        path: PathBuf,
        /// Reason.
        source: Box<TraceError>,
    },
    /// The recorded steps are not steps of the training.
    #[error(
        "the recorded steps took at least {:.1} ms, but those around them {:.1} ms: they contain other work, such as a validation, or other programs delayed them; record other steps (--after), or more of them (--window)",
        .recorded.as_millis(), .outside.as_millis()
    )]
    Unlike {
        /// Time of a recorded step.
        recorded: Micros,
        /// Time of a step outside the windows.
        outside: Micros,
    },
}

/// A profile and its sources.
#[derive(Debug)]
pub struct Assembled {
    /// The profile.
    pub profile: Profile,
    /// Figures on the import of the first trace, or of the joined traces.
    pub summary: Summary,
    /// Step times outside windows, if any.
    pub times: Option<StepTimes>,
    /// Time that a step of each recorded rank waits for the others, by process id.
    pub exchanges: Vec<(u32, Exchange)>,
}

/// Makes a profile of a recording; `options` has the workload's name, the user's options and the catalog.
///
/// # Errors
/// [`AssembleError`] naming the trace.
pub fn profile(recording: &Recording, folder: &Path, options: &ImportOptions<'_>) -> Result<Assembled, AssembleError> {
    let processes = recording.recorded();
    let main = *processes.first().ok_or(AssembleError::NoWindow)?;
    let traces: Vec<PathBuf> =
        processes.iter().flat_map(|process| process.windows.iter()).map(|window| folder.join(&window.file)).collect();
    let mut notes = Vec::new();
    let mut options = options.clone();
    if let Some(model) = &main.model {
        options.model = model_input(model, main.work.recorded());
        options.tf32 = model.tf32;
        options.precision = options.precision.or(match model.autocast.as_deref() {
            Some("float16") => Some(Precision::AmpFp16),
            Some("bfloat16") => Some(Precision::AmpBf16),
            _ => None,
        });
    }
    options.parameter_count =
        options.parameter_count.or(main.parameters.filter(|count| *count > 0 && !is_sharded(main)));
    let Import { mut profile, summary } = import(&traces, &options)?;
    let times = main.step_times();
    if let Err(error) = check(&summary, times) {
        if profile.origin.is_some() {
            return Err(error);
        }
        // No prediction uses times of a CPU, and other programs delay it.
        notes.push(error.to_string());
    }
    if main.optimizers >= SHORT_LIVED {
        notes.push(format!(
            "the steps are of short-lived optimizers: {} in succession, as in the inner loop of \
             meta-learning. Steps of other optimizers were not counted",
            main.optimizers
        ));
    }
    timed(&mut profile, main, &mut notes);
    if profile.origin.is_none() {
        notes.extend(main.held.as_ref().map(memory::words));
    }
    waits_for_data(&mut profile, main, &mut notes);
    if let (Some(origin), Some(torch)) = (&mut profile.origin, &main.torch) {
        // A trace has the framework's name but not its version.
        if origin.framework.as_deref().is_none_or(|framework| framework == "pytorch") {
            origin.framework = Some(format!("pytorch {torch}"));
        }
    }
    if let Some(recording) = &mut profile.recording {
        recording.source = match recording.source.strip_prefix("kineto trace") {
            Some(rest) => format!("capture of a running job{rest}"),
            None => "capture of a running job".to_owned(),
        };
        recording.ranks = u32::try_from(processes.len()).ok().filter(|ranks| *ranks > 1);
        if main.windows.len() > 1 && processes.len() == 1 && !recording.notes.is_empty() {
            recording.notes[0] = format!(
                "{} windows: the operations of the one with the median step, with medians over the windows",
                main.windows.len()
            );
        }
        recording.notes.extend(notes);
    }
    let recorded = processes.iter().flat_map(|process| process.windows.iter().map(|_| process.pid));
    let exchanges = recorded.zip(&summary.exchanges).filter_map(|(pid, exchange)| Some((pid, (*exchange)?))).collect();
    Ok(Assembled { profile, summary, times, exchanges })
}

/// Sets the time of the step to that of the steps outside of the profiler, or says how the recorded one was timed.
fn timed(profile: &mut Profile, main: &Process, notes: &mut Vec<String>) {
    let times = main.step_times();
    let window = main.windows.first().and_then(|window| window.cuda);
    if let Some(window) = window {
        notes.push(format!(
            "{} kernels in {:.1} s of a CUDA program, recorded with CUPTI; the step time is from the recorded steps",
            window.kernels, window.seconds
        ));
        if window.lost * 100 > window.kernels {
            notes.push(format!("{} records were lost: the kernels of a step may be incomplete", window.lost));
        }
    } else if profile.origin.is_some() {
        step_time(profile, times, notes);
        if let (Some(peak), Some(step)) = (main.peak_memory_bytes, &mut profile.step)
            && step.peak_memory_bytes.is_none()
        {
            step.peak_memory_bytes = Bytes::new(peak as f64).ok();
        }
        memory::fill(profile, main, notes);
    } else if let Some(times) = times {
        if let Some(cpu) = profile.step.as_mut().and_then(|step| step.cpu.as_mut()) {
            let (duration, duration_range) = (times.median, Some(times.range));
            *cpu = CpuStep { duration, duration_range, samples: times.count, profiled: false };
        }
        notes.push(format!(
            "a step took {:.*} ms on this machine's CPU, without the profiler ({}); no prediction uses it",
            if times.median.as_millis() < 10.0 { 2 } else { 1 },
            times.median.as_millis(),
            if times.count == 1 {
                "1 step".to_owned()
            } else {
                format!("median of {} steps", habitat_base::text::grouped(f64::from(times.count)))
            }
        ));
    }
}

/// Adds what the last steps without the profiler waited for data, and the period of the loader's workers.
fn waits_for_data(profile: &mut Profile, main: &Process, notes: &mut Vec<String>) {
    if profile.origin.is_none()
        && let Some((wait, steps)) = main.data_wait()
        && let Some(step) = &mut profile.step
        && step.data_wait.is_some()
    {
        step.data_wait = Some(wait);
        notes.push(format!(
            "a step waits {:.2} ms for data: mean of {} steps without the profiler",
            wait.as_millis(),
            habitat_base::text::grouped(steps as f64)
        ));
    }
    if let Some(workers) = main.workers {
        let step = profile.step.get_or_insert_with(Step::default);
        (step.loader_workers, step.cpus) = (Some(workers), main.cores);
    }
    if let Some(period) = main.loader_period() {
        profile.step.get_or_insert_with(Step::default).loader_period = Some(period);
        notes.push(format!(
            "the DataLoader's workers supply the data of a step every {:.2} ms, measured during the training; shorter steps wait for them",
            period.as_millis()
        ));
    }
}

/// Imports the traces; those of a job without a GPU as shapes only.
fn import(traces: &[PathBuf], options: &ImportOptions<'_>) -> Result<Import, AssembleError> {
    let all = |options: &ImportOptions<'_>| import::kineto_ranks(traces.iter().map(|trace| read(trace)), options);
    let no_kernels = |error: &TraceError| matches!(error.fault, Fault::NoKernels { with_shapes: true, .. });
    let result = match all(options) {
        Err(error) if no_kernels(&error) => all(&ImportOptions { shapes_only: true, ..options.clone() }),
        result => result,
    };
    result.map_err(|source| {
        let rank = source.rank.unwrap_or(0).min(traces.len() - 1);
        AssembleError::Trace { path: traces[rank].clone(), source: Box::new(source) }
    })
}

fn read(trace: &Path) -> Result<Recorded, TraceError> {
    let spill = Spill { memory: PACKED, open: || Ok(Box::new(tempfile::tempfile()?)) };
    let failed = |source| TraceError { format: Format::Kineto, rank: None, fault: Fault::Io { events: 0, source } };
    Recorded::read(folder::open(trace).map_err(failed)?, Some(spill), &mut |_| ControlFlow::Continue(()))
}

/// Bytes of packed events to keep in memory.
const PACKED: usize = 48 << 20;

/// Replaces the step time from inside the windows by that from outside.
///
/// A host that does not wait for the device runs ahead of it and then waits for long. The median time between its
/// optimizer calls is then too short, and only the mean is the rate at which steps complete. The device's busy time,
/// measured inside a window, decides: a step cannot be shorter.
fn step_time(profile: &mut Profile, times: Option<StepTimes>, notes: &mut Vec<String>) {
    let Some(times) = times else {
        notes.push("no steps outside the windows were timed: the step time is from the recorded steps, which the profiler slows down".to_owned());
        return;
    };
    let step = profile.step.get_or_insert_with(Step::default);
    let busy = step.device_busy.unwrap_or(Micros::ZERO);
    let fits = |time: Micros| time.get() >= 0.98 * busy.get();
    let (duration, how) = if fits(times.median) {
        (times.median, "the median")
    } else if fits(times.mean) {
        (times.mean, "the mean (the host runs ahead of the device, so the median is too short)")
    } else {
        notes.push(format!(
            "steps outside the windows appear shorter ({:.2} ms) than the GPU's busy time ({:.2} ms): the step time is from the recorded steps",
            times.mean.get() / 1e3,
            busy.get() / 1e3
        ));
        return;
    };
    step.duration = Some(duration);
    let [low, high] = times.range;
    let shortest = Micros::min(busy, duration);
    let is_whole = low.get() >= shortest.get();
    step.duration_range = Some([if is_whole { low } else { shortest }, high]);
    step.samples = Some(times.count);
    step.profiled = false;
    notes.push(format!("the step time is {how} of {} steps outside the recorded windows", times.count));
    if !is_whole {
        notes.push(format!(
            "the shortest of them ({:.2} ms) is below the GPU's busy time: the host ran ahead of the GPU, and the range begins at {:.2} ms",
            low.as_millis(),
            shortest.as_millis()
        ));
    }
}

/// Number of optimizers that replace each other before the window closes, from which they count as short-lived. A
/// training with one per phase has fewer.
const SHORT_LIVED: u32 = 3;

/// Maximum time of a recorded step as a multiple of other steps: the profiler slows the host, and short steps the most.
const LONGEST: f64 = 10.0;

/// Rejects windows whose steps are not steps of the training.
fn check(summary: &Summary, times: Option<StepTimes>) -> Result<(), AssembleError> {
    let Some(times) = times.filter(|_| summary.marks == StepMarks::ProfilerStep) else { return Ok(()) };
    let (recorded, outside) = (summary.host_step, times.median);
    if outside.get() > 0.0 && recorded.get() > (LONGEST * outside.get()).max(LEAST) {
        return Err(AssembleError::Unlike { recorded, outside });
    }
    Ok(())
}

/// Time in microseconds below which a recorded step is never too long.
const LEAST: f64 = 50_000.0;

/// The hook's observations of the model, if any.
fn model_input(model: &Model, recorded_work: Option<f64>) -> Option<ModelInput> {
    let input = |input: &Input| {
        let is_whole = input.dtype.starts_with("int") || input.dtype.starts_with("uint");
        (input.shape.clone(), is_whole)
    };
    Some(ModelInput {
        module: model.module.clone()?,
        calls: model.calls,
        inputs: model.inputs.iter().map(input).collect(),
        leads: model.leads.clone(),
        lists: model.lists,
        opaque: model.opaque.clone(),
        sequence_first: model.sequence_first,
        again: model.again,
        batches: model.batches.iter().map(loader_batch).collect(),
        recorded_work,
    })
}

fn loader_batch(batch: &Batch) -> LoaderBatch {
    LoaderBatch { loader: batch.loader, size: batch.size, rows: batch.rows }
}

/// Whether the optimizers hold only a part of the parameters.
fn is_sharded(process: &Process) -> bool {
    let module = process.model.as_ref().and_then(|model| model.module.as_deref());
    module.is_some_and(|module| module.contains("FullySharded") || module.contains("DeepSpeed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::recording::Timed;

    #[test]
    fn steps_that_are_none_of_the_trainings_are_refused() {
        let micros = |time| Micros::new(time).unwrap();
        let trace = br#"{"traceEvents": [
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 1, "dur": 90000},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 2, "dur": 5,
             "args": {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}}]}"#;
        let options = ImportOptions { shapes_only: true, ..ImportOptions::default() };
        let recorded = Recorded::read(&trace[..], None, &mut |_| ControlFlow::Continue(())).unwrap();
        let summary = import::kineto(recorded, &options).unwrap().summary;
        let outside = |median: f64| {
            let median = micros(median);
            check(&summary, Some(StepTimes { median, mean: median, range: [median; 2], count: 30 }))
        };
        assert!(outside(15_000.0).is_ok() && check(&summary, None).is_ok());
        let error = outside(3_000.0).unwrap_err().to_string();
        assert!(error.contains("took at least 90.0 ms, but those around them 3.0 ms"), "{error}");
    }

    #[test]
    fn the_wait_for_data_is_that_of_steps_without_the_profiler() {
        let json = br#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"},
            "step": {"data_wait_us": 1070}, "operations": [{"name": "aten::mm", "phase": "forward"}]}"#;
        let mut profile = Profile::from_json(json).unwrap().0;
        let times = |wait_us| Timed { step: 20, time_us: 4000.0, wait_us, idle_us: None };
        let main = Process { times: vec![times(Some(360.0)), times(None), times(Some(360.0))], ..Process::default() };
        let mut notes = Vec::new();
        waits_for_data(&mut profile, &main, &mut notes);
        assert_eq!(profile.step.unwrap().data_wait, Micros::new(360.0).ok());
        assert_eq!(notes, ["a step waits 0.36 ms for data: mean of 2 steps without the profiler"]);
    }

    fn timed(median: f64, mean: f64, busy: f64) -> (Step, Vec<String>) {
        let mut profile = habitat_step::profile::Profile::from_json(
            br#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"},
                "operations": [{"name": "aten::mm", "phase": "forward"}]}"#,
        )
        .unwrap()
        .0;
        let micros = |time| Micros::new(time).unwrap();
        profile.step = Some(Step {
            duration: Some(micros(99.0)),
            device_busy: Some(micros(busy)),
            profiled: true,
            ..Step::default()
        });
        let mut notes = Vec::new();
        let times =
            StepTimes { median: micros(median), mean: micros(mean), range: [micros(1.0), micros(500.0)], count: 30 };
        step_time(&mut profile, Some(times), &mut notes);
        let step = profile.step.unwrap();
        assert_eq!(step.profiled, step.samples.is_none(), "the profiler's steps are inside the windows");
        (step, notes)
    }

    #[test]
    fn the_step_time_is_from_outside_the_windows() {
        let lasts = |of: &Step| of.duration.map(Micros::get);
        assert_eq!(lasts(&timed(80.0, 85.0, 70.0).0), Some(80.0));
        let (step, notes) = timed(20.0, 80.0, 70.0);
        assert_eq!(lasts(&step), Some(80.0));
        assert!(notes[0].contains("runs ahead"), "{notes:?}");
        assert_eq!(lasts(&timed(20.0, 30.0, 70.0).0), Some(99.0), "nothing outside can be right");
    }

    #[test]
    fn no_step_is_shorter_than_the_work_of_its_device() {
        let range = |busy: f64| {
            let (step, notes) = timed(80.0, 85.0, busy);
            let is_noted = notes.iter().any(|note| note.starts_with("the shortest of them"));
            (step.duration_range.unwrap().map(Micros::get), is_noted)
        };
        // The shortest time between two calls was 1 µs.
        assert_eq!(range(70.0), ([70.0, 500.0], true));
        assert_eq!(range(0.5), ([1.0, 500.0], false));
        // The busy time may be a little above the step.
        assert_eq!(range(81.0), ([80.0, 500.0], true));
    }
}
