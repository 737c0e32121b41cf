//! Builds a profile from only the operators and shapes of a trace.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use super::join::{self, Joined, Occurrence};
use super::nest::{self, LOADER, NO_RANGE, Nesting};
use super::options::{Import, ImportOptions, Summary};
use super::{accumulate, choose, exchange, group, timing, update, workload};
use crate::{Fault, Range, RangeKind, Span, StepMarks, Trace};
use habitat_base::units::Micros;
use habitat_step::op::name::{self, is_autograd_node};
use habitat_step::profile::{CpuStep, Phase, Profile, Recording, Step};

/// Makes a profile without origin: the operators that do work, with their shapes.
pub(super) fn import(trace: &Trace, options: &ImportOptions<'_>) -> Result<Import, Fault> {
    let nesting = nest::nest(trace);
    let marked = trace.steps.clone().map(|steps| (steps.spans, steps.marks));
    let (spans, marks) = marked.unwrap_or_else(|| {
        let (low, high) = trace.span.unwrap_or((0.0, 0.0));
        (
            vec![Span { start: low, end: f64::MAX, duration: high - low, followed: false, number: None }],
            StepMarks::WholeTrace,
        )
    });
    let mut joined = occurrences(trace, &nesting, &spans);
    if joined.occurrences.is_empty() {
        return Err(Fault::NoShapes);
    }
    let mut notes = vec!["shapes only: no GPU measurements, all times are predicted".to_owned()];
    let parts = accumulate::steps(trace, &joined, &spans).filter(|_| marks.may_be_parts());
    let is_whole = parts.is_none();
    let spans = parts.map_or(spans, |(steps, note)| {
        notes.push(note);
        steps
    });
    if !is_whole {
        joined = occurrences(trace, &nesting, &spans);
    }
    let (kept, unlike) = choose::choose(&timing::operators_of(&joined, spans.len()), &spans);
    notes.extend(trace.recorder.notes.iter().cloned().chain(unlike));
    let kept = of_one_shape(trace, &joined, kept, &spans, &mut notes);
    let kept_spans: Vec<Span> = kept.iter().map(|step| spans[*step]).collect();
    let grouped = group::operations(trace, &joined, &nesting.modules, &kept);
    let data_wait = loading(trace, &kept_spans);
    let operations = update::with_lists(trace, &kept_spans, grouped.operations, &mut notes);
    if grouped.inferred > 0 {
        notes.push(format!("stride and padding of {} convolutions were derived from shapes", grouped.inferred));
    }
    let (workload, tf32_known) = workload::workload(trace, &nesting, &kept_spans, &operations, options, &mut notes);
    let summary = Summary {
        marks,
        steps_found: trace.steps.as_ref().map_or(spans.len(), |steps| steps.found),
        steps_used: kept.len(),
        events: trace.events,
        bytes: trace.bytes,
        kernels_per_step: 0.0,
        kernel_time: Micros::ZERO,
        device_time: Micros::ZERO,
        joined_share: 0.0,
        joined_to: trace.recorder.joined_to,
        overlaps: nesting.overlaps,
        host_step: Micros::known(kept_spans.iter().map(|span| span.duration).reduce(f64::min).unwrap_or(0.0)),
        exchanges: vec![exchange::on_host(trace, &kept_spans)],
    };
    let cpu = cpu_step(trace, marks, &kept_spans);
    let step = (data_wait.is_some() || cpu.is_some()).then(|| Step { data_wait, cpu, ..Step::default() });
    let mut profile = Profile::new(workload, None, step, operations)?;
    profile.recording = Some(Recording {
        source: format!("{}, shapes only", trace.recorder.format.source()),
        step_marks: Some(marks.name().to_owned()),
        ranks: None,
        joined_share: None,
        tf32_known,
        notes,
    });
    Ok(Import { profile, summary })
}

