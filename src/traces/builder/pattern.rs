//! Finds steps in a sequence of kernels, for recordings without marks.
//!
//! A kernel that runs once per step cuts the sequence into steps: every other kernel runs equally often between any two
//! of its launches. So each recurring kernel is tried as a cut and judged by how much the pieces differ: the sum over
//! pieces and kernels of the deviation of the kernel's count from its median, as a share of all launches. Some
//! difference is allowed, because programs occasionally validate, log and allocate.
//!
//! The layers of a network repeat too. A step differs from a layer in that *everything* repeats with it: no kernel runs
//! only before the first cut or after the last. The shortest pieces are chosen only if they explain the sequence as
//! well as longer ones, which also contain the kernels that run once for all layers. Therefore work that runs exactly
//! every n steps (validation every 16) makes those n steps one: kernels alone cannot distinguish it from an optimizer
//! after 16 micro-batches. Named ranges can.

use std::collections::{BTreeMap, HashMap};

use crate::{Span, StepMarks, Trace};

/// Maximum number of launches examined.
const LONGEST: usize = 200_000;
/// Maximum number of cuts to try, and of cuts with the same number of launches.
const CANDIDATES: usize = 96;
const ALIKE: usize = 3;
/// Maximum number of pieces to compare, spread over all.
const PIECES: usize = 64;
/// Allowed difference between pieces; much less if there are few.
const FEW: usize = 4;
const DIFFERENCE_OF_FEW: f64 = 0.01;
const DIFFERENCE_OF_MANY: f64 = 0.05;

/// Fractions (1/n) of a sequence that may be warm-up, and the number of steps that must follow.
const PREPARATIONS: [usize; 3] = [16, 4, 2];
const MANY: usize = 16;

/// A kernel launch: time, and the numbers of name and configuration.
pub(super) type Launch = (f64, u32, u32);

/// Steps of a trace without marks.
pub(super) fn without_marks(trace: &Trace, launches: &[Launch]) -> (Vec<Span>, StepMarks) {
    let mut numbers = HashMap::<(u32, u32), u32>::new();
    let configured: Vec<u32> = launches
        .iter()
        .map(|(_, name, shape)| {
            let new = numbers.len() as u32;
            *numbers.entry((*name, *shape)).or_insert(new)
        })
        .collect();
    // If the batch size varies, so do configurations; then only names are compared.
    let found = starts(&configured)
        .or_else(|| {
            let names: Vec<u32> = launches.iter().map(|(_, name, _)| *name).collect();
            starts(&names)
        })
        .or_else(|| starts_after_preparations(&configured));
    let starts: Option<Vec<f64>> = found.map(|starts| starts.into_iter().map(|index| launches[index].0).collect());
    // A single backward pass in the trace is one step, however regular its layers are.
    if let Some(starts) = starts
        && (!has_backward(trace) || backward_in_each(trace, &starts))
    {
        let spans = starts
            .windows(2)
            .map(|pair| Span {
                start: pair[0],
                end: pair[1],
                duration: pair[1] - pair[0],
                followed: true,
                number: None,
            })
            .collect::<Vec<_>>();
        if spans.len() >= 2 {
            return (spans, StepMarks::Pattern);
        }
    }
    whole()
}

/// Everything as one step.
pub(super) fn whole() -> (Vec<Span>, StepMarks) {
    // Host work before the first launch and after the last device work may not belong to the step, so the span of the
    // device work is the step time.
    let whole = Span { start: f64::NEG_INFINITY, end: f64::INFINITY, duration: 0.0, followed: false, number: None };
    (vec![whole], StepMarks::WholeTrace)
}

fn has_backward(trace: &Trace) -> bool {
    trace.ranges.iter().any(|host| host.of_forward)
}

