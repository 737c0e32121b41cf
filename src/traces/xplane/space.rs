//! Planes of a recording: one per GPU, one or more for the host, one with the programs.
//!
//! Field numbers are those of `xplane.proto` in the XLA project (`third_party/tsl/tsl/profiler/protobuf/xplane.proto`).

use std::collections::HashMap;

use super::wire::{Message, Room, Value};
use crate::Fault;

/// A named value of an event, a plane or a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stat<'a> {
    Real(f64),
    Whole(i64),
    Text(Message<'a>),
    /// Index into the plane's own table of names.
    Name(u64),
}

/// A plane with parsed tables and unparsed lines.
#[derive(Debug)]
pub(super) struct Plane<'a> {
    pub(super) name: String,
    pub(super) lines: Vec<Message<'a>>,
    /// Kinds of events: name, and the values common to all events of the kind.
    pub(super) kinds: HashMap<u64, Kind<'a>>,
    /// Names of values (and values that are names).
    pub(super) names: HashMap<u64, String>,
    pub(super) stats: Vec<(u64, Stat<'a>)>,
}

#[derive(Debug, Default)]
pub(super) struct Kind<'a> {
    pub(super) name: String,
    pub(super) stats: Vec<(u64, Stat<'a>)>,
}

/// One event; times in picoseconds since the start of the line.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub(super) kind: u64,
    pub(super) offset: i64,
    pub(super) duration: i64,
    pub(super) stats: Vec<(u64, Stat<'a>)>,
}

/// Header of a line.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) id: u64,
    pub(super) name: String,
    /// Start in nanoseconds.
    pub(super) start: i64,
    message: Message<'a>,
}

/// Maximum number of planes, lines, kinds of events, names and values of a recording: a few hundred megabytes. Without
/// a limit, a 2 GiB file of two-byte parts would exhaust memory.
const PARTS: usize = 1 << 22;
/// Maximum number of values of an event or its kind; the reader searches them for each event.
const VALUES: usize = 256;

/// Limit for the parts of a recording's planes.
pub(super) const fn room() -> Room {
    Room::new("planes, lines, names and values", PARTS)
}

/// Messages of the planes.
pub(super) fn planes<'a>(bytes: &'a [u8], room: &mut Room) -> Result<Vec<Message<'a>>, Fault> {
    let mut planes = Vec::new();
    for field in (Message { bytes, offset: 0 }).fields() {
        if let (1, value @ Value::Bytes(_)) = field? {
            room.take(1)?;
            planes.push(value.message());
        }
    }
    Ok(planes)
}

impl<'a> Plane<'a> {
    pub(super) fn read(message: Message<'a>, room: &mut Room) -> Result<Self, Fault> {
        let mut plane = Self {
            name: String::new(),
            lines: Vec::new(),
            kinds: HashMap::new(),
            names: HashMap::new(),
            stats: Vec::new(),
        };
        for field in message.fields() {
            let field = field?;
            if (3..=6).contains(&field.0) {
                room.take(1)?;
            }
            match field {
                (2, value) => plane.name = value.text(),
                (3, value) => plane.lines.push(value.message()),
                (4, value) => {
                    let (key, kind) = entry(value)?;
                    let mut read = Kind::default();
                    for field in kind.fields() {
                        match field? {
                            (2, value) => read.name = value.text(),
                            (5, value) => {
                                room.take(1)?;
                                add(&mut read.stats, value)?;
                            }
                            _ => {}
                        }
                    }
                    plane.kinds.insert(key, read);
                }
                (5, value) => {
                    let (key, name) = entry(value)?;
                    let name = name.first(2)?.map_or_else(String::new, Value::text);
                    plane.names.insert(key, name);
                }
                (6, value) => plane.stats.extend(stat(value.message())?),
                _ => {}
            }
        }
        Ok(plane)
    }

    /// Number of a value name.
    pub(super) fn number_of(&self, name: &str) -> Option<u64> {
        self.names.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
    }

    /// A value of the plane itself.
    pub(super) fn stat(&self, name: &str) -> Option<Stat<'a>> {
        let number = self.number_of(name)?;
        self.stats.iter().find(|(key, _)| *key == number).map(|(_, stat)| *stat)
    }

    /// Text of a value; numbers are formatted.
    pub(super) fn text(&self, stat: Stat<'a>) -> String {
        match stat {
            Stat::Name(number) => self.names.get(&number).cloned().unwrap_or_default(),
            Stat::Text(text) => String::from_utf8_lossy(text.bytes).into_owned(),
            Stat::Whole(number) => number.to_string(),
            Stat::Real(number) => number.to_string(),
        }
    }

    pub(super) fn line(message: Message<'a>) -> Result<Line<'a>, Fault> {
        let mut line = Line { id: 0, name: String::new(), start: 0, message };
        for field in message.fields() {
            match field? {
                (1, value) => line.id = value.number(),
                (2, value) => line.name = value.text(),
                (3, value) => line.start = value.signed(),
                _ => {}
            }
        }
        Ok(line)
    }
}

impl<'a> Line<'a> {
    /// Messages of the events; the line was already parsed once without errors.
    pub(super) fn events(&self) -> impl Iterator<Item = Message<'a>> + use<'a> {
        self.message.fields().flatten().filter(|(number, _)| *number == 4).map(|(_, value)| value.message())
    }
}

impl<'a> Event<'a> {
    pub(super) fn read(message: Message<'a>) -> Result<Self, Fault> {
        let mut event = Self { kind: 0, offset: 0, duration: 0, stats: Vec::new() };
        for field in message.fields() {
            match field? {
                (1, value) => event.kind = value.number(),
                (2, value) => event.offset = value.signed(),
                (3, value) => event.duration = value.signed(),
                (4, value) => add(&mut event.stats, value)?,
                _ => {}
            }
        }
        Ok(event)
    }
}

impl Stat<'_> {
    pub(super) fn whole(self) -> Option<i64> {
        match self {
            Self::Whole(number) => Some(number),
            Self::Real(number) if number.fract() == 0.0 && number.abs() < 1e18 => Some(number as i64),
            _ => None,
        }
    }
}

/// An entry of a table: its key and its message.
fn entry(value: Value<'_>) -> Result<(u64, Message<'_>), Fault> {
    let (mut key, mut content) = (0, Message { bytes: &[], offset: value.message().offset });
    for field in value.message().fields() {
        match field? {
            (1, value) => key = value.number(),
            (2, value) => content = value.message(),
            _ => {}
        }
    }
    Ok((key, content))
}

/// Adds a value of an event or of its kind.
fn add<'a>(stats: &mut Vec<(u64, Stat<'a>)>, value: Value<'a>) -> Result<(), Fault> {
    if stats.len() >= VALUES {
        return Err(Fault::TooMany { what: "values of an event", most: VALUES });
    }
    stats.extend(stat(value.message())?);
    Ok(())
}

/// Parses a value and the number of its name.
pub(super) fn stat(message: Message<'_>) -> Result<Option<(u64, Stat<'_>)>, Fault> {
    let (mut name, mut found) = (0, None);
    for field in message.fields() {
        match field? {
            (1, value) => name = value.number(),
            (2, Value::Eight(bytes)) => found = Some(Stat::Real(f64::from_le_bytes(bytes))),
            (3 | 4, value) => found = Some(Stat::Whole(value.signed())),
            (5 | 6, value) => found = Some(Stat::Text(value.message())),
            (7, value) => found = Some(Stat::Name(value.number())),
            _ => {}
        }
    }
    Ok(found.map(|found| (name, found)))
}
