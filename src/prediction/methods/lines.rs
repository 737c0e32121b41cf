//! Lines fitted to measured kernels, layers and steps ([`kernelwise`](crate::kernelwise)), if requested.

use super::{Facts, Inputs, Need, Predictor, Preparation, Prepared, StepParts, Verdict, Verdicts};
use crate::decoded::{Decoded, step_operations};
use crate::error::PredictError;
use crate::estimate::Estimate;
use crate::kernelwise::{Level, Lines};
use crate::method::{Method, MethodChoice};
use crate::rate::Rates;
use crate::shares::far_share;
use habitat_base::units::{Flops, Micros};
use habitat_step::op::Family;

const fn facts(method: Method, covers: &'static str) -> Facts {
    Facts {
        needs: &[Need::Lines],
        is_fitted: true,
        ignores_origin: true,
        ..Facts::new(method, covers, "Li et al. (MICRO '23)")
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
        facts(Method::KernelWise, "kernels"),
        facts(Method::LayerWise, "layers"),
        facts(Method::EndToEnd, "whole steps"),
    ];

    fn prepare<'a>(inputs: &Inputs<'a>) -> Preparation<'a> {
        if !inputs.options.method.is_fitted() {
            return Ok(None);
        }
        if inputs.options.kernel_wise.is_none() {
            return Err(PredictError::NoLines);
        }
        Ok(Some(Box::new(Fitted { inputs: *inputs, operations: step_operations(inputs.decoded) })))
    }

    /// Errors on left-out networks or GPUs.
    fn step_range(facts: &Facts, parts: &StepParts<'_>) -> (f64, f64) {
        let spread = parts.lines.map(|lines| lines.range(Some(facts.method)));
        let spread = spread.map(|spread| spread.widened(1.0 + far_share(parts.operations)));
        spread.map_or((1.0, 1.0), |spread| (spread.low, spread.high))
    }

    fn step_factor(method: Method, parts: &StepParts<'_>) -> f64 {
        let of_layers = parts.lines.filter(|_| method != Method::EndToEnd);
        of_layers.map_or(1.0, |lines| lines.step_factor())
    }
}

impl Prepared for Fitted<'_> {
    fn on<'s>(&'s self, gpus: &'s [Rates<'s>]) -> Result<Vec<Verdicts<'s>>, PredictError> {
        let on = |gpu| {
            let lines = self.inputs.lines(gpu)?;
            let whole = lines.end_to_end(self.operations);
            Some(Box::new(move |decoded: &Decoded<'_>| self.verdict(lines, whole, decoded)) as Verdicts<'s>)
        };
        Ok(gpus.iter().filter_map(on).collect())
    }
}

impl Fitted<'_> {
    fn verdict(&self, lines: Lines<'_>, whole: Option<Micros>, decoded: &Decoded<'_>) -> Verdict {
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
