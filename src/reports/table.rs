//! Tables shared by screens and reports: drawn, as text, as Markdown, as CSV, or copied.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::timeline::{self, Lane};
use super::wrap::wrap;
use crate::theme::Role;

/// A column: heading for people, key (with the unit) for CSV, and behaviour on a narrow screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Heading; empty hides the column in text and Markdown.
    pub heading: Cow<'static, str>,
    /// Heading in CSV; empty hides the column there.
    pub key: &'static str,
    /// Whether the column has numbers, which are right-aligned.
    pub number: bool,
    /// Priority of dropping if the table is too wide: highest first, 0 = never.
    pub priority: u8,
    /// Narrowest width to which text may be cut; `None` = never cut.
    pub shrink_to: Option<u16>,
    /// Whether text that does not fit has a line of its own under the row, in full; on screens it is cut.
    pub below: bool,
    /// Width of a drawing; `None` = text.
    pub graphic: Option<u16>,
    /// Index of the sortable column that a click on the heading selects.
    pub sort: Option<usize>,
}

impl Column {
    /// A column of text for a report.
    pub const fn text(heading: &'static str, key: &'static str) -> Self {
        let heading = Cow::Borrowed(heading);
        Self { heading, key, number: false, priority: 0, shrink_to: None, below: false, graphic: None, sort: None }
    }

    /// A column of numbers for a report.
    pub const fn number(heading: &'static str, key: &'static str) -> Self {
        let heading = Cow::Borrowed(heading);
        Self { heading, key, number: true, priority: 0, shrink_to: None, below: false, graphic: None, sort: None }
    }

    /// A column of text on a screen, which may be cut to `shrink_to` cells.
    pub fn words(heading: impl Into<Cow<'static, str>>, shrink_to: u16, priority: u8) -> Self {
        Self { heading: heading.into(), priority, shrink_to: Some(shrink_to), ..Self::text("", "") }
    }

    /// A column of numbers on a screen, which is never cut.
    pub fn figures(heading: impl Into<Cow<'static, str>>, priority: u8) -> Self {
        Self { heading: heading.into(), priority, ..Self::number("", "") }
    }

    /// A column of drawings with at least `width` cells.
    pub fn graphic(heading: &'static str, width: u16, priority: u8) -> Self {
        Self { priority, graphic: Some(width), ..Self::text(heading, "") }
    }

    /// Allows the column to be dropped from narrow tables, highest priority first.
    #[must_use]
    pub(crate) const fn dropped(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Allows the column to be cut to `cells` in narrow tables.
    #[must_use]
    pub(crate) const fn cut_to(mut self, cells: u16) -> Self {
        self.shrink_to = Some(cells);
        self
    }

    /// Puts text that does not fit on a line of its own, as for ids, which are of use only in full.
    #[must_use]
    pub(crate) const fn or_below(mut self) -> Self {
        self.below = true;
        self.cut_to(0)
    }

    /// Makes a click on the heading sort by the `index`-th sortable column.
    #[must_use]
    pub fn sorts(mut self, index: usize) -> Self {
        self.sort = Some(index);
        self
    }
}

/// A drawing in a cell. Positions are fractions of the cell's width; a bar over time has hours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Graphic {
    /// A bar from the left.
    Bar(f64),
    /// A bar between two positions.
    Between([f64; 2]),
    /// Low end, best single value and high end of a range.
    Range([f64; 3]),
    /// A bar over time.
    Lane(Lane),
}

/// A cell: rounded for people, full precision for CSV.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Text, which is also copied.
    pub text: String,
    /// Value in CSV, if different from the text.
    value: Option<String>,
    /// Meaning, for the style.
    pub role: Role,
    /// Drawing shown on screen instead of the text.
    pub graphic: Option<Graphic>,
}

impl Cell {
    /// A cell with the same text in every format.
    pub fn text(text: impl fmt::Display) -> Self {
        Self { text: text.to_string(), value: None, role: Role::Text, graphic: None }
    }

    /// A cell with rounded text for people and a full value for CSV.
    pub fn new(text: impl fmt::Display, value: impl fmt::Display) -> Self {
        Self { value: Some(value.to_string()), ..Self::text(text) }
    }

