//! Methods of prediction, each in a file of its own under `methods/`.
//!
//! - [`Predictor`] is a method, or a few that share their preparation. Its `FACTS` have a line for each [`Method`] that
//!   it gives: needs, coverage, source, key of its evaluated errors, published errors. Other modules ask the facts
//!   ([`Method::facts`], [`MethodChoice::facts`]) and do not match on methods.
//! - `prepare` runs once per step, with the recorded step, the options and all GPUs ([`Inputs`]). It returns `None` if
//!   the user's choice rules the method out.
//! - `Prepared::on` takes the GPUs that are predicted together, because networks evaluate thousands of rows at once. It
//!   gives a function from operation to [`Verdict`] for each GPU.
//! - [`METHODS`] has the methods in the order in which they are asked for an operation. The first time is the answer. A
//!   method that should know the operation but does not gives a reason, which stands in front of that of the answer.
//! - `step_range` is the range of the part of a whole step that the method predicts, `step_factor` the ratio of a step
//!   to the sum of its operations.
//! - A method that predicts whole steps alone (the black box) has `step` instead of `prepare`.
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
use super::estimate::{Estimate, MethodShare, OperationPrediction};
use super::kernelwise::Lines;
use super::learned::Answering;
use super::method::{Method, MethodChoice};
use super::options::Options;
use super::predictions::Predictions;
use super::rate::{Rates, SHORTEST_KERNEL_US};
use super::uncounted;
use habitat_base::units::Micros;
use habitat_step::catalog::{Catalog, GpuSpec};
use habitat_step::op::Family;
use habitat_step::profile::{Profile, Workload};

/// Methods in the order in which they are asked for an operation.
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts {
    /// The method.
    pub method: Method,
    /// Requirements, beside shapes or a measurement of each operation.
    pub needs: &'static [Need],
    /// Operations or steps that it predicts, in a few words.
    pub covers: &'static str,
    /// Source of the formula.
    pub source: &'static str,
    /// Method in `models/methods.json`; `None` if the model carries its own errors, or was not evaluated.
    pub error_key: Option<&'static str>,
    /// Half-width of the range of a single operation, relative to its middle value: the published mean error, for
    /// methods that do not carry their own ranges.
    pub(crate) operation_band: f64,
    /// The same for the part of a whole step that the method predicts.
    pub(crate) step_band: f64,
    /// Whether it uses the destination's rate for the element type.
    pub(crate) uses_rates: bool,
    /// Whether it uses lines fitted to other recordings.
    pub is_fitted: bool,
    /// Whether it ignores measured operations if users request it.
    pub(crate) ignores_origin: bool,
    /// Whether it replaces the measured step of the recording GPU if users request it.
    pub(crate) replaces_measured: bool,
    /// Method of its times after a correction by a measured step.
    pub(crate) corrected: Option<Method>,
}

impl Facts {
    /// A method without needs, with the roofline's error: 31.9 % by `NeuSight`'s comparison (on steps; no figure per
    /// operation).
    const fn new(method: Method, covers: &'static str, source: &'static str) -> Self {
        Self {
            method,
            needs: &[],
            covers,
            source,
            error_key: None,
            operation_band: 0.319,
            step_band: 0.319,
            uses_rates: false,
            is_fitted: false,
            ignores_origin: false,
            replaces_measured: false,
            corrected: None,
        }
    }

    /// A method that scales a measured operation, with wave scaling's errors: Habitat section 5.2.3 (29.8 %) for an
    /// operation, 11.8 % over whole steps.
    const fn scaling(method: Method, covers: &'static str, source: &'static str) -> Self {
        Self { operation_band: 0.298, step_band: 0.118, ..Self::new(method, covers, source) }
    }

    /// Time of an operation with the published range.
    fn estimate(&self, time: Micros) -> Estimate {
        Estimate::with_band(time, self.operation_band, self.method)
    }
}

/// Requirement of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A measured step.
    Measurement,
    /// A trace with the launches of its kernels.
    Launches,
    /// The learned models.
    LearnedModels,
    /// Habitat's networks.
    Networks,
    /// Lines fitted to measured steps.
    Lines,
    /// The black-box model.
    BlackBoxModel,
}

