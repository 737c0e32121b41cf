//! A job from start to end: starts it with the recorder and handles its events.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::error::CaptureError;
use super::event::{Control, Event, JobExit, LostOutput, OURSELVES, SocketEvent, StopReason};
use super::folder::Folder;
use super::hook::{self, Settings};
use super::messages::Message;
use super::private::Private;
use super::recording::Recording;
use super::scan::{ProcessScan, Scanner};
use super::{cupti, launch, log, socket};
use crate::live::{JobRequest, StopSignal};

/// A job to start, and its recording settings.
#[derive(Debug, Clone)]
pub struct JobOptions {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Recording settings.
    pub settings: Settings,
    /// Records kernels of any CUDA program with CUPTI instead of loading the hook.
    pub cupti: Option<cupti::Settings>,
    /// File for the job's output instead of our own.
    pub log: Option<PathBuf>,
    /// Keeps the job apart from our terminal: no input, no keys, no hang-up, and no signals sent to us.
    pub apart: bool,
    /// Ends the job once enough is recorded.
    pub stop_after: bool,
    /// Ends the job after this time in any case.
    pub timeout: Option<Duration>,
}

/// A job that ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub ended: JobExit,
    /// Reason for which we asked it to end, if we did.
    pub stop_reason: Option<StopReason>,
    /// The last signal to us that was passed on to it.
    pub passed: Option<i32>,
    /// Whether it was interrupted from our terminal (Ctrl-C).
    pub interrupted: bool,
    /// Folder of the traces; removed with this value.
    pub folder: Folder,
    /// Output missing from the log, if any.
    pub cut: Option<LostOutput>,
    /// Time from its start to its end.
    pub lasted: Duration,
    /// The recording.
    pub recording: Recording,
    /// Processes without the hook, and processes that outlive the command.
    pub scan: ProcessScan,
}

/// Number of steps outside windows that make a recording complete.
const ENOUGH_STEPS: usize = 20;
/// Maximum time until we are stopped together with the job.
const STOPPING: Duration = Duration::from_millis(300);
/// Maximum time for the last messages after the job's end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Progress of a job.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The recording so far.
    pub recording: &'a Recording,
    /// Folder of the traces.
    pub folder: &'a Path,
    /// Whether it is stopped, for example by SIGSTOP.
    pub stopped: bool,
    /// The last signal that asked it to end, if any.
    pub ending: Option<StopSignal>,
    /// Output missing from the log, if any.
    pub cut: Option<&'a LostOutput>,
    /// Processes without the hook, and processes that outlive the command.
    pub scan: &'a ProcessScan,
    /// Time since its start.
    pub lasted: Duration,
}

/// Observer of a running job. All methods are called on the thread that follows the job.
pub trait Watch {
    /// Called once when the requested recording is complete, with the folder of the traces; never called if that does
    /// not happen.
    fn complete(&mut self, _recording: &Recording, _folder: &Path) {}

    /// Called with each message of a process and the time since the start of the job.
    fn hear(&mut self, _pid: u32, _message: &Message, _at: Duration) {}

    /// Interval between calls of [`look`](Self::look); `None` for never.
    fn pace(&self) -> Option<Duration> {
        None
    }

