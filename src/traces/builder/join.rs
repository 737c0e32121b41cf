//! Matches kernels to the operators that launched them, step by step.
//!
//! kernel → launch by `correlation` → innermost operator in time on the launching thread. `External id` is not used:
//! from mid-2022 to 2023 it repeats the correlation.
//!
//! In a chain such as `aten::linear` → `aten::addmm`, the innermost operator is *the* operation, with two exceptions:
//! - an operator that only implements another one (`cudnn_convolution_backward_input`, `_flash_attention_forward`) is
//!   replaced by that one, see [`carried_out_for`];
//! - in a trace with shapes, an operator without shapes is replaced by the innermost operator around it that has
//!   shapes, up to the autograd node.
//!
//! Kernels that an optimizer step launches without any operator belong to the range of that step. Collectives are
//! operations of their own, named after their kernels.

use super::Map;
use super::launched::Launched;
use super::nest::{Context, NO_RANGE, Nesting};
use crate::{Span, Trace, Work, WorkKind};
use habitat_step::op::name::{
    calls_a_convolution, carried_out_for, is_autograd_node, is_collective_kernel, is_copy_between_gpus,
};
use habitat_step::profile::{Phase, is_host_transfer};

/// One occurrence of an operation: an operator call and the device work it launched.
#[derive(Debug)]
pub(super) struct Occurrence {
    pub(super) step: u32,
    /// The operator, an index into `trace.ranges`; `None` if no operator launched it.
    pub(super) operator: Option<u32>,
    /// Range that has the shapes of a collective.
    pub(super) shapes_of: Option<u32>,
    /// Whether a collective was launched within the range of its collective call.
    pub(super) within_range: bool,
    pub(super) phase: Phase,
    pub(super) module: u32,
    /// Indices into `trace.work`, in launch order.
    pub(super) work: Vec<u32>,
}

/// Matched work, and counts of work that was not matched.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// In order of first launch.
    pub(super) occurrences: Vec<Occurrence>,
    /// Device that the step runs on.
    pub(super) device: u32,
    /// Kernels launched outside of all steps.
    pub(super) outside: u64,
    /// Kernels on other devices.
    pub(super) elsewhere: u64,
    /// Autograd node of each forward operator.
    pub(super) node_of: Map<u32, u32>,
    /// Forward operator of each autograd node.
    pub(super) maker_of: Map<u32, u32>,
    /// Nearest enclosing operator with a sequence number, for convolutions without one.
    pub(super) around: Map<u32, u32>,
}

/// The device with the most kernel time.
pub(super) fn main_device(devices: &[Work]) -> u32 {
    let mut times = std::collections::BTreeMap::<u32, f64>::new();
    for device in devices {
        *times.entry(device.device).or_default() += device.end - device.start;
    }
    times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))).map_or(0, |(device, _)| device)
}

/// Matches the work launched in `spans` to operators.
pub(super) fn join(trace: &Trace, nesting: &Nesting, launched: &[Launched], spans: &[Span]) -> Joined {
    let mut joined = Joined { device: main_device(&trace.work), node_of: nesting.node_of.clone(), ..Joined::default() };
    joined.maker_of = joined.node_of.iter().map(|(maker, node)| (*node, *maker)).collect();
    // For each range: the operation it belongs to, and the last step in which that operation launched work, with its
    // occurrence. Launches are in step order.
    let mut levels: Vec<u32> = vec![NO_RANGE; trace.ranges.len()];
    let mut open: Vec<(u32, u32)> = vec![(u32::MAX, 0); trace.ranges.len()];
    for launch in launched {
        let device = &trace.work[launch.device as usize];
        let is_kernel = u64::from(device.kind == WorkKind::Kernel);
        if device.device != joined.device {
            joined.elsewhere += is_kernel;
            continue;
        }
        let Some(step) = Span::at(spans, launch.time) else {
            joined.outside += is_kernel;
            continue;
        };
        // Fused optimizers outside PyTorch (such as Apex's) launch kernels directly; such work belongs to the range of
        // the optimizer step.
        let operator = innermost_operator(nesting, launch.range)
            .map(|innermost| {
                let known = &mut levels[innermost as usize];
                if *known == NO_RANGE {
                    *known = level(trace, nesting, innermost);
                }
                *known
            })
            .or_else(|| around(nesting, launch.range, |context| context.of_optimizer));
        let collective = match device.kind {
            WorkKind::Kernel => is_collective_kernel(trace.name(device.name)),
            WorkKind::Copy => is_copy_between_gpus(trace.name(device.name)),
            WorkKind::Set => false,
        };
        // A collective is an operation of its own, named after its kernel.
        if let (Some(operator), false) = (operator, collective) {
            let (last_step, index) = &mut open[operator as usize];
            if *last_step != step as u32 {
                (*last_step, *index) = (step as u32, joined.occurrences.len() as u32);
                let module = module(nesting, operator, &joined.maker_of);
                if let Some(maker) = numbered_around(trace, nesting, operator) {
                    joined.around.insert(operator, maker);
                }
                joined.occurrences.push(Occurrence {
                    step: step as u32,
                    operator: Some(operator),
                    shapes_of: None,
                    within_range: false,
                    phase: Phase::Other,
                    module,
                    work: Vec::new(),
                });
            }
            joined.occurrences[*index as usize].work.push(launch.device);
        } else {
            let shapes_of = collective.then(|| range_with_shapes(trace, nesting, launch.range)).flatten();
            joined.occurrences.push(Occurrence {
                step: step as u32,
                operator: None,
                shapes_of,
                within_range: collective
                    && (operator.is_some()
                        || nesting.contexts.get(launch.range as usize).is_some_and(|context| context.communication)),
                phase: lone_phase(nesting, device, launch, collective),
                module: lone_module(trace, nesting, launch.range),
                work: vec![launch.device],
            });
        }
    }
    for occurrence in &mut joined.occurrences {
        if let Some(operator) = occurrence.operator {
            occurrence.phase = phase(trace, nesting, operator, &occurrence.work);
        }
    }
    joined
}

