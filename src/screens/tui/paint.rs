//! Draws roles, glyphs and texts to a ratatui buffer, and records targets for the mouse. ratatui has neither themes nor
//! click targets, and truncates texts without an ellipsis.

use std::collections::HashMap;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::line;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Padding, Widget};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::app::{App, Target};
use crate::tui::glyphs::Glyphs;
use habitat_reports::theme::{Colour, GlyphSet, Role, Style as ThemeStyle};
pub(in crate::tui) use habitat_reports::wrap::wrap;

/// Click targets in the last frame.
#[derive(Debug, Default)]
pub(in crate::tui) struct Hits {
    areas: Vec<(Rect, Target)>,
}

impl Hits {
    /// The topmost target at a position.
    pub(in crate::tui) fn at(&self, place: Position) -> Option<Target> {
        let (area, target) = self.areas.iter().rev().find(|(area, _)| area.contains(place))?;
        Some(match target {
            // Add the position on the slider.
            Target::Slider(slider, _) => {
                let width = f64::from(area.width.saturating_sub(1).max(1));
                Target::Slider(*slider, f64::from(place.x - area.x) / width)
            }
            target => *target,
        })
    }
}

/// State kept between frames: scroll positions of lists, and click targets.
#[derive(Debug, Default)]
pub(in crate::tui) struct Memory {
    /// Click targets.
    pub(in crate::tui) hits: Hits,
    offsets: HashMap<&'static str, usize>,
}

impl Memory {
    /// First visible row of a list with `len` rows in `height` lines. Keeps `selected` visible and scrolls as little as
    /// possible.
    pub(in crate::tui) fn offset(&mut self, list: &'static str, selected: usize, len: usize, height: usize) -> usize {
        let furthest = len.saturating_sub(height);
        let seen = self.offsets.get(list).copied().unwrap_or(0);
        let offset = seen.min(selected).max((selected + 1).saturating_sub(height)).min(furthest);
        self.offsets.insert(list, offset);
        offset
    }
}

/// A frame being drawn.
pub(in crate::tui) struct Painter<'a> {
    pub(in crate::tui) app: &'a App,
    pub(in crate::tui) buffer: &'a mut Buffer,
    pub(in crate::tui) memory: &'a mut Memory,
    pub(in crate::tui) glyphs: &'static Glyphs,
    pub(in crate::tui) cursor: Option<Position>,
}

impl<'a> Painter<'a> {
    pub(in crate::tui) fn new(app: &'a App, buffer: &'a mut Buffer, memory: &'a mut Memory) -> Self {
        memory.hits.areas.clear();
        let glyphs = Glyphs::of(app.setup.glyphs);
        Self { app, buffer, memory, glyphs, cursor: None }
    }

    /// The style of a role.
    pub(in crate::tui) fn style(&self, role: Role) -> Style {
        style(self.app.styles().get(role))
    }

    /// Makes an area clickable.
    pub(in crate::tui) fn hit(&mut self, area: Rect, target: Target) {
        self.memory.hits.areas.push((area, target));
    }

    /// Draws text in at most `width` cells and returns the column after it.
    pub(in crate::tui) fn text(&mut self, x: u16, y: u16, width: u16, text: &str, role: Role) -> u16 {
        let style = self.style(role);
        self.styled(x, y, width, text, style)
    }

    /// Draws text in at most `width` cells in a given style.
    pub(in crate::tui) fn styled(&mut self, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
        if !self.buffer.area.contains(Position::new(x, y)) {
            return x;
        }
        self.buffer.set_stringn(x, y, cut(text, width as usize), width as usize, style).0
    }

    /// Draws text that ends before column `right`.
    pub(in crate::tui) fn text_right(&mut self, right: u16, y: u16, width: u16, text: &str, role: Role) -> u16 {
        let text = cut(text, width as usize);
        let x = right.saturating_sub(text.width() as u16);
        self.text(x, y, width, &text, role);
        x
    }

    /// Draws pieces of text in a row, in at most `width` cells, and returns the column after them.
    pub(in crate::tui) fn pieces(&mut self, x: u16, y: u16, width: u16, pieces: &[(&str, Role)]) -> u16 {
        let end = x + width;
        pieces.iter().fold(x, |x, (text, role)| if x < end { self.text(x, y, end - x, text, *role) } else { x })
    }

    /// Draws text wrapped to as many lines as needed and available, and returns their number.
    pub(in crate::tui) fn wrapped(&mut self, area: Rect, text: &str, role: Role) -> u16 {
        let lines = wrap(text, area.width as usize);
        let fits = area.height as usize;
        for (row, line) in lines.iter().take(fits).enumerate() {
            // Mark that text is missing.
            let line = if row + 1 == fits && lines.len() > fits { format!("{line} …") } else { line.clone() };
            self.text(area.x, area.y + row as u16, area.width, &line, role);
        }
        lines.len().min(fits) as u16
    }

