//! Gathers the history of a job from the messages of its processes: steps, minutes and hours, to be written as they
//! come.
//!
//! Times are since the start of the job by the system's monotonic clock, so that setting the machine's clock changes
//! nothing. A report of steps comes at the end of its last one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::messages::{self, Message};
use crate::live::history::{FIRST, GAPS, Kind, Level, Parts, Step, Stretch, are_irregular};
use habitat_base::regress::quantile::median;

/// Tenths of a second in a minute and in an hour.
const MINUTE: u32 = 600;
const HOUR: u32 = 36_000;
/// Most steps of a minute: half of a file of steps, so that the steps of an unfinished minute are always there.
const MOST_STEPS: u64 = 10_000;
/// Training steps behind the usual time and number of batches.
const USUAL: usize = 64;
/// Multiple of the usual time from which a step with more batches, or in which something was saved, did more than
/// train.
const LONGER: f64 = 1.5;
/// Multiple of the usual time from which any step did.
pub(super) const PAUSE: f64 = 5.0;
/// Part of the additional time that makes it the time of a save.
const SAVED: f64 = 0.2;
/// Steps in a row that took longer after which that is the usual time.
const STRANGE: u32 = 16;
/// Steps between two such steps from which they are single pauses.
const RARE: f64 = 500.0;
/// Long steps to compare a long step with (a choice).
const LONG: usize = 8 * GAPS.0;
/// Most processes that train at the same time.
const MOST: usize = 1000;

/// The history so far.
#[derive(Debug, Default)]
pub struct Gather {
    processes: BTreeMap<u32, Process>,
    /// The process whose steps are kept one by one.
    main: Option<u32>,
    /// Records to be written.
    due: Vec<(Level, Vec<u8>)>,
    /// Sum and number of utilisations of the GPUs since the last minute of the main process.
    busy: (f64, u32),
}

#[derive(Debug, Default)]
struct Process {
    rank: Option<u16>,
    ranks: u32,
    minute: Option<Stretch>,
    hour: Option<Stretch>,
    /// Times in microseconds of the last training steps.
    times: VecDeque<f64>,
    usual: Option<f64>,
    /// Steps in a row that took longer without a known reason.
    strange: u32,
    batches: Option<u64>,
    /// Numbers and times of the last long steps without a known cause.
    long: VecDeque<(u64, f64)>,
    memory: Option<(u64, u64)>,
    last: u32,
}

impl Gather {
    /// Takes in a message that came `at` this time since the start of the job.
    pub fn hear(&mut self, pid: u32, message: &Message, at: Duration) {
        match message {
            Message::World(world) => {
                let Some(process) = self.process(pid) else { return };
                process.ranks = world.size;
                process.rank = world.rank.filter(|_| world.size > 1).and_then(|rank| u16::try_from(rank).ok());
            }
            Message::Steps { first, times_us, waits_us, idle_us, parts, .. } => {
                let Some(process) = self.process(pid) else { return };
                let steps = process.steps(*first, times_us, [waits_us, idle_us], parts, tenths(at));
                self.add(pid, steps);
            }
            Message::After { step, time_us, parts } => {
                let Some(process) = self.process(pid) else { return };
                let after = process.after(*step, *time_us, parts);
                self.add(pid, after.into_iter().flatten().collect());
            }
            Message::Exit { .. } => {
                self.close(pid, true);
                self.processes.remove(&pid);
            }
            _ => {}
        }
    }

    /// The entry of a process that trains, new if there is none and there is room.
    fn process(&mut self, pid: u32) -> Option<&mut Process> {
        let is_full = self.processes.len() >= MOST;
        match self.processes.entry(pid) {
            Entry::Vacant(_) if is_full => None,
            entry => Some(entry.or_default()),
        }
    }

    /// Takes in the utilisation of the machine's GPUs, from 0 to 1.
    pub fn busy(&mut self, shares: impl Iterator<Item = f64>) {
        let (sum, count) = shares.fold((0.0, 0), |(sum, count), share| (sum + share, count + 1));
        if count > 0 {
            self.busy = (self.busy.0 + sum / f64::from(count), self.busy.1 + 1);
        }
    }

