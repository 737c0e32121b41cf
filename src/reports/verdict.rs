//! Bottleneck of a running job or a recorded step: one sentence with its figures, and advice.
//!
//! | kind | condition |
//! | --- | --- |
//! | waiting for data | [`WAITING`] of the time of the last steps was spent in the `DataLoader` (for several ranks: of any rank), unless the recorded step shows a busy GPU ([`BUSY`]); or the GPU is idle [`IDLE`] of the recorded step, and the host loads data for most of that |
//! | a slow rank | the other ranks wait for it [`LATE`](ranks::LATE) of its step, or its steps are [`SLOW`](ranks::SLOW) times as long as the median |
//! | communication | collectives take [`EXCHANGING`] of the recorded step |
//! | CPU-bound | the GPU is idle [`IDLE`] of the recorded step |
//! | memory almost full | [`FULL`] of the GPU's memory is in use |
//! | GPU-bound | otherwise, if the step was recorded on a GPU |
//!
//! Reports the first that applies.

use std::fmt;

use super::ranks::Farthest;
use super::{format, ranks, waits};
use habitat_base::units::{Bytes, Micros};
use habitat_recorder::live::{Snapshot, Waiting};
use habitat_step::op::Family;
use habitat_step::profile::breakdown::{Breakdown, GroupBy};
use habitat_step::profile::{Execution, OP_LIST, Operation, Phase, Precision, Profile, TRACE_OF_SHAPES};

/// Share of the time of the last steps above which waiting for data is a bottleneck.
pub const WAITING: f64 = 0.2;
/// Share of the recorded step above which a GPU counts as busy all the time.
pub const BUSY: f64 = 0.9;
/// Share of the recorded step above which collectives are a bottleneck.
pub const EXCHANGING: f64 = 0.25;
/// Share of the recorded step above which GPU idle time makes the host the bottleneck.
pub const IDLE: f64 = 0.25;
/// Share of the GPU's memory above which a larger batch is unlikely to fit.
pub const FULL: f64 = 0.92;

/// Bottleneck of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The training waits for its data.
    Data,
    /// One of several ranks is slower than the others.
    Rank,
    /// GPUs wait for one another.
    Communication,
    /// The GPU waits for the host.
    Host,
    /// The memory is almost full.
    Memory,
    /// The GPU computes all the time.
    Gpu,
}

impl Bound {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Rank => "rank",
            Self::Communication => "communication",
            Self::Host => "host",
            Self::Memory => "memory",
            Self::Gpu => "gpu",
        }
    }
}

/// A bottleneck with its evidence and advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Kind of bottleneck.
    pub bound: Bound,
    /// The finding with its figures.
    pub because: String,
    /// Advice.
    pub next: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.because, self.next)
    }
}

/// Memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryUse {
    /// Memory in use.
    pub used: Bytes,
    /// Total memory.
    pub all: Bytes,
}

