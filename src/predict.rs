//! Step times on GPUs of the catalog, from one recorded step or from shapes alone.
//!
//! Step = device time of the operations on the destination, less what overlaps as it did
//! on the origin, plus the time in which the device waits for the host, which is taken
//! over unchanged. Operations of a multi-GPU recording that communicate are left out: a
//! prediction is of one GPU, [`scale`] adds the others.

pub mod batches;
pub mod blackbox;
pub mod bundle;
pub mod compare;
pub mod estimate;
pub mod family;
pub mod features;
pub mod gaussian;
pub mod habitat;
pub mod head;
pub mod kernelwise;
pub mod learned;
pub mod measured;
pub mod memory;
pub mod mlp;
mod notes;
mod precision;
pub mod primitive;
pub mod random;
pub mod rate;
pub mod roofline;
mod route;
pub mod runlog;
pub mod scale;
pub mod suggest;
pub mod wave;
pub mod work;

pub use estimate::{
    Estimate, Fits, GpuFacts, MemoryFit, Method, MethodShare, OperationPrediction, Prediction, Predictions, StepTime,
};
pub use route::MethodChoice;
pub use wave::WaveForm;

/// The workload of a profile, for rooms that know predictions but not profiles.
pub use crate::profile::{Mode, Precision, Workload};

use std::sync::Arc;

use crate::catalog::{Catalog, GpuSpec};

use crate::profile::{Operation, Profile};
use crate::text;
use crate::units::{GpuSlug, Micros, SamplesPerSecond};
use blackbox::BlackBoxModel;
use family::Family;
use habitat::{HabitatMlp, HabitatTimes};
use kernelwise::KernelWise;
use kernelwise::apply::step_operations;
use learned::{LearnedTime, Models};
use memory::MemoryNeed;
use precision::Change;
use route::{Fitted, LearnedColumns, Route, Routed};

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
    #[error("{}; say which it is with --origin{}, or drop what was measured with --ignore-origin", named(.name.as_deref()), near_names(.near))]
    UnknownOrigin {
        /// What the profile calls the GPU, if anything.
        name: Option<String>,
        /// Nearest slugs.
        near: Vec<String>,
    },
    /// A GPU asked for that the catalog does not have.
    #[error(transparent)]
    UnknownGpu(#[from] crate::catalog::UnknownGpu),
    /// No operation has a time or shapes.
    #[error(
        "no operation of {workload:?} has a measured time or shapes, so there is nothing to predict from; record it with shapes (record_shapes=True)"
    )]
    NothingKnown {
        /// The workload.
        workload: String,
    },
    /// Habitat's networks asked for, but none given.
    #[error("no weights of Habitat's networks were given; train them with `habitat-tui models train --habitat`")]
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
    #[error("no black-box model was given; train one with `habitat-tui models train --black-box DIR`")]
    NoBlackBox,
    /// A network that does not compute.
    #[error("learned models: {0}; go on without them with --method wave-scaling or roofline")]
    Network(#[from] mlp::ModelError),
}

fn named(name: Option<&str>) -> String {
    name.map_or_else(
        || "the profile does not say which GPU it was recorded on".to_owned(),
        |name| format!("the profile was recorded on {name:?}, which the catalog does not have"),
    )
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" (near: {})", near.join(", ")) }
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
    let origin = find_origin(profile, catalog, options)?;
    let targets: Vec<&GpuSpec> = answers
        .predictions
        .iter()
        .filter(|it| !it.step.is_measured())
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
        let origin = find_origin(profile, catalog, options)?.map(|gpu| gpu.slug.clone());
        return blackbox::of_profile(profile, model, catalog, origin.as_ref(), &options.targets);
    }
    let stripped;
    let profile = if options.ignore_origin {
        stripped = profile.without_origin();
        &stripped
    } else {
        profile
    };
    let origin = find_origin(profile, catalog, options)?;
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
    let base = origin.filter(|_| fitted.is_none() || host_known).map(|origin| {
        let route = route(origin, learned.as_ref().and_then(LearnedTable::at_origin));
        Base::of(profile, &route, &routed, options.models.as_deref())
    });
    let context =
        Context { profile, base: base.as_ref(), routed: &routed, need: &need, models: options.models.as_deref() };
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

/// The GPU that the measured times of a profile are of; `None` where nothing was measured or
/// what was is to be ignored.
///
/// # Errors
/// [`PredictError`] where the catalog does not have it.
pub fn origin<'a>(
    profile: &Profile,
    catalog: &'a Catalog,
    options: &Options,
) -> Result<Option<&'a GpuSpec>, PredictError> {
    find_origin(profile, catalog, options)
}

