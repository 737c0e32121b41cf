//! Which range contains which, on every host thread.
//!
//! One sweep over all ranges by start time gives every operator its parent, every launch
//! its innermost range, and to each what the ranges around it say: the phase and the
//! module. Times are integers in traces until 2023, so ranges touch; see [`Sweep::place`].

use std::collections::{HashMap, HashSet};

use super::collect::Records;
use super::record::{Host, HostKind};
use super::steps::stem;
use crate::profile::Phase;

/// No range.
pub(super) const NO_RANGE: u32 = u32::MAX;

/// What the ranges around a range say.
#[expect(clippy::struct_excessive_bools, reason = "independent facts: an optimizer can run within backward")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) backward: bool,
    pub(super) accumulation: bool,
    pub(super) optimizer: bool,
    pub(super) communication: bool,
    /// Number of the module path in [`Nesting::modules`], 0 outside modules.
    pub(super) module: u32,
    /// The autograd node around it.
    pub(super) node: Option<u32>,
    /// The phase that the recorder gives.
    pub(super) given: Option<Phase>,
}

/// The result of the sweep.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    /// For each host range the one around it.
    pub(super) parents: Vec<u32>,
    /// For each launch the innermost range around it.
    pub(super) of_launch: Vec<u32>,
    pub(super) contexts: Vec<Context>,
    /// Module paths, as `Model.Block.Linear`.
    pub(super) modules: Vec<String>,
    /// Ranges that overlap another of their thread without containing it.
    pub(super) overlaps: u64,
    /// Threads that only run backward work.
    pub(super) autograd_threads: HashSet<u32>,
}

/// How far up the sweep looks for a range that contains an overlapping one.
const SEARCH: usize = 64;
/// Characters of a module path.
const PATH: usize = 240;

#[derive(Clone, Copy)]
enum Range {
    Host(u32),
    Launch(u32),
}

/// Nests all ranges of `records`.
pub(super) fn nest(records: &Records) -> Nesting {
    let mut order: Vec<(u32, f64, f64, Range)> = Vec::with_capacity(records.host.len() + records.launches.len());
    for (index, host) in records.host.iter().enumerate() {
        order.push((host.thread, host.start, host.end, Range::Host(index as u32)));
    }
    for (index, launch) in records.launches.iter().enumerate() {
        order.push((launch.thread, launch.start, launch.end, Range::Launch(index as u32)));
    }
    // Outer ranges before inner ones; the sort is stable, so of equal ranges the first in
    // the file is the outer one, and launches are innermost.
    order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(b.2.total_cmp(&a.2)));
    let mut sweep = Sweep {
        records,
        stack: Vec::new(),
        paths: HashMap::new(),
        numbers: HashMap::new(),
        forward_threads: HashSet::new(),
        closures: closures(records),
        nesting: Nesting {
            parents: vec![NO_RANGE; records.host.len()],
            of_launch: vec![NO_RANGE; records.launches.len()],
            contexts: vec![Context::default(); records.host.len()],
            modules: vec![String::new()],
            overlaps: 0,
            autograd_threads: HashSet::new(),
        },
    };
    let mut thread = None;
    for (on, start, end, range) in order {
        if thread != Some(on) {
            sweep.stack.clear();
            thread = Some(on);
        }
        sweep.place(start, end, range);
    }
    let Sweep { mut nesting, forward_threads, .. } = sweep;
    nesting.autograd_threads.retain(|thread| !forward_threads.contains(thread));
    nesting
}

struct Sweep<'a> {
    records: &'a Records,
    stack: Vec<u32>,
    /// Paths by the outer path and the call's name, and by their text.
    paths: HashMap<(u32, u32), u32>,
    numbers: HashMap<String, u32>,
    forward_threads: HashSet<u32>,
    /// For optimizer steps with a closure, when the closure's last backward node ends.
    closures: HashMap<u32, f64>,
    nesting: Nesting,
}

