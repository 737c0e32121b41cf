//! The job: a process group of its own that behaves in the terminal as if it had been
//! started without us.
//!
//! - Standard input, output and error are inherited, or the latter two go to a file
//!   (`log`).
//! - With a controlling terminal whose foreground we are in, the job gets the foreground,
//!   as a shell would give it: keys such as Ctrl-C and Ctrl-Z reach the job itself, and it
//!   can read. When it stops we stop, and when we are continued it is.
//! - Signals sent to us are passed on.
//! - Our own end, of whatever cause, does not touch it.
//!
//! Or it is kept apart from the terminal, whose foreground stays ours: standard input is
//! empty, output goes to a file, and neither keys nor signals sent to us nor the end of the
//! terminal reach it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use super::error::CaptureError;
use super::event::{Ended, Event};
use crate::live::StopSignal;

/// The signal of Ctrl-C.
pub(super) const INTERRUPT: i32 = SIGINT;
/// The signal of `fg` and `bg`.
pub(super) const CONTINUE: i32 = SIGCONT;

/// Ends the process as the terminal would have, had the job been in our process group: a
/// script that runs us is interrupted too.
pub fn interrupt_ourselves() {
    let _ = killpg(getpgrp(), Signal::SIGINT);
    let _ = signal_hook::low_level::emulate_default_handler(SIGINT);
}

/// The name of a signal: `SIGKILL`, `signal 64` for one without.
pub fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}

/// A running job.
pub(super) struct Job {
    pid: Pid,
    /// Our terminal, where the job may have it.
    terminal: Option<File>,
    /// Whether the job was ever given the terminal.
    had: AtomicBool,
}

/// Starts `command`; its end, its stops and the signals sent to us come as events.
pub(super) fn start(
    command: &[OsString],
    variables: &[(&'static str, OsString)],
    output: Option<PipeWriter>,
    apart: bool,
    events: &Sender<Event>,
) -> Result<Job, CaptureError> {
    let (program, arguments) = command.split_first().ok_or(CaptureError::NoCommand)?;
    let mut job = Command::new(program);
    job.args(arguments).envs(variables.iter().map(|(name, value)| (name, value))).process_group(0);
    if let Some(output) = output {
        let both = output.try_clone().map_err(|source| CaptureError::from_start(program, source))?;
        job.stdout(both).stderr(output);
    }
    if apart {
        job.stdin(Stdio::null());
    }
    let child = job.spawn().map_err(|source| CaptureError::from_start(program, source))?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(|_| CaptureError::NoCommand)?);
    let terminal = if apart { None } else { File::options().read(true).write(true).open("/dev/tty").ok() };
    let job = Job { pid, terminal, had: AtomicBool::new(false) };
    job.to_foreground();
    if !apart {
        // Only now: the job has inherited what was ignored, as under nohup.
        pass_signals(events).map_err(|source| CaptureError::Signals { source })?;
    }
    let events = events.clone();
    thread::spawn(move || wait(pid, &events));
    Ok(job)
}

/// Turns signals sent to us into events.
fn pass_signals(events: &Sender<Event>) -> io::Result<()> {
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT];
    let mut signals = signal_hook::iterator::Signals::new(wanted)?;
    let events = events.clone();
    thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Waits for the job's end, and tells of its stops on the way.
fn wait(pid: Pid, events: &Sender<Event>) {
    loop {
        let event = match waitpid(pid, Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED)) {
            Ok(WaitStatus::Exited(_, code)) => Event::Ended(Ended::Code(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Event::Ended(Ended::Signal(signal as i32)),
            Ok(WaitStatus::Stopped(_, signal)) => {
                // What Ctrl-Z, and reading or writing in the background, end in.
                let by_terminal = matches!(signal, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU);
                Event::Stopped { by_terminal }
            }
            Ok(WaitStatus::Continued(_)) => Event::Continued,
            Ok(_) | Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => Event::Ended(Ended::Unknown),
        };
        let ended = matches!(event, Event::Ended(_));
        if events.send(event).is_err() || ended {
            return;
        }
    }
}

impl Job {
    /// The job's process, which leads its group.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Gives the job the terminal where we have it, and lets it run.
    fn to_foreground(&self) {
        if let Some(terminal) = &self.terminal
            && tcgetpgrp(terminal) == Ok(getpgrp())
            && tcsetpgrp(terminal, self.pid).is_ok()
        {
            self.had.store(true, Ordering::Relaxed);
            // It may have asked for the terminal too early, and have been stopped for it.
            let _ = killpg(self.pid, Signal::SIGCONT);
        }
    }

    /// Whether the job has our terminal, or had it.
    pub(super) fn had_terminal(&self) -> bool {
        self.had.load(Ordering::Relaxed)
    }

    /// Takes the terminal back from the job.
    pub(super) fn to_background(&self) {
        let Some(terminal) = &self.terminal else { return };
        if tcgetpgrp(terminal) != Ok(self.pid) {
            return;
        }
        // A process in the background that asks for the foreground is stopped, unless
        // this signal is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            let _ = tcsetpgrp(terminal, getpgrp());
            let _ = blocked.thread_unblock();
        }
    }

    /// The terminal stopped the job: where it is ours too, our whole process group stops,
    /// as it would have with the job in it, so that the shell sees it and can continue it.
    /// Without a shell to do so the system does not stop us. `false` where nothing is to stop.
    pub(super) fn stop_with_it(&self) -> bool {
        if self.terminal.is_none() {
            return false;
        }
        self.to_background();
        killpg(getpgrp(), Signal::SIGTSTP).is_ok()
    }

    /// Passes on a signal that was sent to us.
    pub(super) fn pass(&self, signal: i32) {
        let Ok(signal) = Signal::try_from(signal) else { return };
        match signal {
            Signal::SIGCONT => {
                self.to_foreground();
                let _ = killpg(self.pid, signal);
            }
            // What a terminal sends goes to the whole group.
            Signal::SIGINT | Signal::SIGQUIT | Signal::SIGHUP => drop(killpg(self.pid, signal)),
            _ => drop(kill(self.pid, signal)),
        }
    }

    /// Asks the job to end, or makes it.
    pub(super) fn send(&self, signal: StopSignal) {
        let signal = match signal {
            StopSignal::Interrupt => Signal::SIGINT,
            StopSignal::Terminate => Signal::SIGTERM,
            StopSignal::Kill => Signal::SIGKILL,
        };
        let _ = killpg(self.pid, signal);
        // One that is stopped would not hear of it.
        let _ = killpg(self.pid, Signal::SIGCONT);
    }
}
