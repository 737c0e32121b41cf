//! Groups equal occurrences into operations.
//!
//! Occurrences of one call (name, shapes, type, attributes), phase and module group form one operation if they launch
//! the same kernels, or several if the library chose different kernels in different places. Nothing is lost or counted
//! twice: the sum of `count` × `device_time` over all operations is the mean device time of a step.

use std::collections::HashMap;

use super::Map;
use super::describe::{Description, describe};
use super::join::{Joined, Occurrence};
use crate::{NONE, Trace};
use habitat_base::units::Micros;
use habitat_step::op::name;
use habitat_step::profile::{Attribute, Kernel, Operation, Phase, Shape};

/// Occurrences that launch the same kernels.
#[derive(Debug, Clone)]
struct Variant {
    /// Name and launch configuration of each kernel, in launch order.
    kernels: Vec<(u32, u32)>,
    /// Device time of each kernel, summed over the occurrences.
    times: Vec<f64>,
    occurrences: u64,
    time: f64,
    first: usize,
    /// Indices of its occurrences.
    members: Vec<usize>,
}

type Key = (u32, Phase, u32);

/// A call, as numbers of the trace's tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Call {
    /// An operator: its name and arguments, and the tensors of the gradients of its results.
    Operator { name: u32, tensors: u32, scalars: u32, results: u32 },
    /// Work without an operator: its name, its launch, and the tensors of the range around it.
    Lone { name: u32, tensors: u32, configuration: u32 },
}

/// Descriptions of calls; each distinct call is described once.
#[derive(Default)]
struct Descriptions {
    by_call: Map<Call, u32>,
    by_value: HashMap<String, u32>,
    /// By description from the arguments alone.
    by_bare: HashMap<String, u32>,
    list: Vec<Description>,
}

/// Operations of a step, from the occurrences of the `kept` steps.
pub(super) fn operations(trace: &Trace, joined: &Joined, modules: &[String], kept: &[usize]) -> Grouped {
    let mut descriptions = Descriptions::default();
    let mut groups: Map<Key, Vec<Variant>> = Map::default();
    let outputs = Results::new(trace, joined);
    for (order, occurrence) in joined.occurrences.iter().enumerate() {
        if kept.binary_search(&(occurrence.step as usize)).is_err() {
            continue;
        }
        let description = descriptions.describe(trace, occurrence, &outputs);
        let key = (description, occurrence.phase, occurrence.module);
        add(groups.entry(key).or_default(), trace, occurrence, order);
    }
    let steps = kept.len().max(1) as f64;
    let mut grouped: Vec<(usize, Operation, Vec<usize>)> = Vec::new();
    let mut inferred = 0;
    for ((description, phase, module), variants) in groups {
        let description = &descriptions.list[description as usize];
        inferred += usize::from(description.inferred);
        for variant in settle(variants, steps) {
            let module = modules.get(module as usize).filter(|module| !module.is_empty()).cloned();
            let mut operation = operation(trace, description, phase, module, &variant, steps);
            operation.cpu_time = cpu_time(trace, joined, &variant, steps * f64::from(operation.count));
            grouped.push((variant.first, operation, variant.members));
        }
    }
    grouped.sort_by_key(|(first, ..)| *first);
    let mut of = vec![None; joined.occurrences.len()];
    for (number, (_, _, members)) in (0..).zip(&grouped) {
        for member in members {
            of[*member] = Some(number);
        }
    }
    Grouped { operations: grouped.into_iter().map(|(_, operation, _)| operation).collect(), of, inferred }
}

/// Result of [`operations`].
pub(super) struct Grouped {
    pub(super) operations: Vec<Operation>,
    /// Operation of each occurrence; `None` in steps left out.
    pub(super) of: Vec<Option<u32>>,
    /// Number of operations whose stride and padding were derived from shapes.
    pub(super) inferred: usize,
}

fn add(variants: &mut Vec<Variant>, trace: &Trace, occurrence: &Occurrence, order: usize) {
    let work = || occurrence.work.iter().map(|index| &trace.work[*index as usize]);
    let same = |variant: &Variant| {
        variant.kernels.len() == occurrence.work.len()
            && variant.kernels.iter().zip(work()).all(|(known, device)| *known == (device.name, device.configuration))
    };
    let time: f64 = work().map(|device| device.end - device.start).sum();
    match variants.iter().position(same) {
        Some(index) => {
            let variant = &mut variants[index];
            for (sum, device) in variant.times.iter_mut().zip(work()) {
                *sum += device.end - device.start;
            }
            variant.occurrences += 1;
            variant.time += time;
            variant.members.push(order);
        }
        None if variants.len() < VARIANTS => variants.push(Variant {
            kernels: work().map(|device| (device.name, device.configuration)).collect(),
            times: work().map(|device| device.end - device.start).collect(),
            occurrences: 1,
            time,
            first: order,
            members: vec![order],
        }),
        None => {
            variants[0].occurrences += 1;
            variants[0].time += time;
            variants[0].members.push(order);
        }
    }
}

