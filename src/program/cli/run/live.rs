//! `run` with screens, or in the background: the job runs detached from the terminal, its output goes to a file, and a
//! process of ours keeps it and writes its state for the screens.

mod maker;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use self::maker::Maker;
use super::keeper::{self, Keeping};
use super::outcome::{self, End};
use super::report::{self, Recorder};
use super::session::{Conclusion, Session, conclude, job_options};
use super::snapshot::{self, CudaTimes};
use super::{follow, join, log};
use crate::cli::error::CliError;
use crate::cli::input::Loaded;
use crate::cli::screens::{Outcome, Screens};
use crate::settings::args::ScreensArgs;
use crate::store::history::{HistoryWriter, read_history};
use crate::store::jobs::{JobFolder, KeptJob};
use crate::{store, terminal};
use habitat_planning::plan::Goal;
use habitat_recorder::capture::history::Gather;
use habitat_recorder::capture::messages::Message;
use habitat_recorder::capture::smi::Boards;
use habitat_recorder::capture::{
    self, Control, Identity, JobOptions, Progress, RecordingStatus, Running, Settings, Watch,
};
use habitat_recorder::live::{self, Aim, JobRequest, RecordingWindows, Snapshot, State, Update};
use habitat_step::catalog::Catalog;
use habitat_step::profile::{self, Profile, Workload};

/// Time between two looks at the job.
const PACE: Duration = Duration::from_millis(250);
/// Silence before we warn.
const LONG: Duration = Duration::from_secs(10);
/// Silence after which there is probably no Python.
const NO_PYTHON: Duration = Duration::from_secs(20);
/// The same for CUDA, which programs may start only after they have read their data.
const NO_CUDA: Duration = Duration::from_secs(60);

/// Starts the job and opens the screens on it.
pub(super) fn run(session: &Session, screens: ScreensArgs) -> Result<Outcome, CliError> {
    // Do everything that can fail before the job starts.
    let output = habitat_base::text::clean(&session.output.display().to_string(), 300);
    let work = (session.aim.clone(), session.goal.clone());
    let mut screens = on_job(screens, session.catalog.as_ref().clone(), &session.name, output, work)?;
    let folder = match keeper::start(session)? {
        Ok((folder, _)) => folder,
        Err(code) => return Ok(Outcome::Exit(code)),
    };
    let live = join::follow(folder, true)?;
    // Another job may have taken the name meanwhile.
    screens.loaded.label.clone_from(&live.job.output);
    screens.live = Some(live);
    Ok(Outcome::Screens(Box::new(screens)))
}

/// Screens that wait for the profile of a job, and plan its work: with the limits of the plan that it follows, if any.
pub(in crate::cli) fn on_job(
    mut screens: ScreensArgs,
    catalog: Catalog,
    name: &str,
    label: String,
    (aim, goal): (Aim, Option<Goal>),
) -> Result<Screens, CliError> {
    screens.wish.steps = screens.wish.steps.or(aim.steps);
    let loaded = Loaded { profile: nothing_yet(name), label, embedded: false, warnings: Vec::new() };
    let mut screens = Screens::new(screens, catalog, loaded)?;
    screens.goal = goal.unwrap_or(screens.goal);
    Ok(screens)
}

/// Starts the job in the background; prints its name.
pub(super) fn detach(session: &Session) -> Result<u8, CliError> {
    let (folder, pid) = match keeper::start(session)? {
        Ok(started) => started,
        Err(code) => return Ok(code),
    };
    let (name, job) = (&folder.name, folder.job()?.job);
    if !session.args.quiet {
        terminal::say(format_args!(
            "habitat-tui: the job runs in the background as process {pid}; its output goes to {}\n  \
             habitat-tui join {name}    shows it, from any terminal\n  \
             habitat-tui jobs    lists all jobs",
            job.log
        ));
    }
    let mut out = terminal::stdout();
    writeln!(out, "{name}").and_then(|()| out.flush())?;
    Ok(0)
}

/// Starts the job in the background, and prints what happens as lines of JSON.
pub(super) fn lines(session: &Session) -> Result<u8, CliError> {
    match keeper::start(session)? {
        Ok((folder, _)) => follow::job(&folder, true),
        Err(code) => Ok(code),
    }
}

