//! Where the steps of a trace begin and end.
//!
//! A step is a window of *host* time: the work of a step is what is launched in it, not
//! what runs on the device in it, since the device may be several milliseconds behind.

use super::collect::Records;
use super::pattern;
use super::record::{Host, HostKind};

/// How the steps were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepMarks {
    /// `ProfilerStep#n` ranges, which `torch.profiler` writes when `step()` is called.
    ProfilerStep,
    /// Ends of `Optimizer.step#…` ranges.
    OptimizerStep,
    /// Ranges of the program whose names say step, iteration or batch.
    Annotation,
    /// The ranges that the caller named.
    Named,
    /// Steps that the recorder itself marks.
    Recorder,
    /// Runs of the compiled program with most device time.
    ProgramRuns,
    /// The sequence of kernels repeats.
    Pattern,
    /// Nothing: the whole trace is one step.
    WholeTrace,
}

impl StepMarks {
    /// In words, as written to the profile.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ProfilerStep => "ProfilerStep marks",
            Self::OptimizerStep => "ends of Optimizer.step",
            Self::Annotation => "annotated ranges",
            Self::Named => "ranges named by --step-range",
            Self::Recorder => "step marks of the recorder",
            Self::ProgramRuns => "runs of the compiled program",
            Self::Pattern => "repeating sequence of kernels",
            Self::WholeTrace => "none: the whole trace is one step",
        }
    }
}

/// One step on the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: f64,
    /// Launches before this time belong to the step.
    pub(super) end: f64,
    /// Its wall time on the host.
    pub(super) duration: f64,
    /// The next span is the next step of the program.
    pub(super) followed: bool,
    /// Its number, where its mark has one.
    pub(super) number: Option<u64>,
}

/// The steps that marks tell, in order; `None` where there are no marks.
pub(super) fn from_marks(records: &Records) -> Option<(Vec<Span>, StepMarks)> {
    if let Some(name) = &records.step_range {
        let named = records.marks.iter().filter(|mark| is_named(records.names.text(mark.name), name)).collect();
        let named = on_one_thread(named);
        return (!named.is_empty()).then(|| (ranges(records, &named), StepMarks::Named));
    }
    let named = |prefix: &str| -> Vec<&Host> {
        records.marks.iter().filter(|mark| records.names.text(mark.name).starts_with(prefix)).collect()
    };
    let profiler = on_one_thread(named("ProfilerStep"));
    if !profiler.is_empty() {
        return Some((ranges(records, &profiler), StepMarks::ProfilerStep));
    }
    let optimizer = one_a_step(records, on_one_thread(named("Optimizer.step#")));
    if !optimizer.is_empty() {
        return Some((between_ends(&optimizer, records.span), StepMarks::OptimizerStep));
    }
    let annotated = repeated(records);
    (annotated.len() >= 2).then(|| (ranges(records, &annotated), StepMarks::Annotation))
}

/// A kernel's launch: when, and the numbers of its name and configuration.
pub(super) type Launch = (f64, u32, u32);

/// The steps of a trace without marks.
pub(super) fn without_marks(records: &Records, launches: &[Launch]) -> (Vec<Span>, StepMarks) {
    let mut numbers = std::collections::HashMap::<(u32, u32), u32>::new();
    let configured: Vec<u32> = launches
        .iter()
        .map(|(_, name, shape)| {
            let next = numbers.len() as u32;
            *numbers.entry((*name, *shape)).or_insert(next)
        })
        .collect();
    // Where the size of a batch varies, so do configurations: then names must do.
    let found = pattern::starts(&configured).or_else(|| {
        let names: Vec<u32> = launches.iter().map(|(_, name, _)| *name).collect();
        pattern::starts(&names)
    });
    let starts: Option<Vec<f64>> = found.map(|starts| starts.into_iter().map(|place| launches[place].0).collect());
    // One backward pass in the whole trace is one step, however regular its layers are.
    if let Some(starts) = starts
        && (!has_backward(records) || backward_in_each(records, &starts))
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
    // What the host does before the first launch and after the last work is not known to
    // be part of a step: the device's own span is the step time.
    let whole = Span { start: f64::NEG_INFINITY, end: f64::INFINITY, duration: 0.0, followed: false, number: None };
    (vec![whole], StepMarks::WholeTrace)
}

fn has_backward(records: &Records) -> bool {
    records.host.iter().any(|host| host.of_forward)
}

fn backward_in_each(records: &Records, starts: &[f64]) -> bool {
    let mut times: Vec<f64> = records.host.iter().filter(|host| host.of_forward).map(|host| host.start).collect();
    times.sort_by(f64::total_cmp);
    starts.windows(2).all(|pair| {
        let from = times.partition_point(|time| *time < pair[0]);
        times.get(from).is_some_and(|time| *time < pair[1])
    })
}

