//! Finds where the steps of a trace begin and end.
//!
//! A step is a window of *host* time. The work of a step is the work launched in that window, not the work that runs on
//! the device in it, because the device may lag by several milliseconds.

use super::record::{MarkedSteps, Range, RangeKind, Span, StepMarks};
use super::{ReadOptions, Trace};

/// Selects the marked steps to use, up to the requested number and the budget. If the recording exceeds the budget,
/// returns the time window to read: these steps, or the middle of the recording without marks.
pub(crate) fn select(trace: &mut Trace, options: &ReadOptions<'_>) -> Option<(f64, f64)> {
    let budget = options.budget() as u64;
    let asked = options.max_steps.unwrap_or(usize::MAX);
    trace.steps = from_marks(trace).filter(|(spans, _)| !spans.is_empty()).map(|(spans, marks)| {
        let found = spans.len();
        let per_step = trace.records / found as u64;
        let fitting = if trace.is_part { (budget / per_step.max(1)) as usize } else { usize::MAX };
        MarkedSteps { spans: middle(spans, fitting.min(asked).max(1)), marks, found }
    });
    if !trace.is_part {
        return None;
    }
    if let Some([first, .., last] | [first @ last]) = trace.steps.as_ref().map(|steps| &steps.spans[..]) {
        return Some((first.start, last.end));
    }
    let (low, high) = trace.span.unwrap_or((0.0, f64::MAX));
    let share = (0.8 * budget as f64 / trace.records.max(1) as f64).min(1.0);
    let margin = (high - low) * (1.0 - share) / 2.0;
    Some((low + margin, high - margin))
}

/// Selects `count` consecutive steps from the middle: complete, after the warm-up, and adjacent, so that their rate is
/// known.
fn middle(mut spans: Vec<Span>, count: usize) -> Vec<Span> {
    if spans.len() > count {
        let first = (spans.len() - count).div_ceil(2);
        spans = spans[first..first + count].to_vec();
    }
    spans
}

/// Steps from the marks, in order; `None` without marks.
fn from_marks(trace: &Trace) -> Option<(Vec<Span>, StepMarks)> {
    if let Some(marks) = trace.marked_by {
        let mut steps: Vec<&Range> = trace.marks.iter().collect();
        steps.sort_by(|a, b| a.start.total_cmp(&b.start));
        let spans = ranges(trace, &steps);
        if !spans.is_empty() {
            return Some((spans, marks));
        }
    }
    if let Some(name) = &trace.step_range {
        let named = trace.marks.iter().filter(|mark| is_named(trace.name(mark.name), name)).collect();
        let named = on_one_thread(named);
        return (!named.is_empty()).then(|| (ranges(trace, &named), StepMarks::Named));
    }
    let named = |prefix: &str| -> Vec<&Range> {
        trace.marks.iter().filter(|mark| trace.name(mark.name).starts_with(prefix)).collect()
    };
    let profiler = on_one_thread(named("ProfilerStep"));
    if !profiler.is_empty() {
        return Some((ranges(trace, &profiler), StepMarks::ProfilerStep));
    }
    let optimizer = one_a_step(trace, on_one_thread(named("Optimizer.step#")));
    if !optimizer.is_empty() {
        return Some((between_ends(&optimizer, trace.span), StepMarks::OptimizerStep));
    }
    let annotated = repeated(trace);
    (annotated.len() >= 2).then(|| (ranges(trace, &annotated), StepMarks::Annotation))
}

/// Whether a range with this name marks steps (and therefore does not group work within them).
pub(crate) fn is_mark(trace: &Trace, name: &str) -> bool {
    trace.step_range.as_ref().map_or_else(|| says_step(name.as_bytes()), |wanted| is_named(name, wanted))
}

/// Whether a range may mark a step: the profiler's and the optimizers' own, and those of the program whose names
/// contain step, iteration or batch (but not batch norm).
pub(super) fn may_mark(name: &[u8], is_of_program: bool) -> bool {
    name.starts_with(b"ProfilerStep") || name.starts_with(b"Optimizer.step#") || is_of_program && says_step(name)
}

fn says_step(name: &[u8]) -> bool {
    let name = &name[..name.len().min(200)];
    let has = |word: &[u8]| name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
    has(b"step") || has(b"iter") || (has(b"batch") && !has(b"norm"))
}

/// Whether a range has this name, ignoring a trailing number.
pub(crate) fn is_named(range: &str, name: &str) -> bool {
    range == name || stem(range) == name
}

/// Name without a trailing number: `layer` for `layer_12`, `Train step` for `Train step 7`; the name itself if it is
/// only a number.
pub(crate) fn stem(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() == name.len() {
        return name;
    }
    let stem = stem.trim_end_matches([' ', '_', '#', ':', '-', '.', '=', '[', '(']);
    if stem.is_empty() { name } else { stem }
}

/// Marks of the thread with the most marks, in order.
fn on_one_thread(marks: Vec<&Range>) -> Vec<&Range> {
    let mut counts = std::collections::BTreeMap::<u32, usize>::new();
    for mark in &marks {
        *counts.entry(mark.thread).or_default() += 1;
    }
    let Some((&thread, _)) = counts.iter().max_by_key(|(_, count)| **count) else { return marks };
    let mut marks: Vec<&Range> = marks.into_iter().filter(|mark| mark.thread == thread).collect();
    marks.sort_by(|a, b| a.start.total_cmp(&b.start));
    marks
}

