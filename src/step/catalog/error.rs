//! Errors of catalog files.

/// Error for an invalid GPU or calibration file. The message gives key, value and line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub(super) String);
