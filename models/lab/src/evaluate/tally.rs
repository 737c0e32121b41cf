//! Errors by group and method, and their tables.

use std::collections::BTreeMap;
use std::io::Write;

use habitat_tui::cli::{CliError, print_json};
use habitat_tui::predict::learned::Spread;
use habitat_tui::predict::{Estimate, Method};
use habitat_tui::report::format;
use habitat_tui::report::table::{Cell, Column, Table};
use habitat_tui::units::Micros;
use serde::Serialize;
use serde_json::Value;

/// A predicted value with its range, in the unit of the measured one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Predicted {
    pub(super) mid: f64,
    pub(super) range: Option<[f64; 2]>,
}

impl Predicted {
    /// A time of the learned models, with its range, in milliseconds.
    pub(super) fn in_range(time: Micros, spread: Spread) -> Self {
        let estimate = Estimate::with_factors(time, spread.low, spread.high, Method::Learned);
        let range = estimate.range;
        Self { mid: range.mid.as_millis(), range: Some([range.low.as_millis(), range.high.as_millis()]) }
    }
}

/// Relative errors of one method on one group.
#[derive(Debug, Default)]
struct Errors {
    relative: Vec<f64>,
    /// Predicted over measured.
    ratios: Vec<f64>,
    /// Predictions with a range, and those whose range contains the measured value.
    ranges: usize,
    inside: usize,
    worst: Option<(f64, String)>,
}

/// Errors by group, then by method.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<String, BTreeMap<String, Errors>>);

/// Figures of one method on one group; errors relative to the measured time.
#[derive(Serialize)]
struct Row {
    group: String,
    method: String,
    pairs: usize,
    mean_absolute_error: f64,
    median_absolute_error: f64,
    p90_absolute_error: f64,
    worst_absolute_error: f64,
    /// Median of predicted over measured.
    median_ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    worst: Option<String>,
    /// Share of measured times in the predicted range, if there are ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<f64>,
}

impl Groups {
    /// Adds one prediction; `label` names it if it is the worst.
    pub(super) fn add(
        &mut self,
        group: &str,
        method: &str,
        predicted: Predicted,
        measured: f64,
        label: &dyn Fn() -> String,
    ) {
        if !self.0.contains_key(group) {
            self.0.insert(group.to_owned(), BTreeMap::new());
        }
        let Some(methods) = self.0.get_mut(group) else { return };
        if !methods.contains_key(method) {
            methods.insert(method.to_owned(), Errors::default());
        }
        let Some(errors) = methods.get_mut(method) else { return };
        let error = (predicted.mid / measured - 1.0).abs();
        errors.ratios.push(predicted.mid / measured);
        errors.relative.push(error);
        if let Some([low, high]) = predicted.range {
            errors.ranges += 1;
            errors.inside += usize::from((low..=high).contains(&measured));
        }
        if errors.worst.as_ref().is_none_or(|(worst, _)| error > *worst) {
            errors.worst = Some((error, label()));
        }
    }

    /// The figures as a table.
    pub(super) fn evaluation(self, protocol: String, notes: Vec<String>) -> Evaluation {
        let rows: Vec<Row> = self
            .0
            .into_iter()
            .flat_map(|(group, methods)| {
                methods.into_iter().map(move |(method, errors)| row(group.clone(), method, errors))
            })
            .collect();
        let mut table = Table::new(&[
            Column::text("group", "group"),
            Column::text("method", "method"),
            Column::number("pairs", "pairs"),
            Column::number("mean", "mean_absolute_error"),
            Column::number("median", "median_absolute_error"),
            Column::number("90 %", "p90_absolute_error"),
            Column::number("worst", "worst_absolute_error"),
            Column::number("ratio", "median_ratio"),
            Column::number("in range", "coverage"),
            Column::text("worst at", "worst"),
        ]);
        for row in &rows {
            table.push(vec![
                Cell::text(&row.group),
                Cell::text(&row.method),
                Cell::text(row.pairs),
                percent(row.mean_absolute_error),
                percent(row.median_absolute_error),
                percent(row.p90_absolute_error),
                percent(row.worst_absolute_error),
                Cell::new(format!("{:.2}", row.median_ratio), row.median_ratio),
                Cell::maybe(row.coverage, percent),
                Cell::maybe(row.worst.as_ref(), Cell::text),
            ]);
        }
        Evaluation::new(protocol, notes, table, &rows)
    }
}

fn row(group: String, method: String, errors: Errors) -> Row {
    let Errors { relative: mut sorted, mut ratios, ranges, inside, worst } = errors;
    sorted.sort_by(f64::total_cmp);
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    Row {
        group,
        method,
        pairs: sorted.len(),
        mean_absolute_error: sorted.iter().sum::<f64>() / sorted.len() as f64,
        median_absolute_error: at(0.5),
        p90_absolute_error: at(0.9),
        worst_absolute_error: at(1.0),
        median_ratio: ratios[(ratios.len() - 1) / 2],
        worst: worst.map(|(_, label)| label),
        coverage: (ranges > 0).then(|| inside as f64 / ranges as f64),
    }
}

