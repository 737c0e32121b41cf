//! Why a file of the catalog cannot be used.

/// Why a text is not a GPU of the catalog, or no calibration; the message names key, value
/// and place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub(super) String);
