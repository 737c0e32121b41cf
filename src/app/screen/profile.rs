//! Second screen: the operations of the step and what each one launches; of a step that no
//! GPU ran, what each one computes.

mod counted;
pub mod roofline;

pub use counted::{Counted, is_unmeasured};
use roofline::Roof;

use crate::action::{Action, Needs};
use crate::app::App;
use crate::app::list::ListState;
use crate::app::msg::Effect;
use crate::app::screen::behaviour::Behaviour;
use crate::op;
use crate::profile::breakdown::{Breakdown, Entry, GroupBy};
use crate::profile::{Kernel, Operation, Phase, Profile};
use crate::report::format;
use crate::report::table::{Cell, Column, Graphic, Table};
use crate::settings::theme::Role;
use crate::text::clean;

/// What the list can be sorted by, in the order of `s`.
const SORTS: [&str; 4] = ["time", "count", "time per call", "name"];

/// The screen.
pub struct ProfileScreen;

impl Behaviour for ProfileScreen {
    fn awaits(&self) -> Option<&'static str> {
        Some("the operations of the step and where its time goes")
    }

    fn gives(&self, app: &App, needs: Needs) -> bool {
        use Needs::{Detail, Panes, Profile, Rows, SortableTable, Table};
        matches!(needs, Rows | Table | SortableTable | Detail | Panes | Profile)
            || needs == Needs::Roof && roofline::roof(app).is_some()
    }

    fn act(&self, app: &mut App, action: Action, _effects: &mut Vec<Effect>) -> bool {
        let state = &mut app.profile;
        match action {
            Action::Phase => state.next_phase(&app.setup.profile),
            Action::Group => state.next_group(&app.setup.profile),
            Action::Roofline => state.with_roof = !state.with_roof,
            Action::NextPane | Action::PreviousPane => state.in_detail = !state.in_detail,
            Action::Open => {
                (state.zoomed, state.in_detail, state.scroll) = (!state.zoomed, false, 0);
            }
            _ => return false,
        }
        true
    }

    fn table(&self, app: &App) -> Option<Table> {
        Some(table(app))
    }

    fn list<'a>(&self, app: &'a App) -> Option<&'a ListState> {
        Some(&app.profile.list)
    }

    fn list_mut<'a>(&self, app: &'a mut App) -> Option<&'a mut ListState> {
        Some(&mut app.profile.list)
    }

    fn sorts(&self, app: &App) -> &'static [&'static str] {
        if is_unmeasured(&app.setup.profile) { &counted::SORTS } else { &SORTS }
    }

    fn focus_list(&self, app: &mut App) {
        (app.profile.in_detail, app.profile.scroll) = (false, 0);
    }

    fn step(&self, app: &mut App, by: isize) {
        if app.profile.in_detail || app.profile.zoomed {
            let lines = detail(app).len();
            app.profile.scroll = app.profile.scroll.saturating_add_signed(by).min(lines.saturating_sub(1));
        } else {
            self.move_selection(app, by);
            app.profile.scroll = 0;
        }
    }

    fn is_open(&self, app: &App) -> bool {
        app.profile.zoomed
    }

    fn close(&self, app: &mut App) -> bool {
        let was_open = app.profile.zoomed;
        if was_open {
            (app.profile.zoomed, app.profile.in_detail) = (false, false);
        }
        was_open
    }
}

/// A row of the list, before filter and order.
#[derive(Debug, Clone)]
pub struct Row {
    /// What it stands for, and its device time.
    pub entry: Entry,
    /// What it computes.
    pub counted: Counted,
}

/// The rows of a grouping: the most time first, without times the most FLOPs.
pub fn grouped(profile: &Profile, by: GroupBy, phase: Option<Phase>) -> Vec<Row> {
    let entries = Breakdown::entries(profile, by, phase, |operation| op::family(operation).name());
    let row = |entry: Entry| Row { counted: Counted::of(profile, &entry), entry };
    let mut rows: Vec<Row> = entries.into_iter().map(row).collect();
    if is_unmeasured(profile) {
        let more = |a: f64, b: f64| b.total_cmp(&a);
        rows.sort_by(|a, b| {
            more(a.counted.flops, b.counted.flops).then_with(|| more(a.counted.bytes, b.counted.bytes))
        });
    }
    rows
}