/// Keeps a job: starts it, records it and writes its state until its end.
pub(super) fn keep(session: &Session, folder: &JobFolder) -> Result<u8, CliError> {
    capture::leave_terminal();
    let mut session = session.clone();
    let options = job_options(&session.args)?;
    let own = session.args.log.is_none();
    let log = if let Some(log) = session.args.log.clone() {
        log
    } else {
        let (log, profile) = log::reserve(&session.output, session.args.output.is_none())?;
        session.output = profile;
        log
    };
    let options = JobOptions { log: Some(log.clone()), apart: true, ..options };
    // Whatever can fail does so before the job starts: nobody would record it or know of it afterwards.
    let mut kept = kept(&session, folder, &options, &log);
    let begun = || -> Result<_, CliError> {
        folder.write_job(&kept)?;
        let stop = keeper::stop_requests(folder)?;
        Ok((capture::start(&options, &session.private)?, stop))
    };
    let (running, stop) = match begun() {
        Ok(begun) => begun,
        Err(error) => {
            if own {
                // It is still empty.
                let _ = std::fs::remove_file(&log);
            }
            keeper::not_started(&error);
            return Err(error);
        }
    };
    kept.job.pid = running.pid();
    kept.process = Identity::of(running.pid());
    kept.started = jiff::Timestamp::now();
    let unwritten = folder.write_job(&kept).err();
    keeper::started(running.pid(), unwritten.as_ref());
    let (keeping, news) = Keeping::start(folder.clone(), unwritten.map(|_| kept));
    let Conclusion { text, code, .. } = follow_to_the_end(&session, &options, running, folder, stop, &news);
    // It writes until all senders are gone.
    drop(news);
    keeping.finish(code, &text);
    Ok(code)
}

/// Facts on a job before its start, when this process is the only one to name.
fn kept(session: &Session, folder: &JobFolder, options: &JobOptions, log: &Path) -> KeptJob {
    let keeper = Identity::of(std::process::id());
    let shown = |path: &Path| habitat_base::text::clean(&path.display().to_string(), 300);
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let job = live::Job {
        id: folder.name.clone(),
        command: habitat_base::text::clean(&in_short(&session.args.command), 300),
        pid: keeper.pid,
        name: session.name.clone(),
        log: shown(log),
        output: shown(&session.output),
        wanted: wanted(options),
        aim: session.aim.clone(),
    };
    KeptJob {
        format: "habitat-kept-job".to_owned(),
        version: store::jobs::VERSION,
        job,
        started: jiff::Timestamp::now(),
        folder: std::env::current_dir().unwrap_or_default(),
        profile: absolute(&session.output),
        log: absolute(log),
        process: keeper.clone(),
        keeper,
        goal: session.goal.clone(),
    }
}

fn wanted(options: &JobOptions) -> RecordingWindows {
    let Settings { windows, after, window, every, .. } = options.settings;
    // The argument parser limits the range.
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    match &options.cupti {
        Some(cupti) => RecordingWindows::Kernels { after: time(cupti.after_seconds), length: time(cupti.for_seconds) },
        None => RecordingWindows::Steps { windows, after, window, every },
    }
}

/// The command with its program's base name, to save space, and without secrets.
fn in_short(command: &[OsString]) -> String {
    let (program, rest) = command.split_first().map_or((None, &[][..]), |(program, rest)| (Some(program), rest));
    let program = program.map(|program| Path::new(program).file_name().unwrap_or(program));
    let words: Vec<_> = program.into_iter().chain(rest.iter().map(OsString::as_os_str)).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    habitat_base::text::without_secrets(&words).join(" ")
}

/// Placeholder until there is a profile.
fn nothing_yet(name: &str) -> Profile {
    Profile {
        format: profile::FORMAT.to_owned(),
        version: profile::VERSION,
        workload: Workload { name: name.to_owned(), ..Workload::default() },
        origin: None,
        step: None,
        operations: Vec::new(),
        recording: None,
        timeline: None,
    }
}

