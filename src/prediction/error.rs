//! Errors of predictions.

use super::{blackbox, mlp};
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::Candidates;

/// Reason that a prediction failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// There are measured times, but their GPU is not in the catalog.
    #[error(
        "{}; pass --origin{}{}",
        named(.name.as_deref(), .candidates),
        choice(.candidates, .near),
        if *.has_shapes { ", or ignore the measurements with --ignore-origin" } else { "" }
    )]
    UnknownOrigin {
        /// GPU name in the profile, if any.
        name: Option<String>,
        /// Candidate GPUs.
        candidates: Candidates,
        /// Nearest slugs, if there are no candidates.
        near: Vec<String>,
        /// Whether shapes allow a prediction without the measurements.
        has_shapes: bool,
    },
    /// A requested GPU is not in the catalog.
    #[error(transparent)]
    UnknownGpu(#[from] habitat_step::catalog::UnknownGpu),
    /// No operation has a time or shapes.
    #[error(
        "nothing to predict from: no operation of {workload:?} has shapes or a usable measured time; record it with shapes (record_shapes=True)"
    )]
    NothingKnown {
        /// The workload.
        workload: String,
    },
    /// The recorded step is 0 or below [`SHORTEST_STEP_US`](habitat_base::units::SHORTEST_STEP_US).
    #[error(
        "the recorded step of {workload:?} takes {} µs, which is too short; record it again, correct step.duration_us, or ignore the measurements with --ignore-origin", .step.get()
    )]
    NoTime {
        /// The workload.
        workload: String,
        /// Recorded step time.
        step: Micros,
    },
    /// Habitat's networks were requested but not given.
    #[error(
        "no weights of Habitat's networks; train them with `habitat-lab train --habitat` (models/lab in the sources)"
    )]
    NoWeights,
    /// Linear models were requested but not given.
    #[error(
        "no linear models; fit them with `habitat-tui fit kernelwise PROFILES… -o kernelwise.json` and pass the file with --kernel-wise"
    )]
    NoLines,
    /// The black-box model cannot start from this profile.
    #[error("the black-box model cannot start from this step: {0}")]
    Totals(#[from] blackbox::TotalsError),
    /// The black-box model does not cover a GPU.
    #[error(transparent)]
    BlackBox(#[from] blackbox::BlackBoxError),
    /// The black-box model was requested for steps without host wait.
    #[error(
        "the black-box model predicts whole steps and cannot leave out the wait for the host; choose another method or --host as-recorded"
    )]
    WholeSteps,
    /// The black-box model was requested but not given.
    #[error("no black-box model; make one with `habitat-tui fit black-box DIR`")]
    NoBlackBox,
    /// A network failed.
    #[error("learned models: {0}; predict without them with --method wave-scaling or roofline")]
    Network(#[from] mlp::ModelError),
}

/// Suffix of an error message that lists possible values of `--origin`.
fn choice(candidates: &Candidates, near: &[String]) -> String {
    let gpus: Vec<&str> = candidates.gpus.iter().map(GpuSlug::as_str).collect();
    match (gpus.as_slice(), near) {
        ([], []) => String::new(),
        ([], near) => format!(" (near: {})", near.join(", ")),
        ([one], _) => format!(" {one}"),
        (several, _) => format!(" (it may be {})", several.join(", ")),
    }
}

/// Description of the recording GPU for an error message.
fn named(name: Option<&str>, candidates: &Candidates) -> String {
    let why = candidates.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    name.map_or_else(
        || format!("the profile does not name its recording GPU{why}"),
        |name| format!("the profile was recorded on {name:?}, which is not in the catalog"),
    )
}
