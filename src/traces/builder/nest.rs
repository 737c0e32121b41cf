//! Nests the ranges of every host thread.
//!
//! One sweep over all ranges by start time gives every operator its parent, every launch its innermost range, and each
//! of them a context (phase, module) from the ranges around it. Traces until 2023 have integer times, so ranges touch;
//! see [`Sweep::insert`].

use std::collections::{HashMap, HashSet};

use super::Map;
use crate::steps::{is_mark, stem};
use crate::{Range, RangeKind, Trace};
use habitat_step::op::name::{accumulates_gradients, is_autograd_node, is_collective_call};
use habitat_step::profile::Phase;

/// Index for no range.
pub(super) const NO_RANGE: u32 = u32::MAX;

/// Context of a range, from the ranges around it.
#[expect(clippy::struct_excessive_bools, reason = "independent facts: an optimizer can run within backward")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) backward: bool,
    pub(super) accumulation: bool,
    pub(super) optimizer: bool,
    pub(super) communication: bool,
    /// Within a call for the next batch: host work outside the model.
    pub(super) input: bool,
    /// Between the backward pass and the update, where gradients are prepared for it.
    pub(super) clipping: bool,
    /// Module path, an index into [`Nesting::modules`]; 0 outside modules.
    pub(super) module: u32,
    /// The enclosing autograd node.
    pub(super) node: Option<u32>,
    /// Phase reported by the recorder.
    pub(super) given: Option<Phase>,
    /// The innermost operator: the range itself or one around it.
    pub(super) operator: u32,
    /// The outermost operator or wait for the next batch: the range itself or one around it.
    pub(super) outermost: u32,
    /// The innermost range of an optimizer: the range itself or one around it.
    pub(super) of_optimizer: u32,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            backward: false,
            accumulation: false,
            optimizer: false,
            communication: false,
            input: false,
            clipping: false,
            module: 0,
            node: None,
            given: None,
            operator: NO_RANGE,
            outermost: NO_RANGE,
            of_optimizer: NO_RANGE,
        }
    }
}

/// Result of the sweep.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    /// Parent of each host range.
    pub(super) parents: Vec<u32>,
    /// Innermost range around each launch.
    pub(super) of_launch: Vec<u32>,
    pub(super) contexts: Vec<Context>,
    /// Module paths, such as `Model.Block.Linear`.
    pub(super) modules: Vec<String>,
    /// Number of ranges that overlap another of their thread without nesting.
    pub(super) overlaps: u64,
    /// Threads that run only backward work.
    pub(super) autograd_threads: HashSet<u32>,
    /// Autograd node of each forward operator.
    pub(super) node_of: Map<u32, u32>,
    /// Backward passes, in order.
    pub(super) passes: Vec<Pass>,
}

/// A backward pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pass {
    /// Start of the first operator that it differentiates.
    pub(super) made: f64,
    pub(super) start: f64,
    pub(super) end: f64,
}

/// Prefix of the ranges of calls for the next batch.
pub(super) const LOADER: &str = "enumerate(DataLoader)";

/// Maximum number of enclosing ranges to search for one that contains an overlapping range.
const SEARCH: usize = 64;
/// Maximum characters of a module path.
const PATH: usize = 240;

#[derive(Clone, Copy)]
enum Entry {
    Range(u32),
    Launch(u32),
}

