//! Every trace by zone and number of machines, with plans that expect the losses and waits of the region, and
//! independent losses of the machines.

use std::collections::BTreeMap;

use habitat_tui::cli::CliError;
use habitat_tui::predict::Predictions;
use habitat_tui::pricing::PriceBook;
use habitat_tui::report::format;
use habitat_tui::report::table::{Cell, Column, Table};
use serde::Serialize;

use super::super::tally::Evaluation;
use super::{Basis, Row, Trace, known, plans, row};

/// One trace.
#[derive(Debug, Serialize)]
struct OfTrace {
    /// `availability`: requested repeatedly; `preemption`: kept running.
    kind: String,
    zone: String,
    gpu: String,
    gpus: String,
    machines: u32,
    /// Share of the time with all machines available.
    there: f64,
    /// Plans of two parts: spot, then on demand.
    two_parts: Row,
    /// Plans of one part.
    one_part: Row,
}

/// All traces, by number of machines and zone.
pub(super) fn evaluate(
    traces: &BTreeMap<String, Trace>,
    predictions: &Predictions,
    prices: &PriceBook,
) -> Result<Evaluation, CliError> {
    let mut zones = Vec::new();
    for (name, trace) in traces {
        let words: Vec<&str> = name.split('_').collect();
        let [kind, nodes, _, zone, gpu, gpus] = words[..] else { continue };
        let machines: u32 = nodes.trim_end_matches("node").parse().unwrap_or(1);
        let Some(mut expected) = Basis::Region.expected(name, trace) else { continue };
        expected.per_hour *= f64::from(machines);
        let of_parts = |parts| -> Result<Row, CliError> {
            let plans = plans(parts, &expected, predictions, prices)?;
            Ok(row(name, trace, (parts, "region, each machine"), &plans))
        };
        zones.push(OfTrace {
            kind: kind.to_owned(),
            zone: zone.to_owned(),
            gpu: gpu.to_owned(),
            gpus: gpus.to_owned(),
            machines,
            there: trace.there.iter().map(|(from, to)| to - from).sum::<f64>() / trace.end,
            two_parts: of_parts(2)?,
            one_part: of_parts(1)?,
        });
    }
    let key =
        |zone: &OfTrace| (zone.machines, zone.kind.clone(), zone.zone.clone(), zone.gpu.clone(), zone.gpus.clone());
    zones.sort_by_key(key);
    let mut table = Table::new(&[
        Column::number("machines", "machines"),
        Column::text("zone", "zone"),
        Column::text("GPUs of one", "gpus"),
        Column::text("trace", "kind"),
        Column::number("there", "there"),
        Column::number("runs", "runs"),
        Column::number("in time", "in_time"),
        Column::number("cost / planned", "cost_of_planned"),
        Column::number("cost / on demand", "cost_of_on_demand"),
        Column::number("one part: goals on spot", "with_spot"),
        Column::number("in time", "one_part_in_time"),
        Column::number("without the change", "one_part_in_time_without_change"),
    ]);
    for zone in &zones {
        let OfTrace { two_parts: two, one_part: one, .. } = zone;
        let share = |value: f64| known(value, format::percent(value));
        let times = |value: f64| known(value, format!("{value:.2}"));
        table.push(vec![
            Cell::text(zone.machines),
            Cell::text(&zone.zone),
            Cell::text(format!("{} × {}", zone.gpus, zone.gpu)),
            Cell::text(&zone.kind),
            share(zone.there),
            Cell::text(two.runs),
            share(two.in_time),
            times(two.cost_of_planned),
            times(two.cost_of_on_demand),
            Cell::text(format!("{} of {}", one.with_spot, one.goals)),
            share(one.in_time),
            share(one.in_time_without_change),
        ]);
    }
    let protocol = "the same by zone and number of machines, of plans that expect the losses and waits of the region, and each machine lost on its own";
    Ok(Evaluation::new(protocol.to_owned(), Vec::new(), table, &zones))
}
