//! History of a job: the time of its steps and their parts, over days.
//!
//! Three lists of records of a fixed size: the last steps one by one ([`Step`]), the last days by the minute, and all of
//! it by the hour ([`Stretch`]). Times are since the start of the job by a clock that nobody sets. A record that was cut
//! off or is damaged is dropped. `docs/formats.md` has the layout.

mod record;

pub use record::{Level, STEP_BYTES, STRETCH_BYTES};

use habitat_base::regress::quantile::median;

/// First steps, which never count as training: caches fill, libraries select kernels, compilers run.
pub const FIRST: u64 = 5;
/// Distances that are judged at a time for whether they come by chance, and the fewest that can be.
pub const GAPS: (usize, usize) = (16, 8);
/// Deviation of a distance from the median, as a share, up to which it is the same.
const PERIOD_TOLERANCE: f64 = 0.05;

/// Whether these numbers of steps between long steps vary by chance, as where other programs use the processors. Those
/// of periodic work are about the same, or, for several kinds of work, multiples of a number.
pub fn are_irregular(gaps: &[u64]) -> bool {
    let middle = median(&mut gaps.iter().map(|gap| *gap as f64).collect::<Vec<_>>());
    let Some(middle) = middle.filter(|_| gaps.len() >= GAPS.1) else { return false };
    // One of twelve may differ, as when a validation is due.
    let others = gaps.iter().filter(|gap| (**gap as f64 - middle).abs() > PERIOD_TOLERANCE * middle).count();
    others * 12 > gaps.len() && gaps.iter().copied().fold(0, greatest_divisor) == 1
}

/// The greatest common divisor.
const fn greatest_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Work of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub enum Kind {
    /// It trained.
    #[default]
    Training,
    /// A validation ran since the step before: a `DataLoader` gave more batches than usual.
    Validation,
    /// `torch.save` wrote for most of the additional time.
    Checkpoint,
    /// It took several times as long as usual for another reason, periodically or rarely, or is one of the first. Many
    /// such steps at irregular distances are training: their spread.
    Other,
}

impl Kind {
    /// The kinds beside training.
    pub const ASIDE: [Self; 3] = [Self::Validation, Self::Checkpoint, Self::Other];

    /// Name in JSON and CSV.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Validation => "validation",
            Self::Checkpoint => "checkpoint",
            Self::Other => "other",
        }
    }
}

/// Parts of a step's time, in microseconds; NaN if unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parts {
    /// Waiting for a `DataLoader`.
    pub input: f32,
    /// From the end of a step, or the arrival of a batch, to the backward pass; at most as long as from the first call of
    /// a module in the step before the recorded ones, if the program spent much of that step before that call.
    pub forward: f32,
    /// In backward passes.
    pub backward: f32,
    /// From the last backward pass to the end of the optimizer's step.
    pub optimizer: f32,
    /// Part of the backward pass spent waiting for other ranks.
    pub idle: f32,
}

impl Default for Parts {
    fn default() -> Self {
        let unknown = f32::NAN;
        Self { input: unknown, forward: unknown, backward: unknown, optimizer: unknown, idle: unknown }
    }
}

impl Parts {
    /// All parts in their order.
    pub const fn all(&self) -> [f32; 5] {
        [self.input, self.forward, self.backward, self.optimizer, self.idle]
    }

    const fn of([input, forward, backward, optimizer, idle]: [f32; 5]) -> Self {
        Self { input, forward, backward, optimizer, idle }
    }

    /// The rest of a step: its time without the known parts; `None` unless backward passes are known.
    pub fn rest(&self, total: f32) -> Option<f32> {
        let known = [self.input, self.forward, self.backward, self.optimizer];
        let sum: f32 = known.into_iter().filter(|part| !part.is_nan()).sum();
        (!self.backward.is_nan()).then(|| (total - sum).max(0.0))
    }
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Number, from 1.
    pub step: u64,
    /// Its end, in tenths of a second since the start of the job.
    pub at: u32,
    /// Its work.
    pub kind: Kind,
    /// Its time in microseconds.
    pub total: f32,
    /// Parts of it.
    pub parts: Parts,
}

impl Step {
    /// Its time without the known waits for data and for other ranks, in microseconds.
    fn own(&self) -> f64 {
        let waits = [self.parts.input, self.parts.idle].into_iter().filter(|wait| !wait.is_nan());
        (f64::from(self.total) - waits.map(f64::from).sum::<f64>()).max(0.0)
    }
}

