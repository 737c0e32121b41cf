//! Reads a trace of any size, piece by piece.
//!
//! A trace is one JSON object, nearly all of it in the `traceEvents` array. The text is cut into pieces where an event
//! seems to begin, so that another thread can parse the events of a piece. If the previous piece did not end exactly
//! there, that result is discarded and the text is parsed again from the right position.

use std::io::{self, Read};

use super::json::{Cursor, Stop, unescape};
use super::pack::{End, Events, Packer};
use super::{Recorded, Spill};
use crate::{Fault, Format, Progress, TraceError};

/// Size of a piece in bytes.
const PIECE: usize = 4 << 20;
/// Maximum size of an event in bytes. No profiler writes one near this size; kernel names reach about 100 kB.
const LONGEST_EVENT: usize = 64 << 20;
/// Maximum size in bytes of a top-level value that is parsed (device properties, versions).
const LONGEST_VALUE: usize = 4 << 20;
/// How far before the end of a piece to search for the beginning of an event, in bytes.
const LOOK_BACK: usize = 1 << 16;

/// Splits a text into pieces.
#[derive(Debug)]
pub struct Pieces<R> {
    text: R,
    /// Text already read of the next piece.
    rest: Vec<u8>,
}

impl<R: Read> Pieces<R> {
    /// Pieces of the decompressed text from `text`.
    pub fn new(text: R) -> Self {
        Self { text, rest: Vec::new() }
    }

    /// Writes the next piece to `piece`; returns false at the end of the text.
    ///
    /// # Errors
    /// Errors of the reader.
    pub fn next(&mut self, piece: &mut Vec<u8>) -> io::Result<bool> {
        let start = self.rest.len();
        // Keeps the length, so that only the first call zeroes the memory.
        piece.resize(piece.len().max(start + PIECE), 0);
        piece[..start].copy_from_slice(&self.rest);
        let mut filled = start;
        while filled < start + PIECE {
            match self.text.read(&mut piece[filled..start + PIECE]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let is_whole = filled < start + PIECE;
        let end = if is_whole { filled } else { cut(&piece[..filled]) };
        self.rest.clear();
        self.rest.extend_from_slice(&piece[end..filled]);
        piece.truncate(end);
        Ok(end > 0)
    }
}

/// Where the last event of a text seems to begin: a brace after a comma after another brace, or the end of the text.
fn cut(text: &[u8]) -> usize {
    let from = text.len().saturating_sub(LOOK_BACK);
    let follows = |at: usize| {
        let before = text[from..at].trim_ascii_end().strip_suffix(b",");
        before.is_some_and(|before| before.trim_ascii_end().ends_with(b"}"))
    };
    (from..text.len()).rev().find(|at| text[*at] == b'{' && follows(*at)).unwrap_or(text.len())
}

/// Position within the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Beginning,
    /// In the outer object.
    Object,
    /// In the list of events, which is the whole trace or part of the object.
    Events {
        is_all: bool,
    },
    /// After the trace.
    Over,
}

/// Reads the text of one trace, piece by piece.
#[derive(Debug)]
pub struct Reader {
    recorded: Recorded,
    place: Place,
    /// Text received but not parsed yet, because it ends within a token.
    rest: Vec<u8>,
    /// Length of `rest` at which parsing is retried, so that a long event does not cause repeated parsing of the same
    /// text.
    enough: usize,
    /// Bytes before `rest`.
    passed: u64,
    found: Vec<String>,
    has_events: bool,
    packer: Packer,
}

impl Reader {
    /// Creates a reader; it stores part of a long trace in a temporary file if `spill` provides one.
    pub fn new(spill: Option<Spill>) -> Self {
        Self {
            recorded: Recorded::new(spill),
            place: Place::Beginning,
            rest: Vec::new(),
            enough: 0,
            passed: 0,
            found: Vec::new(),
            has_events: false,
            packer: Packer::default(),
        }
    }

    /// Progress so far.
    pub fn progress(&self) -> Progress {
        Progress { bytes: self.passed, events: self.recorded.events }
    }

    /// Whether the trace has ended, whatever follows it.
    pub fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    /// Reads the next piece; `events` is the result of [`Packer::read`] on it, if another thread computed it.
    ///
    /// # Errors
    /// [`TraceError`] if the text is not a trace.
    pub fn take(&mut self, piece: &[u8], events: Option<Events>) -> Result<(), TraceError> {
        self.add(piece, events).map_err(|fault| Format::Kineto.error(fault))
    }

    /// Finishes at the end of the text.
    ///
    /// # Errors
    /// [`TraceError`] if the text is not a trace or is truncated.
    pub fn finish(mut self) -> Result<Recorded, TraceError> {
        let fault = match (self.walk(), self.place) {
            (Err(fault), _) => fault,
            (Ok(()), Place::Over) if self.has_events => {
                self.recorded.bytes = self.passed;
                return Ok(self.recorded);
            }
            (Ok(()), Place::Over) => Fault::NotATrace { found: self.found },
            (Ok(()), Place::Beginning) => Fault::Empty,
            (Ok(()), Place::Object | Place::Events { .. }) => {
                Fault::Truncated { events: self.recorded.events, bytes: self.passed + self.rest.len() as u64 }
            }
        };
        Err(Format::Kineto.error(fault))
    }

