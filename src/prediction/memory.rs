//! Decides whether a step fits in a GPU's memory.
//!
//! A peak decides, recorded on a device or computed from shapes; the reason names its source. Without one, two answers
//! are certain: a step that ran on the origin fits on GPUs with at least as much memory, and it does not fit if
//! parameters, gradients and optimizer state alone are too large (`memory/states.rs`). Otherwise it fits if an upper
//! estimate from shapes does, with all forward results kept to the end.

mod basis;
mod fit;
mod line;
mod share;
mod states;

use habitat_base::units::Bytes;
use habitat_step::catalog::{GpuSpec, Vendor};
use habitat_step::profile::{DType, MemorySource, Mode, Operation, Phase, Profile, Working, Workload};

use super::precision::{Change, Resized};
use super::rate::Rates;
use super::sharding::ModelStates;
use habitat_step::op::{Family, family, volume};

pub use basis::{Division, Fits, GpuMemory, MemoryBasis, PeakSource, Stage, StateKept};
pub use fit::MemoryFit;
pub use line::MemoryLine;
pub use share::{Activations, Share};
use states::states;

/// Activations below this share of temporary memory mean that the peak is in the update (a choice).
const UPDATE_SHARE: f64 = 0.01;
/// Memory of a process beside its tensors, as `nvidia-smi` shows it: CUDA's context, loaded kernels, workspaces of
/// cuBLAS and cuDNN. On H100 milabench's runs show 1.2 to 1.5 GB more than the allocator takes, on L40S 0.6 to 1.4
/// (`habitat-lab evaluate hosts`).
const CONTEXT_BYTES: f64 = 1.4e9;
/// Further memory of `ROCm`'s context, hipBLASLt and `MIOpen`: 0.8 to 1.3 GB on an MI325X against an H100 in the same
/// runs of BERT and ResNet-152. `MIOpen`'s workspaces for ResNet-50 take many times as much.
const ROCM_BYTES: f64 = 1.1e9;
/// Memory that the caching allocator takes from the driver relative to the tensors' at their peak: it takes whole
/// segments (2 or 20 MiB, or multiples of 2), and free blocks that it keeps may be too small for later tensors. BERT
/// and ResNet-152 in milabench show memory within 10 % of that, but for the largest batches on AMD (`habitat-lab
/// evaluate hosts`).
const RESERVED: f64 = 1.1;

/// Memory of a process beside its tensors on a GPU.
fn process(gpu: &GpuSpec) -> Bytes {
    Bytes::known(CONTEXT_BYTES + if gpu.vendor == Vendor::Amd { ROCM_BYTES } else { 0.0 })
}

/// Whether tensors fit in `usable` memory: with the allocator's usual reserve they do. Before it gives up, the allocator
/// returns its free blocks to the driver (`PyTorch`'s notes on CUDA semantics, "Memory management"), so they do not if they
/// are too large without a reserve. Between the two it is not known.
fn verdict(tensors: Bytes, process: Bytes, usable: Bytes) -> Fits {
    if shown(tensors, process).get() <= usable.get() {
        Fits::Yes
    } else if (tensors + process).get() > usable.get() {
        Fits::No
    } else {
        Fits::Unknown
    }
}

/// Memory that the driver shows for tensors in a process.
fn shown(tensors: Bytes, process: Bytes) -> Bytes {
    tensors * RESERVED + process
}

