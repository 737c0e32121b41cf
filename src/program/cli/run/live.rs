//! `run` with screens: the job runs detached from the terminal, its output goes to a file, and the screens receive its
//! updates.

mod log;
mod maker;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use self::log::Log;
use self::maker::Maker;
use super::outcome::{self, End};
use super::report::{self, Recorder};
use super::session::{Conclusion, Session, conclude, job_options};
use super::snapshot::{self, Heard};
use crate::cli::error::CliError;
use crate::cli::input::Loaded;
use crate::cli::screens::{Outcome, Screens};
use crate::settings::args::ScreensArgs;
use crate::terminal;
use habitat_recorder::capture::smi::Boards;
use habitat_recorder::capture::{
    self, Ended, JobOptions, Progress, Recording, RecordingStatus, Running, Settings, Watch,
};
use habitat_recorder::live::{self, Snapshot, State, Update, Wanted};
use habitat_step::profile::{self, Mode, Profile, Workload};

/// Time between two looks at the job.
const PACE: Duration = Duration::from_millis(250);
/// Silence before we warn.
const LONG: Duration = Duration::from_secs(10);
/// Silence after which there is probably no Python.
const NO_PYTHON: Duration = Duration::from_secs(20);
/// The same for CUDA, which programs may start only after they have read their data.
const NO_CUDA: Duration = Duration::from_secs(60);

/// Starts the job and opens the screens on it.
pub(super) fn run(session: Session, mut screens: ScreensArgs) -> Result<Outcome, CliError> {
    // Plan for the work that the job is going to do.
    screens.wish.steps = screens.wish.steps.or(session.args.total_steps);
    // Do everything that can fail before the job starts.
    let output = habitat_base::text::clean(&session.output.display().to_string(), 300);
    let loaded =
        Loaded { profile: nothing_yet(&session.name), label: output.clone(), embedded: false, warnings: Vec::new() };
    let mut screens = Screens::new(screens, (*session.catalog).clone(), loaded)?;
    let own = session.args.log.is_none();
    let log = session.args.log.clone().map_or_else(|| log::reserve(&session.output), Ok)?;
    let job_options = JobOptions { log: Some(log.clone()), apart: true, ..job_options(&session.args)? };
    let running = match capture::start(&job_options, &session.private) {
        Ok(running) => running,
        Err(error) => {
            if own {
                // It is still empty.
                let _ = std::fs::remove_file(&log);
            }
            return Err(error.into());
        }
    };
    let job = live::Job {
        command: habitat_base::text::clean(&in_short(&session.args.command), 300),
        pid: running.pid(),
        name: session.name.clone(),
        log: habitat_base::text::clean(&log.display().to_string(), 300),
        output,
        wanted: wanted(&job_options),
        aim: session.aim(),
    };
    screens.live = Some(follow(session, job_options, running, job));
    Ok(Outcome::Screens(Box::new(screens)))
}

