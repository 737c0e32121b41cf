//! Why a workload cannot be predicted at other batch sizes.

use super::curve::CurveError;
use super::rebatch::RebatchError;
use crate::error::PredictError;
use habitat_base::units::most;

/// Why there is no sweep.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SweepError {
    /// No profile at all.
    #[error("no profile")]
    Nothing,
    /// A profile without its batch size.
    #[error(
        "{0}: the batch size of the recording is not known; give it with --batch-size (one file), or correct the file"
    )]
    NoBatch(String),
    /// Profiles that are not of one workload.
    #[error(
        "{first} and {other} differ in {what}: {of_first} and {of_other}; a line goes through steps of one workload, recorded alike"
    )]
    Differ {
        /// The first profile's name.
        first: String,
        /// The other one's.
        other: String,
        /// In what.
        what: &'static str,
        /// The first one's value.
        of_first: String,
        /// The other one's.
        of_other: String,
    },
    /// More batch sizes than are predicted in one go.
    #[error("{0} batch sizes; at most {most} are predicted in one go: leave some out", most = most::BATCH_SIZES)]
    Sizes(usize),
    /// More operations than are predicted one by one.
    #[error(
        "{operations} operations on {gpus} GPUs at {sizes} batch sizes are more than can be predicted one by one ({} on \
         the GPUs, {} with the sizes): give fewer batch sizes, or fewer GPUs (`habitat-tui batches FILE --to GPU`)",
        most::PREDICTED_OPERATIONS,
        most::OPERATIONS_AT_SIZES
    )]
    Large {
        /// Operations of the recorded step.
        operations: usize,
        /// GPUs.
        gpus: usize,
        /// Batch sizes.
        sizes: usize,
    },
    /// A profile cannot be predicted.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// No line.
    #[error("{0}: {1}")]
    Curve(String, CurveError),
    /// The one profile cannot be scaled.
    #[error(transparent)]
    Rebatch(#[from] RebatchError),
}
