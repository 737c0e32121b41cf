//! What the origin tells of a step as a whole: how operations overlap, how long the device
//! waits for the host, what communication adds.

use super::communication::{Communication, Doubt};
use super::decoded::Decoded;
use super::estimate::{Estimate, OperationPrediction};
use super::host::Host;
use super::learned::Answering;
use super::route::Route;
use super::shares::{device_time, shares};
use super::warning::{Warning, WarningKind};
use habitat_base::units::{Micros, Range};
use habitat_step::op::Family;
use habitat_step::profile::Profile;

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
    /// Time of the device that belongs to no operation, as a share of the operations'; 0 unless it is
    /// much of the step.
    pub(super) unassigned: f64,
    /// What is to be shown with every time that starts from this step.
    pub(super) warnings: Vec<Warning>,
    pub(super) notes: Vec<String>,
}

/// Share of the device's time that may belong to no operation: small gaps in a recording do no harm.
const UNASSIGNED: f64 = 0.1;

fn unassigned_work(time: Micros, busy: Micros) -> Warning {
    let text = format!(
        "the GPU worked {:.2} ms of a step, {:.2} ms of them for no operation of the profile: times count the operations alone, and the high end of each range adds the rest; record the step again",
        busy.as_millis(),
        time.as_millis()
    );
    Warning { kind: WarningKind::Unassigned, text }
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
        // What was not hidden is at most the whole, whatever medians say.
        let most = busy.min(communicating);
        let alone = profile.step.as_ref().and_then(|step| step.exposed_communication).map(|time| time.min(most));
        let computing = busy.checked_sub(alone.unwrap_or_default()).unwrap_or_default();
        let overlap = if sum.get() > 0.0 { (computing / sum).min(1.0) } else { 1.0 };
        let waiting = profile.measured_step().map_or(Micros::ZERO, |step| step.checked_sub(busy).unwrap_or_default());
        let (host_idle, left_out) = host.split(waiting);
        let exposed = alone.unwrap_or_else(|| busy.checked_sub(sum * overlap).unwrap_or_default().min(most));
        let rest = computing.checked_sub(sum * overlap).filter(|_| alone.is_some() || communicating.get() <= 0.0);
        let exposed = profile.measured_step().map(|_| exposed);
        let doubt = communication.as_ref().zip(exposed).map(|(of, exposed)| of.doubt(exposed, host_idle));
        let mut warnings = communication.map_or_else(Vec::new, |communication| communication.warnings(exposed));
        let unassigned = rest.filter(|rest| rest.get() > busy.get() * UNASSIGNED).unwrap_or_default();
        if unassigned.get() > 0.0 {
            warnings.push(unassigned_work(unassigned, busy));
        }
        if overlap < 0.98 {
            notes
                .push(format!("operations overlap on the origin: their sum counts {:.0} %, as there", overlap * 100.0));
        }
        notes.extend(host.note(profile, waiting));
        let unassigned = if sum.get() > 0.0 { unassigned / sum } else { 0.0 };
        Self { overlap, deviation: 1.0, host_idle, left_out, doubt, unassigned, warnings, notes }
    }

    /// The range of a step that also holds the work of no operation.
    pub(super) fn with_unassigned(&self, step: Estimate) -> Estimate {
        Estimate { range: Range { high: step.range.high * (1.0 + self.unassigned), ..step.range }, ..step }
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
            unassigned: 0.0,
            warnings: Vec::new(),
            notes: std::iter::once(note).chain(host.note(profile, Micros::ZERO)).collect(),
        })
    }
}