fn backward_in_each(trace: &Trace, starts: &[f64]) -> bool {
    let mut times: Vec<f64> = trace.ranges.iter().filter(|host| host.of_forward).map(|host| host.start).collect();
    times.sort_by(f64::total_cmp);
    starts.windows(2).all(|pair| {
        let from = times.partition_point(|time| *time < pair[0]);
        times.get(from).is_some_and(|time| *time < pair[1])
    })
}

/// A candidate for cutting the sequence.
struct Cut<'a> {
    positions: &'a [usize],
    /// Median length of a piece.
    period: usize,
    /// Difference between pieces, 0 for none.
    difference: f64,
}

/// Starts of steps in a sequence of kernels (numbers for name and launch configuration); at least two whole steps, or
/// `None`.
fn starts(kernels: &[u32]) -> Option<Vec<usize>> {
    let kernels = &kernels[..kernels.len().min(LONGEST)];
    let mut numbers = BTreeMap::<u32, usize>::new();
    let mut positions: Vec<Vec<usize>> = Vec::new();
    let tokens: Vec<usize> = kernels
        .iter()
        .enumerate()
        .map(|(position, kernel)| {
            let next = positions.len();
            let token = *numbers.entry(*kernel).or_insert(next);
            if token == next {
                positions.push(Vec::new());
            }
            positions[token].push(position);
            token
        })
        .collect();
    let cuts: Vec<Cut<'_>> = candidates(&positions, tokens.len())
        .into_iter()
        .filter_map(|(cuts, period)| {
            let difference = difference(&tokens, positions.len(), cuts)?;
            let allowed = if cuts.len() > FEW { DIFFERENCE_OF_MANY } else { DIFFERENCE_OF_FEW };
            (difference <= allowed).then_some(Cut { positions: cuts, period, difference })
        })
        .collect();
    let least = cuts.iter().map(|cut| cut.difference).fold(f64::INFINITY, f64::min);
    cuts.iter()
        .filter(|cut| cut.difference <= 1.2 * least + 0.0005)
        .min_by(|a, b| a.period.cmp(&b.period).then(a.difference.total_cmp(&b.difference)))
        .map(|cut| cut.positions.to_vec())
}

/// The same for a program recorded from its start, whose warm-up (weight initialisation, algorithm search) never runs
/// again. Requires many steps in the rest, because a few could be layers before a head.
fn starts_after_preparations(kernels: &[u32]) -> Option<Vec<usize>> {
    PREPARATIONS.into_iter().find_map(|share| {
        let from = kernels.len() / share;
        let found = starts(&kernels[from..]).filter(|found| found.len() > MANY)?;
        Some(found.into_iter().map(|start| start + from).collect())
    })
}

/// Kernels that may run once per step, fewest launches first: their positions and the median distance.
fn candidates(positions: &[Vec<usize>], length: usize) -> Vec<(&[usize], usize)> {
    let mut by_count = BTreeMap::<usize, Vec<(f64, usize, &[usize])>>::new();
    for list in positions.iter().filter(|list| list.len() >= 3) {
        let mut gaps: Vec<usize> = list.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_unstable();
        let period = gaps[gaps.len() / 2];
        let (before, after) = (list[0], length - list[list.len() - 1]);
        // At most one partial step lies before the first cut and one after the last.
        if period < 2 || 2 * before > 3 * period || 2 * after > 3 * period + 2 {
            continue;
        }
        let irregular: usize = gaps.iter().map(|gap| gap.abs_diff(period)).sum();
        by_count.entry(list.len()).or_default().push((irregular as f64 / gaps.len() as f64, period, list));
    }
    by_count
        .into_values()
        .flat_map(|mut alike| {
            alike.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2[0].cmp(&b.2[0])));
            alike.truncate(ALIKE);
            alike.into_iter().map(|(_, period, list)| (list, period))
        })
        .take(CANDIDATES)
        .collect()
}

