//! Step times on GPUs of the catalog, from one recorded step or from shapes alone.
//!
//! Step = device time of the operations on the destination, less what overlaps as it did
//! on the origin, plus the time in which the device waits for the host, which is taken
//! over unchanged. Operations of a multi-GPU recording that communicate are left out, on
//! the GPU of the recording too: a time is of one GPU, [`scale`] adds the others.

mod base;
pub mod batches;
pub mod blackbox;
pub mod bundle;
mod communication;
pub mod compare;
pub mod estimate;
pub mod features;
pub mod gaussian;
pub mod habitat;
pub mod head;
pub mod host;
pub mod kernelwise;
pub mod learned;
pub mod measured;
pub mod memory;
pub mod mlp;
mod notes;
pub mod origin;
mod precision;
pub mod random;
pub mod rate;
pub mod roofline;
mod route;
pub mod runlog;
pub mod scale;
mod step;
pub mod suggest;
mod unshaped;
pub mod warning;
pub mod wave;

pub use communication::communicates;
pub use estimate::{
    Estimate, Fits, GpuFacts, MemoryFit, Method, MethodShare, OperationPrediction, Prediction, Predictions, StepTime,
};
pub use origin::origin;
pub use route::MethodChoice;
pub use warning::{Warning, WarningKind};
pub use wave::WaveForm;

/// The workload of a profile, for rooms that know predictions but not profiles.
pub use crate::profile::{Mode, Precision, Workload};

use std::sync::Arc;

use crate::catalog::{Catalog, GpuSpec};

use crate::profile::{Operation, Profile};
use crate::text;
use crate::units::{GpuSlug, Micros};
use base::Base;
use blackbox::BlackBoxModel;
use communication::Communication;
use habitat::{HabitatMlp, HabitatTimes};
use kernelwise::KernelWise;
use kernelwise::apply::step_operations;
use learned::{LearnedTime, Models};
use memory::MemoryNeed;
use origin::Candidates;
use precision::Change;
use route::{Fitted, LearnedColumns, Route, Routed};
use step::{Context, predict_one};
use unshaped::Unshaped;

/// What to predict and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// GPUs to predict for; empty = all of the catalog.
    pub targets: Vec<GpuSlug>,
    /// Drop what was measured and predict from shapes alone.
    pub ignore_origin: bool,
    /// The GPU the profile was recorded on, in place of what it says.
    pub origin: Option<GpuSlug>,
    /// Which methods may be used.
    pub method: MethodChoice,
    /// Which equation wave scaling uses.
    pub wave_form: WaveForm,
    /// The learned models; without them rooflines take their place.
    pub models: Option<Arc<Models>>,
    /// Habitat's networks, for [`MethodChoice::HabitatMlp`].
    pub habitat: Option<Arc<HabitatMlp>>,
    /// Fitted lines, for [`MethodChoice::KernelWise`], [`MethodChoice::LayerWise`] and
    /// [`MethodChoice::EndToEnd`].
    pub kernel_wise: Option<Arc<KernelWise>>,
    /// The black-box model, for [`MethodChoice::BlackBox`].
    pub black_box: Option<Arc<BlackBoxModel>>,
    /// The precision to predict for, where it is not the recorded one.
    pub precision: Option<Precision>,
}

