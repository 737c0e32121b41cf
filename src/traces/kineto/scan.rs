//! Walks a trace of any size, piece by piece.
//!
//! A trace is one JSON object whose `traceEvents` array holds nearly all of it. The text is cut into pieces where an
//! event seems to begin. The events of a piece can then be read by another thread; where the piece before did not end
//! just there, what that thread found is left aside, and the text is read again from where it did.

use std::io::{self, Read};

use super::json::{Cursor, Stop, unescape};
use super::pack::{End, Events, Packer};
use super::{Recorded, Spill};
use crate::{Fault, Format, Progress, TraceError};

/// Bytes of a piece.
const PIECE: usize = 4 << 20;
/// No profiler writes an event near this size; kernel names reach about 100 kB.
const LONGEST_EVENT: usize = 64 << 20;
/// Top-level values up to this size are handed out (device properties, versions).
const LONGEST_VALUE: usize = 4 << 20;
/// How far back from the end of a piece the beginning of an event is looked for.
const LOOK_BACK: usize = 1 << 16;

/// The pieces of a text.
#[derive(Debug)]
pub struct Pieces<R> {
    text: R,
    /// What was read of the next piece.
    rest: Vec<u8>,
}

impl<R: Read> Pieces<R> {
    /// Those of the text that `text` gives, decompressed.
    pub fn new(text: R) -> Self {
        Self { text, rest: Vec::new() }
    }

    /// Puts the next piece into `piece`; false at the end of the text.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn next(&mut self, piece: &mut Vec<u8>) -> io::Result<bool> {
        let start = self.rest.len();
        // Its length is kept: only the first time there are zeros to be written.
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

/// Where in the trace the text goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Beginning,
    /// In the outer object.
    Object,
    /// In the list of events, which is the whole trace or a part of the object.
    Events {
        is_all: bool,
    },
    /// After the trace.
    Over,
}

/// Reads the text of one trace, given piece by piece.
#[derive(Debug)]
pub struct Reader {
    recorded: Recorded,
    place: Place,
    /// Text that was given and not read, since it ends in the middle of something.
    rest: Vec<u8>,
    /// It is looked at again when there is so much of it, so that long events are not read for ever.
    enough: usize,
    /// Bytes before `rest`.
    passed: u64,
    found: Vec<String>,
    has_events: bool,
    packer: Packer,
}

impl Reader {
    /// A reader that has read nothing; of a long trace it keeps a part in a temporary file, where `spill` makes one.
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

    /// How much was read.
    pub fn progress(&self) -> Progress {
        Progress { bytes: self.passed, events: self.recorded.events }
    }

    /// Whether the trace is over, whatever comes after it.
    pub fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    /// Takes the next piece, and `events`, what [`Packer::read`] makes of it, if somebody has asked.
    ///
    /// # Errors
    /// [`TraceError`] where the text is no trace.
    pub fn take(&mut self, piece: &[u8], events: Option<Events>) -> Result<(), TraceError> {
        self.add(piece, events).map_err(|fault| Format::Kineto.error(fault))
    }

    /// What was recorded, at the end of the text.
    ///
    /// # Errors
    /// [`TraceError`] where the text is no trace, or only a part of one.
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

    /// The error that reading the text failed here.
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

    /// Reads as much of the rest as is whole.
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

    /// Reads a text as far as it is whole: how far that is.
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

    /// Reads what is around the list of events, up to it or as far as it is whole: how far that is.
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

    /// The fault of text that does not belong there.
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
            // Chrome also reads a bare array of events.
            b'[' => Place::Events { is_all: true },
            _ => return Err(Stop::Bad),
        };
        self.has_events = self.place != Place::Object;
        cursor.at += 1;
        Ok(())
    }

    /// Reads a property of the outer object, up to the bracket of the list of events.
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

    /// Takes what was read of `text` from `start` on, between two events: how many bytes that were.
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

    /// Reads a text in pieces of that length, wherever they are cut.
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

    /// Whatever a piece holds, and whoever read it: the trace is the same.
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
        let Err(Fault::Truncated { events: whole, bytes }) = counts(cut) else { panic!("not told as cut off") };
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
