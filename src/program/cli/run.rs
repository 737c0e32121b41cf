//! `habitat-tui run`: records a training job while it runs.
//!
//! On a terminal, the screens open on it (`live`). Otherwise the job keeps its terminal and a report follows at its
//! end. Standard output then belongs to the job, so our messages go to standard error.

mod batches;
pub(super) mod follow;
pub(super) mod join;
mod keeper;
pub(super) mod live;
mod log;
mod outcome;
mod report;
mod session;
mod snapshot;
mod surroundings;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::report::Part;
use self::session::{Conclusion, Session, conclude, job_options};
use super::error::CliError;
use super::named::{job_name, unused_profile};
use super::screens::Outcome;
use crate::settings::args::{RunArgs, ScreensArgs};
use crate::store::jobs::JobFolder;
use crate::store::{self, Paths};
use crate::terminal;
use habitat_recorder::capture::assemble::Assembled;
use habitat_recorder::capture::history::Gather;
use habitat_recorder::capture::messages::Message;
use habitat_recorder::capture::{self, Recording, RecordingStatus, Watch};
use habitat_recorder::live::history::History;

pub(super) fn run(args: RunArgs, screens: ScreensArgs) -> Result<Outcome, CliError> {
    let catalog = Arc::new(store::catalog(&Paths::find())?);
    if !args.batches.is_empty() {
        let output = args.output.clone().unwrap_or_else(|| unused_profile(&job_name(&args.command)));
        let mut one = |args: &RunArgs, part: Part| {
            let session = Session::new(Arc::new(args.clone()), catalog.clone())?;
            plainly(&Session { part: Some(part), ..session })
        };
        return batches::run(&args, &output, &mut one).map(Outcome::Exit);
    }
    if let Some(folder) = args.keeper.as_deref().map(JobFolder::at) {
        // The report that it keeps is whole.
        let args = RunArgs { quiet: false, ..args };
        return live::keep(&Session::new(Arc::new(args), catalog)?, &folder).map(Outcome::Exit);
    }
    if args.detach {
        return live::detach(&Session::new(Arc::new(args), catalog)?).map(Outcome::Exit);
    }
    if args.json_lines {
        return live::lines(&Session::new(Arc::new(args), catalog)?).map(Outcome::Exit);
    }
    let with_screens = !args.no_tui
        && !args.quiet
        && args.json.is_none()
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal();
    if args.every.is_some() && !with_screens {
        let why = "--every updates the screens, but there is no terminal to show them; use --windows N to record \
                   several windows";
        return Err(CliError::Refused(why.to_owned()));
    }
    let session = Session::new(Arc::new(args), catalog)?;
    if with_screens { live::run(&session, screens) } else { plainly(&session).map(Outcome::Exit) }
}

/// Watches a job that has the terminal: writes its profile once it is recorded, and gathers its history.
struct Watcher<'a> {
    session: &'a Session,
    written: Option<Result<Assembled, CliError>>,
    gather: Gather,
    history: History,
}

impl Watch for Watcher<'_> {
    fn complete(&mut self, recording: &Recording, folder: &Path) {
        let args = &*self.session.args;
        let done = self.session.write(recording, folder, args.force);
        if let (Ok(_), false, false) = (&done, args.quiet, args.stop_after_recording) {
            let output = self.session.output.display();
            terminal::say(format_args!("habitat-tui: recorded; profile written to {output}; the job keeps running"));
        }
        self.written = Some(done);
    }

    fn hear(&mut self, pid: u32, message: &Message, at: Duration) {
        self.gather.hear(pid, message, at);
        self.history.add(&self.gather.due());
    }
}

/// Records without screens: the job has the terminal.
fn plainly(session: &Session) -> Result<u8, CliError> {
    let options = job_options(&session.args)?;
    let running = capture::start(&options, &session.private)?;
    let pid = running.pid();
    let mut watcher = Watcher { session, written: None, gather: Gather::default(), history: History::default() };
    let mut finished = running.follow(&mut watcher);
    watcher.gather.end();
    watcher.history.add(&watcher.gather.due());
    if watcher.written.is_none() && finished.recording.status() == RecordingStatus::Recorded {
        watcher.written = Some(session.write(&finished.recording, finished.folder.path(), session.args.force));
    }
    let history = watcher.history.digest(1);
    let Conclusion { text, code, .. } = conclude(session, &options, pid, &mut finished, watcher.written, &history);
    // Ignore a closed standard error.
    let _ = terminal::stderr().write_all(&text);
    if finished.interrupted {
        drop(finished.folder);
        capture::interrupt_ourselves();
    }
    Ok(code)
}
