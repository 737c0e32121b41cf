//! Notes on a step's time: uncertainties, fallbacks, and the figures behind it.

use super::estimate::{MethodShare, OperationPrediction};
use super::finding::Finding;
use super::kernelwise::FittedLines;
use super::method::Method;
use super::methods::{Inputs, OnGpu};
use super::rate::{Rates, Source};
use super::recorded_step::RecordedStep;
use super::shares::far_share;
use habitat_step::profile::{Phase, Profile};

/// Notes on a step by fitted lines.
pub(super) fn of_lines(lines: &FittedLines<'_>, shares: &[MethodShare]) -> Vec<Finding> {
    let factor = lines.step_factor();
    let mut notes = Vec::new();
    if !lines.is_measured() {
        notes.push(Finding::LinesExtrapolated { gpus: lines.gpus() });
    } else if (factor - 1.0).abs() > 0.005 {
        notes.push(Finding::LinesFactor { factor });
    }
    let share: f64 = shares.iter().filter(|share| share.method == Method::Roofline).map(|share| share.share).sum();
    notes.extend((share > 0.005).then_some(Finding::LayersWithoutLine { share }));
    notes
}

/// Notes on the learned models' part of a step.
pub(super) fn of_models(
    on: &OnGpu<'_>,
    operations: &[OperationPrediction],
    shares: &[MethodShare],
    base: Option<&RecordedStep>,
) -> Vec<Finding> {
    let &Inputs { profile, models, .. } = on.inputs();
    let (mut notes, gpu, mode) = (Vec::new(), on.gpu.gpu, profile.workload.mode);
    let is_learned = |share: &MethodShare| matches!(share.method, Method::Learned | Method::LearnedRatio);
    let Some(models) = models.filter(|_| shares.iter().any(is_learned)) else { return notes };
    let factor = models.step_factor(gpu, mode);
    let is_step = shares.iter().any(|share| share.method == Method::Learned);
    if is_step && (factor - 1.0).abs() > 0.005 && base.is_none_or(|base| base.deviation != 1.0) {
        let iterations = models.iterations(gpu, mode).is_some();
        let measured = !iterations && models.steps(gpu).boards.contains_key(gpu.slug.as_str());
        notes.push(Finding::StepFactor { factor, iterations, measured });
    }
    if let Some(counts) = models.models.measured_on(gpu) {
        notes.push(Finding::MeasuredOperators { used: counts.used, unused: counts.passed_over });
    } else if !models.has_seen(gpu) {
        notes.push(Finding::UnseenGpu);
    }
    let rate = models.models.on(on.gpu).rate(None, None);
    if rate.is_power_limited() {
        notes.push(Finding::PowerLimited { sustained_flops_per_s: rate.sustained, burst_flops_per_s: rate.burst });
    }
    let share = far_share(operations);
    notes.extend((share > 0.005).then_some(Finding::OutsideTraining { share }));
    notes
}

/// Warning for products in an element type without matrix cores.
pub(super) fn without_matrix_cores(on: &OnGpu<'_>, operations: &[OperationPrediction]) -> Option<Finding> {
    let mut timed = on.inputs().decoded.iter().zip(operations);
    let dtype = timed.find_map(|(decoded, it)| on.lacks(it.time?.method, decoded))?;
    Some(Finding::NoMatrixCores { dtype })
}

/// Notes on uncertain GPU figures and on operations left out.
pub(super) fn of_gpu(rates: &Rates<'_>, operations: &[OperationPrediction], profile: &Profile) -> Vec<Finding> {
    let (mut notes, gpu) = (Vec::new(), rates.gpu);
    if gpu.is_doubtful() {
        notes.push(Finding::UnverifiedSpecifications { specifications: gpu.unconfirmed.clone() });
    }
    if let Some(calibration) = &gpu.calibration {
        notes.push(Finding::Calibrated { day: calibration.day().to_owned() });
    }
    if let Source::Rule(rule) = rates.bandwidth.source {
        notes.push(Finding::BandwidthByRule { rule });
    }
    let silent = operations
        .iter()
        .zip(&profile.operations)
        .filter(|(prediction, operation)| prediction.time.is_none() && operation.phase != Phase::Communication)
        .count();
    notes.extend((silent > 0).then_some(Finding::LeftOut { operations: silent, of: operations.len() }));
    notes
}