/// The state of the screen.
#[derive(Debug, Clone, Default)]
pub struct ProfileState {
    /// Selection, filter, order.
    pub list: ListState,
    /// What a row stands for.
    pub by: GroupBy,
    /// The phase shown; `None` = all.
    pub phase: Option<Phase>,
    /// Whether the keys move the detail.
    pub in_detail: bool,
    /// Whether the detail has the whole screen.
    pub zoomed: bool,
    /// Whether the roofline is shown in place of the detail.
    pub with_roof: bool,
    /// First line of the detail shown.
    pub scroll: usize,
    /// The rows before filter and order.
    pub entries: Vec<Row>,
}

impl ProfileState {
    /// All operations, the most time first.
    pub fn new(profile: &Profile) -> Self {
        let mut state = Self::default();
        state.regroup(profile);
        state
    }

    /// Makes the rows anew after a change of grouping or phase.
    pub fn regroup(&mut self, profile: &Profile) {
        self.entries = grouped(profile, self.by, self.phase);
        self.list.selected = 0;
        self.scroll = 0;
    }

    /// The phases that occur, to cycle through.
    pub fn next_phase(&mut self, profile: &Profile) {
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

    /// The next grouping.
    pub fn next_group(&mut self, profile: &Profile) {
        let place = GroupBy::ALL.iter().position(|by| *by == self.by).unwrap_or(0);
        self.by = GroupBy::ALL[(place + 1) % GroupBy::ALL.len()];
        if self.by == GroupBy::Kernel && is_unmeasured(profile) {
            // There are none.
            self.by = GroupBy::default();
        }
        self.regroup(profile);
    }
}

/// The rows shown, filtered and in order.
pub fn rows(app: &App) -> Vec<&Row> {
    let state = &app.profile;
    let operations = &app.setup.profile.operations;
    let mut rows: Vec<&Row> =
        state.entries.iter().filter(|row| state.list.passes(&searched(&row.entry, operations))).collect();
    let per_call = |row: &Row| row.entry.per_call().unwrap_or_default();
    match state.list.sort {
        1 => rows.sort_by_key(|row| std::cmp::Reverse(row.entry.count)),
        2 if is_unmeasured(&app.setup.profile) => rows.sort_by(|a, b| b.counted.bytes.total_cmp(&a.counted.bytes)),
        2 => rows.sort_by(|a, b| per_call(b).total_cmp(&per_call(a))),
        3 => rows.sort_by(|a, b| a.entry.label.cmp(&b.entry.label)),
        _ => {}
    }
    if state.list.reversed {
        rows.reverse();
    }
    rows
}

fn searched(entry: &Entry, operations: &[Operation]) -> String {
    let mut text = clean(&entry.label, 400);
    if let Some(phase) = entry.phase {
        text.push(' ');
        text.push_str(phase.name());
    }
    if let [only] = entry.operations[..]
        && let Some(operation) = operations.get(only)
    {
        text.push(' ');
        text.push_str(&shapes(operation));
        text.push_str(&operation.module.as_deref().map(|module| clean(module, 200)).unwrap_or_default());
    }
    text
}

/// Input shapes and element type.
fn shapes(operation: &Operation) -> String {
    format::shapes(&operation.inputs)
}

/// The table.
pub fn table(app: &App) -> Table {
    let state = &app.profile;
    let shown = rows(app);
    if is_unmeasured(&app.setup.profile) {
        return unmeasured_table(app, &shown);
    }
    let most = shown.iter().map(|row| row.entry.share).fold(0.0, f64::max);
    let by_operation = state.by == GroupBy::Operation;
    let mut columns = vec![
        Column::words(state.by.name(), 20, 0).sorts(3),
        Column::figures("time, ms", 0).sorts(0),
        Column::figures("share", 1),
        Column::graphic("", 8, 6),
        Column::figures(if state.by == GroupBy::Kernel { "launches" } else { "count" }, 2).sorts(1),
        Column::figures("per call, µs", 3).sorts(2),
        Column::words("phase", 8, 4),
    ];
    if by_operation {
        columns.push(Column::words("input shapes", 14, 5));
    }
    let operations = &app.setup.profile.operations;
    let rows = shown
        .iter()
        .map(|Row { entry, .. }| {
            let bar = Graphic::Bar(if most > 0.0 { entry.share / most } else { 0.0 });
            let measured = entry.operations.iter().any(|index| operations[*index].device_time.is_some());
            let (time, share, call) = if measured || entry.time.get() > 0.0 {
                (
                    format!("{:.3}", entry.time.as_millis()),
                    format::percent(entry.share),
                    entry.per_call().map_or_else(String::new, |time| format!("{:.1}", time.get())),
                )
            } else {
                ("not measured".to_owned(), String::new(), String::new())
            };
            let mut cells = vec![
                Cell::text(op::name::short(&clean(&entry.label, 200)).to_owned()),
                Cell::text(time),
                Cell::text(share),
                Cell::draw(phase_role(entry.phase), bar),
                Cell::text(format::grouped(entry.count as f64)),
                Cell::styled(Role::Muted, call),
                Cell::styled(phase_role(entry.phase), entry.phase.map_or("several", phase_word)),
            ];
            if by_operation {
                let operation = &operations[entry.operations[0]];
                cells.push(Cell::styled(Role::Muted, shapes(operation)));
            }
            cells
        })
        .collect();
    finished(app, columns, rows)
}

/// The table of a step that no GPU ran.
fn unmeasured_table(app: &App, shown: &[&Row]) -> Table {
    let (by, operations) = (app.profile.by, &app.setup.profile.operations);
    let whole = app.overview.top.iter().map(|row| row.counted.flops).sum();
    let most = shown.iter().map(|row| row.counted.flops).fold(0.0, f64::max);
    let rows = shown.iter().map(|row| counted::cells(row, operations, by, whole, most)).collect();
    finished(app, counted::columns(by), rows)
}

fn finished(app: &App, columns: Vec<Column>, rows: Vec<Vec<Cell>>) -> Table {
    let state = &app.profile;
    Table {
        columns,
        rows,
        selected: state.list.selected,
        sorted: Some((state.list.sort, (state.list.sort != 3) != state.list.reversed)),
        empty: if state.entries.is_empty() && state.by == GroupBy::Kernel {
            "No kernels were recorded; group by operation with b.".to_owned()
        } else if state.entries.is_empty() {
            "No operations in this phase; p shows the next one.".to_owned()
        } else {
            "No row passes the filter; Esc clears it.".to_owned()
        },
    }
}

/// A phase as one word of at most 12 letters.
pub const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::GradientAccumulation => "accumulation",
        Phase::Communication => "communicate",
        other => other.name(),
    }
}

