//! Why nothing can be predicted.

use super::candidates::{self, Candidates};
use super::{blackbox, mlp};
use habitat_base::units::Micros;

/// Why nothing can be predicted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// Measured times without a GPU that the catalog knows.
    #[error(
        "{}; say which it is with --origin{}{}",
        candidates::named(.name.as_deref(), .candidates),
        candidates::choice(.candidates, .near),
        if *.has_shapes { ", or drop what was measured with --ignore-origin" } else { "" }
    )]
    UnknownOrigin {
        /// What the profile calls the GPU, if anything.
        name: Option<String>,
        /// Which GPUs it may be.
        candidates: Candidates,
        /// Nearest slugs, where it can be none.
        near: Vec<String>,
        /// Whether there is something to predict from without what was measured.
        has_shapes: bool,
    },
    /// A GPU asked for that the catalog does not have.
    #[error(transparent)]
    UnknownGpu(#[from] habitat_step::catalog::UnknownGpu),
    /// No operation has a time or shapes.
    #[error(
        "no operation of {workload:?} has shapes, or a measured time that is used, so there is nothing to predict from; record it with shapes (record_shapes=True)"
    )]
    NothingKnown {
        /// The workload.
        workload: String,
    },
    /// A recorded step of no length, or one below [`SHORTEST_STEP_US`](habitat_base::units::SHORTEST_STEP_US).
    #[error(
        "the recorded step of {workload:?} takes {} µs, as no step does; record it again, correct step.duration_us, or drop what was measured with --ignore-origin", .step.get()
    )]
    NoTime {
        /// The workload.
        workload: String,
        /// The time recorded.
        step: Micros,
    },
    /// Habitat's networks asked for, but none given.
    #[error(
        "no weights of Habitat's networks were given; train them with `habitat-lab train --habitat` (models/lab in the sources)"
    )]
    NoWeights,
    /// Fitted lines asked for, but none given.
    #[error(
        "no linear models were given; fit them with `habitat-tui fit kernelwise PROFILES… -o kernelwise.json` and name the file with --kernel-wise"
    )]
    NoLines,
    /// A profile that the black-box model cannot start from.
    #[error("the black-box model cannot start from this step: {0}")]
    Totals(#[from] blackbox::TotalsError),
    /// A GPU that the black-box model does not know.
    #[error(transparent)]
    BlackBox(#[from] blackbox::BlackBoxError),
    /// The black-box model asked for a step without its waiting for the host.
    #[error(
        "the black-box model knows whole steps, with their waiting for the host, and cannot leave that out; choose another method, or --host as-recorded"
    )]
    WholeSteps,
    /// The black-box model asked for, but none given.
    #[error("no black-box model was given; make one with `habitat-tui fit black-box DIR`")]
    NoBlackBox,
    /// A network that does not compute.
    #[error("learned models: {0}; go on without them with --method wave-scaling or roofline")]
    Network(#[from] mlp::ModelError),
}