/// Nests all ranges of `trace`.
pub(super) fn nest(trace: &Trace) -> Nesting {
    let mut order: Vec<(u32, f64, f64, Entry)> = Vec::with_capacity(trace.ranges.len() + trace.launches.len());
    for (index, host) in trace.ranges.iter().enumerate() {
        order.push((host.thread, host.start, host.end, Entry::Range(index as u32)));
    }
    for (index, launch) in trace.launches.iter().enumerate() {
        order.push((launch.thread, launch.start, launch.end, Entry::Launch(index as u32)));
    }
    // Outer ranges before inner ones. The sort is stable, so of equal ranges the first in the file is the outer one,
    // and launches are innermost.
    order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(b.2.total_cmp(&a.2)));
    let node_of = makers(trace);
    let mut made: Vec<f64> = node_of.keys().map(|maker| trace.ranges[*maker as usize].start).collect();
    made.sort_by(f64::total_cmp);
    let passes = passes(trace, &node_of);
    let mut sweep = Sweep {
        trace,
        stack: Vec::new(),
        paths: Map::default(),
        numbers: HashMap::new(),
        forward_threads: HashSet::new(),
        closures: closures(trace, &passes),
        clipping: clipping(trace, &passes, &made),
        nesting: Nesting {
            parents: vec![NO_RANGE; trace.ranges.len()],
            of_launch: vec![NO_RANGE; trace.launches.len()],
            contexts: vec![Context::default(); trace.ranges.len()],
            modules: vec![String::new()],
            overlaps: 0,
            autograd_threads: HashSet::new(),
            node_of,
            passes,
        },
    };
    let mut thread = None;
    for (on, start, end, range) in order {
        if thread != Some(on) {
            sweep.stack.clear();
            thread = Some(on);
        }
        sweep.insert(start, end, range);
    }
    let Sweep { mut nesting, forward_threads, .. } = sweep;
    nesting.autograd_threads.retain(|thread| !forward_threads.contains(thread));
    nesting
}

struct Sweep<'a> {
    trace: &'a Trace,
    stack: Vec<u32>,
    /// Paths by outer path and call name, and by text.
    paths: Map<(u32, u32), u32>,
    numbers: HashMap<String, u32>,
    forward_threads: HashSet<u32>,
    /// Backward passes in each optimizer step with a closure.
    closures: Map<u32, std::ops::Range<usize>>,
    /// By thread, the intervals in which gradients are clipped or otherwise prepared for the update.
    clipping: Vec<(u32, f64, f64)>,
    nesting: Nesting,
}

