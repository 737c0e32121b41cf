//! Predicts a recorded step on every requested GPU with one method.

use super::communication::Communication;
use super::decoded::Decoded;
use super::error::PredictError;
use super::finding::Finding;
use super::host::Host;
use super::launches::HostWork;
use super::learned::Models;
use super::memory::MemoryNeed;
use super::methods::{Inputs, Methods, OnGpu};
use super::options::Options;
use super::origin::origin;
use super::parallel;
use super::precision::Change;
use super::predictions::{Prediction, Predictions};
use super::rate::Rates;
use super::recorded_step::RecordedStep;
use super::step::{Context, predict_one};
use super::transformer::Layers;
use super::uncounted;
use super::unshaped::Unshaped;
use habitat_base::text;
use habitat_base::units::{GpuSlug, Micros, SHORTEST_STEP_US};
use habitat_step::catalog::{Catalog, GpuSpec};
use habitat_step::op::ALLOW_TF32;
use habitat_step::profile::{DType, Mode, Origin, Precision, Profile};

/// Maximum operations × GPUs predicted at once: a few thousand rows for each network.
const QUERIES_AT_A_TIME: usize = 1 << 14;

/// Profile with decoded operations, for predictions by several methods.
pub(super) struct Prepared<'a> {
    /// Profile as recorded.
    recorded: &'a Profile,
    /// Profile to predict: without measurements if they are ignored.
    profile: &'a Profile,
    decoded: Vec<Decoded<'a>>,
}

impl<'a> Prepared<'a> {
    /// Decodes a profile; `stripped` is the profile without measurements, if they are ignored.
    pub(super) fn new(recorded: &'a Profile, stripped: Option<&'a Profile>) -> Self {
        let profile = stripped.unwrap_or(recorded);
        Self { recorded, profile, decoded: Decoded::all(profile) }
    }

