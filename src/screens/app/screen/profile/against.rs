//! Comparison with another recording: the time of each row there, and the differences.

use std::sync::Arc;

use super::{Counted, Row, shapes};
use crate::app::App;
use crate::app::list::ListState;
use habitat_base::units::Micros;
use habitat_reports::recordings::{self, Recordings};
use habitat_reports::table::Cell;
use habitat_reports::theme::Role;
use habitat_reports::{Table, format};
use habitat_step::op;
use habitat_step::profile::breakdown::{Entry, GroupBy};
use habitat_step::profile::difference::{Match, pairs};
use habitat_step::profile::{Phase, Profile};

/// Sort orders of the list, in the order of the `s` key.
pub(super) const SORTS: [&str; 5] = ["time", "change", "count", "time per call", "name"];

/// The other recording. Both have times.
#[derive(Debug, Clone)]
pub struct Against {
    /// The recorded step.
    pub profile: Arc<Profile>,
    /// Its source.
    pub label: String,
}

/// A row in the other recording.
#[derive(Debug, Clone, Default)]
pub struct Other {
    /// Device time in its step.
    pub time: Micros,
    /// Occurrences (launches, for kernels).
    pub count: u64,
    /// How the row was matched, from the other recording to this one.
    pub matched: Match,
    /// Indices of its operations.
    pub operations: Vec<usize>,
}

impl Row {
    /// Increase over the other recording, microseconds.
    pub fn change(&self) -> f64 {
        self.entry.time.get() - self.other.as_ref().map_or(0.0, |other| other.time.get())
    }

    /// Its count; both counts if they differ.
    pub(super) fn counts(&self) -> String {
        let here = self.entry.count;
        recordings::counts([self.other.as_ref().map_or(here, |other| other.count), here])
    }
}

/// Rows of a grouping from both recordings, by time.
pub(super) fn grouped(profile: &Profile, other: &Profile, by: GroupBy, phase: Option<Phase>) -> Vec<Row> {
    let row = |pair: habitat_step::profile::difference::Pair| {
        let [there, here] = pair.entries;
        let known = there.clone().unwrap_or_default();
        let entry =
            here.unwrap_or_else(|| Entry { label: known.label.clone(), phase: known.phase, ..Entry::default() });
        let other = Other { time: known.time, count: known.count, matched: pair.matched, operations: known.operations };
        Row { counted: Counted::of(profile, &entry), entry, other: Some(other) }
    };
    let pairs = pairs([other, profile], by, phase, |operation| op::family(operation).name());
    let mut rows: Vec<Row> = pairs.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.entry.time.total_cmp(&a.entry.time).then_with(|| a.entry.label.cmp(&b.entry.label)));
    rows
}

/// Cells of a row: its time in the other recording, and the change.
pub(super) fn cells(row: &Row) -> [Cell; 2] {
    let there = match &row.other {
        Some(other) if other.matched != Match::OnlySecond => format!("{:.3}", other.time.as_millis()),
        _ => "absent".to_owned(),
    };
    let change = row.change();
    let role = match change {
        change if change > 0.0 => Role::Warning,
        change if change < 0.0 => Role::Good,
        _ => Role::Muted,
    };
    [Cell::styled(Role::Muted, there), Cell::styled(role, format!("{:+.3}", change / 1e3))]
}

/// The selected row in the other recording, in words; `None` without one.
pub(super) fn detail(app: &App, row: &Row) -> Option<String> {
    let (against, other) = (app.profile.against.as_ref()?, row.other.as_ref()?);
    if other.matched == Match::OnlySecond {
        return Some("absent".to_owned());
    }
    let per_call = if other.count > 0 { other.time * (1.0 / other.count as f64) } else { Micros::ZERO };
    let mut words = format!(
        "{}×, {} per call, {} per step: {:+.3} ms",
        format::grouped(other.count as f64),
        format::time(per_call),
        format::time(other.time),
        row.change() / 1e3
    );
    if other.matched == Match::OtherShapes
        && let Some(operation) = other.operations.first().and_then(|&at| against.profile.operations.get(at))
    {
        words = format!("{words} · matched despite other shapes, {}", shapes(operation));
    }
    Some(words)
}

/// Waterfall from the other recording to this one, in the screen's grouping.
#[derive(Debug, Clone)]
pub struct Waterfall {
    /// The selection.
    pub list: ListState,
    /// Difference between the steps in sentences.
    pub headline: String,
    table: Table,
}

impl Waterfall {
    /// `None` without another recording.
    pub(super) fn new(app: &App) -> Option<Self> {
        let against = app.profile.against.as_ref()?;
        let profiles = [&*against.profile, &*app.setup.profile];
        let compared = Recordings::new(profiles, [&against.label, ""], app.profile.by).ok()?;
        let headline = recordings::headline(&compared.difference);
        Some(Self { list: ListState::default(), headline, table: recordings::table(&compared, usize::MAX) })
    }

    /// The table with the selection.
    pub fn shown(&self) -> Table {
        Table { selected: self.list.selected, ..self.table.clone() }
    }
}

/// Why the steps are not comparable; `None` if they are.
pub fn warning(app: &App) -> Option<String> {
    let against = app.profile.against.as_ref()?;
    let [warning, _] = recordings::warnings([&against.profile, &app.setup.profile]);
    warning
}

/// Both steps in one line: source of the other one, times and change.
pub fn line(app: &App) -> Option<String> {
    let against = app.profile.against.as_ref()?;
    let [there, here] = [against.profile.measured_step()?, app.setup.profile.measured_step()?];
    let share = here / there - 1.0;
    let share = if share.is_finite() { format!(" ({})", format::signed_percent(share)) } else { String::new() };
    let label = habitat_base::text::clean(&against.label, 60);
    let key = app.setup.keymap.hint(crate::action::Action::Difference);
    let times = format!("step {}, then {}{share}", format::time(there), format::time(here));
    Some(format!("{times} · {key}: explain the difference · against {label}"))
}