    /// Called at every [`pace`](Self::pace), whether there was an event or not.
    fn look(&mut self, _progress: Progress<'_>) {}
}

/// A started job.
pub struct Running {
    options: JobOptions,
    job: launch::Job,
    began: Instant,
    folder: Folder,
    socket: socket::Socket,
    scanner: Scanner,
    events: mpsc::Sender<Event>,
    happening: mpsc::Receiver<Event>,
}

/// Starts a job; [`Running::follow`] must be called to receive its events. `private` holds the files that it gets from
/// us.
///
/// # Errors
/// [`CaptureError`] if the job was not started.
pub fn start(options: &JobOptions, private: &Private) -> Result<Running, CaptureError> {
    let failed = |source| CaptureError::Folder { path: private.path().to_owned(), source };
    let folder = private.recording().map_err(failed)?;
    let (events, happening) = mpsc::channel();
    let socket = socket::listen(folder.path(), private, events.clone())?;
    let own = |name: &str| std::env::var_os(name);
    let mut variables = if let Some(settings) = &options.cupti {
        cupti::environment(settings, &socket.path, folder.path(), own)?
    } else {
        let hook = private.unpacked("hook", &habitat_profiler::HOOK).map_err(failed)?;
        hook::environment(&hook, &socket.path, folder.path(), &options.settings, own).map_err(failed)?
    };
    if options.apart && std::env::var_os("PYTHONUNBUFFERED").is_none() {
        // Python buffers output to a file in blocks of 8 KiB.
        variables.push(("PYTHONUNBUFFERED", "1".into()));
    }
    let output = options.log.as_deref().map(|path| log::start(path, &events)).transpose()?;
    let job = launch::start(&options.command, &variables, output, options.apart, &events)?;
    let scanner = Scanner::new(job.pid(), &variables);
    Ok(Running { options: options.clone(), job, began: Instant::now(), folder, socket, scanner, events, happening })
}

impl Running {
    /// Process id of the job, which leads its process group.
    pub fn pid(&self) -> u32 {
        self.job.pid()
    }

    /// Handle for passing user requests while the job is followed.
    pub fn control(&self) -> Control {
        Control(self.events.clone())
    }

    /// Follows the job until it ends.
    pub fn follow(self, watch: &mut dyn Watch) -> Finished {
        let Self { options, job, began, folder, socket, mut scanner, happening, events: _events } = self;
        let mut state = State::default();
        let mut is_complete = false;
        let mut deadline = options.timeout.map(|timeout| Instant::now() + timeout);
        let pace = watch.pace();
        let mut next_look = pace.map(|_| Instant::now());
        loop {
            let wake = [deadline, next_look, state.resume, scanner.next].into_iter().flatten().min();
            let event = match wake {
                None => happening.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wake) => happening.recv_timeout(wake.saturating_duration_since(Instant::now())),
            };
            let now = Instant::now();
            match event {
                Ok(Event::Signal(signal)) => {
                    state.resume = state.resume.filter(|_| signal != launch::CONTINUE);
                    state.passed = Some(signal).filter(|signal| *signal != launch::CONTINUE).or(state.passed);
                    job.pass(signal);
                }
                Ok(Event::Stopped { by_terminal }) => {
                    state.stopped = true;
                    if by_terminal && !options.apart && job.stop_with_it() {
                        state.resume = Some(now + STOPPING);
                    }
                }
                Ok(Event::Requested(JobRequest::Stop)) if state.ended.is_none() => {
                    deadline = Some(now + state.ask(&job, StopReason::User));
                }
                Ok(event) => {
                    if let Event::Socket { event: SocketEvent::Message { pid, message }, .. } = &event {
                        watch.hear(*pid, message, began.elapsed());
                    }
                    let had_ended = state.ended.is_some();
                    state.take(event);
                    if !had_ended && state.ended.is_some() {
                        socket.connect_last();
                    }
                }
                Err(RecvTimeoutError::Timeout) if state.resume.is_some_and(|resume| resume <= now) => {
                    // We could not be stopped (no shell would continue us), so the job must not stay stopped either.
                    state.resume = None;
                    job.pass(launch::CONTINUE);
                }
                Err(RecvTimeoutError::Timeout) if deadline.is_none_or(|deadline| deadline > now) => {}
                Err(_) if state.ended.is_some() => break,
                Err(_) => deadline = Some(now + state.ask(&job, StopReason::Timeout)),
            }
            scanner.look(&state.recording, now);
            if let (Some(pace), true) = (pace, next_look.is_some_and(|look| look <= now)) {
                watch.look(state.progress(folder.path(), &scanner.scan, began.elapsed()));
                next_look = Some(Instant::now() + pace);
            }
            if state.ended.is_some() {
                if state.talking == 0 && state.all_connected && (state.logged || options.log.is_none()) {
                    break;
                }
                let latest = Instant::now() + LAST_WORDS;
                deadline = Some(deadline.map_or(latest, |deadline| deadline.min(latest)));
            } else if !is_complete && state.recording.is_complete(options.settings.windows, ENOUGH_STEPS) {
                is_complete = true;
                watch.complete(&state.recording, folder.path());
                if options.stop_after && state.stop_reason.is_none() {
                    deadline = Some(Instant::now() + state.ask(&job, StopReason::Recorded));
                }
            }
        }
        job.to_background();
        let ended = state.ended.unwrap_or(JobExit::Unknown);
        let interrupted = job.had_terminal() && ended == JobExit::Signal(launch::INTERRUPT);
        let State { stop_reason, passed, recording, cut, .. } = state;
        let scan = scanner.finish(&recording);
        Finished { ended, stop_reason, passed, interrupted, folder, cut, lasted: began.elapsed(), recording, scan }
    }
}