/// Finds the bottleneck of a job.
///
/// # Errors
/// Reason why it is unknown.
pub fn verdict(seen: &Snapshot, profile: Option<&Profile>, memory: Option<MemoryUse>) -> Result<Verdict, String> {
    let recorded = profile.and_then(Recorded::of);
    let is_busy = recorded.as_ref().is_some_and(|recorded| recorded.idle < 1.0 - BUSY);
    // A single rank that waits for data holds up all others.
    let of_ranks = ranks::waits_most(seen);
    let waiting = of_ranks.map(|it| it.value).or(seen.waiting);
    // The recorded step may be another rank's, so its busy GPU does not rule this out.
    if let Some(waiting) = waiting.filter(|waiting| waiting.share >= WAITING && (!is_busy || of_ranks.is_some())) {
        return Ok(of_data(waiting, of_ranks));
    }
    if let Some(late) = ranks::late(seen) {
        let (name, waited) = (ranks::name(late.process), whole(late.waited / late.step));
        let because = format!("{name} is slow: the other ranks wait for it {waited} of each step");
        return Ok(Verdict { bound: Bound::Rank, because, next: LATE_NEXT.to_owned() });
    }
    if let Some(slow) = ranks::slowest(seen).filter(|it| it.value.get() >= it.median.get() * ranks::SLOW) {
        return Ok(of_rank(slow));
    }
    if let Some(loading) = profile.and_then(|profile| of_loading(profile, recorded.as_ref())) {
        return Ok(loading);
    }
    let Some(recorded) = recorded else {
        let why = if let Some(profile) = profile {
            untimed(profile)
        } else if seen.is_over() {
            "no step recorded"
        } else {
            "no step recorded yet"
        };
        let waiting = seen.waiting.map(|it| format!(", and data took {}", waited(it))).unwrap_or_default();
        let hint = if is_one_of_several(seen, profile) { format!("; {ALL_RANKS}") } else { String::new() };
        return Err(format!("unknown: {why}{waiting}{hint}"));
    };
    if recorded.exchanging >= EXCHANGING {
        let less = "communicate less often: use a larger batch per GPU, or gradient accumulation";
        return Ok(Verdict {
            bound: Bound::Communication,
            because: format!("communication: collectives take {} of the recorded step", whole(recorded.exchanging)),
            next: if is_one_of_several(seen, profile) { format!("{ALL_RANKS}. Or {less}") } else { less.to_owned() },
        });
    }
    if recorded.idle >= IDLE {
        let most = if recorded.profiled { "at most " } else { "" };
        return Ok(Verdict {
            bound: Bound::Host,
            because: format!("CPU-bound: the GPU is idle {most}{} of the recorded step", whole(recorded.idle)),
            next: "reduce launch overhead: torch.compile, CUDA graphs or a larger batch".to_owned(),
        });
    }
    let full = memory.filter(|memory| memory.all.get() > 0.0 && memory.used.get() / memory.all.get() >= FULL);
    if let Some(MemoryUse { used, all }) = full {
        return Ok(Verdict {
            bound: Bound::Memory,
            because: format!("memory almost full: {used} of {all} in use"),
            next: "a larger batch will probably not fit; activation checkpointing or bf16 frees memory".to_owned(),
        });
    }
    Ok(recorded.of_gpu())
}

/// Finds the bottleneck of a recorded step without a running job.
///
/// # Errors
/// Reason why it is unknown.
pub fn of_profile(profile: &Profile, memory: Option<MemoryUse>) -> Result<Verdict, String> {
    verdict(&Snapshot::default(), Some(profile), memory)
}

/// Why a step without times of a GPU has none.
fn untimed(profile: &Profile) -> &'static str {
    let source = profile.recording.as_ref().map_or("", |recording| &recording.source);
    if source.starts_with(TRACE_OF_SHAPES) {
        "traced from shapes, nothing was timed"
    } else if source.starts_with(OP_LIST) {
        "an op list, nothing was timed"
    } else {
        "recorded on a CPU or from shapes, without GPU timings"
    }
}

/// The verdict on a recorded step that waits for its data.
fn of_loading(profile: &Profile, recorded: Option<&Recorded>) -> Option<Verdict> {
    let loading = waits::loading(profile)?;
    let because = match recorded {
        Some(recorded) if recorded.idle >= IDLE && loading.share >= recorded.idle / 2.0 => format!(
            "waiting for data: the GPU is idle {} of the recorded step, and the CPU loads data for {} of it",
            whole(recorded.idle),
            whole(loading.share)
        ),
        None if loading.share >= WAITING => {
            format!("waiting for data: {} of the recorded step", whole(loading.share))
        }
        _ => return None,
    };
    let workers = loading.in_process.then_some(0);
    let waiting = Waiting { share: loading.share, steps: 1, workers, cores: None };
    Some(Verdict { bound: Bound::Data, because, next: faster_loading(waiting) })
}

/// Advice if one rank is late.
const LATE_NEXT: &str = "compare its data, its work, the clock and temperature of its GPU, and other \
                         processes on its machine";

/// Advice if collectives take long and only one rank was recorded.
const ALL_RANKS: &str = "`run --all-ranks` shows whether ranks wait for a slow one";

/// Whether only one of several ranks was recorded, so that the waits of the others are unknown.
fn is_one_of_several(seen: &Snapshot, profile: Option<&Profile>) -> bool {
    let ranks = seen.processes.iter().filter(|process| process.is_rank).count();
    let is_alone = profile.and_then(|profile| profile.recording.as_ref()?.ranks).is_none();
    ranks > 1 && profile.is_some() && is_alone
}