    /// Error for a failure to read the text at this position.
    pub fn failed(&self, source: io::Error) -> TraceError {
        Format::Kineto.error(Fault::Io { events: self.recorded.events, source })
    }

    fn add(&mut self, piece: &[u8], events: Option<Events>) -> Result<(), Fault> {
        let mut rest = piece;
        if self.rest.is_empty() && matches!(self.place, Place::Events { .. }) {
            let events = events.unwrap_or_else(|| self.packer.read(piece));
            let read = self.events(events, piece, 0)?;
            self.passed += read as u64;
            rest = &piece[read..];
        }
        self.rest.extend_from_slice(rest);
        if self.rest.len() < self.enough { Ok(()) } else { self.walk() }
    }

    /// Parses the complete part of the remaining text.
    fn walk(&mut self) -> Result<(), Fault> {
        let rest = std::mem::take(&mut self.rest);
        let read = self.walk_through(&rest)?;
        self.rest = rest;
        self.rest.drain(..read);
        self.passed += read as u64;
        self.enough = 2 * self.rest.len();
        if self.rest.len() > LONGEST_EVENT && self.place != Place::Over {
            return Err(Fault::EventTooLarge { index: self.recorded.events, limit: LONGEST_EVENT });
        }
        Ok(())
    }

    /// Parses a text up to its last complete item; returns the length parsed.
    fn walk_through(&mut self, text: &[u8]) -> Result<usize, Fault> {
        let mut read = 0;
        loop {
            if matches!(self.place, Place::Events { .. }) {
                let events = self.packer.read(&text[read..]);
                read += self.events(events, text, read)?;
            }
            let place = self.place;
            if matches!(place, Place::Beginning | Place::Object) {
                read += self.properties(&text[read..], self.passed + read as u64)?;
            }
            if self.place == place {
                return Ok(read);
            }
        }
    }

    /// Parses the text outside the list of events, up to the list or the last complete item; returns the length parsed.
    fn properties(&mut self, text: &[u8], passed: u64) -> Result<usize, Fault> {
        let mut cursor = Cursor::new(text);
        loop {
            let start = cursor.at;
            let read = match self.place {
                Place::Beginning => self.begin(&mut cursor),
                Place::Object => self.property(&mut cursor),
                Place::Events { .. } | Place::Over => return Ok(start),
            };
            match read {
                Ok(()) => {}
                Err(Stop::End) => return Ok(start),
                Err(Stop::Bad) => return Err(self.unexpected(&cursor, passed)),
            }
        }
    }

    /// Fault for unexpected text.
    fn unexpected(&self, cursor: &Cursor<'_>, passed: u64) -> Fault {
        match cursor.unexpected(passed) {
            Fault::NotJson { offset, found } if self.recorded.events > 0 => {
                Fault::Garbled { events: self.recorded.events, offset, found }
            }
            fault => fault,
        }
    }

    fn begin(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        self.place = match cursor.next()? {
            b'{' => Place::Object,
            // Chrome also accepts a bare array of events.
            b'[' => Place::Events { is_all: true },
            _ => return Err(Stop::Bad),
        };
        self.has_events = self.place != Place::Object;
        cursor.at += 1;
        Ok(())
    }

