//! Does the step fit in a GPU's memory?
//!
//! A peak decides, recorded on a device or computed from shapes; the answer says which.
//! Without one, two certain answers are left: a step that ran on the origin fits wherever there
//! is at least as much memory, and parameters with their gradients and what the optimizer keeps
//! alone can be too large (`memory/states.rs`). Between them an upper estimate from shapes says yes where
//! everything the forward pass writes, kept to the end, would fit.

mod line;
mod states;

use crate::catalog::GpuSpec;
use crate::profile::{DType, MemorySource, Mode, Operation, Phase, Profile, Working, Workload};
use crate::units::{Bytes, GIB};

use super::estimate::{Fits, MemoryFit};
use super::precision::Change;
use super::rate::Rates;
use super::sharding::{Activations, ModelStates};
use crate::op::{Family, family, volume};

pub use line::MemoryLine;
use states::states;

/// Activations that are less than this part of what is temporary tell that the peak is in the update.
const UPDATE_SHARE: f64 = 0.01;
/// Context, libraries and workspaces of a process.
pub(super) const CONTEXT_BYTES: f64 = 1e9;

/// What a profile says of the memory of its step, worked out once for all GPUs.
#[derive(Debug, Clone)]
pub struct MemoryNeed {
    peak: Option<Bytes>,
    /// Where the peak is from.
    source: MemorySource,
    least: Option<Bytes>,
    /// What the least is of, in words.
    least_of: &'static str,
    most: Option<Bytes>,
    ran_on: Option<(String, Bytes)>,
    /// Whether it is the need of a step that was recorded in narrower numbers.
    widened: bool,
    /// The least need of a step that is predicted in narrower or wider numbers than it was recorded in;
    /// the other fields are then the most that it needs.
    narrowest: Option<Box<Self>>,
    /// Where the peak is from a line over batch sizes: in words.
    by_line: Option<&'static str>,
    /// How the peak grows with the batch, where that is known.
    line: Option<MemoryLine>,
    /// What does not grow with it and can be divided among GPUs, where that is known.
    states: Option<ModelStates>,
    /// What the forward pass keeps, where kinds of memory are told.
    activations: Option<Activations>,
    /// What forward and backward take at most beside the state, where that is told.
    working: Option<Working>,
}

/// What another width of its numbers makes of the memory of a step: at least and at most, in times of what was
/// recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resized {
    /// Parameters, gradients and optimizer state.
    pub states: [f64; 2],
    /// Activations and everything else.
    pub rest: [f64; 2],
    /// What copies of the weights in the other type take beside them, at most.
    pub copies: Bytes,
}

impl MemoryNeed {
    /// From the recorded peak, the parameter count, the shapes and the origin.
    pub fn of(profile: &Profile, origin: Option<&GpuSpec>) -> Self {
        let training = profile.workload.mode == Mode::Training;
        let context = Bytes::known(CONTEXT_BYTES);
        let states = states(profile);
        let batch = profile.workload.batch_size.filter(|batch| *batch > 0);
        let peak = profile.step.as_ref().and_then(|step| step.peak_memory_bytes);
        Self {
            peak: peak.map(|peak| peak + context),
            source: source_of(profile),
            least: states.least.map(|bytes| bytes + context),
            least_of: states.words,
            most: states
                .most
                .zip(activations(&profile.operations, training))
                .map(|(states, activations)| states + activations + context),
            ran_on: origin.map(|gpu| (gpu.name.clone(), gpu.memory)),
            widened: false,
            narrowest: None,
            by_line: None,
            line: batch.and_then(|batch| MemoryLine::of_profiles(&[(batch, profile)])).filter(MemoryLine::is_split),
            states: within(states::by_kind(profile), peak),
            activations: kept(profile),
            working: working(profile),
        }
    }

    /// The upper estimate from shapes, where there is one.
    pub const fn most(&self) -> Option<Bytes> {
        self.most
    }

    /// Of a step of which no operation is shown: the peak if it is told, and the GPU that it
    /// ran on.
    pub fn unseen(peak: Option<Bytes>, origin: Option<&GpuSpec>) -> Self {
        Self {
            peak: peak.map(|peak| peak + Bytes::known(CONTEXT_BYTES)),
            source: MemorySource::Recorded,
            least: None,
            least_of: "",
            most: None,
            ran_on: origin.map(|gpu| (gpu.name.clone(), gpu.memory)),
            widened: false,
            narrowest: None,
            by_line: None,
            line: None,
            states: None,
            activations: None,
            working: None,
        }
    }

    /// The need of a step in the numbers that it is predicted in.
    pub(super) fn changed(&self, change: Option<&Change>, workload: &Workload) -> Self {
        change.and_then(|change| change.resized(workload)).map_or_else(|| self.clone(), |by| self.resized(by))
    }