impl Sweep<'_> {
    fn insert(&mut self, start: f64, end: f64, entry: Entry) {
        let host = &self.trace.ranges;
        let end_of = |index: u32| host[index as usize].end;
        while let Some(&top) = self.stack.last() {
            // A range of zero length at the end of another counts as inside it.
            let over = if end > start { end_of(top) <= start } else { end_of(top) < start };
            if !over {
                break;
            }
            self.stack.pop();
        }
        // Rounding to whole microseconds can make an inner range end one later.
        let contains = |index: u32| end_of(index) + 1.0 >= end && end_of(index) >= start;
        let parent = match self.stack.last() {
            None => NO_RANGE,
            Some(&top) if contains(top) => top,
            Some(_) => {
                self.nesting.overlaps += 1;
                self.stack.iter().rev().take(SEARCH).copied().find(|index| contains(*index)).unwrap_or(NO_RANGE)
            }
        };
        match entry {
            Entry::Launch(index) => self.nesting.of_launch[index as usize] = parent,
            Entry::Range(index) => {
                self.nesting.parents[index as usize] = parent;
                self.nesting.contexts[index as usize] = self.context(index, parent);
                self.stack.push(index);
            }
        }
    }

    fn context(&mut self, index: u32, parent: u32) -> Context {
        let host = &self.trace.ranges[index as usize];
        let mut context = if parent == NO_RANGE { Context::default() } else { self.nesting.contexts[parent as usize] };
        let name = self.trace.name(host.name);
        if self.closures.get(&parent).is_some_and(|passes| self.runs_closure(parent, passes, host)) {
            context.optimizer = false;
        }
        context.given = host.phase.or(context.given);
        if host.kind == RangeKind::Operator {
            context.operator = index;
        }
        let is_own = host.kind == RangeKind::Operator || host.kind == RangeKind::Annotation && name.starts_with(LOADER);
        if is_own && context.outermost == NO_RANGE {
            context.outermost = index;
        }
        if name.starts_with("Optimizer.") {
            context.of_optimizer = index;
        }
        match host.kind {
            RangeKind::Module => context.module = self.path(context.module, host),
            RangeKind::Part => {
                context.optimizer |= is_optimizer(name);
                if !is_mark(self.trace, name) {
                    context.module = self.path(context.module, host);
                }
            }
            RangeKind::Annotation => {
                context.communication |= host.phase == Some(Phase::Communication);
                context.optimizer |= is_optimizer(name);
                context.input |= name.starts_with(LOADER);
                context.communication |= is_collective_call(name);
            }
            RangeKind::Operator => {
                if is_autograd_node(name) {
                    context.backward = true;
                    if parent == NO_RANGE {
                        self.nesting.autograd_threads.insert(host.thread);
                    }
                    if host.sequence >= 0 && host.of_forward {
                        context.node = Some(index);
                    }
                }
                // Without CUDA the backward pass runs on the thread that calls it.
                if !context.backward && host.sequence >= 0 && !host.of_forward {
                    self.forward_threads.insert(host.thread);
                }
                context.accumulation |= accumulates_gradients(name);
                context.clipping |= !context.backward && self.clips(host);
                context.communication |= is_collective_call(name);
            }
        }
        context
    }

    /// Whether a range in an optimizer step belongs to a run of its closure: from the beginning of the step, or the
    /// first differentiated operator, to the end of the backward pass.
    fn runs_closure(&self, step: u32, inside: &std::ops::Range<usize>, host: &Range) -> bool {
        let passes = &self.nesting.passes[inside.clone()];
        // The operator around a maker starts before it.
        let from = passes.partition_point(|pass| pass.end <= host.start);
        passes[from..].iter().take(SEARCH).enumerate().any(|(index, pass)| {
            let begun = if from + index == 0 { self.trace.ranges[step as usize].start } else { pass.made };
            host.end > begun
        })
    }

    /// Whether it starts where gradients are prepared for the update.
    fn clips(&self, host: &Range) -> bool {
        let after = self.clipping.partition_point(|(thread, from, _)| (*thread, *from) <= (host.thread, host.start));
        let last = after.checked_sub(1).map(|last| self.clipping[last]);
        last.is_some_and(|(thread, _, to)| thread == host.thread && host.start < to)
    }

    /// Path of a module called within another. Uses the class without its number, so that equal layers form one group.
    fn path(&mut self, outer: u32, host: &Range) -> u32 {
        if let Some(&path) = self.paths.get(&(outer, host.name)) {
            return path;
        }
        let name = self.trace.name(host.name);
        let class = name.strip_prefix("nn.Module: ").unwrap_or(name);
        let class = match host.kind {
            RangeKind::Part => stem(class),
            _ => class.rsplit_once('_').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit())).map_or(class, |c| c.0),
        };
        let outer_path = &self.nesting.modules[outer as usize];
        let path = if outer_path.is_empty() {
            class.to_owned()
        } else if outer_path.len() + class.len() < PATH {
            format!("{outer_path}.{class}")
        } else {
            outer_path.clone()
        };
        let modules = &mut self.nesting.modules;
        let number = *self.numbers.entry(path).or_insert_with_key(|path| {
            modules.push(path.clone());
            modules.len() as u32 - 1
        });
        self.paths.insert((outer, host.name), number);
        number
    }
}

/// Autograd node of each forward operator. A node has the sequence number of the operator that created it; of the
/// forward operators with that number, the last one to start created it.
pub(super) fn makers(trace: &Trace) -> Map<u32, u32> {
    let mut makers: Map<i64, u32> = Map::default();
    let mut nodes: Map<i64, u32> = Map::default();
    for (index, host) in trace.ranges.iter().enumerate() {
        if host.sequence < 0 || host.kind != RangeKind::Operator {
            continue;
        }
        let index = index as u32;
        if host.of_forward {
            if !trace.name(host.name).starts_with("autograd::engine") {
                nodes.insert(host.sequence, index);
            }
        } else {
            let maker = makers.entry(host.sequence).or_insert(index);
            let known = &trace.ranges[*maker as usize];
            if (known.start, -known.end) < (host.start, -host.end) {
                *maker = index;
            }
        }
    }
    nodes
        .into_iter()
        .filter_map(|(sequence, node)| {
            let maker = *makers.get(&sequence)?;
            (trace.ranges[maker as usize].start <= trace.ranges[node as usize].start).then_some((maker, node))
        })
        .collect()
}

