//! The frame: one file per screen, drawn only from `&App`.

mod chrome;
mod dialog;
mod job;
mod jobs;
mod overview;
mod plan;
mod predict;
mod profile;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::action::Screen;
use crate::app::list::ListState;
use crate::app::{App, SMALLEST};
use crate::tui::paint::{Memory, Painter, cut, wrap};
use crate::tui::widget;
use habitat_base::text::clean;
use habitat_reports::Table;
use habitat_reports::theme::Role;

/// Available space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Density {
    /// Answers only, without frames.
    Minimal,
    /// 80×24.
    Compact,
    /// Panes side by side.
    Full,
}

impl Density {
    const fn of(area: Rect) -> Self {
        if area.width >= 110 && area.height >= 28 {
            Self::Full
        } else if area.width >= 76 && area.height >= 20 {
            Self::Compact
        } else {
            Self::Minimal
        }
    }
}

/// Function that draws a screen.
const fn drawing(screen: Screen) -> fn(&mut Painter<'_>, Rect) {
    match screen {
        Screen::Overview => overview::draw,
        Screen::Profile => profile::draw,
        Screen::Predict => predict::draw,
        Screen::Plan => plan::draw,
        Screen::Job => job::draw,
        Screen::Jobs => jobs::draw,
    }
}

/// Draws a frame and returns the position of a visible cursor.
pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer, memory: &mut Memory) -> Option<Position> {
    let mut painter = Painter::new(app, buffer, memory);
    let ground = painter.style(Role::Text);
    painter.buffer.set_style(area, ground);
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        chrome::too_small(&mut painter, area);
        painter.finish();
        return None;
    }
    let body = chrome::draw(&mut painter, area);
    if app.is_awaiting() && app.screen.behaviour().awaits().is_some() {
        job::awaited(&mut painter, body);
    } else {
        drawing(app.screen)(&mut painter, body);
    }
    dialog::draw(&mut painter, area);
    painter.finish();
    painter.cursor
}

/// Comparison of two steps: their difference in words, and the waterfall.
fn waterfall(painter: &mut Painter<'_>, area: Rect, headline: &str, warnings: &[String], table: &Table) {
    let inside = painter.pane(area, "difference", "q: back", true);
    let inside = warned(painter, inside, warnings);
    let used = painter.wrapped(Rect { height: inside.height / 2, ..inside }, headline, Role::Title);
    let rest = Rect { y: inside.y + used, height: inside.height - used, ..inside };
    widget::table::draw(painter, rest, "difference", table, true);
}

/// A title with the filter of its list.
fn filtered(title: String, list: &ListState) -> String {
    if list.filter.is_empty() { title } else { format!("{title} · filter {:?}", clean(&list.filter, 24)) }
}

/// Maximum number of lines of a warning.
const WARNING_LINES: u16 = 4;

/// Draws warnings at the top, in at most half of the area, and returns the rest.
fn warned(painter: &mut Painter<'_>, area: Rect, warnings: &[String]) -> Rect {
    let mut used = 0;
    for warning in warnings {
        let height = WARNING_LINES.min((area.height / 2).saturating_sub(used));
        used += painter.wrapped(Rect { y: area.y + used, height, ..area }, warning, Role::Warning);
    }
    Rect { y: area.y + used, height: area.height - used, ..area }
}

/// Draws lines of label and wrapped text, starting at line `skip`, and returns the total number of lines. Marks that
/// lines are missing below.
fn labelled(painter: &mut Painter<'_>, area: Rect, lines: &[(String, String)], skip: usize) -> usize {
    use unicode_width::UnicodeWidthStr;
    let label_width = lines.iter().map(|(label, _)| label.width()).max().unwrap_or(0).min(28) as u16;
    let left = if label_width > 0 { label_width + 2 } else { 0 };
    let width = area.width.saturating_sub(left);
    let rows = lines.iter().flat_map(|(label, text)| {
        let labels = std::iter::once(label.as_str()).chain(std::iter::repeat(""));
        labels.zip(wrap(text, width.into()))
    });
    let rows: Vec<(&str, String)> = rows.collect();
    for (y, (label, line)) in (area.y..area.bottom()).zip(rows.iter().skip(skip)) {
        let is_cut = y + 1 == area.bottom() && skip + usize::from(area.height) < rows.len();
        let line = if is_cut { cut(&format!("{line} …"), width.into()) } else { line.clone() };
        painter.text(area.x, y, label_width, label, Role::Muted);
        painter.text(area.x + left, y, width, &line, Role::Text);
    }
    rows.len()
}