    /// The need of a step in narrower or wider numbers: at most the widest throughout and the copies of its
    /// weights, at least the narrowest. The GPU that it ran on is no evidence for wider numbers.
    #[must_use]
    pub fn resized(&self, by: Resized) -> Self {
        let Resized { states, rest, copies } = by;
        let is_wider = states[1] > 1.0 || rest[1] > 1.0;
        let ran_on = self.ran_on.clone().filter(|_| !is_wider);
        let narrowest = Self { ran_on: ran_on.clone(), ..self.scaled(states[0], rest[0]) };
        let widest = self.scaled(states[1], rest[1]);
        let with_copies = |kept: ModelStates| ModelStates { parameters: kept.parameters + copies, ..kept };
        Self {
            peak: widest.peak.map(|peak| peak + copies),
            most: widest.most.map(|most| most + copies),
            states: widest.states.map(with_copies),
            line: widest.line.map(|line| line.with(copies)),
            least: narrowest.least,
            ran_on,
            widened: is_wider,
            narrowest: Some(Box::new(narrowest)),
            ..widest
        }
    }

    /// The same need with the state scaled by `states` and everything else by `rest`, without the process's own memory.
    fn scaled(&self, states: f64, rest: f64) -> Self {
        let context = Bytes::known(CONTEXT_BYTES);
        // Without the state's size, the need may scale by either factor.
        let either = if states < 1.0 || rest < 1.0 { states.min(rest) } else { states.max(rest) };
        let all = |bytes: Bytes, times: f64| bytes.checked_sub(context).unwrap_or_default() * times + context;
        let peak = |peak: Bytes| match &self.states {
            Some(kept) => all(peak.checked_sub(kept.total()).unwrap_or_default(), rest) + kept.total() * states,
            None => all(peak, either),
        };
        Self {
            peak: self.peak.map(peak),
            least: self.least.map(|bytes| all(bytes, states)),
            most: self.most.map(|bytes| all(bytes, either)),
            states: self.states.map(|kept| kept.times(states)),
            activations: self
                .activations
                .map(|Activations { least, most }| Activations { least: least * rest, most: most * rest }),
            working: self.working.map(|working| Working {
                gradients: working.gradients * states,
                activations: working.activations * rest,
                temporary: working.temporary * rest,
            }),
            line: self.line.map(|line| line.scaled(states, rest)),
            ..self.clone()
        }
    }

    /// Whether a peak decides.
    pub const fn has_peak(&self) -> bool {
        self.peak.is_some()
    }

    /// The answer for one GPU, with its reason.
    pub fn fit(&self, rates: &Rates<'_>) -> MemoryFit {
        let (usable, gpu) = (rates.usable_memory.value, rates.gpu);
        // Of a peak both ends are known.
        let at_most = self.peak.or(self.most);
        let (states, activations) = (self.states, self.activations);
        let answer = |fits, needed, reason| MemoryFit {
            fits,
            needed,
            at_most,
            usable,
            reason,
            largest_batch: None,
            states,
            activations,
            working: self.working,
            narrowest: None,
        };
        let available = format!("{} GB of {} GB may be used", gib(usable), gib(gpu.memory));
        if let (Some(most), Some(narrowest)) = (self.peak, &self.narrowest) {
            let least = narrowest.fit(rates);
            let bytes = least.needed.unwrap_or(most);
            let (fits, word) = if most.get() <= usable.get() {
                (Fits::Yes, "needs")
            } else if bytes.get() > usable.get() {
                (Fits::No, "does not fit: needs")
            } else {
                (Fits::Unknown, "may fit: needs")
            };
            let source = self::word(self.source);
            let recorded = if self.widened { "in narrower numbers" } else { "in wider numbers" };
            let reason = format!("{word} {} to {} GB, {source} {recorded}; {available}", gib(bytes), gib(most));
            let smaller = self.line.filter(|_| fits == Fits::No);
            let largest_batch = smaller.and_then(|line| line.largest(rates));
            return MemoryFit { largest_batch, narrowest: Some(Box::new(least)), ..answer(fits, Some(bytes), reason) };
        }
        if let Some(needed) = self.peak {
            let (fits, word) =
                if needed.get() <= usable.get() { (Fits::Yes, "needs") } else { (Fits::No, "does not fit: needs") };
            let reason = format!(
                "{word} {} GB ({} and 1 GB for the process); {available}",
                gib(needed),
                self.by_line.unwrap_or_else(|| one_peak(self.source))
            );
            let smaller = self.line.filter(|_| fits == Fits::No);
            let largest_batch = smaller.and_then(|line| line.largest(rates));
            return MemoryFit { largest_batch, ..answer(fits, Some(needed), reason) };
        }
        if let Some((name, memory)) = &self.ran_on
            && gpu.memory.get() >= memory.get()
        {
            return answer(
                Fits::Yes,
                None,
                format!("same or more memory than the {name} it ran on, {} GB; no peak was recorded", gib(*memory)),
            );
        }
        if let Some(least) = self.least
            && least.get() > usable.get()
        {
            return answer(
                Fits::No,
                Some(least),
                format!("does not fit: {} alone need {} GB; {available}", self.least_of, gib(least)),
            );
        }
        match self.most {
            Some(most) if most.get() <= usable.get() => {
                answer(Fits::Yes, Some(most), format!("at most {} GB, estimated from shapes; {available}", gib(most)))
            }
            Some(most) => answer(
                Fits::Unknown,
                None,
                format!("no peak was recorded; up to {} GB by shapes; {available}", gib(most)),
            ),
            None => answer(
                Fits::Unknown,
                None,
                "no peak memory was recorded, and the shapes or the parameter count do not tell".to_owned(),
            ),
        }
    }
}

