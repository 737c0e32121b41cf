//! A process of a recorded job, with its steps and windows.

use std::collections::{BTreeMap, VecDeque};

use super::work::Work;
use crate::capture::history::PAUSE;
use crate::capture::messages::{Hello, Model, Parts, Stage, TensorMemory, Window, World};
use crate::live::{Exchange, Split, Waiting};
use habitat_base::regress::quantile::median;
use habitat_base::units::{Micros, Range};

/// Limits for stored data: any process may send anything to the socket, and a job may run for a year.
pub(super) const MOST_TIMES: usize = 10_000;
pub(super) const MOST_NOTES: usize = 100;
/// Maximum characters of a text.
pub(super) const LONGEST: usize = 400;

/// Appends `one` if there is room.
pub(super) fn keep<T>(all: &mut Vec<T>, one: T) {
    if all.len() < MOST_NOTES {
        all.push(one);
    }
}

pub(super) fn short(text: &str) -> String {
    habitat_base::text::clean(text, LONGEST)
}

/// A process of the job.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Number of the first message after it imported PyTorch or started CUDA, and of its last message.
    pub heard: [u64; 2],
    /// Processes that it trains with, known from its first step on.
    pub world: Option<World>,
    /// Other frameworks that it imported.
    pub frameworks: Vec<String>,
    /// Backward passes before its first step, known at its end.
    pub backward_passes: u64,
    /// Whether it imported PyTorch.
    pub has_torch: bool,
    /// Whether it started CUDA with our recorder.
    pub has_cuda: bool,
    /// Python version.
    pub python: Option<String>,
    /// PyTorch version.
    pub torch: Option<String>,
    /// Rank, if there are several.
    pub rank: Option<u32>,
    /// Number of reported steps.
    pub steps: u64,
    /// Steps outside windows; if there are very many, the last ones.
    pub times: Vec<Timed>,
    /// Time, wait for data, forward, backward and optimizer of the last steps in which these are known, in
    /// microseconds.
    pub parts: VecDeque<[f64; 5]>,
    /// Worker processes of the last `DataLoader` used.
    pub workers: Option<u32>,
    /// Processors available to it.
    pub cores: Option<u32>,
    /// Mean time per batch of each worker of its loaders, in microseconds.
    pub loading: BTreeMap<u32, f64>,
    /// Computation of its steps.
    pub work: Work,
    /// Reason why the wait for data is not measured.
    pub no_waits: Option<String>,
    /// Inputs of the model.
    pub model: Option<Model>,
    /// Number of trained elements.
    pub parameters: Option<u64>,
    /// Number of optimizers whose steps were counted, each after the end of the previous one.
    pub optimizers: u32,
    /// Peak GPU memory of tensors.
    pub peak_memory_bytes: Option<u64>,
    /// Memory that stays allocated between steps.
    pub held: Option<TensorMemory>,
    /// Recorded windows; if there are very many, the last ones.
    pub windows: Vec<Recorded>,
    /// Number of windows whose traces were written.
    pub written: u32,
    /// Reasons for dropped windows.
    pub dropped: Vec<String>,
    /// Reason why the last window has fewer steps than requested, if it has.
    pub shortened: Option<String>,
    /// Whether a window is open.
    pub in_window: bool,
    /// Number of closed windows.
    pub closed: u32,
    /// Number of closed windows whose traces could not be written.
    pub unwritten: u32,
    /// Times in microseconds for opening and closing windows.
    pub costs: Vec<f64>,
    /// Reason why it cannot be recorded.
    pub refused: Option<String>,
    /// Errors of the hook.
    pub faults: Vec<String>,
    /// Whether it reported its exit.
    pub exited: bool,
}

/// A step outside windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// Step number, from 1.
    pub step: u64,
    /// Time in microseconds from the end of the previous step to its own.
    pub time_us: f64,
    /// Part of it spent waiting for a `DataLoader`, in microseconds; `None` if unknown.
    pub wait_us: Option<f64>,
    /// Part of it in which `backward()` waited for other ranks, in microseconds; `None` if unknown.
    pub idle_us: Option<f64>,
}

/// A recorded window.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Window number, from 1.
    pub number: u32,
    /// First and last step.
    pub steps: (u64, u64),
    /// File name in the recording's folder.
    pub file: String,
    /// File size.
    pub bytes: u64,
    /// For a time window: kernels, lost records and length.
    pub cuda: Option<CudaWindow>,
}

