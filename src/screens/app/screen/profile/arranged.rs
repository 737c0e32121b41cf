//! Filtered and sorted rows of the list, with their summary.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use super::{Counted, GroupBy, ProfileState, Row, is_unmeasured, only_operation, shapes, sorts};
use crate::app::App;
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_reports::format;
use habitat_step::profile::modules as paths;

/// Cached between frames, so that drawing does not process a long list.
#[derive(Debug, Clone)]
pub(in crate::app) struct Arranged {
    /// Filter, order and its direction.
    by: (String, usize, bool),
    /// Indices of the entries.
    rows: Vec<usize>,
    /// Largest share of a row; FLOPs for a step that no GPU ran.
    pub(super) most: f64,
    /// Summary for the line above the table.
    summary: String,
}

/// Filters and sorts again after a change.
pub fn arrange(app: &mut App) {
    let changed = match of(app) {
        Cow::Owned(arranged) => arranged,
        Cow::Borrowed(_) => return,
    };
    app.profile.arranged = Some(changed);
}

/// The rows from the cache, or recomputed if filter or order have changed.
pub(super) fn of(app: &App) -> Cow<'_, Arranged> {
    let list = &app.profile.list;
    let is_as_kept = |kept: &&Arranged| {
        let (filter, sort, reversed) = &kept.by;
        (filter, *sort, *reversed) == (&list.filter, list.sort, list.reversed)
    };
    let kept = app.profile.arranged.as_ref().filter(is_as_kept);
    kept.map_or_else(|| Cow::Owned(Arranged::new(app)), Cow::Borrowed)
}

/// Rows that pass the filter, sorted.
pub fn rows(app: &App) -> Vec<&Row> {
    of(app).within(&app.profile, 0..usize::MAX).0
}

/// The selected row.
pub fn selected(app: &App) -> Option<&Row> {
    app.profile.entries.get(*of(app).rows.get(app.profile.list.selected)?)
}

/// Summary for the line above the table.
pub fn summary(app: &App) -> String {
    of(app).summary.clone()
}

impl Arranged {
    fn new(app: &App) -> Self {
        let (state, list) = (&app.profile, &app.profile.list);
        let rows = in_order(app);
        let shown: Vec<&Row> = rows.iter().map(|&at| &state.entries[at]).collect();
        let by_shapes = is_unmeasured(&app.setup.profile);
        let length = |row: &&Row| if by_shapes { row.counted.flops } else { row.entry.share };
        Self {
            by: (list.filter.clone(), list.sort, list.reversed),
            most: shown.iter().map(length).fold(0.0, f64::max),
            summary: summed(app, shown),
            rows,
        }
    }

    /// The entry of a row.
    pub(super) fn entry_at(&self, row: usize) -> Option<usize> {
        self.rows.get(row).copied()
    }

    /// The row of an entry, if it is shown.
    pub(super) fn place_of(&self, entry: usize) -> Option<usize> {
        self.rows.iter().position(|at| *at == entry)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Rows in a range of positions, and the numbers of rows before and after it.
    pub(super) fn within<'a>(&self, state: &'a ProfileState, places: Range<usize>) -> (Vec<&'a Row>, [usize; 2]) {
        let [start, end] = [places.start, places.end].map(|place| place.min(self.rows.len()));
        let rows = self.rows[start..end].iter().map(|&at| &state.entries[at]).collect();
        (rows, [start, self.rows.len() - end])
    }
}

fn in_order(app: &App) -> Vec<usize> {
    let state = &app.profile;
    let mut order: Vec<usize> = (0..state.entries.len())
        .filter(|&at| !state.list.is_filtered() || state.list.passes(&searched(app, &state.entries[at])))
        .collect();
    let row = |at: &usize| &state.entries[*at];
    let per_call = |at: &usize| row(at).entry.per_call().unwrap_or_default();
    match sorts(app).get(state.list.sort).copied().unwrap_or_default() {
        "count" => order.sort_by_key(|at| std::cmp::Reverse(row(at).entry.count)),
        "change" => order.sort_by(|a, b| row(b).change().total_cmp(&row(a).change())),
        "bytes" => order.sort_by(|a, b| row(b).counted.bytes.total_cmp(&row(a).counted.bytes)),
        "time per call" => order.sort_by(|a, b| per_call(b).total_cmp(&per_call(a))),
        "name" => order.sort_by(|a, b| row(a).entry.label.cmp(&row(b).entry.label)),
        _ => {}
    }
    if state.list.reversed {
        order.reverse();
    }
    order
}

fn searched(app: &App, row: &Row) -> String {
    let mut text = clean(&row.entry.label, 400);
    if let Some(phase) = row.entry.phase {
        text.push(' ');
        text.push_str(phase.name());
    }
    if let Some(operation) = only_operation(app, row) {
        text.push(' ');
        text.push_str(&shapes(operation));
        text.push_str(&operation.module.as_deref().map(|module| clean(module, 200)).unwrap_or_default());
    }
    text
}

/// Totals of the visible rows.
fn summed(app: &App, mut shown: Vec<&Row>) -> String {
    let state = &app.profile;
    let count = shown.len();
    if state.by == GroupBy::Module {
        // A module's rows are also counted in the modules around it.
        let all: HashSet<&str> = shown.iter().map(|row| row.entry.label.as_str()).collect();
        shown.retain(|row| !paths::around(&row.entry.label).any(|around| all.contains(around)));
    }
    if is_unmeasured(&app.setup.profile) {
        let mut sum = Counted::default();
        for row in &shown {
            sum.flops += row.counted.flops;
            sum.bytes += row.counted.bytes;
        }
        return format!("{} of {} rows · {}", count, state.entries.len(), sum.words());
    }
    let sum: Micros = shown.iter().map(|row| row.entry.time).sum();
    let what = if state.by == GroupBy::Kernel { "kernel" } else { "device" };
    format!(
        "{} of {} rows · {} of {what} time ({})",
        count,
        state.entries.len(),
        format::time(sum),
        format::percent(shown.iter().map(|row| row.entry.share).sum()),
    )
}
