//! Reasons why an attach failed, with remedies.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::roles::{Facts, Role};
use habitat_base::text;

/// A polling process in a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Process id in our namespace.
    pub pid: u32,
    /// Process id in its own namespace; different in a container.
    pub own_pid: i32,
    /// Role of the process.
    pub role: Role,
    /// Device number, if the process reported one.
    pub gpu: Option<i32>,
    /// Job of the batch system; 0 without one.
    pub job: i64,
    /// Interval between its polls.
    pub interval: Option<Duration>,
    /// Whether it could not take a request at its last poll.
    pub is_busy: bool,
    /// Whether it belongs to another user, whose traces we cannot read.
    pub is_foreign: bool,
    /// Facts from `/proc`.
    pub facts: Facts,
}

/// A process in an error message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: u32,
    /// Program and arguments; empty if unreadable.
    pub command: Vec<String>,
    /// Version of its `PyTorch`, empty if unknown; `None` if it has not loaded one.
    pub torch: Option<String>,
}

impl fmt::Display for ProcessInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if self.command.is_empty() { Ok(()) } else { write!(f, " ({})", shown(&self.command)) }
    }
}

/// A command, shortened for a sentence.
fn shown(command: &[String]) -> String {
    text::clean(&command.join(" "), 60)
}

/// Reason why an attach failed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Another daemon listens there.
    #[error(
        "{}: another daemon listens there already (dynolog, or another `habitat-tui attach`); wait until it ends, or use \
         another folder: `habitat-tui env --socket-dir DIR`, and the same option for attach",
        .folder.display()
    )]
    Taken {
        /// The folder.
        folder: PathBuf,
    },
    /// There is no private folder.
    #[error("{0}; --socket-dir sets another for the socket")]
    Private(#[from] crate::capture::PrivateError),
    /// The folder for the socket is unusable.
    #[error("{}: {problem}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Reason and remedy.
        problem: String,
    },
    /// The socket cannot be created or used.
    #[error("{}: cannot create a socket there: {source}; set --socket-dir to a folder on a local disk", .path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// No process polls.
    #[error("no job to attach to was found in {seconds:.0} s{}", nobody(.started, .polls_elsewhere))]
    Nobody {
        /// Time spent listening, in seconds.
        seconds: f64,
        /// Processes with the variable in their environment.
        started: Vec<ProcessInfo>,
        /// Sockets of processes that poll elsewhere.
        polls_elsewhere: Vec<String>,
    },
    /// Processes kept starting, so it was never safe to listen.
    #[error(
        "did not listen for {seconds:.0} s: {seen} is still starting, and listening could end it (PyTorch 2.6: \"Bad file \
         descriptor\"). Attach again once the job makes steps, or wait longer with --wait 5m"
    )]
    Starting {
        /// The last of them.
        seen: ProcessInfo,
        /// Time spent waiting, in seconds.
        seconds: f64,
    },
    /// The process with the given id does not exist.
    #[error("--pid {pid}: no such process runs; `habitat-tui attach --list` shows those that can be recorded")]
    NoSuchProcess {
        /// Id as typed.
        pid: u32,
    },
    /// The process with the given id was started without support for attaching.
    #[error(
        "{seen} was started without KINETO_USE_DAEMON, so it cannot be attached to. Restart the job from a shell \
         after `eval \"$(habitat-tui env)\"`, or with `habitat-tui run -- python train.py`"
    )]
    NotStarted {
        /// The process.
        seen: ProcessInfo,
    },
    /// The process with the given id uses another folder.
    #[error("{seen} can be attached to {}", elsewhere(.folder.as_deref()))]
    Elsewhere {
        /// The process.
        seen: ProcessInfo,
        /// Its folder; `None` for dynolog's own socket.
        folder: Option<PathBuf>,
    },
    /// Neither the process with the given id nor any of its children has polled.
    #[error("{seen} cannot be recorded yet: {}", not_there(.seen, *.seconds))]
    NotThere {
        /// The process; `torch` may be that of a child process.
        seen: ProcessInfo,
        /// Time spent listening, in seconds.
        seconds: f64,
        /// Processes that polled.
        listed: Vec<Listed>,
    },
    /// More than one job polls.
    #[error("{jobs} jobs can be attached to; name one with --pid (a process of it, or its launcher)")]
    Several {
        /// Number of jobs.
        jobs: usize,
        /// Their processes.
        listed: Vec<Listed>,
    },
    /// Only the launcher of a job has polled.
    #[error(
        "only the launcher of the job has loaded PyTorch in {seconds:.0} s, but none of its child processes; \
         --wait 5m waits longer"
    )]
    Launching {
        /// Time spent listening, in seconds.
        seconds: f64,
        /// Processes that polled.
        listed: Vec<Listed>,
    },
    /// It is unclear which process trains.
    #[error("it is unclear which of these processes trains; name it with --pid")]
    Unclear {
        /// Processes that polled.
        listed: Vec<Listed>,
    },
    /// The process belongs to another user.
    #[error(
        "process {pid} belongs to user {uid}, whose traces could not be written to our folder; attach as that user"
    )]
    OtherUser {
        /// The process.
        pid: u32,
        /// Its user.
        uid: u32,
    },
    /// A trace could kill the process through its file size limit.
    #[error(
        "process {pid} would be killed for a file over {bytes} bytes (ulimit -f), and a trace may be longer; raise the \
         limit, or use `habitat-tui run`, which checks it"
    )]
    FileSize {
        /// The process.
        pid: u32,
        /// File size limit in bytes.
        bytes: u64,
    },
    /// The folder for traces cannot be created.
    #[error("{}: {source}; PyTorch writes such traces to /tmp only, which must be writable for us and the job",
        if *.is_contained {
            format!("cannot create a folder for the trace in /tmp of the container of process {pid}")
        } else {
            "cannot create a folder for the trace in /tmp".to_owned()
        })]
    Traces {
        /// The process.
        pid: u32,
        /// Whether it has another file system view than we (a container).
        is_contained: bool,
        /// Reason.
        source: io::Error,
    },
    /// A complete trace cannot be read.
    #[error("the trace of process {pid} was written but cannot be read: {source}; has /tmp been cleared?")]
    Unreadable {
        /// The process.
        pid: u32,
        /// Reason.
        source: io::Error,
    },
    /// Its own profiler takes precedence, and another request could break it.
    #[error("{}", profiles(*.pid, .version, .waiting.as_deref()))]
    Profiles {
        /// The process.
        pid: u32,
        /// Version of its `PyTorch`.
        version: String,
        /// Folder in which a trace may still appear, if a request was sent.
        waiting: Option<PathBuf>,
    },
    /// The request showed no effect.
    #[error("{}", not_traced(*.pid, *.asked, *.seconds, *.is_busy, .folder))]
    NotTraced {
        /// The process.
        pid: u32,
        /// Number of requests sent.
        asked: u32,
        /// Time spent waiting, in seconds.
        seconds: f64,
        /// Whether it reported that it cannot take a request.
        is_busy: bool,
        /// Folder in which its trace may still appear, if a request was sent.
        folder: PathBuf,
    },
    /// The trace was started but not completed.
    #[error(
        "process {pid} started recording but has not completed its trace in {seconds:.0} s. Is the job stopped, is /tmp \
         full, or are its steps this long? --timeout 30m waits longer"
    )]
    Unfinished {
        /// The process.
        pid: u32,
        /// Time spent waiting, in seconds.
        seconds: f64,
    },
    /// Several traces were started, none was completed.
    #[error(
        "process {pid} started recording {tries} times, but each trace was cut off: /tmp is full, or a profiler of its \
         own keeps starting and has priority (import its traces with `habitat-tui import`)"
    )]
    CutOff {
        /// The process.
        pid: u32,
        /// Number of traces.
        tries: u32,
    },
    /// The job ended.
    #[error("process {pid} ended before its trace was complete; attach to a longer run")]
    Died {
        /// The process.
        pid: u32,
    },
    /// The socket was removed or replaced.
    #[error("{}: the socket was removed while we listened; is another `habitat-tui attach` running there?", .folder.display())]
    Lost {
        /// The folder.
        folder: PathBuf,
    },
    /// We received a signal to end.
    #[error("interrupted{}", .waiting.as_deref().map_or_else(String::new, |folder| format!(
        "; a request may still wait in the job; its trace would appear in {}", folder.display())))]
    Interrupted {
        /// The signal.
        signal: i32,
        /// Folder in which a trace may still appear.
        waiting: Option<PathBuf>,
    },
}

