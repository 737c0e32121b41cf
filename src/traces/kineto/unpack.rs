//! Unpacks events, the inverse of [`pack`](super::pack).

use super::event::{Category, LAUNCH};
use super::pack::{HAS_LAUNCH, HAS_SCALARS, HAS_SEQUENCE, HAS_TENSORS, KIND, KINDS, Last, OF_FORWARD, micros};
use crate::intern::NONE;
use crate::record::{RangeKind, WorkKind};

const fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Splits joined texts.
pub(super) fn apart<const N: usize>(key: &[u8]) -> [&[u8]; N] {
    let mut bytes = Bytes(key);
    std::array::from_fn(|_| bytes.text().unwrap_or_default())
}

/// The rest of packed bytes.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        Some(number)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(length as usize)
    }

    fn difference(&mut self, last: &mut u64) -> Option<u64> {
        *last = last.wrapping_add(unzigzag(self.number()?));
        Some(*last)
    }

    fn exact(&mut self) -> Option<f64> {
        Some(f64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }
}

/// Texts of a part in order of first use, each with its number in the trace.
#[derive(Default)]
pub(super) struct Texts<'a>(Vec<(&'a [u8], u32)>);

impl<'a> Texts<'a> {
    fn read(&mut self, bytes: &mut Bytes<'a>) -> Option<usize> {
        if let Some(known) = (bytes.number()? as usize).checked_sub(1) {
            return Some(known);
        }
        self.0.push((bytes.text()?, NONE));
        Some(self.0.len() - 1)
    }

    fn read_if(&mut self, has: bool, bytes: &mut Bytes<'a>) -> Option<usize> {
        if has { self.read(bytes) } else { None }
    }

    pub(super) fn text(&self, text: usize) -> &'a [u8] {
        self.0.get(text).map_or(b"", |(text, _)| text)
    }

    /// Number of a text in the trace; calls `number` until it has one.
    pub(super) fn number(&mut self, text: usize, number: impl FnOnce(&'a [u8]) -> u32) -> u32 {
        match self.0.get_mut(text) {
            Some((text, known)) => {
                if *known == NONE {
                    *known = number(text);
                }
                *known
            }
            None => NONE,
        }
    }
}

/// An unpacked record; texts are indices into the [`Texts`] of their kind.
pub(super) enum Record {
    Range(PackedRange),
    Launch(PackedLaunch),
    Work(PackedWork),
}

/// A packed [`Range`](crate::Range).
pub(super) struct PackedRange {
    pub(super) kind: RangeKind,
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) name: usize,
    pub(super) thread: usize,
    pub(super) tensors: Option<usize>,
    pub(super) scalars: Option<usize>,
    pub(super) sequence: i64,
    pub(super) of_forward: bool,
}

/// A packed [`Launch`](crate::Launch).
pub(super) struct PackedLaunch {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) name: usize,
    pub(super) thread: usize,
    pub(super) launch: Option<usize>,
    pub(super) correlation: u64,
}

/// A packed [`Work`](crate::Work).
pub(super) struct PackedWork {
    pub(super) kind: WorkKind,
    pub(super) start: f64,
    /// NaN for a kernel without a duration.
    pub(super) end: f64,
    pub(super) name: usize,
    pub(super) launch: Option<usize>,
    pub(super) correlation: u64,
    pub(super) device: u32,
    pub(super) stream: u32,
}