fn find_origin<'a>(
    profile: &Profile,
    catalog: &'a Catalog,
    options: &Options,
) -> Result<Option<&'a GpuSpec>, PredictError> {
    if options.ignore_origin {
        return Ok(None);
    }
    if let Some(slug) = &options.origin {
        return Ok(Some(catalog.find(slug.as_str())?));
    }
    let Some(origin) = &profile.origin else { return Ok(None) };
    if let Some(gpu) = origin.gpu.as_ref().and_then(|slug| catalog.get(slug)) {
        return Ok(Some(gpu));
    }
    let name = origin
        .gpu_name
        .clone()
        .or_else(|| origin.gpu.as_ref().map(ToString::to_string))
        .map(|name| text::clean(&name, 80));
    let near = name.as_deref().map_or_else(Vec::new, |name| match catalog.find(name) {
        Ok(gpu) => vec![gpu.slug.to_string()],
        Err(unknown) => unknown.near,
    });
    Err(PredictError::UnknownOrigin { name, near })
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

/// What all predictions of a profile have in common.
struct Context<'a> {
    profile: &'a Profile,
    base: Option<&'a Base>,
    routed: &'a [Routed<'a>],
    need: &'a MemoryNeed,
    models: Option<&'a Models>,
}

/// What the origin tells of the step as a whole.
struct Base {
    /// Device busy time over the sum of the times of operations that compute: below 1 where streams overlap.
    overlap: f64,
    /// Where operators were measured apart: by how much the origin's step deviates from what
    /// the models say of it, as far as a destination shares that. 1 otherwise.
    deviation: f64,
    /// The device waits for the host.
    host_idle: Micros,
    /// Communication that was not hidden behind other operations.
    exposed: Micros,
    /// Whether the recording has communication at all.
    communicates: bool,
    notes: Vec<String>,
}

impl Base {
    fn of(profile: &Profile, route: &Route<'_>, routed: &[Routed<'_>], models: Option<&Models>) -> Self {
        if let Some(base) = models.and_then(|models| Self::by_models(profile, route, routed, models)) {
            return base;
        }
        // Operations that were not measured are put in from their shapes, here as on every
        // destination, so that they do not turn into idle time.
        let mut sum = Micros::ZERO;
        let (mut unmeasured, mut communication) = (0_usize, Micros::ZERO);
        for routed in routed {
            let count = f64::from(routed.operation.count);
            if routed.family == Family::Communication {
                communication += routed.operation.device_time.unwrap_or(Micros::ZERO) * count;
            } else if let Some(time) = routed.operation.device_time {
                sum += time * count;
            } else if let Some(estimate) = route.predict(routed).time {
                sum += estimate.mid * count;
                unmeasured += usize::from(estimate.mid.get() > 0.0);
            }
        }
        let mut notes = Vec::new();
        if unmeasured > 0 {
            notes.push(format!(
                "{unmeasured} of {} operations were not measured on the origin: roofline on shapes",
                routed.len()
            ));
        }
        if communication.get() > 0.0 {
            notes.push(format!(
                "communication of the recording ({:.2} ms) left out: a prediction is of one GPU",
                communication.as_millis()
            ));
        }
        // Where the operations sum to more than the device was busy (or than the step took),
        // they overlapped; that share is carried over. What communication adds to the busy
        // time beyond the operations was not hidden behind them.
        let busy = profile.step.as_ref().and_then(|step| step.device_busy).unwrap_or(sum + communication);
        let busy = profile.measured_step().map_or(busy, |step| busy.min(step));
        let overlap = if sum.get() > 0.0 { (busy / sum).min(1.0) } else { 1.0 };
        let host_idle = profile.measured_step().map_or(Micros::ZERO, |step| step - busy);
        let exposed = if communication.get() > 0.0 { busy - sum * overlap } else { Micros::ZERO };
        if overlap < 0.98 {
            notes
                .push(format!("operations overlap on the origin: their sum counts {:.0} %, as there", overlap * 100.0));
        }
        if host_idle.get() > 0.0
            && let Some(step) = profile.measured_step()
        {
            notes.push(format!(
                "the device waits for the host {:.2} ms of each step ({:.0} %); taken over unchanged on every GPU",
                host_idle.as_millis(),
                host_idle / step * 100.0
            ));
        }
        Self { overlap, deviation: 1.0, host_idle, exposed, communicates: communication.get() > 0.0, notes }
    }

    /// Operators that were measured apart from the step (their sum differs from it by the
    /// launches and, where the board heats up, the clock) say less of a destination than
    /// the step itself: step over what the models say of it on the origin.
    fn by_models(profile: &Profile, route: &Route<'_>, routed: &[Routed<'_>], models: &Models) -> Option<Self> {
        let (learned, step, origin) = (route.learned?, profile.measured_step()?, route.destination);
        if learned.here.is_some() || !route.choice.is_learned() {
            return None;
        }
        let operations: Vec<OperationPrediction> = routed.iter().map(|routed| route.predict(routed)).collect();
        let expected = device_time(&shares(&operations), models.step_factor(origin, profile.workload.mode));
        if expected.get() <= 0.0 {
            return None;
        }
        // How far a board slows down for want of power is its own.
        let limited = rate::fp32_product_rate(origin).is_power_limited();
        let shared = if limited { 0.0 } else { models.steps().shared_deviation };
        let deviation = (step / expected).powf(shared);
        let mut note = format!(
            "the models say {:.2} ms of the origin's {:.2} ms step: times {deviation:.3} everywhere",
            expected.as_millis(),
            step.as_millis()
        );
        if limited {
            note = format!(
                "the models say {:.2} ms of the origin's {:.2} ms step; not carried over, as that board is short of power",
                expected.as_millis(),
                step.as_millis()
            );
        }
        Some(Self {
            overlap: 1.0,
            deviation,
            host_idle: Micros::ZERO,
            exposed: Micros::ZERO,
            communicates: false,
            notes: vec![note],
        })
    }
}

