//! Steps that the host bounds: it launches operations more slowly than the GPU runs them.
//!
//! A step that waited for the host is predicted as the device's time plus the recorded waiting,
//! and its range reaches from the device's time alone (a host that waits for nothing) to the
//! recorded step (a host that is as slow as it was). Where no step was recorded, the host is
//! taken to need [`LAUNCH_US`] for each operation, and the step takes the longer of both times
//! ([`with_host`]).

use super::base::Base;
use super::estimate::{Estimate, OperationPrediction, StepTime};
use super::rate::HOST_LAUNCH_US;
use super::warning::{Warning, WarningKind};
use crate::profile::{Phase, Profile};
use crate::text;
use crate::units::{Micros, Range};

/// What a host takes for one operation of eager `PyTorch`, in microseconds, where no profiler
/// slows it down. An estimate just above the least of [`HOST_LAUNCH_US`]; no measurement
/// without a profiler is at hand.
pub const LAUNCH_US: f64 = 6.0;
/// How sharply a step turns from being bound by the device to being bound by the host: alike,
/// they take 1.19 times either. An assumption.
const TURN: f64 = 4.0;

/// A step of so many microseconds for the device and for the host, and its derivative by the
/// device's: the longer one, and some more where they are alike.
pub fn with_host(device_us: f64, host_us: f64) -> (f64, f64) {
    let step = (device_us.powf(TURN) + host_us.powf(TURN)).powf(1.0 / TURN);
    (step, if step > 0.0 { (device_us / step).powf(TURN - 1.0) } else { 1.0 })
}

/// Share of a step from which on waiting for the host is most of it.
const WAITING: f64 = 0.5;
/// Microseconds of device time a launch below which the host is likely to be the slower one.
const SHORT_US: f64 = 20.0;

/// A step with what the host may make of it.
pub(super) struct Paced {
    pub(super) step: StepTime,
    pub(super) warning: Option<Warning>,
}

/// `step`, `waiting` of which the device waits for the host, as recorded where that is so.
/// What was measured stays.
pub(super) fn paced(
    profile: &Profile,
    (base, is_recorded): (Option<&Base>, bool),
    operations: &[OperationPrediction],
    step: StepTime,
    waiting: Micros,
) -> Paced {
    let launches = launches(profile, operations);
    let hosts = HOST_LAUNCH_US.map(|each| Micros::known(each * launches));
    let is_bound = waiting.get() > 0.0 && waiting / step.mid() >= WAITING;
    let predicted = match step {
        StepTime::Predicted(estimate) => estimate,
        StepTime::Measured { .. } => {
            let warning = base.filter(|_| is_bound).and_then(|base| warning(profile, base));
            return Paced { step, warning };
        }
    };
    let Some((base, recorded)) = base.zip(profile.measured_step()) else {
        let (step, warning) = if is_recorded { (predicted, None) } else { unrecorded(predicted, launches, hosts) };
        return Paced { step: StepTime::Predicted(step), warning };
    };
    let was_bound = base.host_idle / recorded >= WAITING;
    let mut step = predicted;
    if was_bound || is_bound {
        let device = step.range.mid.checked_sub(waiting).unwrap_or_default() * (step.range.low / step.range.mid);
        step.range.low = step.range.low.min(device);
    }
    if is_bound {
        // Where the recorded step was not bound by the host, that pace is not known: it is at
        // most that of the recorded step.
        step.range.high = step.range.high.max(if was_bound { recorded } else { recorded.min(hosts[1]) });
    }
    let warning = if is_bound { warning(profile, base) } else { None };
    Paced { step: StepTime::Predicted(step), warning }
}

fn warning(profile: &Profile, base: &Base) -> Option<Warning> {
    let recorded = profile.measured_step()?;
    let reach = if base.host_idle / recorded >= WAITING {
        "the recorded step".to_owned()
    } else {
        format!("{:.0} µs a launch", HOST_LAUNCH_US[1])
    };
    let text = format!(
        "bound by the host: the device waits for it {:.2} of the {:.2} ms of the recorded step, and a faster GPU hardly shortens that; ranges reach from the device's time alone to {reach} at least",
        base.host_idle.as_millis(),
        recorded.as_millis(),
    );
    Some(Warning { kind: WarningKind::HostBound, text })
}

/// From shapes alone nothing is known of the host but what it has to launch.
fn unrecorded(step: Estimate, launches: f64, [least, usual]: [Micros; 2]) -> (Estimate, Option<Warning>) {
    // The step takes the longer of both; a host that keeps up stays in the range.
    let (paced, _) = with_host(step.range.mid.get(), launches * LAUNCH_US);
    let longer = if step.range.mid.get() > 0.0 { paced / step.range.mid.get() } else { 1.0 };
    let Range { low, mid, high } = step.range;
    let step = Estimate { range: Range { low, mid: mid * longer, high: high * longer }, ..step };
    if step.range.mid.get() <= 0.0 || step.range.mid.get() >= SHORT_US * launches {
        return (step, None);
    }
    let text = format!(
        "bound by the host: {} operations take the device less than {SHORT_US:.0} µs each, and a host launches one in {:.0} to {:.0} µs, all in {:.2} to {:.2} ms; no time is put below the first (a floor by their number, nothing measured), and ranges reach from the device's time alone, as with CUDA graphs, to the second",
        text::grouped(launches),
        HOST_LAUNCH_US[0],
        HOST_LAUNCH_US[1],
        least.as_millis(),
        usual.as_millis()
    );
    let Range { low, mid, high } = step.range;
    let step = Estimate { range: Range { low, mid: mid.max(least), high: high.max(usual) }, ..step };
    (step, Some(Warning { kind: WarningKind::HostBound, text }))
}

/// What the host launches in a step: kernels where they were recorded, else operations that
/// take time.
fn launches(profile: &Profile, operations: &[OperationPrediction]) -> f64 {
    let timed = operations.iter().filter(|operation| {
        operation.phase != Phase::Communication
            && operation.time.as_ref().is_some_and(|time| time.range.mid.get() > 0.0)
    });
    timed
        .map(|operation| {
            let kernels = profile.operations.get(operation.index).map_or(&[][..], |recorded| &recorded.kernels);
            let each: u32 = kernels.iter().map(|kernel| kernel.count).sum();
            f64::from(operation.count) * f64::from(each.max(1))
        })
        .sum()
}
