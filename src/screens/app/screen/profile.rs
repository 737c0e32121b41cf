//! Second screen: operations of the step with their kernels, or for a step that no GPU ran, their FLOPs and bytes.

pub mod against;
mod arranged;
mod counted;
mod detail;
mod modules;
pub mod roofline;
pub mod timeline;

pub use against::Against;
use against::{Other, Waterfall};
use arranged::Arranged;
pub use arranged::{arrange, rows, selected, summary};
pub use counted::{Counted, is_unmeasured};
pub use detail::{Line, detail};

use std::ops::Range;

use crate::action::{Action, Needs};
use crate::app::App;
use crate::app::list::ListState;
use crate::app::msg::Effect;
use crate::app::screen::behaviour::Behaviour;
use habitat_base::text::clean;
use habitat_reports::format;
use habitat_reports::table::{Cell, Column, Graphic, Table};
use habitat_reports::theme::Role;
use habitat_step::op;
use habitat_step::profile::breakdown::{Breakdown, Entry, GroupBy, Segment};
use habitat_step::profile::{DType, Operation, Phase, Profile, modules as paths};

/// Sort orders of the list, in the order of the `s` key.
const SORTS: [&str; 4] = ["time", "count", "time per call", "name"];

/// Sort orders for the current content, in the order of the `s` key.
fn sorts(app: &App) -> &'static [&'static str] {
    match (is_unmeasured(&app.setup.profile), &app.profile.against) {
        (true, _) => &counted::SORTS,
        (false, Some(_)) => &against::SORTS,
        (false, None) => &SORTS,
    }
}

/// Index of a sort order.
fn place(app: &App, order: &str) -> usize {
    sorts(app).iter().position(|known| *known == order).unwrap_or(0)
}

/// The screen.
pub struct ProfileScreen;

impl Behaviour for ProfileScreen {
    fn awaits(&self) -> Option<&'static str> {
        Some("the operations of the step and where its time goes")
    }

    fn gives(&self, app: &App, needs: Needs) -> bool {
        use Needs::{Comparable, Detail, Panes, Profile, Roof, Rows, Slider, SortableTable, Table};
        if app.profile.difference.is_some() {
            return matches!(needs, Rows | Table);
        }
        match needs {
            Rows | Table | SortableTable | Detail | Panes | Profile => true,
            Roof => roofline::roof(app).is_some(),
            Slider => app.profile.below == Below::Timeline && timeline::shown(app).is_some(),
            Comparable => app.profile.against.is_some(),
            _ => false,
        }
    }

    fn act(&self, app: &mut App, action: Action, _effects: &mut Vec<Effect>) -> bool {
        if action == Action::Difference {
            app.profile.difference = Waterfall::new(app);
            return true;
        }
        if app.profile.below == Below::Timeline && timeline::act(app, action) {
            return true;
        }
        let state = &mut app.profile;
        match action {
            Action::Phase => state.next_phase(&app.setup.profile),
            Action::Group => state.next_group(&app.setup.profile),
            Action::Roofline => state.below = state.below.toggled(Below::Roof),
            Action::Timeline => {
                state.below = state.below.toggled(Below::Timeline);
                state.view = state.view.or_else(|| timeline::View::new(&app.setup.profile));
            }
            Action::NextPane | Action::PreviousPane => state.in_detail = !state.in_detail,
            Action::Open => {
                (state.zoomed, state.in_detail, state.scroll) = (!state.zoomed, false, 0);
            }
            _ => return false,
        }
        true
    }

    fn table(&self, app: &App) -> Option<Table> {
        Some(app.profile.difference.as_ref().map_or_else(|| table(app), Waterfall::shown))
    }

    fn rows(&self, app: &App) -> usize {
        app.profile.difference.as_ref().map_or_else(|| arranged::of(app).len(), |waterfall| waterfall.shown().len())
    }

    fn list<'a>(&self, app: &'a App) -> Option<&'a ListState> {
        Some(app.profile.difference.as_ref().map_or(&app.profile.list, |waterfall| &waterfall.list))
    }

    fn list_mut<'a>(&self, app: &'a mut App) -> Option<&'a mut ListState> {
        let state = &mut app.profile;
        Some(state.difference.as_mut().map_or(&mut state.list, |waterfall| &mut waterfall.list))
    }

    fn selected_key(&self, app: &App) -> Option<String> {
        arranged::of(app).entry_at(app.profile.list.selected).map(|entry| entry.to_string())
    }

    fn place_of(&self, app: &App, key: &str) -> Option<usize> {
        arranged::of(app).place_of(key.parse().ok()?)
    }

    fn sorts(&self, app: &App) -> &'static [&'static str] {
        if app.profile.difference.is_some() { &[] } else { sorts(app) }
    }

    fn focus_list(&self, app: &mut App) {
        (app.profile.in_detail, app.profile.scroll) = (false, 0);
    }

    fn step(&self, app: &mut App, by: isize) {
        let in_detail = app.profile.below != Below::Timeline && (app.profile.in_detail || app.profile.zoomed);
        if app.profile.difference.is_none() && in_detail {
            let lines = detail(app).len();
            app.profile.scroll = app.profile.scroll.saturating_add_signed(by).min(lines.saturating_sub(1));
        } else {
            self.move_selection(app, by);
            app.profile.scroll = 0;
        }
    }

    fn is_open(&self, app: &App) -> bool {
        app.profile.zoomed || app.profile.difference.is_some()
    }

    fn close(&self, app: &mut App) -> bool {
        if app.profile.difference.take().is_some() {
            return true;
        }
        let was_open = app.profile.zoomed;
        if was_open {
            (app.profile.zoomed, app.profile.in_detail) = (false, false);
        }
        was_open
    }
}

