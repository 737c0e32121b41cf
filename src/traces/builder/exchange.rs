//! Time in collectives: waiting for other ranks, and the exchange itself.
//!
//! A collective ends after the slowest rank has joined it, so it takes longer on a rank that arrives early. The
//! network's part of it is the same on every rank.

use super::options::Exchange;
use super::timing::{Busy, Wall, median};
use crate::{Span, Trace, WorkKind};
use habitat_base::units::Micros;
use habitat_step::op::name::{is_collective_kernel, is_host_collective};

/// Time in which a collective kernel runs on a GPU, per step.
pub(super) fn on_device(trace: &Trace, device: u32, walls: &[Wall]) -> Option<Exchange> {
    let kernels = trace.work.iter().filter(|work| work.kind == WorkKind::Kernel && work.device == device);
    let collectives = kernels.filter(|work| is_collective_kernel(trace.name(work.name)));
    let busy = Busy::of(collectives.map(|work| (work.start, work.end)));
    exchange(&busy, walls.iter().map(|wall| (wall.start, wall.duration)))
}

/// Time in which the host executes a collective, per step on a CPU.
pub(super) fn on_host(trace: &Trace, spans: &[Span]) -> Option<Exchange> {
    let collectives = trace.ranges.iter().filter(|range| is_host_collective(trace.name(range.name)));
    let busy = Busy::of(collectives.map(|range| (range.start, range.end)));
    exchange(&busy, spans.iter().map(|span| (span.start, span.duration)))
}

/// Medians over the steps, each given by start and duration; `None` without collectives.
fn exchange(busy: &Busy, steps: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Exchange> {
    let step = median(steps.clone().map(|(_, duration)| duration));
    let waiting = median(steps.map(|(start, duration)| busy.within(start, start + duration)));
    let is_known = !busy.is_empty() && step.is_finite() && step <= Micros::MOST;
    is_known.then(|| Exchange { step: Micros::known(step), waiting: Micros::known(waiting.clamp(0.0, step)) })
}
