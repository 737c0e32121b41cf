//! Second screen: the operations of the step and what each one launches.

use crate::app::App;
use crate::app::list::{Cell, Column, Graphic, ListState, Table};
use crate::predict::family;
use crate::profile::breakdown::{Breakdown, Entry, GroupBy};
use crate::profile::{Kernel, Operation, Phase, Profile};
use crate::report::format;
use crate::settings::theme::Role;
use crate::text::clean;

/// What the list can be sorted by, in the order of `s`.
pub const SORTS: [&str; 4] = ["time", "count", "time per call", "name"];

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
    /// First line of the detail shown.
    pub scroll: usize,
    /// The rows before filter and order.
    pub entries: Vec<Entry>,
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
        self.entries = Breakdown::entries(profile, self.by, self.phase, |operation| family::family(operation).name());
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
        self.regroup(profile);
    }
}

/// The rows shown, filtered and in order.
pub fn rows(app: &App) -> Vec<&Entry> {
    let state = &app.profile;
    let operations = &app.setup.profile.operations;
    let mut rows: Vec<&Entry> =
        state.entries.iter().filter(|entry| state.list.passes(&searched(entry, operations))).collect();
    match state.list.sort {
        1 => rows.sort_by_key(|entry| std::cmp::Reverse(entry.count)),
        2 => rows.sort_by(|a, b| b.per_call().unwrap_or_default().total_cmp(&a.per_call().unwrap_or_default())),
        3 => rows.sort_by(|a, b| a.label.cmp(&b.label)),
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
    let mut parts: Vec<String> = operation.inputs.iter().take(6).map(|shape| format::shape(shape)).collect();
    if operation.inputs.len() > 6 {
        parts.push("…".to_owned());
    }
    parts.join(" ")
}

/// The table.
pub fn table(app: &App) -> Table {
    let state = &app.profile;
    let shown = rows(app);
    let most = shown.iter().map(|entry| entry.share).fold(0.0, f64::max);
    let by_operation = state.by == GroupBy::Operation;
    let mut columns = vec![
        Column::words(state.by.name(), 20, 0).sorts(3),
        Column::number("time, ms", 0).sorts(0),
        Column::number("share", 1),
        Column::graphic("", 8, 6),
        Column::number(if state.by == GroupBy::Kernel { "launches" } else { "count" }, 2).sorts(1),
        Column::number("per call, µs", 3).sorts(2),
        Column::words("phase", 8, 4),
    ];
    if by_operation {
        columns.push(Column::words("input shapes", 14, 5));
    }
    let operations = &app.setup.profile.operations;
    let rows = shown
        .iter()
        .map(|entry| {
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
                Cell::text(short_name(&clean(&entry.label, 200)).to_owned()),
                Cell::text(time),
                Cell::text(share),
                Cell::draw(phase_role(entry.phase), bar),
                Cell::text(format::grouped(entry.count as f64)),
                Cell::of(Role::Muted, call),
                Cell::of(phase_role(entry.phase), entry.phase.map_or("several", phase_word)),
            ];
            if by_operation {
                let operation = &operations[entry.operations[0]];
                cells.push(Cell::of(Role::Muted, shapes(operation)));
            }
            cells
        })
        .collect();
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

/// An operator's name without the name space that nearly all share.
pub fn short_name(name: &str) -> &str {
    name.strip_prefix("aten::").unwrap_or(name)
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
    let sum: crate::units::Micros = shown.iter().map(|entry| entry.time).sum();
    let what = if state.by == GroupBy::Kernel { "kernel" } else { "device" };
    format!(
        "{} of {} rows · {} of {what} time ({})",
        shown.len(),
        state.entries.len(),
        format::time(sum),
        format::percent(shown.iter().map(|entry| entry.share).sum()),
    )
}

/// A line of the detail: a label (empty = continues) and a text.
pub type Line = (String, String);

/// The detail of the selected row.
pub fn detail(app: &App) -> Vec<Line> {
    let shown = rows(app);
    let Some(entry) = shown.get(app.profile.list.selected) else { return Vec::new() };
    let operations = &app.setup.profile.operations;
    let mut lines: Vec<Line> = Vec::new();
    if let ([only], true) = (&entry.operations[..], app.profile.by == GroupBy::Operation) {
        operation_detail(&operations[*only], &mut lines);
        return lines;
    }
    lines.push((app.profile.by.name().to_owned(), clean(&entry.label, 300)));
    lines.push(("in".to_owned(), format!("{} operations of the profile, the most time first", entry.operations.len())));
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
            let time = operation.total_device_time().map_or_else(|| "not measured".to_owned(), format::time);
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

fn operation_detail(operation: &Operation, lines: &mut Vec<Line>) {
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
    match operation.device_time {
        Some(time) => lines.push((
            "measured".to_owned(),
            format!(
                "{} a call, {} in the step",
                format::time(time),
                format::time(operation.total_device_time().unwrap_or_default())
            ),
        )),
        None => lines.push(("measured".to_owned(), "nothing on a device".to_owned())),
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
