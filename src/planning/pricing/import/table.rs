//! CSV, read by the names of its columns.

use super::ImportError;
use habitat_base::text;

/// A table with a header.
pub(super) struct Table {
    header: Vec<String>,
    records: Vec<(u64, csv::StringRecord)>,
}

/// A row of a table, and its line.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    table: &'a Table,
    line: u64,
    fields: &'a csv::StringRecord,
}

impl Table {
    /// Reads CSV. Rows may have more fields than the header (what Azure writes last is not
    /// quoted), but not fewer: such a file is cut off.
    pub(super) fn read(text: &str) -> Result<Self, ImportError> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::Headers).from_reader(text.as_bytes());
        let failed = |error: csv::Error| ImportError(format!("{error}; it is not a catalog of prices"));
        let header: Vec<String> = reader.headers().map_err(failed)?.iter().map(str::to_owned).collect();
        let mut records = Vec::new();
        let (mut line, mut counted) = (1, 0);
        for record in reader.records() {
            let fields = record.map_err(failed)?;
            // The reader's own line is one too few where lines end in a carriage return and a line
            // feed, as SkyPilot's do: the line feed is then before the row.
            let from = fields.position().map_or(counted, |position| position.byte() as usize);
            let begins = from + text.as_bytes()[from..].iter().take_while(|byte| b"\r\n".contains(byte)).count();
            line += text.get(counted..begins).map_or(0, |before| before.matches('\n').count()) as u64;
            counted = begins;
            records.push((line, fields));
        }
        Ok(Self { header, records })
    }

    /// Whether it has all these columns.
    pub(super) fn has(&self, columns: &[&str]) -> bool {
        columns.iter().all(|column| self.header.iter().any(|name| name == column))
    }

    /// The rows.
    ///
    /// # Errors
    /// Of a row: it has fewer fields than the header.
    pub(super) fn rows(&self) -> impl Iterator<Item = Result<Record<'_>, ImportError>> {
        self.records.iter().map(|(line, fields)| {
            let (has, needs) = (fields.len(), self.header.len());
            if has < needs {
                let remedy = "the file is cut off or damaged; fetch it again";
                return Err(ImportError(format!("line {line}: has {has} of {needs} columns; {remedy}")));
            }
            Ok(Record { table: self, line: *line, fields })
        })
    }
}

impl<'a> Record<'a> {
    /// The text of a column, empty where there is no such column.
    pub(super) fn raw(self, column: &str) -> &'a str {
        let place = self.table.header.iter().position(|name| name == column);
        place.and_then(|place| self.fields.get(place)).unwrap_or_default().trim()
    }

    /// The text of a column, fit to show.
    pub(super) fn text(self, column: &str) -> String {
        text::clean(self.raw(column), super::WIDTH)
    }

    /// A number that need not be known.
    pub(super) fn size(self, column: &str) -> Option<f64> {
        self.raw(column).parse().ok().filter(|size: &f64| size.is_finite() && *size > 0.0 && *size <= 1e7)
    }

    /// A number that must be valid where there is one.
    ///
    /// # Errors
    /// [`ImportError`] with line, column and value.
    pub(super) fn number<T>(
        self,
        column: &str,
        check: impl FnOnce(f64) -> Result<T, String>,
    ) -> Result<Option<T>, ImportError> {
        let value = self.raw(column);
        if value.is_empty() {
            return Ok(None);
        }
        let number = value.parse().map_err(|_| "is no number".to_owned()).and_then(check);
        number.map(Some).map_err(|problem| self.wrong(column, &problem))
    }

    fn wrong(self, column: &str, problem: &str) -> ImportError {
        let shown = text::clean(self.raw(column), 40);
        ImportError(format!(
            "line {}, column {column}: {shown:?}: {problem}; fetch the file again, or correct that line",
            self.line
        ))
    }
}
