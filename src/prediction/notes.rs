//! Notes on a step's time: uncertainties, fallbacks, and the figures behind it.

use super::base::Base;
use super::decoded::Decoded;
use super::estimate::{MethodShare, OperationPrediction};
use super::learned::Answering;
use super::method::Method;
use super::rate::{Rates, Source};
use super::route::Fitted;
use super::shares::far_share;
use super::warning::{Warning, WarningKind};
use habitat_step::profile::{Mode, Phase, Profile};

/// Notes on a step by fitted lines.
pub(super) fn of_lines(fitted: &Fitted<'_>, shares: &[MethodShare]) -> Vec<String> {
    let lines = &fitted.lines;
    let mut notes = Vec::new();
    if lines.is_measured() {
        if (lines.step_factor() - 1.0).abs() > 0.005 {
            notes.push(format!("linear models: steps take {:.2} times the sum of their layers", lines.step_factor()));
        }
    } else {
        notes.push(format!("not among the {} GPUs of the linear models: rates extrapolated from those", lines.gpus()));
    }
    let rest: f64 = shares.iter().filter(|share| share.method == Method::Roofline).map(|share| share.share).sum();
    if rest > 0.005 {
        notes.push(format!("{:.0} % of the device time in layers without a linear model: roofline", rest * 100.0));
    }
    notes
}

/// Notes on the learned models' part of a step.
pub(super) fn of_models(
    (rates, mode): (&Rates<'_>, Mode),
    operations: &[OperationPrediction],
    shares: &[MethodShare],
    base: Option<&Base>,
    models: Option<Answering<'_>>,
) -> Vec<String> {
    let (mut notes, gpu) = (Vec::new(), rates.gpu);
    let is_learned = |share: &MethodShare| matches!(share.method, Method::Learned | Method::LearnedRatio);
    let Some(models) = models.filter(|_| shares.iter().any(is_learned)) else { return notes };
    let factor = models.step_factor(gpu, mode);
    let is_step = shares.iter().any(|share| share.method == Method::Learned);
    if is_step && (factor - 1.0).abs() > 0.005 && base.is_none_or(|base| base.deviation != 1.0) {
        let is_own = models.steps(gpu).boards.contains_key(gpu.slug.as_str());
        let (what, on) = match models.iterations(gpu, mode) {
            Some(_) => ("whole training iterations", ""),
            None => ("steps", if is_own { ", as measured on this GPU" } else { "" }),
        };
        notes.push(format!("learned models: {what} take {factor:.2} times the sum of their operators{on}"));
    }
    if let Some(counts) = models.models.measured_on(gpu) {
        let over =
            if counts.passed_over > 0 { format!(" ({} more unused)", counts.passed_over) } else { String::new() };
        notes.push(format!("corrected by {} operators measured on this GPU{over}", counts.used));
    } else if !models.has_seen(gpu) {
        notes.push("no measurements of this GPU: the range is the error on unseen GPUs".to_owned());
    }
    let rate = models.models.on(rates).rate(None, None);
    if rate.is_power_limited() {
        notes.push(format!(
            "power-limited to {:.1} of {:.1} TFLOP/s (FP32)",
            rate.sustained.get() / 1e12,
            rate.burst.get() / 1e12
        ));
    }
    let far = far_share(operations);
    if far > 0.005 {
        notes.push(format!("{:.0} % of the device time is outside the training data: range widened", far * 100.0));
    }
    notes
}

/// Note for steps in 16 or 8 bits on AMD GPUs.
pub(super) const NARROW_ON_AMD: &str = "the training data has no 16-bit steps on AMD GPUs, and published ones took 2.8 to 3.9 times the predicted time (BERT and ResNet on an MI325X, ROCm 6.2): the range reaches up to 4 times";

/// Warning for products in an element type without matrix cores. Products in TF32 are exempt: they run, and are
/// predicted, in FP32 there.
pub(super) fn without_matrix_cores(
    rates: &Rates<'_>,
    decoded: &[Decoded<'_>],
    operations: &[OperationPrediction],
) -> Option<Warning> {
    let by_rates = |operation: &OperationPrediction| operation.time.is_some_and(|time| time.method.uses_rates());
    let name = decoded
        .iter()
        .zip(operations)
        .filter(|(_, operation)| by_rates(operation))
        .filter_map(|(decoded, _)| rates.lacks(decoded))
        .find(|name| *name != "tf32")?;
    let mut text = format!("no {name} tensor cores, so products are predicted at FP32 speed");
    if name == "fp8" {
        text += "; PyTorch does not run them on such GPUs";
    }
    Some(Warning { kind: WarningKind::NoMatrixCores, text })
}

/// Notes on uncertain GPU figures and on operations left out.
pub(super) fn of_gpu(rates: &Rates<'_>, operations: &[OperationPrediction], profile: &Profile) -> Vec<String> {
    let (mut notes, gpu) = (Vec::new(), rates.gpu);
    if gpu.is_doubtful() {
        notes.push(format!("unverified specifications: {}", gpu.unconfirmed.join("; ")));
    }
    if let Some(calibration) = &gpu.calibration {
        notes.push(format!("bandwidth and product rates calibrated on {}", calibration.day()));
    }
    if let Source::Rule(rule) = rates.bandwidth.source {
        notes.push(format!("bandwidth assumed: {rule}"));
    }
    let silent = operations
        .iter()
        .zip(&profile.operations)
        .filter(|(prediction, operation)| prediction.time.is_none() && operation.phase != Phase::Communication)
        .count();
    if silent > 0 {
        notes
            .push(format!("{silent} of {} operations have neither time nor shapes and are left out", operations.len()));
    }
    notes
}