    /// A cell with a role.
    pub fn styled(role: Role, text: impl fmt::Display) -> Self {
        Self { role, ..Self::text(text) }
    }

    /// Sets the role.
    #[must_use]
    pub(crate) fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// A drawing, which is not copied.
    pub fn draw(role: Role, graphic: Graphic) -> Self {
        Self { graphic: Some(graphic), ..Self::styled(role, "") }
    }

    /// A bar over time; in text, drawn with characters.
    pub(crate) fn lane(lane: Lane) -> Self {
        Self { graphic: Some(Graphic::Lane(lane)), ..Self::text(lane.text(timeline::WIDTH)) }
    }

    fn value(&self) -> &str {
        self.value.as_deref().unwrap_or(&self.text)
    }

    /// A cell for an unknown value.
    pub fn unknown() -> Self {
        Self::new("–", "")
    }

    /// `f` of the value, or a cell for an unknown value.
    pub fn maybe<T>(value: Option<T>, f: impl FnOnce(T) -> Self) -> Self {
        value.map_or_else(Self::unknown, f)
    }
}

/// Maximum width of a drawing, unless four times its minimum is more; longer bars add no information.
const MOST_GRAPHIC: u16 = 36;

/// Columns and rows of cells.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows, with one cell per column.
    pub rows: Vec<Vec<Cell>>,
    /// Number of rows before and after these that are not built, because a long list shows only some rows.
    pub left_out: [usize; 2],
    /// Index of the selected row on a screen.
    pub selected: usize,
    /// Index of the sortable column in use, and whether the largest values come first.
    pub sorted: Option<(usize, bool)>,
    /// Text for a screen without rows: the reason, and what to do about it.
    pub empty: String,
}