/// Maximum number of variants per call: an operator that never repeats its kernels (a graph launch) must not make the
/// search quadratic.
const VARIANTS: usize = 64;

/// Merges variants that occur in fewer than half of the steps into the most frequent one.
fn settle(mut variants: Vec<Variant>, steps: f64) -> Vec<Variant> {
    variants.sort_by(|a, b| b.occurrences.cmp(&a.occurrences).then(a.first.cmp(&b.first)));
    let (mut major, minor): (Vec<Variant>, Vec<Variant>) =
        variants.into_iter().partition(|variant| variant.occurrences as f64 / steps >= 0.5);
    let mut minor = minor.into_iter();
    if major.is_empty() {
        major.extend(minor.next());
    }
    if let Some(first) = major.first_mut() {
        for variant in minor {
            first.occurrences += variant.occurrences;
            first.time += variant.time;
            first.first = first.first.min(variant.first);
            first.members.extend(variant.members);
        }
    }
    major
}

fn operation(
    trace: &Trace,
    description: &Description,
    phase: Phase,
    module: Option<String>,
    variant: &Variant,
    steps: f64,
) -> Operation {
    let count = ((variant.occurrences as f64 / steps).round() as u32).max(1);
    let device_time = variant.time / steps / f64::from(count);
    // For merged variants, uses the kernels of the most frequent one, scaled so that they still add up to the device
    // time.
    let own: f64 = variant.times.iter().sum();
    let scale = if own > 0.0 { device_time / own } else { 0.0 };
    let mut kernels: Vec<((u32, u32), u32, f64)> = Vec::new();
    for (kernel, time) in variant.kernels.iter().zip(&variant.times) {
        match kernels.iter_mut().take(KERNELS).find(|(known, ..)| known == kernel) {
            Some((_, count, sum)) => {
                *count += 1;
                *sum += time;
            }
            None => kernels.push((*kernel, 1, *time)),
        }
    }
    let kernels = kernels.into_iter().map(|(kernel, count, time)| self::kernel(trace, kernel, count, time * scale));
    Operation {
        name: description.name.clone(),
        module,
        phase,
        count,
        inputs: description.inputs.clone(),
        outputs: description.outputs.clone(),
        dtype: description.dtype.clone(),
        attributes: description.attributes.clone(),
        cpu_time: None,
        device_time: (!variant.kernels.is_empty()).then(|| Micros::known(device_time)),
        kernels: kernels.collect(),
    }
}

/// Mean CPU time of an operation's occurrences; `None` if the trace has work of a device, for which the CPU only
/// launches.
fn cpu_time(trace: &Trace, joined: &Joined, variant: &Variant, occurrences: f64) -> Option<Micros> {
    let operators = variant.members.iter().filter_map(|member| joined.occurrences[*member].operator);
    let times = operators.map(|operator| &trace.ranges[operator as usize]).map(|range| range.end - range.start);
    trace.work.is_empty().then(|| Micros::known(times.sum::<f64>() / occurrences))
}

/// Maximum number of distinct kernels per occurrence that are searched for repetitions.
const KERNELS: usize = 256;

fn kernel(trace: &Trace, (name, shape): (u32, u32), count: u32, time: f64) -> Kernel {
    let shape = trace.configurations.get(shape);
    Kernel {
        name: shown_name(trace.name(name)),
        count,
        duration: Micros::known(time / f64::from(count)),
        grid: shape.grid,
        block: shape.block,
        registers_per_thread: shape.registers,
        static_shared_memory_bytes: shape.shared_memory,
        dynamic_shared_memory_bytes: shape.dynamic_memory,
        flops: None,
        dram_bytes: None,
    }
}

fn shown_name(name: &str) -> String {
    if name.trim().is_empty() { "(unnamed)".to_owned() } else { name.to_owned() }
}