/// Consecutive steps of one process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Its start, in tenths of a second since the start of the job.
    pub from: u32,
    /// Its end.
    pub to: u32,
    /// Number of the first step.
    pub first: u64,
    /// Number of the last step; more than the number of steps after the first if some were not timed, as in windows.
    pub last: u64,
    /// Number of training steps.
    pub steps: u32,
    /// Rank of the process; `None` if it trains alone.
    pub rank: Option<u16>,
    /// Shortest, mean and longest time of a training step, in microseconds.
    pub total: [f32; 3],
    /// Mean parts of training steps.
    pub parts: Parts,
    /// Number of steps of each kind of [`Kind::ASIDE`], and their time in seconds.
    pub aside: [(u32, f32); 3],
    /// Resident memory of the process at the end, in MiB; NaN if unknown.
    pub resident: f32,
    /// Peak memory of tensors on its GPU, in MiB; NaN if unknown.
    pub peak: f32,
    /// Mean utilisation of the machine's GPUs, from 0 to 1; NaN if unknown.
    pub busy: f32,
}

impl Stretch {
    /// One without steps.
    pub fn empty(at: u32, rank: Option<u16>) -> Self {
        Self {
            from: at,
            to: at,
            first: 0,
            last: 0,
            steps: 0,
            rank,
            total: [f32::NAN; 3],
            parts: Parts::default(),
            aside: [(0, 0.0); 3],
            resident: f32::NAN,
            peak: f32::NAN,
            busy: f32::NAN,
        }
    }

    /// One of a single step.
    pub fn of(step: &Step, rank: Option<u16>) -> Self {
        // Rounded up, so that a step within a tenth is not before the start of the job.
        let tenths = (step.total / 1e5).ceil() as u32;
        let mut one = Self {
            to: step.at,
            first: step.step,
            last: step.step,
            ..Self::empty(step.at.saturating_sub(tenths), rank)
        };
        if let Some(at) = Kind::ASIDE.iter().position(|kind| *kind == step.kind) {
            one.aside[at] = (1, step.total / 1e6);
        } else {
            (one.steps, one.total, one.parts) = (1, [step.total; 3], step.parts);
        }
        one
    }

    /// Takes in one that follows: means by the number of training steps.
    pub fn add(&mut self, next: &Self) {
        if self.is_empty() {
            (self.from, self.first) = (next.from.max(self.from.min(next.to)), next.first);
        }
        (self.to, self.last) = (self.to.max(next.to), next.last);
        let [own, other] = [f64::from(self.steps), f64::from(next.steps)];
        let mean = |a: f32, b: f32| match (a.is_nan() || own == 0.0, b.is_nan() || other == 0.0) {
            (true, true) => f32::NAN,
            (true, false) => b,
            (false, true) => a,
            (false, false) => ((f64::from(a) * own + f64::from(b) * other) / (own + other)) as f32,
        };
        // `min` and `max` ignore NaN.
        self.total =
            [self.total[0].min(next.total[0]), mean(self.total[1], next.total[1]), self.total[2].max(next.total[2])];
        let (a, b) = (self.parts.all(), next.parts.all());
        self.parts = Parts::of(std::array::from_fn(|at| mean(a[at], b[at])));
        self.busy = mean(self.busy, next.busy);
        for (own, other) in self.aside.iter_mut().zip(next.aside) {
            *own = (own.0.saturating_add(other.0), own.1 + other.1);
        }
        self.steps = self.steps.saturating_add(next.steps);
        if !next.resident.is_nan() {
            self.resident = next.resident;
        }
        self.peak = self.peak.max(next.peak);
    }

    /// Number of steps of all kinds.
    pub fn all_steps(&self) -> u64 {
        u64::from(self.steps) + self.aside.iter().map(|(count, _)| u64::from(*count)).sum::<u64>()
    }

    /// Whether it has no steps.
    pub fn is_empty(&self) -> bool {
        self.all_steps() == 0
    }

    /// Time per training step in which the process computes itself, in microseconds: without waiting for data and for
    /// other ranks; `None` if the wait for ranks is unknown.
    pub fn own(&self) -> Option<f32> {
        let input = if self.parts.input.is_nan() { 0.0 } else { self.parts.input };
        Some(self.total[1] - self.parts.idle - input).filter(|own| !own.is_nan())
    }
}

/// Records of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// The last steps of the process that the profile is of.
    pub steps: Vec<Step>,
    /// The last days by the minute, of every process.
    pub minutes: Vec<Stretch>,
    /// All of it by the hour.
    pub hours: Vec<Stretch>,
}

/// Most steps that are kept in memory.
const MOST_STEPS: usize = 20_000;

