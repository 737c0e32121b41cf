//! Properties of the recorded step as a whole: overlap of operations, wait for the host, cost of communication.

use super::communication::{Communication, StepUncertainty};
use super::estimate::{Estimate, MethodShare, OperationPrediction};
use super::finding::Finding;
use super::methods::{Inputs, OnGpu, StepParts};
use super::shares::shares;
use habitat_base::units::{Micros, Range};
use habitat_step::op::Family;

/// Properties of the recorded step as a whole, applied to every destination.
pub(super) struct RecordedStep {
    /// Device busy time over the summed time of compute operations: below 1 if streams overlap.
    pub(super) overlap: f64,
    /// For separately measured operators: the recorded step over the models' prediction of it, reduced to the part
    /// that other GPUs share. 1 otherwise.
    pub(super) deviation: f64,
    /// Time that the device waits for the host, as far as it counts, without its data.
    pub(super) host_idle: Micros,
    /// Time that the device waits for its data, as far as it counts.
    pub(super) data_wait: Micros,
    /// Time that the device works.
    pub(super) busy: Micros,
    /// Wait for the host in the recorded step that does not count.
    pub(super) left_out: Micros,
    /// Uncertainty of the step without its communication, if it had any.
    pub(super) doubt: Option<StepUncertainty>,
    /// Device time that belongs to no operation, relative to the operations' time; 0 unless it is a large part of the
    /// step.
    pub(super) unassigned: f64,
    /// Warnings for every time derived from this step.
    pub(super) warnings: Vec<Finding>,
    pub(super) notes: Vec<Finding>,
}

/// Share of device time outside operations that is tolerated: small gaps in a recording do no harm (a choice).
const UNASSIGNED: f64 = 0.1;

impl RecordedStep {
    /// Evaluates a measured step by the methods on its own GPU.
    pub(super) fn new(origin: &OnGpu<'_>) -> Self {
        let &Inputs { profile, decoded, options, .. } = origin.inputs();
        let host = options.host;
        let communication = Communication::of(decoded, profile.workload.mode);
        // The models predict single-GPU steps, so a multi-GPU step cannot calibrate them.
        if communication.is_none()
            && let Some(base) = Self::by_models(origin)
        {
            return base;
        }
        // Unmeasured operations are estimated from their shapes, here as on every destination. Otherwise their time
        // would count as idle.
        let mut sum = Micros::ZERO;
        let mut unmeasured = 0_usize;
        for decoded in decoded {
            let count = f64::from(decoded.operation.count);
            if decoded.family == Family::Communication {
                continue;
            }
            if let Some(time) = decoded.operation.device_time {
                sum += time * count;
            } else if let Some(estimate) = origin.predict(decoded).time {
                sum += estimate.range.mid * count;
                unmeasured += usize::from(estimate.range.mid.get() > 0.0);
            }
        }
        let mut notes = Vec::new();
        if unmeasured > 0 {
            notes.push(Finding::UnmeasuredOperations { operations: unmeasured, of: decoded.len() });
        }
        // If the operations sum to more than the busy time (or the step), they overlapped; the ratio carries over to
        // other GPUs. Busy time beyond the compute operations is communication that was not hidden behind them.
        let communicating = communication.as_ref().map_or(Micros::ZERO, |communication| communication.total);
        let busy = profile.step.as_ref().and_then(|step| step.device_busy).unwrap_or(sum + communicating);
        let busy = profile.measured_step().map_or(busy, |step| busy.min(step));
        // Medians of separate values may be inconsistent: exposed communication cannot exceed the total.
        let most = busy.min(communicating);
        let alone = profile.step.as_ref().and_then(|step| step.exposed_communication).map(|time| time.min(most));
        let computing = busy.checked_sub(alone.unwrap_or_default()).unwrap_or_default();
        let overlap = if sum.get() > 0.0 { (computing / sum).min(1.0) } else { 1.0 };
        let waiting = profile.measured_step().map_or(Micros::ZERO, |step| step.checked_sub(busy).unwrap_or_default());
        let (counted, left_out) = host.split(waiting);
        let data_wait = profile.loading().map_or(Micros::ZERO, |loading| loading.wait.min(counted));
        let host_idle = counted.checked_sub(data_wait).unwrap_or_default();
        let exposed = alone.unwrap_or_else(|| busy.checked_sub(sum * overlap).unwrap_or_default().min(most));
        let rest = computing.checked_sub(sum * overlap).filter(|_| alone.is_some() || communicating.get() <= 0.0);
        let exposed = profile.measured_step().map(|_| exposed);
        let doubt = communication.as_ref().zip(exposed).map(|(of, exposed)| of.doubt(exposed, counted));
        let mut warnings = communication.map_or_else(Vec::new, |communication| communication.warnings(exposed));
        let unassigned = rest.filter(|rest| rest.get() > busy.get() * UNASSIGNED).unwrap_or_default();
        if unassigned.get() > 0.0 {
            warnings.push(Finding::WorkOutside { busy_us: busy, outside_us: unassigned });
        }
        if overlap < 0.98 {
            notes.push(Finding::OverlappingOperations { share: overlap });
        }
        notes.extend(host.note(profile, host_idle + left_out));
        let unassigned = if sum.get() > 0.0 { unassigned / sum } else { 0.0 };
        Self { overlap, deviation: 1.0, host_idle, data_wait, busy, left_out, doubt, unassigned, warnings, notes }
    }

    /// Extends the range of a step by the work outside operations.
    pub(super) fn with_unassigned(&self, step: Estimate) -> Estimate {
        Estimate { range: Range { high: step.range.high * (1.0 + self.unassigned), ..step.range }, ..step }
    }

    /// Corrects the models by the recorded step: step over the models' prediction of it on the origin. The sum of
    /// separately measured operators differs from the step by launches and, if the GPU heats up, by the clock, so the
    /// step is the better reference.
    fn by_models(origin: &OnGpu<'_>) -> Option<Self> {
        if !origin.is_corrected_by_step() {
            return None;
        }
        let &Inputs { profile, decoded, options, models, .. } = origin.inputs();
        let (step, rates, models) = (profile.measured_step()?, origin.gpu, models?);
        let operations: Vec<OperationPrediction> = decoded.iter().map(|decoded| origin.predict(decoded)).collect();
        let parts = StepParts { on: origin, operations: &operations, is_measured: true };
        let factor = |share: &MethodShare| share.method.step_range(&parts).factor;
        let expected: Micros = shares(&operations).iter().map(|share| share.device_time * factor(share)).sum();
        if expected.get() <= 0.0 {
            return None;
        }
        // Slowdown at the power limit is specific to each GPU, so it does not carry over.
        let limited = rates.trained_fp32.is_power_limited();
        let shared = if limited { 0.0 } else { models.steps(rates.gpu).shared_deviation };
        let deviation = (step / expected).powf(shared);
        let (predicted_us, recorded_us) = (expected, step);
        let note = if limited {
            Finding::Uncorrected { predicted_us, recorded_us }
        } else {
            Finding::ScaledToRecorded { predicted_us, recorded_us, factor: deviation }
        };
        Some(Self {
            overlap: 1.0,
            deviation,
            host_idle: Micros::ZERO,
            data_wait: Micros::ZERO,
            busy: step,
            left_out: Micros::ZERO,
            doubt: None,
            unassigned: 0.0,
            warnings: Vec::new(),
            notes: std::iter::once(note).chain(options.host.note(profile, Micros::ZERO)).collect(),
        })
    }
}