/// The colour of a phase.
pub const fn phase_role(phase: Option<Phase>) -> Role {
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

/// A line above the table: what is shown of what.
pub fn summary(app: &App) -> String {
    let state = &app.profile;
    let shown = rows(app);
    if is_unmeasured(&app.setup.profile) {
        let mut sum = Counted::default();
        for row in &shown {
            sum.flops += row.counted.flops;
            sum.bytes += row.counted.bytes;
        }
        return format!("{} of {} rows · {}", shown.len(), state.entries.len(), sum.words());
    }
    let sum: crate::units::Micros = shown.iter().map(|row| row.entry.time).sum();
    let what = if state.by == GroupBy::Kernel { "kernel" } else { "device" };
    format!(
        "{} of {} rows · {} of {what} time ({})",
        shown.len(),
        state.entries.len(),
        format::time(sum),
        format::percent(shown.iter().map(|row| row.entry.share).sum()),
    )
}

/// Why there are no times, for a line above the table; `None` where there are.
pub fn without_times(app: &App) -> Option<&'static str> {
    let profile = &app.setup.profile;
    is_unmeasured(profile).then_some(if profile.origin.is_none() {
        "No GPU ran this step: FLOPs and bytes from shapes; 3 predicts times."
    } else {
        "Not timed one by one: FLOPs and bytes from shapes; 3 predicts times."
    })
}

/// A line of the detail: a label (empty = continues) and a text.
pub type Line = (String, String);

