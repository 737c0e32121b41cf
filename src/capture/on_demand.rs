//! Recording a step of a job that runs already: the daemon's side of libkineto's
//! on-demand protocol.
//!
//! A `PyTorch` process that was started with `KINETO_USE_DAEMON=1` asks a daemon every few
//! seconds whether there is anything to do. [`attach`] is that daemon for
//! as long as it takes: it hears who polls, chooses, hands out a request to record some
//! iterations, and waits for the traces. Between attaches nothing listens, and the
//! processes poll a socket that is not there.
//!
//! - [`wire`]: the messages as bytes; [`request`]: what is asked for.
//! - [`daemon`]: who polled when, and what to answer; a state machine.
//! - [`roles`]: which of the processes trains.
//! - [`align`]: windows of several ranks on the same steps.
//! - [`session`]: all of it put together, with sockets and files.
//!
//! Only Linux has it.

pub mod align;
pub mod daemon;
mod endpoint;
mod folder;
mod process;
pub mod request;
pub mod roles;
pub mod session;
pub mod wire;

use std::io;
use std::path::{Path, PathBuf};

pub use endpoint::LONGEST_FOLDER;
pub use folder::folder;
pub use session::{Attached, Listed, Order, Said, Traced, attach, list};

/// Names the folder of the daemon's socket, to libkineto and to us.
pub const FOLDER_VARIABLE: &str = "KINETO_IPC_SOCKET_DIR";
/// Makes a process poll.
pub const DAEMON_VARIABLE: &str = "KINETO_USE_DAEMON";

/// Why nothing was attached to.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Another daemon listens there.
    #[error(
        "{}: another daemon listens there already (dynolog, or another `habitat-tui attach`); wait for its end, or give \
         the job another folder: `habitat-tui env --socket-dir DIR`, and the same to attach",
        .folder.display()
    )]
    Taken {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder for the socket is not usable.
    #[error("{}: {problem}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why, and what to do.
        problem: String,
    },
    /// The socket cannot be made or used.
    #[error("{}: no socket can be made there: {source}; --socket-dir takes a folder on a local disk", .path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nobody polls.
    #[error("no process asked for anything to do in {seconds:.0} s{}", said_of(.elsewhere, .polls_elsewhere))]
    Nobody {
        /// How long was listened.
        seconds: f64,
        /// Processes with the variable in their environment.
        elsewhere: Vec<u32>,
        /// Sockets of processes that poll other folders.
        polls_elsewhere: Vec<String>,
    },
    /// None of those that poll is the one.
    #[error("process {pid} has not asked for anything to do, nor has any that it started; {}", was_started(*.runs))]
    NotThere {
        /// As typed.
        pid: u32,
        /// Whether it runs.
        runs: bool,
        /// Who asked.
        listed: Vec<Listed>,
    },
    /// More than one job polls.
    #[error("{jobs} jobs can be attached to; name one with --pid (a process of it, or its launcher)")]
    Several {
        /// How many.
        jobs: usize,
        /// Their processes.
        listed: Vec<Listed>,
    },
    /// It was not found out which process trains.
    #[error("it is not clear which of the processes trains; name it with --pid")]
    Unclear {
        /// Who asked.
        listed: Vec<Listed>,
    },
    /// Somebody else's process.
    #[error(
        "process {pid} belongs to user {uid}, whose traces could not be written to our folder; attach as that user"
    )]
    OtherUser {
        /// The process.
        pid: u32,
        /// Its user.
        uid: u32,
    },
    /// The folder for traces cannot be made.
    #[error(
        "{}: no private folder can be made there: {source}; traces on demand go to /tmp, which must be writable for us \
         and the job", .path.display()
    )]
    Traces {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The request showed no effect.
    #[error("{}", not_traced(*.pid, *.asked, *.seconds, *.is_busy, .folder))]
    NotTraced {
        /// The process.
        pid: u32,
        /// How often it was asked.
        asked: u32,
        /// How long was waited.
        seconds: f64,
        /// Whether it said that it cannot take a request.
        is_busy: bool,
        /// Where its trace may still come, where it was asked.
        folder: PathBuf,
    },
    /// The trace was begun and did not come to its end.
    #[error(
        "{}: process {pid} began this trace and did not complete it in {seconds:.0} s; is the disk full, or the job \
         stopped? A longer --timeout waits longer", .path.display()
    )]
    Unfinished {
        /// The process.
        pid: u32,
        /// The trace.
        path: PathBuf,
        /// How long was waited.
        seconds: f64,
    },
    /// The job ended.
    #[error("process {pid} ended before its trace was complete; attach to a run that goes on for longer")]
    Died {
        /// The process.
        pid: u32,
    },
    /// Somebody removed or replaced the socket.
    #[error("{}: the socket was taken away while we listened; is another `habitat-tui attach` at work there?", .folder.display())]
    Lost {
        /// The folder.
        folder: PathBuf,
    },
    /// A signal asked us to end.
    #[error("interrupted{}", .waiting.as_deref().map_or_else(String::new, |folder| format!(
        "; a request may still wait in the job, whose trace then comes to {}", folder.display())))]
    Interrupted {
        /// The signal.
        signal: i32,
        /// Where a trace may still come.
        waiting: Option<PathBuf>,
    },
}

fn said_of(elsewhere: &[u32], polls_elsewhere: &[String]) -> String {
    if let Some(socket) = polls_elsewhere.first() {
        let folder =
            Path::new(socket).parent().map_or_else(|| "another place".to_owned(), |it| it.display().to_string());
        let how = if socket.starts_with('@') {
            "dynolog's own socket, where another daemon listens; start the job with what `habitat-tui env` prints"
                .to_owned()
        } else {
            format!("{folder}: give --socket-dir {folder}")
        };
        return format!(", but {} process(es) ask at {how}", polls_elsewhere.len());
    }
    if elsewhere.is_empty() {
        return "; a job can be attached to only where it was started with the variables that `habitat-tui env` prints"
            .to_owned();
    }
    let some: Vec<String> = elsewhere.iter().take(5).map(u32::to_string).collect();
    format!(
        ", though {} has KINETO_USE_DAEMON set: it has not imported PyTorch yet, its PyTorch is built without Kineto \
         (2.1 without CUDA does not ask), or it is in a container that cannot see this folder",
        some.join(", ")
    )
}

fn was_started(runs: bool) -> &'static str {
    if runs {
        "was it started with the variables that `habitat-tui env` prints? `habitat-tui attach --list` shows who asks"
    } else {
        "no such process runs; `habitat-tui attach --list` shows who asks"
    }
}

fn not_traced(pid: u32, asked: u32, seconds: f64, is_busy: bool, folder: &Path) -> String {
    let waits = format!(
        "The request may still wait in the process: a trace would then come to {}, for `habitat-tui import`",
        folder.display()
    );
    match (asked, is_busy) {
        (0, true) => format!(
            "process {pid} took no request in {seconds:.0} s: a profiler of its own is on, which goes first; import \
             its trace with `habitat-tui import`, or attach when it is off"
        ),
        (0, false) => format!(
            "process {pid} stopped asking for anything to do; is the job stopped? --timeout waits longer than {seconds:.0} s"
        ),
        (_, true) => format!(
            "process {pid} was asked {asked} times in {seconds:.0} s, and a profiler of its own is on, which goes \
             first; import its trace with `habitat-tui import`. {waits}"
        ),
        (_, false) => format!(
            "process {pid} was asked to record, and has made no step of a torch optimizer in {seconds:.0} s. Is it \
             evaluating or saving, or are its steps this long? --timeout waits longer. {waits}"
        ),
    }
}