/// Steps whose operators have the same shapes: the largest group, or the step of median work if every step differs.
/// Never mixes operators of different steps.
fn of_one_shape(
    trace: &Trace,
    joined: &Joined,
    kept: Vec<usize>,
    spans: &[Span],
    notes: &mut Vec<String>,
) -> Vec<usize> {
    let mut operators: Vec<Vec<(u32, u32, Phase)>> = vec![Vec::new(); spans.len()];
    let mut elements = vec![0_u64; spans.len()];
    for occurrence in &joined.occurrences {
        let (Some(operator), step) = (occurrence.operator, occurrence.step as usize) else { continue };
        let host = &trace.ranges[operator as usize];
        operators[step].push((host.name, host.tensors, occurrence.phase));
        let tensors = trace.tensors(host).shapes.iter().map(|shape| shape.iter().product::<u64>());
        elements[step] = tensors.fold(elements[step], u64::saturating_add);
    }
    let mut groups: BTreeMap<&[(u32, u32, Phase)], Vec<usize>> = BTreeMap::new();
    for step in &kept {
        operators[*step].sort_unstable();
    }
    for step in &kept {
        groups.entry(&operators[*step]).or_default().push(*step);
    }
    if groups.len() < 2 {
        return kept;
    }
    let mut by_work = kept.clone();
    by_work.sort_by_key(|step| elements[*step]);
    // Of groups of the same size, the earliest.
    let largest = groups.into_values().max_by_key(|steps| (steps.len(), Reverse(steps[0])));
    let chosen = largest.filter(|steps| steps.len() > 1).unwrap_or_else(|| vec![by_work[(by_work.len() - 1) / 2]]);
    let names: Vec<String> = chosen.iter().map(|step| choose::name(spans, *step)).collect();
    notes.push(format!(
        "the {} recorded steps have different shapes: the profile is of {}",
        kept.len(),
        names.join(" and ")
    ));
    chosen
}

/// Step time on the CPU; `None` if the trace has work of a device, or no marks of steps.
fn cpu_step(trace: &Trace, marks: StepMarks, spans: &[Span]) -> Option<CpuStep> {
    if !trace.work.is_empty() || marks == StepMarks::WholeTrace {
        return None;
    }
    let mut times: Vec<Micros> = spans.iter().filter_map(|span| Micros::checked(span.duration)).collect();
    times.sort_by(Micros::total_cmp);
    let (low, high) = (*times.first()?, *times.last()?);
    Some(CpuStep {
        duration: Micros::known(timing::median(times.iter().map(|time| time.get()))),
        duration_range: (times.len() > 1).then_some([low, high]),
        samples: u32::try_from(times.len()).ok()?,
        profiled: true,
    })
}

/// Time per step that the host waits for the next batch, whose work is not part of the profile; `None` below 1 %.
fn loading(trace: &Trace, spans: &[Span]) -> Option<Micros> {
    let is_loading = |host: &&Range| {
        host.kind == RangeKind::Annotation
            && trace.name(host.name).starts_with(LOADER)
            && Span::at(spans, host.start).is_some()
    };
    let time: f64 = trace.ranges.iter().filter(is_loading).map(|host| host.end - host.start).sum();
    let steps: f64 = spans.iter().map(|span| span.duration).sum();
    (time > 0.01 * steps).then(|| Micros::known(time / spans.len().max(1) as f64))
}

