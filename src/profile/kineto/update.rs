//! The optimizer's update as a GPU runs it: operators on lists of tensors.
//!
//! Kineto leaves out the shapes of a list of more than 30 tensors, so the operators of an
//! update that take such lists have none. They are those of the calls that such an operator
//! makes for each tensor, else, of a fused optimizer, those of the gradients that the
//! backward pass before it accumulated.
//!
//! On a CPU the optimizers of PyTorch call every operator once for each tensor; on a GPU, by
//! default, once for all of them. The traffic is the same, the number of kernels is not.

use std::collections::BTreeMap;

use super::args::tensors;
use super::collect::Records;
use super::join::makers;
use super::nest::{passes, updates};
use super::record::{Host, HostKind};
use super::steps::Span;
use crate::op::name;
use crate::profile::{DType, Operation, Phase, Shape};

/// Tensors of a list that are told one by one; a longer list is told as one tensor of as
/// many elements.
const TENSORS: usize = 500;

/// Writes shapes to the operators of lists that have none; once all events are read.
pub(super) fn fill_lists(records: &mut Records) {
    let name = |host: &Host| records.names.text(host.name);
    let is_bare = |host: &Host| {
        name::takes_lists(name(host)) && host.kind == HostKind::Operator && !has_digit(records.texts.text(host.dims))
    };
    let bare: Vec<usize> = (0..records.host.len()).filter(|index| is_bare(&records.host[*index])).collect();
    if bare.is_empty() {
        return;
    }
    let mut order: Vec<usize> =
        (0..records.host.len()).filter(|index| records.host[*index].kind == HostKind::Operator).collect();
    order.sort_by(|a, b| records.host[*a].start.total_cmp(&records.host[*b].start));
    let passes = passes(records, &makers(records));
    let mut filled: Vec<(usize, String, String)> = Vec::new();
    for index in bare {
        let host = &records.host[index];
        let from = order.partition_point(|other| records.host[*other].start < host.start);
        let lists = match name::each(name(host)) {
            Some(each) => {
                let within = order[from..].iter().take_while(|other| records.host[**other].start < host.end);
                each_call(records, host, each, within.copied())
            }
            None => name::fused_lists(name(host), &arguments(records.texts.text(host.values))).and_then(|lists| {
                let pass = passes.iter().rfind(|pass| pass.start < host.start)?;
                let before = order[..from].iter().rev().take_while(|other| records.host[**other].start >= pass.start);
                let gradients =
                    before.filter(|other| name(&records.host[**other]) == "torch::autograd::AccumulateGrad");
                let mut gradients: Vec<(Shape, Option<DType>)> =
                    gradients.filter_map(|other| first_tensor(records, *other)).collect();
                gradients.reverse();
                let dtype = gradients.first()?.1.clone();
                let shapes: Vec<Shape> = gradients.into_iter().map(|(shape, _)| shape).collect();
                Some((vec![shapes; lists], dtype))
            }),
        };
        if let Some((lists, dtype)) = lists {
            let lists: Vec<Vec<Shape>> = lists.into_iter().map(as_told).collect();
            let kind = dtype.map_or("TensorList", |dtype| type_name(&dtype));
            let (Ok(dims), Ok(types)) =
                (serde_json::to_string(&lists), serde_json::to_string(&vec![kind; lists.len()]))
            else {
                continue;
            };
            filled.push((index, dims, types));
        }
    }
    for (index, dims, types) in filled {
        records.host[index].dims = records.texts.raw(dims.as_bytes());
        records.host[index].types = records.texts.raw(types.as_bytes());
    }
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

type Lists = (Vec<Vec<Shape>>, Option<DType>);

/// The lists of an operator that calls another one for each tensor.
fn each_call(records: &Records, host: &Host, each: &str, within: impl Iterator<Item = usize>) -> Option<Lists> {
    let mut lists: Vec<Vec<Shape>> = Vec::new();
    let (mut dtype, mut end) = (None, f64::NEG_INFINITY);
    for index in within {
        let call = &records.host[index];
        let name = records.names.text(call.name);
        let is_call = name::is_each(name, each);
        // The call itself, not what it calls under the same name.
        if !is_call || call.thread != host.thread || call.start < end {
            continue;
        }
        end = call.end;
        let (shapes, kind) = tensors(records.texts.text(call.dims), records.texts.text(call.types));
        dtype = dtype.or(kind);
        for (at, shape) in shapes.into_iter().filter(|shape| !shape.is_empty()).enumerate() {
            match lists.get_mut(at) {
                Some(list) => list.push(shape),
                None => lists.push(vec![shape]),
            }
        }
    }
    (!lists.is_empty()).then_some((lists, dtype))
}

/// Arguments as the trace writes them.
fn arguments(values: &str) -> Vec<String> {
    serde_json::from_str(values).unwrap_or_default()
}

fn first_tensor(records: &Records, index: usize) -> Option<(Shape, Option<DType>)> {
    let host = &records.host[index];
    let (shapes, dtype) = tensors(records.texts.text(host.dims), records.texts.text(host.types));
    shapes.into_iter().next().map(|shape| (shape, dtype))
}

/// A long list as one tensor.
fn as_told(list: Vec<Shape>) -> Vec<Shape> {
    if list.len() <= TENSORS {
        return list;
    }
    vec![vec![list.iter().map(volume).fold(0, u64::saturating_add)]]
}

fn type_name(dtype: &DType) -> &'static str {
    match dtype {
        DType::Float64 => "double",
        DType::Float32 => "float",
        DType::Float16 => "c10::Half",
        DType::Bfloat16 => "c10::BFloat16",
        _ => "TensorList",
    }
}

