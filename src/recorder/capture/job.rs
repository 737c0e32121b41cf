//! A job from its start to its end: it is started with the recorder in it, and what happens
//! around it is put together.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::error::CaptureError;
use super::event::{Asked, Control, Cut, Ended, Event, Heard, OURSELVES};
use super::folder::Folder;
use super::hook::{self, Settings};
use super::private::Private;
use super::recording::Recording;
use super::scan::{ProcessScan, Scanner};
use super::{cupti, launch, log, socket};
use crate::live::{StopSignal, Wish};

/// A job to start and what to record of it.
#[derive(Debug, Clone)]
pub struct JobOptions {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// What to record.
    pub settings: Settings,
    /// Record kernels with CUPTI, of any CUDA program, in place of loading the hook.
    pub cupti: Option<cupti::Settings>,
    /// Where the job's output goes, in place of ours.
    pub log: Option<PathBuf>,
    /// Keep the job apart from our terminal: no input, no keys, no hang-up, and signals
    /// sent to us are ours alone.
    pub apart: bool,
    /// End the job once enough is recorded.
    pub stop_after: bool,
    /// End the job after this long in any case.
    pub timeout: Option<Duration>,
}

/// A job that ended.
#[derive(Debug)]
pub struct Finished {
    /// How.
    pub ended: Ended,
    /// Why we asked it to end, if we did.
    pub asked: Option<Asked>,
    /// The last signal to us that was passed on to it.
    pub passed: Option<i32>,
    /// Whether it was interrupted from our terminal (Ctrl-C).
    pub interrupted: bool,
    /// Where the traces are; removed with this value.
    pub folder: Folder,
    /// What the log lacks, if anything.
    pub cut: Option<Cut>,
    /// From its start to its end, or until it was left.
    pub lasted: Duration,
    /// What was seen.
    pub recording: Recording,
    /// Processes without the hook, and those that outlive the command.
    pub scan: ProcessScan,
}

/// Steps outside windows that make a recording complete.
const ENOUGH_STEPS: usize = 20;
/// How long it may take until we are stopped with the job.
const STOPPING: Duration = Duration::from_millis(300);
/// How long the last messages may take after the job's end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How a job is doing.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// What was seen.
    pub recording: &'a Recording,
    /// Where the traces are.
    pub folder: &'a Path,
    /// Whether it is stopped, as by SIGSTOP.
    pub stopped: bool,
    /// How strongly it was asked to end, if it was.
    pub ending: Option<StopSignal>,
    /// What the log lacks, if anything.
    pub cut: Option<&'a Cut>,
    /// Processes without the hook, and those that outlive the command.
    pub scan: &'a ProcessScan,
    /// Since its start.
    pub lasted: Duration,
}

/// Who looks on while a job runs. All of it is called on the thread that follows the job.
pub trait Watch {
    /// Called once, as soon as everything asked for is recorded (and not at all if that
    /// never happens), with the folder of the traces.
    fn complete(&mut self, recording: &Recording, folder: &Path);

    /// How often to [`look`](Self::look); never where it is `None`.
    fn pace(&self) -> Option<Duration> {
        None
    }

    /// Called at the [`pace`](Self::pace), whether something happened or not.
    fn look(&mut self, _progress: Progress<'_>) {}
}

impl<F: FnMut(&Recording, &Path)> Watch for F {
    fn complete(&mut self, recording: &Recording, folder: &Path) {
        self(recording, folder);
    }
}

/// A job that was started.
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

/// Starts a job; [`Running::follow`] must be called to hear of it. What it gets from us is
/// in `private`.
///
/// # Errors
/// [`CaptureError`] where the job was not started.
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
        // Python holds back what goes to a file until there are 8 KiB of it.
        variables.push(("PYTHONUNBUFFERED", "1".into()));
    }
    let output = options.log.as_deref().map(|path| log::start(path, &events)).transpose()?;
    let job = launch::start(&options.command, &variables, output, options.apart, &events)?;
    let scanner = Scanner::new(job.pid(), &variables);
    Ok(Running { options: options.clone(), job, began: Instant::now(), folder, socket, scanner, events, happening })
}

impl Running {
    /// The job's process, which leads its process group.
    pub fn pid(&self) -> u32 {
        self.job.pid()
    }

    /// What passes wishes on while the job is followed.
    pub fn control(&self) -> Control {
        Control(self.events.clone())
    }

