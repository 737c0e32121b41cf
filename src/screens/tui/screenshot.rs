//! Image of the screens without a terminal: cells as SVG.

use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

use super::Launch;
use super::paint::Memory;
use super::view;
use crate::app::{App, Effect, Msg};
use crate::keymap::Key;
use habitat_reports::theme::{Colour, Role};

/// Width and height of a cell, and the font size.
const CELL: (f64, f64) = (8.4, 18.0);
const LETTERS: f64 = 14.0;
/// Margin around the cells.
const MARGIN: f64 = 10.0;

/// The app and its buffer after `keys`, with all computations finished.
pub fn render(launch: &Launch, keys: &[Key], size: (u16, u16)) -> (App, Buffer) {
    render_after(launch, keys.iter().map(|key| Msg::Key(*key)), size)
}

/// The app and its buffer after `messages`, with all computations finished.
pub fn render_after(launch: &Launch, messages: impl IntoIterator<Item = Msg>, size: (u16, u16)) -> (App, Buffer) {
    let mut app = App::new(launch.setup.clone());
    settle(&mut app, launch, Msg::Resize(size.0, size.1));
    settle(&mut app, launch, Msg::Start);
    for message in messages {
        settle(&mut app, launch, message);
    }
    let buffer = draw(&app, size);
    (app, buffer)
}

/// Draws the current state.
pub fn draw(app: &App, size: (u16, u16)) -> Buffer {
    let area = Rect::new(0, 0, size.0, size.1);
    let mut buffer = Buffer::empty(area);
    view::draw(app, area, &mut buffer, &mut Memory::default());
    buffer
}

/// Handles a message and everything that follows from it.
fn settle(app: &mut App, launch: &Launch, msg: Msg) {
    let mut waiting = vec![msg];
    while let Some(msg) = waiting.pop() {
        // An image writes no files.
        let computed = |effect: &Effect| !matches!(effect, Effect::Save { .. } | Effect::SaveJobs { .. });
        let effects = app.update(msg).into_iter().filter(computed);
        waiting.extend(effects.filter_map(|effect| launch.engine.answer(&effect)));
    }
}

/// SVG of the screens after `keys`, `size` in columns and rows.
pub fn screenshot(launch: &Launch, keys: &[Key], size: (u16, u16)) -> String {
    let (app, buffer) = render(launch, keys, size);
    let title = format!("habitat-tui, {} screen, {} by {} cells", app.screen.name(), size.0, size.1);
    svg(&app, &buffer, &title)
}

fn svg(app: &App, buffer: &Buffer, title: &str) -> String {
    let ground = colour(app.styles().get(Role::Text).bg).unwrap_or_else(|| "#14171c".to_owned());
    let ink = colour(app.styles().get(Role::Text).fg).unwrap_or_else(|| "#d7dce2".to_owned());
    let (columns, rows) = (f64::from(buffer.area.width), f64::from(buffer.area.height));
    let (width, height) = (columns * CELL.0 + 2.0 * MARGIN, rows * CELL.1 + 2.0 * MARGIN);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.1} {height:.1}\" role=\"img\" aria-labelledby=\"title\">\n\
         <title id=\"title\">{}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{ground}\"/>\n\
         <g font-family=\"'DejaVu Sans Mono', 'JetBrains Mono', Menlo, Consolas, monospace\" font-size=\"{LETTERS}\" xml:space=\"preserve\">\n",
        escaped(title)
    );
    for y in 0..buffer.area.height {
        row(&mut text, buffer, y, &ground, &ink);
    }
    text.push_str("</g>\n</svg>\n");
    text
}

/// Adjacent cells in the same style, drawn together.
struct Run {
    start: u16,
    cells: u16,
    text: String,
    look: Look,
}

#[derive(Clone, PartialEq)]
struct Look {
    fg: String,
    bg: String,
    bold: bool,
    underline: bool,
    dim: bool,
}

