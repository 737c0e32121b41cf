//! CSV parser with access by column name.

use super::ImportError;
use habitat_base::text;

/// A table with a header.
pub(super) struct Table {
    header: Vec<String>,
    records: Vec<(u64, csv::StringRecord)>,
}

/// A row of a table with its line number.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    table: &'a Table,
    line: u64,
    fields: &'a csv::StringRecord,
}

impl Table {
    /// Parses CSV. Rows may have more fields than the header, because Azure's last one is not quoted. A row with fewer
    /// fields means that the file is truncated.
    pub(super) fn read(text: &str) -> Result<Self, ImportError> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::Headers).from_reader(text.as_bytes());
        let failed = |error: csv::Error| ImportError(format!("{error}; not a catalog of prices"));
        let header: Vec<String> = reader.headers().map_err(failed)?.iter().map(str::to_owned).collect();
        let mut records = Vec::new();
        let (mut line, mut counted) = (1, 0);
        for record in reader.records() {
            let fields = record.map_err(failed)?;
            // The reader's line number is one too low if lines end in CR LF, as SkyPilot's do, since the LF then
            // precedes the row.
            let from = fields.position().map_or(counted, |position| position.byte() as usize);
            let begins = from + text.as_bytes()[from..].iter().take_while(|byte| b"\r\n".contains(byte)).count();
            line += text.get(counted..begins).map_or(0, |before| before.matches('\n').count()) as u64;
            counted = begins;
            records.push((line, fields));
        }
        Ok(Self { header, records })
    }

    /// Whether the table has all these columns.
    pub(super) fn has(&self, columns: &[&str]) -> bool {
        columns.iter().all(|column| self.header.iter().any(|name| name == column))
    }

    /// Rows of the table.
    ///
    /// # Errors
    /// An error for each row with fewer fields than the header.
    pub(super) fn rows(&self) -> impl Iterator<Item = Result<Record<'_>, ImportError>> {
        self.records.iter().map(|(line, fields)| {
            let (has, needs) = (fields.len(), self.header.len());
            if has < needs {
                let remedy = "the file is truncated or damaged; download it again";
                return Err(ImportError(format!("line {line}: has {has} of {needs} columns; {remedy}")));
            }
            Ok(Record { table: self, line: *line, fields })
        })
    }
}

impl<'a> Record<'a> {
    /// Text of a column; empty if the column is missing.
    pub(super) fn raw(self, column: &str) -> &'a str {
        let place = self.table.header.iter().position(|name| name == column);
        place.and_then(|place| self.fields.get(place)).unwrap_or_default().trim()
    }

    /// Text of a column, made safe to show.
    pub(super) fn text(self, column: &str) -> String {
        text::clean(self.raw(column), super::WIDTH)
    }

    /// An optional number; `None` if it is invalid.
    pub(super) fn size(self, column: &str) -> Option<f64> {
        self.raw(column).parse().ok().filter(|size: &f64| size.is_finite() && *size > 0.0 && *size <= 1e7)
    }

    /// A number that has to be valid if present.
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
        let number = value.parse().map_err(|_| "not a number".to_owned()).and_then(check);
        number.map(Some).map_err(|problem| self.wrong(column, &problem))
    }

    fn wrong(self, column: &str, problem: &str) -> ImportError {
        let shown = text::clean(self.raw(column), 40);
        ImportError(format!(
            "line {}, column {column}: {shown:?}: {problem}; download the file again, or correct this line",
            self.line
        ))
    }
}
