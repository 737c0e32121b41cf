//! A job to record: its request, its profile's path, and the work at its end.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::outcome;
use super::report::{self, Part};
use super::snapshot;
use super::surroundings::Surroundings;
use crate::cli::error::{At, CliError};
use crate::cli::gpu;
use crate::cli::input::{import_options, resolve};
use crate::cli::named::{job_name, unused_profile};
use crate::cli::options;
use crate::cli::output::check_writable;
use crate::settings::args::{InputArgs, RunArgs};
use crate::store::{self, Paths};
use crate::terminal;
use habitat_base::text;
use habitat_base::units::{GpuSlug, Hours};
use habitat_planning::deadline::{Deadline, deadline};
use habitat_planning::plan::Goal;
use habitat_planning::pricing::PriceBook;
use habitat_prediction::predict;
use habitat_recorder::capture::assemble::{self, Assembled};
use habitat_recorder::capture::{
    self, Finished, JobOptions, Private, Recording, RecordingStatus, Settings, StopReason,
};
use habitat_recorder::live::history::Digest;
use habitat_recorder::live::{Aim, Exchange, State};
use habitat_reports::plan_toml;
use habitat_reports::run::{RunReport, planned};
use habitat_step::catalog::Catalog;
use habitat_step::profile::DeviceInfo;
use habitat_traces::import::ImportOptions;

/// Final output and exit code.
pub(super) struct Conclusion {
    /// For standard error.
    pub(super) text: Vec<u8>,
    /// The exit code.
    pub(super) code: u8,
    /// Why nothing was recorded, and the remedy if there is one.
    pub(super) remedy: Option<String>,
    /// Time that a step of each recorded rank waits for the others, by process id.
    pub(super) exchanges: Vec<(u32, Exchange)>,
}

/// Writes the JSON report if requested, and keeps the traces if they did not result in a profile.
pub(super) fn conclude(
    session: &Session,
    options: &JobOptions,
    pid: u32,
    finished: &mut Finished,
    written: Option<Result<Assembled, CliError>>,
    history: &Digest,
) -> Conclusion {
    let args = &*session.args;
    let seen = finished.recording.status();
    let (assembled, problem, remedy) = match written {
        Some(Ok(assembled)) => (Some(assembled), None, None),
        Some(Err(error)) => (None, Some(error.to_string()), None),
        None => {
            let (recorder, end) = (report::Recorder::new(options), outcome::End::new(finished));
            let folder = finished.folder.path();
            let (command, recording, scan) = (&options.command, &finished.recording, &finished.scan);
            let remedy = if folder.is_dir() {
                Surroundings { command, recording, scan, recorder }
                    .reason(&seen, end)
                    .unwrap_or_else(|| report::remedy(&seen, &options.settings, recorder, end))
            } else {
                report::gone(folder)
            };
            (None, Some(format!("{}{remedy}", outcome::cause(finished, options))), Some(remedy))
        }
    };
    let mut text = Vec::new();
    let mut code = match &assembled {
        // Stopping after the recording, as requested, is success.
        Some(_) if finished.stop_reason == Some(StopReason::Recorded) => 0,
        _ => finished.ended.exit_code(),
    };
    let run = session.report(finished, assembled.as_ref(), history);
    // Writing to a Vec cannot fail.
    if let Some(path) = &args.json {
        let output = &session.output;
        let json = report::json(options, pid, finished, &seen, assembled.as_ref(), problem.as_deref(), output, &run);
        if let Err(error) = store::save_private(path, json.to_string().as_bytes(), args.force) {
            let _ = writeln!(text, "error: {error}");
            code = 2;
        }
    }
    if let Some(note) = report::cut(finished.cut.as_ref()) {
        let _ = writeln!(text, "habitat-tui: {note}");
    }
    if let Some(problem) = &problem {
        let _ = writeln!(text, "habitat-tui: {problem}");
        if seen == RecordingStatus::Recorded {
            finished.folder.keep();
            let folder = finished.folder.path().display();
            let _ = writeln!(text, "habitat-tui: kept the recorded traces in {folder}");
        }
    }
    if let Some(assembled) = &assembled
        && !args.quiet
    {
        let output = &session.output;
        let _ = match &session.part {
            Some(part) => report::part(part, assembled, finished, output, &mut text),
            None => report::report(assembled, finished, options, output, &run, &mut text),
        };
    }
    if assembled.is_none() && !args.quiet && session.part.is_none() {
        let _ = report::unrecorded(finished, &run, &mut text);
    }
    let exchanges = assembled.map(|assembled| assembled.exchanges).unwrap_or_default();
    Conclusion { text, code, remedy, exchanges }
}

pub(super) fn job_options(args: &RunArgs) -> Result<JobOptions, CliError> {
    let cupti = args.cupti.then(|| cupti(args)).transpose()?;
    let (after, window) = args.steps.unwrap_or((args.after, args.window));
    let mut settings = Settings::new(after, window);
    settings.windows = args.windows;
    settings.every = args.every;
    settings.memory = args.memory;
    settings.stacks = args.stacks;
    settings.all_ranks = args.all_ranks;
    Ok(JobOptions {
        command: args.command.clone(),
        settings,
        cupti,
        log: args.log.clone(),
        apart: false,
        stop_after: args.stop_after_recording,
        timeout: args.timeout,
    })
}