/// A time from a number of microseconds; negative values, from noise, become zero.
pub(super) fn micros(value: f64) -> Micros {
    Micros::new(value).unwrap_or_default()
}

/// A share as a cell.
pub(super) fn percent(share: f64) -> Cell {
    Cell::new(format::percent(share), share)
}

/// A table with its protocol.
pub(crate) struct Evaluation {
    protocol: String,
    notes: Vec<String>,
    table: Table,
    rows: Value,
}

impl Evaluation {
    /// A table to print and its rows as JSON.
    pub(super) fn new(protocol: String, notes: Vec<String>, table: Table, rows: &impl Serialize) -> Self {
        let rows = serde_json::to_value(rows).unwrap_or_default();
        Self { protocol, notes, table, rows }
    }
}

impl Evaluation {
    /// The protocol and the rows of the methods that `keep` picks, as Markdown.
    pub(crate) fn write_markdown(&self, keep: &dyn Fn(&str) -> bool, out: &mut dyn Write) -> Result<(), CliError> {
        writeln!(out, "{}. {}.\n", self.protocol, self.notes.join(". "))?;
        writeln!(out, "| group | method | cases | mean | median | 90 % | worst | in range |")?;
        writeln!(out, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")?;
        for row in self.rows.as_array().into_iter().flatten() {
            if !keep(text(row, "method")) {
                continue;
            }
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                text(row, "group"),
                text(row, "method"),
                row["pairs"],
                share(row, "mean_absolute_error"),
                share(row, "median_absolute_error"),
                share(row, "p90_absolute_error"),
                share(row, "worst_absolute_error"),
                share(row, "coverage")
            )?;
        }
        Ok(())
    }

    /// A short table for a card: a row for each group that `keep` picks, and for each of `methods` (its name here, and
    /// the heading there) mean · 90th percentile · share in range.
    pub(crate) fn write_summary(
        &self,
        keep: &dyn Fn(&str) -> bool,
        methods: &[(&str, &str)],
        out: &mut dyn Write,
    ) -> Result<(), CliError> {
        let headings: Vec<&str> = methods.iter().map(|(_, heading)| *heading).collect();
        writeln!(out, "| | n | {} |", headings.join(" | "))?;
        writeln!(out, "| --- | ---: |{}", " ---: |".repeat(methods.len()))?;
        let rows: Vec<&Value> = self.rows.as_array().into_iter().flatten().collect();
        let mut last = "";
        for group in rows.iter().map(|row| text(row, "group")).filter(|group| keep(group)) {
            if group == last {
                continue;
            }
            last = group;
            let of_group =
                |method: &str| rows.iter().find(|row| text(row, "group") == group && text(row, "method") == method);
            // All methods have the same cases, except those with a few measured operators.
            let Some(first) = methods.iter().find_map(|(method, _)| of_group(method)) else { continue };
            write!(out, "| {group} | {} |", first["pairs"])?;
            for (method, _) in methods {
                let cell = of_group(method).map_or_else(
                    || "–".to_owned(),
                    |row| {
                        ["mean_absolute_error", "p90_absolute_error", "coverage"].map(|key| share(row, key)).join(" · ")
                    },
                );
                write!(out, " {cell} |")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// The figures of one method on a group.
    pub(super) fn row(&self, group: &str, method: &str) -> Option<&Value> {
        let mut rows = self.rows.as_array()?.iter();
        rows.find(|row| text(row, "group") == group && text(row, "method") == method)
    }

    /// Notes on the whole table.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// A share of a row in percent, `–` if the row has none.
pub(super) fn share(row: &Value, key: &str) -> String {
    row[key].as_f64().map_or_else(|| "–".to_owned(), format::percent)
}

/// Prints evaluations in turn; returns 1 if none of them has a row.
pub(super) fn print(evaluations: &[Evaluation], json: bool, out: &mut dyn Write) -> Result<u8, CliError> {
    let empty = evaluations.iter().all(|evaluation| evaluation.table.is_empty());
    if json {
        let one = |Evaluation { protocol, notes, rows, .. }: &Evaluation| {
            let mut value =
                serde_json::json!({"format": "habitat-evaluation", "version": 1, "protocol": protocol, "rows": rows});
            if !notes.is_empty() {
                value["notes"] = notes.as_slice().into();
            }
            value
        };
        match evaluations {
            [evaluation] => print_json(&one(evaluation), out)?,
            all => print_json(&all.iter().map(one).collect::<Vec<_>>(), out)?,
        };
        return Ok(u8::from(empty));
    }
    for (index, evaluation) in evaluations.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}\n", evaluation.protocol)?;
        evaluation.table.write_text(out)?;
        for note in &evaluation.notes {
            writeln!(out, "{note}")?;
        }
    }
    Ok(u8::from(empty))
}