/// The states, unless they are more than the whole peak.
fn within(states: Option<ModelStates>, peak: Option<Bytes>) -> Option<ModelStates> {
    states.filter(|states| peak.is_none_or(|peak| states.total().get() < peak.get()))
}

fn working(profile: &Profile) -> Option<Working> {
    profile.step.as_ref()?.memory.as_ref()?.working
}

/// What the forward pass keeps, by the kinds told of the peak. In the update nothing is kept any more, and the
/// peak tells only that no more than it holds beside parameters and optimizer state was kept before
/// there were gradients, nor more than the forward pass writes.
fn kept(profile: &Profile) -> Option<Activations> {
    let memory = profile.step.as_ref()?.memory.as_ref()?;
    if let Some(working) = &memory.working {
        return Some(Activations { least: working.activations, most: working.activations });
    }
    let least = memory.activations;
    if least.get() >= memory.temporary.get() * UPDATE_SHARE {
        return Some(Activations { least, most: least });
    }
    let beside = memory.gradients + memory.temporary + memory.activations;
    let written = activations(&profile.operations, profile.workload.mode == Mode::Training);
    Some(Activations { least, most: written.map_or(beside, |written| written.min(beside)) })
}

/// Where the peak of a profile is from.
fn source_of(profile: &Profile) -> MemorySource {
    let memory = profile.step.as_ref().and_then(|step| step.memory.as_ref());
    memory.map_or(MemorySource::Recorded, |memory| memory.source)
}

/// How a peak came about.
const fn word(source: MemorySource) -> &'static str {
    match source {
        MemorySource::Recorded => "recorded",
        MemorySource::Computed => "computed",
    }
}

const fn one_peak(source: MemorySource) -> &'static str {
    match source {
        MemorySource::Recorded => "recorded peak",
        MemorySource::Computed => "peak computed from shapes, not checked on a GPU,",
    }
}

fn gib(bytes: Bytes) -> String {
    format!("{:.1}", bytes.get() / GIB)
}

/// In training, everything that forward operations write, kept for backward, and the
/// largest operation of backward twice over; in inference the largest operation. `None`
/// unless shapes are known for most of the operations that write something.
fn activations(operations: &[Operation], training: bool) -> Option<Bytes> {
    let writing =
        || operations.iter().filter(|operation| !matches!(family(operation), Family::View | Family::Communication));
    let with_shapes = writing().filter(|operation| !operation.inputs.is_empty()).count();
    if with_shapes * 10 < writing().count() * 9 {
        return None;
    }
    let element = |operation: &Operation| operation.dtype.as_ref().and_then(DType::size_bytes).unwrap_or(4) as f64;
    let written = |operation: &Operation| {
        let largest_input = operation.inputs.iter().map(volume).fold(0.0, f64::max);
        let outputs: f64 = operation.outputs.iter().map(volume).sum();
        (if operation.outputs.is_empty() { largest_input } else { outputs }) * element(operation)
    };
    let moved = |operation: &Operation| {
        operation.inputs.iter().map(volume).sum::<f64>() * element(operation) + written(operation)
    };
    let largest = writing().map(moved).fold(0.0, f64::max);
    let kept: f64 = if training {
        writing()
            .filter(|operation| operation.phase == Phase::Forward)
            .map(|operation| written(operation) * f64::from(operation.count))
            .sum()
    } else {
        0.0
    };
    Bytes::checked(kept + 2.0 * largest)
}

#[cfg(test)]
mod tests;
