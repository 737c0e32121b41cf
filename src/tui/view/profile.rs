//! Second screen.

use ratatui::layout::{Constraint, Layout, Rect};

use super::{Density, filtered, labelled};
use crate::app::screen::profile;
use crate::settings::theme::Role;
use crate::tui::paint::Painter;
use crate::tui::widget::table;

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let state = &app.profile;
    if state.zoomed {
        detail(painter, area);
        return;
    }
    let density = Density::of(painter.buffer.area);
    let below = match density {
        Density::Minimal => 0,
        Density::Compact => 8,
        Density::Full => (area.height * 2 / 5).max(12),
    };
    let [top, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(area);
    let phase = state.phase.map_or("all phases", profile::phase_word);
    let title = filtered(format!("by {} · {phase}", state.by.name()), &state.list);
    let shown = profile::table(app);
    let inside = painter.pane(top, &title, &profile::summary(app), !state.in_detail);
    let inside = match profile::without_times(app) {
        Some(why) if inside.height > 4 => {
            painter.text(inside.x, inside.y, inside.width, why, Role::Warning);
            Rect { y: inside.y + 1, height: inside.height - 1, ..inside }
        }
        _ => inside,
    };
    table::draw(painter, inside, "profile", &shown, !state.in_detail);
    if below > 0 {
        detail(painter, bottom);
    }
}

fn detail(painter: &mut Painter<'_>, area: Rect) {
    let state = &painter.app.profile;
    let lines = profile::detail(painter.app);
    let focus = state.in_detail || state.zoomed;
    let right = if state.zoomed { "Enter or q: back to the table" } else { "Enter: whole screen" };
    let inside = painter.pane(area, "selected", right, focus);
    if lines.is_empty() {
        painter.text(inside.x, inside.y, inside.width, "Nothing is selected.", Role::Muted);
        return;
    }
    labelled(painter, inside, &lines, state.scroll);
}
