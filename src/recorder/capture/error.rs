//! Why a job was not started.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::cupti::CuptiError;
use super::private::PrivateError;

/// Bytes of a Unix socket's address, its closing zero not counted: 108 on Linux, 104 on
/// macOS and the BSDs (`sun_path` in unix(7) and unix(4)).
pub(super) const LONGEST_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Why a job was not started.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Nothing to start.
    #[error("no command; put it after two dashes, as in `habitat-tui run -- python train.py`")]
    NoCommand,
    /// No such program.
    #[error("{program}: no such program; give its path, or check PATH")]
    NotFound {
        /// As typed.
        program: String,
    },
    /// Found, but not to be run.
    #[error("{program}: cannot be started: {source}{}", remedy(.program, .source))]
    NotStarted {
        /// As typed.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// There is no private folder.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The folder for traces cannot be made.
    #[error("{}: cannot be written: {source}; set XDG_CACHE_HOME to a folder of your own with room", .path.display())]
    Folder {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket's name does not fit.
    #[error(
        "{}: longer than the {} bytes that a socket's name may have; set XDG_CACHE_HOME to a folder of your own with a \
         shorter name",
        .path.display(), LONGEST_SOCKET_PATH
    )]
    SocketPath {
        /// The name.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("{}: no socket can be made there: {source}; set XDG_CACHE_HOME to a folder of your own on a local disk", .path.display())]
    Socket {
        /// The name.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file for the job's output cannot be made, or nothing that writes it.
    #[error("{}: cannot be written: {source}; the job was not started", .path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The recorder for CUDA programs cannot be used.
    #[error(transparent)]
    Cupti(#[from] CuptiError),
    /// Signals cannot be passed on; the job is running.
    #[error("signals cannot be passed on to the job: {source}")]
    Signals {
        /// Why.
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

    /// The exit code that a shell gives for it.
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