/// A time window of a CUDA program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CudaWindow {
    /// Number of kernels.
    pub kernels: u64,
    /// Number of lost records.
    pub lost: u64,
    /// Length in seconds.
    pub seconds: f64,
}

/// Number of first steps to ignore if there are enough others: caches fill, allocators grow, libraries select kernels.
pub(super) const WARM_UP: u64 = 5;

/// Number of last steps, at least, for the share of time spent waiting for data; and their time in microseconds, if
/// they are short: other programs delay single steps.
pub(super) const WAITED_STEPS: usize = 50;
const WAITED_TIME_US: f64 = 10e6;
/// Number of last steps whose parts are kept: of short steps, two seconds' worth.
const PARTS_STEPS: usize = 400;

/// Share of time spent waiting for data from which the loader determines the step time.
const WAITS: f64 = 0.5;

/// Number of parts of the steps whose means show the variation of the pace.
const TENTHS: usize = 10;

/// Step times outside windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimes {
    /// Median.
    pub median: Micros,
    /// Mean.
    pub mean: Micros,
    /// Shortest and longest.
    pub range: [Micros; 2],
    /// Number of steps.
    pub count: u32,
}

impl Process {
    /// Steps outside windows, without the first ones if there are enough others.
    fn settled(&self) -> &[Timed] {
        let first = self.times.partition_point(|timed| timed.step <= WARM_UP);
        if self.times.len() - first >= 3 { &self.times[first..] } else { &self.times }
    }

    /// Mean step time, with the means of the fastest and the slowest tenth of consecutive steps. With fewer than two
    /// steps per tenth (`TENTHS`), the shortest and the longest step instead.
    pub fn pace(&self) -> Option<Range<Micros>> {
        let settled = self.settled();
        let mean = |steps: &[Timed]| steps.iter().map(|timed| timed.time_us).sum::<f64>() / steps.len() as f64;
        let count = if settled.len() < 2 * TENTHS { settled.len() } else { TENTHS };
        let from = |part: usize| part * settled.len() / count;
        let parts: Vec<f64> = (0..count).map(|part| mean(&settled[from(part)..from(part + 1)])).collect();
        let low = parts.iter().copied().min_by(f64::total_cmp)?;
        let high = parts.iter().copied().max_by(f64::total_cmp)?;
        let [low, mid, high] = [low, mean(settled), high].map(|time| Micros::new(time).ok());
        Some(Range { low: low?, mid: mid?, high: high? })
    }

    /// Wait for data and time, in microseconds, of each of the last steps in which both are known.
    fn waits(&self) -> Vec<(f64, f64)> {
        let mut passed_us = 0.0;
        let is_late = |(place, timed): &(usize, &Timed)| {
            let is_late = *place < WAITED_STEPS || passed_us < WAITED_TIME_US;
            passed_us += timed.time_us;
            is_late
        };
        let last = self.settled().iter().rev().enumerate().take_while(is_late);
        last.filter_map(|(_, timed)| Some((timed.wait_us?.min(timed.time_us), timed.time_us))).collect()
    }

    /// Mean time that one of the last steps waited for data, and their number. `None` if unknown.
    pub fn data_wait(&self) -> Option<(Micros, usize)> {
        let waits = self.waits();
        let sum: f64 = waits.iter().map(|(wait, _)| wait).sum();
        Some((Micros::new(sum / waits.len() as f64).ok()?, waits.len()))
    }

    /// Share of time that the last steps waited for data: Σ waits / Σ times. `None` if unknown.
    pub fn waiting(&self) -> Option<Waiting> {
        let known = self.waits();
        let (waits, times) = known.iter().fold((0.0, 0.0), |(waits, times), one| (waits + one.0, times + one.1));
        let steps = u32::try_from(known.len()).unwrap_or(u32::MAX);
        (times > 0.0).then(|| Waiting { share: waits / times, steps, workers: self.workers, cores: self.cores })
    }

    /// Records the time per batch of a worker of its loaders, in microseconds; of very many workers, keeps the first
    /// ones.
    pub(super) fn loading(&mut self, worker: u32, batch_us: f64) {
        let is_kept = self.loading.len() < MOST_NOTES || self.loading.contains_key(&worker);
        if is_kept && batch_us.is_finite() && batch_us >= 0.0 {
            self.loading.insert(worker, batch_us);
        }
    }

