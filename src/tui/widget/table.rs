//! A table in any width: columns by priority, the selected row reversed and marked.

use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::bars;
use crate::app::Target;
use crate::app::list::{Align, Cell, Graphic, Table};
use crate::settings::theme::Role;
use crate::tui::paint::Canvas;

/// Cells between two columns.
const GAP: u16 = 2;
/// Cells of the marker before the rows.
const MARGIN: u16 = 2;

/// Draws the table.
pub(in crate::tui) fn draw(canvas: &mut Canvas<'_>, area: Rect, name: &'static str, table: &Table, focus: bool) {
    if area.height < 2 || area.width < 8 {
        return;
    }
    if table.rows.is_empty() {
        canvas.wrapped(area, &table.empty, Role::Muted);
        return;
    }
    let widths = table.widths(area.width - MARGIN, GAP);
    header(canvas, area, table, &widths);
    let height = usize::from(area.height - 1);
    let offset = canvas.memory.offset(name, table.selected, table.rows.len(), height);
    for (line, (index, cells)) in table.rows.iter().enumerate().skip(offset).take(height).enumerate() {
        let y = area.y + 1 + line as u16;
        let selected = index == table.selected;
        row(canvas, Rect::new(area.x, y, area.width, 1), table, &widths, cells, selected, focus);
        canvas.hit(Rect::new(area.x, y, area.width, 1), Target::Row(index));
    }
}

fn header(canvas: &mut Canvas<'_>, area: Rect, table: &Table, widths: &[u16]) {
    let mut x = area.x + MARGIN;
    for (column, width) in table.columns.iter().zip(widths).filter(|(_, width)| **width > 0) {
        let mut title = column.title.clone();
        if let (Some((sorted, largest)), Some(own)) = (table.sorted, column.sort)
            && sorted == own
        {
            title.push_str(canvas.glyphs.order[usize::from(largest)]);
        }
        let role = if title.is_empty() { Role::Text } else { Role::Header };
        match column.align {
            Align::Left => canvas.text(x, area.y, *width, &title, role),
            Align::Right => canvas.text_right(x + width, area.y, *width, &title, role),
        };
        if let Some(own) = column.sort {
            canvas.hit(Rect::new(x, area.y, *width, 1), Target::Header(own));
        }
        x += width + GAP;
    }
}

fn row(
    canvas: &mut Canvas<'_>,
    area: Rect,
    table: &Table,
    widths: &[u16],
    cells: &[Cell],
    selected: bool,
    focus: bool,
) {
    let reversed = selected && focus;
    let base = canvas.style(Role::Text);
    let line = if reversed { base.patch(canvas.style(Role::Selection)) } else { base };
    if reversed {
        canvas.buffer.set_style(area, line);
    }
    if selected {
        canvas.styled(area.x, area.y, 1, canvas.glyphs.marker, line);
    }
    let mut x = area.x + MARGIN;
    for ((cell, column), width) in cells.iter().zip(&table.columns).zip(widths).filter(|(_, width)| **width > 0) {
        match cell.graphic {
            Some(graphic) => {
                // Reversed, a bar would be drawn in the ground's colour.
                let place = Rect::new(x, area.y, *width, 1);
                canvas.buffer.set_style(place, Style::reset().patch(base));
                draw_graphic(canvas, x, area.y, *width, graphic, cell.role);
                if let (true, Some(ink)) = (reversed, base.fg) {
                    let dark = matches!(graphic, Graphic::Range { .. }).then_some(base.bg).flatten();
                    let on_ink = Style { fg: dark, bg: Some(ink), ..Style::default() };
                    canvas.buffer.set_style(place, on_ink);
                }
            }
            None => {
                // On the reversed row one colour reads best.
                let style = if reversed { line } else { canvas.style(cell.role) };
                let x = match column.align {
                    Align::Left => x,
                    Align::Right => x + width.saturating_sub(cell.text.width() as u16),
                };
                canvas.styled(x, area.y, *width, &cell.text, style);
            }
        }
        x += width + GAP;
    }
}

fn draw_graphic(canvas: &mut Canvas<'_>, x: u16, y: u16, width: u16, graphic: Graphic, role: Role) {
    match graphic {
        Graphic::Bar(part) => bars::bar(canvas, x, y, width, part, role),
        Graphic::Range { low, mid, high } => bars::range(canvas, x, y, width, [low, mid, high], role),
    }
}
