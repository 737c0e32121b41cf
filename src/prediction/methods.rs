//! Methods of prediction, each in a file of its own under `methods/`.
//!
//! - [`Predictor`] is a method, or a few that share their preparation. Its `FACTS` have an entry for each [`Method`] that
//!   it gives: needs, coverage, source, key of its evaluated errors, published errors. Other modules ask the facts
//!   ([`Method::facts`], [`MethodChoice::facts`]) and do not match on methods.
//! - `prepare` runs once per step, with the recorded step, the options and all GPUs ([`Inputs`]). It rules a method out
//!   that the user's choice excludes.
//! - A method that needs the inputs alone has `verdict`, from an operation and a GPU to a [`Verdict`]. A method with
//!   models or times of the step returns them as [`Prepared`]; its `on` takes the GPUs that are predicted together,
//!   because networks evaluate thousands of rows at once.
//! - [`METHODS`] has the methods in the order in which they try an operation. The first time is the answer. A
//!   method that should know the operation but does not gives a reason, which precedes that of the answer.
//! - `step_range` is the part of a whole step that the method predicts: its ratio to the sum of the operations, and its
//!   range.
//! - A method that predicts whole steps alone (the black box) has `STEP` instead.
//!
//! The order: fitted lines and Habitat's networks come first if requested, then the learned models. Without them, a
//! measured operation that runs the same kernel on every GPU is scaled by waves, one whose kernel libraries choose by
//! the ratio of rooflines, and one without shapes by the ratio of bandwidths, or a range between that and the ratio of
//! arithmetic rates. Rooflines predict the rest from shapes.

mod bandwidth;
mod between;
mod black_box;
mod learned;
mod lines;
mod networks;
mod roofline;
mod roofline_ratio;
mod waves;

use super::decoded::Decoded;
use super::error::PredictError;
use super::estimate::{Estimate, OperationPrediction};
use super::kernelwise::FittedLines;
use super::learned::Answering;
use super::method::{Method, MethodChoice};
use super::options::Options;
use super::precision::infer;
use super::predictions::Predictions;
use super::rate::{Rates, SHORTEST_KERNEL_US};
use super::uncounted;
use habitat_base::units::Micros;
use habitat_step::catalog::{Catalog, Vendor};
use habitat_step::op::Family;
use habitat_step::profile::Profile;

/// Methods in the order in which they try an operation.
const METHODS: [Entry; 9] = [
    Entry::of::<lines::Fitted>(),
    Entry::of::<networks::Networks>(),
    Entry::of::<learned::Learned>(),
    Entry::of::<between::Between>(),
    Entry::of::<waves::Waves>(),
    Entry::of::<roofline_ratio::RooflineRatio>(),
    Entry::of::<bandwidth::Bandwidth>(),
    Entry::of::<roofline::Roofline>(),
    Entry::of::<black_box::BlackBox>(),
];

/// Facts on a method. Its name and code are [`Method::name`].
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The method.
    pub method: Method,
    /// One-line description; empty if users cannot choose it.
    pub summary: &'static str,
    /// Requirements, in words; empty if users cannot choose it.
    pub needs: &'static str,
    /// Reason that a requirement is not met.
    missing: fn(Known, &Options) -> Option<&'static str>,
    /// Operations or steps that it predicts.
    pub covers: &'static str,
    /// Source of the formula.
    pub source: &'static str,
    /// Method in `models/methods.json`; `None` if the model carries its own errors, or was not evaluated.
    pub error_key: Option<&'static str>,
    /// Half-widths of the ranges of a single operation and of the part of a step that the method predicts, relative to
    /// the middle value: published mean errors, for methods that do not carry their own ranges.
    bands: [f64; 2],
    /// Highest measured over predicted time of a step on an AMD GPU in 16 or 8 bits and in 32, unless it was measured on
    /// another: nine tenths of the steps of `models/lab/steps/milabench.py`.
    on_amd: [f64; 2],
    /// Whether it uses the destination's rate for the element type.
    uses_rates: bool,
    /// Whether it uses lines fitted to other recordings.
    pub is_fitted: bool,
    /// Whether it ignores measured operations if users request it.
    pub(crate) ignores_origin: bool,
    /// Method of its times after a correction by a measured step.
    pub(crate) corrected: Option<Method>,
}

