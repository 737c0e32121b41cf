//! Decides whether a step fits in a GPU's memory.
//!
//! A peak decides, recorded on a device or computed from shapes; the reason names its source. Without one, two answers
//! are certain: a step that ran on the origin fits on GPUs with at least as much memory, and it does not fit if
//! parameters, gradients and optimizer state alone are too large (`memory/states.rs`). Otherwise it fits if an upper
//! estimate from shapes does, with all forward results kept to the end.

mod fit;
mod line;
mod states;

use habitat_base::units::{Bytes, GIB};
use habitat_step::catalog::GpuSpec;
use habitat_step::profile::{DType, MemorySource, Mode, Operation, Phase, Profile, Working, Workload};

use super::precision::{Change, Resized};
use super::rate::Rates;
use super::sharding::ModelStates;
use habitat_step::op::{Family, family, volume};

pub use fit::{Activations, Fits, MemoryFit, Share};
pub use line::MemoryLine;
use states::states;

/// Activations below this share of temporary memory mean that the peak is in the update.
const UPDATE_SHARE: f64 = 0.01;
/// Memory of context, libraries and workspaces of a process.
const CONTEXT_BYTES: f64 = 1e9;

/// Memory need of a profile's step, computed once for all GPUs.
#[derive(Debug, Clone)]
pub struct MemoryNeed {
    peak: Option<Bytes>,
    /// Source of the peak.
    source: MemorySource,
    least: Option<Bytes>,
    /// Content of the minimum, in words.
    least_of: &'static str,
    most: Option<Bytes>,
    ran_on: Option<(String, Bytes)>,
    /// Whether it is the need of a step that was recorded in narrower numbers.
    widened: bool,
    /// The least need of a step that is predicted in narrower or wider numbers than it was recorded in;
    /// the other fields are then the most that it needs.
    narrowest: Option<Box<Self>>,
    /// Source of the peak in words, if it is from a line over batch sizes.
    by_line: Option<&'static str>,
    /// Growth of the peak with the batch, if known.
    line: Option<MemoryLine>,
    /// Memory that does not grow with the batch and can be divided among GPUs, if known.
    states: Option<ModelStates>,
    /// Activations that the forward pass keeps, if kinds of memory were recorded.
    activations: Option<Activations>,
    /// Peak of forward and backward beside the state, if recorded.
    working: Option<Working>,
}

impl MemoryNeed {
    /// Derives the need from the recorded peak, the parameter count, the shapes and the origin.
    pub(crate) fn of(profile: &Profile, origin: Option<&GpuSpec>) -> Self {
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

    /// Upper estimate from shapes, if available.
    pub(crate) const fn most(&self) -> Option<Bytes> {
        self.most
    }

    /// Need of a step without operations: its peak if known, and the GPU that it ran on.
    pub(crate) fn unseen(peak: Option<Bytes>, origin: Option<&GpuSpec>) -> Self {
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

    /// Memory need in narrower or wider numbers: the upper end has the widest numbers throughout and copies of the
    /// weights, the lower end the narrowest. The recording GPU is not evidence for wider numbers.
    fn resized(&self, by: Resized) -> Self {
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
        let either = farther(states, rest);
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
            working: self.working.map(|working| times(working, states, rest)),
            line: self.line.map(|line| line.scaled(states, rest)),
            ..self.clone()
        }
    }

    /// Whether a peak is known.
    pub(crate) const fn has_peak(&self) -> bool {
        self.peak.is_some()
    }

    /// Decides for one GPU, with the reason.
    pub(crate) fn fit(&self, rates: &Rates<'_>) -> MemoryFit {
        let (usable, gpu) = (rates.usable_memory.value, rates.gpu);
        // A peak is both ends.
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
        let available = format!("{} of {} GB usable", gib(usable), gib(gpu.memory));
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
            let recorded = if self.widened { "in a narrower precision" } else { "in a wider precision" };
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
                format!("at least as much memory as the recording GPU ({name}, {} GB)", gib(*memory)),
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
                format!("no recorded peak; up to {} GB estimated from shapes; {available}", gib(most)),
            ),
            None => answer(
                Fits::Unknown,
                None,
                "no recorded peak, and too few shapes or parameters to estimate one".to_owned(),
            ),
        }
    }
}

/// Drops states that exceed the whole peak.
fn within(states: Option<ModelStates>, peak: Option<Bytes>) -> Option<ModelStates> {
    states.filter(|states| peak.is_none_or(|peak| states.total().get() < peak.get()))
}

/// The factor that changes more, for bytes that may be state or not.
fn farther(states: f64, rest: f64) -> f64 {
    if states < 1.0 || rest < 1.0 { states.min(rest) } else { states.max(rest) }
}

/// A peak beside the state with gradients scaled by `states` and everything else by `rest`.
fn times(Working { gradients, activations, temporary }: Working, states: f64, rest: f64) -> Working {
    Working { gradients: gradients * states, activations: activations * rest, temporary: temporary * rest }
}

fn working(profile: &Profile) -> Option<Working> {
    profile.step.as_ref()?.memory.as_ref()?.working
}

/// Activations that the forward pass keeps, from the kinds of memory at the peak. A peak in the update no longer
/// contains them. Their maximum is then the peak beside parameters and optimizer state, or everything that the forward
/// pass writes if that is less.
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

/// Source of a profile's peak.
fn source_of(profile: &Profile) -> MemorySource {
    let memory = profile.step.as_ref().and_then(|step| step.memory.as_ref());
    memory.map_or(MemorySource::Recorded, |memory| memory.source)
}

/// Adjective for the source of a peak.
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

/// Upper estimate of activations. In training: all results of forward operations, kept for backward, plus twice the
/// largest operation. In inference: twice the largest operation. `None` unless most operations that write have shapes.
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
