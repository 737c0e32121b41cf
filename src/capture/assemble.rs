//! Recorded windows and step times → [`Profile`].
//!
//! Operators, shapes and kernels are those of the windows; the step time is that of the
//! steps *outside* of them, because the profiler slows the host down. What the hook saw of
//! the model (its first input, autocast, the parameters of the optimizers) goes before
//! what the trace lets one guess, and what the user gave before both.

mod memory;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::messages::Model;
use super::recording::{Process, Recording, StepTimes};
use crate::profile::kineto::{self, Import, ImportOptions, KinetoError, Open, Summary};
use crate::profile::{Precision, Profile, Step};
use crate::units::{Bytes, Micros};

/// Why the recorded windows make no profile.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// Nothing was recorded.
    #[error("no window was recorded")]
    NoWindow,
    /// A trace cannot be read.
    #[error("{}: {source}", .path.display())]
    Trace {
        /// The trace.
        path: PathBuf,
        /// Why.
        source: KinetoError,
    },
}

/// A profile and what it was made of.
#[derive(Debug)]
pub struct Assembled {
    /// The profile.
    pub profile: Profile,
    /// Figures about the first trace's import, or the joined ones'.
    pub summary: Summary,
    /// Step times outside windows, where steps were seen there.
    pub times: Option<StepTimes>,
}

/// Makes a profile of what was recorded; `options` holds the workload's name, what the
/// user gave, and the catalog.
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
    let given = (options.batch_size, options.sequence_length, options.precision, options.parameter_count);
    if let Some(model) = &main.model {
        look(model, fetches(main, folder), &mut options, &mut notes);
    }
    options.parameter_count = given.3.or(main.parameters.filter(|count| *count > 0 && !is_sharded(main)));
    (options.batch_size, options.sequence_length, options.precision) =
        (given.0.or(options.batch_size), given.1.or(options.sequence_length), given.2.or(options.precision));
    let Import { mut profile, summary } = import(&traces, &options)?;
    let times = main.step_times();
    let window = main.windows.first().and_then(|window| window.cuda);
    if let Some(window) = window {
        notes.push(format!(
            "{} kernels of {:.1} s of a CUDA program, recorded with CUPTI; the step time is that of recorded steps",
            window.kernels, window.seconds
        ));
        if window.lost * 100 > window.kernels {
            notes.push(format!("{} records were lost: the kernels of a step may not be complete", window.lost));
        }
    } else if profile.origin.is_some() {
        step_time(&mut profile, times, &mut notes);
        if let (Some(peak), Some(step)) = (main.peak_memory_bytes, &mut profile.step)
            && step.peak_memory_bytes.is_none()
        {
            step.peak_memory_bytes = Bytes::new(peak as f64).ok();
        }
        memory::fill(&mut profile, main, &mut notes);
    } else if let Some(times) = times {
        notes.push(format!(
            "a step took {:.*} ms on this machine's CPU ({}); no prediction uses it",
            if times.median.as_millis() < 10.0 { 2 } else { 1 },
            times.median.as_millis(),
            if times.count == 1 {
                "1 step".to_owned()
            } else {
                format!("median of {} steps", crate::text::grouped(f64::from(times.count)))
            }
        ));
    }
    if profile.origin.is_none() {
        notes.extend(main.held.as_ref().map(memory::told));
    }
    if let (Some(origin), Some(torch)) = (&mut profile.origin, &main.torch) {
        // A trace names the framework and not its version.
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
    Ok(Assembled { profile, summary, times })
}

/// Imports the traces; those of a job without a GPU as shapes.
fn import(traces: &[PathBuf], options: &ImportOptions<'_>) -> Result<Import, AssembleError> {
    let all = |options: &ImportOptions<'_>| {
        let mut opens: Vec<_> = traces.iter().map(|trace| move || open(trace)).collect();
        let mut sources: Vec<&mut Open<'_>> = opens.iter_mut().map(|open| open as &mut Open<'_>).collect();
        kineto::import_ranks(&mut sources, options, &mut |_| ControlFlow::Continue(()))
    };
    let no_kernels = |error: &KinetoError| {
        let error = if let KinetoError::Rank { source, .. } = error { source } else { error };
        matches!(error, KinetoError::NoKernels { with_shapes: true, .. })
    };
    let result = match all(options) {
        Err(error) if no_kernels(&error) => all(&ImportOptions { shapes_only: true, ..options.clone() }),
        result => result,
    };
    result.map_err(|error| match error {
        KinetoError::Rank { rank, source } => {
            AssembleError::Trace { path: traces[rank.min(traces.len() - 1)].clone(), source: *source }
        }
        source => AssembleError::Trace { path: traces[0].clone(), source },
    })
}

