//! Walks a trace of any size through one buffer and hands out its events one by one.
//!
//! A trace is one JSON object whose `traceEvents` array holds nearly all of it. Only the
//! brackets and strings are followed here, so the buffer never holds more than one event
//! and a damaged event costs only itself; the meaning is read in [`super::event`].

use std::io::Read;
use std::ops::ControlFlow;

use super::event::unescape;
use crate::trace::Fault;

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;
/// No profiler writes an event near this size; kernel names reach about 100 kB.
const LONGEST_EVENT: usize = 64 << 20;
/// Top-level values up to this size are handed out (device properties, versions).
const LONGEST_VALUE: usize = 4 << 20;

/// What the scan hands out.
pub(super) enum Item<'a> {
    /// A top-level key other than `traceEvents`, with the text of its value.
    Property(&'a str, &'a [u8]),
    /// One event, braces included.
    Event(&'a [u8]),
}

/// What was read in a whole scan.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

/// Reads a trace to its end. `visit` is called for every property and event with the
/// running totals and may stop the scan.
pub(super) fn scan(
    reader: &mut dyn Read,
    visit: &mut dyn FnMut(Item<'_>, Totals) -> ControlFlow<()>,
) -> Result<Totals, Fault> {
    let mut text = Text { reader, buffer: Vec::new(), at: 0, passed: 0, ended: false, events: 0 };
    text.skip_byte_order_mark()?;
    match text.peek()? {
        None => return Err(Fault::Empty),
        Some(b'{') => {}
        // Chrome also reads a bare array of events.
        Some(b'[') => {
            text.at += 1;
            text.events(visit)?;
            return Ok(text.totals());
        }
        Some(_) => return Err(text.unexpected()),
    }
    text.at += 1;
    let mut found = Vec::new();
    let mut is_trace = false;
    loop {
        match text.need()? {
            b'}' => break,
            b',' => text.at += 1,
            b'"' => {
                let key = unescape(text.string()?);
                if text.need()? != b':' {
                    return Err(text.unexpected());
                }
                text.at += 1;
                if key == "traceEvents" && text.need()? == b'[' {
                    is_trace = true;
                    text.at += 1;
                    text.events(visit)?;
                } else {
                    let totals = text.totals();
                    if let Some(value) = text.value()?
                        && visit(Item::Property(&key, value), totals).is_break()
                    {
                        return Err(Fault::Cancelled);
                    }
                    if found.len() < 8 {
                        found.push(crate::text::clean(&key, 40));
                    }
                }
            }
            _ => return Err(text.unexpected()),
        }
    }
    if is_trace { Ok(text.totals()) } else { Err(Fault::NotATrace { found }) }
}

struct Text<'r> {
    reader: &'r mut dyn Read,
    buffer: Vec<u8>,
    /// Position in the buffer of the next byte to look at.
    at: usize,
    /// Bytes dropped from the front of the buffer.
    passed: u64,
    ended: bool,
    events: u64,
}