    fn add(&mut self, pid: u32, steps: Vec<Step>) {
        let is_gone = |main: u32| !self.processes.contains_key(&main);
        let rank = self.processes.get(&pid).and_then(|process| process.rank);
        if self.main.is_none_or(is_gone) && rank.is_none_or(|rank| rank == 0) {
            self.main = Some(pid);
        }
        for step in steps {
            if self.main == Some(pid) {
                self.due.push((Level::Steps, step.to_bytes()));
            }
            let Some(process) = self.processes.get_mut(&pid) else { return };
            let one = Stretch::of(&step, rank);
            if process.minute.as_ref().is_some_and(|minute| is_full(minute, step.at, MINUTE)) {
                self.close(pid, false);
            }
            let Some(process) = self.processes.get_mut(&pid) else { return };
            process.minute.get_or_insert_with(|| Stretch::empty(one.from, rank)).add(&one);
        }
    }

    /// Ends the minute of a process, and its hour if that is full or at the `end`.
    fn close(&mut self, pid: u32, end: bool) {
        let is_main = self.main == Some(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let Some(mut minute) = process.minute.take().filter(|minute| !minute.is_empty()) {
            if let Some((resident, peak)) = process.memory {
                let mebibytes = |bytes: u64| (bytes as f64 / f64::from(1 << 20)) as f32;
                minute.resident = mebibytes(resident);
                minute.peak = if peak > 0 { mebibytes(peak) } else { f32::NAN };
            }
            if is_main && self.busy.1 > 0 {
                minute.busy = (self.busy.0 / f64::from(self.busy.1)) as f32;
                self.busy = (0.0, 0);
            }
            self.due.push((Level::Minutes, minute.to_bytes()));
            let hour = process.hour.get_or_insert_with(|| Stretch::empty(minute.from, minute.rank));
            hour.add(&minute);
        }
        let hour = process.hour.take_if(|hour| end || hour.to.saturating_sub(hour.from) >= HOUR);
        self.due.extend(hour.map(|hour| (Level::Hours, hour.to_bytes())));
    }

    /// Ends all minutes and hours, at the end of the job.
    pub fn end(&mut self) {
        for pid in self.processes.keys().copied().collect::<Vec<u32>>() {
            self.close(pid, true);
        }
    }

    /// Records since the last call, in order.
    pub fn due(&mut self) -> Vec<(Level, Vec<u8>)> {
        std::mem::take(&mut self.due)
    }
}

/// Tenths of a second.
fn tenths(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / 100).unwrap_or(u32::MAX)
}

/// The records of a step in which a save took this time beside its other work: each has the `training` of the step.
fn apart(one: Step, saved: f64, training: f64) -> impl Iterator<Item = Step> {
    let save = Step { kind: Kind::Checkpoint, total: (training + saved) as f32, parts: Parts::default(), ..one };
    let rest = Step { total: one.total - saved as f32, ..one };
    std::iter::once(rest).chain((saved > 0.0).then_some(save))
}

fn is_full(stretch: &Stretch, at: u32, length: u32) -> bool {
    at.saturating_sub(stretch.from) >= length || stretch.all_steps() >= MOST_STEPS
}

impl Process {
    /// The steps of a message.
    fn steps(
        &mut self,
        first: u64,
        times_us: &[f64],
        [waits_us, idle_us]: [&[f64]; 2],
        parts: &messages::Parts,
        at: u32,
    ) -> Vec<Step> {
        self.memory = parts.memory.or(self.memory);
        let known = |of: &[f64], place: usize, most: f64| {
            let value = of.get(place).copied().filter(|value| value.is_finite() && *value >= 0.0);
            value.map_or(f32::NAN, |value| value.min(most) as f32)
        };
        let all_us: f64 = times_us.iter().copied().filter(|time| time.is_finite()).sum();
        let (mut passed_us, mut steps) = (0.0, Vec::with_capacity(times_us.len()));
        for (place, time) in times_us.iter().copied().enumerate() {
            if !time.is_finite() || time < 0.0 {
                continue;
            }
            passed_us += time;
            let step = first + place as u64;
            let each = |of: &[f64]| if of.len() == times_us.len() { known(of, place, time) } else { f32::NAN };
            let sampled = |of: &[f64]| match parts.every {
                every @ 1.. if (place as u64).is_multiple_of(every) => known(of, place / every as usize, time),
                _ => f32::NAN,
            };
            let own = Parts {
                input: each(waits_us),
                forward: sampled(&parts.forward_us),
                backward: sampled(&parts.backward_us),
                optimizer: sampled(&parts.optimizer_us),
                idle: each(idle_us),
            };
            let until_end = ((all_us - passed_us) / 1e5) as u32;
            self.last = self.last.max(at.saturating_sub(until_end));
            let (kind, saved) = self.kind(step, time, f64::from(own.input), parts);
            let one = Step { step, at: self.last, kind, total: time as f32, parts: own };
            steps.extend(apart(one, saved, self.usual.unwrap_or(0.0)));
        }
        steps
    }