fn wanted(options: &JobOptions) -> Wanted {
    let Settings { windows, after, window, every, .. } = options.settings;
    // The argument parser limits the range.
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    match &options.cupti {
        Some(cupti) => Wanted::Kernels { after: time(cupti.after_seconds), length: time(cupti.for_seconds) },
        None => Wanted::Steps { windows, after, window, every },
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
    let workload = Workload {
        name: name.to_owned(),
        mode: Mode::Training,
        batch_size: None,
        micro_batches: None,
        sequence_length: None,
        precision: None,
        parameter_count: None,
    };
    Profile {
        format: profile::FORMAT.to_owned(),
        version: profile::VERSION,
        workload,
        origin: None,
        step: None,
        operations: Vec::new(),
        recording: None,
        timeline: None,
    }
}

/// Follows the job in a thread of its own and returns the connection for the screens.
fn follow(session: Session, options: JobOptions, running: Running, job: live::Job) -> live::Session {
    let control = running.control();
    let (news, updates) = mpsc::channel();
    let done = Arc::new(AtomicBool::new(false));
    let finished = done.clone();
    let pid = job.pid;
    let thread = std::thread::spawn(move || {
        let conclusion = follow_to_the_end(&session, &options, running, pid, &news);
        finished.store(true, Ordering::SeqCst);
        conclusion
    });
    let wish = move |wish| {
        // A send fails only once the job has ended or was left.
        control.wish(wish);
    };
    let leave = wish.clone();
    live::Session {
        job,
        updates,
        control: Arc::new(wish),
        finish: Box::new(move || {
            leave(live::Wish::Leave);
            let Ok(Conclusion { text, code, .. }) = thread.join() else { return 2 };
            // Ignore a closed standard error.
            let _ = terminal::stderr().write_all(&text);
            code
        }),
        is_done: Arc::new(move || done.load(Ordering::SeqCst)),
    }
}

fn follow_to_the_end(
    session: &Session,
    options: &JobOptions,
    running: Running,
    pid: u32,
    news: &Sender<Update>,
) -> Conclusion {
    let mut watcher = Watcher {
        news: news.clone(),
        log: Log::new(options.log.clone().unwrap_or_default()),
        maker: Maker::new(session.clone(), news.clone()),
        options: options.clone(),
        heard: Heard::default(),
        boards: Boards::start(),
        shown: Snapshot::default(),
        changed: Instant::now(),
    };
    let mut finished = running.follow(&mut watcher);
    let Watcher { mut log, maker, .. } = watcher;
    let written = maker.finish(&finished.recording, finished.folder.path());
    let unwritten = written.is_none();
    let mut conclusion = conclude(session, options, pid, &mut finished, written);
    let log_name = options.log.as_deref().unwrap_or(Path::new("")).display();
    if finished.ended == Ended::Left {
        if unwritten {
            conclusion.text = b"habitat-tui: you left before anything was recorded\n".to_vec();
        }
        // Writing to a Vec cannot fail.
        let _ = writeln!(
            conclusion.text,
            "habitat-tui: the job keeps running as process {pid}; its output goes to {log_name}; stop it with `kill {pid}`"
        );
    } else {
        let _ = writeln!(conclusion.text, "habitat-tui: the job's output is in {log_name}");
    }
    let state = match finished.ended {
        Ended::Left => State::Left,
        // A job that we stopped as requested has also ended well.
        _ => State::Ended {
            words: outcome::words(&finished, options),
            well: conclusion.code == 0 || outcome::by_user(&finished),
        },
    };
    let remedy = conclusion.remedy.take().filter(|_| finished.recording.seen() != RecordingStatus::Recorded);
    // The screens may be closed already.
    if log.read() {
        let _ = news.send(Update::Output(log.lines()));
    }
    let mut last = Snapshot { remedy, ..snapshot::at_end(&finished, state) };
    snapshot::with_exchanges(&mut last, &conclusion.exchanges);
    let _ = news.send(Update::Snapshot(Box::new(last)));
    conclusion
}

/// Sends updates to the screens.
struct Watcher {
    news: Sender<Update>,
    log: Log,
    maker: Maker,
    options: JobOptions,
    heard: Heard,
    boards: Boards,
    shown: Snapshot,
    /// Time of the last change.
    changed: Instant,
}

impl Watch for Watcher {
    fn complete(&mut self, _recording: &Recording, _folder: &Path) {}

    fn pace(&self) -> Option<Duration> {
        Some(PACE)
    }

    fn look(&mut self, progress: Progress<'_>) {
        // The screens may be closed already.
        if self.log.read() {
            let _ = self.news.send(Update::Output(self.log.lines()));
        }
        let now = Instant::now();
        self.heard.look(progress.recording, now);
        let mut seen = snapshot::snapshot(progress, &self.options, self.heard, now);
        seen.boards = self.boards.latest();
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
