//! Opens the window after a delay, and closes it: after its time, when it is full, or when the process ends.
//!
//! All of this runs on a thread of this library. Only if the process ends normally inside the window, its last thread
//! writes the trace: the other thread may get no CPU time then.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::collect::Collected;
use crate::library::{self, Cupti, Subscription};
use crate::settings::Settings;
use crate::talk::{self, Line};
use crate::{buffers, system, trace};

/// Stage of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the window.
    Waiting,
    /// Being opened.
    Opening,
    /// Within the window.
    Recording,
    /// Being closed and written.
    Closing,
    /// Over, in whatever way.
    Done,
}

/// An open window.
#[derive(Debug, Clone, Copy)]
struct Window {
    subscription: Subscription,
    since: Instant,
}

struct State {
    stage: Stage,
    window: Option<Window>,
}

static STATE: Mutex<State> = Mutex::new(State { stage: Stage::Waiting, window: None });
static CHANGED: Condvar = Condvar::new();
static LINE: Mutex<Option<Line>> = Mutex::new(None);
static STARTED: OnceLock<(Instant, Settings)> = OnceLock::new();

/// Seconds between looks at an open window.
const LOOK: Duration = Duration::from_millis(100);
/// From the end of recording to the last records: work that was launched before still finishes.
const SETTLE: Duration = Duration::from_millis(100);
/// Longest extension of a window in which nothing runs: a program may load data and kernels long after it started CUDA.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait of the process's end for a window that is opening.
const OPENING: Duration = Duration::from_secs(2);
/// Longest wait of the process's end for a trace that is being written.
const WRITING: Duration = Duration::from_secs(10);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn enter(stage: Stage) {
    locked(&STATE).stage = stage;
    CHANGED.notify_all();
}

/// Moves from one stage to another, unless the stage has changed.
fn step(from: Stage, to: Stage) -> bool {
    let mut state = locked(&STATE);
    let fits = state.stage == from;
    if fits {
        state.stage = to;
        CHANGED.notify_all();
    }
    fits
}

fn say(message: &serde_json::Value) {
    if let Some(line) = locked(&LINE).as_mut() {
        line.say(message);
    }
}

fn is_heard() -> bool {
    locked(&LINE).as_ref().is_some_and(|line| line.descriptor().is_some())
}

/// Starts the recording of this process, on its own thread.
pub fn start(settings: Settings) {
    if STARTED.set((Instant::now(), settings)).is_ok() && system::at_exit(at_exit) {
        let _ = system::start_thread(|| {
            if std::panic::catch_unwind(conduct).is_err() {
                enter(Stage::Done);
            }
        });
    }
}

fn conduct() {
    let Some((started, settings)) = STARTED.get() else { return };
    let Ok(line) = Line::open(&settings.socket) else { return enter(Stage::Done) };
    system::close_in_children(line.descriptor());
    *locked(&LINE) = Some(line);
    let state = locked(&STATE);
    let rest = settings.after.saturating_sub(started.elapsed());
    let waiting = CHANGED.wait_timeout_while(state, rest, |state| state.stage == Stage::Waiting);
    drop(waiting);
    // Do not record if the listener is gone.
    say(&json!({"type": "ping"}));
    if !is_heard() || !step(Stage::Waiting, Stage::Opening) {
        return;
    }
    match open() {
        Ok((cupti, window, cost)) => {
            locked(&STATE).window = Some(window);
            enter(Stage::Recording);
            say(&talk::opened(cost));
            watch(cupti, settings, window);
        }
        Err(reason) => {
            enter(Stage::Done);
            say(&talk::refused(&reason));
        }
    }
}

fn open() -> Result<(&'static Cupti, Window, Duration), String> {
    let since = Instant::now();
    let cupti = library::cupti()?;
    buffers::open();
    match cupti.start(buffers::requested, buffers::completed) {
        Ok(subscription) => Ok((cupti, Window { subscription, since: Instant::now() }, since.elapsed())),
        Err(reason) => {
            drop(buffers::close());
            Err(reason)
        }
    }
}