/// Memory need of a profile's step, computed once for all GPUs: that of its tensors, without the allocator's reserve
/// and the process.
#[derive(Debug, Clone)]
pub struct MemoryNeed {
    /// Peak, if known.
    peak: Option<Bytes>,
    /// Source of the peak.
    source: PeakSource,
    /// Minimum, which the allocator may hold without a reserve.
    least: Option<Bytes>,
    /// Content of the minimum.
    least_of: StateKept,
    /// Upper estimate from shapes.
    most: Option<Bytes>,
    ran_on: Option<(String, Bytes)>,
    /// Whether it is the need of a step that was recorded in narrower numbers.
    widened: bool,
    /// The least need of a step that is predicted in narrower or wider numbers than it was recorded in;
    /// the other fields are then the most that it needs.
    narrowest: Option<Box<Self>>,
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
        let states = states(profile);
        let batch = profile.workload.batch_size.filter(|batch| *batch > 0);
        let peak = profile.step.as_ref().and_then(|step| step.peak_memory_bytes);
        Self {
            peak,
            source: PeakSource::Step(source_of(profile)),
            least: states.least,
            least_of: states.kept,
            most: states
                .most
                .zip(activations(&profile.operations, training))
                .map(|(states, activations)| states + activations),
            ran_on: origin.map(|gpu| (gpu.name.clone(), gpu.memory)),
            widened: false,
            narrowest: None,
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
            peak,
            source: PeakSource::Step(MemorySource::Recorded),
            least: None,
            least_of: StateKept::Parameters,
            most: None,
            ran_on: origin.map(|gpu| (gpu.name.clone(), gpu.memory)),
            widened: false,
            narrowest: None,
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
    /// weights, the lower end the narrowest. That the step ran on the recording GPU does not show that wider numbers
    /// fit.
    fn resized(&self, by: Resized) -> Self {
        let Resized { states, rest, temporary, copies } = by;
        let is_wider = states[1] > 1.0 || rest[1] > 1.0;
        let ran_on = self.ran_on.clone().filter(|_| !is_wider);
        let narrowest = Self { ran_on: ran_on.clone(), ..self.scaled(states[0], rest[0], temporary[0]) };
        let widest = self.scaled(states[1], rest[1], temporary[1]);
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

    /// The same need with the state scaled by `states`, known temporary memory by `temporary` and everything else by
    /// `rest`.
    fn scaled(&self, states: f64, rest: f64, temporary: f64) -> Self {
        // Without the state's size, the need may scale by either factor.
        let either = farther(states, rest);
        let peak = |peak: Bytes| match &self.states {
            Some(kept) => {
                let beside = peak.checked_sub(kept.total()).unwrap_or_default();
                let apart = self.working.map_or(Bytes::ZERO, |working| working.temporary.min(beside));
                beside.checked_sub(apart).unwrap_or_default() * rest + apart * temporary + kept.total() * states
            }
            None => peak * either,
        };
        Self {
            peak: self.peak.map(peak),
            least: self.least.map(|bytes| bytes * states),
            most: self.most.map(|bytes| bytes * either),
            states: self.states.map(|kept| kept.times(states)),
            activations: self
                .activations
                .map(|Activations { least, most }| Activations { least: least * rest, most: most * rest }),
            working: self.working.map(|working| times(working, states, rest, temporary)),
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
        let process = process(gpu);
        let [peak, most] = [self.peak, self.most].map(|tensors| tensors.map(|tensors| shown(tensors, process)));
        // A peak is both ends.
        let at_most = peak.or(most);
        let (states, activations) = (self.states, self.activations);
        let largest_batch = |fits| self.line.filter(|_| fits != Fits::Yes).and_then(|line| line.largest(rates));
        let answer = |fits, needed, basis| MemoryFit {
            fits,
            needed,
            process,
            allocated: self.peak.filter(|_| self.narrowest.is_none()),
            at_most,
            usable,
            basis,
            largest_batch: None,
            states,
            activations,
            working: self.working,
            narrowest: None,
        };
        let of = GpuMemory { usable, nominal: gpu.memory };
        if let (Some(most), Some(narrowest)) = (peak, &self.narrowest) {
            let at_least = narrowest.fit(rates);
            let least = at_least.needed.unwrap_or(most);
            let fits = match at_least.fits {
                _ if most.get() <= usable.get() => Fits::Yes,
                Fits::No => Fits::No,
                Fits::Yes | Fits::Unknown => Fits::Unknown,
            };
            let (source, from_narrower) = (self.source.of(), self.widened);
            let basis = MemoryBasis::OtherPrecision { fits, least, most, source, from_narrower, of };
            let (largest_batch, narrowest) = (largest_batch(fits), Some(Box::new(at_least)));
            return MemoryFit { largest_batch, narrowest, ..answer(fits, Some(least), basis) };
        }
        if let Some((needed, allocated)) = peak.zip(self.peak) {
            let fits = verdict(allocated, process, usable);
            let (source, vendor) = (self.source, gpu.vendor);
            let basis = MemoryBasis::Peak { fits, needed, allocated, source, vendor, of };
            return MemoryFit { largest_batch: largest_batch(fits), ..answer(fits, Some(needed), basis) };
        }
        if let Some((name, memory)) = self.ran_on.clone().filter(|(_, memory)| gpu.memory.get() >= memory.get()) {
            return answer(Fits::Yes, None, MemoryBasis::RanOn { gpu: name, memory });
        }
        if let Some(needed) = self.least.map(|least| least + process)
            && needed.get() > usable.get()
        {
            return answer(Fits::No, Some(needed), MemoryBasis::State { kept: self.least_of, needed, of });
        }
        let Some(most) = most else { return answer(Fits::Unknown, None, MemoryBasis::Unknown) };
        let is_enough = most.get() <= usable.get();
        let basis = MemoryBasis::Shapes { is_enough, most, of };
        if is_enough { answer(Fits::Yes, Some(most), basis) } else { answer(Fits::Unknown, None, basis) }
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

/// A peak beside the state with gradients scaled by `states`, activations by `rest` and temporary memory by `apart`.
fn times(Working { gradients, activations, temporary }: Working, states: f64, rest: f64, apart: f64) -> Working {
    Working { gradients: gradients * states, activations: activations * rest, temporary: temporary * apart }
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
