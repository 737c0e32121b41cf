//! Errors of predictions at other batch sizes.

use super::curve::CurveError;
use super::rebatch::RebatchError;
use crate::error::PredictError;
use habitat_base::units::most;

/// Reason that a sweep failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SweepError {
    /// No profile was given.
    #[error("no profile")]
    Nothing,
    /// The batch size of a profile is unknown.
    #[error("{0}: unknown batch size; pass --batch-size (one file), or add it to the file")]
    NoBatch(String),
    /// The profiles are of different workloads.
    #[error(
        "{first} and {other} differ in {what}: {of_first} and {of_other}; all recordings must be of one workload on one GPU"
    )]
    Differ {
        /// Name of the first profile.
        first: String,
        /// Name of the other profile.
        other: String,
        /// The property that differs.
        what: &'static str,
        /// Its value in the first profile.
        of_first: String,
        /// Its value in the other profile.
        of_other: String,
    },
    /// Too many batch sizes for one sweep.
    #[error("{0} batch sizes; at most {most} are predicted in one go: leave some out", most = most::BATCH_SIZES)]
    Sizes(usize),
    /// Too many operations to predict one by one.
    #[error(
        "{operations} operations on {gpus} GPUs at {sizes} batch sizes exceed the limit ({} operations × \
         GPUs, {} with batch sizes); use fewer batch sizes or fewer GPUs (`habitat-tui batches FILE --to GPU`)",
        most::PREDICTED_OPERATIONS,
        most::OPERATIONS_AT_SIZES
    )]
    Large {
        /// Operations of the recorded step.
        operations: usize,
        /// Number of GPUs.
        gpus: usize,
        /// Number of batch sizes.
        sizes: usize,
    },
    /// Prediction of a profile failed.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// No line fits the steps on a GPU.
    #[error("{0}: {1}")]
    Curve(String, CurveError),
    /// The only profile cannot be scaled to another batch size.
    #[error(transparent)]
    Rebatch(#[from] RebatchError),
}
