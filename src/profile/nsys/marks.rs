//! Ranges that may mark the steps.

use std::collections::BTreeMap;

use super::{NsysError, RangeRow, micros};
use crate::profile::kineto::{Feed, Range, RangeKind, StepMarks};
use crate::profile::nvtx::{Described, Mark};

/// Ranges that may be steps.
#[derive(Default)]
pub(super) struct Marks {
    steps: Vec<Owned>,
    optimizers: Vec<Owned>,
    /// How often the program's ranges occur, by name without digits.
    names: BTreeMap<String, u64>,
}

/// Marks kept at most, and names counted.
const MARKS: usize = 1 << 20;
const NAMES: usize = 1 << 12;

struct Owned {
    name: String,
    start: i64,
    end: i64,
    thread: u64,
}

impl Marks {
    pub(super) fn see(&mut self, row: &RangeRow<'_>, described: &Described<'_>, wanted: Option<&str>) {
        let owned = || Owned { name: described.name.to_owned(), start: row.start, end: row.end, thread: row.thread };
        if let Some(wanted) = wanted {
            if is_named(described.name, wanted) && self.steps.len() < MARKS {
                self.steps.push(owned());
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
            list.push(owned());
        }
    }

    /// Gives the marks to the feed.
    pub(super) fn settle(&mut self, feed: &mut Feed, wanted: Option<&str>) -> Result<(), NsysError> {
        let mut give = |marks: &[Owned], name: Option<&str>| {
            for mark in marks {
                let name = name.unwrap_or(&mark.name);
                feed.mark(&Range::annotation(name, micros(mark.start), micros(mark.end), mark.thread));
            }
        };
        if let Some(wanted) = wanted {
            if self.steps.is_empty() {
                let mut known: Vec<(&String, &u64)> = self.names.iter().filter(|(_, count)| **count > 1).collect();
                known.sort_by(|a, b| b.1.cmp(a.1));
                let known = known.iter().take(6).map(|(name, _)| format!("{:?}", crate::text::clean(name, 40)));
                return Err(NsysError::NoSuchRange { name: wanted.to_owned(), known: known.collect() });
            }
            give(&self.steps, None);
            feed.steps_are_marks(StepMarks::Named);
        } else {
            give(&self.steps, None);
            // A program that marks its optimizer and no steps: they end where it ends.
            if self.steps.len() < 2 {
                give(&self.optimizers, Some("Optimizer.step#range"));
            }
        }
        (self.steps, self.optimizers) = (Vec::new(), Vec::new());
        Ok(())
    }
}

/// Whether a range is one of those named: the same text, or that text and a number.
fn is_named(name: &str, wanted: &str) -> bool {
    name.strip_prefix(wanted.trim()).is_some_and(|rest| {
        rest.chars().all(|c| c.is_ascii_digit() || c.is_whitespace() || matches!(c, '#' | '_' | '-' | ':' | '.' | '/'))
    })
}