/// Optimizers of PyTorch that have an implementation with lists, which is the default on a GPU.
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

/// Brings the update of a CPU to lists, as a GPU runs it, and says so.
pub(super) fn with_lists(
    records: &Records,
    spans: &[Span],
    operations: Vec<Operation>,
    notes: &mut Vec<String>,
) -> Vec<Operation> {
    let class = |host: &Host| {
        let name = records.names.text(host.name).trim_start_matches("Optimizer.step#");
        name.split('.').next().unwrap_or_default().to_owned()
    };
    let updates = updates(records);
    if !updates.iter().all(|(_, step)| WITH_LISTS.contains(&&*class(step))) {
        return operations;
    }
    // Several optimizers have lists of their own.
    let inside = |step: &Host| spans.iter().any(|span| (span.start..span.end).contains(&step.start));
    let optimizers = updates.iter().filter(|(_, step)| inside(step)).count() as f64 / spans.len().max(1) as f64;
    let trained = trained(records);
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
        // What is called several times for a tensor is called as often with lists.
        let count = ((f64::from(total) / trained as f64).max(optimizers).round() as u32).clamp(1, total.max(1));
        let inputs = (0..arguments).flat_map(|at| list(&group, at, count)).collect();
        calls += total;
        with_lists += count;
        let name = name::with_lists(name);
        others.push(Operation { name, inputs, outputs: Vec::new(), count, ..(*first).clone() });
    }
    if calls > with_lists {
        notes.push(format!(
            "the optimizer's {calls} operations on single tensors are taken as the {with_lists} on lists of tensors (foreach) that PyTorch runs on a GPU by default"
        ));
    }
    others
}

/// Tensors that a backward pass accumulates gradients of.
fn trained(records: &Records) -> usize {
    let starts: Vec<f64> = passes(records, &makers(records)).iter().map(|pass| pass.start).collect();
    let mut counts = vec![0_usize; starts.len()];
    for host in &records.host {
        if records.names.text(host.name) == "torch::autograd::AccumulateGrad"
            && let Some(pass) = starts.partition_point(|start| *start <= host.start).checked_sub(1)
        {
            counts[pass] += 1;
        }
    }
    counts.into_iter().max().unwrap_or(0)
}

/// The list of one argument, of `count` calls that share the tensors out.
fn list(group: &[&Operation], at: usize, count: u32) -> Vec<Shape> {
    if group.iter().all(|operation| operation.count % count == 0) {
        let of = |operation: &&Operation| {
            std::iter::repeat_n(operation.inputs[at].clone(), (operation.count / count) as usize)
        };
        return as_told(group.iter().flat_map(of).collect());
    }
    let elements = |operation: &&Operation| volume(&operation.inputs[at]).saturating_mul(u64::from(operation.count));
    vec![vec![group.iter().map(elements).fold(0, u64::saturating_add) / u64::from(count)]]
}

fn volume(shape: &Shape) -> u64 {
    shape.iter().fold(1, |all, extent| all.saturating_mul(*extent))
}