/// If several optimizers step in turn, like those of a GAN's generator and discriminator, keeps the marks of the last
/// one. Distinguishes optimizers by name, otherwise by the operators they call.
fn one_a_step<'a>(trace: &Trace, marks: Vec<&'a Range>) -> Vec<&'a Range> {
    let Some(last) = marks.last().map(|mark| mark.name) else { return marks };
    let marks: Vec<&Range> = marks.into_iter().filter(|mark| mark.name == last).collect();
    match period(&works(trace, &marks)) {
        period if 1 < period && period < marks.len() => marks.into_iter().rev().step_by(period).rev().collect(),
        _ => marks,
    }
}

/// Period after which a sequence repeats, or its length if it does not. Uses the Knuth-Morris-Pratt prefix function,
/// because comparing at every distance would take hours for a million marks.
fn period(sequence: &[u64]) -> usize {
    let mut borders = vec![0_usize; sequence.len()];
    for at in 1..sequence.len() {
        let mut border = borders[at - 1];
        while border > 0 && sequence[at] != sequence[border] {
            border = borders[border - 1];
        }
        borders[at] = border + usize::from(sequence[at] == sequence[border]);
    }
    sequence.len() - borders.last().copied().unwrap_or(0)
}

/// Hash of the operators called in each range; equal for equal calls.
fn works(trace: &Trace, marks: &[&Range]) -> Vec<u64> {
    let mut works = vec![std::hash::DefaultHasher::new(); marks.len()];
    for host in trace.ranges.iter().filter(|host| host.kind == RangeKind::Operator) {
        let at = marks.partition_point(|mark| mark.start <= host.start);
        if let Some(at) = at.checked_sub(1).filter(|at| host.end <= marks[*at].end && host.thread == marks[*at].thread)
        {
            std::hash::Hash::hash(&(host.name, host.tensors), &mut works[at]);
        }
    }
    works.into_iter().map(|work| std::hash::Hasher::finish(&work)).collect()
}

/// Each range is a step that lasts until the next one, unless the profiler paused in between.
fn ranges(trace: &Trace, marks: &[&Range]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::with_capacity(marks.len());
    for (index, mark) in marks.iter().enumerate() {
        let length = mark.end - mark.start;
        let next = marks.get(index + 1).map(|next| next.start);
        // While the profiler is on, marks follow one another within microseconds.
        let followed = next.is_some_and(|next| next - mark.end <= 0.5 * length.max(1.0));
        let end = match next {
            Some(next) if followed => next,
            _ => mark.end,
        };
        if end > mark.start {
            let name = trace.name(mark.name);
            let number = name[stem(name).len()..].trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok();
            spans.push(Span { start: mark.start, end, duration: end - mark.start, followed, number });
        }
    }
    spans
}

/// A step lasts from the end of one optimizer step to the end of the next. The time before the first end may be part of
/// a step only.
fn between_ends(marks: &[&Range], span: Option<(f64, f64)>) -> Vec<Span> {
    let between = |start: f64, end: f64| Span { start, end, duration: end - start, followed: true, number: None };
    match marks {
        [only] => {
            let start = span.map_or(only.start, |(low, _)| low.min(only.start));
            vec![Span { followed: false, ..between(start, only.end) }]
        }
        _ => marks
            .windows(2)
            .map(|pair| between(pair[0].end, pair[1].end))
            .filter(|span| span.end > span.start)
            .collect(),
    }
}

/// Ranges with the same name (ignoring numbers) that repeat, in the group with the longest total time.
fn repeated(trace: &Trace) -> Vec<&Range> {
    let stem =
        |mark: &Range| -> String { trace.name(mark.name).chars().filter(|c| !c.is_ascii_digit()).take(80).collect() };
    let mut groups = std::collections::BTreeMap::<(String, u32), Vec<&Range>>::new();
    for mark in &trace.marks {
        groups.entry((stem(mark), mark.thread)).or_default().push(mark);
    }
    let longest = |marks: &Vec<&Range>| -> f64 { marks.iter().map(|mark| mark.end - mark.start).sum() };
    let Some(mut marks) =
        groups.into_values().filter(|marks| marks.len() >= 2).max_by(|a, b| longest(a).total_cmp(&longest(b)))
    else {
        return Vec::new();
    };
    marks.sort_by(|a, b| a.start.total_cmp(&b.start));
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_repeat_after_their_period() {
        for (sequence, least) in [
            (&[][..], 0),
            (&[1], 1),
            (&[1, 1, 1], 1),
            (&[1, 2, 1, 2], 2),
            (&[1, 2, 1], 2),
            (&[1, 1, 2], 3),
            (&[1, 1, 2, 1, 1], 3),
        ] {
            assert_eq!(period(sequence), least, "{sequence:?}");
            let repeats = |period: &usize| sequence.iter().zip(&sequence[*period..]).all(|(one, later)| one == later);
            assert_eq!((1..sequence.len()).find(repeats).unwrap_or(sequence.len()), least, "{sequence:?}");
        }
    }

    #[test]
    fn numbers_at_the_end_are_no_part_of_a_name() {
        for (name, without) in
            [("layer_12", "layer"), ("Train step 7", "Train step"), ("12", "12"), ("conv2d", "conv2d")]
        {
            assert_eq!(stem(name), without);
        }
        assert!(is_named("step 7", "step") && is_named("step 7", "step 7") && !is_named("step 7", "ste"));
    }
}
