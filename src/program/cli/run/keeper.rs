//! The process that keeps a job: this program again, in a session of its own. It starts the job, records it, and writes
//! its state to files ([`crate::store::jobs`]); it has no terminal, so that nothing that happens to one costs anything.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::session::Session;
use crate::cli::error::CliError;
use crate::cli::named::file_stem;
use crate::store::jobs::{End, JobFolder, KeptJob, KeptState};
use crate::store::{self, Limit, Paths, StoreError};
use crate::terminal;
use habitat_recorder::capture::stop_signals;
use habitat_recorder::live::Update;

/// Its message once the job has started; the process id follows, and what could not be written.
const STARTED: &str = "started ";
/// File with what it writes to standard error.
const MESSAGES: &str = "messages";

/// Starts the process that keeps the job of `session`. Returns the job's folder and its process id, or the exit code if
/// the job could not be started, which the process has explained.
pub(super) fn start(session: &Session) -> Result<Result<(JobFolder, u32), u8>, CliError> {
    let folder = JobFolder::reserve(&Paths::find(), &file_stem(&session.name))?;
    let failed = |source| StoreError::Write { path: folder.path().to_owned(), source };
    let begun = || -> std::io::Result<_> {
        let messages = std::fs::File::create_new(folder.file(MESSAGES))?;
        let mut keeper = Command::new(std::env::current_exe()?);
        keeper.arg("run").arg("--keeper").arg(folder.path()).args(std::env::args_os().skip(2));
        keeper.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages).spawn()
    };
    let mut keeper = match begun() {
        Ok(keeper) => keeper,
        Err(error) => {
            let _ = folder.remove();
            return Err(failed(error).into());
        }
    };
    let mut line = String::new();
    if let Some(from) = keeper.stdout.take() {
        // Its end is as good as another message.
        let _ = BufReader::new(from).read_line(&mut line);
    }
    let told = line.strip_prefix(STARTED).and_then(|rest| rest.trim_end_matches('\n').split_once(' '));
    if let Some((pid, problem)) = told.and_then(|(pid, problem)| Some((pid.parse().ok()?, problem))) {
        if !problem.is_empty() {
            terminal::say(format_args!("warning: {problem}"));
        }
        return Ok(Ok((folder, pid)));
    }
    let code = keeper.wait().ok().and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
    let said = store::read_text(&folder.file(MESSAGES), Limit::SETTINGS).unwrap_or_default();
    // A full disk holds no messages.
    terminal::say(if said.is_empty() { &line } else { &said }.trim_end());
    let _ = folder.remove();
    Ok(Err(code.unwrap_or(2)))
}

/// Reports that the job runs, and what of it could not be written.
pub(super) fn started(pid: u32, unwritten: Option<&StoreError>) {
    let problem = unwritten.map(|error| {
        let error = error.to_string().replace('\n', " ");
        format!("the job runs as process {pid} and is recorded, but `jobs` shows another process: {error}")
    });
    let mut out = terminal::stdout();
    // Nobody may listen any more.
    let _ = writeln!(out, "{STARTED}{pid} {}", problem.unwrap_or_default()).and_then(|()| out.flush());
}

/// Reports that the job was not started.
pub(super) fn not_started(error: &CliError) {
    let mut out = terminal::stdout();
    let _ = writeln!(out, "error: {}", error.to_string().replace('\n', " ")).and_then(|()| out.flush());
}

/// Receives requests to stop the job: returns `true` once for each.
pub(super) fn stop_requests(folder: &JobFolder) -> Result<impl FnMut() -> bool + Send + use<>, CliError> {
    let signals = stop_signals()?;
    let (folder, mut heeded) = (folder.clone(), 0);
    Ok(move || {
        let is_signalled = signals.swap(false, std::sync::atomic::Ordering::Relaxed);
        let is_asked = folder.stops() > heeded;
        heeded += usize::from(is_asked);
        is_signalled || is_asked
    })
}

/// Writes the state of the job while it runs.
pub(super) struct Keeping {
    folder: JobFolder,
    thread: JoinHandle<KeptState>,
}

impl Keeping {
    /// Starts to write what is sent to the returned channel, and `unwritten` as soon as that is possible.
    pub(super) fn start(folder: JobFolder, unwritten: Option<KeptJob>) -> (Self, Sender<Update>) {
        let (news, updates) = channel();
        let own = folder.clone();
        (Self { folder, thread: std::thread::spawn(move || keep(&own, unwritten, &updates)) }, news)
    }

    /// Writes the end of the job, after all senders are gone.
    pub(super) fn finish(self, code: u8, report: &[u8]) {
        let mut state = self.thread.join().unwrap_or_default();
        state.end = Some(End { code, report: String::from_utf8_lossy(report).into_owned() });
        if let Err(error) = self.folder.write_state(&state) {
            terminal::say(format_args!("{}: {error}", self.folder.path().display()));
        }
    }
}

/// Writes each state but that of the end, which is written with the report.
fn keep(folder: &JobFolder, mut unwritten: Option<KeptJob>, updates: &Receiver<Update>) -> KeptState {
    let mut state = KeptState::default();
    while let Ok(update) = updates.recv() {
        // The disk may have room again.
        unwritten = unwritten.filter(|job| folder.write_job(job).is_err());
        match update {
            Update::Snapshot(seen) => state.seen = *seen,
            Update::Recorded(_) => {
                state.profiles += 1;
                state.problem = None;
            }
            Update::NotWritten(why) => state.problem = Some(why),
            // These have files of their own.
            Update::Output(_) | Update::History(_) => continue,
        }
        if !state.seen.is_over() {
            // A full disk costs what viewers see, and nothing else.
            let _ = folder.write_state(&state);
        }
    }
    state
}
