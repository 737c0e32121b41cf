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

use self::report::Part;
use self::session::{Conclusion, Session, conclude, job_options};
use super::error::CliError;
use super::named::{job_name, unused_profile};
use super::screens::Outcome;
use crate::settings::args::{RunArgs, ScreensArgs};
use crate::store::jobs::JobFolder;
use crate::store::{self, Paths};
use crate::terminal;
use habitat_recorder::capture::{self, Recording, RecordingStatus};
use habitat_recorder::live::history::Digest;

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

/// Records without screens: the job has the terminal.
fn plainly(session: &Session) -> Result<u8, CliError> {
    let args = &*session.args;
    let options = job_options(args)?;
    let running = capture::start(&options, &session.private)?;
    let pid = running.pid();
    let mut written = None;
    let mut finished = running.follow(&mut |recording: &Recording, folder: &Path| {
        let done = session.write(recording, folder, args.force);
        if let (Ok(_), false, false) = (&done, args.quiet, args.stop_after_recording) {
            terminal::say(format_args!(
                "habitat-tui: recorded; profile written to {}; the job keeps running",
                session.output.display()
            ));
        }
        written = Some(done);
    });
    let written = match written {
        None if finished.recording.seen() == RecordingStatus::Recorded => {
            Some(session.write(&finished.recording, finished.folder.path(), args.force))
        }
        written => written,
    };
    let Conclusion { text, code, .. } = conclude(session, &options, pid, &mut finished, written, &Digest::default());
    // Ignore a closed standard error.
    let _ = terminal::stderr().write_all(&text);
    if finished.interrupted {
        drop(finished.folder);
        capture::interrupt_ourselves();
    }
    Ok(code)
}