fn nobody(started: &[ProcessInfo], polls_elsewhere: &[String]) -> String {
    if let Some(socket) = polls_elsewhere.first() {
        let folder =
            Path::new(socket).parent().map_or_else(|| "another place".to_owned(), |it| it.display().to_string());
        let how = if socket.starts_with('@') {
            "at dynolog's own socket, where another daemon listens: start the job with what `habitat-tui env` prints"
                .to_owned()
        } else {
            format!("in {folder}: use --socket-dir {folder}")
        };
        return format!(", but {} can be attached to {how}", processes(polls_elsewhere.len()));
    }
    if started.is_empty() {
        return "; attaching needs a job started from a shell after `eval \"$(habitat-tui env)\"`. Restart \
                it that way, or with `habitat-tui run -- python train.py`"
            .to_owned();
    }
    // A process that has loaded PyTorch is more informative than a shell around it.
    let one = started.iter().find(|one| one.torch.is_some()).unwrap_or(&started[0]);
    let more = match started.len() - 1 {
        0 => String::new(),
        more => format!(" and {}", processes(more)),
    };
    format!(
        ", although {one}{more} {} started for attaching: {}",
        if more.is_empty() { "was" } else { "were" },
        silent(one)
    )
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

/// Reason why a process started with the variable has not polled.
fn silent(seen: &ProcessInfo) -> String {
    let version = seen.torch.as_deref();
    match version {
        None => "it has not loaded PyTorch yet; --wait 5m waits longer".to_owned(),
        Some(version) => {
            let version = if version.is_empty() { String::new() } else { format!(" {version}") };
            format!(
                "its PyTorch{version} has not reported here. PyTorch 2.1 reports only if it sees a GPU, and one built \
                 without Kineto never does; in a container it needs access to the socket's folder. --wait 5m waits longer"
            )
        }
    }
}

fn not_there(seen: &ProcessInfo, seconds: f64) -> String {
    match seen.torch {
        None => format!(
            "neither it nor any of its child processes has loaded PyTorch in {seconds:.0} s; --wait 5m \
             waits longer"
        ),
        Some(_) => silent(seen),
    }
}

fn elsewhere(folder: Option<&Path>) -> String {
    match folder {
        Some(folder) => format!("in another folder: use --socket-dir {}", folder.display()),
        None => "only at dynolog's own socket: leave out --socket-dir, unset KINETO_IPC_SOCKET_DIR and stop dynolog"
            .to_owned(),
    }
}

/// Note on the folder in which a trace may still appear.
fn waits(folder: &Path) -> String {
    format!(
        "The request may still wait in the process: its trace would appear in {}, for `habitat-tui import`",
        folder.display()
    )
}

fn profiles(pid: u32, version: &str, waiting: Option<&Path>) -> String {
    let asked = match waiting {
        None => "it was not asked. ".to_owned(),
        Some(folder) => format!("it was not asked again. {}. ", waits(folder)),
    };
    format!(
        "process {pid} runs a profiler of its own, and PyTorch {version} (any before 2.12) stops the program with an \
         error if that starts while our trace is being written; {asked}Import its own trace with `habitat-tui \
         import`, attach again once its profiler is finished, or start the job with `habitat-tui run`, whose \
         recording yields to its profiler"
    )
}

fn not_traced(pid: u32, asked: u32, seconds: f64, is_busy: bool, folder: &Path) -> String {
    let waits = waits(folder);
    match (asked, is_busy) {
        (0, true) => format!(
            "process {pid} took no request in {seconds:.0} s: its own profiler is running and has priority; import \
             its trace with `habitat-tui import`, or attach once it has ended"
        ),
        (0, false) => format!(
            "process {pid} stopped polling before it received a request; is the job stopped (Ctrl-Z, a \
             debugger)? --timeout 30m waits longer than {seconds:.0} s"
        ),
        (_, true) => format!(
            "process {pid} received {asked} requests in {seconds:.0} s, but a profiler of its own is running and has \
             priority; import its trace with `habitat-tui import`. {waits}"
        ),
        (_, false) => format!(
            "process {pid} received a request but has made no step of a torch optimizer in {seconds:.0} s. Is it \
             evaluating or saving, or are its steps this long? --timeout 30m waits longer. {waits}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(torch: Option<&str>) -> ProcessInfo {
        ProcessInfo { pid: 7, command: vec!["python".to_owned(), "t.py".to_owned()], torch: torch.map(str::to_owned) }
    }

    #[test]
    fn who_was_not_heard_is_named_with_the_likely_reason() {
        let text = |started: Vec<ProcessInfo>| {
            AttachError::Nobody { seconds: 12.0, started, polls_elsewhere: Vec::new() }.to_string()
        };
        assert!(text(Vec::new()).contains("found in 12 s; attaching needs a job started"));
        assert!(
            text(vec![seen(None)])
                .contains("process 7 (python t.py) was started for attaching: it has not loaded PyTorch")
        );
        let both = text(vec![seen(None), seen(Some("2.1.2"))]);
        assert!(both.contains("and 1 process were started") && both.contains("its PyTorch 2.1.2 has not"), "{both}");
        let elsewhere = |sockets: &[&str]| {
            let polls_elsewhere = sockets.iter().map(|it| (*it).to_owned()).collect();
            AttachError::Nobody { seconds: 12.0, started: vec![seen(None)], polls_elsewhere }.to_string()
        };
        assert!(
            elsewhere(&["/tmp/x/dynoconfigclient1"])
                .ends_with("1 process can be attached to in /tmp/x: use --socket-dir /tmp/x")
        );
        assert!(
            elsewhere(&["@dynoconfigclient1", "@dynoconfigclient2"])
                .contains("2 processes can be attached to at dynolog's")
        );
    }
}