impl History {
    /// Adds records of a job without files. The oldest steps go.
    pub fn add(&mut self, records: &[(Level, Vec<u8>)]) {
        let of = |of: Level| records.iter().filter(move |(level, _)| *level == of).map(|(_, record)| record);
        self.steps.extend(of(Level::Steps).filter_map(|record| Step::from_bytes(record)));
        self.minutes.extend(of(Level::Minutes).filter_map(|record| Stretch::from_bytes(record)));
        self.hours.extend(of(Level::Hours).filter_map(|record| Stretch::from_bytes(record)));
        self.steps.drain(..self.steps.len().saturating_sub(MOST_STEPS));
    }

    /// Stretches of the first rank or only process in order, without gaps between the lists: hours, then minutes, then
    /// the steps of the last minute.
    pub fn stretches(&self) -> Vec<Stretch> {
        self.of_rank(self.first_rank())
    }

    /// The lowest rank; `None` for a single process.
    fn first_rank(&self) -> Option<u16> {
        self.minutes.iter().chain(&self.hours).filter_map(|stretch| stretch.rank).min()
    }

    /// The ranks in order; empty for a single process.
    pub fn ranks(&self) -> Vec<u16> {
        let ranks = self.minutes.iter().chain(&self.hours).filter_map(|stretch| stretch.rank);
        ranks.collect::<std::collections::BTreeSet<u16>>().into_iter().collect()
    }

    /// Stretches of one rank in order.
    pub fn of_rank(&self, rank: Option<u16>) -> Vec<Stretch> {
        let own = |stretch: &&Stretch| stretch.rank == rank;
        let minutes: Vec<Stretch> = self.minutes.iter().filter(own).copied().collect();
        let first = minutes.first().map_or(u32::MAX, |stretch| stretch.from);
        let mut all: Vec<Stretch> =
            self.hours.iter().filter(own).filter(|stretch| stretch.from < first).copied().collect();
        // The hour in which the minutes begin has some of them.
        let until = all.last().map_or(0, |stretch| stretch.to);
        all.extend(minutes.into_iter().filter(|stretch| stretch.from >= until));
        let last = all.last().map(|stretch| (stretch.to, stretch.last));
        let is_first = rank.is_none() || rank == self.first_rank();
        let rest = self.steps.iter().filter(|step| {
            is_first && last.is_none_or(|(to, last)| step.at > to || (step.at == to && step.step > last))
        });
        all.extend(total(rest.map(|step| Stretch::of(step, rank))));
        all
    }
}

/// A history in short, for a screen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Digest {
    /// The first rank or only process over time, in slices of equal length.
    pub slices: Vec<Stretch>,
    /// All of it.
    pub total: Option<Stretch>,
    /// Each rank as a whole; empty for a single process.
    pub ranks: Vec<Stretch>,
    /// Number of steps between two of each kind of [`Kind::ASIDE`], for the last kind between two that are alike; `None`
    /// if it varies.
    pub period: [Option<u64>; 3],
    /// Number of long steps that repeat and are alike, and their time in seconds.
    pub alike: (u32, f32),
    /// Spread of the last training steps; `None` for few.
    pub spread: Option<Spread>,
}

/// Spread of training steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Number of steps.
    pub steps: usize,
    /// Median, in microseconds.
    pub median: f32,
    /// Median absolute deviation from it.
    pub deviation: f32,
    /// Steps that are late, as a share of all: without their waits for data and other ranks longer than twice the median
    /// and than the median and ten deviations.
    pub late: f64,
    /// Their time without these waits, as a share of the time of all.
    pub late_time: f64,
    /// Whether they are many at irregular distances.
    pub by_chance: bool,
}

impl Spread {
    /// Fewest steps that have one.
    const LEAST: usize = 20;

