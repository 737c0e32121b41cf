//! Looks on a job that another process keeps: reads the files that it writes, and asks it to stop the job.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use super::log::Log;
use crate::cli::error::CliError;
use crate::store::history::HistoryReader;
use crate::store::jobs::{JobFolder, KeptJob, KeptState};
use crate::store::read_profile;
use crate::terminal;
use habitat_recorder::live::{self, Standing, Update};
use habitat_reports::kept;

/// Time between two looks at the files.
const PACE: Duration = Duration::from_millis(250);
/// Looks between two at the history, which changes slowly.
const HISTORY_EVERY: u32 = 20;
/// Maximum number of updates that wait for their reader: with more, looking waits, so that a slow reader costs no memory. More than
/// come between two frames.
const WAITING: usize = 16;
/// Slices of the history: more than a screen is wide.
const SLICES: usize = 240;

/// Opens the connection to a job. Its exit code becomes ours if `passes_code`, once it has ended.
pub(in crate::cli) fn follow(folder: JobFolder, passes_code: bool) -> Result<live::Session, CliError> {
    let kept = folder.job()?;
    let (news, updates) = mpsc::sync_channel(WAITING);
    let mut viewer = Viewer {
        folder: folder.clone(),
        history: HistoryReader::new(&folder),
        log: Log::new(kept.log.clone()),
        kept,
        shown: None,
        until_history: Some(0),
        news,
    };
    let job = viewer.kept.job.clone();
    // It ends with the program, or when nobody receives any more.
    std::thread::spawn(move || {
        while viewer.look() {
            std::thread::sleep(PACE);
        }
    });
    let asked = folder.clone();
    Ok(live::Session {
        job,
        updates,
        control: Arc::new(move |live::JobRequest::Stop| {
            // If the disk is full, the state shows no signal.
            let _ = asked.ask_to_stop();
        }),
        finish: Box::new(move || leave(&folder, passes_code)),
    })
}

/// The state of a job that may have lost the process that keeps it.
pub(in crate::cli) fn seen(folder: &JobFolder, job: &KeptJob) -> Result<(Standing, KeptState), CliError> {
    let (standing, mut state) = folder.look(job)?;
    if let Some(shown) = kept::state(&standing) {
        state.seen.state = shown;
    }
    Ok((standing, state))
}

/// Prints the report of a job that has ended, or how to look at it again.
fn leave(folder: &JobFolder, passes_code: bool) -> u8 {
    let Ok(job) = folder.job() else { return 0 };
    let Ok((standing, state)) = seen(folder, &job) else { return 0 };
    if let Some(end) = state.end {
        // Ignore a closed standard error.
        let _ = terminal::stderr().write_all(end.report.as_bytes());
        return if passes_code { end.code } else { 0 };
    }
    let (name, log, pid) = (&folder.name, job.job.log, job.job.pid);
    if matches!(standing, Standing::Runs | Standing::Unwatched) {
        terminal::say(format_args!(
            "habitat-tui: the job keeps running as process {pid}; its output goes to {log}\n  \
             habitat-tui join {name}    shows it again"
        ));
    } else {
        terminal::say(format_args!("habitat-tui: {name}: {}", kept::words(&standing, &state.seen)));
    }
    0
}

/// Updates already sent to the screens, and their source.
struct Viewer {
    folder: JobFolder,
    kept: KeptJob,
    history: HistoryReader,
    log: Log,
    shown: Option<KeptState>,
    /// Looks until the history is read again; `None` once it does not change any more.
    until_history: Option<u32>,
    news: SyncSender<Update>,
}

impl Viewer {
    /// Sends what is new; `false` once nobody receives it.
    fn look(&mut self) -> bool {
        if self.log.read() && self.news.send(Update::Output(self.log.lines())).is_err() {
            return false;
        }
        if self.until_history == Some(0) {
            // A history that cannot be read costs its line on the screen.
            if let Ok(history) = self.history.read() {
                let _ = self.news.send(Update::History(Box::new(history.digest(SLICES))));
            }
            // The state of a job's end is written after its history.
            let is_over = self.shown.as_ref().is_some_and(|shown| shown.seen.is_over());
            self.until_history = (!is_over).then_some(HISTORY_EVERY);
        } else {
            self.until_history = self.until_history.map(|looks| looks - 1);
        }
        // A file that cannot be read now may be readable later.
        let Ok((_, state)) = seen(&self.folder, &self.kept) else { return true };
        if self.shown.as_ref() == Some(&state) {
            return true;
        }
        let before = self.shown.replace(state.clone()).unwrap_or_default();
        if state.profiles > before.profiles {
            let _ = self.news.send(profile(&self.kept.profile));
        }
        if let Some(problem) = state.problem.filter(|problem| before.problem.as_ref() != Some(problem)) {
            let _ = self.news.send(Update::NotWritten(problem));
        }
        self.news.send(Update::Snapshot(Box::new(state.seen))).is_ok()
    }
}

fn profile(path: &Path) -> Update {
    match read_profile(path) {
        Ok((profile, _)) => Update::Recorded(Box::new(profile)),
        Err(error) => Update::NotWritten(error.to_string()),
    }
}
