//! Communication of a step recorded as one rank of several, and the step without it.
//!
//! Every predicted time is for a single GPU, also for the recording GPU; [`scale`](super::scale) adds the communication
//! of the requested number. The recorded step alone was not measured. It is the step less the exposed communication
//! (not hidden behind other work), and it lies between
//! - low: the step less all communication, but at least the device's compute time;
//! - high: the whole step, as if all communication had been hidden.

use super::decoded::Decoded;
use super::estimate::Estimate;
use super::finding::Finding;
use super::method::Method;
use habitat_base::units::{Micros, Range};
use habitat_step::op::{Family, family, name};
use habitat_step::profile::{Mode, Profile};

/// Share of communication time above which collectives of split models count. Any job may gather a metric or batch-norm
/// statistics.
const SPLIT_SHARE: f64 = 0.1;

/// Whether a recorded step communicates with other GPUs.
pub fn communicates(profile: &Profile) -> bool {
    profile.operations.iter().any(|operation| {
        family(operation) == Family::Communication && operation.device_time.is_none_or(|time| time.get() > 0.0)
    })
}

/// Communication of a recorded step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Communication {
    /// Device time of the collectives.
    pub(super) total: Micros,
    /// Whether every collective has a measured time.
    is_timed: bool,
    /// Evidence that the model was split.
    split: Vec<&'static str>,
}

impl Communication {
    /// Collects the collectives of a step; `None` if it has none.
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

    /// Whether the collectives belong to a model split over several GPUs.
    pub(super) const fn is_split(&self) -> bool {
        !self.split.is_empty()
    }

    /// Uncertainty of the step without exposed communication; hidden communication may have run while the device
    /// waited.
    pub(super) fn doubt(&self, exposed: Micros, waiting: Micros) -> StepUncertainty {
        let hidden = self.total.checked_sub(exposed).unwrap_or_default();
        StepUncertainty { less: if self.is_timed { hidden.min(waiting) } else { waiting }, more: exposed }
    }

    /// Warnings for every time; `exposed` is the exposed communication of the recorded step, if measured.
    pub(super) fn warnings(&self, exposed: Option<Micros>) -> Vec<Finding> {
        let sharded = self.is_split().then(|| Finding::Sharded { evidence: self.split.clone() });
        let of_rank = |exposed_us| Finding::OneRank { communication_us: self.total, exposed_us };
        sharded.into_iter().chain([exposed.map_or(Finding::Communicates, of_rank)]).collect()
    }
}

/// Uncertainty of a step without its communication.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepUncertainty {
    less: Micros,
    more: Micros,
}

impl StepUncertainty {
    /// Recorded step less exposed communication, with its range.
    pub(super) fn derived(self, recorded: Micros) -> Estimate {
        let less = |time: Micros, by: Micros| time.checked_sub(by).unwrap_or_default();
        let mid = less(recorded, self.more);
        Estimate { range: Range { low: less(mid, self.less), mid, high: recorded }, method: Method::Derived }
    }

    /// Adds the uncertainty to the range of a prediction from such a step.
    pub(super) fn widened(self, step: Estimate) -> Estimate {
        let Range { low, mid, high } = step.range;
        Estimate {
            range: Range { low: low.checked_sub(self.less).unwrap_or_default(), mid, high: high + self.more },
            ..step
        }
    }
}