    fn of(steps: &[Step]) -> Option<Self> {
        let training: Vec<&Step> = steps.iter().filter(|step| step.kind == Kind::Training).collect();
        let of = |time: fn(&Step) -> f64| {
            let times = || training.iter().map(|step| time(step));
            let middle = median(&mut times().collect::<Vec<_>>())?;
            Some((middle, median(&mut times().map(|time| (time - middle).abs()).collect::<Vec<_>>())?))
        };
        let total = |step: &Step| f64::from(step.total);
        let (middle, deviation) = of(total).filter(|_| training.len() >= Self::LEAST)?;
        let (own, own_deviation) = of(Step::own)?;
        let from = (2.0 * own).max(own + 10.0 * own_deviation);
        let late: Vec<&Step> = training.iter().copied().filter(|step| step.own() > from).collect();
        let all: f64 = training.iter().copied().map(total).sum();
        // Several in a row are one event.
        let gaps = late.windows(2).map(|pair| pair[1].step.saturating_sub(pair[0].step)).filter(|gap| *gap > 1);
        let gaps: Vec<u64> = gaps.collect();
        // Not all at once: among thousands of steps of periodic work some are late by chance.
        let runs = gaps.chunks(GAPS.0).filter(|run| run.len() >= GAPS.1);
        let irregular = runs.clone().filter(|run| are_irregular(run)).count();
        Some(Self {
            steps: training.len(),
            median: middle as f32,
            deviation: deviation as f32,
            late: late.len() as f64 / training.len() as f64,
            late_time: late.iter().map(|step| step.own()).sum::<f64>() / all.max(f64::MIN_POSITIVE),
            by_chance: irregular * 2 > runs.count(),
        })
    }
}

impl History {
    /// The history in short, in at most `count` slices.
    pub fn digest(&self, count: usize) -> Digest {
        let all = self.stretches();
        let of_rank = |rank: u16| total(self.of_rank(Some(rank)));
        let late = |kind: Kind| self.steps.iter().filter(move |step| step.kind == kind && step.step > FIRST);
        let alike = alike(late(Kind::Other).collect());
        let slices = slices(&all, count);
        let total = total(all);
        // The last steps show which part of all long ones that is; in a short job, they are all.
        let other = self.steps.iter().filter(|step| step.kind == Kind::Other);
        let part = (
            alike.len() as f64 / other.clone().count().max(1) as f64,
            time(alike.iter().copied()) / time(other).max(1.0),
        );
        let (count, seconds) = total.map_or((0, 0.0), |total| total.aside[2]);
        Digest {
            slices,
            total,
            ranks: self.ranks().into_iter().filter_map(of_rank).collect(),
            period: [period(late(Kind::Validation)), period(late(Kind::Checkpoint)), period(alike.iter().copied())],
            alike: ((f64::from(count) * part.0).round() as u32, (f64::from(seconds) * part.1) as f32),
            spread: Spread::of(&self.steps),
        }
    }
}

/// Long steps that are alike: none takes more than twice as long as the next shorter one. The group that
/// takes most time counts, and a single event is not a group.
fn alike(mut long: Vec<&Step>) -> Vec<&Step> {
    long.sort_by(|a, b| a.total.total_cmp(&b.total));
    // Several in a row are one event, such as a slower machine.
    let repeat = |group: &&[&Step]| {
        let numbers = group.iter().map(|step| step.step);
        numbers.clone().max() >= numbers.min().map(|first| first + group.len() as u64)
    };
    let groups = long.chunk_by(|a, b| b.total <= 2.0 * a.total).filter(repeat);
    let sum = |group: &[&Step]| time(group.iter().copied());
    groups.max_by(|a, b| sum(a).total_cmp(&sum(b))).map(<[&Step]>::to_vec).unwrap_or_default()
}

/// Time of steps in microseconds.
fn time<'a>(steps: impl Iterator<Item = &'a Step>) -> f64 {
    steps.map(|step| f64::from(step.total)).sum()
}

/// Median number of steps between two of these, if most are about that far apart.
fn period<'a>(steps: impl Iterator<Item = &'a Step>) -> Option<u64> {
    let mut numbers: Vec<u64> = steps.map(|step| step.step).collect();
    numbers.sort_unstable();
    let mut gaps: Vec<u64> = numbers.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    gaps.sort_unstable();
    let median = *gaps.get(gaps.len() / 2)?;
    let near = gaps.iter().filter(|gap| gap.abs_diff(median) * 10 <= median).count();
    // Several in a row are one event, such as a slower machine.
    (gaps.len() > 1 && median > 1 && near * 2 > gaps.len()).then_some(median)
}

/// Stretches as at most `count` of equal length in time.
fn slices(all: &[Stretch], count: usize) -> Vec<Stretch> {
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Vec::new() };
    let length = (last.to.saturating_sub(first.from) as usize).div_ceil(count.max(1)).max(1);
    let place = |stretch: &Stretch| (stretch.to.saturating_sub(first.from) as usize).saturating_sub(1) / length;
    all.chunk_by(|a, b| place(a) == place(b)).filter_map(|slice| total(slice.iter().copied())).collect()
}

/// All stretches as one; `None` without any.
pub fn total(stretches: impl IntoIterator<Item = Stretch>) -> Option<Stretch> {
    stretches.into_iter().reduce(|mut all, one| {
        all.add(&one);
        all
    })
}

#[cfg(test)]
mod tests;