fn predict_one(context: &Context<'_>, route: &Route<'_>, change: Option<Change>) -> Prediction {
    let Context { profile, base, routed, need, models } = *context;
    let gpu = route.destination;
    let is_origin = route.origin.is_some_and(|origin| origin.slug == gpu.slug);
    let mut operations: Vec<OperationPrediction> = routed.iter().map(|routed| route.predict(routed)).collect();
    let taken_over = change.and_then(|change| change.apply(gpu, routed, &mut operations));
    let measured =
        profile.measured_step().filter(|_| is_origin && route.choice != MethodChoice::Roofline && change.is_none());
    if measured.is_some() {
        for operation in &mut operations {
            if let Some(time) = operation.origin_time {
                operation.time = Some(Estimate::with_band(time, 0.0, Method::Measured));
                "measured on this GPU".clone_into(&mut operation.why);
            }
        }
    }
    let shares = shares(&operations);
    let host_idle = base.map_or(Micros::ZERO, |base| base.host_idle);
    let step = if let Some(median) = measured {
        StepTime::Measured { median, range: profile.step.as_ref().and_then(|step| step.duration_range) }
    } else if let Some(fitted) = &route.fitted {
        StepTime::Predicted(fitted_step(&shares, &operations, fitted, host_idle))
    } else {
        let step = step_estimate(&shares, &operations, base, (gpu, profile.workload.mode), models);
        StepTime::Predicted(if change.is_some() { precision::widened(&step) } else { step })
    };
    let throughput =
        profile.workload.batch_size.filter(|_| step.mid().get() > 0.0).map(|batch| {
            step.as_estimate().map_decreasing(|time| SamplesPerSecond::known(batch as f64 / time.as_secs()))
        });
    let mut notes = notes::of_gpu(gpu, &operations, profile);
    if measured.is_none() {
        notes.extend(notes::of_models((gpu, profile.workload.mode), &operations, &shares, base, models));
    }
    if let Some(fitted) = route.fitted.as_ref().filter(|_| measured.is_none()) {
        notes.extend(notes::of_lines(fitted, &shares));
    }
    notes.splice(0..0, taken_over);
    let without_communication = match (measured, base) {
        (Some(median), Some(base)) if base.communicates => {
            let alone = median - base.exposed;
            notes.insert(
                0,
                format!(
                    "recorded with other GPUs: {:.2} ms of the step is communication; plans count {:.2} ms for one GPU and add their own",
                    base.exposed.as_millis(),
                    alone.as_millis()
                ),
            );
            Some(alone)
        }
        _ => None,
    };
    Prediction {
        gpu: facts(gpu),
        notes,
        step,
        without_communication,
        throughput,
        host_idle,
        shares,
        operations,
        precision_note: None,
        memory: if change.is_some_and(Change::widens) { need.in_32_bits().fit(gpu) } else { need.fit(gpu) },
    }
}