impl Facts {
    /// A method with the roofline's error: 31.9 % by `NeuSight`'s comparison (on steps; no figure per operation).
    const fn new(method: Method, covers: &'static str, source: &'static str) -> Self {
        Self {
            method,
            summary: "",
            needs: "",
            missing: |_, _| None,
            covers,
            source,
            error_key: None,
            bands: [0.319; 2],
            on_amd: [5.3, 1.8],
            uses_rates: false,
            is_fitted: false,
            ignores_origin: false,
            corrected: None,
        }
    }

    /// A method that scales a measured operation, with wave scaling's errors: Habitat section 5.2.3 (29.8 %) for an
    /// operation, 11.8 % over whole steps.
    const fn scaling(method: Method, covers: &'static str, source: &'static str) -> Self {
        Self { bands: [0.298, 0.118], on_amd: [3.2, 1.118], ..Self::new(method, covers, source) }
    }

    /// Published range of a part of a step.
    fn step_range(&self, parts: &StepParts<'_>) -> StepRange {
        let &Inputs { profile, origin, options, .. } = parts.on.inputs();
        let is_amd = |rates: &Rates<'_>| rates.gpu.vendor == Vendor::Amd;
        let is_scaled_alike = !self.ignores_origin && origin.is_some_and(is_amd);
        let recorded = || profile.workload.precision.unwrap_or_else(|| infer(&profile.operations));
        let high = 1.0 + self.bands[1];
        let high = if is_amd(parts.on.gpu) && !is_scaled_alike {
            high.max(self.on_amd[usize::from(options.precision.unwrap_or_else(recorded).is_32_bits())])
        } else {
            high
        };
        StepRange { factor: 1.0, low: 1.0 - self.bands[1], high }
    }
}

/// Information that a profile has about its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Shapes only, or measurements are ignored.
    Shapes,
    /// A measured step, with operators measured separately or without their launches.
    Step,
    /// A trace: operators measured within the step, with launches of their kernels.
    Trace,
    /// A measured step without operator shapes.
    Unshaped,
}

/// Inputs of all methods.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) profile: &'a Profile,
    pub(super) decoded: &'a [Decoded<'a>],
    /// Recording GPU.
    pub(super) origin: Option<&'a Rates<'a>>,
    /// GPUs to predict.
    pub(super) targets: &'a [Rates<'a>],
    pub(super) options: &'a Options,
    /// Learned models for such steps.
    pub(super) models: Option<Answering<'a>>,
}

impl<'a> Inputs<'a> {
    /// Whether measurements are used.
    fn uses_origin(&self) -> bool {
        self.origin.is_some() && !self.options.method.facts().is_some_and(|facts| facts.ignores_origin)
    }

    /// Whether the options allow the learned models.
    pub(super) fn asks_models(&self) -> bool {
        let choices = [MethodChoice::Auto, MethodChoice::Learned, MethodChoice::HabitatMlp];
        self.models.is_some() && choices.contains(&self.options.method)
    }

    /// Recording GPU and measured time of an operation.
    fn measured(&self, decoded: &Decoded<'_>) -> Option<(&'a Rates<'a>, Micros)> {
        self.origin.zip(decoded.operation.device_time)
    }