/// Difference between the pieces; `None` if some kernels run only before the first cut or after the last.
fn difference(tokens: &[usize], kinds: usize, cuts: &[usize]) -> Option<f64> {
    let pieces: Vec<&[usize]> = cuts.windows(2).map(|pair| &tokens[pair[0]..pair[1]]).collect();
    // A sample of the pieces can always miss the same piece of every step, so lengths are compared for all pieces.
    let by_length = length_difference(pieces.iter().map(|piece| piece.len()).collect());
    let stride = pieces.len().div_ceil(PIECES);
    let pieces: Vec<&[usize]> = pieces.into_iter().step_by(stride).collect();
    let mut counts = vec![vec![0_u32; pieces.len()]; kinds];
    for (index, piece) in pieces.iter().enumerate() {
        for token in *piece {
            counts[*token][index] += 1;
        }
    }
    let mut differing = 0_u64;
    let medians: Vec<u32> = counts
        .iter_mut()
        .map(|counts| {
            counts.sort_unstable();
            let median = counts[counts.len() / 2];
            differing += counts.iter().map(|count| u64::from(count.abs_diff(median))).sum::<u64>();
            median
        })
        .collect();
    // If there are many pieces, only some are compared, but kernels from all of them count here.
    let mut between = vec![false; kinds];
    for token in &tokens[cuts[0]..cuts[cuts.len() - 1]] {
        between[*token] = true;
    }
    let mut launches: usize = pieces.iter().map(|piece| piece.len()).sum();
    for edge in [&tokens[..cuts[0]], &tokens[cuts[cuts.len() - 1]..]] {
        let mut own = vec![0_u32; kinds];
        for token in edge {
            own[*token] += 1;
        }
        if own.iter().zip(&between).any(|(count, between)| *count > 0 && !between) {
            return None;
        }
        for (count, median) in own.into_iter().zip(&medians) {
            differing += u64::from(count.saturating_sub(*median));
        }
        launches += edge.len();
    }
    Some((differing as f64 / launches.max(1) as f64).max(by_length))
}

