//! Chooses the method if the user requests none: the default, or linear models with a clearly smaller error. Errors of
//! all methods are in `models/methods.json`.

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

use super::decoded::Decoded;
use super::engine::Prepared;
use super::error::PredictError;
use super::estimate::MethodShare;
use super::finding::Finding;
use super::kernelwise::{Evaluated, KernelWise};
use super::method::{COVERED, MethodChoice};
pub use super::methods::Known;
use super::options::Options;
use super::origin::origin;
use super::precision::infer;
use super::predictions::{Prediction, Predictions};
use super::unshaped::Unshaped;
use habitat_base::units::GpuSlug;
use habitat_step::catalog::{Catalog, GpuSpec, Vendor};
use habitat_step::profile::{Mode, PrecisionClass, Profile};

/// Minimum number of evaluated steps for another method to replace the default.
pub const ENOUGH: u32 = 20;
/// Another method's error must be below this share of the default's: the mean of twenty errors varies by about a sixth
/// from sample to sample.
pub const MARGIN: f64 = 0.75;

/// Mean absolute relative error of a method on whole steps that it was not fitted to.
#[derive(Debug, Clone, PartialEq)]
pub struct Validated {
    /// Error; 0.07 = 7 %.
    pub error: f64,
    /// Number of steps.
    pub steps: u32,
    /// Description of the steps.
    pub on: String,
    /// Whether the steps ran on the predicted GPU itself.
    pub is_own: bool,
}

impl Known {
    /// Classifies a profile under these options.
    pub fn of(profile: &Profile, origin: Option<&GpuSpec>, options: &Options) -> Self {
        if options.ignore_origin || origin.is_none() {
            return Self::Shapes;
        }
        if Unshaped::of(&Decoded::all(profile)).is_some() {
            return Self::Unshaped;
        }
        let mut kernels = profile.operations.iter().flat_map(|operation| &operation.kernels);
        if kernels.any(|kernel| kernel.grid.is_some()) { Self::Trace } else { Self::Step }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Shapes => "from shapes alone",
            Self::Step => "from the step measured on another GPU",
            Self::Trace => "from a trace of another GPU",
            Self::Unshaped => "from a step of another GPU without shapes",
        }
    }
}

/// Errors of each method on the same steps (`models/methods.json`), printed by `habitat-lab`. Each GPU was predicted by
/// models trained without it, except in groups between two GPUs.
#[derive(Deserialize)]
struct Evaluation {
    rows: Vec<Figure>,
}

/// Error of a method on a group of steps.
#[derive(Deserialize)]
pub(super) struct Figure {
    pub(super) group: String,
    pub(super) method: String,
    pairs: u32,
    mean_absolute_error: f64,
}

pub(super) static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    serde_json::from_str::<Evaluation>(habitat_models::METHODS).expect("a test reads the shipped file").rows
});

/// Kind of a step. Errors measured on one kind do not apply to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepKind {
    /// Vendor of the predicted GPU.
    pub vendor: Vendor,
    /// Training or inference.
    pub mode: Mode,
    /// Precision of matrix products on that GPU.
    pub precision: PrecisionClass,
}

impl StepKind {
    /// Classifies a recorded step on a GPU; an unknown precision is inferred from its operations.
    pub fn of(profile: &Profile, gpu: &GpuSpec) -> Self {
        let precision = profile.workload.precision.unwrap_or_else(|| infer(&profile.operations)).class();
        let is_fp32 = precision == PrecisionClass::Tf32 && !gpu.runs_tf32();
        let precision = if is_fp32 { PrecisionClass::Fp32 } else { precision };
        Self { vendor: gpu.vendor, mode: profile.workload.mode, precision }
    }

    /// Group of such steps in `models/methods.json`; `None` without shapes.
    pub fn group(self, known: Known) -> Option<String> {
        let how = match known {
            Known::Shapes => "shapes alone",
            Known::Step => "measured elsewhere",
            Known::Trace => "traced elsewhere",
            Known::Unshaped => return None,
        };
        let Self { vendor, mode, precision } = self;
        Some(format!("{vendor}, {mode}, {precision}, {how}"))
    }
}

impl StepKind {
    /// Group of such steps predicted from one of two GPUs for the other, by models that know both. `known` has shapes.
    pub fn group_between(self, known: Known, mut gpus: [&GpuSlug; 2]) -> String {
        gpus.sort();
        let [first, second] = gpus;
        format!("{}, {first} ↔ {second}", self.group(known).unwrap_or_default())
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps in {} on {} GPUs", self.mode, self.precision, self.vendor)
    }
}

/// Error of the shipped models and rules on unseen GPUs; `None` if not evaluated. Fitted lines carry their own errors.
pub fn validated(method: MethodChoice, known: Known, kind: StepKind) -> Option<Validated> {
    figure(method, &kind.group(known)?, format!("{kind}, {}", known.words()))
}

/// The same between an origin and another GPU: if only these two were evaluated, by models that know both.
pub(super) fn validated_between(
    method: MethodChoice,
    known: Known,
    kind: StepKind,
    gpus: Option<[&GpuSlug; 2]>,
) -> Option<Validated> {
    validated(method, known, kind).or_else(|| {
        let [origin, gpu] = gpus?;
        let seen = format!("({origin} ↔ {gpu}, seen)");
        figure(method, &kind.group_between(known, [origin, gpu]), format!("{kind}, {} {seen}", known.words()))
    })
}