/// Why nothing can be predicted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredictError {
    /// Measured times without a GPU that the catalog knows.
    #[error(
        "{}; say which it is with --origin{}{}",
        origin::named(.name.as_deref(), .candidates),
        origin::choice(.candidates, .near),
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
    UnknownGpu(#[from] crate::catalog::UnknownGpu),
    /// No operation has a time or shapes.
    #[error(
        "no operation of {workload:?} has shapes, or a measured time that is used, so there is nothing to predict from; record it with shapes (record_shapes=True)"
    )]
    NothingKnown {
        /// The workload.
        workload: String,
    },
    /// Habitat's networks asked for, but none given.
    #[error(
        "no weights of Habitat's networks were given; train them with `habitat-lab train --habitat` (models/lab in the sources)"
    )]
    NoWeights,
    /// Fitted lines asked for, but none given.
    #[error(
        "no fitted lines were given; fit them with `habitat-tui fit kernelwise PROFILES… -o kernelwise.json` and name the file with --kernel-wise"
    )]
    NoLines,
    /// A profile that the black-box model cannot start from.
    #[error("the black-box model cannot start from this step: {0}")]
    Totals(#[from] blackbox::TotalsError),
    /// A GPU that the black-box model does not know.
    #[error(transparent)]
    BlackBox(#[from] blackbox::BlackBoxError),
    /// The black-box model asked for, but none given.
    #[error("no black-box model was given; make one with `habitat-tui fit black-box DIR`")]
    NoBlackBox,
    /// A network that does not compute.
    #[error("learned models: {0}; go on without them with --method wave-scaling or roofline")]
    Network(#[from] mlp::ModelError),
}

/// The step of `profile` on every GPU asked for.
///
/// A GPU that is the origin of a profile with a measured step gets the measurement. With
/// [`MethodChoice::Auto`], fitted lines take the default method's place on GPUs where they
/// were found to err clearly less ([`compare`](mod@compare)).
///
/// # Errors
/// [`PredictError`] where the origin or a target is not in the catalog, or nothing is
/// known of any operation.
pub fn predict(profile: &Profile, catalog: &Catalog, options: &Options) -> Result<Predictions, PredictError> {
    let mut answers = predict_by(profile, catalog, options)?;
    if options.method != MethodChoice::Auto || options.kernel_wise.is_none() || options.precision.is_some() {
        return Ok(answers);
    }
    let origin = origin::origin(profile, catalog, options)?;
    let targets: Vec<&GpuSpec> = answers
        .predictions
        .iter()
        .filter(|it| !it.step.is_of_origin())
        .filter_map(|it| catalog.get(&it.gpu.slug))
        .collect();
    let instead = compare::lines_instead(profile, origin, &targets, options);
    if instead.is_empty() {
        return Ok(answers);
    }
    let method = MethodChoice::KernelWise;
    let targets = instead.iter().map(|(slug, _)| slug.clone()).collect();
    let by_lines = predict_by(profile, catalog, &Options { targets, method, ..options.clone() })?;
    for ((_, why), mut prediction) in instead.into_iter().zip(by_lines.predictions) {
        if prediction.by_fitted_lines() < compare::COVERED {
            continue;
        }
        prediction.notes.insert(0, why);
        if let Some(place) = answers.predictions.iter_mut().find(|it| it.gpu.slug == prediction.gpu.slug) {
            *place = prediction;
        }
    }
    Ok(answers)
}

/// By the method asked for, whatever errors were found.
fn predict_by(profile: &Profile, catalog: &Catalog, options: &Options) -> Result<Predictions, PredictError> {
    if options.method == MethodChoice::BlackBox {
        let model = options.black_box.as_ref().ok_or(PredictError::NoBlackBox)?;
        let origin = origin::origin(profile, catalog, options)?.map(|gpu| gpu.slug.clone());
        return blackbox::of_profile(profile, model, catalog, origin.as_ref(), &options.targets);
    }
    let stripped;
    let profile = if options.ignore_origin {
        stripped = profile.without_origin();
        &stripped
    } else {
        profile
    };
    let origin = origin::origin(profile, catalog, options)?;
    let routed: Vec<Routed<'_>> = profile
        .operations
        .iter()
        .enumerate()
        .map(|(index, operation)| Routed::new(index, operation, profile.workload.precision))
        .collect();
    let need = MemoryNeed::of(profile, origin);
    let targets: Vec<&GpuSpec> = if options.targets.is_empty() {
        catalog.iter().collect()
    } else {
        options.targets.iter().map(|slug| catalog.find(slug.as_str())).collect::<Result<_, _>>()?
    };
    let networks = match (options.method, &options.habitat) {
        (MethodChoice::HabitatMlp, Some(networks)) => {
            let gpus = &targets.iter().copied().chain(origin);
            Some(HabitatTimes::new(networks, &profile.operations, profile.workload.precision, gpus)?)
        }
        (MethodChoice::HabitatMlp, None) => return Err(PredictError::NoWeights),
        _ => None,
    };
    let fitted = match &options.kernel_wise {
        Some(model) if options.method.is_fitted() => Some(model),
        None if options.method.is_fitted() => return Err(PredictError::NoLines),
        _ => None,
    };
    let operations = step_operations(profile);
    let change = Change::asked(profile, options.precision);
    let learned = if fitted.is_some() { None } else { LearnedTable::of(profile, origin, &targets, options)? };
    let route = |destination, learned| Route {
        origin,
        destination,
        precision: profile.workload.precision,
        choice: options.method,
        form: options.wave_form,
        learned,
        habitat: networks.as_ref(),
        fitted: fitted.map(|model| {
            let lines = model.on(destination);
            Fitted { lines, whole: lines.end_to_end(operations).map(|time| (time, operations)) }
        }),
    };
    // Fitted lines take nothing else over from the origin than the host's part of its step.
    let host_known = profile.step.as_ref().is_some_and(|step| step.device_busy.is_some());
    let communication = Communication::of(&routed, profile.workload.mode);
    let needs_base = fitted.is_none() || host_known || communication.is_some();
    let base = origin.filter(|_| needs_base).map(|origin| {
        let route = route(origin, learned.as_ref().and_then(LearnedTable::at_origin));
        Base::of(profile, &route, &routed, options.models.as_deref())
    });
    let unshaped = origin.and_then(|_| Unshaped::of(&routed));
    let warnings = of_every_gpu(base.as_ref(), communication.as_ref(), unshaped);
    let context = Context {
        profile,
        base: base.as_ref(),
        routed: &routed,
        need: &need,
        models: options.models.as_deref(),
        warnings: &warnings,
    };
    let mut keeping: Vec<&GpuSpec> = Vec::new();
    let predictions: Vec<Prediction> = targets
        .into_iter()
        .enumerate()
        .map(|(index, gpu)| {
            let refused = change.and_then(|change| change.refused_by(gpu));
            keeping.extend(refused.as_ref().map(|_| gpu));
            let change = change.filter(|_| refused.is_none());
            let route = route(gpu, learned.as_ref().map(|table| table.columns(index)));
            let mut prediction = predict_one(&context, &route, change);
            prediction.precision_note = refused.or_else(|| change.map(Change::note));
            prediction.notes.splice(0..0, prediction.precision_note.clone());
            prediction
        })
        .collect();
    if predictions.iter().all(|prediction| prediction.step.mid() == Micros::ZERO) {
        return Err(PredictError::NothingKnown { workload: text::clean(&profile.workload.name, 60) });
    }
    let mut origin_facts = profile.origin.clone();
    if let (Some(facts), Some(gpu)) = (&mut origin_facts, origin) {
        facts.gpu = Some(gpu.slug.clone());
    }
    let mut notes = base.map(|base| base.notes).unwrap_or_default();
    let mut workload = profile.workload.clone();
    if let Some(change) = change {
        notes.splice(0..0, change.notes(&routed).into_iter().chain(change.kept_on(&keeping)));
        workload.precision = Some(change.to());
    }
    Ok(Predictions { workload, origin: origin_facts, predictions, notes })
}

/// What is to be shown with the times of every GPU.
fn of_every_gpu(
    base: Option<&Base>,
    communication: Option<&Communication>,
    unshaped: Option<Unshaped>,
) -> Vec<Warning> {
    let communicates = match base {
        Some(base) => base.warnings.clone(),
        None => communication.map_or_else(Vec::new, |communication| communication.warnings(None)),
    };
    communicates.into_iter().chain(unshaped.map(Unshaped::warning)).collect()
}

/// What the learned models say of every operation on every GPU.
struct LearnedTable {
    /// By target, then operation.
    targets: Vec<Vec<Option<LearnedTime>>>,
    /// On the origin.
    origin: Option<Vec<Option<LearnedTime>>>,
    /// Whether the origin's operators were measured within the step.
    by_operator: bool,
}

impl LearnedTable {
    fn of(
        profile: &Profile,
        origin: Option<&GpuSpec>,
        targets: &[&GpuSpec],
        options: &Options,
    ) -> Result<Option<Self>, PredictError> {
        let Some(models) = &options.models else { return Ok(None) };
        let operations: Vec<&Operation> = profile.operations.iter().collect();
        let gpus: Vec<&GpuSpec> = targets.iter().copied().chain(origin).collect();
        let mut rows = models.table(&operations, profile.workload.precision, &gpus)?;
        let origin = if origin.is_some() { rows.pop() } else { None };
        Ok(Some(Self { targets: rows, origin, by_operator: measured_within(profile) }))
    }

    fn columns(&self, target: usize) -> LearnedColumns<'_> {
        LearnedColumns {
            there: self.targets.get(target).map_or(&[][..], |row| row),
            here: self.origin.as_deref().filter(|_| self.by_operator),
        }
    }

    fn at_origin(&self) -> Option<LearnedColumns<'_>> {
        let there = self.origin.as_deref()?;
        Some(LearnedColumns { there, here: Some(there).filter(|_| self.by_operator) })
    }
}

/// Whether operators were measured within the step (a trace), not each by itself.
fn measured_within(profile: &Profile) -> bool {
    profile.step.as_ref().is_none_or(|step| step.device_busy.is_some())
        || profile.operations.iter().any(|operation| !operation.kernels.is_empty())
}
