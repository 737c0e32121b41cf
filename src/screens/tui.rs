//! The terminal program: everything that names ratatui or crossterm is below this module.

mod clipboard;
mod input;
mod paint;
#[cfg(unix)]
mod pause;
#[cfg(not(unix))]
mod pause {
    //! Nothing stops a process here.
    pub(super) enum Pause {
        Stop,
        Retake,
    }
    pub(super) struct Pauses;

    impl Pauses {
        pub(super) fn watch() -> std::io::Result<Self> {
            Ok(Self)
        }

        pub(super) async fn asked(&mut self) -> Pause {
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

/// What the program starts with.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Data and settings.
    pub setup: Setup,
    /// What predicts, plans and writes files.
    pub engine: Engine,
    /// Whether flag or settings say how many colours (else the terminal does).
    pub colours_asked: bool,
}

/// Why the terminal program could not run.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// The terminal refused.
    #[error("the terminal cannot be used ({0}); `habitat-tui FILE | cat` gives the same answers without one")]
    Terminal(#[from] io::Error),
    /// A setting cannot be used.
    #[error("{0}")]
    Setting(String),
    /// The system gives this process no more threads.
    #[error(
        "no thread can be started ({0}); raise the limit (`ulimit -u`), or `habitat-tui FILE | cat` gives the same answers in one"
    )]
    Threads(io::Error),
    /// The picture was not written.
    #[error("{0}")]
    Picture(String),
}

/// Threads that the screens need at once: two for events, two for answers.
const THREADS: usize = 4;

/// The runtime ends the program where it cannot start its threads, so it is tried before.
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

/// A panic where a test asks for one, to see what becomes of the terminal; a release never looks.
#[cfg(debug_assertions)]
#[doc(hidden)]
pub fn panic_if_asked(place: &str) {
    assert!(std::env::var("HABITAT_TUI_TEST_PANIC").as_deref() != Ok(place), "asked for by HABITAT_TUI_TEST_PANIC");
}

#[cfg(not(debug_assertions))]
#[doc(hidden)]
pub const fn panic_if_asked(_place: &str) {}

/// Runs until the user quits or the system ends the screens; returns the exit code (128 plus
/// the signal's number). `line` connects the screens to a running job.
///
/// # Errors
/// [`TuiError`] if the terminal cannot be set up or read.
pub fn run(launch: Launch, line: Option<Line>) -> Result<u8, TuiError> {
    // Under NO_COLOR crossterm 0.29 turns every colour change into an empty SGR, which
    // also ends reverse and bold, so the selection would vanish. The theme leaves colours
    // out by itself; crossterm must pass on what it is given.
    crossterm::style::force_color_output(true);
    terminal::install_panic_hook();
    check_threads()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(runner::run(App::new(launch.setup), launch.engine, line));
    // A solve that is still running must not keep the shell waiting.
    runtime.shutdown_background();
    Ok(result?)
}
