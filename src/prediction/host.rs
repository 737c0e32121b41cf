//! Host part of a step: the CPU may launch operations more slowly than the GPU runs them.
//!
//! A step with recorded waiting is predicted as device time plus that waiting. Its range reaches down to the device
//! time alone (no waiting) and, if waiting is most of the step, up to the recorded step (a host as slow as recorded).
//! Without a recorded step, the host is assumed to need [`LAUNCH_US`] per operation, and the step takes the longer of
//! both times ([`with_host`]), unless it was recorded compiled or as CUDA graphs. If data loader workers limit the step
//! rate, shorter steps wait for them; if their rate is unknown, the wait of a recording on a CPU is added.
//! [`Host::KeepsUp`] ignores both.

use serde::{Deserialize, Serialize};

use super::warning::{Warning, WarningKind};
use habitat_base::units::Micros;
use habitat_step::profile::Profile;

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

/// Note on waiting in a step recorded with a profiler; the figures are those of `HOST_LAUNCH_US`.
const PROFILED: &str = "kept unchanged on every GPU, but the profiler slowed the CPU (8 to 110 µs per launch in 18 public traces): the real wait is shorter, and ranges reach down to GPU time alone";

/// Note for a step that is predicted from shapes and whose operations are not launched one by one.
pub(super) fn launched_note(profile: &Profile) -> Option<String> {
    let execution = profile.step.as_ref()?.execution?;
    Some(format!("runs as {}: no minimum time per launched operation", execution.words()))
}

/// Note for a recorded step without its wait for the host.
pub(super) const DERIVED: &str = "derived, not measured: GPU busy time of the step recorded here";

/// Host time per operation of eager `PyTorch`, in microseconds, without a profiler. An estimate just above the minimum
/// of `HOST_LAUNCH_US`. The only two hosts measured without a profiler, both rented machines, took 22 to 49 µs per
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
