//! Peak memory as a function of the batch size.

use super::states::{by_kind, states};
use super::{MemoryNeed, PeakSource, RESERVED, farther, process, source_of, times, within, working};
use crate::finding::{Finding, LineBasis};
use crate::precision::Change;
use crate::rate::Rates;
use crate::sharding::ModelStates;
use habitat_base::regress::line::{Line, Point};
use habitat_base::units::Bytes;
use habitat_step::profile::{MemorySource, Profile, Working, Workload};

/// Peak memory over the batch size: a fixed part (parameters, gradients and states) and one per sample (activations),
/// with a lower bound such as the update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryLine {
    /// Fixed part.
    pub fixed: Bytes,
    /// Growth per sample.
    pub per_sample: Bytes,
    /// Peak at another moment of the step, with its growth per sample.
    pub other: Option<[Bytes; 2]>,
    /// Peak of forward and backward at one batch size, if recorded.
    working: Option<(u64, Working)>,
    pub(super) source: LineBasis,
    /// Source of the peaks.
    pub(super) peaks: MemorySource,
    /// Part of the fixed memory that can be divided among GPUs, if known.
    states: Option<ModelStates>,
}

/// Share of the activations below which the peak is in the update (a choice).
const UPDATE_KEEPS: f64 = 0.5;

impl MemoryLine {
    /// Fits the peaks of profiles by batch size. With one peak, the fixed part is the memory of parameters (recorded,
    /// or estimated for the detected optimizer or Adam), otherwise 0. `None` without a peak.
    pub fn of_profiles(profiles: &[(u64, &Profile)]) -> Option<Self> {
        let with_peak: Vec<(u64, Bytes, &Profile)> = profiles
            .iter()
            .filter_map(|(batch, profile)| Some((*batch, profile.step.as_ref()?.peak_memory_bytes?, *profile)))
            .collect();
        let computed = with_peak.iter().any(|(.., profile)| source_of(profile) == MemorySource::Computed);
        let peaks = if computed { MemorySource::Computed } else { MemorySource::Recorded };
        let largest = with_peak.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let states_of = |fixed: Bytes| {
            let states = largest.and_then(|(.., profile)| by_kind(profile));
            // If another moment was recorded, the fixed part may lack some gradients.
            let most = largest.filter(|(.., profile)| working(profile).is_some()).map_or(fixed, |(_, peak, _)| *peak);
            within(states, Some(most * (1.0 + 1e-9)))
        };
        let other = largest.and_then(|&(batch, peak, profile)| other_moment(batch, peak, profile));
        let working = largest.and_then(|&(batch, _, profile)| Some((batch, working(profile)?)));
        let points: Vec<Point> = with_peak
            .iter()
            .map(|&(batch, peak, profile)| Point::new(batch as f64, with_working(profile).unwrap_or(peak).get()))
            .collect();
        if let Ok(line) = Line::non_negative(&points) {
            let (fixed, per_sample) = (Bytes::known(line.intercept), Bytes::known(line.slope));
            let states = states_of(fixed);
            let source = LineBasis::Peaks(points.len());
            return Some(Self { fixed, per_sample, other, working, source, peaks, states });
        }
        let &(batch, peak, profile) = largest?;
        let peak = with_working(profile).unwrap_or(peak);
        let states = fixed_part(profile).filter(|states| states.get() < peak.get());
        let (fixed, source) = match states {
            Some(states) => (states, LineBasis::Parameters),
            None => (Bytes::ZERO, LineBasis::Proportional),
        };
        let per_sample = peak.checked_sub(fixed)? * (1.0 / batch.max(1) as f64);
        Some(Self { fixed, per_sample, other, working, source, peaks, states: states_of(fixed) })
    }

    /// Fits upper estimates at two batch sizes.
    pub(crate) fn at_most(points: [(u64, Bytes); 2]) -> Option<Self> {
        let line = Line::non_negative(&points.map(|(batch, most)| Point::new(batch as f64, most.get()))).ok()?;
        let (fixed, per_sample) = (Bytes::known(line.intercept), Bytes::known(line.slope));
        let (source, peaks) = (LineBasis::AtMost, MemorySource::Computed);
        Some(Self { fixed, per_sample, other: None, working: None, source, peaks, states: None })
    }

    /// The most that the step needs in the numbers that it is predicted in.
    pub(crate) fn changed(&self, change: Option<&Change>, workload: &Workload) -> Self {
        let resized = change.and_then(|change| change.resized(workload));
        resized.map_or(*self, |by| self.scaled(by.states[1], by.rest[1]).with(by.copies))
    }

    /// The line with the state scaled by `states` and everything else by `rest`.
    pub(super) fn scaled(&self, states: f64, rest: f64) -> Self {
        // A fixed part that is not known to be state may scale by either factor.
        let of_state = self.states.map_or(Bytes::ZERO, |states| states.total()).min(self.fixed);
        let beside = self.fixed.checked_sub(of_state).unwrap_or_default();
        let unsure = farther(states, rest);
        Self {
            fixed: of_state * states + beside * unsure,
            per_sample: self.per_sample * rest,
            other: self.other.map(|[fixed, per_sample]| [fixed * unsure, per_sample * rest]),
            working: self.working.map(|(batch, working)| (batch, times(working, states, rest, rest))),
            states: self.states.map(|kept| kept.times(states)),
            ..*self
        }
    }

