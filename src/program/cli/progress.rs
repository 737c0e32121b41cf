//! Progress of a long job on standard error: one line that is redrawn on a terminal, otherwise one plain line per step.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::store::traces;
use habitat_base::text::clean;

const BAR: usize = 24;

/// Progress of a job.
#[derive(Debug)]
pub struct Progress {
    what: String,
    started: Instant,
    /// Steps done in an earlier run.
    before: u32,
    terminal: bool,
}

impl Progress {
    /// Starts now.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), started: Instant::now(), before: 0, terminal: std::io::stderr().is_terminal() }
    }

    /// Shows that `done` of `all` steps are done, with a `detail`.
    pub fn show(&mut self, done: u32, all: u32, detail: &str) {
        let err = &mut std::io::stderr();
        let line = self.line(done, all, detail);
        // Ignore a closed output: it is not a reason to stop.
        let _ = if self.terminal { write!(err, "\r\x1b[K{line}") } else { writeln!(err, "{line}") };
        let _ = err.flush();
    }

    /// Sets the number of steps done in an earlier run.
    pub fn resume(&mut self, done: u32) {
        self.before = done;
    }

    /// Ends the line.
    pub fn end(&self) {
        if self.terminal {
            let _ = writeln!(std::io::stderr());
        }
    }

    fn line(&self, done: u32, all: u32, detail: &str) -> String {
        let elapsed = self.started.elapsed().as_secs_f64();
        let own = done.saturating_sub(self.before).max(1);
        let left = elapsed / f64::from(own) * f64::from(all.saturating_sub(done));
        let filled = (BAR as f64 * f64::from(done) / f64::from(all.max(1))).round() as usize;
        let bar = if self.terminal {
            format!("[{}{}] ", "#".repeat(filled.min(BAR)), ".".repeat(BAR - filled.min(BAR)))
        } else {
            String::new()
        };
        format!("{} {bar}{done}/{all}  {detail}  {} elapsed, about {} left", self.what, span(elapsed), span(left))
    }
}

/// Whether the screens own the terminal, so that no progress may be printed.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Turns off progress output of reading.
pub(super) fn silence() {
    IS_SILENT.store(true, Ordering::Relaxed);
}

/// Progress of reading traces: one line on a terminal, cleared at the end; nothing elsewhere.
#[derive(Debug)]
pub(super) struct Reading {
    what: String,
    /// Total size of the files in bytes; `None` if unknown, as for pipes.
    size: Option<u64>,
    began: Instant,
    next: Instant,
    was_shown: bool,
    is_shown: bool,
}

impl Reading {
    /// Delay before the first line (most files are read by then) and between updates.
    const QUIET: Duration = Duration::from_millis(300);

    /// Starts the progress of traces that are read together.
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let what = match paths {
            [path] => clean(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy(), 40),
            _ => format!("{} traces", paths.len()),
        };
        let size = |path: &PathBuf| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|it| it.len());
        let now = Instant::now();
        Self {
            what,
            size: paths.iter().map(size).sum(),
            began: now,
            next: now + Self::QUIET,
            was_shown: false,
            is_shown: std::io::stderr().is_terminal() && !IS_SILENT.load(Ordering::Relaxed),
        }
    }

    /// Shows the progress if standard error is a terminal. Never stops the reading.
    pub(super) fn show(&mut self, progress: traces::Progress) -> ControlFlow<()> {
        let now = Instant::now();
        if self.is_shown && now >= self.next {
            (self.was_shown, self.next) = (true, now + Self::QUIET);
            let err = &mut std::io::stderr();
            // Ignore a closed output: it is not a reason to stop.
            let _ = write!(err, "\r\x1b[K{}", self.line(progress, now)).and_then(|()| err.flush());
        }
        ControlFlow::Continue(())
    }

    /// Clears the line.
    pub(super) fn end(&self) {
        if self.was_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn line(&self, progress: traces::Progress, now: Instant) -> String {
        let traces::Progress { text, read } = progress;
        let size = self.size.filter(|size| (1..=*size).contains(&read));
        let left = size.map_or_else(String::new, |size| {
            let gone = now.duration_since(self.began).as_secs_f64();
            let left = gone * (size - read) as f64 / read as f64;
            format!(", {} %, about {} left", 100 * read / size, span(left))
        });
        format!("reading {}: {} MB of text{left}; Ctrl-C to cancel", self.what, text >> 20)
    }
}

/// Formats seconds as `12 s`, `3 min 20 s` or `2 h 5 min`.
pub fn span(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        assert_eq!([span(0.4), span(75.0), span(7500.0)], ["0 s", "1 min 15 s", "2 h 5 min"]);
    }

    /// Compressed traces show the remaining share of the files, too.
    #[test]
    fn reading_says_how_much_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, packed] = ["a.json", "b.json.gz"].map(|name| folder.path().join(name));
        std::fs::write(&plain, vec![b' '; 8 << 20]).unwrap();
        let line = |paths: &[PathBuf], text: u64, read: u64| {
            let reading = Reading::new(paths);
            let progress = traces::Progress { text: text << 20, read: read << 20 };
            reading.line(progress, reading.began + Duration::from_secs(5))
        };
        let one = [plain.clone()];
        assert_eq!(line(&one, 2, 2), "reading a.json: 2 MB of text, 25 %, about 15 s left; Ctrl-C to cancel");
        std::fs::write(&packed, vec![b' '; 2 << 20]).unwrap();
        let both = [plain, packed];
        assert_eq!(line(&both, 90, 5), "reading 2 traces: 90 MB of text, 50 %, about 5 s left; Ctrl-C to cancel");
        // Nothing read yet, or the size is unknown.
        assert_eq!(line(&both, 0, 0), "reading 2 traces: 0 MB of text; Ctrl-C to cancel");
        let pipe = [folder.path().join("pipe")];
        assert_eq!(line(&pipe, 3, 1), "reading pipe: 3 MB of text; Ctrl-C to cancel");
    }

    #[test]
    fn lines() {
        let mut progress = Progress::new("linear");
        progress.terminal = false;
        assert_eq!(progress.line(3, 3, "loss 0.1"), "linear 3/3  loss 0.1  0 s elapsed, about 0 s left");
        progress.terminal = true;
        assert!(progress.line(6, 12, "").starts_with("linear [############............] 6/12"));
    }
}