fn row(text: &mut String, buffer: &Buffer, y: u16, ground: &str, ink: &str) {
    let mut runs: Vec<Run> = Vec::new();
    let mut x = 0;
    while x < buffer.area.width {
        let cell = &buffer[(x, y)];
        let wide = (cell.symbol().width() as u16).max(1);
        let look = look_of(cell, ground, ink);
        // Box and block symbols are drawn cell by cell; letters of the same style form one run.
        let drawn = cell.symbol().chars().any(|c| !c.is_alphanumeric() && !c.is_ascii());
        match runs.last_mut() {
            Some(run) if run.look == look && !drawn && run.start + run.cells == x && !run_is_drawn(run) => {
                run.cells += wide;
                run.text.push_str(cell.symbol());
            }
            _ => runs.push(Run { start: x, cells: wide, text: cell.symbol().to_owned(), look }),
        }
        x += wide;
    }
    let top = MARGIN + f64::from(y) * CELL.1;
    for run in &runs {
        let (left, wide) = (MARGIN + f64::from(run.start) * CELL.0, f64::from(run.cells) * CELL.0);
        if run.look.bg != ground {
            let _ = writeln!(
                text,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{:.1}\" fill=\"{}\" shape-rendering=\"crispEdges\"/>",
                CELL.1, run.look.bg
            );
        }
    }
    let mut drawn: Vec<Bar> = Vec::new();
    for run in &runs {
        draw_run(text, run, top, &mut drawn);
    }
    for Bar { place: (x, y, w, h), fg, opacity } in joined(drawn) {
        let _ = writeln!(
            text,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" fill=\"{fg}\"{opacity}/>"
        );
    }
}

/// A rectangle in one colour: x, y, width and height.
#[derive(Clone)]
struct Bar {
    place: (f64, f64, f64, f64),
    fg: String,
    opacity: &'static str,
}

/// Joins rectangles that continue from cell to cell, such as lines of frames.
fn joined(bars: Vec<Bar>) -> Vec<Bar> {
    let mut joined: Vec<Bar> = Vec::with_capacity(bars.len());
    for bar in bars {
        let (x, y, w, h) = bar.place;
        let goes_on = |before: &&mut Bar| {
            let (left, top, wide, high) = before.place;
            (top, high) == (y, h)
                && (left + wide - x).abs() < 0.3
                && (&before.fg, before.opacity) == (&bar.fg, bar.opacity)
        };
        // A corner adds a second, vertical line after the continued one.
        match joined.iter_mut().rev().take(2).find(goes_on) {
            Some(before) => before.place.2 = x + w - before.place.0,
            None => joined.push(bar),
        }
    }
    joined
}

fn run_is_drawn(run: &Run) -> bool {
    run.text.chars().any(|c| !c.is_alphanumeric() && !c.is_ascii())
}

fn draw_run(text: &mut String, run: &Run, top: f64, drawn: &mut Vec<Bar>) {
    let (left, wide) = (MARGIN + f64::from(run.start) * CELL.0, f64::from(run.cells) * CELL.0);
    let fg = &run.look.fg;
    let opacity = if run.look.dim { " opacity=\"0.6\"" } else { "" };
    if let Some(shape) = shape(&run.text, left, top) {
        drawn.extend(shape.into_iter().map(|place| Bar { place, fg: fg.clone(), opacity }));
        return;
    }
    let trimmed = run.text.trim_end();
    if run.look.underline {
        let y = top + CELL.1 - 2.5;
        let _ = writeln!(
            text,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"0.8\" fill=\"{fg}\" opacity=\"0.5\"/>"
        );
    }
    if trimmed.is_empty() {
        return;
    }
    let spaces = trimmed.len() - trimmed.trim_start().len();
    let x = left + spaces as f64 * CELL.0;
    let shown = trimmed.trim_start();
    let length = shown.width() as f64 * CELL.0;
    let weight = if run.look.bold { " font-weight=\"bold\"" } else { "" };
    let _ = writeln!(
        text,
        "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{fg}\"{weight}{opacity}>{}</text>",
        top + 13.4,
        // Browsers collapse spaces, also under xml:space="preserve".
        escaped(&shown.replace("  ", "\u{a0}\u{a0}"))
    );
}

