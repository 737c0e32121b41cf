//! Two steps compared: which of their parts make one longer than the other.
//!
//! The steps may be predictions of one recording on two GPUs (`predict/difference.rs`), or two
//! recordings, whose parts are matched here. What the parts do not take of a step is its rest, so
//! that the changes of all parts and of the rest are exactly the change of the step.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::breakdown::{Breakdown, Entry, GroupBy};
use super::{Operation, Phase, Profile};
use habitat_base::units::Micros;

/// Two steps, the second compared with the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference<'a, S> {
    /// What is compared.
    pub steps: [&'a S; 2],
    /// The times of the two steps.
    pub totals: [Micros; 2],
    /// The parts, by what they add to the difference, the most first; empty where nothing is known
    /// of single parts.
    pub parts: Vec<Changed>,
    /// What of each step is no part's time: waiting for the host, less what runs side by side.
    /// Microseconds; below zero where more runs side by side than is waited for.
    pub rest: [f64; 2],
}

/// A part of both steps, such as all occurrences of one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// Its name.
    pub name: String,
    /// Its phase, where all of it is in one.
    pub phase: Option<Phase>,
    /// Occurrences in each step (launches, of kernels).
    pub counts: [u64; 2],
    /// Device time of all of them in each step, microseconds; what is not known counts nothing.
    pub times: [f64; 2],
    /// Occurrences of which nothing is known in one of the steps.
    pub unknown: u64,
    /// How the two sides belong together.
    pub matched: Match,
    /// Indexes into the operations of each step.
    pub operations: [Vec<usize>; 2],
}

impl Changed {
    /// By how much it takes longer in the second step, microseconds.
    pub fn change(&self) -> f64 {
        self.times[1] - self.times[0]
    }
}

/// How the two sides of a part belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Match {
    /// They are the same.
    #[default]
    Same,
    /// They have one name and phase, and other shapes or another element type.
    OtherShapes,
    /// There is none in the second step.
    OnlyFirst,
    /// There is none in the first step.
    OnlySecond,
}

impl Match {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::OtherShapes => "other-shapes",
            Self::OnlyFirst => "only-first",
            Self::OnlySecond => "only-second",
        }
    }
}

impl<'a, S> Difference<'a, S> {
    /// Of two steps of which these are the parts.
    pub fn new(steps: [&'a S; 2], totals: [Micros; 2], mut parts: Vec<Changed>) -> Self {
        if parts.iter().all(|part| part.times == [0.0; 2]) {
            parts.clear();
        }
        parts.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()).then_with(|| a.name.cmp(&b.name)));
        let rest =
            [0, 1].map(|step: usize| parts.iter().fold(totals[step].get(), |rest, part| rest - part.times[step]));
        Self { steps, totals, parts, rest }
    }

    /// By how much the second step is longer, as a share of the first; `None` where that takes no time.
    pub fn share(&self) -> Option<f64> {
        let [first, second] = self.totals.map(Micros::get);
        (first > 0.0).then(|| second / first - 1.0)
    }
}

/// Whether two recorded steps differ by more than the steps of one recording do among themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Every recorded step of one is longer than every one of the other.
    Beyond,
    /// They overlap, so the difference may be chance.
    Within,
    /// One of the recordings has a single step, or does not say how its steps differ.
    Unknown,
}

impl Spread {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Beyond => "beyond",
            Self::Within => "within",
            Self::Unknown => "unknown",
        }
    }
}

/// Why a recording cannot be compared by its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotMeasured {
    /// The whole step was not timed.
    #[error("no step time was measured on a GPU")]
    Step,
    /// Its operations were not timed.
    #[error("its operations were not timed one by one on a GPU")]
    Operations,
}

/// Whether a recording has the times that a comparison needs.
///
/// # Errors
/// [`NotMeasured`] says what it lacks.
pub fn check_measured(profile: &Profile) -> Result<(), NotMeasured> {
    if profile.measured_step().is_none() {
        return Err(NotMeasured::Step);
    }
    let is_timed = profile.total_device_time().get() > 0.0;
    if is_timed { Ok(()) } else { Err(NotMeasured::Operations) }
}

