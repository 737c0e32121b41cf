//! Step times on other GPUs from no more than the total time of each kind of operator.
//!
//! The case of PROFET ("PROFET: PROFiling-based CNN Training Latency
//! prophET for GPU Cloud Instances"): a user who will not show a model runs it on one
//! GPU (the anchor) and hands over how long the step took and how its device time divides
//! into kinds of operators: no shapes, no names, no modules. The published predictor is
//! rebuilt in the workshop (`models/lab`) to be judged; the one here has three parts:
//!
//! 1. [`Anatomy`]: what the numbers say of the step. A profiler that lost events shows less
//!    device time than the step has, one that slows kernels down more; both are set right.
//! 2. A mean: step on the target = Σ factor of the kind · time of the kind + factors of the
//!    time the device waits, all ≥ 0. Each factor is drawn to the ratio of the two GPUs'
//!    sustained rates or bandwidths ([`model`]).
//! 3. A Gaussian process on what the mean leaves, in the shares of the kinds, the step's
//!    length, the batch size and how far the device waits. Far from what it was fitted on it
//!    fades to the mean and its range widens.

mod anatomy;
mod between;
pub mod min_max;
pub mod model;
mod recorded;
mod totals;

pub use anatomy::Anatomy;
pub use between::{Axis, BetweenError, between};
pub use habitat_step::op::OperatorKind;
pub use model::{BlackBoxModel, ModelError, Range, Settings, Shape, Sizes};
pub use recorded::{Recorded, StepRecord, network_family};
pub use totals::{OperatorTotals, TotalsError};

use habitat_base::units::{Bytes, GpuSlug, Micros};
use habitat_step::catalog::{Catalog, GpuSpec};
use habitat_step::profile::{Mode, Origin, Workload};

use super::estimate::{Estimate, GpuFacts, MethodShare, Prediction, Predictions, StepTime};
use super::host::Host;
use super::memory::MemoryNeed;
use super::method::Method;
use super::rate::Rates;

/// Why totals cannot be predicted from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlackBoxError {
    /// The model knows nothing of the GPU that the totals were measured on.
    #[error("the black-box model has no anchor {gpu}; it knows {}", list(known))]
    UnknownAnchor {
        /// Measured on.
        gpu: GpuSlug,
        /// Anchors it has.
        known: Vec<GpuSlug>,
    },
    /// The model does not reach the GPU from the anchor.
    #[error("the black-box model does not reach {gpu} from {anchor}; it reaches {}", list(known))]
    UnknownTarget {
        /// Measured on.
        anchor: GpuSlug,
        /// Asked for.
        gpu: GpuSlug,
        /// Targets it has.
        known: Vec<GpuSlug>,
    },
    /// A GPU of the model that the catalog does not have.
    #[error(transparent)]
    NotInCatalog(#[from] habitat_step::catalog::UnknownGpu),
}

fn list(gpus: &[GpuSlug]) -> String {
    gpus.iter().map(GpuSlug::as_str).collect::<Vec<_>>().join(", ")
}

/// What is said where nothing tells the memory.
const NO_SHAPES: &str =
    "no shapes were shown: what memory the step needs is known from where it ran alone; tell with --peak-memory";

/// The step that `totals` were measured of on every GPU of `targets`, or on the anchor and
/// all that the model reaches from it. `peak` is the step's device memory, which totals do
/// not tell.
///
/// # Errors
/// [`BlackBoxError`] naming the anchors or targets that the model knows.
pub fn predict(
    totals: &OperatorTotals,
    model: &BlackBoxModel,
    catalog: &Catalog,
    targets: &[GpuSlug],
    peak: Option<Bytes>,
) -> Result<Predictions, BlackBoxError> {
    let need = MemoryNeed::unseen(peak, catalog.get(&totals.gpu));
    let mut predictions = predict_within(totals, model, catalog, targets, &need)?;
    if peak.is_none() {
        predictions.notes.push(NO_SHAPES.to_owned());
    }
    Ok(predictions)
}

