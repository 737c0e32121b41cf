//! Difference between two GPUs as a table and as JSON (`habitat-difference`, version 1), and the waterfall from one
//! step to another, which is also used for two recordings.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::table::{Cell, Column, Graphic, Table};
use crate::theme::Role;
use habitat_base::text::clean;
use habitat_base::units::{Micros, Range};
use habitat_prediction::difference::Difference;
use habitat_prediction::{Method, Prediction};
use habitat_step::profile::Phase;
use habitat_step::profile::difference::Changed;

/// Output of `predict --difference --json`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "habitat-tui difference between two GPUs")]
pub struct DifferenceJson<'a> {
    /// Always `habitat-difference`.
    pub format: &'static str,
    /// Version of the format, 1.
    pub version: u32,
    /// The two GPUs.
    pub gpus: [StepJson<'a>; 2],
    /// Operations, those that contribute most to the difference first; empty if the method does not predict single
    /// operations.
    pub operations: Vec<ChangedJson<'a>>,
    /// Step time that is not an operation's: waiting for the host, minus overlap.
    pub rest_us: [f64; 2],
}

/// The step on one of the GPUs.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StepJson<'a> {
    /// Slug of the GPU.
    pub gpu: &'a str,
    /// Time of one step.
    pub step_time_us: Range<f64>,
    /// Method of the time.
    pub method: &'static str,
}

/// All occurrences of an operation in one phase.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChangedJson<'a> {
    /// Its name.
    pub name: &'a str,
    /// Phase of the step.
    pub phase: &'static str,
    /// Occurrences.
    pub count: u64,
    /// Device time of all of them on each GPU.
    pub device_time_us: [f64; 2],
    /// Occurrences with an unknown time on one of the GPUs.
    pub unknown: u64,
}

/// Builds the JSON form.
pub fn json<'a>(difference: &'a Difference<'a>) -> DifferenceJson<'a> {
    let step = |prediction: &'a Prediction| {
        let step = prediction.step.as_estimate();
        StepJson {
            gpu: prediction.gpu.slug.as_str(),
            step_time_us: step.range.map(Micros::get),
            method: step.method.name(),
        }
    };
    let operation = |part: &'a Changed| ChangedJson {
        name: &part.name,
        phase: part.phase.map_or("several", Phase::name),
        count: part.counts[0],
        device_time_us: part.times,
        unknown: part.unknown,
    };
    DifferenceJson {
        format: "habitat-difference",
        version: 1,
        gpus: difference.steps.map(step),
        operations: difference.parts.iter().map(operation).collect(),
        rest_us: difference.rest,
    }
}

/// Share of the bar that both steps have in common to draw, relative to the rest.
const COMMON: f64 = 0.25;

/// Below this step time, in microseconds, figures are shown to the whole microsecond.
const FINER: f64 = 10e3;

/// Waterfall from the first step to the second: the operations, then waiting and overlap.
pub fn table(difference: &Difference<'_>) -> Table {
    let keyed = |key, column| Column { key, ..column };
    let labels = [
        keyed("operation", Column::words("operation", 16, 0)),
        keyed("phase", Column::words("phase", 9, 1)),
        keyed("count", Column::figures("count", 4)),
    ];
    let part = |part: &Changed| {
        let name = match part.unknown {
            0 => clean(&part.name, 200),
            unknown => format!("{} ({unknown} unknown)", clean(&part.name, 200)),
        };
        let phase = Cell::styled(Role::Muted, part.phase.map_or("several", Phase::name));
        (vec![Cell::text(name), phase, Cell::styled(Role::Muted, part.counts[0])], part.times)
    };
    let parts = difference.parts.iter().map(part).collect();
    let mut table = waterfall(&labels, difference.totals, parts, difference.rest, Samples::None);
    "This method does not predict single operations.".clone_into(&mut table.empty);
    table
}

/// How a waterfall shows the times of one sample.
#[derive(Debug, Clone, Copy)]
pub(super) enum Samples {
    /// It has none.
    None,
    /// Both in a column for people.
    Words([u64; 2]),
    /// A column each for CSV, empty if the batch size is not known.
    Figures([Option<u64>; 2]),
}

impl Samples {
    fn columns(self) -> Vec<Column> {
        match self {
            Self::None => Vec::new(),
            Self::Words(_) => vec![Column::figures("a sample, µs", 1)],
            Self::Figures(_) => {
                ["first_us_per_sample", "second_us_per_sample"].map(|key| Column::number("", key)).to_vec()
            }
        }
    }