impl<'a> Difference<'a, Profile> {
    /// Of two recordings, in the parts of a grouping; `family` as for [`Breakdown::entries`].
    ///
    /// # Errors
    /// The place of the recording without times, and what it lacks.
    pub fn of_recordings(
        steps: [&'a Profile; 2],
        by: GroupBy,
        family: impl Fn(&Operation) -> &'static str,
    ) -> Result<Self, (usize, NotMeasured)> {
        for (place, profile) in steps.iter().enumerate() {
            check_measured(profile).map_err(|lacks| (place, lacks))?;
        }
        let totals = steps.map(|profile| profile.measured_step().unwrap_or_default());
        let part = |pair: Pair| {
            let sides = [pair.entries[0].as_ref(), pair.entries[1].as_ref()];
            let mut known = sides.into_iter().flatten();
            let (name, phase) = known.next().map(|entry| (entry.label.clone(), entry.phase)).unwrap_or_default();
            Changed {
                name,
                phase: phase.filter(|phase| known.all(|entry| entry.phase == Some(*phase))),
                counts: sides.map(|side| side.map_or(0, |entry| entry.count)),
                times: sides.map(|side| side.map_or(0.0, |entry| entry.time.get())),
                unknown: 0,
                matched: pair.matched,
                operations: sides.map(|side| side.map(|entry| entry.operations.clone()).unwrap_or_default()),
            }
        };
        Ok(Self::new(steps, totals, pairs(steps, by, None, family).into_iter().map(part).collect()))
    }

    /// Whether the steps differ by more than those of one recording do.
    pub fn spread(&self) -> Spread {
        match self.steps.map(spread) {
            [Some([_, high]), Some([low, _])] | [Some([low, _]), Some([_, high])] if high.get() < low.get() => {
                Spread::Beyond
            }
            [Some(_), Some(_)] => Spread::Within,
            _ => Spread::Unknown,
        }
    }
}

/// The shortest and the longest of the recorded steps, where there were several.
pub fn spread(profile: &Profile) -> Option<[Micros; 2]> {
    let step = profile.step.as_ref()?;
    step.duration_range.filter(|_| step.samples.is_none_or(|samples| samples > 1))
}

/// Entries of two breakdowns that belong together; one of them is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The entry of each recording.
    pub entries: [Option<Entry>; 2],
    /// How they belong together.
    pub matched: Match,
}

/// The entries of two recordings in a grouping, matched with each other; `phase` and `family` as for
/// [`Breakdown::entries`].
///
/// Operations are those of one name, phase, shapes and element type, whatever their modules and other
/// arguments; where one recording has no shapes, those of one name and phase. What finds none of its own shapes goes with one of its name and phase, both in the order
/// in which they first occur, so that as many extents as possible agree: a change of the batch size
/// changes all shapes and no order, and a layer more or less leaves the others together.
pub fn pairs(
    steps: [&Profile; 2],
    by: GroupBy,
    phase: Option<Phase>,
    family: impl Fn(&Operation) -> &'static str,
) -> Vec<Pair> {
    let shaped = steps.into_iter().all(has_shapes);
    let signature = |operation: &Operation| {
        let of_shapes = shaped.then_some((&operation.inputs, &operation.dtype));
        format!("{:?}", (&operation.name, operation.phase, of_shapes))
    };
    let [first, second] = steps.map(|profile| {
        let entries = Breakdown::entries(profile, by, phase, &family);
        if by == GroupBy::Operation { merged(profile, entries, signature) } else { entries }
    });
    let key = |step: usize, entry: &Entry| match (by, entry.operations.first()) {
        (GroupBy::Operation, Some(&at)) => signature(&steps[step].operations[at]),
        _ => entry.label.clone(),
    };
    let mut of_key: HashMap<String, VecDeque<Entry>> = HashMap::new();
    for entry in second {
        of_key.entry(key(1, &entry)).or_default().push_back(entry);
    }
    let mut found = Vec::new();
    let mut left: BTreeMap<(String, Option<Phase>), [Vec<Entry>; 2]> = BTreeMap::new();
    let name = |entry: &Entry| (entry.label.clone(), entry.phase);
    for entry in first {
        match of_key.get_mut(&key(0, &entry)).and_then(VecDeque::pop_front) {
            Some(other) => found.push(Pair { entries: [Some(entry), Some(other)], matched: Match::Same }),
            None => left.entry(name(&entry)).or_default()[0].push(entry),
        }
    }
    for entry in of_key.into_values().flatten() {
        left.entry(name(&entry)).or_default()[1].push(entry);
    }
    for mut sides in left.into_values() {
        for side in &mut sides {
            side.sort_by_key(|entry| entry.operations.first().copied());
        }
        let aligned = if by == GroupBy::Operation { aligned(steps, &sides) } else { Vec::new() };
        let mut sides = sides.map(|side| side.into_iter().map(Some).collect::<Vec<_>>());
        for [one, other] in aligned {
            let entries = [sides[0][one].take(), sides[1][other].take()];
            found.push(Pair { entries, matched: Match::OtherShapes });
        }
        let [only_first, only_second] = sides.map(|side| side.into_iter().flatten());
        found.extend(only_first.map(|entry| Pair { entries: [Some(entry), None], matched: Match::OnlyFirst }));
        found.extend(only_second.map(|entry| Pair { entries: [None, Some(entry)], matched: Match::OnlySecond }));
    }
    found
}