/// The same for a step whose need of memory is known.
///
/// # Errors
/// As [`predict`].
pub(super) fn predict_within(
    totals: &OperatorTotals,
    model: &BlackBoxModel,
    catalog: &Catalog,
    targets: &[GpuSlug],
    need: &MemoryNeed,
) -> Result<Predictions, BlackBoxError> {
    let anchor_slug = same_gpu(&totals.gpu, &model.anchors(), catalog);
    let anchor = anchor_slug
        .as_ref()
        .and_then(|slug| model.anchor(slug))
        .ok_or_else(|| BlackBoxError::UnknownAnchor { gpu: totals.gpu.clone(), known: model.anchors() })?;
    let reached = anchor.targets();
    let all: Vec<GpuSlug>;
    let targets = if targets.is_empty() {
        all = std::iter::once(totals.gpu.clone()).chain(reached.iter().cloned()).collect();
        &all
    } else {
        targets
    };
    let anatomy = Anatomy::of(totals);
    let fitted = anchor.fitted();
    let mut predictions = Vec::with_capacity(targets.len());
    for slug in targets {
        let gpu = &Rates::new(catalog.find(slug.as_str())?);
        if *slug == totals.gpu {
            let step = StepTime::Measured { median: totals.step, range: None };
            predictions.push(prediction(totals, gpu, step, anatomy.waits(), need, Vec::new()));
            continue;
        }
        let known = same_gpu(slug, &reached, catalog);
        let step = known.as_ref().and_then(|known| fitted.predict(&anatomy, known)).ok_or_else(|| {
            BlackBoxError::UnknownTarget { anchor: totals.gpu.clone(), gpu: slug.clone(), known: reached.clone() }
        })?;
        let mut notes: Vec<String> =
            known.filter(|known| known != slug).map(|known| alike(slug, &known)).into_iter().collect();
        if step.unfamiliar > FAR {
            notes.push(
                "this mix of operators is unlike those the black-box model was fitted on: range widened".to_owned(),
            );
        }
        if step.is_floored {
            notes.push("the fitted factors explain none of this step: not to be relied on".to_owned());
        }
        predictions.push(prediction(totals, gpu, StepTime::Predicted(step.time), Micros::ZERO, need, notes));
    }
    let mut notes = vec![format!("black box: fitted on {}", model.trained_on())];
    notes.extend(anchor_slug.filter(|slug| *slug != totals.gpu).map(|slug| alike(&totals.gpu, &slug)));
    notes.extend(anatomy.notes());
    notes.extend(anchor.unseen(&anatomy).iter().map(|(kind, share)| {
        format!(
            "{} takes {:.0} % of the device time, and the black-box model was fitted on no step that has it: taken between the ratio of arithmetic and that of bandwidths",
            kind.name(),
            share * 100.0
        )
    }));
    let (workload, origin) = (workload(totals), Some(origin(&totals.gpu)));
    Ok(Predictions { workload, origin, host: Host::AsRecorded, communicates: false, predictions, notes })
}

/// The GPU itself, or one of `known` that differs from it in memory size alone: steps that fit
/// take as long on both.
fn same_gpu(gpu: &GpuSlug, known: &[GpuSlug], catalog: &Catalog) -> Option<GpuSlug> {
    if known.contains(gpu) {
        return Some(gpu.clone());
    }
    let spec = catalog.get(gpu)?;
    let alike = |other: &GpuSpec| {
        other.architecture == spec.architecture
            && other.sm_count == spec.sm_count
            && other.peak.fp32 == spec.peak.fp32
            && other.memory_bandwidth == spec.memory_bandwidth
            && other.power == spec.power
    };
    known.iter().find(|known| catalog.get(known).is_some_and(alike)).cloned()
}

fn alike(gpu: &GpuSlug, known: &GpuSlug) -> String {
    format!("{gpu} is taken as {known}, which differs in memory size alone")
}

/// Share of the prior variance that is left, from which on a step counts as unlike all others.
const FAR: f64 = 0.6;

fn workload(totals: &OperatorTotals) -> Workload {
    Workload {
        name: "black box".to_owned(),
        mode: Mode::Training,
        batch_size: Some(totals.batch_size),
        micro_batches: None,
        sequence_length: None,
        precision: None,
        parameter_count: None,
    }
}

fn origin(gpu: &GpuSlug) -> Origin {
    Origin { gpu: Some(gpu.clone()), gpu_name: None, framework: None, cuda: None, driver: None }
}

fn prediction(
    totals: &OperatorTotals,
    gpu: &Rates<'_>,
    step: StepTime,
    host_idle: Micros,
    need: &MemoryNeed,
    notes: Vec<String>,
) -> Prediction {
    let estimate = step.as_estimate();
    Prediction {
        gpu: GpuFacts::new(gpu),
        shares: vec![MethodShare {
            method: estimate.method,
            device_time: step.mid().checked_sub(host_idle).unwrap_or_default(),
            share: 1.0,
        }],
        step,
        throughput: estimate.throughput(totals.batch_size),
        host_idle,
        operations: Vec::new(),
        update_share: 0.0,
        left_out: 0.0,
        memory: need.fit(gpu),
        precision_note: None,
        keeps_precision: false,
        at_batches: Vec::new(),
        transformer: None,
        warnings: Vec::new(),
        notes,
    }
}

/// A step on a target.
#[derive(Debug, Clone, PartialEq)]
pub struct BlackBoxStep {
    /// The step with its range.
    pub time: Estimate,
    /// How unlike it is to what the model was fitted on: share of the prior variance that is
    /// left, 0 (the same) to 1 (nothing like it).
    pub unfamiliar: f64,
    /// Whether the mean came out as next to nothing and was raised to a thousandth of the
    /// anchor's step.
    pub is_floored: bool,
}

impl BlackBoxStep {
    fn new(mid: f64, range: Range, unfamiliar: f64, is_floored: bool) -> Option<Self> {
        let [low, high] = range.factors(unfamiliar);
        let time = Estimate::with_factors(Micros::checked(mid)?, low, high, Method::BlackBox);
        Some(Self { time, unfamiliar, is_floored })
    }
}