fn open(trace: &Path) -> io::Result<Box<dyn Read>> {
    Ok(Box::new(BufReader::with_capacity(1 << 16, File::open(trace)?)))
}

/// The step time from outside the windows in place of that from inside.
///
/// A host that does not wait for the device runs ahead of it and then waits for long: the
/// median of the times between its optimizer calls is then too short, and only their mean
/// is the rate at which steps complete. The device's busy time, measured inside a window,
/// tells: a step cannot be shorter.
fn step_time(profile: &mut Profile, times: Option<StepTimes>, notes: &mut Vec<String>) {
    let Some(times) = times else {
        notes.push("no step outside the windows was timed: the step time is that of the recorded steps, which the profiler slows down".to_owned());
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
            "steps outside the windows seem shorter ({:.2} ms) than the device is busy in one ({:.2} ms): the step time is that of the recorded steps",
            times.mean.get() / 1e3,
            busy.get() / 1e3
        ));
        return;
    };
    step.duration = Some(duration);
    step.duration_range = Some(times.range);
    step.samples = Some(times.count);
    notes.push(format!("the step time is {how} of {} steps outside the recorded windows", times.count));
}

/// Fills in what the model's first input tells.
fn look(model: &Model, fetches: Option<u64>, options: &mut ImportOptions<'_>, notes: &mut Vec<String>) {
    let given = options.batch_size;
    options.precision = match model.autocast.as_deref() {
        Some("float16") => Some(Precision::AmpFp16),
        Some("bfloat16") => Some(Precision::AmpBf16),
        _ => None,
    };
    let (Some(shape), Some(dtype)) = (&model.shape, &model.dtype) else { return };
    let name = crate::text::clean(model.module.as_deref().unwrap_or("the model"), 60);
    let is_recurrent = matches!(name.as_str(), "LSTM" | "GRU" | "RNN");
    let (batch, length) = match (shape.as_slice(), dtype.starts_with("int")) {
        ([batch, length], true) => (*batch, Some(*length)),
        // A single extent may be one sample; recurrent layers may have time first.
        ([_], false) | ([], _) => return,
        _ if is_recurrent => return,
        ([batch, ..], _) => (*batch, None),
    };
    // Every batch of a DataLoader in the step, else every call of the model: micro-batches.
    let parts = fetches.unwrap_or(model.calls).max(1);
    let Some(samples) = batch.checked_mul(parts).filter(|samples| *samples > 0) else { return };
    options.batch_size = Some(samples);
    options.sequence_length = length;
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    let times = match (parts, fetches) {
        (1, _) => String::new(),
        (_, Some(_)) => format!(" × {parts} batches of the DataLoader a step"),
        (_, None) => format!(" × {parts} forward passes a step"),
    };
    let seen = format!("the first input of {name}, [{}]{times}", extents.join(", "));
    notes.push(match given {
        Some(given) if given == samples => return,
        Some(given) => format!("batch size {given} as given; from {seen} it would be {samples}"),
        None if parts == 1 => format!("batch size {samples} from {seen}"),
        None => format!("batch size {samples} from {seen} (--batch-size if that is wrong)"),
    });
}

/// Batches that the `DataLoader` gave for each step of the first window; `None` where it
/// gave none.
fn fetches(process: &Process, folder: &Path) -> Option<u64> {
    let window = process.windows.first()?;
    let steps = window.steps.1.saturating_sub(window.steps.0) + 1;
    let file = File::open(folder.join(&window.file)).ok()?;
    let found = occurrences(BufReader::new(file), b"\"enumerate(DataLoader)#").ok()?;
    let a_step = (found as f64 / steps as f64).round() as u64;
    (a_step > 0).then_some(a_step)
}

/// How often `pattern` is in `text`.
fn occurrences(mut text: impl Read, pattern: &[u8]) -> io::Result<u64> {
    let mut found = 0;
    let mut held: Vec<u8> = Vec::new();
    let mut buffer = [0; 1 << 13];
    loop {
        let read = text.read(&mut buffer)?;
        if read == 0 {
            return Ok(found);
        }
        held.extend_from_slice(&buffer[..read]);
        found +=
            held.windows(pattern.len()).filter(|window| window[0] == pattern[0] && *window == pattern).count() as u64;
        // What may be the beginning of another one.
        let tail = held.len().saturating_sub(pattern.len() - 1);
        held.drain(..tail);
    }
}