impl Need {
    /// Reason that it is not met; `None` if it is.
    fn missing(self, known: Known, options: &Options) -> Option<&'static str> {
        let (is_missing, reason) = match self {
            Self::Measurement => (known == Known::Shapes, "no measurements"),
            Self::Launches if known == Known::Step => (true, "no launches were recorded: same as a ratio of rooflines"),
            Self::Launches => (known == Known::Shapes, "no measurements: same as roofline"),
            Self::LearnedModels => (options.models.is_none(), "no learned models"),
            Self::Networks => (options.habitat.is_none(), "no networks; train them with `habitat-lab train --habitat`"),
            Self::Lines => (options.kernel_wise.is_none(), "no linear models; fit them with `fit kernelwise`"),
            Self::BlackBoxModel => (options.black_box.is_none(), "no black-box model; make one with `fit black-box`"),
        };
        is_missing.then_some(reason)
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
}

impl<'a> Inputs<'a> {
    /// Whether measurements are used.
    fn uses_origin(&self) -> bool {
        self.origin.is_some() && !self.options.method.facts().is_some_and(|facts| facts.ignores_origin)
    }

    /// Recording GPU and measured time of an operation.
    fn measured(&self, decoded: &Decoded<'_>) -> Option<(&'a Rates<'a>, Micros)> {
        self.origin.zip(decoded.operation.device_time)
    }

    /// Fitted lines for a GPU, if requested.
    pub(super) fn lines<'r>(&self, gpu: &Rates<'r>) -> Option<Lines<'r>>
    where
        'a: 'r,
    {
        let model = self.options.kernel_wise.as_deref().filter(|_| self.options.method.is_fitted())?;
        Some(model.on(*gpu))
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
        Self::Time { estimate: facts.estimate(time), why, is_far: false }
    }
}

/// Verdicts of a method on one GPU.
type Verdicts<'s> = Box<dyn Fn(&Decoded<'_>) -> Verdict + 's>;

/// A method, prepared for a step.
trait Prepared: Sync {
    /// Verdicts on GPUs that are predicted together.
    fn on<'s>(&'s self, gpus: &'s [Rates<'s>]) -> Result<Vec<Verdicts<'s>>, PredictError>;

    /// Whether the recorded step corrects its times: operators were measured separately, not within the step.
    fn is_corrected_by_step(&self) -> bool {
        false
    }
}

/// A method that predicts GPU by GPU, from its inputs alone.
struct GpuByGpu<'a> {
    inputs: Inputs<'a>,
    verdict: fn(&Inputs<'_>, &Rates<'_>, &Decoded<'_>) -> Verdict,
}

impl<'a> GpuByGpu<'a> {
    fn of(
        inputs: &Inputs<'a>,
        verdict: fn(&Inputs<'_>, &Rates<'_>, &Decoded<'_>) -> Verdict,
    ) -> Box<dyn Prepared + 'a> {
        Box::new(Self { inputs: *inputs, verdict })
    }
}

impl Prepared for GpuByGpu<'_> {
    fn on<'s>(&'s self, gpus: &'s [Rates<'s>]) -> Result<Vec<Verdicts<'s>>, PredictError> {
        let Self { inputs, verdict } = self;
        let on = |gpu| Box::new(move |decoded: &Decoded<'_>| verdict(inputs, gpu, decoded)) as Verdicts<'s>;
        Ok(gpus.iter().map(on).collect())
    }
}

/// A method, prepared; `None` if it is ruled out.
type Preparation<'a> = Result<Option<Box<dyn Prepared + 'a>>, PredictError>;

/// A method of prediction, or a few that share their preparation.
trait Predictor {
    /// Facts on each method.
    const FACTS: &'static [Facts];

    /// Prepares the method for a step.
    fn prepare<'a>(inputs: &Inputs<'a>) -> Preparation<'a>;

    /// Ends of the range of the part of a step that the method predicts, as factors.
    fn step_range(facts: &Facts, _parts: &StepParts<'_>) -> (f64, f64) {
        (1.0 - facts.step_band, 1.0 + facts.step_band)
    }

    /// Ratio of a step to the sum of its operations.
    fn step_factor(_method: Method, _parts: &StepParts<'_>) -> f64 {
        1.0
    }

    /// Predicts whole steps, for a method that cannot predict operations.
    const STEP: Option<WholeStep> = None;
}

