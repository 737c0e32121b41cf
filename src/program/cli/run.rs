//! `habitat-tui run`: a training job, recorded while it runs.
//!
//! On a terminal with the screens on it (`live`), else in the job's own terminal, with a
//! report at the end. Standard output belongs to the job then, so our messages go to standard
//! error.

mod batches;
mod live;
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
use crate::store::{self, Paths};
use crate::terminal;
use habitat_recorder::capture::{self, Recording, RecordingStatus};

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
    let with_screens = !args.no_tui
        && !args.quiet
        && args.json.is_none()
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal();
    if args.every.is_some() && !with_screens {
        let why = "--every keeps the screens up to date, and there is no terminal to open them on; --windows N records \
                   several windows";
        return Err(CliError::Refused(why.to_owned()));
    }
    let session = Session::new(Arc::new(args), catalog)?;
    if with_screens { live::run(session, screens) } else { plainly(&session).map(Outcome::Exit) }
}

/// Without screens: the job has the terminal.
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
                "habitat-tui: recorded; profile written to {}; the job goes on",
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
    let Conclusion { text, code, .. } = conclude(session, &options, pid, &mut finished, written);
    // Nobody may be there to read it any more.
    let _ = terminal::stderr().write_all(&text);
    if finished.interrupted {
        drop(finished.folder);
        capture::interrupt_ourselves();
    }
    Ok(code)
}
