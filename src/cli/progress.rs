//! How far a long job is, on standard error: one line that is redrawn on a terminal, a plain
//! line a step elsewhere.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::text::clean;
use crate::trace;

const BAR: usize = 24;

/// A job's progress.
#[derive(Debug)]
pub struct Progress {
    what: String,
    started: Instant,
    /// Steps that were done before it started.
    before: u32,
    terminal: bool,
}

impl Progress {
    /// A job that begins now.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), started: Instant::now(), before: 0, terminal: std::io::stderr().is_terminal() }
    }

    /// `done` of `all` steps are done; `detail` says more.
    pub fn show(&mut self, done: u32, all: u32, detail: &str) {
        let err = &mut std::io::stderr();
        let line = self.line(done, all, detail);
        // Nobody reads it: no reason to stop.
        let _ = if self.terminal { write!(err, "\r\x1b[K{line}") } else { writeln!(err, "{line}") };
        let _ = err.flush();
    }

    /// Says that an earlier run was ahead by that many steps.
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
        format!("{} {bar}{done}/{all}  {detail}  {} gone, about {} left", self.what, span(elapsed), span(left))
    }
}

/// Whether the screens have the terminal, where no line of progress may be written.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Writes no progress of reading from now on.
pub(super) fn silence() {
    IS_SILENT.store(true, Ordering::Relaxed);
}

/// How far traces are read: one line on a terminal that goes away at the end; nothing elsewhere.
#[derive(Debug)]
pub(super) struct Reading {
    names: Vec<String>,
    /// Bytes of text a pass, by trace; `None` where it is not known yet.
    sizes: Vec<Option<u64>>,
    at: trace::Progress,
    pass_began: Instant,
    shown: Option<Instant>,
    next: Instant,
    is_shown: bool,
}

impl Reading {
    /// How long nothing is shown, since most files are read by then, and between two lines.
    const QUIET: Duration = Duration::from_millis(300);

    /// Of traces that are read one after another.
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        let name = |path: &PathBuf| clean(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy(), 40);
        let now = Instant::now();
        Self {
            names: paths.iter().map(name).collect(),
            sizes: paths.iter().map(|path| plain_size(path)).collect(),
            at: trace::Progress { rank: 0, pass: 0, bytes: 0, events: 0 },
            pass_began: now,
            shown: None,
            next: now + Self::QUIET,
            is_shown: std::io::stderr().is_terminal() && !IS_SILENT.load(Ordering::Relaxed),
        }
    }

    /// Shows how far it is, where somebody can see it; never ends the reading.
    pub(super) fn show(&mut self, progress: trace::Progress) -> ControlFlow<()> {
        if self.is_shown {
            let now = Instant::now();
            self.note(progress, now);
            if now >= self.next {
                (self.shown, self.next) = (Some(now), now + Self::QUIET);
                let err = &mut std::io::stderr();
                // Nobody reads it: no reason to stop.
                let _ = write!(err, "\r\x1b[K{}", self.line(now)).and_then(|()| err.flush());
            }
        }
        ControlFlow::Continue(())
    }

    /// Takes the line away.
    pub(super) fn end(&self) {
        if self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn note(&mut self, progress: trace::Progress, now: Instant) {
        if (progress.rank, progress.pass) != (self.at.rank, self.at.pass) {
            // The first pass has shown how much text it is.
            if progress.rank == self.at.rank && self.at.pass > 0 {
                let known = &mut self.sizes[progress.rank];
                *known = Some(known.unwrap_or(0).max(self.at.bytes));
            }
            self.pass_began = now;
        }
        self.at = progress;
    }

    fn line(&self, now: Instant) -> String {
        let trace::Progress { rank, pass, bytes, .. } = self.at;
        let of = if self.names.len() > 1 { format!(" ({} of {})", rank + 1, self.names.len()) } else { String::new() };
        let size = self.sizes[rank].filter(|size| *size >= bytes && bytes > 0);
        let left = size.map_or_else(String::new, |size| {
            let gone = now.duration_since(self.pass_began).as_secs_f64();
            let left = gone * (size - bytes) as f64 / bytes as f64;
            format!(" of {} MB, about {} left", size >> 20, span(left))
        });
        let pass = if pass > 1 { format!(", again (pass {pass})") } else { String::new() };
        format!("reading {}{of}{pass}: {} MB{left}; Ctrl-C ends it", self.names[rank], bytes >> 20)
    }
}

/// The size of a file that is read as it is; of a compressed one or a pipe nothing is known.
fn plain_size(path: &Path) -> Option<u64> {
    let is_compressed = path.extension().is_some_and(|extension| extension == "gz" || extension == "zst");
    std::fs::metadata(path).ok().filter(|there| there.is_file() && !is_compressed).map(|there| there.len())
}

/// Seconds as `12 s`, `3 min 20 s` or `2 h 5 min`.
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

    /// Of a compressed trace, how much text it holds is known from the first pass; of a plain one
    /// from the beginning.
    #[test]
    fn reading_says_how_much_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("a.json");
        std::fs::write(&plain, vec![b' '; 8 << 20]).unwrap();
        let mut reading = Reading::new(&[plain, folder.path().join("b.json.gz")]);
        let began = reading.pass_began;
        let mut at = |rank, pass, megabytes: u64, seconds| {
            let now = began + Duration::from_secs(seconds);
            reading.note(trace::Progress { rank, pass, bytes: megabytes << 20, events: 1 }, now);
            reading.line(now)
        };
        at(0, 1, 0, 0);
        assert_eq!(at(0, 1, 2, 5), "reading a.json (1 of 2): 2 MB of 8 MB, about 15 s left; Ctrl-C ends it");
        assert_eq!(at(1, 1, 30, 20), "reading b.json.gz (2 of 2): 30 MB; Ctrl-C ends it");
        at(1, 2, 0, 30);
        assert_eq!(
            at(1, 2, 10, 32),
            "reading b.json.gz (2 of 2), again (pass 2): 10 MB of 30 MB, about 4 s left; Ctrl-C ends it"
        );
    }

    #[test]
    fn lines() {
        let mut progress = Progress::new("linear");
        progress.terminal = false;
        assert_eq!(progress.line(3, 3, "loss 0.1"), "linear 3/3  loss 0.1  0 s gone, about 0 s left");
        progress.terminal = true;
        assert!(progress.line(6, 12, "").starts_with("linear [############............] 6/12"));
    }
}