    /// Minimum step time that the workers of the loader allow: time per batch in a worker ÷ workers × batches per step.
    /// It is at most the mean step time, and equal to it if the steps waited for data most of the time. `None` without
    /// workers, with several loaders in a step, or if unknown.
    pub fn loader_period(&self) -> Option<Micros> {
        let workers = f64::from(self.workers.filter(|workers| *workers > 0)?);
        let batches = self.model.as_ref().map_or(&[][..], |model| &model.batches);
        if batches.iter().any(|batch| batch.loader != batches[0].loader) {
            return None;
        }
        let step = self.step_times()?.mean;
        if self.waiting().is_some_and(|waiting| waiting.share >= WAITS) {
            return Some(step);
        }
        let batch = median(&mut self.loading.values().copied().collect::<Vec<f64>>())?;
        let period = Micros::new(batch / workers * batches.len().max(1) as f64).ok()?;
        Some(period.min(step))
    }

    /// Median time that each of the last steps waits for other ranks; `None` if unknown.
    pub fn exchange(&self) -> Option<Exchange> {
        let settled = self.settled();
        let last = &settled[settled.len().saturating_sub(WAITED_STEPS)..];
        let known = || last.iter().filter_map(|timed| Some((timed.idle_us?.min(timed.time_us), timed.time_us)));
        let middle = |of: fn((f64, f64)) -> f64| Micros::new(median(&mut known().map(of).collect::<Vec<_>>())?).ok();
        Some(Exchange { waiting: middle(|it| it.0)?, step: middle(|it| it.1)? })
    }

    /// Whether the trace of a closed window is being written.
    pub fn is_writing(&self) -> bool {
        !self.exited && self.closed > self.written.saturating_add(self.unwritten)
    }

    /// Times of steps outside windows, without the first ones if there are enough others.
    pub fn step_times(&self) -> Option<StepTimes> {
        let mut times: Vec<f64> = self.settled().iter().map(|timed| timed.time_us).collect();
        let median = median(&mut times)?;
        let (first, last) = (*times.first()?, *times.last()?);
        Some(StepTimes {
            median: Micros::new(median).ok()?,
            mean: Micros::new(times.iter().sum::<f64>() / times.len() as f64).ok()?,
            range: [Micros::new(first).ok()?, Micros::new(last).ok()?],
            count: u32::try_from(times.len()).unwrap_or(u32::MAX),
        })
    }
}

impl Model {
    /// The same with texts and shapes limited to a useful length.
    pub(super) fn bounded(mut self) -> Self {
        for text in [&mut self.module, &mut self.opaque, &mut self.autocast] {
            *text = text.as_deref().map(short);
        }
        self.leads.truncate(LONGEST);
        self.batches.truncate(LONGEST);
        self.inputs.truncate(LONGEST);
        for input in &mut self.inputs {
            input.dtype = short(&input.dtype);
            input.shape.truncate(LONGEST);
        }
        self
    }
}

impl Process {
    /// Records that message `number` came from process `pid`.
    pub(super) fn hear_at(&mut self, pid: u32, number: u64) {
        self.pid = pid;
        if !(self.has_torch || self.has_cuda) || self.heard[0] == 0 {
            self.heard[0] = number;
        }
        self.heard[1] = number;
    }

    pub(super) fn greet(&mut self, hello: &Hello) {
        self.has_torch |= hello.stage == Stage::Torch;
        self.has_cuda |= hello.stage == Stage::Cuda;
        self.python = hello.python.as_deref().map(short).or(self.python.take());
        self.torch = hello.torch.as_deref().map(short).or(self.torch.take());
        self.rank = hello.rank.or(self.rank);
    }

    /// Adds the times of steps from the step `first` on, with the waits for data and for other ranks, in microseconds.
    /// Waits in a validation are not for training data, and the time of a save is not the training's.
    pub(super) fn add_steps(&mut self, first: u64, times_us: &[f64], [waits_us, idle_us]: [&[f64]; 2], parts: &Parts) {
        let is_time = |time: &f64| time.is_finite() && *time >= 0.0;
        let of_each = |part: &[f64], at: usize| {
            let part = if part.len() == times_us.len() { part } else { &[] };
            part.get(at).copied().filter(is_time)
        };
        let timed = (first..).zip(times_us.iter().enumerate()).filter(|(_, (_, time))| is_time(time));
        self.times.extend(timed.map(|(step, (at, &time_us))| Timed {
            step,
            time_us,
            wait_us: of_each(waits_us, at).filter(|_| !parts.is_aside(step, time_us)),
            idle_us: of_each(idle_us, at),
        }));
        if self.times.len() > MOST_TIMES {
            self.times.drain(..self.times.len() - MOST_TIMES / 2);
            // One message may hold half a million.
            self.times.shrink_to(MOST_TIMES);
        }
        self.steps = self.steps.max(self.times.last().map_or(0, |timed| timed.step));
    }