fn follow_to_the_end(
    session: &Session,
    options: &JobOptions,
    running: Running,
    folder: &JobFolder,
    stop: impl FnMut() -> bool + 'static,
    news: &Sender<Update>,
) -> Conclusion {
    let pid = running.pid();
    let mut watcher = Watcher {
        news: news.clone(),
        control: running.control(),
        stop: Box::new(stop),
        maker: Maker::new(session.clone(), news.clone()),
        gather: Gather::default(),
        history: HistoryWriter::new(folder),
        options: options.clone(),
        cuda: CudaTimes::default(),
        boards: Boards::start(),
        shown: Snapshot::default(),
        changed: Instant::now(),
    };
    let mut finished = running.follow(&mut watcher);
    watcher.gather.end();
    watcher.history.append(&watcher.gather.due());
    let written = watcher.maker.finish(&finished.recording, finished.folder.path());
    // A history that cannot be read costs its part of the verdict.
    let history = read_history(folder).unwrap_or_default().digest(1);
    let mut conclusion = conclude(session, options, pid, &mut finished, written, &history);
    let log_name = options.log.as_deref().unwrap_or(Path::new("")).display();
    // Writing to a Vec cannot fail.
    let _ = writeln!(conclusion.text, "habitat-tui: the job's output is in {log_name}");
    let state = State::Ended {
        words: outcome::words(&finished, options),
        // A job that we stopped as requested has also ended well.
        well: conclusion.code == 0 || outcome::by_user(&finished),
    };
    let remedy = conclusion.remedy.take().filter(|_| finished.recording.status() != RecordingStatus::Recorded);
    let mut last = Snapshot { remedy, ..snapshot::at_end(&finished, state) };
    snapshot::with_exchanges(&mut last, &conclusion.exchanges);
    // It is received: the receiver ends with the senders.
    let _ = news.send(Update::Snapshot(Box::new(last)));
    conclusion
}

/// Sends updates to the files, and requests to the job.
struct Watcher {
    news: Sender<Update>,
    control: Control,
    /// Whether somebody asks to stop the job.
    stop: Box<dyn FnMut() -> bool>,
    maker: Maker,
    gather: Gather,
    history: HistoryWriter,
    options: JobOptions,
    cuda: CudaTimes,
    boards: Boards,
    shown: Snapshot,
    /// Time of the last change.
    changed: Instant,
}

impl Watch for Watcher {
    fn hear(&mut self, pid: u32, message: &Message, at: Duration) {
        self.gather.hear(pid, message, at);
    }

    fn pace(&self) -> Option<Duration> {
        Some(PACE)
    }

    fn look(&mut self, progress: Progress<'_>) {
        if (self.stop)() {
            self.control.request(JobRequest::Stop);
        }
        let now = Instant::now();
        self.cuda.look(progress.recording, now);
        let mut seen = snapshot::snapshot(progress, &self.options, self.cuda, now);
        seen.boards = self.boards.latest();
        self.gather.busy(seen.boards.iter().filter_map(|board| board.busy));
        self.history.append(&self.gather.due());
        snapshot::with_exchanges(&mut seen, &self.maker.exchanges());
        // The clock and readings of the machine are not signs of life from the training.
        let shown = Snapshot {
            silent: None,
            remedy: seen.remedy.clone(),
            elapsed: seen.elapsed,
            boards: seen.boards.clone(),
            ..self.shown.clone()
        };
        if seen != shown {
            self.changed = now;
        }
        let silent = self.changed.elapsed();
        if patience(&seen, self.options.settings.window).is_some_and(|patience| silent >= patience) {
            seen.silent = Some(silent.as_secs());
        }
        let recorder = Recorder::new(&self.options);
        let long = if recorder == Recorder::Cupti { NO_CUDA } else { NO_PYTHON };
        if seen.state == State::Started && seen.remedy.is_none() && silent >= long {
            seen.remedy =
                Some(report::remedy(&RecordingStatus::NoPython, &self.options.settings, recorder, End::NotYet));
        }
        if seen != self.shown {
            let _ = self.news.send(Update::Snapshot(Box::new(seen.clone())));
            self.shown = seen;
        }
        self.maker.consider(progress.recording, progress.folder);
    }
}

/// Silence before we warn. Steps may be long, and a window has several steps without messages. A CUDA program reports
/// when its window opens and closes, and nothing in between.
fn patience(seen: &Snapshot, window: u32) -> Option<Duration> {
    if matches!(seen.state, State::Cuda(1..) | State::Kernels(1..) | State::Running) {
        return None;
    }
    let step = seen.times.map_or(0.0, |times| times.median.as_secs());
    let steps = 3.0 * (1.0 + if matches!(seen.state, State::Recording(..)) { f64::from(window) } else { 0.0 });
    Some(LONG.max(Duration::from_secs_f64((step * steps).min(1e6))))
}