    /// Draws a frame with a title and a note at its right end, and returns the area inside.
    pub(in crate::tui) fn pane(&mut self, area: Rect, title: &str, right: &str, focus: bool) -> Rect {
        if area.width < 4 || area.height < 2 {
            return Rect::new(area.x, area.y, area.width, 0);
        }
        let [frame, name, note] =
            [if focus { Role::Focus } else { Role::Border }, Role::Title, Role::Muted].map(|role| self.style(role));
        let title = cut(&format!(" {title} "), usize::from(area.width - 4));
        let left = usize::from(area.width - 4).saturating_sub(title.width() + 1);
        // A note that is too long loses whole parts, so that no number is cut.
        let mut right = right;
        while right.width() + 2 > left && !right.is_empty() {
            right = right.rsplit_once(" · ").map_or("", |(kept, _)| kept);
        }
        let top = || Span::styled(self.glyphs.frame.horizontal_top, frame);
        let mut corners = self.glyphs.frame;
        // A frame below another may share its border.
        let is_ascii = corners.top_left == corners.bottom_left;
        if !is_ascii && self.buffer[(area.x, area.y)].symbol() == corners.bottom_left {
            (corners.top_left, corners.top_right) = (line::VERTICAL_RIGHT, line::VERTICAL_LEFT);
        }
        let mut block = Block::bordered()
            .border_set(corners)
            .border_style(frame)
            .padding(Padding::horizontal(1))
            .title_top(Line::from(vec![top(), Span::styled(title, name)]));
        if !right.is_empty() {
            let right = Span::styled(format!(" {right} "), note);
            block = block.title_top(Line::from(vec![right, top()]).right_aligned());
        }
        let inside = block.inner(area);
        block.render(area, self.buffer);
        inside
    }

    /// Replaces characters that must not reach a terminal, and in ASCII mode those that it cannot show.
    pub(in crate::tui) fn finish(&mut self) {
        let ascii = self.app.setup.glyphs == GlyphSet::Ascii;
        // The symbol and the blank after it are two cells.
        let cells = &mut self.buffer.content;
        for at in 1..cells.len() {
            if ascii && cells[at - 1].symbol() == "≤" && cells[at].symbol() == " " {
                cells[at].set_symbol("=");
            }
        }
        for cell in cells {
            if habitat_base::text::is_unsafe(cell.symbol()) {
                cell.set_symbol("\u{fffd}");
            }
            if ascii && !cell.symbol().is_ascii() {
                let replacement = plain(cell.symbol());
                cell.set_symbol(replacement);
            }
        }
    }
}

/// ASCII replacement of a symbol.
fn plain(symbol: &str) -> &'static str {
    match symbol {
        "–" | "—" | "─" | "−" => "-",
        "×" => "x",
        "·" => "|",
        "…" => "~",
        "≤" => "<",
        "→" => ">",
        "µ" => "u",
        "✓" => "*",
        "§" => "S",
        "°" => "o",
        _ => "?",
    }
}

/// Converts the theme's style to ratatui's.
pub(in crate::tui) fn style(style: ThemeStyle) -> Style {
    let colour = |colour: Option<Colour>| {
        colour.map(|colour| match colour {
            Colour::Ansi(number) | Colour::Indexed(number) => Color::Indexed(number),
            Colour::Rgb(r, g, b) => Color::Rgb(r, g, b),
        })
    };
    let mut modifiers = Modifier::empty();
    for (set, modifier) in [
        (style.bold, Modifier::BOLD),
        (style.dim, Modifier::DIM),
        (style.underline, Modifier::UNDERLINED),
        (style.reverse, Modifier::REVERSED),
    ] {
        if set {
            modifiers |= modifier;
        }
    }
    Style { fg: colour(style.fg), bg: colour(style.bg), add_modifier: modifiers, ..Style::default() }
}

/// `text` truncated to `width` cells, with an ellipsis.
pub(in crate::tui) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        kept.push(c);
        used += wide;
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// As many of the parts between ` · ` as fit in `width` cells, so that no number is cut.
pub(in crate::tui) fn fit(text: &str, width: usize) -> String {
    let mut kept = text;
    while kept.width() > width {
        match kept.rsplit_once(" · ") {
            Some((before, _)) => kept = before,
            None => return cut(kept, width),
        }
    }
    kept.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_goes_by_width() {
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 0), "");
        assert_eq!(fit("ab · 12.3 ms · 4 h", 13), "ab · 12.3 ms");
    }

    #[test]
    fn lists_move_as_little_as_possible() {
        let mut memory = Memory::default();
        assert_eq!(memory.offset("a", 0, 20, 5), 0);
        assert_eq!(memory.offset("a", 6, 20, 5), 2);
        assert_eq!(memory.offset("a", 3, 20, 5), 2);
        assert_eq!(memory.offset("a", 19, 20, 5), 15);
        assert_eq!(memory.offset("a", 1, 2, 5), 0);
    }
}
