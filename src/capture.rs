//! Recording a training step of a running job, with no change to its code.
//!
//! [`start`] starts a command with a hook in its Python (`profiler/hook`), listens to what
//! the hook tells over a private socket, and keeps the traces of the recorded windows.
//! [`profile`](assemble::profile) makes a profile of them. Of other programs that use CUDA
//! a library (`profiler/cupti`) records the kernels, see [`cupti`].
//!
//! [`on_demand`] records a job that runs already, where it was started for that.
//! [`shapes`] traces a step that is not run at all. [`calibrate`] measures the GPU of this
//! machine itself, with no job.
//!
//! The job comes first: it has its own process group and its own exit code, it never
//! waits for us, and our end does not end it.

pub mod assemble;
pub mod calibrate;
pub mod cupti;
pub mod device;
mod folder;
mod hook;
mod launch;
mod libraries;
pub mod log;
pub mod messages;
#[cfg(target_os = "linux")]
pub mod on_demand;
mod private;
pub mod recording;
pub mod shapes;
mod signals;
pub mod smi;
mod socket;

pub use folder::Folder;
pub use hook::Settings;
pub use log::Cut;
pub use private::{Private, PrivateError};
pub use recording::{Process, Recording, RecordingStatus};

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use self::socket::Heard;

/// Why a job was not started.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Nothing to start.
    #[error("no command; put it after two dashes, as in `habitat-tui run -- python train.py`")]
    NoCommand,
    /// No such program.
    #[error("{program}: no such program; give its path, or check PATH")]
    NotFound {
        /// As typed.
        program: String,
    },
    /// Found, but not to be run.
    #[error("{program}: cannot be started: {source}{}", remedy(.program, .source))]
    NotStarted {
        /// As typed.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// There is no private folder.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The folder for traces cannot be made.
    #[error("{}: cannot be written: {source}; set XDG_CACHE_HOME to a folder of your own with room", .path.display())]
    Folder {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket's name does not fit.
    #[error(
        "{}: longer than the {} bytes that a socket's name may have; set XDG_CACHE_HOME to a folder of your own with a \
         shorter name",
        .path.display(), socket::LONGEST
    )]
    SocketPath {
        /// The name.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("{}: no socket can be made there: {source}; set XDG_CACHE_HOME to a folder of your own on a local disk", .path.display())]
    Socket {
        /// The name.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file for the job's output cannot be made, or nothing that writes it.
    #[error("{}: cannot be written: {source}; the job was not started", .path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The recorder for CUDA programs cannot be used.
    #[error(transparent)]
    Cupti(#[from] cupti::CuptiError),
    /// Signals cannot be passed on; the job is running.
    #[error("signals cannot be passed on to the job: {source}")]
    Signals {
        /// Why.
        source: io::Error,
    },
}

impl CaptureError {
    fn of_start(program: &OsStr, source: io::Error) -> Self {
        let program = program.to_string_lossy().into_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { program },
            _ => Self::NotStarted { program, source },
        }
    }

    /// The exit code that a shell gives for it.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotStarted { .. } => 126,
            _ => 2,
        }
    }
}

fn remedy(program: &str, source: &io::Error) -> String {
    if source.kind() == io::ErrorKind::PermissionDenied && Path::new(program).extension().is_some_and(|e| e == "py") {
        format!("; start it as `python {program}`")
    } else {
        String::new()
    }
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Somebody else took its status.
    Unknown,
    /// Not at all: it was left running.
    Left,
}

impl Ended {
    /// The exit code as shells give it: 128 and the signal for a job ended by one.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => (code & 0xff) as u8,
            Self::Signal(signal) => (128 + signal).min(255) as u8,
            Self::Unknown => 2,
            Self::Left => 0,
        }
    }
}

/// The name of a signal: `SIGKILL`, `signal 64` for one without.
pub fn signal_name(signal: i32) -> String {
    launch::signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

/// What the one who had the job started wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// That it end, asked as Ctrl-C asks at first ([`Push`]); the same wish again asks more
    /// strongly at once.
    End,
    /// That it go on without us.
    Leave,
}

/// Why we asked a job to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It was wished.
    Wished,
    /// Its time was over.
    Timeout,
    /// Enough was recorded.
    Recorded,
}

/// How strongly a job is asked to end. Each is given its time before the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// SIGINT, as Ctrl-C sends it: Python raises `KeyboardInterrupt`, and what saves a last
    /// checkpoint then does.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL, which no program survives.
    Kill,
}

impl Push {
    /// What follows on `before`: only who wishes it interrupts first.
    const fn after(before: Option<Self>, why: Asked) -> Self {
        match (before, why) {
            (None, Asked::Wished) => Self::Interrupt,
            (None, Asked::Timeout | Asked::Recorded) | (Some(Self::Interrupt), _) => Self::Terminate,
            (Some(Self::Terminate | Self::Kill), _) => Self::Kill,
        }
    }

    /// How long the job may take to end of it.
    pub const fn grace(self) -> Duration {
        match self {
            // Time to save a checkpoint in.
            Self::Interrupt => Duration::from_secs(30),
            Self::Terminate | Self::Kill => Duration::from_secs(15),
        }
    }

    /// The signal's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }
}

/// Passes wishes on to [`Running::follow`], from any thread.
#[derive(Debug, Clone)]
pub struct Control(mpsc::Sender<Event>);

