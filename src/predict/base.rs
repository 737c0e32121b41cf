//! What the origin tells of a step as a whole: how operations overlap, how long the device
//! waits for the host, what communication adds.

use super::communication::{Communication, Doubt};
use super::decoded::Decoded;
use super::estimate::OperationPrediction;
use super::host::Host;
use super::learned::Answering;
use super::route::Route;
use super::shares::{device_time, shares};
use super::warning::Warning;
use crate::op::Family;
use crate::profile::Profile;
use crate::units::Micros;

/// What the origin tells of the step as a whole.
pub(super) struct Base {
    /// Device busy time over the sum of the times of operations that compute: below 1 where streams overlap.
    pub(super) overlap: f64,
    /// Where operators were measured apart: by how much the origin's step deviates from what
    /// the models say of it, as far as a destination shares that. 1 otherwise.
    pub(super) deviation: f64,
    /// The device waits for the host, as far as that is counted.
    pub(super) host_idle: Micros,
    /// The same in the recorded step, as far as it is not to be counted.
    pub(super) left_out: Micros,
    /// How far the step without its communication may be off, where it had any.
    pub(super) doubt: Option<Doubt>,
    /// What is to be shown with every time that starts from this step.
    pub(super) warnings: Vec<Warning>,
    pub(super) notes: Vec<String>,
}

impl Base {
    pub(super) fn new(
        profile: &Profile,
        route: &Route<'_>,
        decoded: &[Decoded<'_>],
        models: Option<Answering<'_>>,
        host: Host,
    ) -> Self {
        let communication = Communication::of(decoded, profile.workload.mode);
        // What the models say of a step on one GPU is not to be compared with one that communicates.
        if communication.is_none()
            && let Some(base) = models.and_then(|models| Self::by_models(profile, route, decoded, models, host))
        {
            return base;
        }
        // Operations that were not measured are put in from their shapes, here as on every
        // destination, so that they do not turn into idle time.
        let mut sum = Micros::ZERO;
        let mut unmeasured = 0_usize;
        for decoded in decoded {
            let count = f64::from(decoded.operation.count);
            if decoded.family == Family::Communication {
                continue;
            }
            if let Some(time) = decoded.operation.device_time {
                sum += time * count;
            } else if let Some(estimate) = route.predict(decoded).time {
                sum += estimate.range.mid * count;
                unmeasured += usize::from(estimate.range.mid.get() > 0.0);
            }
        }
        let mut notes = Vec::new();
        if unmeasured > 0 {
            notes.push(format!(
                "{unmeasured} of {} operations were not measured on the origin: roofline on shapes",
                decoded.len()
            ));
        }
        // Where the operations sum to more than the device was busy (or than the step took),
        // they overlapped; that share is carried over. What communication adds to the busy
        // time beyond the operations was not hidden behind them.
        let communicating = communication.as_ref().map_or(Micros::ZERO, |communication| communication.total);
        let busy = profile.step.as_ref().and_then(|step| step.device_busy).unwrap_or(sum + communicating);
        let busy = profile.measured_step().map_or(busy, |step| busy.min(step));
        let overlap = if sum.get() > 0.0 { (busy / sum).min(1.0) } else { 1.0 };
        let waiting = profile.measured_step().map_or(Micros::ZERO, |step| step.checked_sub(busy).unwrap_or_default());
        let (host_idle, left_out) = host.split(waiting);
        let exposed =
            if communicating.get() > 0.0 { busy.checked_sub(sum * overlap).unwrap_or_default() } else { Micros::ZERO };
        let exposed = profile.measured_step().map(|_| exposed);
        let doubt = communication.as_ref().zip(exposed).map(|(of, exposed)| of.doubt(exposed, host_idle));
        let warnings = communication.map_or_else(Vec::new, |communication| communication.warnings(exposed));
        if overlap < 0.98 {
            notes
                .push(format!("operations overlap on the origin: their sum counts {:.0} %, as there", overlap * 100.0));
        }
        notes.extend(host.note(profile, waiting));
        Self { overlap, deviation: 1.0, host_idle, left_out, doubt, warnings, notes }
    }

    /// Operators that were measured apart from the step (their sum differs from it by the
    /// launches and, where the GPU heats up, the clock) say less of a destination than
    /// the step itself: step over what the models say of it on the origin.
    fn by_models(
        profile: &Profile,
        route: &Route<'_>,
        decoded: &[Decoded<'_>],
        models: Answering<'_>,
        host: Host,
    ) -> Option<Self> {
        let (learned, step, origin) = (route.learned?, profile.measured_step()?, route.destination);
        if learned.here.is_some() || !route.choice.is_learned() {
            return None;
        }
        let operations: Vec<OperationPrediction> = decoded.iter().map(|decoded| route.predict(decoded)).collect();
        let expected = device_time(&shares(&operations), models.step_factor(origin.gpu, profile.workload.mode));
        if expected.get() <= 0.0 {
            return None;
        }
        // How far a GPU slows down at its power limit is its own.
        let limited = origin.trained_fp32.is_power_limited();
        let shared = if limited { 0.0 } else { models.steps(origin.gpu).shared_deviation };
        let deviation = (step / expected).powf(shared);
        let mut note = format!(
            "the models say {:.2} ms of the origin's {:.2} ms step: times {deviation:.3} everywhere",
            expected.as_millis(),
            step.as_millis()
        );
        if limited {
            note = format!(
                "the models say {:.2} ms of the origin's {:.2} ms step; not carried over, as that GPU is limited by its power",
                expected.as_millis(),
                step.as_millis()
            );
        }
        Some(Self {
            overlap: 1.0,
            deviation,
            host_idle: Micros::ZERO,
            left_out: Micros::ZERO,
            doubt: None,
            warnings: Vec::new(),
            notes: std::iter::once(note).chain(host.note(profile, Micros::ZERO)).collect(),
        })
    }
}
