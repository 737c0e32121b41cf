//! Printing. All output of this program to standard output and standard error, except for the screens, goes through
//! this module. It removes control characters from names and texts of files, which could move the cursor or hide text.

mod pager;

use std::fmt;
use std::io::{self, BufWriter, Stderr, Stdout, Write};

use habitat_base::text::{to_screen, unsafe_to_show};
use habitat_reports::wrap::wrap_sentences;

pub use pager::page;

/// Columns and rows of the terminal on standard output; `None` if the output goes elsewhere.
pub fn size() -> Option<[u16; 2]> {
    terminal_size::terminal_size_of(io::stdout())
        .map(|(width, height)| [width.0, height.0])
        .filter(|size| size.iter().all(|cells| *cells > 0))
}

/// Cells of a line of the terminal on standard output; `None` if that is no terminal.
pub fn width() -> Option<u16> {
    size().map(|[columns, _]| columns)
}

/// Standard output, buffered and cleaned. It is locked only while the buffer is written: `mcp` writes there as well.
pub fn stdout() -> Cleaned<BufWriter<Stdout>> {
    Cleaned::new(BufWriter::new(io::stdout()))
}

/// Standard error, cleaned.
pub fn stderr() -> Cleaned<Stderr> {
    Cleaned::new(io::stderr())
}

/// Prints a message on standard error, limited to one screen, and on a terminal wrapped at words. Ignores a closed or
/// full standard error.
pub fn say(message: impl fmt::Display) {
    let message = message.to_string();
    let message = to_screen(&message);
    let width = terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| usize::from(width.0));
    let wrapped = width.filter(|width| *width > 0).map(|width| wrap_sentences(&message, width));
    let _ = writeln!(stderr(), "{}", wrapped.as_deref().unwrap_or(&message));
}

/// Prints an error.
pub fn error(error: impl fmt::Display) {
    say(format_args!("error: {error}"));
}

/// Forwards text to a writer, with U+FFFD instead of every character that must not reach a terminal (except line ends
/// and tabs) and of invalid UTF-8.
#[derive(Debug)]
pub struct Cleaned<W> {
    to: W,
    /// Start of a character that the next bytes complete.
    rest: Vec<u8>,
}

impl<W: Write> Cleaned<W> {
    /// Wraps `to`.
    pub const fn new(to: W) -> Self {
        Self { to, rest: Vec::new() }
    }
}

/// Whether a character is forwarded.
fn passes(c: char) -> bool {
    matches!(c, '\n' | '\t') || !unsafe_to_show(c)
}

impl<W: Write> Write for Cleaned<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let joined;
        let mut text = if self.rest.is_empty() {
            bytes
        } else {
            joined = [&self.rest, bytes].concat();
            &joined
        };
        let mut rest: &[u8] = &[];
        while !text.is_empty() {
            let (valid, after) = match std::str::from_utf8(text) {
                Ok(valid) => (valid, &[][..]),
                Err(error) => {
                    let (valid, after) = text.split_at(error.valid_up_to());
                    (std::str::from_utf8(valid).unwrap_or_default(), after)
                }
            };
            let mut shown = valid;
            while let Some((at, c)) = shown.char_indices().find(|(_, c)| !passes(*c)) {
                self.to.write_all(&shown.as_bytes()[..at])?;
                self.to.write_all("\u{fffd}".as_bytes())?;
                shown = &shown[at + c.len_utf8()..];
            }
            self.to.write_all(shown.as_bytes())?;
            text = match std::str::from_utf8(after).err().map(|error| error.error_len()) {
                None => &[],
                Some(None) => {
                    rest = after;
                    &[]
                }
                Some(Some(length)) => {
                    self.to.write_all("\u{fffd}".as_bytes())?;
                    &after[length..]
                }
            };
        }
        self.rest = rest.to_vec();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(parts: &[&[u8]]) -> String {
        let mut out = Cleaned::new(Vec::new());
        for part in parts {
            out.write_all(part).unwrap();
        }
        String::from_utf8(out.to).unwrap()
    }

    #[test]
    fn nothing_passes_that_a_terminal_would_obey() {
        assert_eq!(cleaned(&["a\tb\n\u{1b}[2Jc\r\u{9b}31m".as_bytes()]), "a\tb\n\u{fffd}[2Jc\u{fffd}\u{fffd}31m");
        assert_eq!(cleaned(&["é日本 \u{202e}\u{e0041}".as_bytes()]), "é日本 \u{fffd}\u{fffd}");
        assert_eq!(cleaned(&[b"a\xffb\x80"]), "a\u{fffd}b\u{fffd}");
    }

    proptest::proptest! {
        #[test]
        fn characters_may_be_cut_by_the_writer(text: String, at: proptest::sample::Index) {
            let bytes = text.as_bytes();
            let (first, second) = bytes.split_at(if bytes.is_empty() { 0 } else { at.index(bytes.len()) });
            proptest::prop_assert_eq!(cleaned(&[first, second]), cleaned(&[bytes]));
        }
    }
}
