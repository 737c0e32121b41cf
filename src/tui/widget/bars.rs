//! Bars, ranges and sliders in one line of cells.

use ratatui::layout::Rect;

use crate::app::Target;
use crate::app::slider::Knob;
use crate::settings::theme::Role;
use crate::tui::paint::Canvas;

/// A bar from the left, `part` of the width.
pub(in crate::tui) fn bar(canvas: &mut Canvas<'_>, x: u16, y: u16, width: u16, part: f64, role: Role) {
    let steps = canvas.glyphs.parts.len() + 1;
    let eighths = (part.clamp(0.0, 1.0) * f64::from(width) * steps as f64).round() as usize;
    // What is there at all shows.
    let eighths = if part > 0.0 { eighths.max(1) } else { 0 };
    let mut text = canvas.glyphs.full.repeat(eighths / steps);
    if eighths % steps > 0 {
        text.push_str(canvas.glyphs.parts[eighths % steps - 1]);
    }
    canvas.text(x, y, width, &text, role);
}

/// Parts of a whole side by side, each in its colour; the rest is empty.
pub(in crate::tui) fn stacked(canvas: &mut Canvas<'_>, x: u16, y: u16, width: u16, parts: &[(f64, Role)]) {
    let mut sum = 0.0;
    let mut at = 0u16;
    for (part, role) in parts {
        sum += part.max(0.0);
        let end = ((sum * f64::from(width)).round() as u16).min(width);
        let text = canvas.glyphs.full.repeat(usize::from(end.saturating_sub(at)));
        canvas.text(x + at, y, width - at, &text, *role);
        at = at.max(end);
    }
    let text = canvas.glyphs.empty.repeat(usize::from(width - at));
    canvas.text(x + at, y, width - at, &text, Role::Track);
}

/// A range with its middle.
pub(in crate::tui) fn range(canvas: &mut Canvas<'_>, x: u16, y: u16, width: u16, ends: [f64; 3], role: Role) {
    let place = |part: f64| x + (part.clamp(0.0, 1.0) * f64::from(width.saturating_sub(1))).round() as u16;
    let [low, mid, high] = ends.map(place);
    let [low_end, line, middle, high_end] = canvas.glyphs.range;
    for at in low..=high {
        let glyph = if at == low {
            low_end
        } else if at == high {
            high_end
        } else {
            line
        };
        canvas.text(at, y, 1, glyph, Role::Muted);
    }
    canvas.text(mid, y, 1, middle, role);
}

/// A slider at `position` (`None` = no limit, the far end).
pub(in crate::tui) fn slider(canvas: &mut Canvas<'_>, area: Rect, knob: Knob, position: Option<f64>, focus: bool) {
    let width = area.width;
    let place = (position.unwrap_or(1.0).clamp(0.0, 1.0) * f64::from(width.saturating_sub(1))).round() as u16;
    let [before, behind, handle] = canvas.glyphs.slider;
    let role = if focus { Role::Focus } else { Role::Muted };
    canvas.text(area.x, area.y, width, &before.repeat(place as usize), role);
    canvas.text(area.x + place, area.y, width - place, &behind.repeat(usize::from(width - place)), Role::Track);
    let handle_role = if position.is_none() { Role::Muted } else { role };
    canvas.text(area.x + place, area.y, 1, handle, handle_role);
    canvas.hit(area, Target::Slider(knob, 0.0));
}