/// Predicts a recorded step on GPUs of a catalog.
type WholeStep = fn(&Profile, &Catalog, &Options) -> Result<Predictions, PredictError>;

/// Parts of a step on one GPU.
pub(super) struct StepParts<'a> {
    pub(super) operations: &'a [OperationPrediction],
    pub(super) gpu: &'a GpuSpec,
    pub(super) workload: &'a Workload,
    /// Whether a step was measured.
    pub(super) is_measured: bool,
    pub(super) models: Option<Answering<'a>>,
    /// Fitted lines for the GPU, if requested.
    pub(super) lines: Option<Lines<'a>>,
}

/// Device time of a step: each method's part with its ratio of a step to the sum of its operations.
pub(super) fn device_time(shares: &[MethodShare], parts: &StepParts<'_>) -> Micros {
    shares.iter().map(|share| share.device_time * share.method.step_factor(parts)).sum()
}

/// [`Predictor`] as a value.
struct Entry {
    facts: &'static [Facts],
    prepare: for<'a> fn(&Inputs<'a>) -> Preparation<'a>,
    step_range: fn(&Facts, &StepParts<'_>) -> (f64, f64),
    step_factor: fn(Method, &StepParts<'_>) -> f64,
    step: Option<WholeStep>,
}

impl Entry {
    const fn of<P: Predictor>() -> Self {
        Self {
            facts: P::FACTS,
            prepare: P::prepare,
            step_range: P::step_range,
            step_factor: P::step_factor,
            step: P::STEP,
        }
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

    /// Ends of the range of the part of a step that the method predicts, as factors.
    pub(super) fn step_range(self, parts: &StepParts<'_>) -> (f64, f64) {
        let Some((entry, facts)) = find(self) else { return (1.0, 1.0) };
        // Lines were validated on steps with published methods in their gaps.
        let is_gap = parts.lines.is_some() && !facts.is_fitted;
        if is_gap { (1.0 - facts.step_band, 1.0 + facts.step_band) } else { (entry.step_range)(facts, parts) }
    }

    fn step_factor(self, parts: &StepParts<'_>) -> f64 {
        find(self).map_or(1.0, |(entry, _)| (entry.step_factor)(self, parts))
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
    pub(super) fn missing(self, known: Known, options: &Options) -> Option<&'static str> {
        self.facts()?.needs.iter().find_map(|need| need.missing(known, options))
    }
}

/// The methods that predict a step.
pub(super) struct Methods<'a> {
    inputs: Inputs<'a>,
    prepared: Vec<(&'static Entry, Box<dyn Prepared + 'a>)>,
}

impl<'a> Methods<'a> {
    /// Prepares all methods that the options allow.
    pub(super) fn prepare(inputs: Inputs<'a>) -> Result<Self, PredictError> {
        let mut prepared = Vec::new();
        for entry in &METHODS {
            prepared.extend((entry.prepare)(&inputs)?.map(|method| (entry, method)));
        }
        Ok(Self { inputs, prepared })
    }

    /// Whether a method is among them.
    pub(super) fn has(&self, method: Method) -> bool {
        self.prepared.iter().any(|(entry, _)| entry.facts.iter().any(|facts| facts.method == method))
    }

    /// The methods on GPUs that are predicted together.
    pub(super) fn on<'s>(&'s self, gpus: &'s [Rates<'s>]) -> Result<Vec<OnGpu<'s>>, PredictError> {
        let mut all: Vec<OnGpu<'s>> =
            gpus.iter().map(|gpu| OnGpu { methods: self, gpu, verdicts: Vec::new() }).collect();
        for (_, method) in &self.prepared {
            for (on, verdicts) in all.iter_mut().zip(method.on(gpus)?) {
                on.verdicts.push(verdicts);
            }
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

    /// Whether the recorded step corrects the times.
    pub(super) fn is_corrected_by_step(&self) -> bool {
        self.methods.prepared.iter().any(|(_, method)| method.is_corrected_by_step())
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