/// The detail of the selected row.
pub fn detail(app: &App) -> Vec<Line> {
    let shown = rows(app);
    let Some(Row { entry, .. }) = shown.get(app.profile.list.selected) else { return Vec::new() };
    let profile = &app.setup.profile;
    let operations = &profile.operations;
    let mut lines: Vec<Line> = Vec::new();
    if let ([only], true) = (&entry.operations[..], app.profile.by == GroupBy::Operation) {
        operation_detail(profile, &operations[*only], roofline::roof(app).as_ref(), &mut lines);
        return lines;
    }
    lines.push((app.profile.by.name().to_owned(), clean(&entry.label, 300)));
    let which = match (entry.operations.len(), is_unmeasured(profile)) {
        (1, _) => "1 operation of the profile".to_owned(),
        (count, true) => format!("{count} operations of the profile"),
        (count, false) => format!("{count} operations of the profile, the most time first"),
    };
    lines.push(("in".to_owned(), which));
    let mut parts: Vec<&Operation> = entry.operations.iter().map(|index| &operations[*index]).collect();
    parts.sort_by(|a, b| {
        b.total_device_time().unwrap_or_default().total_cmp(&a.total_device_time().unwrap_or_default())
    });
    for operation in parts {
        if app.profile.by == GroupBy::Kernel {
            let kernels = operation.kernels.iter().filter(|kernel| kernel.name == entry.label);
            lines.extend(
                kernels
                    .map(|kernel| (clean(&operation.name, 28), format!("{}× · {}", operation.count, launch(kernel)))),
            );
        } else {
            let time = match operation.total_device_time() {
                Some(time) => format::time(time),
                None if is_unmeasured(profile) => counted::of_all(profile, operation),
                None => "not measured".to_owned(),
            };
            lines.push((
                time,
                format!(
                    "{}× {} · {} · {}",
                    operation.count,
                    clean(&operation.name, 60),
                    phase_word(operation.phase),
                    shapes(operation)
                ),
            ));
        }
    }
    lines
}

fn operation_detail(profile: &Profile, operation: &Operation, roof: Option<&Roof>, lines: &mut Vec<Line>) {
    let mut head = format!("{} · {} · {}×", clean(&operation.name, 80), operation.phase.name(), operation.count);
    if let Some(dtype) = &operation.dtype {
        head = format!("{head} · {}", clean(dtype.name(), 24));
    }
    lines.push(("operation".to_owned(), head));
    if let Some(module) = &operation.module {
        lines.push(("module".to_owned(), clean(module, 200)));
    }
    if !operation.inputs.is_empty() || !operation.outputs.is_empty() {
        let outputs: Vec<String> = operation.outputs.iter().map(|shape| format::shape(shape)).collect();
        let arrow = if outputs.is_empty() { String::new() } else { format!(" → {}", outputs.join(" ")) };
        lines.push(("shapes".to_owned(), format!("{}{arrow}", shapes(operation))));
    }
    if !operation.attributes.is_empty() {
        let words: Vec<String> = operation
            .attributes
            .iter()
            .map(|(name, value)| {
                let value = serde_json::to_string(value).unwrap_or_default();
                format!("{}={}", clean(name, 40), clean(&value, 60))
            })
            .collect();
        lines.push(("arguments".to_owned(), words.join("  ")));
    }
    if let Some(time) = operation.device_time {
        let all = operation.total_device_time().unwrap_or_default();
        lines
            .push(("measured".to_owned(), format!("{} a call, {} in the step", format::time(time), format::time(all))));
        let roofline = roof.and_then(|roof| roofline::words(roof, Counted::of_one(profile, operation), time));
        lines.extend(roofline.map(|words| ("roofline".to_owned(), words)));
    } else {
        lines.push(("computes".to_owned(), counted::line(profile, operation)));
        lines.push(("measured".to_owned(), "nothing on a GPU".to_owned()));
    }
    for (index, kernel) in operation.kernels.iter().enumerate() {
        let label = if index == 0 { "kernels" } else { "" };
        lines.push((label.to_owned(), clean(&kernel.name, 300)));
        lines.push((String::new(), format!("  {}", launch(kernel))));
    }
}

/// A kernel's time and launch configuration.
fn launch(kernel: &Kernel) -> String {
    let mut parts = vec![format!("{}× {}", kernel.count, format::time(kernel.duration))];
    let extent = |extent: [u32; 3]| format!("({}, {}, {})", extent[0], extent[1], extent[2]);
    if let (Some(grid), Some(block)) = (kernel.grid, kernel.block) {
        parts.push(format!("grid {} block {}", extent(grid), extent(block)));
    } else {
        parts.push("launch not recorded".to_owned());
    }
    parts.extend(kernel.registers_per_thread.map(|count| format!("{count} registers")));
    parts.extend(kernel.shared_memory_bytes().map(|bytes| format!("{} shared", shared_memory(bytes))));
    parts.extend(kernel.flops.map(|flops| format!("{} FLOP", format::short_count(flops.get()))));
    parts.extend(kernel.dram_bytes.map(|bytes| format!("{} B of DRAM", format::short_count(bytes.get()))));
    parts.join(" · ")
}

fn shared_memory(bytes: u64) -> String {
    if bytes >= 1024 { format!("{:.1} KiB", bytes as f64 / 1024.0) } else { format!("{bytes} B") }
}