    /// Fitted lines for a GPU, if requested.
    fn lines(&self, gpu: &Rates<'a>) -> Option<FittedLines<'a>> {
        let model = self.options.kernel_wise.as_deref().filter(|_| self.options.method.is_fitted());
        model.map(|model| model.on(*gpu))
    }

    /// Builds a reason if reasons are requested.
    fn say(&self, words: impl FnOnce() -> String) -> String {
        if self.options.steps_only { String::new() } else { words() }
    }

    /// Answers with a scaled time. A launch takes at least the time of the shortest kernels, unless it was already
    /// shorter.
    fn scaled(&self, facts: &Facts, decoded: &Decoded<'_>, scaled: Micros, why: String) -> Verdict {
        let launches: f64 = decoded.operation.kernels.iter().map(|kernel| f64::from(kernel.count)).sum();
        let time = decoded.operation.device_time.unwrap_or_default();
        let floor = Micros::known(SHORTEST_KERNEL_US * launches.max(1.0)).min(time);
        if scaled.get() < floor.get() {
            return Verdict::by(facts, floor, self.say(|| format!("{why}; raised to the shortest kernel time")));
        }
        Verdict::by(facts, scaled, why)
    }
}

/// Answer of a method for one occurrence of an operation on one GPU.
enum Verdict {
    /// A time, with the reason for it.
    Time {
        estimate: Estimate,
        why: String,
        /// Whether it is outside the training data of a model.
        is_far: bool,
    },
    /// The operation is another method's.
    Pass,
    /// The method should know the operation but does not, for a reason.
    Unknown(String),
}

impl Verdict {
    /// A time with the published range of a method.
    fn by(facts: &Facts, time: Micros, why: String) -> Self {
        Self::Time { estimate: Estimate::with_band(time, facts.bands[0], facts.method), why, is_far: false }
    }
}

/// Verdicts of a method on one GPU.
type Verdicts<'s> = Box<dyn Fn(&Decoded<'_>) -> Verdict + 's>;

/// A method, prepared for a step.
trait Prepared: Sync {
    /// Verdicts on GPUs that are predicted together.
    fn on<'s>(&'s self, gpus: &'s [Rates<'s>]) -> Result<Vec<Verdicts<'s>>, PredictError>;
}

/// Preparation of a method for a step.
enum Preparation<'a> {
    /// The method is ruled out.
    Out,
    /// The inputs are enough to predict GPU by GPU.
    Inputs,
    /// Times or models of this step.
    Step(Box<dyn Prepared + 'a>),
}

/// A method of prediction, or a few that share their preparation.
trait Predictor {
    /// Facts on each method.
    const FACTS: &'static [Facts];

    /// Prepares the method for a step. By default it scales measured operations.
    fn prepare<'a>(inputs: &Inputs<'a>) -> Result<Preparation<'a>, PredictError> {
        Ok(if inputs.uses_origin() { Preparation::Inputs } else { Preparation::Out })
    }

    /// Predicts one occurrence of an operation on a GPU from the inputs alone.
    fn verdict(_inputs: &Inputs<'_>, _gpu: &Rates<'_>, _decoded: &Decoded<'_>) -> Verdict {
        Verdict::Pass
    }

    /// Range of the part of a step that the method predicts.
    fn step_range(facts: &Facts, parts: &StepParts<'_>) -> StepRange {
        facts.step_range(parts)
    }

    /// Predicts whole steps, for a method that cannot predict operations.
    const STEP: Option<WholeStep> = None;
}

/// Predicts a recorded step on GPUs of a catalog.
type WholeStep = fn(&Profile, &Catalog, &Options) -> Result<Predictions, PredictError>;

/// Operations of a step, predicted on one GPU.
pub(super) struct StepParts<'a> {
    pub(super) on: &'a OnGpu<'a>,
    pub(super) operations: &'a [OperationPrediction],
    /// Whether a step was measured.
    pub(super) is_measured: bool,
}

/// Part of a step that one method predicts.
pub(super) struct StepRange {
    /// Time in the step over the sum of the operations.
    pub(super) factor: f64,
    /// Ends of the range, relative to the time in the step.
    pub(super) low: f64,
    pub(super) high: f64,
}

