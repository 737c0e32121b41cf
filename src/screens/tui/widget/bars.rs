//! Bars, ranges and sliders in one line of cells. ratatui's gauges show a single value, have their own label and no
//! ASCII mode; these have several parts, fit into tables and can be moved with the mouse.

use ratatui::layout::Rect;
use ratatui::style::Modifier;
use unicode_width::UnicodeWidthStr;

use crate::tui::glyphs::Glyphs;
use crate::tui::paint::Painter;
use habitat_reports::format;
use habitat_reports::theme::Role;

/// A bar that fills `part` of the width from the left.
pub(in crate::tui) fn bar(glyphs: &Glyphs, width: u16, part: f64) -> String {
    let steps = glyphs.parts.len() + 1;
    let eighths = (part.clamp(0.0, 1.0) * f64::from(width) * steps as f64).round() as usize;
    // Show even the smallest part.
    let eighths = if part > 0.0 { eighths.max(1) } else { 0 };
    let mut text = glyphs.full.repeat(eighths / steps);
    if eighths % steps > 0 {
        text.push_str(glyphs.parts[eighths % steps - 1]);
    }
    text
}

/// A bar between two positions, at least one cell wide.
pub(in crate::tui) fn between(glyphs: &Glyphs, width: u16, ends: [f64; 2]) -> String {
    let place = |part: f64| (part.clamp(0.0, 1.0) * f64::from(width)).round() as usize;
    let (from, to) = (place(ends[0].min(ends[1])), place(ends[0].max(ends[1])));
    let from = from.min(usize::from(width).saturating_sub(1));
    " ".repeat(from) + &glyphs.full.repeat((to - from).max(1))
}

/// Parts of a whole next to each other, each in its colour; the rest is empty.
pub(in crate::tui) fn stacked(painter: &mut Painter<'_>, x: u16, y: u16, width: u16, parts: &[(f64, Role)]) {
    let mut sum = 0.0;
    let mut at = 0u16;
    for (part, role) in parts {
        sum += part.max(0.0);
        let end = ((sum * f64::from(width)).round() as u16).min(width);
        let text = painter.glyphs.full.repeat(usize::from(end.saturating_sub(at)));
        painter.text(x + at, y, width - at, &text, *role);
        at = at.max(end);
    }
    let text = painter.glyphs.empty.repeat(usize::from(width - at));
    painter.text(x + at, y, width - at, &text, Role::Track);
}

/// A part of a whole with its name.
pub(in crate::tui) struct Part<'a> {
    /// Its name.
    pub(in crate::tui) name: &'a str,
    /// Its share of the whole, 0 to 1.
    pub(in crate::tui) share: f64,
    /// Its colour.
    pub(in crate::tui) role: Role,
    /// Whether it is idle.
    pub(in crate::tui) empty: bool,
    /// Whether it contains the selection.
    pub(in crate::tui) marked: bool,
}

/// Named parts of a whole next to each other, with name and share where they fit, or one of them. A marked part starts
/// with the selection marker and always takes at least one cell.
pub(in crate::tui) fn named(painter: &mut Painter<'_>, x: u16, y: u16, width: u16, parts: &[Part<'_>]) {
    let (mut sum, mut at) = (0.0, 0_u16);
    for part in parts {
        sum += part.share.max(0.0);
        let end = ((sum * f64::from(width)).round() as u16).max(at + u16::from(part.marked)).min(width);
        let wide = end.saturating_sub(at);
        if wide == 0 {
            continue;
        }
        let glyphs = painter.glyphs;
        let sign = if part.marked { glyphs.marker } else { glyphs.frame.vertical_left };
        let room = usize::from(wide - 1);
        let share = format::percent(part.share);
        let words = [format!("{} {share}", part.name), part.name.to_owned(), share];
        let words = words.into_iter().find(|words| words.width() <= room).unwrap_or_default();
        let fill = if part.empty { glyphs.empty } else { " " }.repeat(room - words.width());
        let style = painter.style(part.role);
        let style = match (part.empty, part.marked) {
            (true, _) => style,
            (false, false) => style.add_modifier(Modifier::REVERSED),
            (false, true) => style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
        };
        let after = painter.styled(x + at, y, wide, &format!("{sign}{words}{fill}"), style);
        if part.empty {
            // Without its own background, the name needs the text colour.
            let place = x + at + sign.width() as u16;
            painter.text(place, y, after.saturating_sub(place).min(words.width() as u16), &words, Role::Text);
        }
        at = end;
    }
}

/// A range: the text before the middle, the middle, and the text after it.
pub(in crate::tui) fn range(glyphs: &Glyphs, width: u16, ends: [f64; 3]) -> [String; 3] {
    let place = |part: f64| (part.clamp(0.0, 1.0) * f64::from(width.saturating_sub(1))).round() as usize;
    let [low, mid, high] = ends.map(place);
    let [low_end, line, middle, high_end] = glyphs.range;
    let mut cells = vec![" "; low.min(mid)];
    cells.extend((cells.len()..=high.max(mid)).map(|at| match at {
        at if at == low => low_end,
        at if at == high => high_end,
        _ => line,
    }));
    [cells[..mid].concat(), middle.to_owned(), cells[mid + 1..].concat()]
}

/// A slider at `position` (`None` = no limit, the far end).
pub(in crate::tui) fn slider(painter: &mut Painter<'_>, area: Rect, position: Option<f64>, focus: bool) {
    let width = area.width;
    let place = (position.unwrap_or(1.0).clamp(0.0, 1.0) * f64::from(width.saturating_sub(1))).round() as u16;
    let [before, behind, handle] = painter.glyphs.slider;
    let role = if focus { Role::Focus } else { Role::Muted };
    painter.text(area.x, area.y, width, &before.repeat(place as usize), role);
    painter.text(area.x + place, area.y, width - place, &behind.repeat(usize::from(width - place)), Role::Track);
    let handle_role = if position.is_none() { Role::Muted } else { role };
    painter.text(area.x + place, area.y, 1, handle, handle_role);
}