/// Whether shapes were recorded.
pub fn has_shapes(profile: &Profile) -> bool {
    profile.operations.iter().any(|operation| !operation.inputs.is_empty())
}

/// Entries of one signature as one.
fn merged(profile: &Profile, entries: Vec<Entry>, signature: impl Fn(&Operation) -> String) -> Vec<Entry> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut merged: Vec<Entry> = Vec::new();
    for entry in entries {
        let signature = entry.operations.first().map(|&at| signature(&profile.operations[at])).unwrap_or_default();
        if let Some(same) = places.get(&signature).map(|&place| &mut merged[place]) {
            same.time += entry.time;
            same.share += entry.share;
            same.count += entry.count;
            same.operations.extend(entry.operations);
        } else {
            places.insert(signature, merged.len());
            merged.push(entry);
        }
    }
    for entry in &mut merged {
        entry.operations.sort_unstable();
    }
    merged.sort_by(|a, b| b.time.total_cmp(&a.time).then_with(|| a.label.cmp(&b.label)));
    merged
}

/// Pairs of places compared at most, before those of one place are taken for the same.
const MOST_COMPARED: usize = 1_000_000;

/// Which entries of one name go together: the longest common subsequence, in which two that agree in
/// more extents count for more.
fn aligned(steps: [&Profile; 2], sides: &[Vec<Entry>; 2]) -> Vec<[usize; 2]> {
    let [rows, columns] = [sides[0].len(), sides[1].len()];
    if rows.saturating_mul(columns) > MOST_COMPARED {
        return (0..rows.min(columns)).map(|at| [at, at]).collect();
    }
    let operation = |side: usize, at: usize| {
        sides[side][at].operations.first().map(|&operation| &steps[side].operations[operation])
    };
    let alike = |one: usize, other: usize| {
        operation(0, one).zip(operation(1, other)).map_or(1.0, |(one, other)| 1.0 + agreement(one, other))
    };
    // best[row][column]: what is reached from there on.
    let mut best = vec![vec![0.0_f64; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            let together = alike(row, column) + best[row + 1][column + 1];
            best[row][column] = together.max(best[row + 1][column]).max(best[row][column + 1]);
        }
    }
    let (mut row, mut column, mut found) = (0, 0, Vec::new());
    while row < rows && column < columns {
        let here = best[row][column];
        // Of equals the first go together.
        if here <= alike(row, column) + best[row + 1][column + 1] {
            found.push([row, column]);
            (row, column) = (row + 1, column + 1);
        } else if here <= best[row + 1][column] {
            row += 1;
        } else {
            column += 1;
        }
    }
    found
}

/// The share of extents that two operations have in common, 0 to 1.
fn agreement(one: &Operation, other: &Operation) -> f64 {
    let extents = |operation: &Operation| operation.inputs.iter().map(|shape| shape.len().max(1)).sum::<usize>();
    let most = extents(one).max(extents(other));
    let same: usize = one
        .inputs
        .iter()
        .zip(&other.inputs)
        .filter(|(a, b)| a.len() == b.len())
        .map(|(a, b)| if a.is_empty() { 1 } else { a.iter().zip(b).filter(|(a, b)| a == b).count() })
        .sum();
    if most == 0 { 1.0 } else { same as f64 / most as f64 }
}

#[cfg(test)]
mod tests;