impl Descriptions {
    fn describe(&mut self, trace: &Trace, occurrence: &Occurrence, outputs: &Results<'_>) -> u32 {
        let call = if let Some(operator) = occurrence.operator {
            let range = &trace.ranges[operator as usize];
            let results = outputs.tensors(operator);
            Call::Operator { name: range.name, tensors: range.tensors, scalars: range.scalars, results }
        } else {
            let work = &trace.work[occurrence.work[0] as usize];
            let tensors = occurrence.shapes_of.map_or(NONE, |range| trace.ranges[range as usize].tensors);
            Call::Lone { name: work.name, tensors, configuration: work.configuration }
        };
        if let Some(&number) = self.by_call.get(&call) {
            return number;
        }
        let described = |known: &[Shape]| {
            let mut description = match call {
                Call::Operator { name, tensors, scalars, .. } => {
                    describe(trace.name(name), trace.tensors.get(tensors), trace.scalars.get(scalars), known)
                }
                Call::Lone { name, tensors, configuration } => lone(trace, name, tensors, configuration),
            };
            description.name = shown_name(&description.name);
            description
        };
        // The gradient of the first result is the first tensor; others may be missing.
        let known = match call {
            Call::Operator { results, .. } => trace.tensors.get(results).shapes.first(),
            Call::Lone { .. } => None,
        };
        let known: Vec<Shape> = known.into_iter().filter(|shape| !shape.is_empty()).cloned().collect();
        let number = self.number(&described(&[]), described(&known));
        self.by_call.insert(call, number);
        number
    }

    /// Number of a description; `bare` is the part that follows from its own arguments. An occurrence without a
    /// recorded gradient adds no information and is merged with one that has it.
    fn number(&mut self, bare: &Description, full: Description) -> u32 {
        let (of_bare, of_full) = (format!("{bare:?}"), format!("{full:?}"));
        let alike = self.by_bare.get(&of_bare).copied();
        let number = match (alike, self.by_value.get(&of_full)) {
            (Some(alike), _) if of_full == of_bare => alike,
            (_, Some(&known)) => known,
            (Some(alike), None) if self.list[alike as usize] == *bare => {
                self.list[alike as usize] = full;
                alike
            }
            (_, None) => {
                self.list.push(full);
                self.list.len() as u32 - 1
            }
        };
        self.by_value.insert(of_full, number);
        self.by_bare.entry(of_bare).or_insert(number);
        number
    }
}

/// Describes work without an operator: an operation named after its kernel.
fn lone(trace: &Trace, name: u32, tensors: u32, configuration: u32) -> Description {
    let tensors = trace.tensors.get(tensors).clone();
    let mut description = Description {
        name: trace.name(name).to_owned(),
        inputs: tensors.shapes,
        dtype: tensors.dtype,
        ..Description::default()
    };
    let shape = trace.configurations.get(configuration);
    let mut note = |name: &str, value: Option<Attribute>| {
        if let Some(value) = value {
            description.attributes.insert(name.to_owned(), value);
        }
    };
    let whole = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok()).map(Attribute::Int);
    note("elements", whole(shape.elements));
    note("group_size", whole(shape.group_size));
    let collective = trace.name(shape.collective);
    note("collective", (!collective.is_empty()).then(|| Attribute::Text(collective.to_owned())));
    description
}

/// Finds the shapes of an operator's results in its autograd node: the gradients passed to the node have the shapes of
/// the results.
struct Results<'a> {
    trace: &'a Trace,
    /// Node by sequence number of the operator that created it.
    nodes: Map<i64, (u32, u32)>,
    joined: &'a Joined,
}

impl<'a> Results<'a> {
    fn new(trace: &'a Trace, joined: &'a Joined) -> Self {
        let nodes = joined
            .node_of
            .iter()
            .map(|(maker, node)| (trace.ranges[*maker as usize].sequence, (*maker, *node)))
            .collect();
        Self { trace, nodes, joined }
    }

    fn tensors(&self, operator: u32) -> u32 {
        let node = self.joined.node_of.get(&operator).copied().or_else(|| self.through_maker(operator));
        node.map_or(NONE, |node| self.trace.ranges[node as usize].tensors)
    }

    /// `aten::convolution` creates the node of a convolution, but an operator two levels below computes it; the result
    /// is the same.
    fn through_maker(&self, operator: u32) -> Option<u32> {
        let host = &self.trace.ranges[operator as usize];
        let name = self.trace.name(host.name);
        if !name::is_convolution(name) {
            return None;
        }
        let parent = self.joined.around.get(&operator)?;
        let (maker, node) = self.nodes.get(&self.trace.ranges[*parent as usize].sequence)?;
        (maker == parent).then_some(*node)
    }
}
