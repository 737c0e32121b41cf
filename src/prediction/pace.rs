//! Pace of the host in a predicted step ([`host`](super::host)).

use super::estimate::{Estimate, OperationPrediction, StepTime};
use super::finding::Finding;
use super::launches::{EAGER_LAUNCH_US, HostWork, Queue, pace};
use super::method::Method;
use super::rate::STEP_LAUNCH_US;
use super::recorded_step::RecordedStep;
use super::supply::{Supply, without_wait};
use habitat_base::units::{Micros, Range};
use habitat_step::catalog::GpuSpec;
use habitat_step::profile::{Loader, Loading, Phase, Profile};

/// Share of a step without its data, in which the GPU waits for its host, from which it counts as CPU-bound (a choice).
const WAITING: f64 = 0.5;

/// Host part of a step on one GPU.
pub(super) struct Pace<'a> {
    profile: &'a Profile,
    base: Option<&'a RecordedStep>,
    /// Launches per step.
    launches: f64,
    /// Operations as the host issues them, and its pace; `None` if it is known or keeps up.
    issued: Option<(Queue, [f64; 3])>,
}

impl<'a> Pace<'a> {
    pub(super) fn new(
        profile: &'a Profile,
        base: Option<&'a RecordedStep>,
        operations: &[OperationPrediction],
        (work, gpu): (Option<&HostWork>, &GpuSpec),
    ) -> Self {
        let execution = profile.step.as_ref().and_then(|step| step.execution);
        let issued = work.map(|work| (Queue::new(work, operations), pace(execution, gpu)));
        Self { profile, base, launches: launches(profile, operations), issued }
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
    pub(super) fn as_recorded(&self, step: StepTime) -> (StepTime, Option<Supply>, Vec<Finding>) {
        let Some(loading) = self.profile.loading() else {
            let (step, warnings) = self.paced(step);
            return (step, None, warnings);
        };
        let waited = self.base.map_or(Micros::ZERO, |base| base.data_wait);
        let (alone, mut warnings) = match &step {
            StepTime::Measured { .. } => {
                let alone = without_wait(&step, waited);
                (alone, self.paced(StepTime::Measured { median: alone.range.mid, range: None }).1)
            }
            // Derived from the recorded step, so it has that wait.
            StepTime::Predicted(estimate) => {
                let has_wait = estimate.method == Method::Derived;
                let alone = if has_wait { without_wait(&step, waited) } else { *estimate };
                let (paced, warnings) = self.paced(StepTime::Predicted(alone));
                (paced.as_estimate(), warnings)
            }
        };
        let ratio = self
            .base
            .filter(|base| base.busy.get() > 0.0)
            .map_or(1.0, |base| alone.range.mid.checked_sub(base.host_idle).unwrap_or_default() / base.busy);
        let data = Supply::new(loading, alone, ratio);
        if data.wait().get() >= NOTED * data.step().range.mid.get() && data.wait().get() > 0.0 {
            warnings.push(waits_for_data(loading));
        }
        let step = match step {
            StepTime::Measured { .. } => step,
            StepTime::Predicted(_) => StepTime::Predicted(data.step()),
        };
        (step, Some(data), warnings)
    }

    /// Step at the host's pace, without its data loader.
    fn paced(&self, step: StepTime) -> (StepTime, Vec<Finding>) {
        let waiting = self.base.map_or(Micros::ZERO, |base| base.host_idle);
        let is_bound = waiting.get() > 0.0 && waiting / step.mid() >= WAITING;
        let slow = Micros::known(EAGER_LAUNCH_US[2] * self.launches);
        // If the recorded step was not CPU-bound, the pace of the host is unknown.
        let recorded = self.base.and_then(|base| self.profile.measured_step()?.checked_sub(base.data_wait));
        let was_bound = recorded.is_some_and(|recorded| waiting / recorded >= WAITING);
        let bound = || {
            let (base, step_us) = self.base.filter(|_| is_bound).zip(self.profile.measured_step())?;
            let launch_us = (!was_bound).then_some(EAGER_LAUNCH_US[2]);
            Some(Finding::HostBound { idle_us: base.host_idle, data_us: base.data_wait, step_us, launch_us })
        };
        let predicted = match step {
            StepTime::Predicted(estimate) => estimate,
            StepTime::Measured { .. } => return (step, bound().into_iter().collect()),
        };
        let Some(recorded) = recorded else {
            let (step, warning) = match &self.issued {
                Some((queue, pace_us)) => unrecorded(predicted, queue, *pace_us),
                None => (predicted, None),
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
            // The pace is at most that of the recorded step.
            step.range.high = step.range.high.max(if was_bound { recorded } else { recorded.min(slow) });
        }
        (StepTime::Predicted(step), bound().into_iter().collect())
    }
}

/// Share of a step below which waiting for data gets no warning (a choice).
const NOTED: f64 = 0.05;

fn waits_for_data(Loading { time, loader, .. }: Loading) -> Finding {
    match loader {
        Loader::Workers(_) => Finding::SlowLoader { period_us: time },
        Loader::Training => Finding::LoadsItself { load_us: time },
        Loader::Unknown => Finding::LateData { wait_us: time },
    }
}

/// Step with a host of unknown pace. The low end has the fastest, the high end a slow one.
fn unrecorded(step: Estimate, queue: &Queue, [fast, usual, slow]: [f64; 3]) -> (Estimate, Option<Finding>) {
    let Range { low, mid, high } = step.range;
    let hosts = [fast, usual, slow].map(|each| queue.host(each));
    let range = Range { low: queue.step(low, fast), mid: queue.step(mid, usual), high: queue.step(high, slow) };
    let waits = mid.get() > 0.0 && hosts[2].get() > mid.get();
    let warning = waits.then(|| Finding::LaunchBound {
        launches: queue.launches.round() as u64,
        launch_us: [fast, slow],
        host_us: [hosts[0], hosts[2]],
        expected: hosts[1].get() > mid.get(),
    });
    (Estimate { range, ..step }, warning)
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
