//! Why a command failed.

use std::io;

use crate::store;

/// Why a command failed; the process then ends with code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CliError(pub String);

impl CliError {
    /// What another error says.
    pub fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }

    /// Whether nobody reads the output any more, which is no failure.
    pub fn is_broken_pipe(&self) -> bool {
        self.0 == BROKEN_PIPE
    }
}

const BROKEN_PIPE: &str = "standard output was closed";

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self(BROKEN_PIPE.to_owned())
        } else {
            Self(format!("standard output: {error}"))
        }
    }
}

impl From<store::StoreError> for CliError {
    fn from(error: store::StoreError) -> Self {
        Self::of(error)
    }
}