/// Words for the share of the last steps spent waiting for data.
pub fn waited(waiting: Waiting) -> String {
    let of = if waiting.steps == 1 { "the last step".to_owned() } else { format!("the last {} steps", waiting.steps) };
    format!("{} of the time of {of}", whole(waiting.share))
}

fn of_rank(slow: Farthest<'_, Micros>) -> Verdict {
    let [step, median] = [slow.value, slow.median].map(format::time);
    let name = ranks::name(slow.process);
    Verdict {
        bound: Bound::Rank,
        because: format!(
            "one rank is slow: {name} takes {step} per step, the median of {} ranks is {median}",
            slow.ranks
        ),
        next: "compare the clock and temperature of its GPU, and other processes on its machine".to_owned(),
    }
}

fn of_data(waiting: Waiting, of_ranks: Option<Farthest<'_, Waiting>>) -> Verdict {
    let next = faster_loading(waiting);
    let because = match of_ranks {
        Some(it) => format!(
            "waiting for data: {}, {}; the median of {} ranks is {}",
            ranks::name(it.process),
            waited(waiting),
            it.ranks,
            whole(it.median.share)
        ),
        None => format!("waiting for data: {}", waited(waiting)),
    };
    Verdict { bound: Bound::Data, because, next }
}

/// Advice for faster loading: more workers while CPU cores are free, keeping one core for training.
fn faster_loading(waiting: Waiting) -> String {
    let most = waiting.cores.map_or(u32::MAX, |cores| cores.saturating_sub(1));
    let cores = waiting.cores.map_or_else(String::new, |cores| match cores {
        1 => "1 CPU core".to_owned(),
        cores => format!("{cores} CPU cores"),
    });
    match waiting.workers {
        None => "use more DataLoader workers (num_workers) if CPU cores are free".to_owned(),
        Some(0) if most == 0 => {
            format!("do less work per sample: with {cores}, workers (num_workers) would not load faster")
        }
        Some(0) if waiting.cores.is_none() => {
            "num_workers=0 loads in the training process: try one worker per free CPU core".to_owned()
        }
        Some(0) => format!("num_workers=0 loads in the training process: try num_workers={}", most.min(4)),
        Some(workers) if workers < most => format!(
            "use more workers than num_workers={workers}, less work per sample, or persistent_workers=True if epochs are short"
        ),
        Some(workers) => format!(
            "do less work per sample, or set persistent_workers=True if epochs are short: num_workers={workers} already keeps {cores} busy"
        ),
    }
}

/// A share in whole percent.
fn whole(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Findings on a step that was recorded on a GPU.
struct Recorded {
    /// Share of the step in which the GPU is idle.
    idle: f64,
    /// Share of the step spent in collectives.
    exchanging: f64,
    /// Whether the profiler slowed down the host.
    profiled: bool,
    /// Family with the most device time, and its share.
    most: Option<(String, f64)>,
    precision: Option<Precision>,
    /// Share of the device time that a compiler could fuse: elementwise and similar operations outside the optimizer; 0
    /// for compiled steps.
    fusable: f64,
}

/// Families that `torch.compile` fuses.
const FUSABLE: [Family; 4] = [Family::Elementwise, Family::Normalisation, Family::Softmax, Family::Reduction];
/// Share of the device time above which the advice mentions fusing.
const WORTH_FUSING: f64 = 0.2;

impl Recorded {
    fn of(profile: &Profile) -> Option<Self> {
        let split = Breakdown::of(profile).busy_idle.filter(|split| split.busy.get() > 0.0)?;
        let family = |operation: &_| habitat_step::op::family(operation).name();
        let families = Breakdown::entries(profile, GroupBy::Family, None, family);
        let is_exchange = |label: &str| label == Family::Communication.name();
        let exchanging = families.iter().find(|entry| is_exchange(&entry.label));
        let most = families.iter().find(|entry| !is_exchange(&entry.label) && entry.time.get() > 0.0);
        Some(Self {
            idle: split.idle / split.step,
            exchanging: exchanging.map_or(0.0, |entry| (entry.time / split.step).min(1.0)),
            profiled: profile.step.as_ref().is_some_and(|step| step.profiled),
            most: most.map(|entry| (entry.label.clone(), entry.share)),
            precision: profile.workload.precision,
            fusable: fusable(profile),
        })
    }

    fn of_gpu(&self) -> Verdict {
        let busy = whole(1.0 - self.idle);
        let (most, next) = match &self.most {
            Some((family, share)) => {
                let next = match self.shorter(family) {
                    FASTER if self.fusable >= WORTH_FUSING => format!(
                        "torch.compile fuses elementwise kernels and norms ({}); a faster GPU helps too",
                        whole(self.fusable)
                    ),
                    next => next.to_owned(),
                };
                (format!(", {} of it {family}", whole(*share)), next)
            }
            None => (String::new(), FASTER.to_owned()),
        };
        Verdict { bound: Bound::Gpu, because: format!("GPU-bound: busy {busy} of the step{most}"), next }
    }

    /// Advice that shortens the operations of a family.
    fn shorter(&self, family: &str) -> &'static str {
        let is = |families: &[Family]| families.iter().any(|it| it.name() == family);
        let has_tf32 = |allows: fn(Precision) -> bool| self.precision.is_some_and(allows);
        let is_convolution = is(&[Family::Convolution, Family::Recurrent]);
        let is_wide = has_tf32(Precision::is_32_bits);
        if is_convolution && is_wide && has_tf32(Precision::allows_tf32_convolutions) {
            "autocast to bf16 shortens them"
        } else if (is_convolution || is(&[Family::Gemm])) && is_wide && self.precision != Some(Precision::Tf32) {
            "autocast to bf16 (or TF32) shortens them"
        } else if is(&FUSABLE) && self.fusable > 0.0 {
            "torch.compile fuses such operations"
        } else {
            FASTER
        }
    }
}