    /// Cells for the times of both steps in microseconds, or of one of them.
    fn cells(self, times: [Option<f64>; 2]) -> Vec<Cell> {
        let each = |batches: [Option<u64>; 2]| {
            [0, 1].map(|step: usize| Some(times[step]? / batches[step].filter(|batch| *batch > 0)? as f64))
        };
        match self {
            Self::None => Vec::new(),
            Self::Words(batches) => {
                let words: Vec<String> = each(batches.map(Some)).into_iter().flatten().map(signed_number).collect();
                vec![Cell::styled(Role::Muted, words.join(" → "))]
            }
            Self::Figures(batches) => each(batches).map(|us| Cell::maybe(us, Cell::text)).to_vec(),
        }
    }
}

/// A figure of three digits. Overlap of operations makes it negative.
fn signed_number(us: f64) -> String {
    if us < 0.0 { format!("-{}", format::number(-us)) } else { format::number(us) }
}

/// A waterfall from one step to another: what each part adds, its cells under `labels` (the first is its
/// name) and its times in microseconds, then the rest. Empty without parts.
pub(super) fn waterfall(
    labels: &[Column],
    totals: [Micros; 2],
    parts: Vec<(Vec<Cell>, [f64; 2])>,
    rest: [f64; 2],
    samples: Samples,
) -> Table {
    let [first, second] = totals.map(Micros::get);
    let decimals = if first.max(second) < FINER { 3 } else { 2 };
    let millis = |us: f64| format!("{:.decimals$}", us / 1e3);
    let signed = |us: f64| {
        let words = format!("{:+.decimals$}", us / 1e3);
        // A change that rounds to zero has no sign.
        if words.bytes().any(|c| matches!(c, b'1'..=b'9')) { words } else { words[1..].to_owned() }
    };
    let keyed = |key, column| Column { key, ..column };
    let mut times = vec![
        keyed("first_us", Column::figures("first, ms", 2)),
        keyed("second_us", Column::figures("second, ms", 2)),
        keyed("difference_us", Column::figures("change, ms", 0)),
    ];
    times.extend(samples.columns());
    times.push(Column::graphic("", 10, 2));
    let mut table = Table::new(&[labels, &times].concat());
    if parts.is_empty() {
        return table;
    }
    // A name cell, with the other labels empty.
    let named = |name: Cell| {
        let mut cells = vec![name];
        cells.resize_with(labels.len(), || Cell::text(""));
        cells
    };
    let changes: Vec<_> = parts.into_iter().chain([(named(Cell::text("waiting, overlap")), rest)]).collect();
    // Each bar begins where the previous one ends, so bars may reach beyond both steps. Most of the length that all
    // bars have in common is cut off.
    let mut at = first;
    let mut places = Vec::new();
    for (_, times) in &changes {
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
        let mut cells = named(Cell::styled(Role::Title, name));
        cells.extend(of.map(time).into_iter().chain([Cell::text("")]));
        cells.extend(samples.cells(of));
        (cells, Role::Busy)
    };
    let mut rows = vec![whole("first step", [Some(first), None])];
    rows.extend(changes.into_iter().map(|(mut cells, times)| {
        let change = times[1] - times[0];
        let role = match change {
            0.0 => Role::Muted,
            change if change > 0.0 => Role::Warning,
            _ => Role::Good,
        };
        cells.extend(times.map(|us| Cell::new(millis(us), us).role(Role::Muted)));
        cells.push(Cell::new(signed(change), change).role(role));
        cells.extend(samples.cells(times.map(Some)));
        (cells, role)
    }));
    rows.push(whole("second step", [None, Some(second)]));
    for ((mut row, role), bar) in rows.into_iter().zip(bars) {
        row.push(Cell::draw(role, Graphic::Between(bar)));
        table.push(row);
    }
    table
}

/// One sentence: both steps with their ranges and methods, and the ratio of their times.
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
    let [first, second] = difference.totals;
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

/// Writes the sentence and the table as text.
///
/// # Errors
/// Write errors of `out`.
pub fn write_text(difference: &Difference<'_>, width: Option<u16>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", headline(difference))?;
    let table = table(difference);
    if table.is_empty() { writeln!(out, "{}", table.empty) } else { table.write_lines(width, out) }
}
