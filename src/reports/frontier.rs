//! The cost–time frontier as a table and as JSON.

use serde::Serialize;

use super::table::{Cell, Column, Table};
use super::{format, parts};
use habitat_planning::plan::{FrontierPart, FrontierPoint};

/// The JSON form (`habitat-frontier`, version 1).
#[derive(Debug, Serialize)]
pub struct FrontierJson<'a> {
    format: &'static str,
    version: u32,
    workload: &'a str,
    points: &'a [FrontierPoint],
}

/// Builds the JSON form.
pub const fn json<'a>(points: &'a [FrontierPoint], workload: &'a str) -> FrontierJson<'a> {
    FrontierJson { format: "habitat-frontier", version: 1, workload, points }
}

/// A row for each point, from the fastest to the cheapest.
pub fn table(points: &[FrontierPoint]) -> Table {
    let mut table = Table::new(&[
        Column::number("hours", "hours"),
        Column::number("at most", "hours_high"),
        Column::number("cost", "cost_usd"),
        Column::text("with", "parts").or_below(),
    ]);
    for point in points {
        let words = |part: &FrontierPart| {
            format!("{} ({})", parts::machine_words(part.machines, part.all_gpus, &part.gpu), part.offer)
        };
        let parts: Vec<String> = point.parts.iter().map(words).collect();
        table.push(vec![
            Cell::new(format::hours(point.hours.mid), point.hours.mid.get()),
            Cell::new(format::hours(point.hours.high), point.hours.high.get()),
            Cell::new(format::usd_with_range(&point.cost), point.cost.mid.get()),
            Cell::text(parts.join(", then ")),
        ]);
    }
    table
}
