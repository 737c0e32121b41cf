//! Launches the job in a process group of its own, so that it behaves in the terminal as if started without us.
//!
//! - Standard input, output and error are inherited, or output and error go to a file (`log`).
//! - If we are in the foreground of a controlling terminal, the job gets the foreground, as from a shell: keys such as
//!   Ctrl-C and Ctrl-Z reach the job itself, and it can read. When it stops, we stop; when we are continued, so is the
//!   job.
//! - Signals sent to us are passed on.
//! - Our own end, for whatever cause, does not affect it.
//!
//! Alternatively it is kept apart from the terminal, whose foreground stays ours: standard input is empty, output goes
//! to a file, and neither keys, nor signals sent to us, nor the end of the terminal reach it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};

use super::error::CaptureError;
use super::event::{Event, JobExit};
use crate::live::StopSignal;

/// The signal of Ctrl-C.
pub(super) const INTERRUPT: i32 = SIGINT;
/// The signal of `fg` and `bg`.
pub(super) const CONTINUE: i32 = SIGCONT;

/// Ends this process as the terminal would have, had the job been in our process group: a script that runs us is
/// interrupted too.
pub fn interrupt_ourselves() {
    let _ = killpg(getpgrp(), Signal::SIGINT);
    let _ = signal_hook::low_level::emulate_default_handler(SIGINT);
}

/// Gives this process a session of its own, out of reach of the terminal's keys and hang-up.
pub fn leave_terminal() {
    // It fails only for the leader of a process group, which nobody made this one.
    let _ = nix::unistd::setsid();
}

/// Keeps signals from ending this process, which keeps a job. The returned flag is set by those that ask it to stop the
/// job. Call it after the job was started, which would inherit ignored signals otherwise.
///
/// # Errors
/// Errors of the system.
pub fn stop_signals() -> io::Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGXFSZ] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, asked.clone())?;
    }
    Ok(asked)
}

/// Whether a process exists.
#[cfg(not(target_os = "linux"))]
pub(super) fn exists(pid: u32) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), None).is_ok())
}

/// Name of a signal, such as `SIGKILL`, or `signal 64` if it has none.
pub fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}

/// A running job.
pub(super) struct Job {
    pid: Pid,
    /// Our terminal, if the job may have it.
    terminal: Option<File>,
    /// Whether the job ever had the terminal.
    had: AtomicBool,
}

/// Starts `command`; sends its end, its stops and signals to us as events.
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
        // Only now: the job has inherited ignored signals, as under nohup.
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

/// Waits for the job's end and reports its stops meanwhile.
fn wait(pid: Pid, events: &Sender<Event>) {
    loop {
        let event = match waitpid(pid, Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED)) {
            Ok(WaitStatus::Exited(_, code)) => Event::Ended(JobExit::Code(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Event::Ended(JobExit::Signal(signal as i32)),
            Ok(WaitStatus::Stopped(_, signal)) => {
                // Stop signals of Ctrl-Z, and of reading or writing in the background.
                let by_terminal = matches!(signal, Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU);
                Event::Stopped { by_terminal }
            }
            Ok(WaitStatus::Continued(_)) => Event::Continued,
            Ok(_) | Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => Event::Ended(JobExit::Unknown),
        };
        let ended = matches!(event, Event::Ended(_));
        if events.send(event).is_err() || ended {
            return;
        }
    }
}

impl Job {
    /// Process id of the job, which leads its group.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Gives the job the terminal if we have it, and continues it.
    fn to_foreground(&self) {
        if let Some(terminal) = &self.terminal
            && tcgetpgrp(terminal) == Ok(getpgrp())
            && tcsetpgrp(terminal, self.pid).is_ok()
        {
            self.had.store(true, Ordering::Relaxed);
            // It may have requested the terminal too early and been stopped.
            let _ = killpg(self.pid, Signal::SIGCONT);
        }
    }

    /// Whether the job has or had our terminal.
    pub(super) fn had_terminal(&self) -> bool {
        self.had.load(Ordering::Relaxed)
    }

    /// Takes the terminal back from the job.
    pub(super) fn to_background(&self) {
        let Some(terminal) = &self.terminal else { return };
        if tcgetpgrp(terminal) != Ok(self.pid) {
            return;
        }
        // A background process that requests the foreground is stopped, unless this signal is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            let _ = tcsetpgrp(terminal, getpgrp());
            let _ = blocked.thread_unblock();
        }
    }

    /// Reacts to the terminal stopping the job. If the terminal is also ours, stops our whole process group, as if the
    /// job were in it, so that the shell notices and can continue it. Without a shell the system does not stop us.
    /// Returns `false` if there is nothing to stop.
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
            // Terminals send these to the whole group.
            Signal::SIGINT | Signal::SIGQUIT | Signal::SIGHUP => drop(killpg(self.pid, signal)),
            _ => drop(kill(self.pid, signal)),
        }
    }

    /// Asks the job to end, or kills it.
    pub(super) fn send(&self, signal: StopSignal) {
        let signal = match signal {
            StopSignal::Interrupt => Signal::SIGINT,
            StopSignal::Terminate => Signal::SIGTERM,
            StopSignal::Kill => Signal::SIGKILL,
        };
        let _ = killpg(self.pid, signal);
        // A stopped process would not receive the signal.
        let _ = killpg(self.pid, Signal::SIGCONT);
    }
}
