//! Errors of starting a job.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::cupti::CuptiError;
use super::private::PrivateError;

/// Maximum bytes of a Unix socket's path, without its closing zero. The address has room for 108 bytes on Linux and
/// 104 on macOS and the BSDs (`sun_path` in unix(7) and unix(4)).
pub(super) const LONGEST_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Reason why a job was not started.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No command was given.
    #[error("no command; put it after two dashes, as in `habitat-tui run -- python train.py`")]
    NoCommand,
    /// The program does not exist.
    #[error("{program}: no such program; give its path, or check PATH")]
    NotFound {
        /// Program as typed.
        program: String,
    },
    /// The program exists but cannot be run.
    #[error("{program}: cannot be started: {source}{}", remedy(.program, .source))]
    NotStarted {
        /// Program as typed.
        program: String,
        /// Reason.
        source: io::Error,
    },
    /// There is no private folder.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The folder for traces cannot be made.
    #[error("{}: cannot be written: {source}; set XDG_CACHE_HOME to a folder of your own with room", .path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The path of the socket is too long.
    #[error(
        "{}: longer than the limit of {} bytes for the path of a socket; set XDG_CACHE_HOME to a folder of your own with a \
         shorter path",
        .path.display(), LONGEST_SOCKET_PATH
    )]
    SocketPath {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The socket cannot be created.
    #[error("{}: cannot create a socket there: {source}; set XDG_CACHE_HOME to a folder of your own on a local disk", .path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The file for the job's output, or the process that writes it, cannot be created.
    #[error("{}: cannot be written: {source}; the job was not started", .path.display())]
    Log {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The recorder for CUDA programs cannot be used.
    #[error(transparent)]
    Cupti(#[from] CuptiError),
    /// Signals cannot be passed on; the job is running.
    #[error("signals cannot be passed on to the job: {source}")]
    Signals {
        /// Reason.
        source: io::Error,
    },
}

impl CaptureError {
    pub(super) fn from_start(program: &OsStr, source: io::Error) -> Self {
        let program = program.to_string_lossy().into_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { program },
            _ => Self::NotStarted { program, source },
        }
    }

    /// Exit code that a shell would return.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotStarted { .. } => 126,
            _ => 2,
        }
    }
}

fn remedy(program: &str, source: &io::Error) -> String {
    if source.kind() == io::ErrorKind::PermissionDenied && Path::new(program).extension().is_some_and(|e| e == "py") {
        format!("; start it as `python {program}`")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(CaptureError::from_start(OsStr::new("x"), io::ErrorKind::NotFound.into()).exit_code(), 127);
        let denied = CaptureError::from_start(OsStr::new("a/train.py"), io::ErrorKind::PermissionDenied.into());
        assert!(denied.to_string().ends_with("start it as `python a/train.py`"), "{denied}");
        assert_eq!(denied.exit_code(), 126);
    }
}
