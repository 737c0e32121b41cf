//! The last lines of a program's output, as a terminal would show them.

use std::collections::VecDeque;

/// Maximum number of lines.
const LINES: usize = 1000;
/// Maximum characters per line.
const WIDTH: usize = 2000;
/// Columns between two tab stops.
const TAB: usize = 8;

/// State within an escape sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Escape {
    /// Not in a sequence.
    #[default]
    Text,
    /// After ESC.
    Begun,
    /// In a control sequence (`ESC [`), up to its final letter.
    Control,
    /// In a string (`ESC ]`, `ESC P` …), up to BEL or `ESC \`.
    String,
    /// After an ESC in a string.
    StringEnd,
    /// After `ESC (` and the like: one more character.
    One,
}

/// Receives bytes and keeps the last lines.
///
/// Control sequences are dropped. A carriage return restarts the line, so only the last state of a progress bar
/// remains; a backspace removes a character.
///
/// ```
/// let mut tail = habitat_recorder::live::Tail::default();
/// tail.feed(b"start\n 10%\r 20%\r\x1b[31m 30%\x1b[0m");
/// assert_eq!(tail.lines(), ["start", " 30%"]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tail {
    lines: VecDeque<String>,
    line: Vec<char>,
    /// Whether the next character restarts the line.
    returned: bool,
    escape: Escape,
    /// Incomplete bytes of a character.
    partial: Vec<u8>,
}

impl Tail {
    /// Receives output.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut held = std::mem::take(&mut self.partial);
        held.extend_from_slice(bytes);
        let mut rest = &held[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    text.chars().for_each(|c| self.take(c));
                    return;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    String::from_utf8_lossy(good).chars().for_each(|c| self.take(c));
                    let Some(wrong) = error.error_len() else {
                        bad.clone_into(&mut self.partial);
                        return;
                    };
                    self.take('\u{fffd}');
                    rest = &bad[wrong..];
                }
            }
        }
    }

    /// Discards the unfinished line, because the following output does not continue it.
    pub fn skip(&mut self) {
        let Self { lines, .. } = std::mem::take(self);
        self.lines = lines;
        self.push("… (left out)".to_owned());
    }

    /// Lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        let unfinished = (!self.line.is_empty()).then(|| self.line.iter().collect());
        self.lines.iter().cloned().chain(unfinished).collect()
    }

    fn push(&mut self, line: String) {
        if self.lines.len() >= LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    fn take(&mut self, c: char) {
        self.escape = match (self.escape, c) {
            (Escape::Text, '\u{1b}') => Escape::Begun,
            // A sequence may start with one character instead of two.
            (Escape::Text, '\u{9b}') | (Escape::Begun, '[') => Escape::Control,
            (Escape::Text, '\u{90}' | '\u{9d}') | (Escape::Begun, ']' | 'P' | 'X' | '^' | '_') => Escape::String,
            (Escape::Text, c) => {
                self.put(c);
                Escape::Text
            }
            (Escape::Begun, '(' | ')' | '*' | '+' | '#' | '%' | ' ') => Escape::One,
            (Escape::Control | Escape::String, '\n') => {
                // Cut off: sequences do not span lines.
                self.put('\n');
                Escape::Text
            }
            (Escape::String, '\u{1b}') => Escape::StringEnd,
            (Escape::Control, '@'..='~')
            | (Escape::String, '\u{7}' | '\u{9c}')
            | (Escape::StringEnd, '\\')
            | (Escape::Begun | Escape::One, _) => Escape::Text,
            (Escape::StringEnd, _) => Escape::String,
            (inside @ (Escape::Control | Escape::String), _) => inside,
        };
    }

    fn put(&mut self, c: char) {
        match c {
            '\n' => {
                let line = std::mem::take(&mut self.line);
                self.returned = false;
                self.push(line.into_iter().collect());
            }
            '\r' => self.returned = true,
            '\u{8}' => drop(self.line.pop()),
            _ => {
                if std::mem::take(&mut self.returned) {
                    self.line.clear();
                }
                let room = WIDTH.saturating_sub(self.line.len());
                match c {
                    '\t' => self.line.extend(std::iter::repeat_n(' ', (TAB - self.line.len() % TAB).min(room))),
                    c if room > 0 && !habitat_base::text::is_unsafe(c.encode_utf8(&mut [0; 4])) => self.line.push(c),
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(text: &str) -> Vec<String> {
        let mut tail = Tail::default();
        tail.feed(text.as_bytes());
        tail.lines()
    }

    #[test]
    fn it_is_what_a_terminal_would_leave() {
        assert_eq!(lines("a\r\nb\n"), ["a", "b"]);
        assert_eq!(lines("10%\r100%\r\n"), ["100%"]);
        assert_eq!(lines("long line\rx"), ["x"]);
        assert_eq!(lines("\x1b[1;32mgreen\x1b[0m \x1b]0;title\x07end"), ["green end"]);
        assert_eq!(lines("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"), ["link"]);
        assert_eq!(lines("\x1b(Bplain"), ["plain"]);
        assert_eq!(lines("ab\x08c"), ["ac"]);
        assert_eq!(lines("a\tb"), ["a       b"]);
        assert_eq!(lines("\x07bell \u{202e}reversed"), ["bell reversed"]);
        assert_eq!(lines("\x1b[31\nnext"), ["", "next"]);
    }

    #[test]
    fn characters_may_come_in_parts() {
        let mut tail = Tail::default();
        for byte in "Größe µs\n".bytes() {
            tail.feed(&[byte]);
        }
        tail.feed(b"\xff\xc3");
        tail.feed(b"\xa9");
        assert_eq!(tail.lines(), ["Größe µs", "\u{fffd}é"]);
    }

    #[test]
    fn what_is_kept_has_an_end() {
        let mut tail = Tail::default();
        for number in 0..LINES + 10 {
            tail.feed(format!("{number}\n").as_bytes());
        }
        tail.feed(&vec![b'x'; 3 * WIDTH]);
        let lines = tail.lines();
        assert_eq!((lines.len(), lines[0].as_str()), (LINES + 1, "10"));
        assert_eq!(lines.last().unwrap().len(), WIDTH);
        tail.skip();
        tail.feed(b"new\n");
        assert_eq!(tail.lines()[LINES - 2..], ["… (left out)", "new"]);
    }

    proptest! {
        #[test]
        fn nothing_unsafe_gets_through(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut tail = Tail::default();
            for part in bytes.chunks(7) {
                tail.feed(part);
            }
            for line in tail.lines() {
                prop_assert!(!habitat_base::text::is_unsafe(&line));
            }
        }
    }
}