/// A row of the list.
#[derive(Debug, Clone)]
pub struct Row {
    /// Label, operations and device time.
    pub entry: Entry,
    /// FLOPs and bytes.
    pub counted: Counted,
    /// The same row in the other recording.
    pub other: Option<Other>,
}

/// Rows of a grouping, by time; without times, by FLOPs.
pub fn grouped(profile: &Profile, by: GroupBy, phase: Option<Phase>) -> Vec<Row> {
    let entries = Breakdown::entries(profile, by, phase, |operation| op::family(operation).name());
    let row = |entry: Entry| Row { counted: Counted::of(profile, &entry), entry, other: None };
    let mut rows: Vec<Row> = entries.into_iter().map(row).collect();
    if is_unmeasured(profile) {
        let more = |a: f64, b: f64| b.total_cmp(&a);
        rows.sort_by(|a, b| {
            more(a.counted.flops, b.counted.flops).then_with(|| more(a.counted.bytes, b.counted.bytes))
        });
    }
    rows
}

/// Content below the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Below {
    /// Details of the selected row.
    #[default]
    Detail,
    /// The roofline.
    Roof,
    /// The timeline of one step.
    Timeline,
}

impl Below {
    /// `other`, or the details if `other` is already shown.
    fn toggled(self, other: Self) -> Self {
        if self == other { Self::Detail } else { other }
    }
}

/// The state of the screen.
#[derive(Debug, Clone, Default)]
pub struct ProfileState {
    /// Selection, filter, order.
    pub list: ListState,
    /// Grouping of the rows.
    pub by: GroupBy,
    /// The visible phase; `None` = all.
    pub phase: Option<Phase>,
    /// Whether the details have the focus.
    pub in_detail: bool,
    /// Whether the details fill the screen.
    pub zoomed: bool,
    /// Content below the table.
    pub below: Below,
    /// Visible part of the timeline, once it was opened.
    pub view: Option<timeline::View>,
    /// First visible line of the details.
    pub scroll: usize,
    /// All rows, without filter and order.
    pub entries: Vec<Row>,
    /// Rows that pass the filter, sorted; cached between frames.
    arranged: Option<Arranged>,
    /// The step as a bar of segments.
    pub segments: Vec<Segment>,
    /// Distinct element types of the step's operations.
    element_types: Vec<DType>,
    /// The recording to compare with.
    pub against: Option<Against>,
    /// The waterfall between the two recordings, if it is open.
    pub difference: Option<Waterfall>,
}

impl ProfileState {
    /// All operations by time, next to those of another recording if there is one.
    pub fn new(profile: &Profile, against: Option<Against>) -> Self {
        let mut state = Self { against, ..Self::default() };
        state.regroup(profile);
        state
    }

