//! What makes the difference between two GPUs, as a table and as JSON (`habitat-difference`, version 1).

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::table::{Cell, Column, Graphic, Table};
use crate::predict::difference::{Changed, Difference};
use crate::predict::{Method, Prediction};
use crate::settings::theme::Role;
use crate::text::clean;
use crate::units::{Micros, Range};

/// What `predict --difference --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "habitat-tui difference between two GPUs")]
pub struct DifferenceJson<'a> {
    /// Always `habitat-difference`.
    pub format: &'static str,
    /// Version of the form, 1.
    pub version: u32,
    /// The two GPUs.
    pub gpus: [StepJson<'a>; 2],
    /// Operations by what they add to the difference, the most first; empty where a method predicts
    /// no single operations.
    pub operations: Vec<ChangedJson<'a>>,
    /// What of each step is no operation's time: waiting for the host, less what runs side by side.
    pub rest_us: [f64; 2],
}

/// The step on one of them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StepJson<'a> {
    /// Slug of the GPU.
    pub gpu: &'a str,
    /// Time of one step.
    pub step_time_us: Range<f64>,
    /// How it was obtained.
    pub method: &'static str,
}

/// All occurrences of an operation in one phase.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChangedJson<'a> {
    /// Its name.
    pub name: &'a str,
    /// Part of the step.
    pub phase: &'static str,
    /// Occurrences.
    pub count: u32,
    /// Device time of all of them on each GPU.
    pub device_time_us: [f64; 2],
    /// Occurrences of which nothing is known on one of the GPUs.
    pub unknown: u32,
}

/// The JSON form.
pub fn json<'a>(difference: &Difference<'a>) -> DifferenceJson<'a> {
    let step = |prediction: &'a Prediction| {
        let step = prediction.step.as_estimate();
        StepJson {
            gpu: prediction.gpu.slug.as_str(),
            step_time_us: step.range.map(Micros::get),
            method: step.method.name(),
        }
    };
    let operation = |operation: &Changed<'a>| ChangedJson {
        name: operation.name,
        phase: operation.phase.name(),
        count: operation.count,
        device_time_us: operation.times,
        unknown: operation.unknown,
    };
    DifferenceJson {
        format: "habitat-difference",
        version: 1,
        gpus: difference.steps.map(step),
        operations: difference.operations.iter().map(operation).collect(),
        rest_us: difference.rest,
    }
}

/// How much of what both steps have in common is drawn, in times of what is not.
const COMMON: f64 = 0.25;

/// A waterfall from the first step to the second: the operations in between, then what is no operation's.
pub fn table(difference: &Difference<'_>) -> Table {
    let millis = |us: f64| format!("{:.2}", us / 1e3);
    let signed = |us: f64| format!("{:+.2}", us / 1e3);
    let [first, second] = difference.totals().map(Micros::get);
    let keyed = |key, column| Column { key, ..column };
    let mut table = Table::new(&[
        keyed("operation", Column::words("operation", 16, 0)),
        keyed("phase", Column::words("phase", 9, 1)),
        keyed("count", Column::figures("count", 4)),
        keyed("first_us", Column::figures("first, ms", 2)),
        keyed("second_us", Column::figures("second, ms", 2)),
        keyed("difference_us", Column::figures("change, ms", 0)),
        Column::graphic("", 10, 1),
    ]);
    "This method does not predict single operations.".clone_into(&mut table.empty);
    if difference.operations.is_empty() {
        return table;
    }
    let operations = difference.operations.iter().map(|operation| {
        let name = match operation.unknown {
            0 => clean(operation.name, 200),
            unknown => format!("{} ({unknown} not known)", clean(operation.name, 200)),
        };
        (name, operation.phase.name(), operation.count.to_string(), operation.times)
    });
    let rest = ("waiting, overlap".to_owned(), "", String::new(), difference.rest);
    let changes: Vec<_> = operations.chain([rest]).collect();
    // Each bar begins where the one before ends. Some are beyond both steps; what all have in common
    // is mostly cut off.
    let mut at = first;
    let mut places = Vec::new();
    for (.., times) in &changes {
        places.push([at, at + times[1] - times[0]]);
        at += times[1] - times[0];
    }
    let ends = || places.iter().flatten().copied();
    let (least, most) = (ends().fold(first.min(second), f64::min), ends().fold(first.max(second), f64::max));
    let from_here = (least - COMMON * (most - least)).max(0.0);
    let place = |us: f64| if most > from_here { ((us - from_here) / (most - from_here)).max(0.0) } else { 0.0 };
    let bars: Vec<[f64; 2]> =
        [[0.0, first]].into_iter().chain(places).chain([[0.0, second]]).map(|ends| ends.map(place)).collect();
    let whole = |name: &str, of: [Option<f64>; 2]| {
        let time = |us: Option<f64>| us.map_or_else(|| Cell::text(""), |us| Cell::new(millis(us), us));
        let [first, second] = of.map(time);
        vec![Cell::styled(Role::Title, name), Cell::text(""), Cell::text(""), first, second, Cell::text("")]
    };
    let mut rows = vec![whole("first step", [Some(first), None])];
    rows.extend(changes.into_iter().map(|(name, phase, count, times)| {
        let change = times[1] - times[0];
        let role = if change > 0.0 { Role::Warning } else { Role::Good };
        vec![
            Cell::text(name),
            Cell::styled(Role::Muted, phase),
            Cell::styled(Role::Muted, count),
            Cell::new(millis(times[0]), times[0]).role(Role::Muted),
            Cell::new(millis(times[1]), times[1]).role(Role::Muted),
            Cell::new(signed(change), change).role(role),
        ]
    }));
    rows.push(whole("second step", [None, Some(second)]));
    for (mut row, bar) in rows.into_iter().zip(bars) {
        let role = row.get(5).map_or(Role::Busy, |cell| if cell.text.is_empty() { Role::Busy } else { cell.role });
        row.push(Cell::draw(role, Graphic::Between(bar)));
        table.push(row);
    }
    table
}

/// Both steps with their ranges and methods, and how far the second is from the first, in a sentence.
pub fn headline(difference: &Difference<'_>) -> String {
    let step = |prediction: &Prediction| {
        let step = prediction.step.as_estimate();
        let how = match step.method {
            Method::Measured => "measured".to_owned(),
            Method::Derived => "derived from a measurement".to_owned(),
            _ => format!("predicted, {}", format::time_range(step.range.low, step.range.high)),
        };
        format!("{} on {} ({how})", format::time(step.range.mid), clean(&prediction.gpu.name, 80))
    };
    let [first, second] = difference.totals();
    let [from, to] = difference.steps.map(step);
    let times = if first.get() > 0.0 && second.get() > 0.0 {
        let (ratio, word) =
            if second.get() <= first.get() { (first / second, "fast") } else { (second / first, "long") };
        format!(": {} times as {word}", format::number(ratio))
    } else {
        String::new()
    };
    format!("{from}, {to}{times}")
}

/// The sentence and the table.
///
/// # Errors
/// Those of the writer.
pub fn write_text(difference: &Difference<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", headline(difference))?;
    let table = table(difference);
    if table.is_empty() { writeln!(out, "{}", table.empty) } else { table.write_text(out) }
}
