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
const PAUSE: f64 = 5.0;
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
                self.add(pid, after.into_iter().collect());
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
            let kind = self.kind(step, time, f64::from(own.input), parts);
            steps.push(Step { step, at: self.last, kind, total: time as f32, parts: own });
        }
        steps
    }

    /// A validation or a checkpoint that took `time` microseconds after the last step; `None` if it is neither.
    fn after(&mut self, step: u64, time: f64, work: &messages::Parts) -> Option<Step> {
        let as_step = self.usual.filter(|_| time.is_finite() && time >= 0.0)? + time;
        let kind = self.kind(step, as_step, f64::NAN, work);
        let at = self.last.saturating_add((time / 1e5) as u32);
        let is_known = matches!(kind, Kind::Validation | Kind::Checkpoint);
        is_known.then_some(Step { step, at, kind, total: time as f32, parts: Parts::default() })
    }

    /// Work of a step, from its time and its batches and saves.
    fn kind(&mut self, step: u64, time: f64, input: f64, parts: &messages::Parts) -> Kind {
        if step <= FIRST {
            return Kind::Other;
        }
        let find = |of: &[(u64, u64)]| of.iter().find(|(number, _)| *number == step).map(|(_, count)| *count);
        let batches = find(&parts.other_batches).or(parts.batches);
        let saved = parts.saved_us.iter().find(|(number, _)| *number == step).map_or(0.0, |(_, saved)| *saved);
        let kind = match self.usual {
            Some(usual) if time >= LONGER * usual => {
                let more = time - usual;
                // Batches are reported from the first one on.
                let has_more = batches.is_some_and(|batches| batches > self.batches.unwrap_or(0));
                let waited = if input.is_nan() { 0.0 } else { input };
                if saved >= SAVED * more {
                    Kind::Checkpoint
                } else if has_more {
                    Kind::Validation
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
        kind
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
mod tests {
    use super::*;

    /// Reports of steps of 100 ms each, one a second; `change` changes them.
    fn gathered(steps: u64, change: impl Fn(u64, &mut f64, &mut messages::Parts)) -> Vec<(Level, Vec<u8>)> {
        let mut gather = Gather::default();
        let mut now = 0.0;
        let mut all = Vec::new();
        for first in (2..=steps).step_by(10) {
            let mut parts = messages::Parts { batches: Some(1), every: 1, ..messages::Parts::default() };
            let mut times_us = vec![1e5; 10];
            for (step, time) in (first..).zip(&mut times_us) {
                change(step, time, &mut parts);
            }
            parts.forward_us = vec![2e4; 10];
            parts.backward_us = vec![5e4; 10];
            parts.optimizer_us = vec![1e4; 10];
            now += times_us.iter().sum::<f64>() / 1e6;
            let (parts, waits_us) = (Box::new(parts), vec![]);
            let message = Message::Steps { first, times_us, waits_us, workers: None, idle_us: vec![], parts };
            gather.hear(7, &message, Duration::from_secs_f64(now));
            all.extend(gather.due());
        }
        gather.end();
        all.extend(gather.due());
        all
    }

    fn stretches(all: &[(Level, Vec<u8>)], level: Level) -> Vec<Stretch> {
        all.iter().filter(|(of, _)| *of == level).map(|(_, bytes)| Stretch::from_bytes(bytes).unwrap()).collect()
    }

    fn kinds(all: &[(Level, Vec<u8>)]) -> Vec<(u64, Kind)> {
        let steps = all.iter().filter(|(level, _)| *level == Level::Steps);
        let steps = steps.map(|(_, bytes)| Step::from_bytes(bytes).unwrap());
        steps
            .filter(|step| step.step > FIRST && step.kind != Kind::Training)
            .map(|step| (step.step, step.kind))
            .collect()
    }

    #[test]
    fn steps_become_minutes_and_hours() {
        let all = gathered(80_001, |_, _, _| ());
        let (minutes, hours) = (stretches(&all, Level::Minutes), stretches(&all, Level::Hours));
        assert_eq!((minutes.len(), hours.len()), (134, 3));
        for list in [&minutes, &hours] {
            assert_eq!(list.iter().map(Stretch::all_steps).sum::<u64>(), 80_000);
            assert!(list.windows(2).all(|pair| pair[0].to <= pair[1].from && pair[0].first < pair[1].first));
        }
        assert!((minutes[5].total[1] - 1e5).abs() < 1.0 && (hours[1].parts.backward - 5e4).abs() < 1.0);
        assert_eq!(all.iter().filter(|(level, _)| *level == Level::Steps).count(), 80_000);
    }

    #[test]
    fn validations_checkpoints_and_pauses_are_told_from_training() {
        let all = gathered(400, |step, time, parts| match step {
            // A validation of 20 batches, one of them with a checkpoint that takes a little more.
            100 | 200 => {
                *time = 2e6;
                parts.other_batches.push((step, 21));
            }
            150 => {
                *time = 1e6;
                parts.saved_us.push((step, 8e5));
            }
            // Another process took the machine; and a step that is slow, as some are.
            300 => *time = 9e5,
            350 => *time = 2e5,
            _ => {}
        });
        let told = [(100, Kind::Validation), (150, Kind::Checkpoint), (200, Kind::Validation), (300, Kind::Other)];
        assert_eq!(kinds(&all), told);
        let minute = crate::live::history::total(stretches(&all, Level::Minutes)).unwrap();
        assert_eq!(minute.aside.map(|(count, _)| count), [2, 1, 5]);
        assert!(minute.total[2] <= 2e5, "none of them is in the training's times");
    }

    #[test]
    fn what_follows_the_last_step_counts_if_it_is_a_validation_or_a_save() {
        let after = |batches, saved_us| {
            let mut gather = Gather::default();
            let parts = Box::new(messages::Parts { batches: Some(1), ..messages::Parts::default() });
            let (times_us, waits_us) = (vec![1e5; 50], vec![]);
            let steps = Message::Steps { first: 2, times_us, waits_us, workers: None, idle_us: vec![], parts };
            gather.hear(7, &steps, Duration::from_secs(5));
            let (other_batches, saved_us) = (vec![(51, batches)], vec![(51, saved_us)]);
            let parts = Box::new(messages::Parts { other_batches, saved_us, ..messages::Parts::default() });
            let after = Message::After { step: 51, time_us: 2e6, parts };
            gather.hear(7, &after, Duration::from_secs(9));
            gather.hear(7, &Message::Exit { steps: 51, backward_passes: 0 }, Duration::from_secs(9));
            crate::live::history::total(stretches(&gather.due(), Level::Minutes)).unwrap()
        };
        let (validation, save) = (after(20, 0.0), after(0, 1.5e6));
        assert_eq!([validation, save].map(|one| (one.to, one.last, one.steps)), [(70, 51, 46); 2]);
        assert_eq!((validation.aside[0], save.aside[1]), ((1, 2.0), (1, 2.0)));
        assert_eq!(after(1, 1e4).to, 50, "a batch that no step followed");
    }

    #[test]
    fn long_steps_at_irregular_distances_are_noise_and_periodic_ones_are_work() {
        // About every seventh step another program has the processor meanwhile.
        let noise = |step: u64| (step * step + step / 7) % 7 == 3;
        let all = gathered(4001, |step, time, _| *time = if noise(step) { 8e5 } else { 1e5 });
        let found = kinds(&all);
        assert!(found.len() <= 2 * GAPS.1, "only until the pattern is known: {found:?}");
        let whole = crate::live::history::total(stretches(&all, Level::Minutes)).unwrap();
        let share = (6..=4001).filter(|step| noise(*step)).count() as f64 / 3996.0;
        let mean = 1e5 + share * 7e5;
        assert!((f64::from(whole.total[1]) / mean - 1.0).abs() < 0.02, "they are in the mean: {whole:?}, {mean}");
        // Work that a loop repeats every ten steps is counted apart.
        let all = gathered(4001, |step, time, _| *time = if step % 10 == 0 { 8e5 } else { 1e5 });
        assert_eq!(kinds(&all).len(), 400);
        // And two such things together, whose distances are 10, 5, 5 and 10 steps.
        let all = gathered(4001, |step, time, _| {
            *time += if step % 10 == 0 { 12e5 } else { 0.0 } + if step % 25 == 0 { 16e5 } else { 0.0 };
        });
        assert_eq!(kinds(&all).len(), 480);
        // Evaluations every sixty steps, beside noise that takes less.
        let all = gathered(4001, |step, time, _| {
            *time = if step % 60 == 0 {
                6e6
            } else if noise(step) {
                8e5
            } else {
                1e5
            }
        });
        let found = kinds(&all);
        let evaluations = (1..=66).filter(|number| found.contains(&(60 * number, Kind::Other))).count();
        assert!(evaluations == 66 && found.len() <= 66 + 2 * GAPS.1, "{evaluations}: {found:?}");
    }

    #[test]
    fn a_slower_machine_is_not_a_pause_for_ever() {
        let all = gathered(2000, |step, time, _| *time = if step > 1000 { 3e5 } else { 1e5 });
        assert_eq!(kinds(&all), []);
        let all = gathered(2000, |step, time, _| *time = if step > 1000 { 9e5 } else { 1e5 });
        assert_eq!(kinds(&all).len(), STRANGE as usize);
    }

    #[test]
    fn other_processes_take_no_room() {
        let mut gather = Gather::default();
        let steps = |first: u64| Message::Steps {
            first,
            times_us: vec![100.0; 3],
            waits_us: vec![],
            workers: None,
            idle_us: vec![],
            parts: Box::default(),
        };
        let exit = Message::Exit { steps: 0, backward_passes: 0 };
        for pid in 1..=2 * MOST as u32 {
            // Helpers that end, and processes that train one after the other.
            gather.hear(pid, &exit, Duration::ZERO);
            gather.hear(10_000 + pid, &steps(6), Duration::from_secs(1));
            gather.hear(10_000 + pid, &exit, Duration::from_secs(1));
        }
        gather.hear(7, &steps(6), Duration::from_secs(2));
        gather.end();
        let minutes = stretches(&gather.due(), Level::Minutes);
        assert_eq!(minutes.len(), 2 * MOST + 1);
    }

    #[test]
    fn the_steps_kept_one_by_one_are_those_of_the_first_rank() {
        let mut gather = Gather::default();
        let world = |rank| Message::World(messages::World { rank: Some(rank), size: 2, group: "g".into() });
        let steps = |first: u64| Message::Steps {
            first,
            times_us: vec![100.0; 3],
            waits_us: vec![1.0; 3],
            workers: None,
            idle_us: vec![30.0; 3],
            parts: Box::default(),
        };
        for (pid, rank, first) in [(2, 1, 60), (1, 0, 6)] {
            gather.hear(pid, &world(rank), Duration::ZERO);
            gather.hear(pid, &steps(first), Duration::from_secs(1));
        }
        gather.busy([0.5, 1.0].into_iter());
        gather.end();
        let all = gather.due();
        let one_by_one = all.iter().filter(|(level, _)| *level == Level::Steps);
        let one_by_one: Vec<u64> = one_by_one.map(|(_, bytes)| Step::from_bytes(bytes).unwrap().step).collect();
        assert_eq!(one_by_one, [6, 7, 8]);
        let minutes = stretches(&all, Level::Minutes);
        assert_eq!(minutes.iter().map(|minute| minute.rank).collect::<Vec<_>>(), [Some(0), Some(1)]);
        assert_eq!(minutes[0].own(), Some(69.0));
        assert!(minutes[0].busy == 0.75 && minutes[1].busy.is_nan(), "the GPUs are those of the machine");
    }
}
