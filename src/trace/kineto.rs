//! Traces of PyTorch's profiler (Kineto).
//!
//! Reads the Chrome-trace JSON that `torch.profiler` exports, of NVIDIA and (as far as
//! their fields go) AMD GPUs, in the names of 2021 and the present ones; the CUPTI recorder
//! writes the same. A trace is read as a stream: small ones once, large ones three times for a
//! few whole steps, so memory is bounded whatever the size of the file. The caller gives a way
//! to open the text again and does the decompression.
//!
//! An event with an unusable time (negative, not finite) or broken text is left out and
//! counted in the notes; more than one in a hundred of them is an error.

mod collect;
mod demangle;
mod event;
mod scan;
mod settle;

use std::collections::HashSet;
use std::io::{self, Read};
use std::ops::ControlFlow;

use self::collect::{Collector, Keep};
use self::scan::{Item, Totals};
use super::{Fault, Format, OnProgress, Progress, ReadOptions, Trace, TraceError, steps};

/// Opens the (decompressed) text of a trace from its beginning; called once for a small
/// trace and three times for a large one.
pub type Open<'a> = dyn FnMut() -> io::Result<Box<dyn Read>> + 'a;

/// Progress is reported every so many events.
const PROGRESS_EVENTS: u64 = 1 << 14;

/// Reads the trace of one rank.
pub(crate) fn read(
    rank: usize,
    open: &mut Open<'_>,
    options: &ReadOptions<'_>,
    progress: &mut OnProgress<'_>,
) -> Result<Trace, TraceError> {
    let mut passes = Passes { rank, pass: 0, open, progress };
    let mut all = Collector::new(options.step_range);
    passes.read(&mut all, &Keep::WithinBudget(options.budget()))?;
    all.trace.check()?;
    if !options.shapes_only {
        all.trace.needs_kernels()?;
    }
    let window = steps::select(&mut all.trace, options);
    if let (None, Some(name)) = (&all.trace.steps, options.step_range) {
        let known = std::mem::take(&mut all.known_ranges).into_iter().collect();
        return Err(Format::Kineto.error(Fault::NoStepRange { name: crate::text::clean(name, 60), known }));
    }
    let mut collected = all;
    if let Some((from, to)) = window {
        let mut part = Collector::new(options.step_range);
        part.trace.room = options.room();
        passes.read(&mut part, &Keep::HostOf { from, to })?;
        let wanted: HashSet<u64> = part.trace.launches.iter().map(|launch| launch.correlation).collect();
        passes.read(&mut part, &Keep::DevicesOf(wanted))?;
        part.trace.check_room()?;
        part.trace.recorder = collected.trace.recorder;
        part.trace.steps = collected.trace.steps;
        part.trace.devices = collected.trace.devices;
        part.trace.peak_memory = collected.trace.peak_memory;
        part.trace.bad_times = collected.trace.bad_times;
        part.trace.malformed = collected.trace.malformed;
        (part.trace.events, part.trace.bytes) = (collected.trace.events, collected.trace.bytes);
        part.trace.is_part = true;
        collected = part;
    }
    settle::grids(&mut collected);
    settle::ranges(&mut collected.trace);
    settle::threads(&mut collected.trace);
    Ok(collected.trace)
}

/// The passes over one trace.
struct Passes<'a, 'o> {
    rank: usize,
    pass: u32,
    open: &'a mut Open<'o>,
    progress: &'a mut OnProgress<'o>,
}

impl Passes<'_, '_> {
    fn read(&mut self, collector: &mut Collector, keep: &Keep) -> Result<(), TraceError> {
        self.pass += 1;
        collector.trace.events = 0;
        let fault = |fault| Format::Kineto.error(fault);
        let mut reader = (self.open)().map_err(|source| fault(Fault::Io { events: 0, source }))?;
        let totals = scan::scan(&mut *reader, &mut |item, totals| {
            match item {
                Item::Event(text) => collector.event(text, keep),
                Item::Property(key, value) => collector.property(key, value),
            }
            if totals.events % PROGRESS_EVENTS == 0 {
                let Totals { events, bytes } = totals;
                (self.progress)(Progress { rank: self.rank, pass: self.pass, bytes, events })
            } else {
                ControlFlow::Continue(())
            }
        })
        .map_err(fault)?;
        (collector.trace.events, collector.trace.bytes) = (totals.events, totals.bytes);
        Ok(())
    }
}
