//! A table, rendered for a terminal, as Markdown or as CSV.

use std::fmt;
use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

/// A column: its heading for people, its key (with the unit) for CSV.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Heading in text and Markdown; empty leaves the column out there.
    pub heading: &'static str,
    /// Heading in CSV; empty leaves the column out there.
    pub key: &'static str,
    /// Whether it holds numbers, aligned to the right.
    pub number: bool,
}

impl Column {
    /// A column of text.
    pub const fn text(heading: &'static str, key: &'static str) -> Self {
        Self { heading, key, number: false }
    }

    /// A column of numbers.
    pub const fn number(heading: &'static str, key: &'static str) -> Self {
        Self { heading, key, number: true }
    }
}

/// A cell: rounded for people, whole for CSV.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    shown: String,
    value: String,
}

impl Cell {
    /// The same in every form.
    pub fn same(text: impl fmt::Display) -> Self {
        let text = text.to_string();
        Self { shown: text.clone(), value: text }
    }

    /// Rounded text for people, a whole value for CSV.
    pub fn of(shown: impl Into<String>, value: impl fmt::Display) -> Self {
        Self { shown: shown.into(), value: value.to_string() }
    }

    /// Nothing known.
    pub fn unknown() -> Self {
        Self { shown: "–".to_owned(), value: String::new() }
    }

    /// `f` of the value, or nothing known.
    pub fn maybe<T>(value: Option<T>, f: impl FnOnce(T) -> Self) -> Self {
        value.map_or_else(Self::unknown, f)
    }
}

/// Rows under columns.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table.
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; it has a cell for every column.
    pub fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for every column");
        self.rows.push(row);
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    fn shown(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| !column.heading.is_empty())
    }

    /// Aligned columns, two spaces apart.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |index: usize, heading: &str| {
            self.rows.iter().map(|row| row[index].shown.width()).chain([heading.width()]).max().unwrap_or(0)
        };
        let widths: Vec<(usize, usize, bool)> =
            self.shown().map(|(index, column)| (index, width(index, column.heading), column.number)).collect();
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
        writeln!(out, "{}", line(self.shown().map(|(_, column)| column.heading).collect()))?;
        for row in &self.rows {
            writeln!(out, "{}", line(widths.iter().map(|&(index, ..)| row[index].shown.as_str()).collect()))?;
        }
        Ok(())
    }

    /// A Markdown table.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let headings: Vec<_> = self.shown().map(|(_, column)| markdown(column.heading)).collect();
        let rules: Vec<_> = self.shown().map(|(_, column)| if column.number { "---:" } else { "---" }).collect();
        writeln!(out, "| {} |\n| {} |", headings.join(" | "), rules.join(" | "))?;
        for row in &self.rows {
            let cells: Vec<_> = self.shown().map(|(index, _)| markdown(&row[index].shown)).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }

    /// CSV with a heading line, whole numbers, empty cells where nothing is known. A text
    /// that a spreadsheet would take for a formula has an apostrophe before it.
    ///
    /// # Errors
    /// Those of the writer.
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
            writer.write_record(keyed.iter().map(|&index| for_spreadsheets(&row[index].value))).map_err(io_error)?;
        }
        writer.flush()
    }
}

/// A cell that no spreadsheet takes for a formula. Numbers may begin with a sign.
fn for_spreadsheets(value: &str) -> String {
    let is_formula = value.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    if is_formula && value.parse::<f64>().is_err() { format!("'{value}") } else { value.to_owned() }
}

/// Text as it stands in Markdown: no HTML, no links, no marks, no end of a cell.
pub fn markdown(text: &str) -> String {
    let text = text.replace("://", ":\u{1}//").replace("www.", "www\u{1}.");
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '[' | ']' | '`' | '*' | '\\' | '~' => escaped.extend(['\\', c]),
            // What would be a link by itself.
            '\u{1}' => escaped.push('\\'),
            '\n' | '\r' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The writer's own error, so that a closed pipe is known as one.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table =
            Table::new(&[Column::text("GPU", "gpu"), Column::number("step", "step_us"), Column::text("", "note")]);
        table.push(vec![Cell::same("t4"), Cell::of("12.3 ms", 12345.678), Cell::same("a|b")]);
        table.push(vec![Cell::same("h100-sxm5"), Cell::unknown(), Cell::same("x,\"y\"")]);
        table
    }

    fn text(write: impl Fn(&Table, &mut dyn Write) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&table(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_table_in_three_forms() {
        assert_eq!(text(Table::write_text), "GPU           step\nt4         12.3 ms\nh100-sxm5        –\n");
        assert_eq!(
            text(Table::write_markdown),
            "| GPU | step |\n| --- | ---: |\n| t4 | 12.3 ms |\n| h100-sxm5 | – |\n"
        );
        assert_eq!(text(Table::write_csv), "gpu,step_us,note\nt4,12345.678,a|b\nh100-sxm5,,\"x,\"\"y\"\"\"\n");
    }

    #[test]
    fn no_cell_is_a_formula_a_link_or_html() {
        for text in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1"] {
            assert_eq!(for_spreadsheets(text), format!("'{text}"));
        }
        for plain in ["-1.5", "+3e4", "aten::mm", "", "5-3"] {
            assert_eq!(for_spreadsheets(plain), plain);
        }
        assert_eq!(
            markdown("a|b<img src=x> [x](https://e.org) www.e.org `c` *d* e&f\n"),
            r"a\|b&lt;img src=x&gt; \[x\](https:\//e.org) www\.e.org \`c\` \*d\* e&amp;f "
        );
    }
}