/// The signal to send after `before`. Only a user's request starts with an interrupt.
fn follows(before: Option<StopSignal>, why: StopReason) -> StopSignal {
    match (before, why) {
        (None, StopReason::User) => StopSignal::Interrupt,
        (None, StopReason::Timeout | StopReason::Recorded) => StopSignal::Terminate,
        (Some(sent), _) => sent.stronger().unwrap_or(sent),
    }
}

/// State accumulated from the events.
#[derive(Default)]
struct State {
    recording: Recording,
    /// First reason for which we asked it to end, and the last signal sent.
    stop_reason: Option<StopReason>,
    sent: Option<StopSignal>,
    /// The last signal passed on.
    passed: Option<i32>,
    stopped: bool,
    /// Time to continue the stopped job if we were not stopped with it.
    resume: Option<Instant>,
    /// Number of open connections.
    talking: u64,
    /// Whether every connection made before the job's end has been counted.
    all_connected: bool,
    /// Output missing from the log, and whether all of the job's output was received.
    cut: Option<LostOutput>,
    logged: bool,
    ended: Option<JobExit>,
}

impl State {
    fn progress<'a>(&'a self, folder: &'a Path, scan: &'a ProcessScan, lasted: Duration) -> Progress<'a> {
        let Self { recording, stopped, sent, cut, .. } = self;
        Progress { recording, folder, stopped: *stopped, ending: *sent, cut: cut.as_ref(), scan, lasted }
    }

    /// Asks the job to end, with a stronger signal than the last time; returns the time that it may take.
    fn ask(&mut self, job: &launch::Job, why: StopReason) -> Duration {
        let signal = follows(self.sent, why);
        self.stop_reason.get_or_insert(why);
        self.sent = Some(signal);
        job.send(signal);
        signal.grace()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Socket { event, .. } => self.on_socket(event),
            Event::LostOutput(cut) => self.cut = Some(cut),
            Event::Logged => self.logged = true,
            Event::Ended(ended) => self.ended = Some(ended),
            Event::Continued => self.stopped = false,
            Event::Signal(_) | Event::Stopped { .. } | Event::Requested(_) => {}
        }
    }

    fn on_socket(&mut self, event: SocketEvent) {
        match event {
            SocketEvent::Connected => self.talking += 1,
            SocketEvent::Disconnected { connection, problem } => {
                self.talking = self.talking.saturating_sub(1);
                if let Some(problem) = problem {
                    self.recording
                        .garble(habitat_base::text::clean(&format!("connection {connection}: {problem}"), 400));
                }
            }
            SocketEvent::Refused => self.recording.refused += 1,
            SocketEvent::Message { pid: OURSELVES, .. } => self.all_connected = true,
            SocketEvent::Message { pid, message } => self.recording.hear(pid, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wishes_a_job_to_end_interrupts_it_first() {
        let first = follows(None, StopReason::User);
        let second = follows(Some(first), StopReason::User);
        assert_eq!([first, second], [StopSignal::Interrupt, StopSignal::Terminate]);
        for why in [StopReason::Timeout, StopReason::Recorded] {
            assert_eq!(follows(None, why), StopSignal::Terminate);
        }
        assert_eq!(follows(Some(second), StopReason::Timeout), StopSignal::Kill);
        assert_eq!(follows(Some(StopSignal::Kill), StopReason::User), StopSignal::Kill);
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(JobExit::Code(3).exit_code(), 3);
        assert_eq!(JobExit::Signal(9).exit_code(), 137);
    }
}