/// Whether the optimizers hold a part of the parameters only.
fn is_sharded(process: &Process) -> bool {
    let module = process.model.as_ref().and_then(|model| model.module.as_deref());
    module.is_some_and(|module| module.contains("FullySharded") || module.contains("DeepSpeed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(shape: &[u64], dtype: &str, calls: u64, fetches: Option<u64>) -> (Option<u64>, Option<u64>, Vec<String>) {
        let model = Model {
            step: 9,
            calls,
            module: Some("Net".into()),
            shape: Some(shape.to_vec()),
            dtype: Some(dtype.into()),
            autocast: Some("bfloat16".into()),
        };
        let (mut options, mut notes) = (ImportOptions::default(), Vec::new());
        look(&model, fetches, &mut options, &mut notes);
        assert_eq!(options.precision, Some(Precision::AmpBf16));
        (options.batch_size, options.sequence_length, notes)
    }

    #[test]
    fn the_first_input_tells_batch_and_sequence() {
        assert_eq!(seen(&[8, 3, 64, 64], "float32", 1, None).0, Some(8));
        let (batch, length, notes) = seen(&[4, 512], "int64", 1, Some(1));
        assert_eq!((batch, length), (Some(4), Some(512)));
        assert_eq!(notes, ["batch size 4 from the first input of Net, [4, 512]"]);
        assert_eq!(seen(&[7], "float32", 1, None).0, None);
        assert_eq!(seen(&[0, 3], "float32", 1, None).0, None);
    }

    #[test]
    fn what_was_given_stands_and_the_difference_is_told() {
        let model = Model {
            step: 9,
            calls: 3,
            module: Some("Discriminator".into()),
            shape: Some(vec![8, 3, 64, 64]),
            dtype: Some("float32".into()),
            autocast: None,
        };
        let notes = |given| {
            let (mut options, mut notes) =
                (ImportOptions { batch_size: Some(given), ..Default::default() }, Vec::new());
            look(&model, None, &mut options, &mut notes);
            notes
        };
        assert!(notes(24).is_empty());
        assert_eq!(
            notes(8),
            [
                "batch size 8 as given; from the first input of Discriminator, [8, 3, 64, 64] × 3 forward passes a step it would be 24"
            ]
        );
    }

    #[test]
    fn micro_batches_are_added_up() {
        let (batch, _, notes) = seen(&[8, 10], "float32", 4, None);
        assert_eq!(batch, Some(32));
        assert!(notes[0].contains("× 4 forward passes"), "{notes:?}");
        // A discriminator sees real and made samples: what was loaded counts.
        assert_eq!(seen(&[8, 10], "float32", 2, Some(1)).0, Some(8));
    }

    #[test]
    fn occurrences_are_found_across_pieces() {
        let mut text = vec![b' '; (1 << 16) - 3];
        text.extend_from_slice(b"needle and needle");
        assert_eq!(occurrences(&text[..], b"needle").unwrap(), 2);
        assert_eq!(occurrences(&text[..], b"pin").unwrap(), 0);
    }

    fn timed(median: f64, mean: f64, busy: f64) -> (Option<f64>, Vec<String>) {
        let mut profile = crate::profile::Profile::from_json(
            br#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"},
                "operations": [{"name": "aten::mm", "phase": "forward"}]}"#,
        )
        .unwrap()
        .0;
        let micros = |time| Micros::new(time).unwrap();
        profile.step = Some(Step { duration: Some(micros(99.0)), device_busy: Some(micros(busy)), ..Step::default() });
        let mut notes = Vec::new();
        let times =
            StepTimes { median: micros(median), mean: micros(mean), range: [micros(1.0), micros(500.0)], count: 30 };
        step_time(&mut profile, Some(times), &mut notes);
        (profile.measured_step().map(Micros::get), notes)
    }

    #[test]
    fn the_step_time_is_from_outside_the_windows() {
        assert_eq!(timed(80.0, 85.0, 70.0).0, Some(80.0));
        let (duration, notes) = timed(20.0, 80.0, 70.0);
        assert_eq!(duration, Some(80.0));
        assert!(notes[0].contains("runs ahead"), "{notes:?}");
        assert_eq!(timed(20.0, 30.0, 70.0).0, Some(99.0), "nothing outside can be right");
    }
}