impl Table {
    /// An empty table.
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), ..Self::default() }
    }

    /// Adds a row, with one cell per column.
    pub fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for every column");
        self.rows.push(row);
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of rows, including those not built.
    pub fn len(&self) -> usize {
        self.left_out[0] + self.rows.len() + self.left_out[1]
    }

    /// The row at an index among all rows.
    pub fn row(&self, at: usize) -> Option<&[Cell]> {
        Some(self.rows.get(at.checked_sub(self.left_out[0])?)?)
    }

    /// The table as tab-separated text without drawings.
    pub fn to_tsv(&self) -> String {
        let mut text = self.tsv_line(self.columns.iter().map(|column| &*column.heading));
        for row in &self.rows {
            text.push_str(&self.tsv_line(row.iter().map(|cell| cell.text.as_str())));
        }
        text
    }

    /// The selected row as tab-separated text.
    pub fn row_tsv(&self) -> Option<String> {
        let row = self.row(self.selected)?;
        Some(self.tsv_line(row.iter().map(|cell| cell.text.as_str())).trim_end().to_owned())
    }

    fn tsv_line<'a>(&self, texts: impl Iterator<Item = &'a str>) -> String {
        let texts = texts.zip(&self.columns).filter(|(_, column)| column.graphic.is_none());
        texts.map(|(text, _)| text.trim()).collect::<Vec<_>>().join("\t") + "\n"
    }

    /// Width of each column in `width` cells with `gap` between columns; 0 = dropped. Drops columns by priority and
    /// cuts text only.
    pub fn widths(&self, width: u16, gap: u16) -> Vec<u16> {
        let natural: Vec<u16> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                if let Some(least) = column.graphic {
                    return least.max(column.heading.width() as u16);
                }
                let cells = self.rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.text.width());
                // The sort marker takes a cell next to the heading.
                let mark = usize::from(column.sort.is_some());
                cells.max().unwrap_or(0).max(column.heading.width() + mark) as u16
            })
            .collect();
        let least =
            |index: usize| self.columns[index].shrink_to.map_or(natural[index], |least| least.min(natural[index]));
        // The column that the rows are sorted by stays.
        let is_sorted =
            |index: usize| self.columns[index].sort.is_some_and(|own| self.sorted.is_some_and(|(by, _)| by == own));
        let priority = |index: usize| if is_sorted(index) { 0 } else { self.columns[index].priority };
        let mut kept: Vec<bool> = vec![true; self.columns.len()];
        let total = |kept: &[bool], size: &dyn Fn(usize) -> u16| -> u16 {
            let count = kept.iter().filter(|kept| **kept).count() as u16;
            let cells: u16 = (0..kept.len()).filter(|index| kept[*index]).map(size).fold(0, u16::saturating_add);
            cells.saturating_add(gap * count.saturating_sub(1))
        };
        // An empty column makes room before any text is cut.
        let is_empty = |index: usize| {
            let cell = |row: &Vec<Cell>| {
                row.get(index).is_none_or(|cell| cell.text.trim().is_empty() && cell.graphic.is_none())
            };
            priority(index) > 0 && self.rows.iter().all(cell)
        };
        if total(&kept, &|index| natural[index]) > width {
            kept = (0..kept.len()).map(|index| !is_empty(index)).collect();
        }
        while total(&kept, &least) > width {
            let Some(worst) = (0..kept.len())
                .filter(|index| kept[*index] && priority(*index) > 0)
                .max_by_key(|index| (priority(*index), *index))
            else {
                break;
            };
            kept[worst] = false;
        }
        let mut widths: Vec<u16> = (0..kept.len()).map(|index| if kept[index] { least(index) } else { 0 }).collect();
        let mut spare = width.saturating_sub(total(&kept, &least));
        // Widen text first, by importance; then drawings share the remaining cells.
        let mut order: Vec<usize> = (0..kept.len()).filter(|index| kept[*index]).collect();
        order.sort_by_key(|index| priority(*index));
        for index in order.iter().copied().filter(|index| self.columns[*index].graphic.is_none()) {
            let more = natural[index].saturating_sub(widths[index]).min(spare);
            widths[index] += more;
            spare -= more;
        }
        let drawings: Vec<usize> = order.into_iter().filter(|index| self.columns[*index].graphic.is_some()).collect();
        for (done, index) in drawings.iter().enumerate() {
            let most = MOST_GRAPHIC.max(4 * self.columns[*index].graphic.unwrap_or(0));
            let more = (spare / (drawings.len() - done) as u16).min(most.saturating_sub(widths[*index]));
            widths[*index] += more;
            spare -= more;
        }
        widths
    }

    fn shown(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| !column.heading.is_empty())
    }

    /// Writes aligned columns, two spaces apart.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |index: usize, heading: &str| {
            self.rows.iter().map(|row| row[index].text.width()).chain([heading.width()]).max().unwrap_or(0)
        };
        let widths: Vec<(usize, usize, bool)> =
            self.shown().map(|(index, column)| (index, width(index, &column.heading), column.number)).collect();
        let line = |texts: Vec<&str>| {
            let mut line = String::new();
            for (text, &(_, width, number)) in texts.iter().zip(&widths) {
                let gap = " ".repeat(width - text.width());
                if !line.is_empty() {
                    line.push_str("  ");
                }
                if number {
                    line.push_str(&gap);
                    line.push_str(text);
                } else {
                    line.push_str(text);
                    line.push_str(&gap);
                }
            }
            line.trim_end().to_owned()
        };
        writeln!(out, "{}", line(self.shown().map(|(_, column)| &*column.heading).collect()))?;
        for row in &self.rows {
            writeln!(out, "{}", line(widths.iter().map(|&(index, ..)| row[index].text.as_str()).collect()))?;
        }
        Ok(())
    }

    /// Writes aligned columns fitted to the terminal, and names the dropped ones.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn write_lines(&self, width: Option<u16>, out: &mut dyn Write) -> io::Result<()> {
        let dropped = self.write_fitted(width, out)?;
        if dropped.is_empty() { Ok(()) } else { writeln!(out, "{}", hidden(&dropped)) }
    }

    /// Writes aligned columns two spaces apart, in at most `width` cells if there is a limit: drops columns by
    /// priority, puts the text of one on lines of its own if it allows that, then cuts text. Returns the headings of the
    /// dropped columns.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub(crate) fn write_fitted(&self, width: Option<u16>, out: &mut dyn Write) -> io::Result<Vec<&str>> {
        let Some(width) = width else {
            self.write_text(out)?;
            return Ok(Vec::new());
        };
        let mut fitted = Self { columns: self.shown().map(|(_, column)| column.clone()).collect(), ..Self::default() };
        let mut kept: Vec<usize> = self.shown().map(|(index, _)| index).collect();
        fitted.rows = self.rows.iter().map(|row| kept.iter().map(|&index| row[index].clone()).collect()).collect();
        let widths = fitted.widths(width, 2);
        let is_cut = |at: &usize| fitted.rows.iter().any(|row| row[*at].text.width() > usize::from(widths[*at]));
        let below = (0..kept.len()).find(|at| fitted.columns[*at].below && is_cut(at)).map(|at| {
            kept.remove(at);
            let heading = fitted.columns.remove(at).heading.into_owned();
            std::iter::once(heading).chain(fitted.rows.iter_mut().map(|row| row.remove(at).text)).collect::<Vec<_>>()
        });
        let mut dropped = Vec::new();
        for (place, width) in fitted.widths(width, 2).into_iter().enumerate() {
            if width == 0 {
                dropped.push(&*self.columns[kept[place]].heading);
                fitted.columns[place].heading = Cow::Borrowed("");
            }
            let is_cut = fitted.rows.iter().any(|row| row[place].text.width() > usize::from(width));
            for row in fitted.rows.iter_mut().filter(|_| is_cut) {
                let cell = &mut row[place];
                // All bars of the column at one scale.
                cell.text = match cell.graphic {
                    Some(Graphic::Lane(lane)) => lane.text(width),
                    _ => cut(&cell.text, usize::from(width)),
                };
            }
        }
        let Some(below) = below else {
            fitted.write_text(out)?;
            return Ok(dropped);
        };
        let mut lines = Vec::new();
        fitted.write_text(&mut lines)?;
        for (line, text) in String::from_utf8_lossy(&lines).lines().zip(below) {
            writeln!(out, "{line}")?;
            for text in wrap(&text, usize::from(width.saturating_sub(2))) {
                writeln!(out, "  {text}")?;
            }
        }
        Ok(dropped)
    }

    /// Writes a Markdown table.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let headings: Vec<_> = self.shown().map(|(_, column)| markdown(&column.heading)).collect();
        let rules: Vec<_> = self.shown().map(|(_, column)| if column.number { "---:" } else { "---" }).collect();
        writeln!(out, "| {} |\n| {} |", headings.join(" | "), rules.join(" | "))?;
        for row in &self.rows {
            let cells: Vec<_> = self.shown().map(|(index, _)| markdown(&row[index].text)).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }

    /// Writes CSV with a heading line and unrounded numbers; unknown values are empty cells. A text that a spreadsheet
    /// would evaluate as a formula starts with an apostrophe.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let keyed: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.key.is_empty())
            .map(|(index, _)| index)
            .collect();
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(keyed.iter().map(|&index| self.columns[index].key)).map_err(io_error)?;
        for row in &self.rows {
            writer.write_record(keyed.iter().map(|&index| for_spreadsheets(row[index].value()))).map_err(io_error)?;
        }
        writer.flush()
    }
}

/// A text in at most `width` cells, with an ellipsis if cut.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    for c in text.chars() {
        if shown.width() + c.width().unwrap_or(0) >= width {
            break;
        }
        shown.push(c);
    }
    shown + "…"
}

/// Names columns that were dropped.
pub(crate) fn hidden(dropped: &[&str]) -> String {
    format!("columns hidden to fit the terminal: {}; --csv and --markdown have all columns", dropped.join(", "))
}

/// Prefixes text that a spreadsheet would evaluate as a formula. Numbers may start with a sign.
fn for_spreadsheets(value: &str) -> String {
    let is_formula = value.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    if is_formula && value.parse::<f64>().is_err() { format!("'{value}") } else { value.to_owned() }
}

/// Escapes text for Markdown: no HTML, links, markup or cell separators.
pub fn markdown(text: &str) -> String {
    let text = text.replace("://", ":\u{1}//").replace("www.", "www\u{1}.");
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '[' | ']' | '`' | '*' | '\\' | '~' => escaped.extend(['\\', c]),
            // Break up what Markdown would turn into a link.
            '\u{1}' => escaped.push('\\'),
            '\n' | '\r' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The underlying I/O error, so that a closed pipe is recognised.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests;
