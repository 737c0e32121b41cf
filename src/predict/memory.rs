//! Does the step fit in a GPU's memory?
//!
//! A peak decides, recorded on a device or computed from shapes; the answer says which.
//! Without one, two certain answers are left: a step that ran on
//! the origin fits wherever there is at least as much memory, and parameters with their
//! gradients alone can be too large. Between them an upper estimate from shapes says yes
//! where everything the forward pass writes, kept to the end, would fit.

use std::fmt;

use crate::catalog::GpuSpec;
use crate::profile::{DType, MemorySource, Mode, Operation, Phase, Profile};
use crate::regress::line::{Line, Point};
use crate::units::{Bytes, GIB};

use super::estimate::{Fits, MemoryFit};
use super::rate::Rates;
use crate::op::{Family, family, volume};

/// Context, libraries and workspaces of a process.
const CONTEXT_BYTES: f64 = 1e9;
/// Parameter, gradient and two moments of Adam in FP32; with mixed precision the same sum
/// (`ZeRO` paper, section 3.1: 16 bytes a parameter).
const TRAINING_BYTES_PER_PARAMETER: f64 = 16.0;
/// Parameter and gradient in 16 bits: no training needs less.
const LEAST_TRAINING_BYTES_PER_PARAMETER: f64 = 4.0;

/// What a profile says of the memory of its step, worked out once for all GPUs.
#[derive(Debug, Clone)]
pub struct MemoryNeed {
    peak: Option<Bytes>,
    /// Where the peak is from.
    source: MemorySource,
    least: Option<Bytes>,
    most: Option<Bytes>,
    ran_on: Option<(String, Bytes)>,
    /// Tensors may be twice as large as recorded.
    widened: bool,
    /// Where the peak is from a line over batch sizes: in words.
    by_line: Option<&'static str>,
}

impl MemoryNeed {
    /// From the recorded peak, the parameter count, the shapes and the origin.
    pub fn of(profile: &Profile, origin: Option<&GpuSpec>) -> Self {
        let training = profile.workload.mode == Mode::Training;
        let parameters = profile.workload.parameter_count.map(|count| count as f64);
        let context = Bytes::known(CONTEXT_BYTES);
        let per_parameter = |bytes: f64| parameters.map(|count| Bytes::known(count * bytes));
        Self {
            peak: profile.step.as_ref().and_then(|step| step.peak_memory_bytes).map(|peak| peak + context),
            source: source_of(profile),
            least: if training {
                per_parameter(LEAST_TRAINING_BYTES_PER_PARAMETER).map(|bytes| bytes + context)
            } else {
                None
            },
            most: per_parameter(if training { TRAINING_BYTES_PER_PARAMETER } else { 4.0 })
                .zip(activations(&profile.operations, training))
                .map(|(states, activations)| states + activations + context),
            ran_on: origin.map(|gpu| (gpu.name.clone(), gpu.memory)),
            widened: false,
            by_line: None,
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
            most: None,
            ran_on: origin.map(|gpu| (gpu.name.clone(), gpu.memory)),
            widened: false,
            by_line: None,
        }
    }

    /// The need in 32 bits of a step that was recorded in 16: at most twice as much, and
    /// nothing is said by where it ran.
    #[must_use]
    pub fn in_32_bits(&self) -> Self {
        Self { most: self.most.map(|most| most * 2.0), ran_on: None, widened: true, ..self.clone() }
    }