/// [`Predictor`] as a value.
struct Entry {
    facts: &'static [Facts],
    prepare: for<'a> fn(&Inputs<'a>) -> Result<Preparation<'a>, PredictError>,
    verdict: fn(&Inputs<'_>, &Rates<'_>, &Decoded<'_>) -> Verdict,
    step_range: fn(&Facts, &StepParts<'_>) -> StepRange,
    step: Option<WholeStep>,
}

impl Entry {
    const fn of<P: Predictor>() -> Self {
        Self { facts: P::FACTS, prepare: P::prepare, verdict: P::verdict, step_range: P::step_range, step: P::STEP }
    }
}

fn find(method: Method) -> Option<(&'static Entry, &'static Facts)> {
    METHODS.iter().find_map(|entry| Some((entry, entry.facts.iter().find(|facts| facts.method == method)?)))
}

impl Method {
    /// Facts on a method that predicts steps or their operations; `None` for measurements and mixtures.
    pub fn facts(self) -> Option<&'static Facts> {
        find(self).map(|(_, facts)| facts)
    }

    /// Facts on all methods that predict steps or their operations, in the order in which they are asked.
    pub fn known() -> impl Iterator<Item = &'static Facts> {
        METHODS.iter().flat_map(|entry| entry.facts)
    }

    /// Range of the part of a step that the method predicts.
    pub(super) fn step_range(self, parts: &StepParts<'_>) -> StepRange {
        let Some((entry, facts)) = find(self) else { return StepRange { factor: 1.0, low: 1.0, high: 1.0 } };
        // Lines were validated on steps with published methods in their gaps.
        let is_gap = parts.on.inputs().options.method.is_fitted() && !facts.is_fitted;
        if is_gap { facts.step_range(parts) } else { (entry.step_range)(facts, parts) }
    }
}

impl MethodChoice {
    /// Facts on the chosen method; `None` for the best available.
    pub fn facts(self) -> Option<&'static Facts> {
        self.method()?.facts()
    }

    /// Whether it uses lines fitted to other recordings.
    pub fn is_fitted(self) -> bool {
        self.facts().is_some_and(|facts| facts.is_fitted)
    }

    /// Whether it predicts whole steps only, without their operations.
    pub fn is_of_steps(self) -> bool {
        self.whole_step().is_some()
    }

    pub(super) fn whole_step(self) -> Option<WholeStep> {
        find(self.method()?)?.0.step
    }

    /// Reason that it cannot predict a profile; `None` if it can.
    pub fn missing(self, known: Known, options: &Options) -> Option<&'static str> {
        (self.facts()?.missing)(known, options)
    }

    /// One-line description.
    pub fn summary(self) -> &'static str {
        self.facts().map_or("The best available for each operation", |facts| facts.summary)
    }

    /// Requirements, in words.
    pub fn needs(self) -> &'static str {
        self.facts().map_or("a recorded step, or shapes", |facts| facts.needs)
    }
}

/// The methods that predict a step.
pub(super) struct Methods<'a> {
    pub(super) inputs: Inputs<'a>,
    prepared: Vec<(&'static Entry, Preparation<'a>)>,
}

impl<'a> Methods<'a> {
    /// Prepares all methods that the options allow.
    pub(super) fn prepare(inputs: Inputs<'a>) -> Result<Self, PredictError> {
        let prepared = METHODS.iter().map(|entry| Ok((entry, (entry.prepare)(&inputs)?)));
        Ok(Self { inputs, prepared: prepared.collect::<Result<_, PredictError>>()? })
    }

