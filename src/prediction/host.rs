//! Host part of a step: the CPU may launch operations more slowly than the GPU runs them.
//!
//! A step with recorded waiting is predicted as device time plus that waiting. Its range reaches down to the device
//! time alone (no waiting) and, if waiting is most of the step, up to the recorded step (a host as slow as recorded).
//! Without a recorded step, the step is the longer of the GPU's and of a typical host's time (`launches`), and the range
//! reaches from a host that keeps up to a slow one. If data loader workers limit the step
//! rate, shorter steps wait for them; if their rate is unknown, the wait of a recording on a CPU is added.
//! [`Host::KeepsUp`] ignores both.

use serde::{Deserialize, Serialize};

use super::finding::{Finding, WaitCounts};
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
    pub(super) fn note(self, profile: &Profile, waiting: Micros) -> Option<Finding> {
        let step = profile.measured_step()?;
        let recorded = profile.step.as_ref();
        if waiting.get() <= 0.0 {
            let is_unknown = recorded.is_none_or(|step| step.device_busy.is_none());
            return (self == Self::KeepsUp && is_unknown).then_some(Finding::UnknownWait);
        }
        let counts = match self {
            Self::AsRecorded if recorded.is_some_and(|step| step.profiled) => WaitCounts::Profiled,
            Self::AsRecorded => WaitCounts::Kept,
            Self::KeepsUp => WaitCounts::LeftOut,
        };
        Some(Finding::CpuWait { wait_us: waiting, share: waiting / step, counts })
    }

    /// Warning for steps predicted without host wait.
    pub(super) fn warning(self) -> Option<Finding> {
        (self == Self::KeepsUp).then_some(Finding::HostKeepsUp)
    }
}
