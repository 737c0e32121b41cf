//! Pace of the host in a predicted step ([`host`](super::host)).

use super::base::Base;
use super::estimate::{Estimate, OperationPrediction, StepTime};
use super::finding::Finding;
use super::host::{LAUNCH_US, with_host};
use super::method::Method;
use super::rate::{HOST_LAUNCH_US, STEP_LAUNCH_US};
use habitat_base::units::{Micros, Range};
use habitat_step::profile::{Phase, Profile};

/// Waiting share from which a step counts as CPU-bound.
const WAITING: f64 = 0.5;
/// Device time per launch, in microseconds, below which the host may be slower: that of the slowest hosts
/// ([`HOST_LAUNCH_US`]).
const SHORT_US: f64 = HOST_LAUNCH_US[1];

/// Host part of a step on one GPU.
pub(super) struct Pace<'a> {
    profile: &'a Profile,
    base: Option<&'a Base>,
    /// Launches per step.
    launches: f64,
    /// Whether the profile was recorded on a GPU.
    is_recorded: bool,
}

impl<'a> Pace<'a> {
    pub(super) fn new(
        profile: &'a Profile,
        base: Option<&'a Base>,
        operations: &[OperationPrediction],
        is_recorded: bool,
    ) -> Self {
        Self { profile, base, launches: launches(profile, operations), is_recorded }
    }

    /// Step with a host that keeps up. Measured steps are unchanged; in predicted ones, kernels are at most
    /// [`STEP_LAUNCH_US`] apart.
    pub(super) fn kept_up(&self, step: StepTime) -> StepTime {
        let StepTime::Predicted(estimate) = step else { return step };
        let Range { low, mid, high } = estimate.range;
        let mut apart = mid + Micros::known(STEP_LAUNCH_US * self.launches);
        if estimate.method == Method::Derived {
            apart = self.profile.measured_step().map_or(apart, |recorded| apart.min(recorded));
        }
        StepTime::Predicted(Estimate { range: Range { low, mid, high: high.max(apart) }, ..estimate })
    }

    /// Step with the recorded wait for the host, plus the wait for its data. Measured steps are unchanged.
    pub(super) fn as_recorded(&self, step: StepTime) -> (StepTime, Micros, Vec<Finding>) {
        let (step, mut warnings) = self.paced(step);
        let StepTime::Predicted(mut estimate) = step else { return (step, Micros::ZERO, warnings) };
        let wait = data_wait(self.profile, estimate.range.mid);
        let Range { mid, high, .. } = estimate.range;
        let high = match loader_period(self.profile) {
            Some(period) => high.max(period),
            None => high + wait,
        };
        estimate.range = Range { mid: mid + wait, high, ..estimate.range };
        if wait.get() >= NOTED * estimate.range.mid.get() && wait.get() > 0.0 {
            warnings.push(waits_for_data(self.profile, wait));
        }
        (StepTime::Predicted(estimate), wait, warnings)
    }

    /// Step at the host's pace, without its data loader.
    fn paced(&self, step: StepTime) -> (StepTime, Vec<Finding>) {
        let waiting = self.base.map_or(Micros::ZERO, |base| base.host_idle);
        let is_bound = waiting.get() > 0.0 && waiting / step.mid() >= WAITING;
        let hosts = HOST_LAUNCH_US.map(|each| Micros::known(each * self.launches));
        let bound =
            || self.base.filter(|_| is_bound).and_then(|base| warning(self.profile, base)).into_iter().collect();
        let predicted = match step {
            StepTime::Predicted(estimate) => estimate,
            StepTime::Measured { .. } => return (step, bound()),
        };
        let Some((base, recorded)) = self.base.zip(self.profile.measured_step()) else {
            let is_eager = self.profile.step.as_ref().is_none_or(|step| step.execution.is_none());
            let (step, warning) = if self.is_recorded || !is_eager {
                (predicted, None)
            } else {
                unrecorded(predicted, self.launches, hosts)
            };
            return (StepTime::Predicted(step), warning.into_iter().collect());
        };
        let mut step = predicted;
        // On the recording GPU the wait was measured.
        if waiting.get() > 0.0 && step.method != Method::Derived {
            let device = step.range.mid.checked_sub(waiting).unwrap_or_default() * (step.range.low / step.range.mid);
            step.range.low = step.range.low.min(device);
        }
        if is_bound {
            // If the recorded step was not CPU-bound, the pace of the host is unknown, but at most that of the recorded
            // step.
            let was_bound = base.host_idle / recorded >= WAITING;
            step.range.high = step.range.high.max(if was_bound { recorded } else { recorded.min(hosts[1]) });
        }
        (StepTime::Predicted(step), bound())
    }
}

fn warning(profile: &Profile, base: &Base) -> Option<Finding> {
    let (idle_us, step_us) = (base.host_idle, profile.measured_step()?);
    let launch_us = (idle_us / step_us < WAITING).then_some(HOST_LAUNCH_US[1]);
    Some(Finding::HostBound { idle_us, step_us, launch_us })
}

/// Share of a step below which waiting for data gets no warning.
const NOTED: f64 = 0.05;

/// Minimum time between steps that the data loader's workers allow.
fn loader_period(profile: &Profile) -> Option<Micros> {
    profile.step.as_ref().and_then(|step| step.loader_period)
}

/// Wait of a step for its data loader beyond its device's idle time: the rest of the loader's period, or the recorded
/// wait if the period is unknown.
fn data_wait(profile: &Profile, step: Micros) -> Micros {
    match loader_period(profile) {
        Some(period) => period.checked_sub(step).unwrap_or_default(),
        None => recorded_wait(profile).unwrap_or_default(),
    }
}

/// Recorded wait for the data loader, unless it is part of a GPU's idle time.
fn recorded_wait(profile: &Profile) -> Option<Micros> {
    profile.step.as_ref().and_then(|step| step.data_wait).filter(|_| profile.measured_step().is_none())
}

/// Whether the profile shows steps that wait for a data loader.
pub(super) fn loads(profile: &Profile) -> bool {
    loader_period(profile).is_some() || recorded_wait(profile).is_some()
}

fn waits_for_data(profile: &Profile, wait_us: Micros) -> Finding {
    loader_period(profile).map_or(Finding::LateData { wait_us }, |period_us| Finding::SlowLoader { period_us })
}

/// Step at the pace of a host of which only the number of launches is known.
fn unrecorded(step: Estimate, launches: f64, [least, usual]: [Micros; 2]) -> (Estimate, Option<Finding>) {
    // The step takes the longer of both; the range includes a host that keeps up.
    let (paced, _) = with_host(step.range.mid.get(), launches * LAUNCH_US);
    let longer = if step.range.mid.get() > 0.0 { paced / step.range.mid.get() } else { 1.0 };
    let Range { low, mid, high } = step.range;
    let step = Estimate { range: Range { low, mid: mid * longer, high: high * longer }, ..step };
    if step.range.mid.get() <= 0.0 || step.range.mid.get() >= SHORT_US * launches {
        return (step, None);
    }
    let (launch_us, host_us) = (HOST_LAUNCH_US, [least, usual]);
    let warning = Finding::LaunchBound { launches: launches as u64, launch_us, host_us };
    let Range { low, mid, high } = step.range;
    let step = Estimate { range: Range { low, mid: mid.max(least), high: high.max(usual) }, ..step };
    (step, Some(warning))
}

/// Launches in a step: recorded kernels, otherwise operations that take time.
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