    /// The answer for one GPU, with its reason.
    pub fn fit(&self, rates: &Rates<'_>) -> MemoryFit {
        let (usable, gpu) = (rates.usable_memory.value, rates.gpu);
        let answer = |fits, needed, reason| MemoryFit { fits, needed, usable, reason };
        let available = format!("{} GB of {} GB may be used", gib(usable), gib(gpu.memory));
        if let Some(needed) = self.peak.filter(|_| self.widened) {
            let most = needed * 2.0;
            let (fits, limit) = if most.get() <= usable.get() {
                (Fits::Yes, "at most")
            } else if needed.get() > usable.get() {
                (Fits::No, "does not fit: may need up to")
            } else {
                (Fits::Unknown, "may need up to")
            };
            return answer(
                fits,
                None,
                format!("{limit} {} GB, twice what was {} in 16 bits; {available}", gib(most), word(self.source)),
            );
        }
        if let Some(needed) = self.peak {
            let (fits, word) =
                if needed.get() <= usable.get() { (Fits::Yes, "needs") } else { (Fits::No, "does not fit: needs") };
            return answer(
                fits,
                Some(needed),
                format!(
                    "{word} {} GB ({} and 1 GB for the process); {available}",
                    gib(needed),
                    self.by_line.unwrap_or_else(|| one_peak(self.source))
                ),
            );
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
                format!("does not fit: parameters and gradients alone need {} GB; {available}", gib(least)),
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

/// Peak memory over the batch size: a fixed part (parameters, their gradients and states) and
/// one a sample (activations).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryLine {
    /// At no sample.
    pub fixed: Bytes,
    /// A sample.
    pub per_sample: Bytes,
    source: Source,
    /// Where the peaks are from.
    peaks: MemorySource,
}

/// Where a memory line is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// So many peaks.
    Peaks(usize),
    /// One peak; the parameters' part is known.
    Parameters,
    /// One peak; all of it is taken to grow.
    Proportional,
    /// Upper estimates from shapes.
    AtMost,
}

impl MemoryLine {
    /// Through the peaks of profiles by batch size; from one alone with what its parameters
    /// take as the fixed part (as it says itself, else 16 bytes each in training), or with
    /// none. `None` without a peak.
    pub fn of_profiles(profiles: &[(u64, &Profile)]) -> Option<Self> {
        let with_peak: Vec<(u64, Bytes, &Profile)> = profiles
            .iter()
            .filter_map(|(batch, profile)| Some((*batch, profile.step.as_ref()?.peak_memory_bytes?, *profile)))
            .collect();
        let computed = with_peak.iter().any(|(.., profile)| source_of(profile) == MemorySource::Computed);
        let peaks = if computed { MemorySource::Computed } else { MemorySource::Recorded };
        let points: Vec<Point> =
            with_peak.iter().map(|&(batch, peak, _)| Point::new(batch as f64, peak.get())).collect();
        if let Ok(line) = Line::non_negative(&points) {
            let (fixed, per_sample) = (Bytes::known(line.intercept), Bytes::known(line.slope));
            return Some(Self { fixed, per_sample, source: Source::Peaks(points.len()), peaks });
        }
        let &(batch, peak, profile) = with_peak.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let states = fixed_part(profile).filter(|states| states.get() < peak.get());
        let (fixed, source) = match states {
            Some(states) => (states, Source::Parameters),
            None => (Bytes::ZERO, Source::Proportional),
        };
        Some(Self { fixed, per_sample: peak.checked_sub(fixed)? * (1.0 / batch.max(1) as f64), source, peaks })
    }

    /// Through upper estimates (context of the process included) at two batch sizes.
    pub fn at_most(points: [(u64, Bytes); 2]) -> Option<Self> {
        let context = Bytes::known(CONTEXT_BYTES);
        let above = |most: Bytes| most.checked_sub(context).unwrap_or_default().get();
        let line = Line::non_negative(&points.map(|(batch, most)| Point::new(batch as f64, above(most)))).ok()?;
        let (fixed, per_sample) = (Bytes::known(line.intercept), Bytes::known(line.slope));
        Some(Self { fixed, per_sample, source: Source::AtMost, peaks: MemorySource::Computed })
    }

    /// The peak at a batch size, without the context of the process.
    pub fn peak(&self, batch: u64) -> Bytes {
        self.fixed + self.per_sample * batch as f64
    }

    /// Whether it is an upper bound: what fits by it fits, what does not may.
    pub fn is_upper_bound(&self) -> bool {
        self.source == Source::AtMost
    }

    /// Whether it rests on shapes and not on recorded peaks alone.
    pub fn is_computed(&self) -> bool {
        self.peaks == MemorySource::Computed
    }

    /// The peak and the context of the process.
    pub fn with_context(&self, batch: u64) -> Bytes {
        self.peak(batch) + Bytes::known(CONTEXT_BYTES)
    }

    /// The need at a batch size.
    pub fn need(&self, batch: u64) -> MemoryNeed {
        let with_context = self.with_context(batch);
        let unknown = MemoryNeed::unseen(None, None);
        match self.source {
            Source::AtMost => MemoryNeed { most: Some(with_context), ..unknown },
            Source::Peaks(_) => MemoryNeed {
                peak: Some(with_context),
                by_line: Some(match self.peaks {
                    MemorySource::Recorded => "line through recorded peaks",
                    MemorySource::Computed => "line through peaks computed from shapes, not checked on a GPU,",
                }),
                ..unknown
            },
            Source::Parameters | Source::Proportional => MemoryNeed {
                peak: Some(with_context),
                by_line: Some(match self.peaks {
                    MemorySource::Recorded => "recorded peak scaled",
                    MemorySource::Computed => "peak computed from shapes, scaled",
                }),
                ..unknown
            },
        }
    }