    /// Rebuilds the rows after a change of grouping or phase.
    pub(crate) fn regroup(&mut self, profile: &Profile) {
        self.entries = match &self.against {
            Some(against) => against::grouped(profile, &against.profile, self.by, self.phase),
            None => grouped(profile, self.by, self.phase),
        };
        if self.by == GroupBy::Module {
            self.entries = modules::tree(&self.entries);
        }
        self.segments = Breakdown::segments(profile, |operation| op::family(operation).name());
        self.element_types.clear();
        for element in profile.operations.iter().filter_map(|operation| operation.dtype.as_ref()) {
            if !self.element_types.contains(element) {
                self.element_types.push(element.clone());
            }
        }
        self.arranged = None;
        self.list.selected = 0;
        self.scroll = 0;
    }

    /// Selects the next phase that occurs.
    pub(crate) fn next_phase(&mut self, profile: &Profile) {
        let phases: Vec<Phase> = Phase::ALL
            .into_iter()
            .filter(|phase| profile.operations.iter().any(|operation| operation.phase == *phase))
            .collect();
        self.phase = match self.phase {
            None => phases.first().copied(),
            Some(phase) => phases.iter().skip_while(|other| **other != phase).nth(1).copied(),
        };
        self.regroup(profile);
    }

    /// Selects the next grouping.
    pub(crate) fn next_group(&mut self, profile: &Profile) {
        let place = GroupBy::ALL.iter().position(|by| *by == self.by).unwrap_or(0);
        let is_there = |by: &GroupBy| match by {
            GroupBy::Kernel => !is_unmeasured(profile),
            GroupBy::Module => profile.operations.iter().any(|operation| operation.module.is_some()),
            _ => true,
        };
        self.by = GroupBy::ALL.into_iter().skip(place + 1).find(is_there).unwrap_or_default();
        self.regroup(profile);
    }
}

/// Label of a row; in the tree of modules, the indented name of the module alone.
fn label(app: &App, row: &Row) -> String {
    let (state, path) = (&app.profile, clean(&row.entry.label, 200));
    let in_order = state.list.sort == 0 && !state.list.reversed && state.list.filter.is_empty();
    if state.by == GroupBy::Module && in_order {
        return "  ".repeat(paths::depth(&path)) + paths::name(&path);
    }
    op::name::short(&path).to_owned()
}

/// The operation of a row that has only one; from the other recording if this one lacks it.
fn only_operation<'a>(app: &'a App, row: &Row) -> Option<&'a Operation> {
    match (&row.entry.operations[..], &row.other, &app.profile.against) {
        ([], Some(other), Some(against)) => against.profile.operations.get(*other.operations.first()?),
        (&[only, ref more @ ..], ..) if more.is_empty() || app.profile.by == GroupBy::Operation => {
            app.setup.profile.operations.get(only)
        }
        _ => None,
    }
}

/// Input shapes and element type.
fn shapes(operation: &Operation) -> String {
    format::shapes(&operation.inputs)
}

/// The table.
pub fn table(app: &App) -> Table {
    table_of(app, 0..usize::MAX)
}

/// The table without rows far from the selected one.
pub(crate) fn table_on_screen(app: &App) -> Table {
    table_of(app, app.profile.list.near(app.size.1))
}

