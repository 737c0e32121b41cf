//! Read access to an untrusted SQLite file: possibly missing tables and columns, texts by number, and readable errors.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use habitat_traces::nsight::SourceError;

/// First bytes of every SQLite file.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Whether the (decompressed) beginning of a file is that of an SQLite file.
pub(in crate::store) fn looks_like_sqlite(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Maximum bytes of cached texts from `StringIds`.
const TEXTS: usize = 32 << 20;
/// Maximum number of names of an enumeration, which has a few dozen.
const NAMES: usize = 4096;
/// Maximum bytes of a text or a row; names of kernels have some thousands.
const LONGEST_VALUE: i32 = 4 << 20;

#[derive(Debug)]
pub(super) struct Database {
    pub(super) connection: Connection,
    columns: HashMap<&'static str, HashSet<String>>,
}

impl Database {
    /// Opens a file; queries that are not finished within `patience` from now are aborted.
    pub(super) fn open(path: &Path, patience: Duration) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(address(path), flags)?;
        // A damaged or hostile file must neither crash the program nor keep it busy forever.
        connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE)?;
        let until = Instant::now() + patience;
        connection.progress_handler(10_000, Some(move || Instant::now() > until));
        Ok(Self { connection, columns: HashMap::new() })
    }

    /// Loads the columns of tables.
    pub(super) fn with_columns(mut self, tables: &[&'static str]) -> rusqlite::Result<Self> {
        for table in tables {
            let mut statement = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            let names = statement.query_map([table], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            self.columns.insert(table, names);
        }
        Ok(self)
    }

    /// A view or virtual table with the name of a table that is read, which might compute forever.
    pub(super) fn view(&self) -> rusqlite::Result<Option<String>> {
        let mut statement = self.connection.prepare(
            "SELECT name FROM sqlite_master WHERE type = 'view' OR (type = 'table' AND coalesce(rootpage, 0) = 0)",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let ValueRef::Text(name) = row.get_ref(0)? else { continue };
            let name = String::from_utf8_lossy(name);
            let upper = name.to_uppercase();
            if ["CUPTI_", "NVTX_", "ENUM_", "TARGET_INFO_", "META_DATA_", "STRINGIDS"]
                .iter()
                .any(|read| upper.starts_with(read))
            {
                return Ok(Some(habitat_base::text::clean(&name, 40)));
            }
        }
        Ok(None)
    }

    /// Lookup of texts by number.
    pub(super) fn texts(&self) -> Texts<'_> {
        Texts { connection: &self.connection, known: HashMap::new(), bytes: 0 }
    }

    /// Whether the table has the column.
    pub(super) fn has(&self, table: &str, column: &str) -> bool {
        self.columns.get(table).is_some_and(|columns| columns.contains(column))
    }

    /// Expression for a column, or NULL if this version does not have it.
    pub(super) fn column(&self, table: &str, names: &[&str]) -> String {
        let found = names.iter().find(|name| self.has(table, name));
        found.map_or_else(|| "NULL".to_owned(), |name| format!("\"{name}\""))
    }

    /// Expressions for several columns, as a list.
    pub(super) fn columns(&self, table: &str, names: &[&[&str]]) -> String {
        names.iter().map(|names| self.column(table, names)).collect::<Vec<_>>().join(", ")
    }

    /// Calls `row` for each row of a query.
    pub(super) fn each(
        &self,
        sql: &str,
        row: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), SourceError> {
        let mut run = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(next) = rows.next()? {
                row(next)?;
            }
            Ok(())
        };
        run().map_err(|error| SourceError::from(explain(&error)))
    }

    pub(super) fn exists(&self, table: &str) -> bool {
        self.connection
            .query_row("SELECT 1 FROM sqlite_master WHERE name = ?1 AND type = 'table'", [table], |_| Ok(()))
            .is_ok()
    }

    /// Names of numbers in an enumeration's table.
    pub(super) fn names(&self, table: &str) -> HashMap<i64, String> {
        let mut names = HashMap::new();
        if self.exists(table) {
            let sql = format!("SELECT id, name FROM \"{table}\"");
            let _ = self.each(&sql, &mut |row| {
                if names.len() < NAMES
                    && let (Some(id), ValueRef::Text(name)) = (whole(row, 0)?, row.get_ref(1)?)
                {
                    names.insert(id, String::from_utf8_lossy(name).into_owned());
                }
                Ok(())
            });
        }
        names
    }

    pub(super) fn value(&self, table: &str, key: &str) -> Option<String> {
        let sql = format!("SELECT value FROM \"{table}\" WHERE name = ?1");
        self.connection.query_row(&sql, [key], |row| row.get::<_, String>(0)).ok()
    }
}