/// Backward passes: runs of autograd nodes in which no node was created after the run began. Several losses of one
/// forward pass form one run.
pub(super) fn passes(trace: &Trace, node_of: &Map<u32, u32>) -> Vec<Pass> {
    let made: Map<i64, f64> =
        node_of.keys().map(|maker| &trace.ranges[*maker as usize]).map(|maker| (maker.sequence, maker.start)).collect();
    let mut nodes: Vec<&Range> = trace
        .ranges
        .iter()
        .filter(|host| host.kind == RangeKind::Operator && is_autograd_node(trace.name(host.name)))
        .collect();
    nodes.sort_by(|a, b| a.start.total_cmp(&b.start));
    let mut passes: Vec<Pass> = Vec::new();
    for node in nodes {
        let made = made.get(&node.sequence).copied().filter(|_| node.of_forward);
        match passes.last_mut() {
            // Within another node, for example if a checkpointed block is recomputed.
            Some(pass) if node.start < pass.end => pass.end = pass.end.max(node.end),
            Some(pass) if made.is_none_or(|made| made < pass.end) => {
                pass.made = made.map_or(pass.made, |made| made.min(pass.made));
                pass.end = node.end;
            }
            _ => passes.push(Pass { made: made.unwrap_or(node.start), start: node.start, end: node.end }),
        }
    }
    passes
}

/// Optimizer steps, in order.
pub(super) fn updates(trace: &Trace) -> Vec<(u32, &Range)> {
    let is_update =
        |host: &Range| host.kind == RangeKind::Annotation && trace.name(host.name).starts_with("Optimizer.step#");
    let mut updates: Vec<(u32, &Range)> = (0..).zip(&trace.ranges).filter(|(_, host)| is_update(host)).collect();
    updates.sort_by(|a, b| a.1.start.total_cmp(&b.1.start));
    updates
}

/// Optimizer steps that contain backward passes: `optimizer.step(closure)`, which Lightning calls once and LBFGS
/// several times. The forward and backward passes are then inside the range of the step, and the update itself is the
/// time between and after them.
fn closures(trace: &Trace, passes: &[Pass]) -> Map<u32, std::ops::Range<usize>> {
    let begun = |time: f64| passes.partition_point(|pass| pass.start < time);
    let inside = |(index, step): (u32, &Range)| (index, begun(step.start)..begun(step.end));
    updates(trace).into_iter().map(inside).filter(|(_, passes)| !passes.is_empty()).collect()
}

/// Intervals from the end of a backward pass to the update in which no differentiated operator is called: gradients are
/// clipped or unscaled there.
fn clipping(trace: &Trace, passes: &[Pass], made: &[f64]) -> Vec<(u32, f64, f64)> {
    let mut between = Vec::new();
    // Optimizers that have stepped since the last pass.
    let (mut stepped, mut last) = (HashSet::new(), 0);
    for (_, step) in updates(trace) {
        let before = passes.partition_point(|pass| pass.end <= step.start);
        let Some(pass) = before.checked_sub(1).map(|last| passes[last]) else { continue };
        if before != last {
            stepped.clear();
            last = before;
        }
        let is_stepped = stepped.contains(&step.name);
        if step.start > pass.end {
            stepped.insert(step.name);
        }
        let from = made.partition_point(|time| *time < pass.end);
        if !is_stepped && made.get(from).is_none_or(|time| *time > step.start) {
            between.push((step.thread, pass.end, step.start));
        }
    }
    between.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    between
}

/// Whether a user range is the parameter update or zeroing of gradients.
fn is_optimizer(name: &str) -> bool {
    name.starts_with("Optimizer.") || {
        let name = name.to_ascii_lowercase();
        name.contains("optimizer") || name.contains("zero_grad")
    }
}