    /// Adds the parts of those steps that have them.
    pub(super) fn add_parts(&mut self, first: u64, times_us: &[f64], waits_us: &[f64], parts: &Parts) {
        let every = usize::try_from(parts.every).unwrap_or(usize::MAX).max(1);
        let of_step = |(place, forward): (usize, &f64)| {
            let at = place.checked_mul(every)?;
            let time = *times_us.get(at)?;
            if parts.is_aside(first.saturating_add(at as u64), time) {
                return None;
            }
            let (backward, optimizer) = (*parts.backward_us.get(place)?, *parts.optimizer_us.get(place)?);
            Some([time, waits_us.get(at).copied().unwrap_or(0.0), *forward, backward, optimizer])
        };
        let known = parts.forward_us.iter().enumerate().filter_map(of_step);
        self.parts.extend(known.filter(|values| values.iter().all(|value| value.is_finite() && *value >= 0.0)));
        self.parts.drain(..self.parts.len().saturating_sub(PARTS_STEPS));
    }

    /// Whether what it trains is known to be in the machine's memory, not on a GPU.
    pub fn is_on_cpu(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.device == "cpu")
    }

    /// Split of the time of the last steps that trained and did nothing long beside it; `None` if it is unknown.
    pub fn split(&self) -> Option<Split> {
        let own = |values: &[f64; 5]| values[0] - values[1];
        let usual = median(&mut self.parts.iter().map(own).collect::<Vec<_>>())?;
        let steps = || self.parts.iter().filter(|values| own(values) <= PAUSE * usual);
        let mean = |at: usize| Micros::new(steps().map(|values| values[at]).sum::<f64>() / steps().count() as f64).ok();
        Some(Split { step: mean(0)?, input: mean(1)?, forward: mean(2)?, backward: mean(3)?, optimizer: mean(4)? })
    }

    /// Adds a pause of the training for opening or closing a window; of very many, the last ones are summed.
    fn add_cost(&mut self, cost_us: f64) {
        if self.costs.len() < MOST_NOTES {
            self.costs.push(cost_us);
        } else if let Some(last) = self.costs.last_mut() {
            *last += cost_us;
        }
    }

    /// Handles a state change of a window.
    pub(super) fn window(&mut self, window: Window) {
        match window {
            Window::Opened { step, cost_us, note } => {
                self.steps = self.steps.max(step);
                self.shortened = note.as_deref().map(short);
                self.in_window = true;
                self.add_cost(cost_us);
            }
            Window::Closed { step, cost_us, parameters, optimizers, rank, peak_memory_bytes, held } => {
                self.steps = self.steps.max(step);
                self.in_window = false;
                self.closed = self.closed.saturating_add(1);
                self.add_cost(cost_us);
                self.parameters = Some(parameters);
                self.optimizers = optimizers;
                self.rank = rank.or(self.rank);
                self.peak_memory_bytes = peak_memory_bytes.or(self.peak_memory_bytes);
                self.held = held.map(|held| TensorMemory { device: short(&held.device), ..held }).or(self.held.take());
            }
            Window::Written { number, first, last, file, bytes, kernels, lost, seconds, .. } => {
                self.steps = self.steps.max(last);
                // Only a plain name within the folder is accepted, whatever the message contains.
                if !file.contains('/') && !file.is_empty() && !file.starts_with('.') && file.len() < LONGEST {
                    let cuda = seconds.map(|seconds| CudaWindow { kernels, lost, seconds });
                    self.written = self.written.saturating_add(1);
                    if self.windows.len() >= MOST_NOTES {
                        self.windows.remove(0);
                    }
                    self.windows.push(Recorded { number, steps: (first, last), file, bytes, cuda });
                    self.windows.sort_by_key(|window| window.number);
                }
            }
            Window::Dropped { step, reason, number } => {
                self.steps = self.steps.max(step);
                self.unwritten = self.unwritten.saturating_add(u32::from(number.is_some()));
                self.in_window = false;
                keep(&mut self.dropped, short(&reason));
            }
        }
    }
}
