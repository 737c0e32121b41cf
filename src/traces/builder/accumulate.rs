//! Joins marked micro-batches, whose gradients are accumulated, into steps.
//!
//! Programs that call `prof.step()` for every micro-batch mark parts of a step. If the optimizer runs in every n-th of
//! them, n make one step.

use std::collections::HashMap;

use super::join::Joined;
use super::nest::updates;
use crate::{RangeKind, Span, Trace};
use habitat_step::op::name;
use habitat_step::profile::Phase;

/// Contents of a marked range.
#[derive(Debug, Clone, Copy, Default)]
struct Marked {
    /// Number of kernels or operators of the backward pass.
    backward: u64,
    /// Whether the optimizer steps in it, or checks whether it can.
    updates: bool,
    /// Number of kernels or operators of the update.
    optimizer: u64,
}

/// Steps made of marked micro-batches, with a note; `None` if every mark is a step.
pub(super) fn steps(trace: &Trace, joined: &Joined, spans: &[Span]) -> Option<(Vec<Span>, String)> {
    let marked = marked(trace, joined, spans);
    let updating: Vec<usize> = (0..spans.len()).filter(|span| marked[*span].updates).collect();
    let passes = marked.iter().any(|one| one.backward > 0);
    let is_part = |one: &Marked| one.updates || one.backward > 0 || !passes;
    if updating.is_empty() || updating.len() == spans.len() {
        return None;
    }
    let count = spans.len();
    if let [only] = updating[..] {
        // The interval between updates is unknown: at least the longer part before or after the one update.
        let (before, after) = (only, count - 1 - only);
        let range = if before >= after { 0..only + 1 } else { only..count };
        if !marked[range.clone()].iter().all(is_part) {
            return None;
        }
        let length = range.len();
        let step = merged(&spans[range])?;
        let note = format!(
            "the optimizer runs in 1 of the {count} marked steps: assuming that {length} of them are the micro-batches of one step; record two updates to be sure, or name the range of a whole step with --step-range"
        );
        return Some((vec![step], note));
    }
    let mut distances: HashMap<usize, usize> = HashMap::new();
    for pair in updating.windows(2) {
        *distances.entry(pair[1] - pair[0]).or_default() += 1;
    }
    let (period, times) = distances.into_iter().max_by_key(|(distance, times)| (*times, *distance))?;
    if period < 2 || 2 * times < updating.len() - 1 {
        return None;
    }
    let mut steps: Vec<Span> = Vec::new();
    let mut last = None;
    for end in updating {
        let Some(start) = (end + 1).checked_sub(period) else { continue };
        if last.is_some_and(|last| start <= last) || !marked[start..=end].iter().all(is_part) {
            continue;
        }
        let Some(step) = merged(&spans[start..=end]) else { continue };
        if let (Some(before), false) = (steps.last_mut(), last == start.checked_sub(1)) {
            before.followed = false;
        }
        steps.push(step);
        last = Some(end);
    }
    let note = format!(
        "the optimizer runs in every {period}{} of the {count} marked steps: {period} of them are the micro-batches of one step",
        match period {
            2 => "nd",
            3 => "rd",
            _ => "th",
        }
    );
    (!steps.is_empty()).then_some((steps, note))
}

/// Joins consecutive spans.
fn merged(parts: &[Span]) -> Option<Span> {
    let ([first, ..], [rest @ .., last]) = (parts, parts) else { return None };
    rest.iter().all(|part| part.followed).then(|| Span {
        start: first.start,
        end: last.end,
        duration: parts.iter().map(|part| part.duration).sum(),
        followed: last.followed,
        number: None,
    })
}

fn marked(trace: &Trace, joined: &Joined, spans: &[Span]) -> Vec<Marked> {
    let mut marked = vec![Marked::default(); spans.len()];
    for occurrence in &joined.occurrences {
        let one = &mut marked[occurrence.step as usize];
        match occurrence.phase {
            Phase::Backward | Phase::GradientAccumulation => one.backward += 1,
            Phase::Optimizer => one.optimizer += 1,
            _ => {}
        }
    }
    let updates = updates(trace);
    for (_, update) in &updates {
        if let Some(span) = Span::at(spans, update.start) {
            marked[span].updates = true;
        }
    }
    if updates.is_empty() {
        // Fall back on the program's own ranges. Zeroing gradients has less work than an update.
        let most = marked.iter().map(|one| one.optimizer).max().unwrap_or(0);
        for one in &mut marked {
            one.updates = one.optimizer > 0 && 2 * one.optimizer > most;
        }
    }
    // A gradient scaler that finds infinite values skips the update, but the step still ends there.
    for range in trace.ranges.iter().filter(|range| range.kind == RangeKind::Operator) {
        if name::checks_gradients(trace.name(range.name))
            && let Some(span) = Span::at(spans, range.start)
        {
            marked[span].updates = true;
        }
    }
    marked
}
