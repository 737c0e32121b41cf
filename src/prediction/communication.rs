//! The communication of a step that was recorded as one rank of several, and the step
//! without it.
//!
//! Every time is of one GPU alone, also that of the GPU of the recording:
//! [`scale`](super::scale) adds the communication of however many there are to be. What the
//! recorded step takes alone was not measured. It is the step less the communication that
//! was not hidden behind other work, and it lies between
//! - low: the step less all communication, at least what the device computes;
//! - high: the whole step, as if all communication had been hidden.

use super::decoded::Decoded;
use super::estimate::Estimate;
use super::method::Method;
use super::warning::{Warning, WarningKind};
use habitat_base::units::{Micros, Range};
use habitat_step::op::{Family, family, name};
use habitat_step::profile::{Mode, Profile};

/// The part of the communication's time from which on collectives of split models count: a
/// metric or the statistics of a batch norm may be gathered in any job.
const SPLIT_SHARE: f64 = 0.1;

/// Whether a recorded step communicates with other GPUs.
pub fn communicates(profile: &Profile) -> bool {
    profile.operations.iter().any(|operation| {
        family(operation) == Family::Communication && operation.device_time.is_none_or(|time| time.get() > 0.0)
    })
}

/// The communication of a recorded step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Communication {
    /// Device time of the collectives.
    pub(super) total: Micros,
    /// Whether all of them have one.
    is_timed: bool,
    /// What tells that the model was split.
    split: Vec<&'static str>,
}

impl Communication {
    /// Of a step's operations; `None` where none communicates.
    pub(super) fn of(decoded: &[Decoded<'_>], mode: Mode) -> Option<Self> {
        let collectives = || {
            let all = decoded.iter().filter(|decoded| decoded.family == Family::Communication);
            all.map(|decoded| (decoded.operation, decoded.operation.total_device_time()))
                .filter(|(_, time)| time.is_none_or(|time| time.get() > 0.0))
        };
        collectives().next()?;
        let total: Micros = collectives().filter_map(|(_, time)| time).sum();
        let mut split: Vec<&'static str> = Vec::new();
        let mut splitting = Micros::ZERO;
        for (operation, time) in collectives() {
            let Some(word) = name::split_collective(&operation.name) else { continue };
            splitting += time.unwrap_or_default();
            if !split.contains(&word) {
                split.push(word);
            }
        }
        if total.get() > 0.0 && splitting / total < SPLIT_SHARE {
            split.clear();
        }
        if split.is_empty() && mode == Mode::Inference {
            split.push("communication in inference");
        }
        Some(Self { total, is_timed: collectives().all(|(_, time)| time.is_some()), split })
    }

    /// Whether the collectives are those of a model that no single GPU runs.
    pub(super) const fn is_split(&self) -> bool {
        !self.split.is_empty()
    }

    /// By how much the step alone may be shorter and longer than the recorded one less what
    /// was not hidden, where the device waited so long besides.
    pub(super) fn doubt(&self, exposed: Micros, waiting: Micros) -> Doubt {
        let hidden = self.total.checked_sub(exposed).unwrap_or_default();
        Doubt { less: if self.is_timed { hidden.min(waiting) } else { waiting }, more: exposed }
    }

    /// What is to be said with every time; `exposed` is what was not hidden of the recorded
    /// step's communication, where that step was measured.
    pub(super) fn warnings(&self, exposed: Option<Micros>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.is_split() {
            let text = format!(
                "the recording has {}, as of a model that is split over several GPUs (FSDP, ZeRO, tensor, expert or pipeline parallelism): the times are of one rank's share of the step, and one GPU may be able neither to hold the model nor to run the step",
                self.split.join(", ")
            );
            warnings.push(Warning { kind: WarningKind::Sharded, text });
        }
        let text = exposed.map_or_else(
            || "the step communicates with other GPUs: every time here is of one GPU without that; a plan adds the communication of its own GPUs".to_owned(),
            |exposed| {
                format!(
                    "recorded as one of several GPUs ({:.2} ms of communication a step, {:.2} ms of them not hidden behind other work): every time here is of one GPU without communication, also on the GPU of the recording (derived, not measured); ranges allow for none of it having been hidden, and for all; a plan adds the communication of its own GPUs",
                    self.total.as_millis(),
                    exposed.as_millis()
                )
            },
        );
        warnings.push(Warning { kind: WarningKind::OneRank, text });
        warnings
    }
}

/// How far a step without its communication may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Doubt {
    less: Micros,
    more: Micros,
}

impl Doubt {
    /// The measured step less what was not hidden, as a range.
    pub(super) fn derived(self, recorded: Micros) -> Estimate {
        let less = |time: Micros, by: Micros| time.checked_sub(by).unwrap_or_default();
        let mid = less(recorded, self.more);
        Estimate { range: Range { low: less(mid, self.less), mid, high: recorded }, method: Method::Derived }
    }

    /// The same in the range of a prediction from such a step.
    pub(super) fn widened(self, step: Estimate) -> Estimate {
        let Range { low, mid, high } = step.range;
        Estimate {
            range: Range { low: low.checked_sub(self.less).unwrap_or_default(), mid, high: high + self.more },
            ..step
        }
    }
}