    /// The largest batch that fits on a GPU; `None` where not even one sample does, or where
    /// memory does not grow with the batch.
    pub fn largest(&self, rates: &Rates<'_>) -> Option<u64> {
        let left = rates.usable_memory.value.get() - CONTEXT_BYTES - self.fixed.get();
        let batch = (left / self.per_sample.get()).floor();
        (batch.is_finite() && batch >= 1.0).then_some(batch as u64)
    }
}

impl fmt::Display for MemoryLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = format!("{} + {} a sample", self.fixed, self.per_sample);
        match self.source {
            Source::Peaks(count) => match self.peaks {
                MemorySource::Recorded => write!(f, "memory: {line}, a line through {count} recorded peaks"),
                MemorySource::Computed => {
                    write!(f, "memory: {line}, a line through {count} peaks computed from shapes, not checked on a GPU")
                }
            },
            Source::Parameters => write!(
                f,
                "memory: {line}, from one {} peak: what is beyond the parameters (with gradients and states) is taken to grow with the batch",
                word(self.peaks)
            ),
            Source::Proportional => {
                let word = word(self.peaks);
                write!(f, "memory: {line}, from one {word} peak, all of it taken to grow with the batch")
            }
            Source::AtMost => write!(f, "memory: at most {line}, by shapes; no peak was recorded"),
        }
    }
}

