//! The optimizer's update as a GPU runs it: operators on lists of tensors.
//!
//! PyTorch's profiler omits the shapes of lists of more than 30 tensors, so the operators of an update on such lists
//! have none. Their shapes come from the calls that such an operator makes per tensor, as on a CPU. A GPU processes a
//! whole list at once; then they come from the gradients accumulated in the preceding backward pass.
//!
//! On a CPU, PyTorch's optimizers call every operator once per tensor; on a GPU, by default, once for all tensors. The
//! traffic is the same, the number of kernels is not.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::nest::{makers, passes, updates};
use crate::{Range, RangeKind, Span, Tensors, Trace};
use habitat_base::units::Micros;
use habitat_step::op::name;
use habitat_step::profile::tensors::{ACCESS, INPUT_DTYPES, MEMORY_FORMAT, OUTPUT_DTYPES};
use habitat_step::profile::{DType, Operation, Phase, Shape};

/// Maximum length of a list whose tensors are listed individually; a longer list becomes one tensor with as many
/// elements.
const TENSORS: usize = 500;
/// Maximum number of operators searched for the shapes of lists, several times those of any recording. A crafted file
/// could nest thousands of list operators; the rest then stay without shapes.
const LOOKED: u64 = 1 << 24;

/// Fills in the shapes of list operators without any.
pub(super) fn fill_lists(trace: &mut Trace) {
    let name = |range: &Range| trace.name(range.name);
    let is_bare = |range: &Range| {
        range.kind == RangeKind::Operator && name::takes_lists(name(range)) && !trace.tensors(range).has_extents()
    };
    let bare: Vec<usize> = (0..trace.ranges.len()).filter(|index| is_bare(&trace.ranges[*index])).collect();
    if bare.is_empty() {
        return;
    }
    let mut order: Vec<usize> =
        (0..trace.ranges.len()).filter(|index| trace.ranges[*index].kind == RangeKind::Operator).collect();
    order.sort_by(|a, b| trace.ranges[*a].start.total_cmp(&trace.ranges[*b].start));
    let passes = passes(trace, &makers(trace));
    let mut filled: Vec<(usize, Tensors)> = Vec::new();
    let looked = Cell::new(0_u64);
    for index in bare {
        if looked.get() > LOOKED {
            break;
        }
        let range = &trace.ranges[index];
        let from = order.partition_point(|other| trace.ranges[*other].start < range.start);
        let of_gradients = |lists: usize| {
            let begun = passes.partition_point(|pass| pass.start < range.start);
            let pass = passes[begun.checked_sub(1)?];
            let before = order[..from].iter().rev().take_while(|other| trace.ranges[**other].start >= pass.start);
            let gradients = before
                .inspect(|_| looked.set(looked.get() + 1))
                .map(|other| &trace.ranges[*other])
                .filter(|other| name(other) == "torch::autograd::AccumulateGrad");
            let mut gradients: Vec<&Tensors> =
                gradients.map(|other| trace.tensors(other)).filter(|tensors| !tensors.shapes.is_empty()).collect();
            gradients.reverse();
            let dtype = gradients.first()?.dtype.clone();
            let list: Vec<Shape> = gradients.iter().map(|tensors| tensors.shapes[0].clone()).collect();
            Some(Tensors { shapes: vec![bounded(list); lists].concat(), dtype, ..Tensors::default() })
        };
        let within = order[from..].iter().take_while(|other| trace.ranges[**other].start < range.end);
        let tensors = name::each(name(range))
            .and_then(|each| each_call(trace, range, each, within.copied().inspect(|_| looked.set(looked.get() + 1))))
            .or_else(|| {
                let fused = name::fused_lists(name(range), trace.scalars.get(range.scalars));
                of_gradients(fused.unwrap_or(trace.tensors(range).bare_lists)).filter(Tensors::has_extents)
            });
        filled.extend(tensors.map(|tensors| (index, tensors)));
    }
    for (index, tensors) in filled {
        let tensors = Tensors { dtype: tensors.dtype.filter(DType::is_floating), ..tensors };
        trace.ranges[index].tensors = trace.tensors.value(tensors);
    }
}

/// Lists of an operator that calls another one for each tensor.
fn each_call(trace: &Trace, range: &Range, each: &str, within: impl Iterator<Item = usize>) -> Option<Tensors> {
    let mut lists: Vec<(Vec<Shape>, Option<DType>)> = Vec::new();
    let (mut dtype, mut end) = (None, f64::NEG_INFINITY);
    for index in within {
        let call = &trace.ranges[index];
        // The call itself, not an inner call of the same name.
        if !name::is_each(trace.name(call.name), each) || call.thread != range.thread || call.start < end {
            continue;
        }
        end = call.end;
        let tensors = trace.tensors(call);
        dtype = dtype.or_else(|| tensors.dtype.clone());
        let types = tensors.dtypes.iter().cloned().chain(std::iter::repeat(None));
        let given = tensors.shapes.iter().zip(types).filter(|(shape, _)| !shape.is_empty());
        for (at, (shape, own)) in given.enumerate() {
            match lists.get_mut(at) {
                Some((list, _)) => list.push(shape.clone()),
                None => lists.push((vec![shape.clone()], own)),
            }
        }
    }
    // Assumes that all tensors of a list have the type of the first.
    let typed = |(list, own): (Vec<Shape>, Option<DType>)| {
        bounded(list).into_iter().map(move |shape| (shape, own.clone())).collect::<Vec<_>>()
    };
    (!lists.is_empty()).then(|| Tensors { dtype, ..Tensors::new(lists.into_iter().flat_map(typed)) })
}

