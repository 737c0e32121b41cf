//! Sixth screen: facts about all jobs, and each job over time.

use ratatui::layout::{Constraint, Layout, Rect};

use super::Density;
use crate::app::screen::jobs;
use crate::tui::paint::{Painter, fit, wrap};
use crate::tui::widget::table;
use habitat_base::text::clean;
use habitat_reports::jobs::status_words;
use habitat_reports::theme::Role;

/// Minimum number of lines for the jobs.
const LEAST: u16 = 7;

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let lines = jobs::lines(app);
    let plan = app.jobs.plan.value();
    let framed = Density::of(painter.buffer.area) != Density::Minimal;
    let frame = if framed { 2 } else { 0 };
    let wide = usize::from(area.width.saturating_sub(4));
    let needed: usize = lines.iter().map(|(_, words)| wrap(words, wide).len()).sum();
    // Reasons may use all lines: without a plan there is nothing below.
    let least = if plan.is_some_and(|plan| plan.jobs.is_empty()) { frame + 1 } else { LEAST };
    let height = (needed as u16 + frame).min(area.height.saturating_sub(least));
    let height = if needed == 0 { 0 } else { height };
    let [above, below] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(area);

    let inside = if framed {
        let stale = app.jobs.plan.stale_words("file");
        let title = format!("jobs in {}{stale}", clean(app.setup.jobs.as_deref().unwrap_or_default(), 60));
        painter.pane(above, &title, &plan.map_or_else(String::new, status_words), false)
    } else {
        Rect { x: above.x + 1, width: above.width.saturating_sub(2), ..above }
    };
    let mut y = inside.y;
    for (role, words) in &lines {
        let left = Rect { y, height: inside.bottom().saturating_sub(y), ..inside };
        y += painter.wrapped(left, words, *role);
    }

    let inside = painter.pane(below, "over time", "Enter: details", true);
    let legend = jobs::legend(app);
    let line = u16::from(!legend.is_empty() && inside.height > 4);
    let [rows, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(line)]).areas(inside);
    table::draw(painter, rows, "jobs", &jobs::table(app), true);
    if line > 0 {
        let room = bottom.width.saturating_sub(2);
        painter.text(bottom.x + 2, bottom.y, room, &fit(&legend, room.into()), Role::Muted);
    }
}
