//! Lines fitted to measured kernels, layers and steps ([`kernelwise`](crate::kernelwise)), if requested.

use super::{Facts, Inputs, Predictor, Preparation, Prepared, StepParts, StepRange, Verdict, Verdicts};
use crate::decoded::{Decoded, step_operations};
use crate::error::PredictError;
use crate::estimate::Estimate;
use crate::kernelwise::{FittedLines, Level};
use crate::learned::Spread;
use crate::method::{Method, MethodChoice};
use crate::rate::Rates;
use crate::shares::far_share;
use habitat_base::units::{Flops, Micros};
use habitat_step::op::Family;

const fn facts(method: Method, covers: &'static str, summary: &'static str) -> Facts {
    Facts {
        summary,
        needs: "shapes; better with lines fitted to your own steps by `fit kernelwise`",
        missing: |_, options| match options.kernel_wise {
            Some(_) => None,
            None => Some("no linear models; fit them with `fit kernelwise`"),
        },
        is_fitted: true,
        ignores_origin: true,
        ..Facts::new(method, covers, "Li (MICRO '23)")
    }
}

/// Lines of kernels, layers and steps.
pub(super) struct Fitted<'a> {
    inputs: Inputs<'a>,
    /// Floating-point operations of the step.
    operations: Flops,
}

impl Predictor for Fitted<'_> {
    const FACTS: &'static [Facts] = &[
        facts(Method::KernelWise, "kernels", "Linear models of kernels, made by `fit kernelwise` from measured steps"),
        facts(Method::LayerWise, "layers", "Linear models of layer kinds, from the same file"),
        facts(Method::EndToEnd, "whole steps", "Linear model of whole steps by their FLOPs, from the same file"),
    ];

    fn prepare<'a>(inputs: &Inputs<'a>) -> Result<Preparation<'a>, PredictError> {
        if !inputs.options.method.is_fitted() {
            return Ok(Preparation::Out);
        }
        if inputs.options.kernel_wise.is_none() {
            return Err(PredictError::NoLines);
        }
        Ok(Preparation::Step(Box::new(Fitted { inputs: *inputs, operations: step_operations(inputs.decoded) })))
    }

    /// Errors on left-out networks or GPUs.
    fn step_range(facts: &Facts, parts: &StepParts<'_>) -> StepRange {
        let Some(lines) = parts.on.lines() else { return facts.step_range(parts) };
        let Spread { low, high, .. } = lines.range(Some(facts.method)).widened(1.0 + far_share(parts.operations));
        let factor = if facts.method == Method::EndToEnd { 1.0 } else { lines.step_factor() };
        StepRange { factor, low, high }
    }
}

impl Prepared for Fitted<'_> {
    fn on<'s>(&'s self, gpus: &'s [Rates<'s>]) -> Result<Vec<Verdicts<'s>>, PredictError> {
        let on = |gpu| {
            let lines = self.inputs.lines(gpu)?;
            let whole = lines.end_to_end(self.operations);
            Some(Box::new(move |decoded: &Decoded<'_>| self.verdict(&lines, whole, decoded)) as Verdicts<'s>)
        };
        Ok(gpus.iter().filter_map(on).collect())
    }
}

impl Fitted<'_> {
    fn verdict(&self, lines: &FittedLines<'_>, whole: Option<Micros>, decoded: &Decoded<'_>) -> Verdict {
        let Self { inputs, operations } = self;
        if matches!(decoded.family, Family::View | Family::Communication) || decoded.is_host_copy {
            return Verdict::Pass;
        }
        if inputs.options.method == MethodChoice::EndToEnd {
            let Some(time) = whole else { return Verdict::Unknown("no whole steps were fitted".to_owned()) };
            let own = decoded.work.map_or(Flops::ZERO, |work| work.flops);
            let share = if operations.get() > 0.0 { own / *operations } else { 0.0 };
            let why = inputs.say(|| "share of the step by FLOPs: only whole steps were fitted".to_owned());
            return Verdict::by(&Self::FACTS[2], time * share, why);
        }
        let level = if inputs.options.method == MethodChoice::LayerWise { Level::Layers } else { Level::Kernels };
        let answer = match lines.time_of(decoded.layers(), level) {
            Ok(answer) => answer,
            Err(why) => return Verdict::Unknown(why),
        };
        let spread = lines.range(None);
        let estimate = Estimate::with_factors(answer.time, spread.low, spread.high, answer.method);
        let far = if answer.is_far() { "; far beyond the measured sizes" } else { "" };
        Verdict::Time { estimate, why: inputs.say(|| format!("{}{far}", answer.why)), is_far: answer.is_far() }
    }
}