impl Sweep<'_> {
    fn place(&mut self, start: f64, end: f64, range: Range) {
        let host = &self.records.host;
        let end_of = |index: u32| host[index as usize].end;
        while let Some(&top) = self.stack.last() {
            // A range of no length at the end of another is taken to be inside it.
            let over = if end > start { end_of(top) <= start } else { end_of(top) < start };
            if !over {
                break;
            }
            self.stack.pop();
        }
        // Rounding to whole microseconds can let an inner range end one later.
        let contains = |index: u32| end_of(index) + 1.0 >= end && end_of(index) >= start;
        let parent = match self.stack.last() {
            None => NO_RANGE,
            Some(&top) if contains(top) => top,
            Some(_) => {
                self.nesting.overlaps += 1;
                self.stack.iter().rev().take(SEARCH).copied().find(|index| contains(*index)).unwrap_or(NO_RANGE)
            }
        };
        match range {
            Range::Launch(index) => self.nesting.of_launch[index as usize] = parent,
            Range::Host(index) => {
                self.nesting.parents[index as usize] = parent;
                self.nesting.contexts[index as usize] = self.context(index, parent);
                self.stack.push(index);
            }
        }
    }

    fn context(&mut self, index: u32, parent: u32) -> Context {
        let host = &self.records.host[index as usize];
        let mut context = if parent == NO_RANGE { Context::default() } else { self.nesting.contexts[parent as usize] };
        let name = self.records.names.text(host.name);
        if self.closures.get(&parent).is_some_and(|end| host.start < *end) {
            context.optimizer = false;
        }
        context.given = host.phase.or(context.given);
        match host.kind {
            HostKind::Module => context.module = self.path(context.module, host),
            HostKind::Part => {
                context.optimizer |= is_optimizer(name);
                if !self.records.is_mark(name) {
                    context.module = self.path(context.module, host);
                }
            }
            HostKind::Annotation => {
                context.communication |= host.phase == Some(Phase::Communication);
                context.optimizer |= is_optimizer(name);
                context.communication |= name.starts_with("nccl:") || name.starts_with("rccl:");
            }
            HostKind::Operator => {
                if is_autograd_node(name) {
                    context.backward = true;
                    if parent == NO_RANGE {
                        self.nesting.autograd_threads.insert(host.thread);
                    }
                    if host.sequence >= 0 && host.of_forward {
                        context.node = Some(index);
                    }
                }
                // Without CUDA the backward pass runs on the thread that asks for it.
                if !context.backward && host.sequence >= 0 && !host.of_forward {
                    self.forward_threads.insert(host.thread);
                }
                context.accumulation |= name.contains("AccumulateGrad");
                context.communication |=
                    name.starts_with("c10d::") || name == "record_param_comms" || name.starts_with("nccl:");
            }
        }
        context
    }

    /// The path of a module called within another; calls are told by class, not by number,
    /// so that equal layers are one group.
    fn path(&mut self, outer: u32, host: &Host) -> u32 {
        if let Some(&path) = self.paths.get(&(outer, host.name)) {
            return path;
        }
        let name = self.records.names.text(host.name);
        let class = name.strip_prefix("nn.Module: ").unwrap_or(name);
        let class = match host.kind {
            HostKind::Part => stem(class),
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

/// Optimizer steps in which a backward pass runs: `optimizer.step(closure)`, as Lightning
/// calls it. The forward and the backward pass are then inside of the step's range, and the
/// update itself is what comes after them.
fn closures(records: &Records) -> HashMap<u32, f64> {
    let named = |host: &Host| records.names.text(host.name);
    let mut nodes: Vec<(f64, f64)> = records
        .host
        .iter()
        .filter(|host| host.kind == HostKind::Operator && is_autograd_node(named(host)))
        .map(|host| (host.start, host.end))
        .collect();
    nodes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let steps = records
        .host
        .iter()
        .enumerate()
        .filter(|(_, host)| host.kind == HostKind::Annotation && named(host).starts_with("Optimizer.step#"));
    steps
        .filter_map(|(index, step)| {
            let from = nodes.partition_point(|node| node.0 < step.start);
            let inside = nodes[from..].iter().take_while(|node| node.0 < step.end);
            let last = inside.map(|node| node.1).max_by(f64::total_cmp)?;
            Some((index as u32, last))
        })
        .collect()
}

/// Whether a user range is the parameter update or the zeroing of gradients.
fn is_optimizer(name: &str) -> bool {
    name.starts_with("Optimizer.") || {
        let name = name.to_ascii_lowercase();
        name.contains("optimizer") || name.contains("zero_grad")
    }
}

/// Whether an operator is a node of the backward graph: `AddmmBackward0`,
/// `CudnnConvolutionBackward`, or the engine's wrapper around one.
pub(in crate::profile) fn is_autograd_node(name: &str) -> bool {
    if name.starts_with("autograd::engine::evaluate_function") || name.contains("AccumulateGrad") {
        return true;
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.ends_with("Backward") && !name.contains("::_") && !name.starts_with("aten::")
}
