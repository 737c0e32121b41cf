//! Structure of a step, from which the number of samples follows.

use super::nest::{LOADER, Nesting, updates};
use crate::{RangeKind, Span, Trace};
use habitat_step::op::name;

/// Structure of a step, in means over the steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// Backward passes.
    pub(super) passes: u64,
    /// Backward passes within an optimizer closure.
    pub(super) in_closures: u64,
    /// Optimizer steps.
    pub(super) updates: u64,
    /// Batches from a `DataLoader`.
    pub(super) fetches: u64,
    /// Smallest number of rows of a loss.
    pub(super) loss_rows: Option<u64>,
}

/// Samples of a step, and their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Samples {
    pub(super) count: u64,
    /// Tokens per sample.
    pub(super) length: Option<u64>,
    pub(super) seen: String,
    /// Number of parts that were added up; 1 for a single call.
    pub(super) parts: u64,
    /// Why the count may differ from the user's.
    pub(super) doubt: Option<String>,
}

impl Parts {
    pub(super) fn new(trace: &Trace, nesting: &Nesting, spans: &[Span]) -> Self {
        let inside = |time: f64| Span::at(spans, time).is_some();
        let mean = |count: usize| (count as f64 / spans.len().max(1) as f64).round() as u64;
        let updates = updates(trace);
        // Latest end of the updates that start before each one.
        let reached = updates.iter().scan(f64::NEG_INFINITY, |reach, (_, step)| {
            *reach = reach.max(step.end);
            Some(*reach)
        });
        let ends: Vec<f64> = std::iter::once(f64::NEG_INFINITY).chain(reached).collect();
        let closure = |start: f64| start < ends[updates.partition_point(|(_, step)| step.start < start)];
        let passes = || nesting.passes.iter().filter(|pass| inside(pass.start));
        let mut fetches = 0;
        let mut loss_rows: Option<u64> = None;
        for (host, context) in trace.ranges.iter().zip(&nesting.contexts).filter(|(host, _)| inside(host.start)) {
            let name = trace.name(host.name);
            fetches += usize::from(host.kind == RangeKind::Annotation && name.starts_with(LOADER));
            if host.kind == RangeKind::Operator && !context.backward && !context.input && name::is_loss(name) {
                let rows = trace.tensors(host).shapes.first().and_then(|shape| shape.first()).copied();
                loss_rows = rows.map_or(loss_rows, |rows| Some(loss_rows.map_or(rows, |known| known.min(rows))));
            }
        }
        Self {
            passes: mean(passes().count()),
            in_closures: mean(passes().filter(|pass| closure(pass.start)).count()),
            updates: mean(updates.iter().filter(|(_, step)| inside(step.start)).count()),
            fetches: mean(fetches),
            loss_rows,
        }
    }
}