    /// Predicts the step with the requested method.
    pub(super) fn predict(&self, catalog: &Catalog, options: &Options) -> Result<Predictions, PredictError> {
        if let Some(step) = options.method.whole_step() {
            return step(self.recorded, catalog, options);
        }
        let Self { profile, decoded, .. } = self;
        // With 32-bit formats only the rate changes, not the shapes, so no conversion is needed.
        let asked = options.precision.filter(|asked| asked.is_32_bits() && profile.origin.is_none());
        if let Some(asked) = asked.filter(|_| profile.workload.precision.is_some_and(Precision::is_32_bits)) {
            return self.in_other_32_bits(asked, catalog, options);
        }
        if let Some(step) = profile.measured_step().filter(|step| step.get() < SHORTEST_STEP_US) {
            return Err(PredictError::NoTime { workload: text::clean(&profile.workload.name, 60), step });
        }
        let origin = origin(profile, catalog, options)?.map(Rates::new);
        let origin = origin.as_ref();
        let targets = targets(catalog, options)?;
        let efficiency = options.models.as_deref().and_then(Models::efficiency);
        let change = Change::requested(profile, options.precision, decoded, efficiency);
        let models = options.models.as_deref();
        let models =
            models.map(|models| models.answering(decoded, profile.workload.precision, origin.map(|rates| rates.gpu)));
        let methods = Methods::prepare(Inputs { profile, decoded, origin, targets: &targets, options, models })?;
        // Linear models use only the host part of the recorded step.
        let host_known = profile.step.as_ref().is_some_and(|step| step.device_busy.is_some());
        let communication = Communication::of(decoded, profile.workload.mode);
        let needs_base = !options.method.is_fitted() || host_known || communication.is_some();
        let at_origin = methods.on(origin.filter(|_| needs_base).map_or(&[], std::slice::from_ref))?;
        let base = at_origin.first().map(RecordedStep::new);
        let mut warnings = match (&base, communication) {
            (Some(base), _) => base.warnings.clone(),
            (None, communication) => communication.map_or_else(Vec::new, |communication| communication.warnings(None)),
        };
        warnings.extend(origin.and_then(|_| Unshaped::of(decoded)).map(Unshaped::warning));
        warnings.extend(uncounted::warnings(decoded));
        warnings.extend(options.host.warning());
        let need = MemoryNeed::of(profile, origin.map(|rates| rates.gpu));
        let trains = profile.workload.mode == Mode::Training;
        let layers = trains.then(|| Layers::of(decoded, profile.workload.batch_size)).flatten();
        let assumes_pace = origin.is_none() && options.host == Host::AsRecorded;
        let host_work = assumes_pace.then(|| HostWork::of(decoded));
        let context = Context {
            base: base.as_ref(),
            need: &need,
            layers: layers.as_ref(),
            host_work: host_work.as_ref(),
            warnings: &warnings,
        };
        let on = |on: &OnGpu<'_>| {
            let refused = change.as_ref().and_then(|change| change.refused_by(on.gpu.gpu));
            let change = change.as_ref().filter(|change| refused.is_none() && change.changes(on.gpu.gpu));
            let mut prediction = predict_one(&context, on, change);
            prediction.note_precision(refused, change);
            prediction
        };
        let some = |gpus| -> Result<Vec<Prediction>, PredictError> { Ok(methods.on(gpus)?.iter().map(on).collect()) };
        // Enough GPUs at a time to keep the networks busy, but few enough for memory.
        let at_a_time = (QUERIES_AT_A_TIME / decoded.len().max(1)).max(1);
        let found: Vec<Vec<Prediction>> =
            parallel::parts(targets.chunks(at_a_time).collect(), some).into_iter().collect::<Result<_, _>>()?;
        let mut predictions: Vec<Prediction> = found.into_iter().flatten().collect();
        if origin.is_none() && change.is_none() && methods.inputs.asks_models() {
            self.no_faster_than_tf32(&mut predictions, catalog, options)?;
        }
        let keeping = targets.iter().zip(&predictions).filter(|(_, prediction)| prediction.keeps_precision);
        let keeping: Vec<&GpuSpec> = keeping.map(|(gpu, _)| gpu.gpu).collect();
        if predictions.iter().all(|prediction| prediction.step.mid() == Micros::ZERO) {
            return Err(PredictError::NothingKnown { workload: text::clean(&profile.workload.name, 60) });
        }
        let untold = || options.host.note(profile, Micros::ZERO).into_iter().collect();
        let mut notes = base.map_or_else(untold, |base| base.notes);
        let execution = profile.step.as_ref().and_then(|step| step.execution);
        let launched = execution.filter(|_| assumes_pace);
        notes.extend(launched.map(|execution| Finding::NoLaunches { execution }));
        let runs_tf32 = targets.iter().any(|gpu| gpu.gpu.runs_tf32());
        let assumed = runs_tf32 && is_tf32_assumed(profile, decoded, options.precision);
        notes.extend(assumed.then_some(Finding::Tf32Assumed));
        let mut workload = profile.workload.clone();
        if let Some(change) = change {
            notes.splice(0..0, change.notes(decoded).into_iter().chain(change.kept_on(&keeping)));
            workload.precision = Some(change.to());
        }
        let (host, communicates) = (options.host, super::communicates(profile));
        Ok(Predictions { workload, origin: recorded_on(profile, origin), host, communicates, predictions, notes })
    }
}

/// Origin of the profile, with its GPU from the catalog.
fn recorded_on(profile: &Profile, origin: Option<&Rates<'_>>) -> Option<Origin> {
    let mut facts = profile.origin.clone()?;
    if let Some(origin) = origin {
        facts.gpu = Some(origin.gpu.slug.clone());
    }
    Some(facts)
}

