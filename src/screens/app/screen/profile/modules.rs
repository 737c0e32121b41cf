//! Rows of modules as a tree.

use super::against::Other;
use super::{Counted, Row};
use habitat_step::profile::breakdown::Entry;
use habitat_step::profile::difference::Match;
use habitat_step::profile::modules;

/// Rows of modules and of all modules around them, each including the modules inside. Parents come before children, and
/// children are sorted by time (by FLOPs without times).
pub(super) fn tree(rows: &[Row]) -> Vec<Row> {
    let paths: Vec<&str> = rows.iter().map(|row| row.entry.label.as_str()).collect();
    let is_timed = rows.iter().any(|row| row.entry.time.get() > 0.0);
    let weight = |place: usize| if is_timed { rows[place].entry.time.get() } else { rows[place].counted.flops };
    let node = |node: modules::Node| {
        let within = || node.places.iter().map(|&place| &rows[place]);
        let mut entry = Entry { label: node.path.clone(), ..Entry::default() };
        let mut counted = Counted::default();
        let mut other: Option<Other> = None;
        for row in within() {
            entry.time += row.entry.time;
            entry.share += row.entry.share;
            entry.count += row.entry.count;
            entry.operations.extend(&row.entry.operations);
            counted.flops += row.counted.flops;
            counted.bytes += row.counted.bytes;
            if let Some(there) = &row.other {
                let sum = other.get_or_insert_default();
                sum.time += there.time;
                sum.count += there.count;
                sum.operations.extend(&there.operations);
            }
        }
        entry.operations.sort_unstable();
        let phase = within().next().and_then(|row| row.entry.phase);
        entry.phase = phase.filter(|_| within().all(|row| row.entry.phase == phase));
        if let Some(sum) = &mut other {
            sum.matched = match (sum.operations.is_empty(), entry.operations.is_empty()) {
                (true, _) => Match::OnlySecond,
                (_, true) => Match::OnlyFirst,
                _ => Match::Same,
            };
        }
        Row { entry, counted, other }
    };
    modules::tree(&paths, weight).into_iter().map(node).collect()
}