/// Waits for the end of the window, which starts again while nothing has run.
fn watch(cupti: &Cupti, settings: &Settings, window: Window) {
    let mut since = window.since;
    while !buffers::is_full() {
        if since.elapsed() >= settings.length {
            cupti.deliver();
            if buffers::have_work() || window.since.elapsed() >= settings.length + PATIENCE {
                break;
            }
            since = Instant::now();
        }
        let rest = settings.length.saturating_sub(since.elapsed()).min(LOOK);
        let state = locked(&STATE);
        if state.stage != Stage::Recording {
            return;
        }
        drop(CHANGED.wait_timeout(state, rest));
    }
    if step(Stage::Recording, Stage::Closing) {
        close(cupti, settings, window, SETTLE);
        enter(Stage::Done);
    }
}

/// Ends the window and writes its records.
fn close(cupti: &Cupti, settings: &Settings, window: Window, settle: Duration) {
    let began = Instant::now();
    let seconds = window.since.elapsed().as_secs_f64();
    cupti.stop_kinds();
    let cost = began.elapsed();
    std::thread::sleep(settle);
    let dropped = cupti.flush();
    cupti.unsubscribe(window.subscription);
    say(&talk::closed(cost));
    let mut collected = buffers::close();
    collected.lost += dropped;
    if collected.work.is_empty() {
        let reason = format!("nothing ran on a GPU in the {seconds:.1} s of the window");
        return say(&talk::dropped(&reason));
    }
    let began = Instant::now();
    let file = format!("cupti-{}-1.json", std::process::id());
    match write(cupti, &collected, &settings.folder, &file) {
        Ok(bytes) => {
            say(&talk::written(&file, bytes, began.elapsed(), collected.kernels, collected.lost, seconds));
        }
        Err(error) => say(&talk::dropped(&format!("the trace could not be written: {error}"))),
    }
}

/// Writes the trace under a temporary name first, so that an announced file is complete.
fn write(cupti: &Cupti, collected: &Collected, folder: &Path, file: &str) -> io::Result<u64> {
    // At the process's end this is a thread of the program.
    system::bear_short_files();
    let (part, whole) = (folder.join(format!("{file}.part")), folder.join(file));
    let written = (|| {
        let mut out = BufWriter::with_capacity(1 << 16, File::create(&part)?);
        let driver = library::driver_version().unwrap_or(0);
        trace::write(&mut out, collected, &library::devices(), driver, &|of_driver, number| {
            cupti.function(of_driver, number)
        })?;
        out.flush()?;
        fs::rename(&part, &whole)?;
        Ok(fs::metadata(&whole)?.len())
    })();
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// Runs when the process exits normally.
extern "C" fn at_exit() {
    // A child of the process has nothing to end.
    if system::is_at_home() {
        let _ = std::panic::catch_unwind(last_words);
    }
}

fn last_words() {
    let Some((started, settings)) = STARTED.get() else { return };
    let state = locked(&STATE);
    let (state, _) = CHANGED
        .wait_timeout_while(state, OPENING, |state| state.stage == Stage::Opening)
        .unwrap_or_else(PoisonError::into_inner);
    let (reached, open) = (state.stage, state.window);
    drop(state);
    match (reached, open, library_if(reached)) {
        (Stage::Waiting, ..) if step(Stage::Waiting, Stage::Done) => {
            say(&talk::dropped(&format!(
                "the program ended {:.1} s after it started CUDA, and the window opens after {:.1} s; try a smaller \
                 --after-seconds",
                started.elapsed().as_secs_f64(),
                settings.after.as_secs_f64()
            )));
        }
        (Stage::Recording, Some(window), Some(cupti)) if step(Stage::Recording, Stage::Closing) => {
            close(cupti, settings, window, Duration::ZERO);
            enter(Stage::Done);
        }
        _ => {
            let state = locked(&STATE);
            drop(CHANGED.wait_timeout_while(state, WRITING, |state| state.stage == Stage::Closing));
        }
    }
    say(&talk::exit());
}

/// CUPTI, if it is loaded: do not load it at the end of a process.
fn library_if(stage: Stage) -> Option<&'static Cupti> {
    if stage == Stage::Recording { library::cupti().ok() } else { None }
}
