//! Suspending and resuming, requested by the user, a shell or another program.
//!
//! `kill -TSTP` from outside is caught, so that the terminal is restored before the process stops; SIGSTOP cannot be
//! caught. After either, SIGCONT signals that the terminal is ours again.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGCONT, SIGTSTP};
use tokio::signal::unix::{self, SignalKind, signal};

/// Request of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// Restore the terminal and stop.
    Stop,
    /// Take over the terminal again.
    Retake,
}

/// Watches both signals.
pub(super) struct Pauses {
    stop: unix::Signal,
    go_on: unix::Signal,
    /// Set by the signal handlers, as the streams deliver signals later.
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

    /// Waits for a signal that was not discarded.
    pub(super) async fn requested(&mut self) -> Pause {
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

    /// Discards signals that belong to our own stop.
    pub(super) fn forget(&self) {
        self.stop_came.store(false, Ordering::SeqCst);
        self.go_on_came.store(false, Ordering::SeqCst);
    }
}

/// Stops the process group until it is continued.
pub(super) fn stop_group() -> io::Result<()> {
    // Stops the whole group, so that a wrapper such as `cargo run` stops, too. This process catches the signal; the
    // shell does not. If no other shell could continue the group, the kernel does not stop it, and neither do we.
    let mut shell = Command::new("sh").args(["-c", "kill -TSTP 0"]).spawn()?;
    let id = Pid::from_raw(shell.id().cast_signed());
    if let WaitStatus::Stopped(..) = waitpid(id, Some(WaitPidFlag::WUNTRACED))? {
        raise(Signal::SIGSTOP)?;
        // If only this process was continued, continue the shell as well.
        kill(id, Signal::SIGCONT)?;
        shell.wait()?;
    }
    Ok(())
}
