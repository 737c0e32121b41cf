//! The picture: one file a screen, drawn from `&App` alone.

mod chrome;
mod dialog;
mod job;
mod overview;
mod plan;
mod predict;
mod profile;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::app::{App, SMALLEST, Screen};
use crate::settings::theme::Role;
use crate::tui::paint::{Canvas, Memory};

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Density {
    /// Answers only, without frames.
    Minimal,
    /// 80×24.
    Compact,
    /// Room for panes side by side.
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

/// Draws everything; where the cursor belongs, if it is to be seen.
pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer, memory: &mut Memory) -> Option<Position> {
    let mut canvas = Canvas::new(app, buffer, memory);
    let ground = canvas.style(Role::Text);
    canvas.buffer.set_style(area, ground);
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        chrome::too_small(&mut canvas, area);
        canvas.finish();
        return None;
    }
    let body = chrome::draw(&mut canvas, area);
    match app.screen {
        Screen::Job => job::draw(&mut canvas, body),
        _ if app.is_awaiting() => job::awaited(&mut canvas, body),
        Screen::Overview => overview::draw(&mut canvas, body),
        Screen::Profile => profile::draw(&mut canvas, body),
        Screen::Predict => predict::draw(&mut canvas, body),
        Screen::Plan => plan::draw(&mut canvas, body),
    }
    dialog::draw(&mut canvas, area);
    canvas.finish();
    canvas.cursor
}

/// Lines that one warning takes at most.
const WARNING_LINES: u16 = 4;

/// Draws warnings at the top, in half of the area at most; what is left of it.
fn warned(canvas: &mut Canvas<'_>, area: Rect, warnings: &[String]) -> Rect {
    let mut used = 0;
    for warning in warnings {
        let height = WARNING_LINES.min((area.height / 2).saturating_sub(used));
        used += canvas.wrapped(Rect { y: area.y + used, height, ..area }, warning, Role::Warning);
    }
    Rect { y: area.y + used, height: area.height - used, ..area }
}

/// Lines of a label and a text, the text wrapped, from the `skip`-th line on; the number
/// of lines there are.
fn labelled(canvas: &mut Canvas<'_>, area: Rect, lines: &[(String, String)], skip: usize) -> usize {
    use unicode_width::UnicodeWidthStr;
    let label_width = lines.iter().map(|(label, _)| label.width()).max().unwrap_or(0).min(28) as u16;
    let left = if label_width > 0 { label_width + 2 } else { 0 };
    let width = area.width.saturating_sub(left);
    let mut row = 0usize;
    for (label, text) in lines {
        for (index, line) in crate::tui::paint::wrap(text, width as usize).iter().enumerate() {
            let shown = row.checked_sub(skip).filter(|at| *at < usize::from(area.height));
            if let Some(at) = shown {
                let y = area.y + at as u16;
                if index == 0 {
                    canvas.text(area.x, y, label_width, label, Role::Muted);
                }
                canvas.text(area.x + left, y, width, line, Role::Text);
            }
            row += 1;
        }
    }
    row
}