fn table_of(app: &App, made: Range<usize>) -> Table {
    let (state, all) = (&app.profile, arranged::of(app));
    let (shown, left_out) = all.within(state, made);
    if is_unmeasured(&app.setup.profile) {
        return Table { left_out, ..unmeasured_table(app, all.most, &shown) };
    }
    let most = all.most;
    let by_operation = state.by == GroupBy::Operation;
    let against = state.against.is_some();
    let mut columns =
        vec![Column::words(state.by.name(), 20, 0).sorts(place(app, "name")), Column::figures("time, ms", 0).sorts(0)];
    if against {
        columns.push(Column::figures("against, ms", 1));
        columns.push(Column::figures("change, ms", 0).sorts(place(app, "change")));
    }
    columns.extend([
        Column::figures("share", 1),
        Column::graphic("", 8, 6),
        Column::figures(if state.by == GroupBy::Kernel { "launches" } else { "count" }, 2).sorts(place(app, "count")),
        Column::figures("per call, µs", 3).sorts(place(app, "time per call")),
        Column::words("phase", 8, 4),
    ]);
    if by_operation {
        columns.push(Column::words("input shapes", 14, 5));
    }
    let operations = &app.setup.profile.operations;
    let rows = shown
        .iter()
        .map(|row| {
            let entry = &row.entry;
            let bar = Graphic::Bar(if most > 0.0 { entry.share / most } else { 0.0 });
            let measured = entry.operations.iter().any(|index| operations[*index].device_time.is_some());
            let (time, share, call) = if entry.operations.is_empty() {
                ("absent".to_owned(), String::new(), String::new())
            } else if measured || entry.time.get() > 0.0 {
                (
                    format!("{:.3}", entry.time.as_millis()),
                    format::percent(entry.share),
                    entry.per_call().map_or_else(String::new, |time| format!("{:.1}", time.get())),
                )
            } else {
                ("not measured".to_owned(), String::new(), String::new())
            };
            let mut cells = vec![Cell::text(label(app, row)), Cell::text(time)];
            if against {
                cells.extend(against::cells(row));
            }
            cells.extend([
                Cell::text(share),
                Cell::draw(phase_role(entry.phase), bar),
                Cell::text(row.counts()),
                Cell::styled(Role::Muted, call),
                Cell::styled(phase_role(entry.phase), entry.phase.map_or("several", phase_word)),
            ]);
            if by_operation {
                cells.push(Cell::styled(Role::Muted, only_operation(app, row).map(shapes).unwrap_or_default()));
            }
            cells
        })
        .collect();
    Table { left_out, ..finished(app, columns, rows) }
}

/// Table of a step that no GPU ran, from the visible rows and the largest FLOPs of any row.
fn unmeasured_table(app: &App, most: f64, shown: &[&Row]) -> Table {
    let (by, operations) = (app.profile.by, &app.setup.profile.operations);
    let whole = app.overview.top.iter().map(|row| row.counted.flops).sum();
    let rows = shown.iter().map(|row| counted::cells(label(app, row), row, operations, by, whole, most)).collect();
    finished(app, counted::columns(by), rows)
}

fn finished(app: &App, columns: Vec<Column>, rows: Vec<Vec<Cell>>) -> Table {
    let state = &app.profile;
    Table {
        columns,
        rows,
        selected: state.list.selected,
        sorted: Some((state.list.sort, (state.list.sort != place(app, "name")) != state.list.reversed)),
        empty: if state.entries.is_empty() && state.by == GroupBy::Kernel {
            "No kernels recorded; press b to group by operation.".to_owned()
        } else if state.entries.is_empty() {
            "No operations in this phase; press p for the next one.".to_owned()
        } else {
            "No row matches the filter; press Esc to clear it.".to_owned()
        },
        ..Table::default()
    }
}

/// A phase in one word of at most 12 letters.
pub(crate) const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::GradientAccumulation => "accumulation",
        Phase::Communication => "communicate",
        other => other.name(),
    }
}

/// The colour of a phase.
pub(crate) const fn phase_role(phase: Option<Phase>) -> Role {
    match phase {
        Some(Phase::Forward) => Role::Forward,
        Some(Phase::Backward) => Role::Backward,
        Some(Phase::GradientAccumulation) => Role::Accumulation,
        Some(Phase::Optimizer) => Role::Optimizer,
        Some(Phase::Communication) => Role::Communication,
        Some(Phase::Copy) => Role::Copy,
        Some(Phase::Other) | None => Role::Other,
    }
}

/// The step as a bar: its segments, and whether each contains the selected row. Empty if nothing was measured.
pub fn segments(app: &App) -> Vec<(&Segment, bool)> {
    let operations = selected(app).map(|row| &row.entry.operations[..]).unwrap_or_default();
    let is_of = |segment: &Segment| {
        let (few, many) = if operations.len() < segment.operations.len() {
            (operations, &segment.operations[..])
        } else {
            (&segment.operations[..], operations)
        };
        few.iter().any(|operation| many.binary_search(operation).is_ok())
    };
    app.profile.segments.iter().map(|segment| (segment, is_of(segment))).collect()
}

/// Why there are no times, for a line above the table; `None` if there are.
pub(crate) fn without_times(app: &App) -> Option<&'static str> {
    let profile = &app.setup.profile;
    is_unmeasured(profile).then_some(if profile.origin.is_none() {
        "No GPU timings: FLOPs and bytes from shapes; press 3 for predicted times."
    } else {
        "No times by operation: FLOPs and bytes from shapes; press 3 for predicted times."
    })
}