/// What does not grow with the batch: by kind where the profile tells, else 16 bytes a
/// parameter in training and 4 in inference.
fn fixed_part(profile: &Profile) -> Option<Bytes> {
    let told = profile.step.as_ref().and_then(|step| step.memory.as_ref());
    if let Some(memory) = told.filter(|memory| memory.parameters.get() > 0.0) {
        return Some(memory.parameters + memory.optimizer_state + memory.gradients);
    }
    let bytes = if profile.workload.mode == Mode::Training { TRAINING_BYTES_PER_PARAMETER } else { 4.0 };
    profile.workload.parameter_count.map(|count| Bytes::known(count as f64 * bytes))
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
mod tests {
    use super::*;
    use crate::catalog::Layer;
    use crate::profile::{Memory, Step, Workload};

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    fn profile(peak_gib: Option<f64>, parameters: Option<u64>) -> Profile {
        let json = r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"},
            "operations": [{"name": "aten::relu", "phase": "forward", "inputs": [[268435456]], "outputs": [[268435456]], "dtype": "float32"}]}"#;
        let mut profile = Profile::from_json(json.as_bytes()).unwrap().0;
        profile.workload = Workload { parameter_count: parameters, ..profile.workload };
        profile.step = Some(Step { peak_memory_bytes: peak_gib.map(|gib| Bytes::known(gib * GIB)), ..Step::default() });
        profile
    }

    fn fits(profile: &Profile, origin: Option<&str>, gpu: &str) -> Fits {
        MemoryNeed::of(profile, origin.map(spec).as_ref()).fit(&(&spec(gpu)).into()).fits
    }

    #[test]
    fn a_recorded_peak_decides() {
        let twenty = profile(Some(20.0), None);
        assert_eq!(fits(&twenty, None, "t4"), Fits::No);
        assert_eq!(fits(&twenty, None, "a10"), Fits::Yes);
        // 92 % of 24 GB is 22.08 GB; 21.5 and the process do not fit.
        assert_eq!(fits(&profile(Some(21.5), None), None, "a10"), Fits::No);
    }

    #[test]
    fn what_ran_on_the_origin_runs_where_there_is_as_much_memory() {
        let unknown = profile(None, None);
        assert_eq!(fits(&unknown, Some("v100-sxm2-32gb"), "a100-sxm4-40gb"), Fits::Yes);
        assert_eq!(fits(&unknown, Some("v100-sxm2-32gb"), "t4"), Fits::Unknown);
    }

    #[test]
    fn parameters_and_shapes_bound_the_need() {
        // One forward tensor of 1 GiB, twice the largest operation, 1 GB and the states.
        assert_eq!(fits(&profile(None, Some(1_000_000)), None, "t4"), Fits::Yes);
        assert_eq!(fits(&profile(None, Some(1_000_000_000)), None, "t4"), Fits::Unknown);
        assert_eq!(fits(&profile(None, Some(70_000_000_000)), None, "h200-sxm-141gb"), Fits::No);
        assert_eq!(fits(&profile(None, None), None, "t4"), Fits::Unknown);
    }

    fn line(peaks: &[(u64, f64)], parameters: Option<u64>) -> Option<MemoryLine> {
        let profiles: Vec<(u64, Profile)> =
            peaks.iter().map(|&(batch, gib)| (batch, profile(Some(gib), parameters))).collect();
        let borrowed: Vec<(u64, &Profile)> = profiles.iter().map(|(batch, profile)| (*batch, profile)).collect();
        MemoryLine::of_profiles(&borrowed)
    }

    #[test]
    fn a_line_through_recorded_peaks() {
        let of = line(&[(16, 4.0), (32, 6.0), (64, 10.0)], None).unwrap();
        assert!((of.peak(128).get() / GIB - 18.0).abs() < 1e-9 && !of.is_upper_bound());
        // 14.72 of the T4's 16 GB, less the process (0.93) and 2 fixed, at 1/8 a sample.
        let gpu = spec("t4");
        let t4 = Rates::new(&gpu);
        assert_eq!(of.largest(&t4), Some(94));
        assert_eq!((of.need(94).fit(&t4).fits, of.need(95).fit(&t4).fits), (Fits::Yes, Fits::No));
        assert!(of.need(95).fit(&t4).reason.contains("line through recorded peaks"));
        // Peaks that fall say nothing of a sample, and so nothing of the largest batch.
        assert_eq!(line(&[(16, 6.0), (32, 4.0)], None).unwrap().largest(&t4), None);
    }

    #[test]
    fn one_peak_is_split_by_the_parameters() {
        // 16 bytes for each of 2^28 parameters are 4 GiB; the other 2 are of 16 samples.
        let known = line(&[(16, 6.0)], Some(1 << 28)).unwrap();
        assert!((known.peak(32).get() / GIB - 8.0).abs() < 1e-9);
        let unknown = line(&[(16, 6.0)], None).unwrap();
        assert!((unknown.peak(32).get() / GIB - 12.0).abs() < 1e-9);
        assert_eq!(line(&[], None), None);
    }

    #[test]
    fn computed_peaks_are_told_from_recorded_ones() {
        let computed = |gib: f64| {
            let mut profile = profile(Some(gib), None);
            let quarter = Bytes::known(gib * GIB / 4.0);
            profile.step.as_mut().unwrap().memory = Some(Memory {
                source: MemorySource::Computed,
                parameters: quarter,
                gradients: Bytes::ZERO,
                optimizer_state: quarter,
                activations: quarter,
                temporary: quarter,
            });
            profile
        };
        let (small, large, gpu) = (computed(4.0), computed(6.0), spec("t4"));
        let t4 = Rates::new(&gpu);
        let need = MemoryNeed::of(&small, None);
        assert!(need.fit(&t4).reason.contains("(peak computed from shapes, not checked on a GPU, and 1 GB"));
        assert!(need.in_32_bits().fit(&t4).reason.contains("twice what was computed in 16 bits"));
        let line = MemoryLine::of_profiles(&[(16, &small), (32, &large)]).unwrap();
        assert!(line.to_string().ends_with("a line through 2 peaks computed from shapes, not checked on a GPU"));
        assert!(line.need(64).fit(&t4).reason.contains("line through peaks computed from shapes"));
        // From one alone: parameters and states, as it says itself, do not grow.
        let one = MemoryLine::of_profiles(&[(16, &small)]).unwrap();
        assert!((one.peak(32).get() / GIB - 6.0).abs() < 1e-9, "{one}");
        assert!(one.to_string().contains("from one computed peak: what is beyond the parameters"));
        // A recorded one beside it does not make the line a recorded one.
        let mixed = MemoryLine::of_profiles(&[(16, &profile(Some(4.0), None)), (32, &large)]).unwrap();
        assert!(mixed.to_string().contains("computed"));
    }

    #[test]
    fn an_upper_bound_says_yes_or_nothing() {
        let of = |gib: f64| Bytes::known(gib * GIB + CONTEXT_BYTES);
        let line = MemoryLine::at_most([(16, of(4.0)), (32, of(6.0))]).unwrap();
        let gpu = spec("t4");
        let t4 = Rates::new(&gpu);
        assert_eq!(line.largest(&t4), Some(94));
        assert_eq!((line.need(94).fit(&t4).fits, line.need(95).fit(&t4).fits), (Fits::Yes, Fits::Unknown));
        assert_eq!(MemoryNeed::unseen(None, None).fit(&t4).fits, Fits::Unknown);
    }
}