/// Share of the step's device time that a compiler could fuse.
fn fusable(profile: &Profile) -> f64 {
    let total = profile.total_device_time();
    if total.get() <= 0.0 || profile.step.as_ref().is_some_and(|step| step.execution == Some(Execution::Compiled)) {
        return 0.0;
    }
    let is_fusable = |operation: &&Operation| {
        operation.phase != Phase::Optimizer && FUSABLE.contains(&habitat_step::op::family(operation))
    };
    let times = profile.operations.iter().filter(is_fusable).filter_map(Operation::total_device_time);
    times.sum::<Micros>() / total
}

/// Advice if changes to the program are unlikely to help.
const FASTER: &str = "a faster GPU shortens the step";

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_base::units::GIB;
    use habitat_recorder::live::{Exchange, Process};
    use habitat_step::profile::Step;

    /// A step of 100 µs in which the GPU is busy for `busy` µs, with these operations.
    fn profile(busy: u32, precision: &str, operations: &[(&str, u32)]) -> Profile {
        let operations: Vec<String> = operations
            .iter()
            .map(|(name, time)| format!(r#"{{"name": "{name}", "phase": "forward", "device_time_us": {time}}}"#))
            .collect();
        let json = format!(
            r#"{{"format": "habitat-profile", "version": 1,
                "workload": {{"name": "w", "mode": "training", "precision": "{precision}"}},
                "step": {{"duration_us": 100, "device_busy_us": {busy}}}, "operations": [{}]}}"#,
            operations.join(",")
        );
        Profile::from_json(json.as_bytes()).unwrap().0
    }

    fn waiting(share: f64, workers: Option<u32>) -> Snapshot {
        Snapshot { waiting: Some(Waiting { share, steps: 50, workers, cores: Some(8) }), ..Snapshot::default() }
    }

    #[test]
    fn every_verdict_names_what_it_stands_on() {
        let memory = |used: f64| Some(MemoryUse { used: Bytes::known(used * GIB), all: Bytes::known(80.0 * GIB) });
        let busy = [("aten::mm", 60), ("aten::relu", 37)];
        let exchanging = [("aten::mm", 50), ("c10d::allreduce_", 40)];
        for (seen, profile, memory, bound, words) in [
            (
                waiting(0.62, Some(0)),
                None,
                None,
                Bound::Data,
                "waiting for data: 62 % of the time of the last 50 steps; num_workers=0 loads in the \
                 training process: try num_workers=4",
            ),
            (
                waiting(0.62, Some(2)),
                Some(profile(60, "fp32", &busy)),
                None,
                Bound::Data,
                "waiting for data: 62 % of the time of the last 50 steps; use more workers than \
                 num_workers=2, less work per sample, or persistent_workers=True if epochs are short",
            ),
            (
                // The data are loaded while the GPU computes.
                waiting(0.62, Some(0)),
                Some(profile(97, "fp32", &busy)),
                memory(40.0),
                Bound::Gpu,
                "GPU-bound: busy 97 % of the step, 62 % of it matrix product; autocast to bf16 (or \
                 TF32) shortens them",
            ),
            (
                waiting(0.05, None),
                Some(profile(97, "bf16", &busy)),
                None,
                Bound::Gpu,
                "GPU-bound: busy 97 % of the step, 62 % of it matrix product; torch.compile fuses \
                 elementwise kernels and norms (38 %); a faster GPU helps too",
            ),
            (
                Snapshot::default(),
                Some(profile(97, "bf16", &[("aten::mm", 97)])),
                None,
                Bound::Gpu,
                "GPU-bound: busy 97 % of the step, 100 % of it matrix product; a faster GPU \
                 shortens the step",
            ),
            (
                Snapshot::default(),
                Some(profile(90, "bf16", &[("aten::relu", 90)])),
                None,
                Bound::Gpu,
                "GPU-bound: busy 90 % of the step, 100 % of it elementwise; torch.compile fuses \
                 such operations",
            ),
            (
                Snapshot::default(),
                Some(profile(55, "bf16", &busy)),
                memory(79.0),
                Bound::Host,
                "CPU-bound: the GPU is idle 45 % of the recorded step; reduce launch overhead: torch.compile, CUDA graphs or a \
                 larger batch",
            ),
            (
                Snapshot::default(),
                Some(profile(90, "bf16", &exchanging)),
                None,
                Bound::Communication,
                "communication: collectives take 40 % of the recorded step; communicate less often: use a larger batch \
                 per GPU, or gradient accumulation",
            ),
            (
                Snapshot::default(),
                Some(profile(97, "bf16", &busy)),
                memory(79.0),
                Bound::Memory,
                "memory almost full: 79.0 GB of 80.0 GB in use; a larger batch will probably not fit; activation \
                 checkpointing or bf16 frees memory",
            ),
        ] {
            let found = verdict(&seen, profile.as_ref(), memory).unwrap();
            assert_eq!((found.bound, found.to_string().as_str()), (bound, words));
        }
    }

    /// The first line says why there are no times.
    #[test]
    fn a_step_without_times_says_why() {
        let mut step = profile(0, "fp32", &[("aten::mm", 0)]);
        step.origin = None;
        step.step = None;
        let mut of = |source: &str| {
            let recording = format!(r#"{{"source": "{source}"}}"#);
            step.recording = serde_json::from_str(&recording).ok();
            of_profile(&step, None).unwrap_err()
        };
        assert_eq!(of("trace of shapes, torch 2.15.0"), "unknown: traced from shapes, nothing was timed");
        assert_eq!(of("op list"), "unknown: an op list, nothing was timed");
        assert_eq!(of("kineto trace, shapes only"), "unknown: recorded on a CPU or from shapes, without GPU timings");
    }

    /// The timeline of a file shows what the host did while the GPU waited.
    #[test]
    fn a_recorded_step_that_loads_data_waits_for_them() {
        let mut step = profile(55, "fp32", &[("aten::mm", 55)]);
        assert_eq!(of_profile(&step, None).unwrap().bound, Bound::Host);
        let timeline = |host: &str| {
            let json = format!(
                r#"{{"duration_us": 100, "parts": [{{"operation": 0}}, {{"name": "{host}"}}],
                "lanes": [{{"kind": "host", "start_us": [0, 41], "duration_us": [40, 10], "part": [1, 0]}},
                {{"kind": "compute", "start_us": [45], "duration_us": [55], "part": [0]}}]}}"#
            );
            serde_json::from_str(&json).ok()
        };
        step.timeline = timeline("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
        assert_eq!(
            of_profile(&step, None).unwrap().to_string(),
            "waiting for data: the GPU is idle 45 % of the recorded step, and the CPU loads data for 40 % of it; \
             num_workers=0 loads in the training process: try one worker per free CPU core"
        );
        step.timeline = timeline("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__");
        assert!(of_profile(&step, None).unwrap().next.starts_with("use more DataLoader workers"));
        step.timeline = timeline("aten::item");
        assert_eq!(of_profile(&step, None).unwrap().bound, Bound::Host);
        // A step recorded on a CPU has no GPU idle time.
        let mut on_cpu = profile(0, "fp32", &[("aten::mm", 0)]);
        let waits = Some(Micros::known(30.0));
        on_cpu.step = Some(Step { duration: Some(Micros::known(100.0)), data_wait: waits, ..Step::default() });
        assert_eq!(of_profile(&on_cpu, None).unwrap().because, "waiting for data: 30 % of the recorded step");
    }

    #[test]
    fn no_more_workers_are_advised_than_there_are_cores() {
        let next = |workers: u32, cores: u32| {
            let waiting = Waiting { share: 0.5, steps: 9, workers: Some(workers), cores: Some(cores) };
            let seen = Snapshot { waiting: Some(waiting), ..Snapshot::default() };
            verdict(&seen, None, None).unwrap().next
        };
        assert!(next(0, 2).ends_with("try num_workers=1"), "{}", next(0, 2));
        assert!(next(0, 64).ends_with("try num_workers=4"));
        assert_eq!(next(0, 1), "do less work per sample: with 1 CPU core, workers (num_workers) would not load faster");
        assert!(
            next(2, 2).starts_with("do less work per sample")
                && next(2, 2).contains("num_workers=2 already keeps 2 CPU cores busy")
        );
        assert!(next(2, 8).starts_with("use more workers than num_workers=2"));
    }

    #[test]
    fn one_rank_may_hold_up_the_others() {
        let rank = |rank: u32, ms: f64, share: f64| Process {
            rank: Some(rank),
            is_rank: true,
            steps: 9,
            median: Micros::new(ms * 1e3).ok(),
            waiting: Some(Waiting { share, steps: 8, workers: Some(0), cores: Some(8) }),
            ..Process::default()
        };
        let seen = |second: Process| {
            let processes = vec![rank(0, 100.0, 0.02), second, rank(2, 101.0, 0.03)];
            Snapshot { waiting: processes[0].waiting, processes, ..Snapshot::default() }
        };
        // The recorded step is another rank's, whose GPU is busy with communication.
        let busy = profile(97, "bf16", &[("aten::mm", 50), ("c10d::allreduce_", 45)]);
        let words = |second: Process| verdict(&seen(second), Some(&busy), None).unwrap();
        let late = words(rank(1, 101.0, 0.4));
        assert_eq!(late.bound, Bound::Data);
        assert_eq!(
            late.because,
            "waiting for data: rank 1, 40 % of the time of the last 8 steps; the median of 3 ranks is 3 %"
        );
        let slow = words(rank(1, 130.0, 0.03));
        assert_eq!(slow.bound, Bound::Rank);
        assert_eq!(slow.because, "one rank is slow: rank 1 takes 130.0 ms per step, the median of 3 ranks is 101.0 ms");
        let even = words(rank(1, 101.0, 0.03));
        assert_eq!(even.bound, Bound::Communication);
        assert!(even.next.contains("`run --all-ranks`"), "{}", even.next);
        let [step, least, most] = [100.0, 5.0, 60.0].map(|ms| Micros::new(ms * 1e3).unwrap());
        let mut waits = seen(rank(1, 100.0, 0.03));
        for (process, waiting) in waits.processes.iter_mut().zip([most, least, most]) {
            process.exchange = Some(Exchange { step, waiting });
        }
        let late = verdict(&waits, Some(&busy), None).unwrap();
        assert_eq!(late.bound, Bound::Rank);
        assert_eq!(late.because, "rank 1 is slow: the other ranks wait for it 60 % of each step");
    }

    #[test]
    fn what_is_not_known_says_why() {
        let unknown = |seen: &Snapshot, profile: Option<&Profile>| verdict(seen, profile, None).unwrap_err();
        assert_eq!(unknown(&Snapshot::default(), None), "unknown: no step recorded yet");
        let shapes = Profile { step: None, ..profile(0, "fp32", &[("aten::mm", 0)]) };
        assert_eq!(
            unknown(&waiting(0.03, None), Some(&shapes)),
            "unknown: recorded on a CPU or from shapes, without GPU timings, and data took 3 % of the time of the last 50 steps"
        );
    }
}