/// Iterates over the records of a part.
pub(super) struct Unpacker<'a> {
    bytes: Bytes<'a>,
    pub(super) names: Texts<'a>,
    pub(super) threads: Texts<'a>,
    pub(super) tensors: Texts<'a>,
    pub(super) scalars: Texts<'a>,
    pub(super) launches: Texts<'a>,
    last: Last,
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(packed: &'a [u8]) -> Self {
        let texts = Texts::default;
        Self {
            bytes: Bytes(packed),
            names: texts(),
            threads: texts(),
            tensors: texts(),
            scalars: texts(),
            launches: texts(),
            last: Last::default(),
        }
    }

    /// Splits the shapes, types and strides of a call.
    pub(super) fn arguments(key: &[u8]) -> [&[u8]; 3] {
        apart(key)
    }

    /// Splits the arguments that describe a launch.
    pub(super) fn launch(key: &[u8]) -> [&[u8]; LAUNCH] {
        apart(key)
    }

    pub(super) fn next(&mut self) -> Option<Record> {
        let bytes = &mut self.bytes;
        let flags = bytes.byte()?;
        let category = KINDS[usize::from(flags & KIND)];
        let start = match bytes.number()? {
            1 => bytes.exact()?,
            ticks => {
                self.last.start = self.last.start.wrapping_add(unzigzag(ticks >> 1));
                micros(self.last.start.cast_signed())
            }
        };
        let duration = match bytes.number()? {
            1 => bytes.exact()?,
            ticks => micros((ticks >> 1).cast_signed()),
        };
        let (end, name) = (start + duration, self.names.read(bytes)?);
        Some(match category {
            Category::Host(kind) => Record::Range(PackedRange {
                kind,
                start,
                end,
                name,
                thread: self.threads.read(bytes)?,
                tensors: self.tensors.read_if(flags & HAS_TENSORS != 0, bytes),
                scalars: self.scalars.read_if(flags & HAS_SCALARS != 0, bytes),
                sequence: match flags & HAS_SEQUENCE {
                    0 => -1,
                    _ => bytes.difference(&mut self.last.sequence)? as i64,
                },
                of_forward: flags & OF_FORWARD != 0,
            }),
            Category::Launch => Record::Launch(PackedLaunch {
                start,
                end,
                name,
                launch: self.launches.read_if(flags & HAS_LAUNCH != 0, bytes),
                thread: self.threads.read(bytes)?,
                correlation: bytes.difference(&mut self.last.correlation)?,
            }),
            Category::Device(kind) => Record::Work(PackedWork {
                kind,
                start,
                end,
                name,
                launch: self.launches.read_if(flags & HAS_LAUNCH != 0, bytes),
                correlation: bytes.difference(&mut self.last.correlation)?,
                device: bytes.number()? as u32,
                stream: bytes.number()? as u32,
            }),
            Category::Memory => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::{End, Packer, difference, put};
    use super::*;

    #[test]
    fn numbers_come_back() {
        let mut packed = Vec::new();
        let numbers = [0, 1, 127, 128, 300, 1 << 53, u64::MAX];
        let mut last = 0;
        for number in numbers {
            put(&mut packed, number);
            difference(&mut packed, &mut last, number);
        }
        let (mut bytes, mut last) = (Bytes(&packed), 0);
        for number in numbers {
            assert_eq!((bytes.number(), bytes.difference(&mut last)), (Some(number), Some(number)));
        }
        assert!(bytes.byte().is_none() && bytes.text().is_none());
    }

    #[test]
    fn texts_are_packed_once() {
        let event = |ts: &str| {
            format!(
                r#"{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": {ts}, "dur": 2.5,
                    "args": {{"Input Dims": [[2, 3], [3, 4]], "Sequence number": 7, "Fwd thread id": 1}}}},"#
            )
        };
        // Includes a time that ticks cannot hold exactly.
        let text = [event("1.001"), event("1712195495519689.3"), event("-5")].concat();
        let events = Packer::default().read(text.as_bytes());
        assert_eq!((events.kept, events.length, events.end), (3, text.len(), End::Text));
        let one = Packer::default().read(event("1.001").as_bytes()).packed.len();
        assert!(events.packed.len() < one + 40, "{} {one}", events.packed.len());
        let mut part = Unpacker::new(&events.packed);
        for start in [1.001, 1_712_195_495_519_689.3, -5.0] {
            let Some(Record::Range(range)) = part.next() else { panic!("no range") };
            assert_eq!((range.start, range.end, range.sequence, range.of_forward), (start, start + 2.5, 7, true));
            assert_eq!((part.names.text(range.name), part.threads.text(range.thread)), (&b"aten::mm"[..], &b"1/2"[..]));
            let [dims, types, strides] = Unpacker::arguments(part.tensors.text(range.tensors.unwrap()));
            assert_eq!((dims, types, strides), (&b"[[2, 3], [3, 4]]"[..], &b""[..], &b""[..]));
        }
        assert!(part.next().is_none());
    }
}