/// Lower bound for the difference, from the lengths of all pieces.
fn length_difference(mut lengths: Vec<usize>) -> f64 {
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    let all: usize = lengths.iter().sum();
    lengths.iter().map(|length| length.abs_diff(median)).sum::<usize>() as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::{starts, starts_after_preparations};
    use proptest::prelude::*;

    /// A network of `layers` layers of 3 kernels forward and 5 backward, with an embedding, a loss and an optimizer of
    /// 4 kernels; `micro` batches per step.
    fn step(layers: usize, micro: usize) -> Vec<u32> {
        let mut kernels = Vec::new();
        for _ in 0..micro {
            kernels.push(100);
            (0..layers).for_each(|_| kernels.extend([1, 2, 3]));
            kernels.push(101);
            (0..layers).for_each(|_| kernels.extend([4, 2, 5, 6, 3]));
        }
        kernels.extend([200, 201, 202, 203]);
        kernels
    }

    fn gaps(starts: &[usize]) -> Vec<usize> {
        starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn a_step_repeats() {
        // A prologue of one recurring kernel, then three steps of "a b b c".
        let names = [3, 1, 2, 2, 3, 1, 2, 2, 3, 1, 2, 2, 3];
        assert_eq!(starts(&names), Some(vec![1, 5, 9]));
    }

    #[test]
    fn layers_within_one_step_are_not_steps() {
        // An embedding, 50 layers of three kernels, a head.
        let mut names = vec![1];
        for _ in 0..50 {
            names.extend([2, 3, 4]);
        }
        names.push(5);
        assert_eq!(starts(&names), None);
        assert_eq!(starts(&[]), None);
        assert_eq!(starts(&[1, 1, 1]), None);
        assert_eq!(starts(&step(24, 1)), None);
    }

    #[test]
    fn layers_within_several_steps_are_not_steps() {
        // Inference: only an embedding and a head are outside the layers.
        let forward = &step(96, 1)[..=1 + 3 * 96];
        let found = starts(&forward.repeat(5)).unwrap();
        assert_eq!(gaps(&found), [forward.len(); 4]);
    }

    #[test]
    fn preparations_are_no_steps() {
        let (one, prepared) = (step(8, 1), (1000..1300).collect::<Vec<u32>>());
        let all = [&prepared[..], &one.repeat(40)].concat();
        assert_eq!(starts(&all), None);
        let found = starts_after_preparations(&all).unwrap();
        assert!(found[0] >= prepared.len() && gaps(&found).iter().all(|gap| *gap == one.len()), "{found:?}");
        assert!(found.len() > 30, "{}", found.len());
        // Layers and a head.
        let few: Vec<u32> = std::iter::once(1).chain([2, 3, 4].repeat(50)).chain([5]).collect();
        assert_eq!(starts_after_preparations(&few), None);
        assert_eq!(starts_after_preparations(&[]), None);
    }

    #[test]
    fn micro_batches_are_not_steps() {
        let one = step(12, 4);
        assert_eq!(gaps(&starts(&one.repeat(6)).unwrap()), [one.len(); 5]);
    }

    #[test]
    fn a_sequence_without_steps_has_none() {
        // The Fibonacci word repeats everywhere but has no period.
        let (mut a, mut b) = (vec![1_u32], vec![1, 2]);
        while b.len() < 3000 {
            let next = [&b[..], &a].concat();
            a = std::mem::replace(&mut b, next);
        }
        assert_eq!(starts(&b), None);
        assert_eq!(starts(&(0..1000).collect::<Vec<_>>()), None);
    }

    #[test]
    fn validation_now_and_then_does_not_hide_the_steps() {
        let (one, mut all) = (step(12, 1), Vec::new());
        for number in 0..40 {
            all.extend(&one);
            if [5, 11, 30].contains(&number) {
                all.extend([300, 301, 302]);
            }
        }
        let found = gaps(&starts(&all).unwrap());
        assert_eq!(found.iter().filter(|gap| **gap == one.len()).count(), 36, "{found:?}");
    }

    /// 16 pieces per step; a sample of every second one contains only the short ones.
    #[test]
    fn a_sample_of_pieces_does_not_miss_the_long_ones() {
        let one = step(16, 1);
        let all = one.repeat(6);
        let found = starts(&all[88..all.len() - 80]).unwrap();
        assert!(gaps(&found).iter().all(|gap| *gap == one.len()), "{:?}", gaps(&found));
    }

    proptest! {
        #[test]
        fn steps_are_found_in_a_window_cut_anywhere(
            layers in 2_usize..30, micro in 1_usize..4, head in 0.0..1.0, tail in 0.0..1.0,
        ) {
            let one = step(layers, micro);
            let all = one.repeat(6);
            let cut = |share: f64| (share * one.len() as f64) as usize;
            let part = &all[cut(head)..all.len() - cut(tail)];
            let found = starts(part).unwrap();
            prop_assert!(gaps(&found).iter().all(|gap| *gap == one.len()), "{:?}", gaps(&found));
        }

        #[test]
        fn one_launch_in_two_hundred_may_be_wrong(
            layers in 4_usize..20, wrong in proptest::collection::vec(0_usize..5000, 0..8),
        ) {
            let one = step(layers, 1);
            let mut all = one.repeat(1 + 2400 / one.len());
            let last = all.len() - one.len();
            for at in wrong {
                // Within the pieces: kernels at the edges must be known.
                let at = one.len() + at % (last - one.len());
                all[at] = 1 + all[at] % 3;
            }
            if let Some(found) = starts(&all) {
                let mut gaps = gaps(&found);
                gaps.sort_unstable();
                prop_assert_eq!(gaps[gaps.len() / 2], one.len());
            }
        }

        #[test]
        fn no_sequence_makes_it_panic(kernels in proptest::collection::vec(0_u32..6, 0..300)) {
            if let Some(found) = starts(&kernels) {
                prop_assert!(found.len() >= 3 && found.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }
}
