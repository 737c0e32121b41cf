//! Host part of a step: the CPU may launch operations more slowly than the GPU runs them.
//!
//! A step with recorded waiting is predicted as device time plus that waiting. Its range reaches down to the device
//! time alone (no waiting) and, if waiting is most of the step, up to the recorded step (a host as slow as recorded).
//! Without a recorded step, the host is assumed to need [`LAUNCH_US`] per operation, and the step takes the longer of
//! both times ([`with_host`]), unless it was recorded compiled or as CUDA graphs. If data loader workers limit the step
//! rate, shorter steps wait for them; if their rate is unknown, the wait of a recording on a CPU is added.
//! [`Host::KeepsUp`] ignores both.

use serde::{Deserialize, Serialize};

use super::base::Base;
use super::estimate::{Estimate, OperationPrediction, StepTime};
use super::method::Method;
use super::rate::{HOST_LAUNCH_US, STEP_LAUNCH_US};
use super::warning::{WAITS_FOR_DATA, Warning, WarningKind};
use habitat_base::text;
use habitat_base::units::{Micros, Range};
use habitat_step::profile::{Phase, Profile};

/// Treatment of the wait for the host in a predicted step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    /// As in the recorded step; from shapes alone, as in eager `PyTorch`.
    #[default]
    AsRecorded,
    /// No waiting, as with CUDA graphs or a data loader that is never late.
    KeepsUp,
}

impl Host {
    /// Both values, the default first.
    pub const ALL: [Self; 2] = [Self::AsRecorded, Self::KeepsUp];

    /// Name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AsRecorded => "as-recorded",
            Self::KeepsUp => "keeps-up",
        }
    }

    /// Short description.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::AsRecorded => {
                "The GPU waits for the host as in the recorded step; from shapes alone, as for eager PyTorch"
            }
            Self::KeepsUp => {
                "The GPU never waits for the host, as with CUDA graphs or a data loader that is never late"
            }
        }
    }

    /// The opposite choice.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::AsRecorded => Self::KeepsUp,
            Self::KeepsUp => Self::AsRecorded,
        }
    }

    /// Splits recorded waiting into the counted part and the part left out.
    pub(super) const fn split(self, waiting: Micros) -> (Micros, Micros) {
        match self {
            Self::AsRecorded => (waiting, Micros::ZERO),
            Self::KeepsUp => (Micros::ZERO, waiting),
        }
    }

    /// Note on the recorded waiting; `None` if there was none. With [`Host::KeepsUp`] it also reports that the
    /// recording lacks the wait.
    pub(super) fn note(self, profile: &Profile, waiting: Micros) -> Option<String> {
        let step = profile.measured_step()?;
        if waiting.get() <= 0.0 {
            let is_told = profile.step.as_ref().is_some_and(|step| step.device_busy.is_some());
            let is_silent = self == Self::AsRecorded || is_told;
            return (!is_silent)
                .then(|| "the wait for the CPU was not recorded, so it cannot be removed from the step".to_owned());
        }
        let (share, waiting) = (waiting / step * 100.0, waiting.as_millis());
        let fate = match self {
            Self::AsRecorded if profile.step.as_ref().is_some_and(|step| step.profiled) => PROFILED,
            Self::AsRecorded => "kept unchanged on every GPU",
            Self::KeepsUp => "left out on every GPU",
        };
        Some(format!("GPU idle, waiting for the CPU: {waiting:.2} ms of each step ({share:.0} %); {fate}"))
    }

    /// Warning for steps predicted without host wait.
    pub(super) fn warning(self) -> Option<Warning> {
        (self == Self::KeepsUp).then(|| Warning {
            kind: WarningKind::HostKeepsUp,
            text: "assuming the CPU keeps up, as with CUDA graphs or a data loader that is never late: GPU time only"
                .to_owned(),
        })
    }
}

/// Note on waiting in a step recorded with a profiler; the figures are those of [`HOST_LAUNCH_US`].
const PROFILED: &str = "kept unchanged on every GPU, but the profiler slowed the CPU (8 to 110 µs per launch in 18 public traces): the real wait is shorter, and ranges reach down to GPU time alone";

