//! Makes profiles of the recording so far in a thread of its own: reading a trace takes time, and the job must be
//! followed meanwhile.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::cli::error::CliError;
use crate::cli::run::session::Session;
use habitat_recorder::capture::Recording;
use habitat_recorder::capture::assemble::Assembled;
use habitat_recorder::live::{Exchange, Update};

/// Growth factor of the number of timed steps that justifies another profile.
const MORE: usize = 4;
/// Timed steps that justify a profile.
const ENOUGH: usize = 20;

type Made = Option<Result<Assembled, CliError>>;

/// Thread that makes profiles.
pub(super) struct Maker {
    requests: Sender<(Recording, PathBuf)>,
    thread: JoinHandle<Made>,
    /// Windows and timed steps of the last profile.
    last: (usize, usize),
    /// Waiting times between the recorded ranks of the last profile.
    exchanges: Exchanges,
}

/// By process id of each rank.
type Exchanges = Arc<Mutex<Vec<(u32, Exchange)>>>;

impl Maker {
    /// Starts the thread that makes the profile of `session`.
    pub(super) fn new(session: Session, news: Sender<Update>) -> Self {
        let exchanges = Exchanges::default();
        let made_of = exchanges.clone();
        let (requests, asked) = mpsc::channel::<(Recording, PathBuf)>();
        let thread = std::thread::spawn(move || {
            let mut made: Made = None;
            let mut is_ours = session.args.force;
            while let Ok(mut request) = asked.recv() {
                while let Ok(newer) = asked.try_recv() {
                    request = newer;
                }
                let written = session.write(&request.0, &request.1, is_ours);
                is_ours |= written.is_ok();
                if let Ok(assembled) = &written {
                    made_of.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&assembled.exchanges);
                }
                // The screens may be closed already.
                let _ = news.send(match &written {
                    Ok(assembled) => Update::Recorded(Box::new(assembled.profile.clone())),
                    Err(error) => Update::NotWritten(error.to_string()),
                });
                made = Some(written);
            }
            made
        });
        Self { requests, thread, last: (0, 0), exchanges }
    }

    /// Waiting times between the recorded ranks of the last profile.
    pub(super) fn exchanges(&self) -> Vec<(u32, Exchange)> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a profile if there is a new window, or if many more steps were timed.
    pub(super) fn consider(&mut self, recording: &Recording, folder: &Path) {
        let now = counted(recording);
        if is_due(self.last, now) {
            self.last = now;
            // The thread ends only with this sender, or by a panic that `finish` reports.
            let _ = self.requests.send((recording.clone(), folder.to_owned()));
        }
    }

    /// The last profile of a job that has ended or was left; `None` if nothing was recorded.
    pub(super) fn finish(mut self, recording: &Recording, folder: &Path) -> Made {
        let now = counted(recording);
        if now.0 > 0 && now.1 > self.last.1 + self.last.1 / 10 {
            self.last = (0, 0);
        }
        self.consider(recording, folder);
        drop(self.requests);
        self.thread.join().unwrap_or_else(|_| {
            Some(Err(CliError::other("internal error, please report it; the job and the traces are not affected")))
        })
    }
}

/// Windows of all processes, and timed steps of the first one.
fn counted(recording: &Recording) -> (usize, usize) {
    let recorded = recording.recorded();
    let windows = recorded.iter().map(|process| process.written as usize).sum();
    (windows, recorded.first().map_or(0, |process| process.times.len()))
}

fn is_due((windows, timed): (usize, usize), now: (usize, usize)) -> bool {
    let settled = now.1 >= ENOUGH && now.1 >= MORE * timed.max(ENOUGH / MORE);
    now.0 > 0 && (now.0 != windows || settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_due_with_a_window_and_when_many_more_steps_are_timed() {
        assert!(!is_due((0, 0), (0, 500)), "no window");
        assert!(is_due((0, 0), (1, 0)));
        assert!(is_due((1, 9), (2, 9)));
        assert!(!is_due((1, 3), (1, 19)));
        assert!(is_due((1, 3), (1, 20)));
        assert!(!is_due((1, 20), (1, 79)));
        assert!(is_due((1, 20), (1, 80)));
    }
}