/// Whether a range has that name, a number at its end aside.
pub(super) fn is_named(range: &str, name: &str) -> bool {
    range == name || stem(range) == name
}

/// A name without the number at its end: `layer` of `layer_12`, `Train step` of
/// `Train step 7`; the name itself where it is nothing but a number.
pub(super) fn stem(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() == name.len() {
        return name;
    }
    let stem = stem.trim_end_matches([' ', '_', '#', ':', '-', '.', '=', '[', '(']);
    if stem.is_empty() { name } else { stem }
}

/// The marks of the thread that has most of them, in order.
fn on_one_thread(marks: Vec<&Host>) -> Vec<&Host> {
    let mut counts = std::collections::BTreeMap::<u32, usize>::new();
    for mark in &marks {
        *counts.entry(mark.thread).or_default() += 1;
    }
    let Some((&thread, _)) = counts.iter().max_by_key(|(_, count)| **count) else { return marks };
    let mut marks: Vec<&Host> = marks.into_iter().filter(|mark| mark.thread == thread).collect();
    marks.sort_by(|a, b| a.start.total_cmp(&b.start));
    marks
}

/// Of several optimizers that step in turn, as those of a generator and of what judges it,
/// the one that steps last: told by their names, else by what they do.
fn one_a_step<'a>(records: &Records, marks: Vec<&'a Host>) -> Vec<&'a Host> {
    let Some(last) = marks.last().map(|mark| mark.name) else { return marks };
    let marks: Vec<&Host> = marks.into_iter().filter(|mark| mark.name == last).collect();
    let work = works(records, &marks);
    let repeats = |period: &usize| work.iter().zip(&work[*period..]).all(|(one, later)| one == later);
    match (1..marks.len()).find(repeats) {
        Some(period) if period > 1 => marks.into_iter().rev().step_by(period).rev().collect(),
        _ => marks,
    }
}

/// The operators called in each range, as numbers that are equal for equal calls.
fn works(records: &Records, marks: &[&Host]) -> Vec<u64> {
    let mut works = vec![std::hash::DefaultHasher::new(); marks.len()];
    for host in records.host.iter().filter(|host| host.kind == HostKind::Operator) {
        let at = marks.partition_point(|mark| mark.start <= host.start);
        if let Some(at) = at.checked_sub(1).filter(|at| host.end <= marks[*at].end && host.thread == marks[*at].thread)
        {
            std::hash::Hash::hash(&(host.name, host.dims), &mut works[at]);
        }
    }
    works.into_iter().map(|work| std::hash::Hasher::finish(&work)).collect()
}

/// Each range is a step that lasts until the next one, unless the profiler paused.
pub(super) fn ranges(records: &Records, marks: &[&Host]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::with_capacity(marks.len());
    for (index, mark) in marks.iter().enumerate() {
        let length = mark.end - mark.start;
        let next = marks.get(index + 1).map(|next| next.start);
        // Marks follow one another within microseconds while the profiler is on.
        let followed = next.is_some_and(|next| next - mark.end <= 0.5 * length.max(1.0));
        let end = match next {
            Some(next) if followed => next,
            _ => mark.end,
        };
        if end > mark.start {
            let name = records.names.text(mark.name);
            let number = name[stem(name).len()..].trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok();
            spans.push(Span { start: mark.start, end, duration: end - mark.start, followed, number });
        }
    }
    spans
}

/// A step reaches from the end of one optimizer step to the end of the next. What is
/// before the first end may be part of a step only.
fn between_ends(marks: &[&Host], span: Option<(f64, f64)>) -> Vec<Span> {
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

/// Ranges of one name (numbers aside) that repeat on the thread with most of them.
fn repeated(records: &Records) -> Vec<&Host> {
    let stem = |mark: &Host| -> String {
        records.names.text(mark.name).chars().filter(|c| !c.is_ascii_digit()).take(80).collect()
    };
    let mut groups = std::collections::BTreeMap::<(String, u32), Vec<&Host>>::new();
    for mark in &records.marks {
        groups.entry((stem(mark), mark.thread)).or_default().push(mark);
    }
    let longest = |marks: &Vec<&Host>| -> f64 { marks.iter().map(|mark| mark.end - mark.start).sum() };
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
    fn numbers_at_the_end_are_no_part_of_a_name() {
        for (name, without) in
            [("layer_12", "layer"), ("Train step 7", "Train step"), ("12", "12"), ("conv2d", "conv2d")]
        {
            assert_eq!(stem(name), without);
        }
        assert!(is_named("step 7", "step") && is_named("step 7", "step 7") && !is_named("step 7", "ste"));
    }
}