/// Note for a step that is predicted from shapes and whose operations are not launched one by one.
pub(super) fn launched_note(profile: &Profile) -> Option<String> {
    let execution = profile.step.as_ref()?.execution?;
    Some(format!("runs as {}: no minimum time per launched operation", execution.words()))
}

/// Note for a recorded step without its wait for the host.
pub(super) const DERIVED: &str = "derived, not measured: GPU busy time of the step recorded here";

/// Host time per operation of eager `PyTorch`, in microseconds, without a profiler. An estimate just above the minimum
/// of [`HOST_LAUNCH_US`]. The only two hosts measured without a profiler, both rented machines, took 22 to 49 µs per
/// kernel (`models/lab/steps/recorded.py --show` prints them).
pub const LAUNCH_US: f64 = 6.0;
/// Sharpness of the transition from GPU-bound to CPU-bound: if both times are equal, the step takes 1.19 times either.
/// An assumption.
const TURN: f64 = 4.0;

/// Step for given device and host times in microseconds, and its derivative by the device time. It is the longer of
/// both, plus a margin if they are similar.
pub fn with_host(device_us: f64, host_us: f64) -> (f64, f64) {
    let step = (device_us.powf(TURN) + host_us.powf(TURN)).powf(1.0 / TURN);
    (step, if step > 0.0 { (device_us / step).powf(TURN - 1.0) } else { 1.0 })
}

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
    pub(super) fn as_recorded(&self, step: StepTime) -> (StepTime, Micros, Vec<Warning>) {
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
    fn paced(&self, step: StepTime) -> (StepTime, Vec<Warning>) {
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

fn warning(profile: &Profile, base: &Base) -> Option<Warning> {
    let recorded = profile.measured_step()?;
    let reach = if base.host_idle / recorded >= WAITING {
        "the recorded step".to_owned()
    } else {
        format!("{:.0} µs per launch", HOST_LAUNCH_US[1])
    };
    let digits = if recorded.as_millis() < 99.95 { 2 } else { 1 };
    let text = format!(
        "CPU-bound: the GPU is idle {:.digits$} of the {:.digits$} ms of the recorded step, and a faster GPU will not help much. Low end of each range: no waiting; high end: at least {reach}",
        base.host_idle.as_millis(),
        recorded.as_millis(),
    );
    Some(Warning { kind: WarningKind::HostBound, text })
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

fn waits_for_data(profile: &Profile, wait: Micros) -> Warning {
    let rest = "ranges reach down to the step without this wait; --host keeps-up leaves it out";
    let text = match loader_period(profile) {
        Some(period) => format!(
            "{WAITS_FOR_DATA}the DataLoader's workers deliver a batch every {:.2} ms, and shorter steps wait for them; {rest}",
            period.as_millis()
        ),
        None => format!(
            "{WAITS_FOR_DATA}the DataLoader delayed each recorded step by {:.2} ms, which is added on every GPU; {rest}",
            wait.as_millis()
        ),
    };
    Warning { kind: WarningKind::WaitsForData, text }
}

/// Step at the pace of a host of which only the number of launches is known.
fn unrecorded(step: Estimate, launches: f64, [least, usual]: [Micros; 2]) -> (Estimate, Option<Warning>) {
    // The step takes the longer of both; the range includes a host that keeps up.
    let (paced, _) = with_host(step.range.mid.get(), launches * LAUNCH_US);
    let longer = if step.range.mid.get() > 0.0 { paced / step.range.mid.get() } else { 1.0 };
    let Range { low, mid, high } = step.range;
    let step = Estimate { range: Range { low, mid: mid * longer, high: high * longer }, ..step };
    if step.range.mid.get() <= 0.0 || step.range.mid.get() >= SHORT_US * launches {
        return (step, None);
    }
    let text = format!(
        "CPU-bound: {} operations take less than {SHORT_US:.0} µs each on the GPU, and a CPU launches one in {:.0} to {:.0} µs, all in {:.2} to {:.2} ms (estimated). Times are at least the shorter launch time. Low end of each range: GPU time alone, as with CUDA graphs; high end: at least the longer launch time",
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