    /// The methods on GPUs that are predicted together.
    pub(super) fn on<'s>(&'s self, gpus: &'s [Rates<'s>]) -> Result<Vec<OnGpu<'s>>, PredictError> {
        let mut all: Vec<OnGpu<'s>> =
            gpus.iter().map(|gpu| OnGpu { methods: self, gpu, verdicts: Vec::new() }).collect();
        for (entry, method) in &self.prepared {
            let by_inputs = |gpu| Box::new(move |decoded: &Decoded<'_>| (entry.verdict)(&self.inputs, gpu, decoded));
            let verdicts = match method {
                Preparation::Out => continue,
                Preparation::Inputs => gpus.iter().map(|gpu| by_inputs(gpu) as Verdicts<'s>).collect(),
                Preparation::Step(method) => method.on(gpus)?,
            };
            all.iter_mut().zip(verdicts).for_each(|(on, verdicts)| on.verdicts.push(verdicts));
        }
        Ok(all)
    }
}

/// The methods on one GPU.
pub(super) struct OnGpu<'s> {
    methods: &'s Methods<'s>,
    /// The GPU.
    pub(super) gpu: &'s Rates<'s>,
    verdicts: Vec<Verdicts<'s>>,
}

impl<'s> OnGpu<'s> {
    /// Inputs of the methods.
    pub(super) fn inputs(&self) -> &Inputs<'s> {
        &self.methods.inputs
    }

    /// Fitted lines for the GPU, if requested.
    pub(super) fn lines(&self) -> Option<FittedLines<'s>> {
        self.inputs().lines(self.gpu)
    }

    /// Whether the recorded step corrects the times: models answer, and operators were measured separately.
    pub(super) fn is_corrected_by_step(&self) -> bool {
        self.inputs().asks_models() && !learned::measured_within(self.inputs().profile)
    }

    /// Predicts the device time of one occurrence.
    pub(super) fn predict(&self, decoded: &Decoded<'_>) -> OperationPrediction {
        let (inputs, operation) = (self.inputs(), decoded.operation);
        let (mut time, mut why, mut is_far) = (None, String::new(), false);
        if decoded.family == Family::Communication {
            why = inputs.say(|| "communication between GPUs: a plan adds it for its number of GPUs".to_owned());
        } else {
            let mut unknown = Vec::new();
            for verdicts in &self.verdicts {
                match verdicts(decoded) {
                    Verdict::Time { estimate, why: reason, is_far: far } => {
                        (time, why, is_far) = (Some(estimate), reason, far);
                        break;
                    }
                    Verdict::Pass => {}
                    Verdict::Unknown(reason) => unknown.push(reason),
                }
            }
            if !unknown.is_empty() {
                unknown.extend(time.is_some().then(|| std::mem::take(&mut why)));
                why = inputs.say(|| unknown.join("; "));
            }
        }
        let doubt = decoded.op.doubt();
        if doubt > 1.0 && (inputs.origin.is_none() || operation.device_time.is_none()) {
            time = time.map(|time| uncounted::doubted(time, doubt));
            let doubted = || format!("{why}; unknown lengths of packed sequences: range × {doubt:.1} both ways");
            why = if time.is_some() { inputs.say(doubted) } else { why };
        }
        if let Some(name) = time.and_then(|time| self.lacks(time.method, decoded)) {
            let gpu = &self.gpu.gpu.slug;
            why = inputs.say(|| format!("{why}; {gpu} has no {name} tensor cores: FP32 rate"));
        }
        OperationPrediction {
            index: decoded.index,
            name: inputs.say(|| operation.name.clone()),
            phase: operation.phase,
            count: operation.count,
            time,
            origin_time: operation.device_time,
            is_far,
            why,
        }
    }

    /// Type of an operation that the GPU has no tensor cores for, if its method uses rates of types. Products in TF32
    /// are exempt: they run, and are predicted, in FP32 there.
    pub(super) fn lacks(&self, method: Method, decoded: &Decoded<'_>) -> Option<&'static str> {
        let name = self.gpu.lacks(decoded).filter(|name| *name != "tf32")?;
        method.facts().is_some_and(|facts| facts.uses_rates).then_some(name)
    }
}
