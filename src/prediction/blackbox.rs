//! Predicts step times on other GPUs from only the total time of each kind of operator.
//!
//! This is PROFET's setting ("PROFET: PROFiling-based CNN Training Latency prophET for GPU Cloud Instances"): a user
//! keeps a model secret, runs it on one GPU (the anchor), and shares only the step time and its device time by operator
//! kind. No shapes, names or modules are shared. `models/lab` rebuilds the published predictor for comparison; the
//! predictor here has three parts:
//!
//! 1. [`Anatomy`]: corrects the totals. A profiler that lost events shows too little device time; one that slows
//!    kernels down shows too much.
//! 2. A mean: step on the target = Σ factor of the kind · time of the kind + factors of the device's waiting time, all
//!    ≥ 0. Each factor is regularised towards the ratio of the two GPUs' sustained rates or bandwidths ([`model`]).
//! 3. A Gaussian process on the residuals of the mean. Its inputs are the shares of the kinds, the step time, the batch
//!    size and the idle time. Far from its training data it falls back to the mean and the range widens.

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
use habitat_step::profile::{Origin, Workload};

use super::estimate::{Estimate, MethodShare, StepTime};
use super::finding::Finding;
use super::gpu::GpuFacts;
use super::host::Host;
use super::memory::MemoryNeed;
use super::method::Method;
use super::predictions::{Prediction, Predictions};
use super::rate::Rates;

/// Reason that totals cannot be predicted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlackBoxError {
    /// The model has no anchor for the GPU of the totals.
    #[error("the black-box model cannot start from {gpu}; it can from {}", list(known))]
    UnknownAnchor {
        /// GPU of the totals.
        gpu: GpuSlug,
        /// Anchors of the model.
        known: Vec<GpuSlug>,
    },
    /// The model has no factors from the anchor to the GPU.
    #[error("the black-box model cannot predict {gpu} from {anchor}; it can predict {}", list(known))]
    UnknownTarget {
        /// GPU of the totals.
        anchor: GpuSlug,
        /// Requested GPU.
        gpu: GpuSlug,
        /// Targets of the model.
        known: Vec<GpuSlug>,
    },
    /// A GPU of the model is not in the catalog.
    #[error(transparent)]
    NotInCatalog(#[from] habitat_step::catalog::UnknownGpu),
}

fn list(gpus: &[GpuSlug]) -> String {
    gpus.iter().map(GpuSlug::as_str).collect::<Vec<_>>().join(", ")
}

/// Predicts the step of `totals` on every GPU of `targets`, or on the anchor and all targets of the model if empty.
/// `peak` is the step's peak device memory, which totals lack.
///
/// # Errors
/// [`BlackBoxError`] listing the anchors or targets of the model.
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
        predictions.notes.push(Finding::UnknownMemory);
    }
    Ok(predictions)
}

/// Like [`predict`], for a step with a known memory need.
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
        let mut notes: Vec<Finding> =
            known.filter(|known| known != slug).map(|known| alike(slug, &known)).into_iter().collect();
        if step.unfamiliar > FAR {
            notes.push(Finding::UnusualMix);
        }
        if step.is_floored {
            notes.push(Finding::Unexplained);
        }
        predictions.push(prediction(totals, gpu, StepTime::Predicted(step.time), Micros::ZERO, need, notes));
    }
    let mut notes = vec![Finding::BlackBox { trained_on: model.trained_on().to_owned() }];
    notes.extend(anchor_slug.filter(|slug| *slug != totals.gpu).map(|slug| alike(&totals.gpu, &slug)));
    notes.extend(anatomy.note());
    let unseen = anchor.unseen(&anatomy).into_iter();
    notes.extend(unseen.map(|(kind, share)| Finding::UnseenKind { kind: kind.name(), share }));
    let (workload, origin) = (workload(totals), Some(origin(&totals.gpu)));
    Ok(Predictions { workload, origin, host: Host::AsRecorded, communicates: false, predictions, notes })
}

/// The GPU itself, or one of `known` that differs only in memory size: steps that fit take equally long on both.
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

fn alike(gpu: &GpuSlug, known: &GpuSlug) -> Finding {
    Finding::TreatedAs { gpu: gpu.clone(), known: known.clone() }
}

/// Share of the prior variance left, above which a step counts as unlike the training data.
const FAR: f64 = 0.6;

fn workload(totals: &OperatorTotals) -> Workload {
    Workload { name: "black box".to_owned(), batch_size: Some(totals.batch_size), ..Workload::default() }
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
    notes: Vec<Finding>,
) -> Prediction {
    let estimate = step.as_estimate();
    Prediction {
        gpu: GpuFacts::new(gpu),
        shares: vec![MethodShare {
            method: estimate.method,
            device_time: step.mid().checked_sub(host_idle).unwrap_or_default(),
            share: 1.0,
        }],
        device: step.mid().checked_sub(host_idle).unwrap_or_default(),
        step,
        throughput: estimate.throughput(totals.batch_size),
        host_idle,
        operations: Vec::new(),
        update_share: 0.0,
        left_out: 0.0,
        memory: need.fit(gpu),
        precision_note: None,
        keeps_precision: false,
        data: None,
        at_batches: Vec::new(),
        transformer: None,
        warnings: Vec::new(),
        notes,
    }
}

/// Predicted step on a target.
#[derive(Debug, Clone, PartialEq)]
pub struct BlackBoxStep {
    /// The step with its range.
    pub time: Estimate,
    /// Distance from the training data: the share of the prior variance left, 0 (identical) to 1 (unrelated).
    pub unfamiliar: f64,
    /// Whether the mean was below a thousandth of the anchor's step and was raised to it.
    pub is_floored: bool,
}

impl BlackBoxStep {
    fn new(mid: f64, range: Range, unfamiliar: f64, is_floored: bool) -> Option<Self> {
        let [low, high] = range.factors(unfamiliar);
        let time = Estimate::with_factors(Micros::checked(mid)?, low, high, Method::BlackBox);
        Some(Self { time, unfamiliar, is_floored })
    }
}
