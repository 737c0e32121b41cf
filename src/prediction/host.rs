//! What the host makes of a step: it may launch operations more slowly than the GPU runs them.
//!
//! A step that waited for the host is predicted as the device's time plus the recorded waiting,
//! and its range reaches down to the device's time alone (a host that waits for nothing); where
//! the waiting is most of the step, it reaches up to the recorded step (a host that is as slow
//! as it was). Where no step was recorded, the host is taken to need [`LAUNCH_US`] for each
//! operation, and the step takes the longer of both times ([`with_host`]), unless it was
//! recorded compiled or as CUDA graphs. Workers of a data loader that allow a step only every so
//! often are waited for; if that is unknown, the wait of a recording on a CPU is added.
//! [`Host::KeepsUp`] counts neither.

use serde::{Deserialize, Serialize};

use super::base::Base;
use super::estimate::{Estimate, OperationPrediction, StepTime};
use super::method::Method;
use super::rate::{HOST_LAUNCH_US, STEP_LAUNCH_US};
use super::warning::{WAITS_FOR_DATA, Warning, WarningKind};
use habitat_base::text;
use habitat_base::units::{Micros, Range};
use habitat_step::profile::{Phase, Profile};

/// Whether the device waits for the host in a predicted step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    /// As in the recorded step; from shapes alone, as eager `PyTorch` launches operations.
    #[default]
    AsRecorded,
    /// Never, as with CUDA graphs or a data loader that is never late.
    KeepsUp,
}

impl Host {
    /// Both, the default first.
    pub const ALL: [Self; 2] = [Self::AsRecorded, Self::KeepsUp];

    /// The name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AsRecorded => "as-recorded",
            Self::KeepsUp => "keeps-up",
        }
    }

    /// What it means, in a few words.
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

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::AsRecorded => Self::KeepsUp,
            Self::KeepsUp => Self::AsRecorded,
        }
    }

    /// What is counted of the recorded waiting, and what is left out.
    pub(super) const fn split(self, waiting: Micros) -> (Micros, Micros) {
        match self {
            Self::AsRecorded => (waiting, Micros::ZERO),
            Self::KeepsUp => (Micros::ZERO, waiting),
        }
    }

    /// What becomes of the recorded waiting, in words; `None` where there was none, unless
    /// none is to be counted and the recording does not tell.
    pub(super) fn note(self, profile: &Profile, waiting: Micros) -> Option<String> {
        let step = profile.measured_step()?;
        if waiting.get() <= 0.0 {
            let is_told = profile.step.as_ref().is_some_and(|step| step.device_busy.is_some());
            let is_silent = self == Self::AsRecorded || is_told;
            return (!is_silent).then(|| {
                "the recording does not tell how long the GPU waited for the host: the step keeps what it has of it"
                    .to_owned()
            });
        }
        let (share, waiting) = (waiting / step * 100.0, waiting.as_millis());
        let fate = match self {
            Self::AsRecorded if profile.step.as_ref().is_some_and(|step| step.profiled) => PROFILED,
            Self::AsRecorded => "taken over unchanged on every GPU",
            Self::KeepsUp => "left out on every GPU",
        };
        Some(format!("GPU idle, waiting for the CPU: {waiting:.2} ms of each step ({share:.0} %); {fate}"))
    }

    /// What is to be shown with every step that no host was waited for in.
    pub(super) fn warning(self) -> Option<Warning> {
        (self == Self::KeepsUp).then(|| Warning {
            kind: WarningKind::HostKeepsUp,
            text: "the host is taken to keep up, as with CUDA graphs or a data loader that is never late: steps are the GPU's work alone, without waiting for the host".to_owned(),
        })
    }
}

/// What becomes of the waiting in steps that a profiler recorded; the figures are those of
/// [`HOST_LAUNCH_US`].
const PROFILED: &str = "taken over unchanged on every GPU, but the profiler was on and slows the host (in 18 public traces one launch comes 8 to 110 µs after another): it is at most that, and ranges reach down to the GPU's time alone";

/// What is said of a step of which only shapes are used, where its operations are not launched
/// one by one.
pub(super) fn launched_note(profile: &Profile) -> Option<String> {
    let execution = profile.step.as_ref()?.execution?;
    Some(format!("runs as {}: no floor by the number of operations that the host launches", execution.words()))
}