impl Prepared<'_> {
    /// Predicts an unmeasured step as if it had been traced in another 32-bit precision.
    fn in_other_32_bits(
        &self,
        asked: Precision,
        catalog: &Catalog,
        options: &Options,
    ) -> Result<Predictions, PredictError> {
        let traced = in_32_bits(self.profile, asked);
        let plain = Options { precision: None, ..options.clone() };
        let mut found = Prepared::new(&traced, None).predict(catalog, &plain)?;
        let Some(change) = Change::requested(self.profile, Some(asked), &self.decoded, None) else { return Ok(found) };
        let mut keeping = Vec::new();
        for prediction in &mut found.predictions {
            let Some(gpu) = catalog.get(&prediction.gpu.slug) else { continue };
            let refused = change.refused_by(gpu);
            keeping.extend(refused.is_some().then_some(gpu));
            prediction.note_precision(refused, Some(&change).filter(|change| change.changes(gpu)));
        }
        found.notes.splice(0..0, change.kept_on(&keeping));
        Ok(found)
    }

    /// Replaces predictions that are faster than the same step with TF32 in more operations, which other models
    /// predict. Libraries may choose a faster FP32 kernel, so TF32 never slows a step down.
    fn no_faster_than_tf32(
        &self,
        predictions: &mut [Prediction],
        catalog: &Catalog,
        options: &Options,
    ) -> Result<(), PredictError> {
        let next = match self.profile.workload.precision {
            Some(Precision::Fp32Strict) => Precision::Fp32,
            Some(Precision::Fp32 | Precision::Tf32Products) => Precision::Tf32,
            _ => return Ok(()),
        };
        let has_tf32 = |slug: &GpuSlug| catalog.get(slug).is_some_and(GpuSpec::runs_tf32);
        let targets: Vec<GpuSlug> =
            predictions.iter().map(|prediction| prediction.gpu.slug.clone()).filter(has_tf32).collect();
        let multiplies =
            |one: &Decoded<'_>| one.family.varies_kernels() && matches!(one.dtype, None | Some(DType::Float32));
        if targets.is_empty() || !self.decoded.iter().any(multiplies) {
            return Ok(());
        }
        let in_tf32 = in_32_bits(self.profile, next);
        let others = Prepared::new(&in_tf32, None).predict(catalog, &Options { targets, ..options.clone() })?;
        for mut other in others.predictions {
            let own = predictions.iter_mut().find(|prediction| prediction.gpu.slug == other.gpu.slug);
            if let Some(own) = own.filter(|own| other.step.mid().get() > own.step.mid().get()) {
                other.notes.insert(0, Finding::AsTf32);
                *own = other;
            }
        }
        Ok(())
    }
}

impl Prediction {
    /// Adds the reason that the GPU keeps the recorded precision, otherwise the change that applies.
    fn note_precision(&mut self, refused: Option<Finding>, change: Option<&Change>) {
        self.keeps_precision = refused.is_some();
        self.precision_note = refused.or_else(|| change.map(Change::note));
        self.notes.splice(0..0, self.precision_note.clone());
    }
}

/// Copy of the step in another 32-bit precision, with that precision's TF32 rules.
fn in_32_bits(profile: &Profile, precision: Precision) -> Profile {
    let mut changed = profile.clone();
    changed.workload.precision = Some(precision);
    for operation in &mut changed.operations {
        operation.attributes.remove(ALLOW_TF32);
    }
    changed
}

/// Whether PyTorch's defaults decide which operations run in TF32: the recording does not show it and it matters.
fn is_tf32_assumed(profile: &Profile, decoded: &[Decoded<'_>], asked: Option<Precision>) -> bool {
    let is_known = profile.recording.as_ref().is_some_and(|recording| recording.tf32_known);
    let is_fp32 = asked.or(profile.workload.precision).is_none_or(|precision| precision == Precision::Fp32);
    is_fp32 && (asked.is_some() || !is_known) && decoded.iter().any(Decoded::is_in_tf32)
}

/// Requested GPUs, or all.
fn targets<'c>(catalog: &'c Catalog, options: &Options) -> Result<Vec<Rates<'c>>, PredictError> {
    if options.targets.is_empty() {
        return Ok(catalog.iter().map(Rates::new).collect());
    }
    let find = |slug: &GpuSlug| catalog.find(slug.as_str()).map(Rates::new);
    Ok(options.targets.iter().map(find).collect::<Result<_, _>>()?)
}
