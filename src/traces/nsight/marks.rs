//! Ranges that may mark steps.

use std::collections::BTreeMap;

use super::source::RangeRow;
use crate::nvtx::{Described, Mark};
use crate::{Fault, Range, RangeKind, StepMarks, Trace};

/// Candidate step marks.
#[derive(Default)]
pub(super) struct Marks {
    steps: Vec<Marked>,
    optimizers: Vec<Marked>,
    /// Number of occurrences of the program's ranges, by name without digits.
    names: BTreeMap<String, u64>,
}

/// Maximum number of marks, and of distinct names.
const MARKS: usize = 1 << 20;
const NAMES: usize = 1 << 12;
/// Maximum characters of a mark's name.
const NAME: usize = 200;

struct Marked {
    name: String,
    start: i64,
    end: i64,
    thread: u64,
}

impl Marks {
    /// Keeps a range that may mark a step. If the caller named a range, keeps only those with that name.
    pub(super) fn add(&mut self, row: &RangeRow<'_>, described: &Described<'_>, named: Option<&str>) {
        let name = || described.name.chars().take(NAME).collect();
        let marked = || Marked { name: name(), start: row.start, end: row.end, thread: row.thread };
        if let Some(named) = named {
            if is_named(described.name, named) && self.steps.len() < MARKS {
                self.steps.push(marked());
            } else if described.kind == RangeKind::Part || described.mark != Mark::No {
                let stem: String = described.name.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
                if self.names.len() < NAMES || self.names.contains_key(&stem) {
                    *self.names.entry(stem).or_default() += 1;
                }
            }
            return;
        }
        let list = match described.mark {
            Mark::No => return,
            Mark::Step => &mut self.steps,
            Mark::Optimizer => &mut self.optimizers,
        };
        if list.len() < MARKS {
            list.push(marked());
        }
    }

    /// Passes the marks to the trace.
    pub(super) fn give(self, trace: &mut Trace, named: Option<&str>) -> Result<(), Fault> {
        if let Some(name) = named {
            if self.steps.is_empty() {
                let mut known: Vec<(&String, &u64)> = self.names.iter().filter(|(_, count)| **count > 1).collect();
                known.sort_by(|a, b| b.1.cmp(a.1));
                let known = known.iter().take(6).map(|(name, _)| habitat_base::text::clean(name, 40)).collect();
                return Err(Fault::NoStepRange { name: name.to_owned(), known });
            }
            trace.marked_by = Some(StepMarks::Named);
        }
        // If the program marks its optimizer but not its steps, steps end where the optimizer ends.
        let optimizers = if named.is_none() && self.steps.len() < 2 { self.optimizers } else { Vec::new() };
        let optimizers = optimizers.into_iter().map(|mark| Marked { name: "Optimizer.step#range".to_owned(), ..mark });
        for mark in self.steps.into_iter().chain(optimizers) {
            let (name, thread) = (trace.names.plain(&mark.name), trace.thread(&mark.thread.to_le_bytes()));
            let (start, end) = (super::micros(mark.start), super::micros(mark.end));
            trace.add_mark(Range::new(RangeKind::Annotation, name, thread, start, end));
        }
        Ok(())
    }
}

/// Whether a range has the wanted name, optionally followed by a number.
fn is_named(name: &str, wanted: &str) -> bool {
    name.strip_prefix(wanted.trim()).is_some_and(|rest| {
        rest.chars().all(|c| c.is_ascii_digit() || c.is_whitespace() || matches!(c, '#' | '_' | '-' | ':' | '.' | '/'))
    })
}