    /// Reads a property of the outer object, up to the opening bracket of the list of events.
    fn property(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Stop> {
        match cursor.next()? {
            b'}' => self.place = Place::Over,
            b',' => {}
            b'"' => {
                let key = unescape(cursor.string()?);
                if cursor.next()? != b':' {
                    return Err(Stop::Bad);
                }
                cursor.at += 1;
                if cursor.next()? != b'[' || key != "traceEvents" {
                    let value = cursor.value()?;
                    if value.len() <= LONGEST_VALUE {
                        self.recorded.property(&key, value);
                    }
                    if self.found.len() < 8 {
                        self.found.push(habitat_base::text::clean(&key, 40));
                    }
                    return Ok(());
                }
                (self.place, self.has_events) = (Place::Events { is_all: false }, true);
            }
            _ => return Err(Stop::Bad),
        }
        cursor.at += 1;
        Ok(())
    }

    /// Adds the events of `text` from `start`; returns the bytes parsed.
    fn events(&mut self, events: Events, text: &[u8], start: usize) -> Result<usize, Fault> {
        let (length, end) = (events.length, events.end);
        self.recorded.add(events)?;
        match (end, self.place) {
            (End::Text, _) => {}
            (End::List, Place::Events { is_all: true }) => self.place = Place::Over,
            (End::List, _) => self.place = Place::Object,
            (End::Unexpected, _) => {
                let mut cursor = Cursor::new(text);
                cursor.at = start + length;
                return Err(self.unexpected(&cursor, self.passed));
            }
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kineto::collect::{Collector, Keep};

    /// Reads a text in pieces of this length, cut anywhere.
    fn in_pieces(text: &str, length: usize, ahead: bool) -> Result<Recorded, Fault> {
        let mut reader = Reader::new(None);
        for piece in text.as_bytes().chunks(length) {
            let events = ahead.then(|| Packer::default().read(piece));
            reader.take(piece, events).map_err(|error| error.fault)?;
        }
        reader.finish().map_err(|error| error.fault)
    }

    fn counts(text: &str) -> Result<(u64, u64, u64), Fault> {
        let whole = in_pieces(text, text.len().max(1), false)?;
        Ok((whole.events, whole.kept, whole.malformed.count))
    }

    const TRACE: &str = r#" {"a": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "}\"},{", "ts": 1, "dur": 2},
        null, {"ph": "X", "cat": "kernel", "ts": 3, "args": {"grid": [1, 2, 3], "correlation": 1}} ,
        {"ph": "X", "cat": "cpu_op", "name": }, {"x": {"y": []}}], "b" : [{}], "cuda_runtime_version": 12040 } "#;

    #[test]
    fn events_and_properties_come_apart() {
        assert_eq!(counts(TRACE).unwrap(), (4, 2, 1));
        assert_eq!(counts("[{}, {}]").unwrap(), (2, 0, 0));
        let whole = in_pieces(TRACE, TRACE.len(), false).unwrap();
        assert_eq!((whole.recorder.runtime.as_deref(), whole.bytes), (Some("12.4"), TRACE.trim_end().len() as u64));
    }

    /// The trace is the same however it is cut and whichever thread parses it.
    #[test]
    fn pieces_may_end_anywhere() {
        let records = |mut recorded: Recorded| {
            let mut collector = Collector::new(recorded.recorder.clone(), None);
            recorded.collect(&mut collector, &Keep::All).unwrap();
            let Recorded { events, bytes, malformed, devices, .. } = recorded;
            (
                format!("{:?} {:?} {devices:?}", collector.trace.ranges, collector.trace.work),
                events,
                bytes,
                malformed.index,
            )
        };
        let whole = records(in_pieces(TRACE, TRACE.len(), false).unwrap());
        for length in 1..TRACE.len() {
            for ahead in [false, true] {
                assert_eq!(records(in_pieces(TRACE, length, ahead).unwrap()), whole, "{length} {ahead}");
            }
        }
    }

    #[test]
    fn pieces_are_cut_where_events_begin() {
        let text = br#"{"traceEvents": [{"a": {"b": {}}}, {"c": [{"d": 1}, 2"#;
        assert_eq!(&text[cut(text)..], br#"{"c": [{"d": 1}, 2"#);
        assert_eq!(cut(b"no braces"), 9);
        let text = format!("[{}", r#"{"name": "an event", "ts": 1},"#.repeat(400_000));
        let (mut pieces, mut piece, mut again) = (Pieces::new(text.as_bytes()), Vec::new(), Vec::new());
        while pieces.next(&mut piece).unwrap() {
            assert!(again.is_empty() || piece.starts_with(br#"{"name""#));
            again.extend_from_slice(&piece);
        }
        assert!(again == text.as_bytes());
    }

    #[test]
    fn what_is_no_trace_is_told_apart() {
        assert!(matches!(
            counts(
                " 
"
            ),
            Err(Fault::Empty)
        ));
        assert!(matches!(counts("hello"), Err(Fault::NotJson { offset: 0, .. })));
        assert!(matches!(counts(r#"{"format": "x"}"#), Err(Fault::NotATrace { .. })));
        assert!(matches!(counts(r#"{"traceEvents": [{"a": 1}, :"#), Err(Fault::Garbled { events: 1, offset: 27, .. })));
        assert!(matches!(counts(r#"{"traceEvents": [:"#), Err(Fault::NotJson { offset: 17, .. })));
        let cut = r#"{"traceEvents": [{"a": 1}, {"b""#;
        let Err(Fault::Truncated { events: whole, bytes }) = counts(cut) else { panic!("not reported as cut off") };
        assert_eq!((whole, bytes), (1, cut.len() as u64));
        assert!(matches!(counts(r#"{"traceEvents": [{"a": 1}]"#), Err(Fault::Truncated { .. })));
    }

    #[test]
    fn an_event_without_end_is_given_up() {
        let mut reader = Reader::new(None);
        let mut taken = reader.take(br#"[{"a": 1}, {"b": ""#, None);
        let piece = vec![b'x'; PIECE];
        for _ in 0..LONGEST_EVENT / PIECE + 20 {
            if taken.is_err() {
                break;
            }
            taken = reader.take(&piece, None);
        }
        assert!(matches!(taken.unwrap_err().fault, Fault::EventTooLarge { index: 1, .. }));
    }
}
