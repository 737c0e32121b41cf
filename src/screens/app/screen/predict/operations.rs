//! The opened GPU: its step by operation.

use super::detailed;
use crate::app::App;
use crate::app::job::JobState;
use crate::app::screen::profile::{phase_role, phase_word};
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_prediction::OperationPrediction;
use habitat_reports::format;
use habitat_reports::table::{Cell, Column, Table};
use habitat_reports::theme::Role;
use habitat_step::op;

/// Sort orders of the list, in the order of the `s` key.
pub(super) const SORTS: [&str; 3] = ["predicted time", "measured time", "name"];

/// Operations of the opened GPU that pass the filter, sorted.
fn rows(app: &App) -> Vec<&OperationPrediction> {
    let list = &app.predict.operations;
    let opened = app.predict.opened.as_ref();
    let Some(prediction) = opened.and_then(|gpu| detailed(app, gpu)) else { return Vec::new() };
    let total = |time: Option<Micros>, count: u32| time.map_or(0.0, |time| time.get() * f64::from(count));
    let words = |operation: &OperationPrediction| {
        let method = operation.time.as_ref().map_or("unknown", |time| time.method.name());
        format!("{} {} {method} {}", clean(&operation.name, 200), operation.phase.name(), clean(&operation.why, 300))
    };
    let mut rows: Vec<_> = prediction.operations.iter().filter(|operation| list.passes(&words(operation))).collect();
    match list.sort {
        1 => rows.sort_by(|a, b| total(b.origin_time, b.count).total_cmp(&total(a.origin_time, a.count))),
        2 => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        _ => rows.sort_by(|a, b| {
            let mid = |operation: &OperationPrediction| {
                total(operation.time.as_ref().map(|time| time.range.mid), operation.count)
            };
            mid(b).total_cmp(&mid(a))
        }),
    }
    if list.reversed {
        rows.reverse();
    }
    rows
}

/// The selected operation, by its place in the step.
pub(super) fn selected_key(app: &App) -> Option<String> {
    rows(app).get(app.predict.operations.selected).map(|operation| operation.index.to_string())
}

/// The place of an operation among the rows.
pub(super) fn place_of(app: &App, key: &str) -> Option<usize> {
    rows(app).iter().position(|operation| operation.index.to_string() == key)
}

/// Operation by operation on the opened GPU.
pub fn table(app: &App) -> Table {
    let shown = rows(app);
    let columns = vec![
        Column::words("operation", 14, 0).sorts(2),
        Column::figures("count", 4),
        Column::figures("measured, ms", 2).sorts(1),
        Column::figures("predicted, ms", 0).sorts(0),
        Column::figures("low–high, ms", 1),
        Column::figures("speed-up", 3),
        Column::words("method", 14, 1),
        Column::words("phase", 8, 5),
    ];
    let rows = shown
        .iter()
        .map(|operation| {
            let count = f64::from(operation.count);
            let millis = |time: Micros| format!("{:.3}", (time * count).as_millis());
            let time = operation.time.as_ref();
            let speed_up = operation
                .origin_time
                .zip(time)
                .filter(|(origin, here)| origin.get() > 0.0 && here.range.mid.get() > 0.0)
                .map(|(origin, here)| format!("{}×", format::number(origin / here.range.mid)));
            vec![
                Cell::text(op::name::short(&clean(&operation.name, 200)).to_owned()),
                Cell::styled(Role::Muted, operation.count.to_string()),
                Cell::styled(Role::Muted, operation.origin_time.map_or_else(|| "–".to_owned(), millis)),
                Cell::text(time.map_or_else(|| "excluded".to_owned(), |time| millis(time.range.mid))),
                Cell::styled(
                    Role::Muted,
                    time.map_or_else(String::new, |time| {
                        format::low_high(millis(time.range.low), millis(time.range.high))
                    }),
                ),
                Cell::text(speed_up.unwrap_or_default()),
                Cell::styled(Role::Muted, time.map_or("unknown", |time| time.method.name())),
                Cell::styled(phase_role(Some(operation.phase)), phase_word(operation.phase)),
            ]
        })
        .collect();
    let list = &app.predict.operations;
    Table {
        columns,
        rows,
        selected: list.selected,
        sorted: Some((list.sort, (list.sort != 2) != list.reversed)),
        empty: match app.details.state() {
            JobState::Running => "predicting …".to_owned(),
            JobState::Failed(why) => clean(why, 300),
            _ if list.filter.is_empty() => "This method does not predict single operations.".to_owned(),
            _ => "No operation matches the filter; press Esc to clear it.".to_owned(),
        },
        ..Table::default()
    }
}

/// Explanation of the selected operation's time on the opened GPU.
pub fn why(app: &App) -> Option<String> {
    rows(app).get(app.predict.operations.selected).map(|operation| clean(&operation.why, 600))
}
