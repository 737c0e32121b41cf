//! Layouts of the plan's machines, and why the others lost.

use super::{Lower, Pane, lower};
use crate::app::App;
use habitat_planning::plan::{LayoutChoice, LayoutOption, ShardingChoice};
use habitat_reports::layouts;
use habitat_reports::table::Table;

/// The layout under the cursor in this view; `None` in other views.
pub(super) fn selected(app: &App) -> Option<&LayoutOption> {
    let is_there = app.planner.lower == Lower::Layouts && app.planner.pane == Pane::Lower;
    app.plan.value()?.layouts.get(app.planner.list.selected).filter(|_| is_there)
}

/// Adjusts the goal so that plans use the layout under the cursor.
pub(super) fn take(app: &mut App) {
    let Some(&LayoutOption { sharding, parallel, .. }) = selected(app) else { return };
    let goal = &mut app.setup.goal;
    (goal.layout, goal.sharding, goal.model_parallel) = (LayoutChoice::Given, ShardingChoice::of(sharding), parallel);
}

/// A row for each.
pub(super) fn table(app: &App) -> Table {
    let table = app.plan.value().map_or_else(Table::default, layouts::table);
    lower(app, table.columns, table.rows, "Each GPU of the plan holds a whole model: no layout was searched.")
}