fn numbered_around(trace: &Trace, nesting: &Nesting, operator: u32) -> Option<u32> {
    let host = &trace.ranges[operator as usize];
    if host.sequence >= 0 || !calls_a_convolution(trace.name(host.name)) {
        return None;
    }
    std::iter::successors(Some(operator), |range| nesting.parents.get(*range as usize).copied())
        .skip(1)
        .take(4)
        .take_while(|range| *range != NO_RANGE)
        .find(|range| trace.ranges[*range as usize].sequence >= 0)
}

/// A field of a range's context, if it is set.
fn around(nesting: &Nesting, range: u32, which: impl Fn(&Context) -> u32) -> Option<u32> {
    nesting.contexts.get(range as usize).map(which).filter(|found| *found != NO_RANGE)
}

/// The range itself or the nearest range around it that is an operator.
fn innermost_operator(nesting: &Nesting, range: u32) -> Option<u32> {
    around(nesting, range, |context| context.operator)
}

pub(super) fn has_shapes(trace: &Trace, range: u32) -> bool {
    trace.tensors(&trace.ranges[range as usize]).has_extents()
}

/// The operator in the chain around `innermost` that is the operation.
pub(super) fn level(trace: &Trace, nesting: &Nesting, innermost: u32) -> u32 {
    let name = |range: u32| trace.name(trace.ranges[range as usize].name);
    let operators = || {
        std::iter::successors(Some(innermost), |range| innermost_operator(nesting, nesting.parents[*range as usize]))
            .skip(1)
            .take(8)
    };
    let owners = carried_out_for(name(innermost));
    if !owners.is_empty()
        && let Some(owner) = operators().take(3).find(|range| owners.contains(&name(*range)))
    {
        return owner;
    }
    if has_shapes(trace, innermost) || !trace.has_shapes {
        return innermost;
    }
    operators()
        .take_while(|range| !is_autograd_node(name(*range)))
        .find(|range| has_shapes(trace, *range))
        .unwrap_or(innermost)
}

/// Module of an operator. A backward operator has the module of the forward operator whose node it runs in.
pub(super) fn module(nesting: &Nesting, operator: u32, maker_of: &Map<u32, u32>) -> u32 {
    let context = nesting.contexts[operator as usize];
    if context.module != 0 || nesting.modules.len() <= 1 {
        return context.module;
    }
    let maker = context.node.and_then(|node| maker_of.get(&node));
    maker.map_or(0, |maker| nesting.contexts[*maker as usize].module)
}

fn range_with_shapes(trace: &Trace, nesting: &Nesting, range: u32) -> Option<u32> {
    std::iter::successors(Some(range), |range| nesting.parents.get(*range as usize).copied())
        .take_while(|range| *range != NO_RANGE)
        .take(6)
        .find(|range| has_shapes(trace, *range))
}

/// Phase of an operator that launched `work`.
pub(super) fn phase(trace: &Trace, nesting: &Nesting, operator: u32, work: &[u32]) -> Phase {
    let context = nesting.contexts[operator as usize];
    let only_transfers = || {
        !work.is_empty()
            && work
                .iter()
                .map(|index| &trace.work[*index as usize])
                .all(|device| device.kind == WorkKind::Copy && is_host_transfer(trace.name(device.name)))
    };
    if let Some(given) = context.given.filter(|_| !context.communication) {
        return given;
    }
    if context.communication {
        Phase::Communication
    } else if context.accumulation {
        Phase::GradientAccumulation
    } else if context.optimizer {
        Phase::Optimizer
    } else if only_transfers() {
        Phase::Copy
    } else if context.clipping {
        Phase::Optimizer
    } else if context.backward || nesting.autograd_threads.contains(&trace.ranges[operator as usize].thread) {
        Phase::Backward
    } else {
        Phase::Forward
    }
}

/// Phase of device work without an operator.
fn lone_phase(nesting: &Nesting, device: &Work, launch: &Launched, collective: bool) -> Phase {
    let context = nesting.contexts.get(launch.range as usize).copied().unwrap_or_default();
    if collective || context.communication {
        Phase::Communication
    } else if device.kind != WorkKind::Kernel {
        Phase::Copy
    } else if let Some(given) = context.given {
        given
    } else if context.optimizer {
        Phase::Optimizer
    } else if nesting.autograd_threads.contains(&launch.thread) {
        // The autograd engine itself adds gradients that meet in one place.
        Phase::Backward
    } else {
        Phase::Other
    }
}

/// Group of work without an operator: the program's ranges around it, if the recorder has nothing better.
fn lone_module(trace: &Trace, nesting: &Nesting, range: u32) -> u32 {
    let context = nesting.contexts.get(range as usize);
    context.filter(|_| trace.recorder.grouping.is_by_range()).map_or(0, |context| context.module)
}