/// What is said of a recorded step whose waiting for the host is left out.
pub(super) const DERIVED: &str = "derived, not measured: the time in which the GPU was busy in the step recorded here";

/// What a host takes for one operation of eager `PyTorch`, in microseconds, where no profiler
/// slows it down. An estimate just above the least of [`HOST_LAUNCH_US`]. The only two hosts that were
/// measured without a profiler, of rented machines, took 22 to 49 µs a kernel
/// (`models/lab/steps/recorded.py --show` prints them).
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
/// Microseconds of device time a launch below which the host may be the slower one: that of the slowest hosts
/// ([`HOST_LAUNCH_US`]).
const SHORT_US: f64 = HOST_LAUNCH_US[1];

/// The host's part of a step on one GPU.
pub(super) struct Pace<'a> {
    profile: &'a Profile,
    base: Option<&'a Base>,
    /// What the host launches in a step.
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

    /// A step of a host that keeps up. What was measured stays; kernels follow each other as
    /// closely as they can, at most [`STEP_LAUNCH_US`] apart.
    pub(super) fn kept_up(&self, step: StepTime) -> StepTime {
        let StepTime::Predicted(estimate) = step else { return step };
        let Range { low, mid, high } = estimate.range;
        let mut apart = mid + Micros::known(STEP_LAUNCH_US * self.launches);
        if estimate.method == Method::Derived {
            apart = self.profile.measured_step().map_or(apart, |recorded| apart.min(recorded));
        }
        StepTime::Predicted(Estimate { range: Range { low, mid, high: high.max(apart) }, ..estimate })
    }

    /// A step in which the device waits for the host as recorded, and what it waits for its data in addition. What
    /// was measured stays.
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

    /// A step at the host's pace, without its data loader.
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
        // On the GPU of the recording the waiting was measured.
        if waiting.get() > 0.0 && step.method != Method::Derived {
            let device = step.range.mid.checked_sub(waiting).unwrap_or_default() * (step.range.low / step.range.mid);
            step.range.low = step.range.low.min(device);
        }
        if is_bound {
            // Where the recorded step was not bound by the host, that pace is not known: it is at
            // most that of the recorded step.
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
        format!("{:.0} µs a launch", HOST_LAUNCH_US[1])
    };
    let text = format!(
        "bound by the host: the device waits for it {:.2} of the {:.2} ms of the recorded step, and a faster GPU hardly shortens that; ranges reach from the device's time alone to {reach} at least",
        base.host_idle.as_millis(),
        recorded.as_millis(),
    );
    Some(Warning { kind: WarningKind::HostBound, text })
}

/// Share of a step below which waiting for data is not worth a warning.
const NOTED: f64 = 0.05;

/// Least time from step to step that the workers of the data loader allow.
fn loader_period(profile: &Profile) -> Option<Micros> {
    profile.step.as_ref().and_then(|step| step.loader_period)
}

/// Time that a step of `step` waits for its data loader beyond its device's idle time: the rest of the loader's
/// period, or the recorded wait if that is unknown.
fn data_wait(profile: &Profile, step: Micros) -> Micros {
    match loader_period(profile) {
        Some(period) => period.checked_sub(step).unwrap_or_default(),
        None => recorded_wait(profile).unwrap_or_default(),
    }
}

/// Recorded wait for the data loader, unless a GPU's idle time includes it.
fn recorded_wait(profile: &Profile) -> Option<Micros> {
    profile.step.as_ref().and_then(|step| step.data_wait).filter(|_| profile.measured_step().is_none())
}

/// Whether steps wait for a data loader, as far as the profile shows it.
pub(super) fn loads(profile: &Profile) -> bool {
    loader_period(profile).is_some() || recorded_wait(profile).is_some()
}

fn waits_for_data(profile: &Profile, wait: Micros) -> Warning {
    let rest = "ranges reach down to the step without it; --host keeps-up leaves it out";
    let text = match loader_period(profile) {
        Some(period) => format!(
            "{WAITS_FOR_DATA}the DataLoader's workers give the data of a step every {:.2} ms, and a shorter step waits for them; {rest}",
            period.as_millis()
        ),
        None => format!(
            "{WAITS_FOR_DATA}the DataLoader held each recorded step up for {:.2} ms, which is added on every GPU; {rest}",
            wait.as_millis()
        ),
    };
    Warning { kind: WarningKind::WaitsForData, text }
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
