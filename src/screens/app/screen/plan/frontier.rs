//! The best trade-offs of cost against time (Pareto front).

use super::{Lower, Pane, confidence, lower, time_heading};
use crate::app::App;
use habitat_base::text::clean;
use habitat_planning::plan::{FrontierPart, FrontierPoint};
use habitat_reports::table::{Cell, Column, Table};
use habitat_reports::theme::Role;
use habitat_reports::{format, parts};

/// The plan under the cursor in the view of cost against time; `None` in other views.
pub fn frontier_point(app: &App) -> Option<&FrontierPoint> {
    let is_there = app.planner.lower == Lower::Chart && app.planner.pane == Pane::Lower;
    app.frontier.get(app.planner.list.selected).filter(|_| is_there)
}

/// Index of the current plan among the best trade-offs, if it is one of them.
pub(super) fn planned_point(app: &App) -> Option<usize> {
    let (cost, offers) = (app.plan.value()?.total?.cost.mid.get(), &app.plan.value()?.parts);
    app.frontier.iter().position(|point| {
        let same =
            point.parts.len() == offers.len() && point.parts.iter().zip(offers).all(|(a, b)| a.offer == b.offer.id);
        same && (point.cost.mid.get() - cost).abs() <= 0.005
    })
}

/// The best trade-offs (Pareto front), from the fastest to the cheapest.
pub fn frontier_table(app: &App) -> Table {
    let confidence = confidence(app);
    let columns = vec![
        Column::words("", 1, 0),
        Column::figures(time_heading(confidence), 0),
        Column::figures("low–high", 3),
        Column::figures("cost (mid)", 0),
        Column::figures("low–high, $", 2),
        Column::words("with", 30, 1),
    ];
    let own = planned_point(app);
    let rows = app
        .frontier
        .iter()
        .enumerate()
        .map(|(place, point)| {
            let role = if own == Some(place) { Role::Good } else { Role::Text };
            vec![
                Cell::styled(Role::Good, if own == Some(place) { "✓" } else { "" }),
                Cell::styled(role, format::hours(confidence.end(&point.hours))),
                Cell::styled(Role::Muted, format::hours_range(&point.hours)),
                Cell::styled(role, format::usd(point.cost.mid)),
                Cell::styled(Role::Muted, format::usd_range(&point.cost).replace('$', "")),
                Cell::styled(role, point_words(point)),
            ]
        })
        .collect();
    lower(app, columns, rows, "No offer fits the work.")
}

/// The plan under the cursor in the chart, in words.
pub fn cursor_words(app: &App) -> Option<String> {
    let point = app.frontier.get(app.planner.list.selected)?;
    let (hours, cost) = (format::hours_with_range(&point.hours), format::usd_with_range(&point.cost));
    Some(format!("{hours}, {cost}: {}", point_words(point)))
}

/// Offers of a point on the Pareto front, in words.
fn point_words(point: &FrontierPoint) -> String {
    let words = |part: &FrontierPart| {
        let gpus = parts::machine_words(part.machines, part.all_gpus, &part.gpu);
        format!("{gpus} {}, {}", part.tier, clean(part.offer.as_str().split('/').next().unwrap_or_default(), 20))
    };
    point.parts.iter().map(words).collect::<Vec<_>>().join(", then ")
}