/// Device time of one step by method, largest first.
fn shares(operations: &[OperationPrediction]) -> Vec<MethodShare> {
    let mut by_method: Vec<MethodShare> = Vec::new();
    for operation in operations {
        let Some(time) = &operation.time else { continue };
        let total = time.mid * f64::from(operation.count);
        match by_method.iter_mut().find(|share| share.method == time.method) {
            Some(share) => share.device_time += total,
            None => by_method.push(MethodShare { method: time.method, device_time: total, share: 0.0 }),
        }
    }
    let all: Micros = by_method.iter().map(|share| share.device_time).sum();
    if all.get() > 0.0 {
        by_method.retain(|share| share.device_time.get() > 0.0);
        for share in &mut by_method {
            share.share = share.device_time / all;
        }
    }
    by_method.sort_by(|a, b| b.share.total_cmp(&a.share));
    by_method
}

/// Device time of a step: what the models say of operators by themselves times what a step
/// takes of that, and the rest as it is.
fn device_time(shares: &[MethodShare], step_factor: f64) -> Micros {
    shares.iter().map(|share| share.device_time * if share.method == Method::Learned { step_factor } else { 1.0 }).sum()
}

/// The step and its range: of every method's part the ends that steps by that method were
/// found to keep, taken together as if they erred together. Calibrated for the learned
/// models, the published step errors for the rest; they are errors of whole iterations, in
/// which the host's part changes too.
fn step_estimate(
    shares: &[MethodShare],
    operations: &[OperationPrediction],
    base: Option<&Base>,
    (gpu, mode): (&GpuSpec, Mode),
    models: Option<&Models>,
) -> Estimate<Micros> {
    let (overlap, idle) = base.map_or((1.0, Micros::ZERO), |base| (base.overlap, base.host_idle));
    let deviation = base.map_or(1.0, |base| base.deviation);
    let device = device_time(shares, models.map_or(1.0, |models| models.step_factor(gpu, mode)));
    let spread = models.map_or((0.0, 0.0), |models| {
        let steps = models.steps();
        let from_shapes = if models.has_seen(gpu) { steps.seen } else { steps.unseen };
        let spread = if base.is_some() { steps.with_origin } else { from_shapes }.unwrap_or(learned::WIDE);
        let spread = spread.widened(1.0 + notes::far_share(operations));
        (spread.low.min(1.0), spread.high.max(1.0))
    });
    let ends = |method: Method| match method {
        Method::Learned | Method::LearnedRatio if models.is_some() => spread,
        _ => (1.0 - method.step_band(), 1.0 + method.step_band()),
    };
    let (mut low, mut high) = (0.0, 0.0);
    for share in shares {
        let (below, above) = ends(share.method);
        low += share.share * below;
        high += share.share * above;
    }
    let method = match shares {
        [only] if only.method == Method::Learned && base.is_some() => Method::LearnedRatio,
        [only] => only.method,
        _ => Method::Mixed,
    };
    Estimate::with_factors(device * (overlap * deviation) + idle, low, high, method)
}

/// The step by fitted lines: what steps were found to take of their layers, in the range of
/// networks or GPUs left out, and the time in which the device waits for the host, where that
/// was recorded. Parts that only a roofline answers for have its range.
fn fitted_step(
    shares: &[MethodShare],
    operations: &[OperationPrediction],
    fitted: &Fitted<'_>,
    host_idle: Micros,
) -> Estimate<Micros> {
    let lines = &fitted.lines;
    let by_lines = |method: Method| matches!(method, Method::KernelWise | Method::LayerWise);
    let factor = |method: Method| if by_lines(method) { lines.step_factor() } else { 1.0 };
    let device: Micros = shares.iter().map(|share| share.device_time * factor(share.method)).sum();
    let widening = 1.0 + notes::far_share(operations);
    let (mut low, mut high) = (0.0, 0.0);
    for share in shares {
        let (below, above) = if by_lines(share.method) || share.method == Method::EndToEnd {
            let spread = lines.range(Some(share.method)).widened(widening);
            (spread.low, spread.high)
        } else {
            (1.0 - share.method.step_band(), 1.0 + share.method.step_band())
        };
        low += share.share * below;
        high += share.share * above;
    }
    // A few layers that fell back to the line of their kind do not make another method of it.
    let method = match shares {
        [largest, rest @ ..] if rest.iter().all(|share| by_lines(share.method)) => largest.method,
        _ => Method::Mixed,
    };
    Estimate::with_factors(device + host_idle, low, high, method)
}

fn facts(gpu: &GpuSpec) -> GpuFacts {
    GpuFacts {
        slug: gpu.slug.clone(),
        name: gpu.name.clone(),
        vendor: gpu.vendor,
        architecture: gpu.architecture.clone(),
        memory: gpu.memory,
        nvlink: gpu.nvlink,
        pcie_generation: gpu.pcie_generation,
        power: gpu.power,
        doubtful: gpu.is_doubtful(),
    }
}
