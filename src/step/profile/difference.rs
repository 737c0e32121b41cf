//! Compares two steps and attributes the difference to their parts.
//!
//! The steps may be predictions of one recording on two GPUs (`prediction/difference.rs`), or two recordings, whose parts
//! are matched here. The rest of a step is the time outside of its parts, so the changes of all parts and of the rest
//! add up exactly to the change of the step.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::breakdown::{Breakdown, Entry, GroupBy};
use super::{Operation, Phase, Profile};
use habitat_base::units::Micros;

/// Difference between two steps, second minus first.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference<'a, S> {
    /// The compared steps.
    pub steps: [&'a S; 2],
    /// Times of the two steps.
    pub totals: [Micros; 2],
    /// Parts by their share of the difference, largest first; empty if no times of parts are known.
    pub parts: Vec<Changed>,
    /// Time of each step outside of its parts, in microseconds: waiting for the host, minus concurrent work. Negative
    /// if more work runs concurrently than the step waits.
    pub rest: [f64; 2],
}

/// A part of both steps, such as all occurrences of one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// Name of the part.
    pub name: String,
    /// Phase, if all of the part has the same one.
    pub phase: Option<Phase>,
    /// Occurrences in each step (for kernels, launches).
    pub counts: [u64; 2],
    /// Total device time in each step in microseconds; unknown times count as zero.
    pub times: [f64; 2],
    /// Number of occurrences with unknown time in one of the steps.
    pub unknown: u64,
    /// How the two sides were matched.
    pub matched: Match,
    /// Indices into the operations of each step.
    pub operations: [Vec<usize>; 2],
}

impl Changed {
    /// Increase in time in the second step, in microseconds.
    pub fn change(&self) -> f64 {
        self.times[1] - self.times[0]
    }
}

/// How the two sides of a part were matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Match {
    /// Identical.
    #[default]
    Same,
    /// Same name and phase, but different shapes or element type.
    OtherShapes,
    /// Missing in the second step.
    OnlyFirst,
    /// Missing in the first step.
    OnlySecond,
}

impl Match {
    /// Name in files.
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
    /// Difference of two steps with these parts.
    pub fn new(steps: [&'a S; 2], totals: [Micros; 2], mut parts: Vec<Changed>) -> Self {
        if parts.iter().all(|part| part.times == [0.0; 2]) {
            parts.clear();
        }
        parts.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()).then_with(|| a.name.cmp(&b.name)));
        let rest =
            [0, 1].map(|step: usize| parts.iter().fold(totals[step].get(), |rest, part| rest - part.times[step]));
        Self { steps, totals, parts, rest }
    }

    /// Increase of the second step as a share of the first; `None` if the first takes no time.
    pub fn share(&self) -> Option<f64> {
        let [first, second] = self.totals.map(Micros::get);
        (first > 0.0).then(|| second / first - 1.0)
    }
}

/// Recorded steps of each recording from which a median is compared with the other's steps: of equal steps, the five
/// longest of 18 are in the same recording in 1.5 % of cases.
pub const MANY: u32 = 9;

/// Whether two recorded steps differ by more than the steps within one recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Every recorded step of one is longer than every step of the other, or half of at least [`MANY`] are.
    Beyond,
    /// The recorded steps overlap, so the difference may be chance.
    Within,
    /// One of the recordings has a single step or does not report the spread of its steps.
    Unknown,
}

impl Spread {
    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Beyond => "beyond",
            Self::Within => "within",
            Self::Unknown => "unknown",
        }
    }
}

/// Reason why a recording cannot be compared by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotMeasured {
    /// The step as a whole was not timed.
    #[error("no step time was measured on a GPU")]
    Step,
    /// Its operations were not timed.
    #[error("its operations were not timed one by one on a GPU")]
    Operations,
}

/// Checks that a recording has the times that a comparison needs.
///
/// # Errors
/// [`NotMeasured`] with the missing measurement.
pub(crate) fn check_measured(profile: &Profile) -> Result<(), NotMeasured> {
    if profile.measured_step().is_none() {
        return Err(NotMeasured::Step);
    }
    let is_timed = profile.total_device_time().get() > 0.0;
    if is_timed { Ok(()) } else { Err(NotMeasured::Operations) }
}

impl<'a> Difference<'a, Profile> {
    /// Difference of two recordings, in the parts of a grouping; `family` as for [`Breakdown::entries`].
    ///
    /// # Errors
    /// Index of the recording without times, and the missing measurement.
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

    /// Whether the steps differ by more than those within one recording.
    pub fn spread(&self) -> Spread {
        let [Some(first), Some(second)] = self.steps.map(spread) else { return Spread::Unknown };
        let [one, other] = self.steps.map(|profile| profile.step.as_ref()?.duration.map(Micros::get));
        let are_few = |profile: &Profile| profile.step.as_ref().and_then(|step| step.samples).is_none_or(|n| n < MANY);
        let is_in = |time: Option<f64>, [low, high]: [Micros; 2]| {
            time.is_none_or(|time| low.get() <= time && time <= high.get())
        };
        let overlap = first[0].get() <= second[1].get() && second[0].get() <= first[1].get();
        let is_within = self.steps.into_iter().any(are_few) || is_in(one, second) && is_in(other, first);
        if overlap && is_within { Spread::Within } else { Spread::Beyond }
    }
}

/// Shortest and longest recorded step, if there were several.
pub fn spread(profile: &Profile) -> Option<[Micros; 2]> {
    let step = profile.step.as_ref()?;
    step.duration_range.filter(|_| step.samples.is_none_or(|samples| samples > 1))
}

/// Matched entries of two breakdowns; at least one is present.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Entry of each recording.
    pub entries: [Option<Entry>; 2],
    /// How they were matched.
    pub matched: Match,
}

/// Entries of two recordings in a grouping, matched with each other; `phase` and `family` as for
/// [`Breakdown::entries`].
///
/// Operations match by name, phase, shapes and element type, whatever their modules and other arguments; by name and
/// phase only if one recording has no shapes. Operations without a match by shape are aligned with those of the same
/// name and phase, both in order of first occurrence, so that as many extents as possible agree. A different batch size
/// changes all shapes but not the order, and an additional layer leaves the other matches intact.
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

/// Merges entries with the same signature.
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

/// Maximum number of pairs to compare; beyond it, entries are matched by position.
const MOST_COMPARED: usize = 1_000_000;

/// Aligns entries of one name: the longest common subsequence, weighted by the agreement of extents.
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
    // best[row][column]: best score from there to the end.
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
        // Among equals, match the first.
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

/// Share of extents that two operations have in common, 0 to 1.
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