fn figure(method: MethodChoice, group: &str, on: String) -> Option<Validated> {
    let key = method.facts().map_or(Some(method.name()), |facts| facts.error_key)?;
    let Figure { pairs, mean_absolute_error, .. } =
        FIGURES.iter().find(|figure| figure.group == group && figure.method == key)?;
    Some(Validated { error: *mean_absolute_error, steps: *pairs, on, is_own: false })
}

/// Error of fitted lines: on left-out networks if the GPU was measured, otherwise on left-out GPUs.
pub(super) fn validated_lines(
    method: MethodChoice,
    lines: &KernelWise,
    gpu: &GpuSlug,
    kind: StepKind,
) -> Option<Validated> {
    let method = method.method()?;
    let on = lines.gpus.contains_key(gpu).then_some(gpu);
    let is_asked = |it: &&Evaluated| {
        (it.gpu.as_ref(), it.method, it.mode) == (on, method, kind.mode)
            && (it.vendor, it.precision) == (Some(kind.vendor), Some(kind.precision))
    };
    let Evaluated { error, steps, .. } = lines.errors.iter().find(is_asked)?;
    let of = on.map_or_else(
        || "on GPUs left out of the fit".to_owned(),
        |gpu| format!("on networks left out of the fit, on the {gpu}"),
    );
    Some(Validated { error: *error, steps: *steps, on: format!("{kind}, {of}"), is_own: on.is_some() })
}

/// Whether another method replaces the default: its error is from enough steps and is smaller by more than chance. A
/// default without such an error is replaced only if the other was measured on the GPU itself.
pub(super) fn gives_way(default: Option<&Validated>, other: &Validated) -> bool {
    other.steps >= ENOUGH && default.map_or(other.is_own, |default| other.error < MARGIN * default.error)
}

/// Predicts the step of `profile` on every requested GPU.
///
/// The origin GPU of a profile with a measured step gets the measurement. With [`MethodChoice::Auto`], linear models
/// replace the default on GPUs where their error is clearly smaller ([`compare`](super::compare)).
///
/// # Errors
/// [`PredictError`] if the origin or a target is not in the catalog, or no operation has usable data.
pub fn predict(profile: &Profile, catalog: &Catalog, options: &Options) -> Result<Predictions, PredictError> {
    let stripped = options.ignore_origin.then(|| profile.without_origin());
    let prepared = Prepared::new(profile, stripped.as_ref());
    let mut answers = prepared.predict(catalog, options)?;
    if options.method != MethodChoice::Auto || options.kernel_wise.is_none() || options.precision.is_some() {
        return Ok(answers);
    }
    let origin = origin(profile, catalog, options)?;
    let targets: Vec<&GpuSpec> = answers
        .predictions
        .iter()
        .filter(|it| !it.step.is_of_origin())
        .filter_map(|it| catalog.get(&it.gpu.slug))
        .collect();
    let instead = lines_instead(profile, origin, &targets, options);
    if instead.is_empty() {
        return Ok(answers);
    }
    let method = MethodChoice::KernelWise;
    let targets = instead.iter().map(|(slug, _)| slug.clone()).collect();
    let by_lines = prepared.predict(catalog, &Options { targets, method, ..options.clone() })?;
    for ((_, why), mut prediction) in instead.into_iter().zip(by_lines.predictions) {
        if by_fitted_lines(&prediction) < COVERED {
            continue;
        }
        prediction.notes.insert(0, why);
        if let Some(place) = answers.predictions.iter_mut().find(|it| it.gpu.slug == prediction.gpu.slug) {
            *place = prediction;
        }
    }
    Ok(answers)
}

/// Share of the device time that fitted lines predict, 0 to 1.
pub(super) fn by_fitted_lines(prediction: &Prediction) -> f64 {
    let fitted = |share: &&MethodShare| share.method.facts().is_some_and(|facts| facts.is_fitted);
    prediction.shares.iter().filter(fitted).fold(0.0, |sum, share| sum + share.share)
}

/// GPUs on which fitted lines replace the default method, with the reason.
fn lines_instead(
    profile: &Profile,
    origin: Option<&GpuSpec>,
    targets: &[&GpuSpec],
    options: &Options,
) -> Vec<(GpuSlug, Finding)> {
    let Some(lines) = &options.kernel_wise else { return Vec::new() };
    let known = Known::of(profile, origin, options);
    if known == Known::Unshaped {
        // Lines need shapes.
        return Vec::new();
    }
    targets
        .iter()
        .filter_map(|gpu| {
            let kind = StepKind::of(profile, gpu);
            let between = origin.map(|origin| [&origin.slug, &gpu.slug]);
            let default = validated_between(MethodChoice::Auto, known, kind, between);
            let found = validated_lines(MethodChoice::KernelWise, lines, &gpu.slug, kind)?;
            gives_way(default.as_ref(), &found).then(|| {
                let Validated { error, steps, on, .. } = found;
                let default_error = default.map(|default| default.error);
                (gpu.slug.clone(), Finding::LinesPreferred { error, steps, on, default_error })
            })
        })
        .collect()
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
