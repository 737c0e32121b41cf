//! Stopping and going on, as the terminal's user, a shell or another program asks for it.
//!
//! `kill -TSTP` from outside is caught, so that the terminal is given back before the process stops;
//! SIGSTOP cannot be caught. After either, SIGCONT says that the terminal is ours again.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGCONT, SIGTSTP};
use tokio::signal::unix::{self, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// To give the terminal back and stop.
    Stop,
    /// To take the terminal again.
    Retake,
}

/// The watch for both signals.
pub(super) struct Pauses {
    stop: unix::Signal,
    go_on: unix::Signal,
    /// Set by the signals themselves, as the streams bring them later.
    stop_came: Arc<AtomicBool>,
    go_on_came: Arc<AtomicBool>,
}

impl Pauses {
    pub(super) fn watch() -> io::Result<Self> {
        let (stop_came, go_on_came) = (Arc::default(), Arc::default());
        signal_hook::flag::register(SIGTSTP, Arc::clone(&stop_came))?;
        signal_hook::flag::register(SIGCONT, Arc::clone(&go_on_came))?;
        let (stop, go_on) = (signal(SignalKind::from_raw(SIGTSTP))?, signal(SignalKind::from_raw(SIGCONT))?);
        Ok(Self { stop, go_on, stop_came, go_on_came })
    }

    /// Waits for one that was not forgotten.
    pub(super) async fn asked(&mut self) -> Pause {
        loop {
            tokio::select! {
                _ = self.stop.recv() => {}
                _ = self.go_on.recv() => {}
            }
            if self.stop_came.swap(false, Ordering::SeqCst) {
                return Pause::Stop;
            }
            if self.go_on_came.swap(false, Ordering::SeqCst) {
                return Pause::Retake;
            }
        }
    }

    /// Forgets those that came with a stop of our own.
    pub(super) fn forget(&self) {
        self.stop_came.store(false, Ordering::SeqCst);
        self.go_on_came.store(false, Ordering::SeqCst);
    }
}

/// Stops the process group until it is continued.
pub(super) fn stop_group() -> io::Result<()> {
    // The whole group, so that a wrapper such as `cargo run` stops too. We catch the signal; the
    // shell does not. Where no other shell could continue the group, the kernel stops nobody, and
    // neither do we.
    let mut shell = Command::new("sh").args(["-c", "kill -TSTP 0"]).spawn()?;
    let id = Pid::from_raw(shell.id().cast_signed());
    if let WaitStatus::Stopped(..) = waitpid(id, Some(WaitPidFlag::WUNTRACED))? {
        raise(Signal::SIGSTOP)?;
        // Whoever continued us alone left it stopped.
        kill(id, Signal::SIGCONT)?;
        shell.wait()?;
    }
    Ok(())
}
