//! A table that fits any width: columns by priority, the selected row reversed and marked. ratatui's own table draws it
//! but cannot choose columns and widths.

use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table as Drawn, Widget};
use unicode_width::UnicodeWidthStr;

use super::bars;
use crate::app::Target;
use crate::tui::paint::{Painter, cut};
use habitat_reports::Table;
use habitat_reports::table::{Cell, Column, Graphic};
use habitat_reports::theme::{GlyphSet, Role};
use habitat_reports::timeline::Mark;

/// Cells between columns.
const GAP: u16 = 2;
/// Cells of the marker before the rows.
const MARGIN: u16 = 2;

/// Draws the table.
pub(in crate::tui) fn draw(painter: &mut Painter<'_>, area: Rect, name: &'static str, table: &Table, focus: bool) {
    if area.height < 2 || area.width < 8 {
        return;
    }
    if table.is_empty() {
        painter.wrapped(area, &table.empty, Role::Muted);
        return;
    }
    let widths = table.widths(area.width - MARGIN, GAP);
    let columns: Vec<(usize, u16)> = widths.into_iter().enumerate().filter(|(_, width)| *width > 0).collect();
    let height = usize::from(area.height - 1);
    let offset = painter.memory.offset(name, table.selected, table.len(), height);
    let place = Rect { x: area.x + MARGIN, width: area.width - MARGIN, ..area };
    let rows: Vec<Row<'_>> = (offset..table.len().min(offset + height))
        .filter_map(|index| {
            let cells = table.row(index)?;
            let y = area.y + 1 + (index - offset) as u16;
            let selected = index == table.selected;
            let base = painter.style(Role::Text);
            let chosen = (selected && focus).then(|| base.patch(painter.style(Role::Selection)));
            if selected {
                let style = chosen.unwrap_or(base);
                painter.buffer.set_style(Rect::new(area.x, y, area.width, 1), style);
                painter.styled(area.x, y, 1, painter.glyphs.marker, style);
            }
            painter.hit(Rect::new(area.x, y, area.width, 1), Target::Row(index));
            let line = |&(at, width): &(usize, u16)| line(painter, &table.columns[at], &cells[at], width, chosen);
            Some(Row::new(columns.iter().map(line).collect::<Vec<_>>()))
        })
        .collect();
    let titles = header(painter, place, table, &columns);
    let constraints = columns.iter().map(|(_, width)| Constraint::Length(*width));
    Drawn::new(rows, constraints).header(titles).column_spacing(GAP).render(place, painter.buffer);
}

fn header<'a>(painter: &mut Painter<'_>, area: Rect, table: &Table, columns: &[(usize, u16)]) -> Row<'a> {
    let mut x = area.x;
    Row::new(
        columns
            .iter()
            .map(|&(at, width)| {
                let column = &table.columns[at];
                let mut title = column.heading.to_string();
                if let Some(own) = column.sort {
                    painter.hit(Rect::new(x, area.y, width, 1), Target::Header(own));
                    if let Some((_, largest)) = table.sorted.filter(|(sorted, _)| *sorted == own) {
                        title.push_str(painter.glyphs.order[usize::from(largest)]);
                    }
                }
                x += width + GAP;
                let role = if title.is_empty() { Role::Text } else { Role::Header };
                aligned(column, Line::from(Span::styled(cut(&title, width.into()), painter.style(role))))
            })
            .collect::<Vec<_>>(),
    )
}

fn aligned<'a>(column: &Column, line: Line<'a>) -> Line<'a> {
    if column.number { line.right_aligned() } else { line }
}

/// A cell; `chosen` is the style of the reversed row.
fn line(painter: &Painter<'_>, column: &Column, cell: &Cell, width: u16, chosen: Option<Style>) -> Line<'static> {
    let style = painter.style(cell.role);
    let Some(graphic) = cell.graphic else {
        // A reversed row is most readable in a single colour.
        return aligned(column, Line::from(Span::styled(cut(&cell.text, width.into()), chosen.unwrap_or(style))));
    };
    // Reversed, a drawing would have the background's colour, so it keeps its own background.
    let base = painter.style(Role::Text);
    let on_ink = |style: Style, is_range: bool| {
        let Some(ink) = base.fg.filter(|_| chosen.is_some()) else { return style };
        let dark = if is_range { base.bg } else { None };
        Style { fg: dark.or(style.fg), bg: Some(ink), ..style }
    };
    let bar = |text: String| {
        let text = format!("{text:<wide$}", wide = usize::from(width));
        Line::styled(text, Style::reset().patch(base).patch(on_ink(style, false)))
    };
    match graphic {
        Graphic::Bar(part) => bar(bars::bar(painter.glyphs, width, part)),
        Graphic::Between(ends) => bar(bars::between(painter.glyphs, width, ends)),
        Graphic::Lane(lane) => {
            let ascii = painter.app.setup.glyphs == GlyphSet::Ascii;
            let ground = Style::reset().patch(base);
            let cell = |mark: Mark| {
                let (role, is_line) = match mark {
                    Mark::Nothing => (Role::Text, true),
                    Mark::Setup | Mark::Waiting => (Role::Other, false),
                    Mark::Training => (Role::Busy, false),
                    Mark::Repeated => (Role::Warning, false),
                    Mark::Earliest | Mark::Late | Mark::Latest => (Role::Muted, true),
                    Mark::Deadline => (Role::Error, true),
                };
                let style = on_ink(painter.style(role), is_line);
                Span::styled(mark.character(ascii).to_string(), ground.patch(style))
            };
            lane.cells(width).into_iter().map(cell).collect()
        }
        Graphic::Range(ends) => {
            let [before, middle, behind] = bars::range(painter.glyphs, width, ends);
            let muted = on_ink(painter.style(Role::Muted), true);
            let fill = " ".repeat(usize::from(width).saturating_sub(before.width() + 1 + behind.width()));
            let spans = [(before, muted), (middle, on_ink(style, true)), (behind + &fill, muted)];
            let ground = Style::reset().patch(base);
            Line::from_iter(spans.map(|(text, style)| Span::styled(text, ground.patch(style))))
        }
    }
}