/// Rectangles for symbols that must touch their neighbours, as x, y, width, height. Drawn instead of text so that
/// positions do not depend on the font.
fn shape(symbol: &str, left: f64, top: f64) -> Option<Vec<(f64, f64, f64, f64)>> {
    let mut chars = symbol.chars();
    let (c, None) = (chars.next()?, chars.next()) else { return None };
    let (wide, high) = CELL;
    let (middle_x, middle_y) = (left + wide / 2.0, top + high / 2.0);
    let line = 1.1;
    let right = (middle_x - line / 2.0, middle_y - line / 2.0, wide / 2.0 + line / 2.0, line);
    let leftward = (left, middle_y - line / 2.0, wide / 2.0 + line / 2.0, line);
    let down = (middle_x - line / 2.0, middle_y - line / 2.0, line, high / 2.0 + line / 2.0);
    let up = (middle_x - line / 2.0, top, line, high / 2.0 + line / 2.0);
    let bar_top = top + 3.0;
    let bar_high = high - 6.0;
    let eighths = |n: f64| vec![(left, bar_top, wide * n / 8.0 + if n >= 8.0 { 0.2 } else { 0.0 }, bar_high)];
    Some(match c {
        '─' => vec![(left, middle_y - line / 2.0, wide, line)],
        '━' => vec![(left, middle_y - 1.2, wide, 2.4)],
        '│' => vec![(middle_x - line / 2.0, top, line, high)],
        '╭' | '┌' => vec![right, down],
        '╮' | '┐' => vec![leftward, down],
        '╰' | '└' => vec![right, up],
        '╯' | '┘' => vec![leftward, up],
        '├' => vec![(middle_x - line / 2.0, middle_y - 4.0, line, 8.0), right],
        '┤' => vec![(middle_x - line / 2.0, middle_y - 4.0, line, 8.0), leftward],
        '█' => eighths(8.0),
        '▉' => eighths(7.0),
        '▊' => eighths(6.0),
        '▋' => eighths(5.0),
        '▌' => eighths(4.0),
        '▍' => eighths(3.0),
        '▎' => eighths(2.0),
        '▏' => eighths(1.0),
        '┊' => vec![(middle_x - 0.5, top + 2.0, 1.0, 5.0), (middle_x - 0.5, top + 11.0, 1.0, 5.0)],
        '┈' => vec![(left + 1.0, middle_y - 0.5, 2.4, 1.0), (left + 5.2, middle_y - 0.5, 2.4, 1.0)],
        '░' => vec![(left, middle_y - 0.6, wide, 1.2)],
        '\u{2801}'..='\u{28ff}' => braille(c as u32 - 0x2800, left, top),
        _ => return None,
    })
}

fn braille(bits: u32, left: f64, top: f64) -> Vec<(f64, f64, f64, f64)> {
    const BITS: [(u32, f64, f64); 8] = [
        (0x01, 0.0, 0.0),
        (0x02, 0.0, 1.0),
        (0x04, 0.0, 2.0),
        (0x08, 1.0, 0.0),
        (0x10, 1.0, 1.0),
        (0x20, 1.0, 2.0),
        (0x40, 0.0, 3.0),
        (0x80, 1.0, 3.0),
    ];
    let (step_x, step_y, dot) = (CELL.0 / 2.0, CELL.1 / 4.0, 1.6);
    BITS.iter()
        .filter(|(bit, ..)| bits & bit != 0)
        .map(|(_, x, y)| (left + (x + 0.5) * step_x - dot / 2.0, top + (y + 0.5) * step_y - dot / 2.0, dot, dot))
        .collect()
}