impl Text<'_> {
    fn totals(&self) -> Totals {
        Totals { events: self.events, bytes: self.passed + self.at as u64 }
    }

    /// Drops what is before `keep` and reads on; false at the end of the text.
    fn refill(&mut self, keep: usize) -> Result<bool, Fault> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.drain(..keep);
        self.passed += keep as u64;
        self.at -= keep;
        let old = self.buffer.len();
        self.buffer.resize(old + CHUNK, 0);
        let mut filled = old;
        while filled < self.buffer.len() {
            match self.reader.read(&mut self.buffer[filled..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Fault::Io { events: self.events, source }),
            }
        }
        self.buffer.truncate(filled);
        Ok(filled > old)
    }

    fn skip_byte_order_mark(&mut self) -> Result<(), Fault> {
        self.refill(0)?;
        if self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        Ok(())
    }

    /// The next byte that is not white space, without passing it.
    fn peek(&mut self) -> Result<Option<u8>, Fault> {
        loop {
            while let Some(&byte) = self.buffer.get(self.at) {
                if !byte.is_ascii_whitespace() {
                    return Ok(Some(byte));
                }
                self.at += 1;
            }
            if !self.refill(self.at)? {
                return Ok(None);
            }
        }
    }

    fn need(&mut self) -> Result<u8, Fault> {
        self.peek()?.ok_or(Fault::Truncated { events: self.events, bytes: self.totals().bytes })
    }

    fn unexpected(&self) -> Fault {
        let rest = &self.buffer[self.at..self.buffer.len().min(self.at + 16)];
        Fault::NotJson { offset: self.totals().bytes, found: crate::text::clean(&String::from_utf8_lossy(rest), 12) }
    }

    /// Passes a string and returns what is between its quotes.
    fn string(&mut self) -> Result<&[u8], Fault> {
        let range = self.balanced(LONGEST_EVENT)?;
        Ok(&self.buffer[range.start + 1..range.end - 1])
    }

    /// Passes a value; its text, unless it is very long.
    fn value(&mut self) -> Result<Option<&[u8]>, Fault> {
        let range = match self.need()? {
            b'{' | b'[' | b'"' => self.balanced(LONGEST_EVENT)?,
            b',' | b':' | b'}' | b']' => return Err(self.unexpected()),
            _ => {
                let mut length = 0;
                loop {
                    match self.buffer.get(self.at + length) {
                        Some(b',' | b'}' | b']') => break,
                        Some(byte) if byte.is_ascii_whitespace() => break,
                        Some(_) if length > 4096 => return Err(self.unexpected()),
                        Some(_) => length += 1,
                        None => {
                            if !self.refill(self.at)? {
                                let Totals { events, bytes } = self.totals();
                                return Err(Fault::Truncated { events, bytes });
                            }
                        }
                    }
                }
                let start = self.at;
                self.at += length;
                start..self.at
            }
        };
        Ok((range.len() <= LONGEST_VALUE).then(|| &self.buffer[range]))
    }

    /// Passes an object, array or string that starts at the present position.
    fn balanced(&mut self, limit: usize) -> Result<std::ops::Range<usize>, Fault> {
        let mut depth = 0_usize;
        let mut in_string = false;
        let mut offset = 0;
        loop {
            let bytes = &self.buffer[self.at..];
            while let Some(&byte) = bytes.get(offset) {
                offset += 1;
                if in_string {
                    match byte {
                        b'"' => in_string = false,
                        b'\\' => {
                            offset += 1;
                            continue;
                        }
                        _ => continue,
                    }
                } else {
                    match byte {
                        b'"' => in_string = true,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth = depth.saturating_sub(1),
                        _ => continue,
                    }
                }
                if depth == 0 && !in_string {
                    let start = self.at;
                    self.at += offset;
                    return Ok(start..self.at);
                }
            }
            if offset > limit {
                return Err(Fault::EventTooLarge { index: self.events, limit });
            }
            if !self.refill(self.at)? {
                let events = self.events;
                return Err(Fault::Truncated { events, bytes: self.passed + self.buffer.len() as u64 });
            }
        }
    }

    /// Hands out the events of the array whose opening bracket was just passed.
    fn events(&mut self, visit: &mut dyn FnMut(Item<'_>, Totals) -> ControlFlow<()>) -> Result<(), Fault> {
        loop {
            match self.need()? {
                b']' => {
                    self.at += 1;
                    return Ok(());
                }
                b',' => self.at += 1,
                b'{' => {
                    let range = self.balanced(LONGEST_EVENT)?;
                    let totals = self.totals();
                    self.events += 1;
                    if visit(Item::Event(&self.buffer[range]), totals).is_break() {
                        return Err(Fault::Cancelled);
                    }
                }
                _ => {
                    // Not an event (some writers end the list with null): pass it.
                    self.value()?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives one byte at a time, to cross every boundary.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(out.len()).min(1);
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn events(text: &str) -> Result<Vec<String>, Fault> {
        let mut found = Vec::new();
        scan(&mut Trickle(text.as_bytes()), &mut |item, _| {
            found.push(match item {
                Item::Property(key, value) => format!("{key}={}", String::from_utf8_lossy(value)),
                Item::Event(text) => String::from_utf8_lossy(text).into_owned(),
            });
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    #[test]
    fn events_and_properties_come_apart() {
        let text = r#" {"a": 1, "traceEvents": [{"n": "}\"{"}, null, {"x": {"y": []}}], "b" : [{}] } "#;
        assert_eq!(events(text).unwrap(), ["a=1", r#"{"n": "}\"{"}"#, r#"{"x": {"y": []}}"#, "b=[{}]"]);
        assert_eq!(events("[{}, {}]").unwrap(), ["{}", "{}"]);
    }

    #[test]
    fn what_is_no_trace_is_told_apart() {
        assert!(matches!(events(" \n"), Err(Fault::Empty)));
        assert!(matches!(events("hello"), Err(Fault::NotJson { offset: 0, .. })));
        assert!(matches!(events(r#"{"format": "x"}"#), Err(Fault::NotATrace { .. })));
        let cut = r#"{"traceEvents": [{"a": 1}, {"b""#;
        let Err(Fault::Truncated { events: whole, bytes }) = events(cut) else { panic!("not told as cut off") };
        assert_eq!((whole, bytes), (1, cut.len() as u64));
        assert!(matches!(events(r#"{"traceEvents": [{"a": 1}]"#), Err(Fault::Truncated { .. })));
    }
}
