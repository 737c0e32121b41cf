//! Details of the selected row.

use super::roofline::{self, Roof};
use super::{Counted, Row, against, counted, is_unmeasured, phase_word, selected, shapes};
use crate::app::App;
use habitat_base::text::clean;
use habitat_reports::format;
use habitat_step::profile::breakdown::GroupBy;
use habitat_step::profile::{Kernel, Operation, Profile};

/// A line of the details: a label (empty = continues) and a text.
pub type Line = (String, String);

/// Details of the selected row.
pub fn detail(app: &App) -> Vec<Line> {
    let Some(row @ Row { entry, .. }) = selected(app) else { return Vec::new() };
    let profile = &app.setup.profile;
    let operations = &profile.operations;
    let mut lines: Vec<Line> =
        against::detail(app, row).map(|words| ("against".to_owned(), words)).into_iter().collect();
    if let ([only], true) = (&entry.operations[..], app.profile.by == GroupBy::Operation) {
        operation_detail(profile, &operations[*only], roofline::roof(app).as_ref(), &mut lines);
        return lines;
    }
    lines.push((app.profile.by.name().to_owned(), clean(&entry.label, 300)));
    let which = match (entry.operations.len(), is_unmeasured(profile)) {
        (0, _) => "not in this recording".to_owned(),
        (1, _) => "1 operation of the profile".to_owned(),
        (count, true) => format!("{count} operations of the profile"),
        (count, false) => format!("{count} operations of the profile, by time"),
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
        lines.push(("measured".to_owned(), format!("{} per call, {} per step", format::time(time), format::time(all))));
        let roofline = roof.and_then(|roof| roofline::words(roof, Counted::of_one(profile, operation), time));
        lines.extend(roofline.map(|words| ("roofline".to_owned(), words)));
    } else {
        lines.push(("computes".to_owned(), counted::line(profile, operation)));
        lines.push(("measured".to_owned(), "no GPU timings".to_owned()));
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