    /// Follows the job to its end, or until it is to be left.
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
                Ok(Event::Wished(Wish::Leave)) => {
                    state.ended.get_or_insert(Ended::Left);
                    break;
                }
                Ok(Event::Wished(Wish::Stop)) if state.ended.is_none() => {
                    deadline = Some(now + state.ask(&job, Asked::Wished));
                }
                Ok(event) => {
                    let had_ended = state.ended.is_some();
                    state.take(event);
                    if !had_ended && state.ended.is_some() {
                        socket.close_the_line();
                    }
                }
                Err(RecvTimeoutError::Timeout) if state.resume.is_some_and(|resume| resume <= now) => {
                    // Nothing could stop us (nobody would be there to continue us), so
                    // nothing stops the job either.
                    state.resume = None;
                    job.pass(launch::CONTINUE);
                }
                Err(RecvTimeoutError::Timeout) if deadline.is_none_or(|deadline| deadline > now) => {}
                Err(_) if state.ended.is_some() => break,
                Err(_) => deadline = Some(now + state.ask(&job, Asked::Timeout)),
            }
            scanner.look(&state.recording, now);
            if let (Some(pace), true) = (pace, next_look.is_some_and(|look| look <= now)) {
                watch.look(state.progress(folder.path(), &scanner.scan, began.elapsed()));
                next_look = Some(Instant::now() + pace);
            }
            if state.ended.is_some() {
                if state.talking == 0 && state.all_heard && (state.logged || options.log.is_none()) {
                    break;
                }
                let latest = Instant::now() + LAST_WORDS;
                deadline = Some(deadline.map_or(latest, |deadline| deadline.min(latest)));
            } else if !is_complete && state.recording.is_complete(options.settings.windows, ENOUGH_STEPS) {
                is_complete = true;
                watch.complete(&state.recording, folder.path());
                if options.stop_after && state.asked.is_none() {
                    deadline = Some(Instant::now() + state.ask(&job, Asked::Recorded));
                }
            }
        }
        job.to_background();
        let ended = state.ended.unwrap_or(Ended::Unknown);
        let interrupted = job.had_terminal() && ended == Ended::Signal(launch::INTERRUPT);
        let State { asked, passed, recording, cut, .. } = state;
        let scan = scanner.finish(&recording);
        Finished { ended, asked, passed, interrupted, folder, cut, lasted: began.elapsed(), recording, scan }
    }
}

/// The signal after `before`: only who wishes a job to end interrupts it first.
const fn follows(before: Option<StopSignal>, why: Asked) -> StopSignal {
    match (before, why) {
        (None, Asked::Wished) => StopSignal::Interrupt,
        (None, Asked::Timeout | Asked::Recorded) => StopSignal::Terminate,
        (Some(sent), _) => match sent.stronger() {
            Some(stronger) => stronger,
            None => sent,
        },
    }
}

/// What the events add up to.
#[derive(Default)]
struct State {
    recording: Recording,
    /// Why we asked it to end first, and how strongly last.
    asked: Option<Asked>,
    sent: Option<StopSignal>,
    /// The last signal passed on.
    passed: Option<i32>,
    stopped: bool,
    /// When to continue the stopped job where we were not stopped with it.
    resume: Option<Instant>,
    /// Connections open.
    talking: u64,
    /// Every connection made before the job's end is counted.
    all_heard: bool,
    /// What the log lacks, and whether all that the job wrote was taken in.
    cut: Option<Cut>,
    logged: bool,
    ended: Option<Ended>,
}

impl State {
    fn progress<'a>(&'a self, folder: &'a Path, scan: &'a ProcessScan, lasted: Duration) -> Progress<'a> {
        let Self { recording, stopped, sent, cut, .. } = self;
        Progress { recording, folder, stopped: *stopped, ending: *sent, cut: cut.as_ref(), scan, lasted }
    }

    /// Asks the job to end, more strongly than the last time; how long it may take.
    fn ask(&mut self, job: &launch::Job, why: Asked) -> Duration {
        let signal = follows(self.sent, why);
        self.asked.get_or_insert(why);
        self.sent = Some(signal);
        job.send(signal);
        signal.grace()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Heard { what, .. } => self.hear(what),
            Event::Cut(cut) => self.cut = Some(cut),
            Event::Logged => self.logged = true,
            Event::Ended(ended) => self.ended = Some(ended),
            Event::Continued => self.stopped = false,
            Event::Signal(_) | Event::Stopped { .. } | Event::Wished(_) => {}
        }
    }

    fn hear(&mut self, what: Heard) {
        match what {
            Heard::Connected => self.talking += 1,
            Heard::Disconnected { connection, problem } => {
                self.talking = self.talking.saturating_sub(1);
                if let Some(problem) = problem {
                    self.recording
                        .garble(habitat_base::text::clean(&format!("connection {connection}: {problem}"), 400));
                }
            }
            Heard::Refused => self.recording.refused += 1,
            Heard::Message { pid: OURSELVES, .. } => self.all_heard = true,
            Heard::Message { pid, message } => self.recording.hear(pid, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wishes_a_job_to_end_interrupts_it_first() {
        let first = follows(None, Asked::Wished);
        let second = follows(Some(first), Asked::Wished);
        assert_eq!([first, second], [StopSignal::Interrupt, StopSignal::Terminate]);
        for why in [Asked::Timeout, Asked::Recorded] {
            assert_eq!(follows(None, why), StopSignal::Terminate);
        }
        assert_eq!(follows(Some(second), Asked::Timeout), StopSignal::Kill);
        assert_eq!(follows(Some(StopSignal::Kill), Asked::Wished), StopSignal::Kill);
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(Ended::Code(3).exit_code(), 3);
        assert_eq!(Ended::Signal(9).exit_code(), 137);
    }
}