/// Settings of the recorder for CUDA programs.
fn cupti(args: &RunArgs) -> Result<capture::cupti::Settings, CliError> {
    let program = std::env::current_exe().unwrap_or_default();
    let library = capture::cupti::find(&program, |name| std::env::var_os(name), || Private::find(Paths::cache()))?;
    let first = args.command.first().map(|word| Path::new(word).file_name().unwrap_or_default().to_string_lossy());
    if !args.quiet && first.is_some_and(|name| name.starts_with("python") || name == "torchrun") {
        terminal::say("habitat-tui: --cupti records kernels without operators and shapes; omit it for PyTorch");
    }
    Ok(capture::cupti::Settings { library, after_seconds: args.after_seconds, for_seconds: args.for_seconds })
}

/// The aim and the goal of a plan's file. A deadline that was typed as a date does not move with the job's start; hours
/// count from the start of the machine.
fn planned(path: &Path) -> Result<(Aim, Goal), CliError> {
    let file = plan_toml::parse(&store::kind::read_toml(path, store::kind::PLAN)?).at(path.display())?;
    let mut aim = planned::aim(&file).map_err(|why| CliError::Refused(why.to_owned())).at(path.display())?;
    let words = text::shell_words(&file.plan.command);
    let mut words = words.iter().map(|(word, _)| word.trim_matches(['\'', '"']));
    let typed = words.find_map(|word| word.strip_prefix("--deadline").map(str::to_owned));
    let typed = typed
        .map(|rest| rest.strip_prefix('=').map_or_else(|| words.next().unwrap_or_default().to_owned(), str::to_owned));
    let is_date = typed.is_some_and(|typed| matches!(deadline(&typed), Ok(Deadline::By(_))));
    if let (Some(plan), true) = (&mut aim.plan, is_date) {
        let gone = Hours::known((store::now().duration_since(file.plan.created).as_secs_f64() / 3600.0).max(0.0));
        plan.deadline = file.goal.deadline.map(|deadline| deadline.checked_sub(gone).unwrap_or_default());
    }
    Ok((aim, file.goal))
}

/// One recording of one job, and where its profile goes.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) args: Arc<RunArgs>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) prices: Arc<PriceBook>,
    pub(super) name: String,
    pub(super) output: PathBuf,
    /// This job's part of a set (`--batches`).
    pub(super) part: Option<Part>,
    pub(super) origin: Option<GpuSlug>,
    /// Our private folder for files that the job uses.
    pub(super) private: Private,
    /// Facts about the job from flags and its plan.
    pub(super) aim: Aim,
    /// Goal of the plan that it follows.
    pub(super) goal: Option<Goal>,
}

impl Session {
    /// Checks everything that can be refused before the job starts.
    pub(super) fn new(args: Arc<RunArgs>, catalog: Arc<Catalog>) -> Result<Self, CliError> {
        let origin = gpu::maybe(&catalog, "--origin", args.workload.origin.as_ref())?;
        let job = job_name(&args.command);
        let output = args.output.clone().unwrap_or_else(|| unused_profile(&job));
        for path in [Some(&output), args.json.as_ref(), args.log.as_ref()].into_iter().flatten() {
            check_writable(path, args.force)?;
        }
        let name = args.workload.name.clone().unwrap_or(job);
        let private = Private::find(Paths::cache())?;
        let prices = Arc::new(store::prices(&Paths::find())?);
        let (planned, goal) = args.plan.as_deref().map(planned).transpose()?.unzip();
        let Aim { steps, plan, .. } = planned.unwrap_or_default();
        let aim = Aim { steps: args.total_steps.or(steps), price: args.price, plan };
        Ok(Self { args, catalog, prices, name, output, part: None, origin, private, aim, goal })
    }

    /// The measurements of the run, at its end.
    fn report(&self, finished: &Finished, assembled: Option<&Assembled>, history: &Digest) -> RunReport {
        let mut seen = snapshot::at_end(finished, State::Ended { words: String::new(), well: true });
        snapshot::with_exchanges(&mut seen, assembled.map_or(&[], |assembled| &assembled.exchanges));
        let profile = assembled.map(|assembled| &assembled.profile);
        // Predictions take a second, so they are made only if requested.
        let predictions = profile.filter(|_| self.aim.steps.is_some()).and_then(|profile| {
            let options = options::options(&InputArgs::default(), &[], &self.catalog, &Paths::find()).ok()?;
            predict(profile, &self.catalog, &options).ok()
        });
        RunReport::new(&self.aim, &seen, profile, (&self.catalog, &self.prices), predictions.as_ref(), history)
    }

    /// Makes a profile and writes it; `replace` allows overwriting a file.
    pub(super) fn write(&self, recording: &Recording, folder: &Path, replace: bool) -> Result<Assembled, CliError> {
        let find = |device: &DeviceInfo| resolve(device, &self.catalog);
        let given = &self.args.workload;
        let options = ImportOptions {
            step_range: self.args.step_range.clone(),
            ..import_options(given, self.name.clone(), self.origin.clone(), &find)
        };
        if self.args.every.is_none() {
            let assembled = assemble::profile(recording, folder, &options)?;
            store::save_atomically(&self.output, &assembled.profile.to_json()?, replace)?;
            return Ok(assembled);
        }
        let mut last = recording.clone();
        let mut earlier = Vec::new();
        for process in last.processes.values_mut() {
            let keep = process.windows.len().saturating_sub(1);
            earlier.extend(process.windows.drain(..keep).map(|window| folder.join(window.file)));
        }
        let assembled = assemble::profile(&last, folder, &options);
        // A job that runs for weeks would fill the disk with traces.
        for trace in earlier {
            let _ = std::fs::remove_file(trace);
        }
        let assembled = assembled?;
        store::save_atomically(&self.output, &assembled.profile.to_json()?, replace)?;
        Ok(assembled)
    }
}
