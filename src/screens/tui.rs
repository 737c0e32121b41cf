//! The terminal program: all uses of ratatui and crossterm are in this module.

mod clipboard;
mod glyphs;
mod input;
mod paint;
#[cfg(unix)]
mod pause;
#[cfg(not(unix))]
mod pause {
    //! Suspending is not supported here.
    pub(super) enum Pause {
        Stop,
        Retake,
    }
    pub(super) struct Pauses;

    impl Pauses {
        pub(super) fn watch() -> std::io::Result<Self> {
            Ok(Self)
        }

        pub(super) async fn requested(&mut self) -> Pause {
            std::future::pending().await
        }
    }
}
mod runner;
mod screenshot;
mod terminal;
mod view;
mod widget;

use std::io;

pub use runner::Line;
pub use screenshot::{draw, render, render_after, screenshot};

use crate::app::{App, Engine, Setup};

/// Everything that the program starts with.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Data and settings.
    pub setup: Setup,
    /// Services that predict, plan and write files.
    pub engine: Engine,
    /// Whether the flag or the settings set the number of colours (else the terminal does).
    pub colours_asked: bool,
}

/// Error of the terminal program.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// The terminal is not usable.
    #[error("the terminal is not usable ({0}); `habitat-tui FILE | cat` gives the same answers without one")]
    Terminal(#[from] io::Error),
    /// An invalid setting.
    #[error("{0}")]
    Setting(String),
    /// The system limits the number of threads.
    #[error(
        "cannot start a thread ({0}); raise the limit (`ulimit -u`), or use `habitat-tui FILE | cat`, which needs only one"
    )]
    Threads(io::Error),
    /// Writing the image failed.
    #[error("{0}")]
    Picture(String),
}

/// Number of threads that the screens need at once: two for events, two for computations.
const THREADS: usize = 4;

/// Checks that threads can be started; otherwise the runtime would end the program.
fn check_threads() -> Result<(), TuiError> {
    let mut started = Vec::new();
    let tried = (0..THREADS).try_for_each(|_| {
        started.push(std::thread::Builder::new().spawn(std::thread::park)?);
        Ok(())
    });
    for thread in started {
        thread.thread().unpark();
        let _ = thread.join();
    }
    tried.map_err(TuiError::Threads)
}

/// Panics if a test requests it, to check that the terminal is restored; compiled out of releases.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub fn panic_if_asked(place: &str) {
    assert!(std::env::var("HABITAT_TUI_TEST_PANIC").as_deref() != Ok(place), "requested by HABITAT_TUI_TEST_PANIC");
}

#[cfg(not(debug_assertions))]
#[doc(hidden)]
pub const fn panic_if_asked(_place: &str) {}

/// Runs until the user quits or a signal arrives. Returns the exit code (128 plus the number of the signal). `line`
/// connects the screens to a running job.
///
/// # Errors
/// [`TuiError`] if the terminal cannot be set up or read.
pub fn run(launch: Launch, line: Option<Line>) -> Result<u8, TuiError> {
    // Under NO_COLOR, crossterm 0.29 turns every colour change into an empty SGR, which also ends reverse and bold, so
    // the selection would vanish. The theme itself removes colours; crossterm must pass on everything.
    crossterm::style::force_color_output(true);
    terminal::install_panic_hook();
    check_threads()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(runner::run(App::new(launch.setup), launch.engine, line));
    // A running solve must not delay the return to the shell.
    runtime.shutdown_background();
    Ok(result?)
}