/// The innermost operators that do work and have shapes.
fn occurrences(trace: &Trace, nesting: &Nesting, spans: &[Span]) -> Joined {
    let name = |index: u32| trace.name(trace.ranges[index as usize].name);
    let works = |index: u32| {
        trace.ranges[index as usize].kind == RangeKind::Operator
            && !is_autograd_node(name(index))
            && !name::only_looks(name(index))
            && !nesting.contexts[index as usize].input
    };
    // `outer` marks operators around one that does the work. Helper operators inside an operator (filling or copying
    // the bias of a product) and its implementation of a product are not counted separately.
    let mut outer = vec![false; trace.ranges.len()];
    let mut inner = vec![false; trace.ranges.len()];
    for index in (0..trace.ranges.len() as u32).filter(|index| works(*index) && !name::helps(name(*index))) {
        // A product that another product calls is what actually runs: `torch.func.vmap` makes the inner one process all
        // samples at once.
        let computes = |range: u32| {
            name::is_whole(name(range)) && !(name::is_product(name(range)) && name::is_product(name(index)))
        };
        inner[index as usize] = around(nesting, index).any(computes);
        if !inner[index as usize] {
            for range in around(nesting, index) {
                outer[range as usize] = true;
            }
        }
    }
    let node_of = nesting.node_of.clone();
    let maker_of = node_of.iter().map(|(maker, node)| (*node, *maker)).collect();
    let mut joined = Joined { node_of, maker_of, ..Joined::default() };
    let part_of_another = |index: u32| {
        name::helps(name(index))
            && around(nesting, index).find(|range| works(*range)).is_some_and(|range| !outer[range as usize])
    };
    let broken_off = broken_off(trace, nesting);
    let is_leaf = |index: u32| {
        works(index)
            && !outer[index as usize]
            && !inner[index as usize]
            && !broken_off.contains(&index)
            && !part_of_another(index)
    };
    let mut order: Vec<u32> = (0..trace.ranges.len() as u32).filter(|index| is_leaf(*index)).collect();
    order.sort_by(|a, b| trace.ranges[*a as usize].start.total_cmp(&trace.ranges[*b as usize].start));
    let mut taken = HashSet::new();
    for innermost in order {
        let operator = join::level(trace, nesting, innermost);
        let start = trace.ranges[operator as usize].start;
        let Some(step) = spans.partition_point(|span| span.start <= start).checked_sub(1) else { continue };
        if start >= spans[step].end || !join::has_shapes(trace, operator) || !taken.insert(operator) {
            continue;
        }
        joined.occurrences.push(Occurrence {
            step: step as u32,
            operator: Some(operator),
            shapes_of: None,
            within_range: false,
            phase: join::phase(trace, nesting, operator, &[]),
            module: join::module(nesting, operator, &joined.maker_of),
            work: Vec::new(),
        });
    }
    joined
}

/// Operators that were called again for the backward pass and stopped before they computed anything, as checkpointing
/// (`torch.utils.checkpoint`) does once it has everything it needs. They call nothing, while others of the same name
/// do.
fn broken_off(trace: &Trace, nesting: &Nesting) -> HashSet<u32> {
    let is_node = |range: u32| is_autograd_node(trace.name(trace.ranges[range as usize].name));
    let mut calls = vec![false; trace.ranges.len()];
    for (host, parent) in trace.ranges.iter().zip(&nesting.parents) {
        // Checkpointing itself calls this to keep an input.
        let keeps = name::is_detach(trace.name(host.name));
        if *parent != NO_RANGE && !keeps {
            calls[*parent as usize] = true;
        }
    }
    let of_forward = |index: &u32| {
        let host = &trace.ranges[*index as usize];
        host.kind == RangeKind::Operator && host.sequence >= 0 && !host.of_forward
    };
    let again = |index: &u32| around(nesting, *index).any(is_node);
    let all = 0..trace.ranges.len() as u32;
    let usual: HashSet<_> = all
        .clone()
        .filter(|index| calls[*index as usize] && of_forward(index) && !again(index))
        .map(|index| trace.ranges[index as usize].name)
        .collect();
    all.filter(|index| !calls[*index as usize] && usual.contains(&trace.ranges[*index as usize].name))
        .filter(|index| of_forward(index) && again(index))
        .collect()
}

/// Enclosing ranges, innermost first.
fn around(nesting: &Nesting, range: u32) -> impl Iterator<Item = u32> + '_ {
    std::iter::successors(nesting.parents.get(range as usize).copied(), |range| {
        nesting.parents.get(*range as usize).copied()
    })
    .take_while(|range| *range != NO_RANGE)
    .take(DEEPEST)
}

/// Maximum nesting depth: operators nest a dozen deep, Python's modules somewhat more.
const DEEPEST: usize = 200;