/// Cache of texts by number.
pub(super) struct Texts<'a> {
    connection: &'a Connection,
    known: HashMap<i64, String>,
    bytes: usize,
}

impl Texts<'_> {
    /// The text with this number; empty if there is none.
    pub(super) fn get(&mut self, id: i64) -> rusqlite::Result<&str> {
        if !self.known.contains_key(&id) {
            let mut statement = match self.connection.prepare_cached("SELECT value FROM StringIds WHERE id = ?1") {
                Ok(statement) => statement,
                // Without the table, every text is in its row.
                Err(rusqlite::Error::SqliteFailure(_, Some(message))) if message.contains("no such") => {
                    return Ok("");
                }
                Err(error) => return Err(error),
            };
            let text = match statement.query_row([id], |row| {
                Ok(match row.get_ref(0)? {
                    ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    _ => String::new(),
                })
            }) {
                Err(rusqlite::Error::QueryReturnedNoRows) => String::new(),
                text => text?,
            };
            if self.bytes > TEXTS {
                self.known.clear();
                self.bytes = 0;
            }
            self.bytes += text.len() + 64;
            self.known.insert(id, text);
        }
        Ok(self.known.get(&id).map_or("", String::as_str))
    }
}

/// An integer by the name of its column, which this version may not have.
pub(super) fn named(row: &Row<'_>, column: &str) -> Option<i64> {
    whole(row, row.as_ref().column_index(column).ok()?).ok().flatten()
}

/// A non-negative integer; `None` if it is out of range.
pub(super) fn unsigned<T: TryFrom<i64>>(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<T>> {
    Ok(whole(row, at)?.and_then(|number| T::try_from(number).ok()))
}

/// An integer in any representation; `None` for NULL and for other texts.
pub(super) fn whole(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<i64>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) if number.is_finite() => Some(number as i64),
        ValueRef::Text(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
        _ => None,
    })
}

/// URI of the file that marks it as immutable, so that SQLite does not write files next to it.
fn address(path: &Path) -> String {
    use std::fmt::Write as _;
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => address.push(char::from(*byte)),
            // Colon and backslash of Windows paths.
            b':' if cfg!(windows) => address.push(':'),
            b'\\' if cfg!(windows) => address.push('/'),
            _ => {
                let _ = write!(address, "%{byte:02x}");
            }
        }
    }
    if cfg!(windows) && path.is_absolute() {
        address.insert(5, '/');
    }
    address + "?mode=ro&immutable=1"
}

/// Explains an SQLite error, with a remedy.
pub(super) fn explain(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            format!("a damaged SQLite file ({error}); export it again")
        }
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            "another program is writing the file; try again when the export is finished".to_owned()
        }
        Some(rusqlite::ErrorCode::OperationInterrupted) => {
            "reading took far too long for the size of the file and was aborted; export it again".to_owned()
        }
        Some(rusqlite::ErrorCode::TooBig) => {
            format!("a value is larger than {} MB; export it again", LONGEST_VALUE >> 20)
        }
        _ => error.to_string(),
    }
}
