//! Bottleneck of a running job or a recorded step: one sentence with its figures, and advice.
//!
//! | kind | condition |
//! | --- | --- |
//! | work beside training | checkpoints, validations or repeated long steps take [`BESIDE`] of the time of the whole job, and more than what follows |
//! | waiting for data | [`WAITING`] of the time of the last steps was spent in the `DataLoader` (for several ranks: of any rank), unless the recorded step shows a busy GPU ([`BUSY`]); or the GPU is idle [`IDLE`] of the recorded step, and loading takes most of that |
//! | a slow rank | the other ranks wait for it [`LATE`](ranks::LATE) of its step, and more than any rank for data, or its steps are [`SLOW`](ranks::SLOW) times as long as the median |
//! | communication | collectives take [`EXCHANGING`] of the recorded step |
//! | CPU-bound | the GPU is idle [`IDLE`] of the recorded step |
//! | computing on the CPU | the step was recorded without a GPU, and the parts of its time are known |
//! | memory almost full | [`FULL`] of the GPU's memory is in use |
//! | GPU-bound | otherwise, if the step was recorded on a GPU |
//!
//! Reports the first that applies. Waits for data are those of the last steps outside the recorded windows, as the
//! profiler slows the recorded ones; those of the recorded step count only for a file without a job.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::ranks::{Farthest, Late};
use super::{aside, format, ranks, waits};
use habitat_base::units::{Bytes, Micros};
use habitat_recorder::live::history::{Digest, Kind};
use habitat_recorder::live::{Snapshot, Split, Waiting};
use habitat_step::op::Family;
use habitat_step::profile::breakdown::{Breakdown, GroupBy};
use habitat_step::profile::{Execution, OP_LIST, Operation, Phase, Precision, Profile, TRACE_OF_SHAPES};

/// Share of the time of a job from which work beside training stands out.
pub const BESIDE: f64 = 0.2;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Checkpoints, validations or other periodic work take much of the time.
    Beside,
    /// The training waits for its data.
    Data,
    /// One of several ranks is slower than the others.
    Rank,
    /// GPUs wait for one another.
    Communication,
    /// The GPU waits for the host.
    Host,
    /// The training computes on the CPU, without a GPU.
    Cpu,
    /// The memory is almost full.
    Memory,
    /// The GPU computes all the time.
    Gpu,
}

/// A bottleneck with its evidence and advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
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

/// Finds the bottleneck of a job, with its history if there is one.
///
/// # Errors
/// Reason why it is unknown.
pub fn verdict(
    seen: &Snapshot,
    profile: Option<&Profile>,
    memory: Option<MemoryUse>,
    history: &Digest,
) -> Result<Verdict, String> {
    let recorded = profile.and_then(Recorded::of);
    let is_busy = recorded.as_ref().is_some_and(|recorded| recorded.idle < 1.0 - BUSY);
    // A single rank that waits for data holds up all others.
    let of_ranks = ranks::waits_most(seen);
    let waiting = of_ranks.as_ref().map(|it| it.value).or(seen.waiting);
    // The recorded step may be another rank's, so its busy GPU does not rule this out.
    let waiting = waiting.filter(|_| !is_busy || of_ranks.is_some());
    let late = ranks::late(seen, history);
    let shares = [
        (Bound::Data, waiting.map(|it| it.share)),
        (Bound::Rank, late.as_ref().map(|late| late.waited)),
        (Bound::Communication, recorded.as_ref().map(|recorded| recorded.exchanging)),
        (Bound::Host, recorded.as_ref().map(|recorded| recorded.idle)),
        (Bound::Cpu, seen.split.map(|split| split.rest() / split.step)),
    ];
    let found = of_steps(seen, profile, memory, recorded, (waiting, of_ranks, late));
    let Some((share, beside)) = beside(history).into_iter().next() else { return found };
    // Shares of the training steps, as one of all time.
    let of = |found: &Verdict| shares.iter().find(|(bound, _)| *bound == found.bound)?.1;
    let own = found.as_ref().ok().and_then(of).unwrap_or(0.0) * aside::trained(history);
    match found {
        Ok(found) if own > share => {
            Ok(Verdict { because: format!("{}; that is {} of all time", found.because, whole(own)), ..found })
        }
        _ => Ok(beside),
    }
}

