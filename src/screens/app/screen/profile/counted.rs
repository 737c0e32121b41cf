//! FLOPs and bytes of operations from their shapes, shown for a step that no GPU ran.
//!
//! Operator times on the host CPU are not kept in a profile: the profiler doubles those of small operators, and none of
//! them says anything about a GPU.

use super::{Row, phase_role, phase_word, shapes};
use habitat_base::units::Bytes;
use habitat_reports::format;
use habitat_reports::table::{Cell, Column, Graphic};
use habitat_reports::theme::Role;
use habitat_step::op::work;
use habitat_step::profile::breakdown::{Entry, GroupBy};
use habitat_step::profile::{Operation, Profile};

/// Sort orders of the list, in the order of the `s` key.
pub(super) const SORTS: [&str; 4] = ["FLOPs", "count", "bytes", "name"];

/// Work of a row, as far as shapes show it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counted {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

impl Counted {
    /// Work of an entry; zero if the shapes do not show it.
    pub(super) fn of(profile: &Profile, entry: &Entry) -> Self {
        let mut sum = Self::default();
        for operation in entry.operations.iter().filter_map(|index| profile.operations.get(*index)) {
            let one = Self::of_one(profile, operation);
            let count = f64::from(operation.count);
            sum.flops += one.flops * count;
            sum.bytes += one.bytes * count;
        }
        sum
    }

    pub(super) fn of_one(profile: &Profile, operation: &Operation) -> Self {
        work(operation, profile.workload.precision)
            .map(|work| Self { flops: work.flops.get(), bytes: work.bytes.get() })
            .unwrap_or_default()
    }

    /// Text such as `1.23 MFLOP · 4.5 MB read and written`.
    pub fn words(self) -> String {
        format!("{} · {} read and written", flop(self.flops), amount(self.bytes))
    }
}

/// Whether the step has no measurements on a GPU.
pub fn is_unmeasured(profile: &Profile) -> bool {
    profile.operations.iter().all(|operation| operation.device_time.is_none())
}

/// FLOPs of all occurrences of an operation; empty if its shapes do not show them.
pub(super) fn of_all(profile: &Profile, operation: &Operation) -> String {
    let flops = Counted::of_one(profile, operation).flops * f64::from(operation.count);
    if flops > 0.0 { flop(flops) } else { String::new() }
}

/// Formats FLOPs as `1.23 MFLOP`.
fn flop(count: f64) -> String {
    let text = format::short_count(count);
    if text.contains(' ') { format!("{text}FLOP") } else { format!("{text} FLOP") }
}

fn amount(bytes: f64) -> String {
    Bytes::known(bytes).to_string()
}

/// Work of one occurrence, for the details of an operation.
pub(super) fn line(profile: &Profile, operation: &Operation) -> String {
    let one = Counted::of_one(profile, operation);
    if one == Counted::default() { "unknown from its shapes".to_owned() } else { format!("{} per call", one.words()) }
}

/// Columns of the table.
pub(super) fn columns(by: GroupBy) -> Vec<Column> {
    let mut columns = vec![
        Column::words(by.name(), 20, 0).sorts(3),
        Column::figures("FLOPs", 0).sorts(0),
        Column::figures("share", 2),
        Column::graphic("", 8, 6),
        Column::figures("bytes", 1).sorts(2),
        Column::figures("count", 3).sorts(1),
        Column::words("phase", 9, 4),
    ];
    if by == GroupBy::Operation {
        columns.push(Column::words("input shapes", 14, 5));
    }
    columns
}

/// Cells of a row called `name`; `whole` and `most` are the FLOPs of the step and of the largest row.
pub(super) fn cells(
    name: String,
    row: &Row,
    operations: &[Operation],
    by: GroupBy,
    whole: f64,
    most: f64,
) -> Vec<Cell> {
    let Row { entry, counted, .. } = row;
    let part = |of: f64| if of > 0.0 { counted.flops / of } else { 0.0 };
    let or_none = |value: f64, text: String| if value > 0.0 { text } else { "–".to_owned() };
    let mut cells = vec![
        Cell::text(name),
        Cell::text(or_none(counted.flops, format::short_count(counted.flops))),
        Cell::text(or_none(counted.flops, format::percent(part(whole)))),
        Cell::draw(phase_role(entry.phase), Graphic::Bar(part(most))),
        Cell::text(or_none(counted.bytes, amount(counted.bytes))),
        Cell::text(format::grouped(entry.count as f64)),
        Cell::styled(phase_role(entry.phase), entry.phase.map_or("several", phase_word)),
    ];
    if by == GroupBy::Operation {
        cells.push(Cell::styled(
            Role::Muted,
            entry.operations.first().map_or_else(String::new, |at| shapes(&operations[*at])),
        ));
    }
    cells
}