    /// A validation and a checkpoint that took `time` microseconds after the last step; `None` without either.
    fn after(&mut self, step: u64, time: f64, work: &messages::Parts) -> Option<impl Iterator<Item = Step> + use<>> {
        let as_step = self.usual.filter(|_| time.is_finite() && time >= 0.0)? + time;
        let (kind, saved) = self.kind(step, as_step, f64::NAN, work);
        let at = self.last.saturating_add((time / 1e5) as u32);
        let is_known = matches!(kind, Kind::Validation | Kind::Checkpoint);
        let one = Step { step, at, kind, total: time as f32, parts: Parts::default() };
        is_known.then(|| apart(one, saved, 0.0))
    }

    /// Work of a step, from its time and its batches and saves; and the time of a save beside a validation, else 0.
    fn kind(&mut self, step: u64, time: f64, input: f64, parts: &messages::Parts) -> (Kind, f64) {
        if step <= FIRST {
            return (Kind::Other, 0.0);
        }
        let find = |of: &[(u64, u64)]| of.iter().find(|(number, _)| *number == step).map(|(_, count)| *count);
        let batches = find(&parts.other_batches).or(parts.batches);
        let saved = parts.saved_us.iter().find(|(number, _)| *number == step).map_or(0.0, |(_, saved)| *saved);
        let mut beside = 0.0;
        let kind = match self.usual {
            Some(usual) if time >= LONGER * usual => {
                let more = time - usual;
                let is_long = |time: f64| time >= (LONGER - 1.0) * usual;
                // Batches are reported from the first one on.
                let has_more = batches.is_some_and(|batches| batches > self.batches.unwrap_or(0));
                let waited = if input.is_nan() { 0.0 } else { input };
                if has_more && is_long(more - saved) {
                    beside = if is_long(saved) { saved } else { 0.0 };
                    Kind::Validation
                } else if saved >= SAVED * more {
                    Kind::Checkpoint
                } else if (saved > 0.0 || time - waited >= PAUSE * usual) && !self.is_noise(step, time) {
                    Kind::Other
                } else {
                    Kind::Training
                }
            }
            _ => Kind::Training,
        };
        if kind == Kind::Training {
            self.learn(time, batches);
        }
        self.strange = if kind == Kind::Other { self.strange + 1 } else { 0 };
        if self.strange >= STRANGE {
            // All steps take longer from now on.
            self.times.clear();
            (self.usual, self.strange) = (None, 0);
        }
        (kind, beside)
    }

    /// Whether a long step without a known cause is one of many at irregular distances, as where other programs use the
    /// processors: part of the spread of training steps. Periodic work and single pauses are not. Steps of less than
    /// half its time are of another kind, such as noise beside an evaluation.
    fn is_noise(&mut self, step: u64, time: f64) -> bool {
        self.long.drain(..self.long.len().saturating_sub(LONG - 1));
        self.long.push_back((step, time));
        let alike: Vec<u64> =
            self.long.iter().filter(|(_, other)| *other >= time / 2.0).map(|(step, _)| *step).collect();
        // Several in a row are one event, as when the machine becomes slower.
        let gaps = alike.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).filter(|gap| *gap > 1);
        let gaps: Vec<u64> = gaps.rev().take(GAPS.0).collect();
        let middle = median(&mut gaps.iter().map(|gap| *gap as f64).collect::<Vec<_>>());
        middle.is_some_and(|middle| middle < RARE) && are_irregular(&gaps)
    }

    /// Adjusts the usual time and number of batches: at first with every step, later when half of the steps are new.
    fn learn(&mut self, time: f64, batches: Option<u64>) {
        self.times.push_back(time);
        let count = self.times.len();
        if count > USUAL {
            self.times.drain(..USUAL / 2);
        }
        if count >= 3 && (count < 8 || count == USUAL / 2 || count > USUAL) {
            self.usual = median(&mut self.times.iter().copied().collect::<Vec<_>>());
            self.batches = batches.or(self.batches);
        }
    }
}

#[cfg(test)]
mod tests;