/// Finds the bottleneck of the training steps.
fn of_steps(
    seen: &Snapshot,
    profile: Option<&Profile>,
    memory: Option<MemoryUse>,
    recorded: Option<Recorded>,
    (waiting, of_ranks, late): (Option<Waiting>, Option<Farthest<'_, Waiting>>, Option<Late>),
) -> Result<Verdict, String> {
    let late = late.filter(|late| waiting.is_none_or(|waiting| waiting.share < WAITING.max(late.waited)));
    if let Some(late) = late {
        let because = format!("{} is slow: the other ranks wait for it {} of each step", late.name, whole(late.waited));
        return Ok(Verdict { bound: Bound::Rank, because, next: LATE_NEXT.to_owned() });
    }
    if let Some(waiting) = waiting.filter(|waiting| waiting.share >= WAITING) {
        return Ok(of_data(waiting, of_ranks));
    }
    if let Some(slow) = ranks::slowest(seen).filter(|it| it.value.get() >= it.median.get() * ranks::SLOW) {
        return Ok(of_rank(&slow));
    }
    if let Some(loading) = profile.and_then(|profile| of_loading(seen.waiting, profile, recorded.as_ref())) {
        return Ok(loading);
    }
    if let (None, Some(split), Some(CPU)) = (&recorded, seen.split, profile.map(untimed)) {
        return Ok(of_cpu(&split, seen.waiting));
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
    verdict(&Snapshot::default(), Some(profile), memory, &Digest::default())
}

/// Checkpoints, validations and repeated long steps that take much of the time of a job, with their shares of it, the
/// largest first.
pub(crate) fn beside(history: &Digest) -> Vec<(f64, Verdict)> {
    let found = Kind::ASIDE.iter().zip(aside::beside(history)).filter_map(|(kind, work)| {
        let work = work.filter(|work| work.share >= BESIDE)?;
        let (count, each) = (format::grouped(f64::from(work.count)), format::time(work.each));
        let often = work.period.map_or_else(
            || format!("{count} of {each}"),
            |steps| format!("every {} steps, {each} each", format::grouped(steps as f64)),
        );
        let (name, next) = match kind {
            Kind::Checkpoint => {
                ("checkpoints", "save less often, or in the background (torch.distributed.checkpoint.async_save)")
            }
            Kind::Validation => ("validations", "validate less often, or on fewer batches"),
            _ => ("long steps", "do less often, or faster, what the loop does there"),
        };
        let because = format!("{name} take {} of the time: {often}", whole(work.share));
        Some((work.share, Verdict { bound: Bound::Beside, because, next: next.to_owned() }))
    });
    let mut found: Vec<(f64, Verdict)> = found.collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found
}

/// Why a step without times of a GPU has none.
fn untimed(profile: &Profile) -> &'static str {
    let source = profile.recording.as_ref().map_or("", |recording| &recording.source);
    if source.starts_with(TRACE_OF_SHAPES) {
        "traced from shapes, nothing was timed"
    } else if source.starts_with(OP_LIST) {
        "an op list, nothing was timed"
    } else {
        CPU
    }
}

/// Why a step that was recorded without a GPU has no times of one.
const CPU: &str = "recorded on a CPU or from shapes, without GPU timings";
/// Share of a step on a CPU from which the optimizer, or other work in the loop, is the bottleneck.
const ASIDE: f64 = 0.3;

/// The verdict on steps that compute on the CPU.
fn of_cpu(split: &Split, waiting: Option<Waiting>) -> Verdict {
    let share = |part: Micros| (part / split.step).min(1.0);
    let [input, forward, backward, optimizer, rest] =
        [split.input, split.forward, split.backward, split.optimizer, split.rest()].map(share);
    // Without a DataLoader, loading is in the rest.
    let input = match waiting {
        None if input <= 0.0 => String::new(),
        _ => format!(", input {}", whole(input)),
    };
    let passes =
        format!("forward {}, backward {}, optimizer {}{input}", whole(forward), whole(backward), whole(optimizer));
    let (of, rest_share) = (format::time(split.step), whole(rest));
    let because = if rest >= ASIDE {
        format!("works outside the passes for {rest_share} of the last steps (mean {of}) on the CPU: {passes}")
    } else {
        format!("computes on the CPU: {passes} and the rest {rest_share} of the last steps (mean {of})")
    };
    let next = if rest >= ASIDE {
        "look at what the loop does between the passes; no DataLoader loads in that time"
    } else if optimizer >= ASIDE {
        "the optimizer takes much of it: try fused=True, or a larger batch for fewer updates"
    } else {
        "a GPU shortens forward and backward passes; on this CPU, bf16 or more threads (torch.set_num_threads) may shorten them"
    };
    Verdict { bound: Bound::Cpu, because, next: next.to_owned() }
}

/// The verdict on a step that waits for its data: measured in the last steps, else in the recorded one.
fn of_loading(measured: Option<Waiting>, profile: &Profile, recorded: Option<&Recorded>) -> Option<Verdict> {
    if let Some(waiting) = measured {
        let recorded = recorded.filter(|it| it.idle >= IDLE && waiting.share >= it.idle / 2.0)?;
        let because = format!(
            "waiting for data: {}, and the GPU is idle {} of the recorded step",
            waited(waiting),
            whole(recorded.idle)
        );
        return Some(Verdict { bound: Bound::Data, because, next: faster_loading(waiting) });
    }
    let loading = waits::loading(profile)?;
    let because = match recorded {
        Some(recorded) if recorded.idle >= IDLE && loading.share >= recorded.idle / 2.0 => format!(
            "waiting for data: the GPU is idle {} of the recorded step, {} while the CPU loads data",
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
    let of = if waiting.steps == 1 {
        "the last step".to_owned()
    } else {
        format!("the last {} steps", format::grouped(f64::from(waiting.steps)))
    };
    format!("{} of the time of {of}", whole(waiting.share))
}

fn of_rank(slow: &Farthest<'_, Micros>) -> Verdict {
    let [step, median] = [slow.value, slow.median].map(format::time);
    let name = ranks::name(slow.process);
    Verdict {
        bound: Bound::Rank,
        because: format!("one rank is slow: {name} takes {step} per step, {} {median}", slow.others),
        next: "compare the clock and temperature of its GPU, and other processes on its machine".to_owned(),
    }
}

fn of_data(waiting: Waiting, of_ranks: Option<Farthest<'_, Waiting>>) -> Verdict {
    let next = faster_loading(waiting);
    let because = match of_ranks {
        Some(it) => {
            let (name, median) = (ranks::name(it.process), whole(it.median.share));
            format!("waiting for data: {name}, {}; {} {median}", waited(waiting), it.others)
        }
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
            format!(
                "do less work per sample: with {cores}, workers (num_workers) load faster only if they wait, as for files"
            )
        }
        Some(0) if waiting.cores.is_none() => {
            "num_workers=0 loads in the training process: try one worker per free CPU core".to_owned()
        }
        Some(0) => format!("num_workers=0 loads in the training process: try num_workers={}", most.min(4)),
        Some(workers) if workers < most => format!(
            "use more workers than num_workers={workers}, less work per sample, or persistent_workers=True if epochs are short"
        ),
        Some(workers) => format!(
            "do less work per sample, or set persistent_workers=True if epochs are short; with {cores}, more than num_workers={workers} load faster only if they wait, as for files"
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
        // Both shares are of the step, as those of its parts elsewhere.
        let (busy, of_step) = (1.0 - self.idle, |share: f64| whole(share * (1.0 - self.idle)));
        let (most, next) = match &self.most {
            Some((family, share)) => {
                let next = match self.shorter(family) {
                    FASTER if self.fusable >= WORTH_FUSING => format!(
                        "torch.compile fuses elementwise kernels and norms ({} of it); a faster GPU helps too",
                        of_step(self.fusable)
                    ),
                    next => next.to_owned(),
                };
                (format!(", {family} {} of it", of_step(*share)), next)
            }
            None => (String::new(), FASTER.to_owned()),
        };
        Verdict { bound: Bound::Gpu, because: format!("GPU-bound: busy {} of the step{most}", whole(busy)), next }
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
mod tests;