fn look_of(cell: &Cell, ground: &str, ink: &str) -> Look {
    let fg = ratatui_colour(cell.fg).unwrap_or_else(|| ink.to_owned());
    let bg = ratatui_colour(cell.bg).unwrap_or_else(|| ground.to_owned());
    let reversed = cell.modifier.contains(Modifier::REVERSED);
    let (fg, bg) = if reversed { (bg, fg) } else { (fg, bg) };
    Look {
        fg,
        bg,
        bold: cell.modifier.contains(Modifier::BOLD),
        underline: cell.modifier.contains(Modifier::UNDERLINED),
        dim: cell.modifier.contains(Modifier::DIM),
    }
}

fn colour(colour: Option<Colour>) -> Option<String> {
    Some(match colour? {
        Colour::Rgb(r, g, b) => hex(r, g, b),
        Colour::Ansi(number) | Colour::Indexed(number) => indexed(number),
    })
}

fn ratatui_colour(colour: Color) -> Option<String> {
    match colour {
        Color::Rgb(r, g, b) => Some(hex(r, g, b)),
        Color::Indexed(number) => Some(indexed(number)),
        _ => None,
    }
}

fn hex(r: u8, g: u8, b: u8) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Colours of xterm's palette.
fn indexed(number: u8) -> String {
    const ANSI: [&str; 16] = [
        "#000000", "#cd3131", "#0dbc79", "#e5e510", "#2472c8", "#bc3fbc", "#11a8cd", "#e5e5e5", "#666666", "#f14c4c",
        "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff",
    ];
    match number {
        0..=15 => ANSI[usize::from(number)].to_owned(),
        16..=231 => {
            let step = |value: u8| if value == 0 { 0 } else { 55 + 40 * value };
            let cube = number - 16;
            hex(step(cube / 36), step(cube / 6 % 6), step(cube % 6))
        }
        _ => {
            let grey = 8 + 10 * (number - 232);
            hex(grey, grey, grey)
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_reports::theme::{ColourLevel, Theme};

    /// Relative luminance, as WCAG 2 defines it.
    fn luminance(hex: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn a_line_is_one_rectangle() {
        let bar = |place, fg: &str| Bar { place, fg: fg.to_owned(), opacity: "" };
        let corner = [bar((4.0, 9.0, 4.4, 1.0), "a"), bar((4.0, 9.0, 1.0, 9.0), "a")];
        let line = [bar((8.4, 9.0, 8.4, 1.0), "a"), bar((16.8, 9.0, 8.4, 1.0), "a"), bar((25.2, 9.0, 8.4, 1.0), "b")];
        let places: Vec<_> = joined([&corner[..], &line[..]].concat()).into_iter().map(|bar| bar.place.2).collect();
        assert_eq!(places.len(), 3);
        assert!((places[0] - 21.2).abs() < 1e-9 && places[1..] == [1.0, 8.4], "{places:?}");
    }

    #[test]
    fn what_stands_on_a_ground_of_its_own_can_be_read_in_every_theme_and_number_of_colours() {
        for theme in Theme::shipped() {
            for level in [ColourLevel::Ansi16, ColourLevel::Ansi256, ColourLevel::True] {
                for role in Role::ALL {
                    let style = theme.styles(level).get(role);
                    let Some(ground) = colour(style.bg) else { continue };
                    let place = format!("{} {role:?} {level:?}", theme.name);
                    // The terminal's own foreground can be any colour.
                    let ink = colour(style.fg).unwrap_or_else(|| panic!("{place}: a ground without an ink"));
                    let (a, b) = (luminance(&ink), luminance(&ground));
                    let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                    assert!(contrast >= 4.5, "{place}: {ink} on {ground} is {contrast:.1}");
                }
            }
        }
    }
}