    /// The line with `more` added at every batch size.
    pub(super) fn with(&self, more: Bytes) -> Self {
        Self {
            fixed: self.fixed + more,
            other: self.other.map(|[fixed, per_sample]| [fixed + more, per_sample]),
            ..*self
        }
    }

    /// The peak of the tensors at a batch size.
    pub(crate) fn peak(&self, batch: u64) -> Bytes {
        let at = |[fixed, per_sample]: [Bytes; 2]| fixed + per_sample * batch as f64;
        let own = at([self.fixed, self.per_sample]);
        self.other.map_or(own, |other| own.max(at(other)))
    }

    /// Whether the part that grows with the batch is known separately.
    pub(super) fn is_split(&self) -> bool {
        matches!(self.source, LineBasis::Peaks(_) | LineBasis::Parameters)
    }

    /// Whether it is an upper bound: a step within it fits, a step above it may still fit.
    pub fn is_upper_bound(&self) -> bool {
        self.source == LineBasis::AtMost
    }

    /// Whether it uses peaks computed from shapes.
    pub fn is_computed(&self) -> bool {
        self.peaks == MemorySource::Computed
    }

    /// Note on the line, which is in the recorded precision also if predictions are `converted`.
    pub fn note(&self, converted: bool) -> Finding {
        Finding::MemoryByBatch {
            fixed_bytes: self.fixed,
            per_sample_bytes: self.per_sample,
            least_bytes: self.other,
            basis: self.source,
            peaks: self.peaks,
            converted,
        }
    }

    /// Memory need at a batch size.
    pub(crate) fn need(&self, batch: u64) -> MemoryNeed {
        let peak = self.peak(batch);
        let unknown = MemoryNeed {
            line: Some(*self).filter(Self::is_split),
            states: self.states,
            working: self.working.map(|(of, working)| working * (batch as f64 / of.max(1) as f64)),
            ..MemoryNeed::unseen(None, None)
        };
        match self.source {
            LineBasis::AtMost => MemoryNeed { most: Some(peak), ..unknown },
            LineBasis::Peaks(_) => {
                MemoryNeed { peak: Some(peak), source: PeakSource::Interpolated(self.peaks), ..unknown }
            }
            LineBasis::Parameters | LineBasis::Proportional => {
                MemoryNeed { peak: Some(peak), source: PeakSource::Scaled(self.peaks), ..unknown }
            }
        }
    }

    /// Largest batch that fits on a GPU, 0 if not even one sample does; `None` if memory does not grow with the batch, or
    /// if one sample may need less than the line says.
    pub(crate) fn largest(&self, rates: &Rates<'_>) -> Option<u64> {
        let all = (rates.usable_memory.value.get() - process(rates.gpu).get()) / RESERVED;
        let most = |[fixed, per_sample]: [Bytes; 2]| ((all - fixed.get()) / per_sample.get()).floor();
        let own = most([self.fixed, self.per_sample]);
        let batch = self.other.map_or(own, |other| own.min(most(other)));
        (batch.is_finite() && (batch >= 1.0 || !self.is_upper_bound())).then_some(batch.max(0.0) as u64)
    }
}

/// Need at the moment of forward and backward that takes most memory beside the state.
fn with_working(profile: &Profile) -> Option<Bytes> {
    let memory = profile.step.as_ref()?.memory.as_ref()?;
    let working = memory.working?;
    Some(memory.parameters + memory.optimizer_state + working.gradients + working.growing())
}

/// The peak if it is at another moment. In the update, which keeps few activations, it does not grow with the batch.
fn other_moment(batch: u64, peak: Bytes, profile: &Profile) -> Option<[Bytes; 2]> {
    let memory = profile.step.as_ref()?.memory.as_ref()?;
    let working = memory.working?;
    with_working(profile).filter(|with_working| with_working.get() < peak.get() * (1.0 - 1e-6))?;
    if memory.activations.get() < UPDATE_KEEPS * working.activations.get() {
        return Some([peak, Bytes::ZERO]);
    }
    let fixed = memory.parameters + memory.optimizer_state + memory.gradients;
    Some([fixed, peak.checked_sub(fixed)? * (1.0 / batch.max(1) as f64)])
}

/// Memory that does not grow with the batch: by kind if recorded, otherwise estimated for the detected optimizer, or
/// Adam.
fn fixed_part(profile: &Profile) -> Option<Bytes> {
    let told = profile.step.as_ref().and_then(|step| step.memory.as_ref());
    if let Some(memory) = told.filter(|memory| memory.parameters.get() > 0.0) {
        let gradients = memory.working.map_or(memory.gradients, |working| working.gradients);
        return Some(memory.parameters + memory.optimizer_state + gradients);
    }
    states(profile).usual
}