impl Control {
    /// Passes a wish on; `false` where nobody follows the job any more.
    pub fn wish(&self, wish: Wish) -> bool {
        self.0.send(Event::Wished(wish)).is_ok()
    }
}

/// What happens around a job.
#[derive(Debug)]
enum Event {
    /// Something was heard on the socket, whose sender waits `until` it was taken.
    Heard {
        what: Heard,
        #[allow(dead_code, reason = "dropping it is what tells")]
        until: mpsc::Sender<()>,
    },
    /// The log lacks something.
    Cut(Cut),
    /// The job's output has ended, and is in the log.
    Logged,
    Signal(i32),
    /// Stopped; whether it was the terminal that did it.
    Stopped {
        by_terminal: bool,
    },
    Continued,
    Wished(Wish),
    Ended(Ended),
}

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
    /// What was seen.
    pub recording: Recording,
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
    pub ending: Option<Push>,
    /// What the log lacks, if anything.
    pub cut: Option<&'a Cut>,
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
    folder: Folder,
    socket: socket::Socket,
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
        let hook = private.unpacked("hook", &hook::FILES).map_err(failed)?;
        hook::environment(&hook, &socket.path, folder.path(), &options.settings, own).map_err(failed)?
    };
    if options.apart && std::env::var_os("PYTHONUNBUFFERED").is_none() {
        // Python holds back what goes to a file until there are 8 KiB of it.
        variables.push(("PYTHONUNBUFFERED", "1".into()));
    }
    let output = options.log.as_deref().map(|path| log::start(path, &events)).transpose()?;
    let job = launch::start(&options.command, variables, output, options.apart, &events)?;
    Ok(Running { options: options.clone(), job, folder, socket, events, happening })
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
        let Self { options, job, folder, socket, happening, events: _events } = self;
        let mut state = State::default();
        let mut is_complete = false;
        let mut deadline = options.timeout.map(|timeout| Instant::now() + timeout);
        let pace = watch.pace();
        let mut next_look = pace.map(|_| Instant::now());
        loop {
            let wake = [deadline, next_look, state.resume].into_iter().flatten().min();
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
                Ok(Event::Wished(Wish::End)) if state.ended.is_none() => {
                    deadline = Some(now + state.push(&job, Asked::Wished));
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
                Err(_) => deadline = Some(now + state.push(&job, Asked::Timeout)),
            }
            if let (Some(pace), true) = (pace, next_look.is_some_and(|look| look <= now)) {
                watch.look(state.progress(folder.path()));
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
                    deadline = Some(Instant::now() + state.push(&job, Asked::Recorded));
                }
            }
        }
        job.to_background();
        let ended = state.ended.unwrap_or(Ended::Unknown);
        let interrupted = job.had_terminal() && ended == Ended::Signal(launch::INTERRUPT);
        let State { asked, passed, recording, cut, .. } = state;
        Finished { ended, asked, passed, interrupted, folder, cut, recording }
    }
}

/// Ends the process as the terminal would have, had the job been in our process group: a
/// script that runs us is interrupted too.
pub fn end_interrupted() {
    launch::interrupt_ourselves();
}

/// What the events add up to.
#[derive(Default)]
struct State {
    recording: Recording,
    /// Why we asked it to end first, and how strongly last.
    asked: Option<Asked>,
    pushed: Option<Push>,
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
    fn progress<'a>(&'a self, folder: &'a Path) -> Progress<'a> {
        let Self { recording, stopped, pushed, cut, .. } = self;
        Progress { recording, folder, stopped: *stopped, ending: *pushed, cut: cut.as_ref() }
    }

    /// Asks the job to end, more strongly than the last time; how long it may take.
    fn push(&mut self, job: &launch::Job, why: Asked) -> Duration {
        let push = Push::after(self.pushed, why);
        self.asked.get_or_insert(why);
        self.pushed = Some(push);
        job.push(push);
        push.grace()
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
                    self.recording.garble(crate::text::clean(&format!("connection {connection}: {problem}"), 400));
                }
            }
            Heard::Refused => self.recording.refused += 1,
            Heard::Message { pid: socket::OURSELVES, .. } => self.all_heard = true,
            Heard::Message { pid, message } => self.recording.hear(pid, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wishes_a_job_to_end_interrupts_it_first() {
        let first = Push::after(None, Asked::Wished);
        let second = Push::after(Some(first), Asked::Wished);
        assert_eq!([first, second], [Push::Interrupt, Push::Terminate]);
        for why in [Asked::Timeout, Asked::Recorded] {
            assert_eq!(Push::after(None, why), Push::Terminate);
        }
        assert_eq!(Push::after(Some(second), Asked::Timeout), Push::Kill);
        assert_eq!(Push::after(Some(Push::Kill), Asked::Wished), Push::Kill);
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(Ended::Code(3).exit_code(), 3);
        assert_eq!(Ended::Signal(9).exit_code(), 137);
        assert_eq!(CaptureError::of_start(OsStr::new("x"), io::ErrorKind::NotFound.into()).exit_code(), 127);
        let denied = CaptureError::of_start(OsStr::new("a/train.py"), io::ErrorKind::PermissionDenied.into());
        assert!(denied.to_string().ends_with("start it as `python a/train.py`"), "{denied}");
        assert_eq!(denied.exit_code(), 126);
    }
}
