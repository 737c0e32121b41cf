//! The learned models ([`learned`](crate::learned)): from shapes, or from a measurement times the models' ratio of the
//! two GPUs, for operations whose kernels libraries choose by GPU, or without recorded launches.

use super::{Facts, Inputs, Predictor, Preparation, Prepared, StepParts, StepRange, Verdict, Verdicts};
use crate::decoded::Decoded;
use crate::error::PredictError;
use crate::estimate::Estimate;
use crate::learned::{self, LearnedTime, StepColumns};
use crate::method::{Method, MethodChoice};
use crate::rate::Rates;
use crate::shares::far_share;
use habitat_base::units::Micros;
use habitat_step::op::Family;
use habitat_step::profile::Profile;

/// Predictions of the learned models for every operation.
pub(super) struct Learned<'a> {
    inputs: Inputs<'a>,
    table: StepColumns<'a>,
    /// Predictions on the origin.
    origin: Option<Vec<Option<LearnedTime>>>,
    /// Whether the origin's operators were measured within the step, to correct each one. Separately measured operators
    /// correct the step as a whole.
    by_operator: bool,
}

impl Predictor for Learned<'_> {
    const FACTS: &'static [Facts] = &[
        Facts {
            summary: "The learned models for every operator they know",
            needs: "shapes; better with a step measured on any GPU",
            missing: |_, options| if options.models.is_none() { Some("no learned models") } else { None },
            error_key: Some("learned"),
            uses_rates: true,
            corrected: Some(Method::LearnedRatio),
            ..Facts::new(Method::Learned, "known operators", "models/README.md")
        },
        Facts {
            uses_rates: true,
            ..Facts::scaling(Method::LearnedRatio, "measured, known operators", "models/README.md")
        },
    ];

    fn prepare<'a>(inputs: &Inputs<'a>) -> Result<Preparation<'a>, PredictError> {
        let &Inputs { profile, decoded, origin, options, .. } = inputs;
        let models = options.models.as_deref().filter(|_| inputs.asks_models());
        let Some(models) = models else { return Ok(Preparation::Out) };
        let table = models.columns(decoded, profile.workload.precision, origin.map(|rates| rates.gpu));
        let origin = origin.map(|origin| table.on(&[origin], |_, _| true)).transpose()?.and_then(|mut rows| rows.pop());
        let by_operator = measured_within(profile);
        Ok(Preparation::Step(Box::new(Learned { inputs: *inputs, table, origin, by_operator })))
    }

    /// Calibrated on steps, from shapes or from a measured step.
    fn step_range(facts: &Facts, parts: &StepParts<'_>) -> StepRange {
        let &Inputs { profile: Profile { workload, .. }, models, .. } = parts.on.inputs();
        let (Some(models), gpu) = (models, parts.on.gpu.gpu) else { return facts.step_range(parts) };
        let spread =
            if parts.is_measured { models.with_origin(gpu, workload.mode) } else { models.range(gpu, workload) };
        let spread = spread.unwrap_or(learned::WIDE).widened(1.0 + far_share(parts.operations));
        let from_shapes = facts.method == Method::Learned;
        let factor = if from_shapes { models.step_factor(gpu, workload.mode) } else { 1.0 };
        StepRange { factor, low: spread.low.min(1.0), high: spread.high.max(1.0) }
    }
}

impl Prepared for Learned<'_> {
    fn on<'s>(&'s self, gpus: &'s [Rates<'s>]) -> Result<Vec<Verdicts<'s>>, PredictError> {
        let is_origin = |gpu: &Rates<'_>| self.inputs.origin.is_some_and(|origin| origin.gpu.slug == gpu.gpu.slug);
        let rows = match (gpus, &self.origin) {
            ([only], Some(row)) if is_origin(only) => vec![row.clone()],
            _ => {
                let is_asked = |gpu: &Rates<'_>, one: &Decoded<'_>| !self.by_operator || self.is_better(gpu, one);
                self.table.on(&gpus.iter().collect::<Vec<_>>(), is_asked)?
            }
        };
        let on = |(gpu, row): (&'s Rates<'s>, Vec<Option<LearnedTime>>)| {
            Box::new(move |decoded: &Decoded<'_>| self.verdict(gpu, &row, decoded).unwrap_or(Verdict::Pass))
                as Verdicts<'s>
        };
        Ok(gpus.iter().zip(rows).map(on).collect())
    }
}

impl Learned<'_> {
    /// Predicts by the models, if they know the operator.
    fn verdict(&self, gpu: &Rates<'_>, row: &[Option<LearnedTime>], decoded: &Decoded<'_>) -> Option<Verdict> {
        let there = (*row.get(decoded.index)?)?;
        let name = decoded.family.name();
        let far = if there.is_far { "; outside the training data: range widened" } else { "" };
        let here = self.origin.as_deref().filter(|_| self.by_operator);
        if let (Some(here), Some((_, time))) = (here, self.inputs.measured(decoded)) {
            if !self.is_better(gpu, decoded) {
                return None;
            }
            let here = (*here.get(decoded.index)?)?;
            let (time, models, deviation) = there.with_measured_origin(&here, time);
            let why = self.inputs.say(|| {
                let [here, there] = models.map(Micros::get);
                format!("{name}: models {here:.1} → {there:.1} µs, corrected by {deviation:.2} as measured on the origin{far}")
            });
            let spread = there.with_origin;
            let estimate = Estimate::with_factors(time, spread.low, spread.high, Method::LearnedRatio);
            return Some(Verdict::Time { estimate, why, is_far: there.is_far });
        }
        let models = match (there.tf32, there.mean) {
            (Some(_), _) => "efficiency model in TF32",
            (None, Some(_)) => "mean of two models",
            (None, None) => "learned models",
        };
        let estimate = Estimate::with_factors(there.answer(), there.spread.low, there.spread.high, Method::Learned);
        let why = self.inputs.say(|| format!("{name}: {models} on shapes{far}"));
        Some(Verdict::Time { estimate, why, is_far: there.is_far })
    }

    /// Whether the models are better than wave scaling for an operation measured within a step.
    fn is_better(&self, gpu: &Rates<'_>, decoded: &Decoded<'_>) -> bool {
        let Some((origin, time)) = self.inputs.measured(decoded) else { return true };
        if time.get() == 0.0 || decoded.is_host_copy {
            return false;
        }
        let kept = matches!(decoded.family, Family::Softmax | Family::Normalisation);
        // Wave scaling needs the launches and the occupancy limits of both GPUs.
        let launches_known = [origin, gpu].iter().all(|rates| rates.gpu.limits.is_some())
            && decoded.operation.kernels.iter().any(|kernel| kernel.grid.is_some());
        self.inputs.options.method == MethodChoice::Learned
            || !launches_known
            || decoded.family.varies_kernels()
            || kept
    }
}

/// Whether operators were measured within the step (a trace), not separately.
pub(super) fn measured_within(profile: &Profile) -> bool {
    profile.step.as_ref().is_none_or(|step| step.device_busy.is_some())
        || profile.operations.iter().any(|operation| !operation.kernels.is_empty())
}
