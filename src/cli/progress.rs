//! How far a long job is, on standard error: one line that is redrawn on a terminal, a plain
//! line a step elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Instant;

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

    #[test]
    fn lines() {
        let mut progress = Progress::new("linear");
        progress.terminal = false;
        assert_eq!(progress.line(3, 3, "loss 0.1"), "linear 3/3  loss 0.1  0 s gone, about 0 s left");
        progress.terminal = true;
        assert!(progress.line(6, 12, "").starts_with("linear [############............] 6/12"));
    }
}