/// Replaces a long list by one tensor.
fn bounded(list: Vec<Shape>) -> Vec<Shape> {
    if list.len() <= TENSORS {
        return list;
    }
    vec![vec![list.iter().map(volume).fold(0, u64::saturating_add)]]
}

/// PyTorch optimizers with a list (foreach) implementation, which is the default on a GPU.
const WITH_LISTS: [&str; 12] = [
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "Adamax",
    "AdamW",
    "ASGD",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
];

/// Converts the update of a CPU to lists, as a GPU runs it, and adds a note.
pub(super) fn with_lists(
    trace: &Trace,
    spans: &[Span],
    operations: Vec<Operation>,
    notes: &mut Vec<String>,
) -> Vec<Operation> {
    let class = |host: &Range| {
        let name = trace.name(host.name).trim_start_matches("Optimizer.step#");
        name.split('.').next().unwrap_or_default().to_owned()
    };
    let updates = updates(trace);
    if !updates.iter().all(|(_, step)| WITH_LISTS.contains(&&*class(step))) {
        return operations;
    }
    // Each optimizer has its own lists.
    let inside = |step: &Range| Span::at(spans, step.start).is_some();
    let optimizers = updates.iter().filter(|(_, step)| inside(step)).count() as f64 / spans.len().max(1) as f64;
    let trained = trained(trace);
    let is_each =
        |operation: &Operation| trained > 1 && operation.phase == Phase::Optimizer && name::has_lists(&operation.name);
    let (each, mut others): (Vec<Operation>, Vec<Operation>) = operations.into_iter().partition(is_each);
    let mut by_name: BTreeMap<(&str, usize), Vec<&Operation>> = BTreeMap::new();
    for operation in &each {
        by_name.entry((&operation.name, operation.inputs.len())).or_default().push(operation);
    }
    let (mut calls, mut with_lists) = (0, 0);
    for ((name, arguments), group) in by_name {
        let Some(first) = group.first() else { continue };
        let total: u32 = group.iter().map(|operation| operation.count).sum();
        // An operator called several times per tensor is called as often with lists.
        let count = ((f64::from(total) / trained as f64).max(optimizers).round() as u32).clamp(1, total.max(1));
        let inputs = (0..arguments).flat_map(|at| list(&group, at, count)).collect();
        calls += total;
        with_lists += count;
        let name = name::with_lists(name);
        let spent: Option<Micros> =
            group.iter().map(|operation| Some(operation.cpu_time? * f64::from(operation.count))).sum();
        let cpu_time = spent.map(|time| time * (1.0 / f64::from(count)));
        let mut operation = Operation { name, inputs, outputs: Vec::new(), count, cpu_time, ..(*first).clone() };
        // Attributes of single tensors do not apply to the lists.
        for told in [MEMORY_FORMAT, ACCESS, INPUT_DTYPES, OUTPUT_DTYPES] {
            operation.attributes.remove(told);
        }
        others.push(operation);
    }
    if calls > with_lists {
        notes.push(format!(
            "the optimizer's {calls} operations on single tensors are replaced by the {with_lists} on lists of tensors (foreach) that PyTorch runs on a GPU by default"
        ));
    }
    others
}

/// Number of tensors whose gradients a backward pass accumulates.
fn trained(trace: &Trace) -> usize {
    let starts: Vec<f64> = passes(trace, &makers(trace)).iter().map(|pass| pass.start).collect();
    let mut counts = vec![0_usize; starts.len()];
    for host in &trace.ranges {
        if trace.name(host.name) == "torch::autograd::AccumulateGrad"
            && let Some(pass) = starts.partition_point(|start| *start <= host.start).checked_sub(1)
        {
            counts[pass] += 1;
        }
    }
    counts.into_iter().max().unwrap_or(0)
}

/// List of one argument for one of `count` calls that share the tensors.
fn list(group: &[&Operation], at: usize, count: u32) -> Vec<Shape> {
    if group.iter().all(|operation| operation.count % count == 0) {
        let of = |operation: &&Operation| {
            std::iter::repeat_n(operation.inputs[at].clone(), (operation.count / count) as usize)
        };
        return bounded(group.iter().flat_map(of).collect());
    }
    let elements = |operation: &&Operation| volume(&operation.inputs[at]).saturating_mul(u64::from(operation.count));
    vec![vec![group.iter().map(elements).fold(0, u64::saturating_add) / u64::from(count)]]
}

fn volume(shape: &Shape) -> u64 {
    shape.iter().fold(1, |all, extent| all.saturating_mul(*extent))
}
