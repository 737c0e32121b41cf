//! The wire format of protocol buffers, as far as reading needs it.
//!
//! Written by hand: a message is a sequence of fields, and a field is a number with one of four kinds of value.
//! Unneeded fields are skipped. An error names the byte of the file where the data is malformed. A library that decodes
//! whole messages (prost) holds the recording a second time as objects, many times its size for small events, and does
//! not know the byte of a fault. Source: protobuf.dev/programming-guides/encoding.

use crate::Fault;

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Number(u64),
    Eight([u8; 8]),
    Bytes(Message<'a>),
    Four,
}

impl<'a> Value<'a> {
    /// A whole number; 0 for other kinds.
    pub(super) fn number(self) -> u64 {
        if let Self::Number(number) = self { number } else { 0 }
    }

    /// A signed whole number.
    pub(super) fn signed(self) -> i64 {
        self.number().cast_signed()
    }

    /// A message; empty for other kinds.
    pub(super) fn message(self) -> Message<'a> {
        if let Self::Bytes(message) = self { message } else { Message { bytes: &[], offset: 0 } }
    }

    /// A text; invalid UTF-8 becomes U+FFFD.
    pub(super) fn text(self) -> String {
        String::from_utf8_lossy(self.message().bytes).into_owned()
    }

    /// Appends whole numbers: a single one or a packed list.
    pub(super) fn numbers(self, into: &mut Vec<u64>) -> Result<(), Fault> {
        match self {
            Self::Number(number) if into.len() < LIST => into.push(number),
            Self::Bytes(message) => {
                let mut reader = Fields { message, at: 0 };
                while reader.at < message.bytes.len() && into.len() < LIST {
                    into.push(reader.number()?);
                }
            }
            Self::Number(_) | Self::Eight(_) | Self::Four => {}
        }
        Ok(())
    }
}

/// Maximum length of a list of numbers.
const LIST: usize = 1 << 16;

/// Remaining number of message parts that may be held: a part of two bytes in the file can take a hundred in memory.
#[derive(Debug)]
pub(super) struct Room {
    what: &'static str,
    most: usize,
    left: usize,
}

impl Room {
    pub(super) const fn new(what: &'static str, most: usize) -> Self {
        Self { what, most, left: most }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(count).ok_or(Fault::TooMany { what: self.what, most: self.most })?;
        Ok(())
    }
}

/// A message within a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Message<'a> {
    pub(super) bytes: &'a [u8],
    /// Byte offset in the file.
    pub(super) offset: usize,
}

impl<'a> Message<'a> {
    pub(super) fn fields(self) -> Fields<'a> {
        Fields { message: self, at: 0 }
    }

    /// First field with this number.
    pub(super) fn first(self, number: u32) -> Result<Option<Value<'a>>, Fault> {
        for field in self.fields() {
            let (found, value) = field?;
            if found == number {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

/// Iterates over the fields of a message.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    message: Message<'a>,
    at: usize,
}

impl<'a> Fields<'a> {
    fn fault(&self, problem: &'static str) -> Fault {
        Fault::Damaged { offset: self.message.offset + self.at, problem }
    }

    fn number(&mut self) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let Some(&byte) = self.message.bytes.get(self.at) else {
                return Err(self.fault("the message ends within a number"));
            };
            self.at += 1;
            // The tenth byte holds one bit.
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.fault("a number of more than ten bytes"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.message.bytes.len());
        let Some(end) = end else { return Err(self.fault("a field longer than its message")) };
        let bytes = &self.message.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Fault> {
        let key = self.number()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0);
        let Some(number) = number else { return Err(self.fault("a field without a number")) };
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            1 => {
                let mut eight = [0; 8];
                eight.copy_from_slice(self.take(8)?);
                Value::Eight(eight)
            }
            2 => {
                let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
                let offset = self.message.offset + self.at;
                Value::Bytes(Message { bytes: self.take(length)?, offset })
            }
            5 => {
                self.take(4)?;
                Value::Four
            }
            _ => return Err(self.fault("an unknown kind of field")),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.message.bytes.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.message.bytes.len();
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Fault> {
        Message { bytes, offset: 100 }.fields().collect()
    }

    #[test]
    fn fields_of_every_kind() {
        // Example from the encoding's documentation: field 1 is 150.
        assert_eq!(all(&[0x08, 0x96, 0x01]).unwrap(), [(1, Value::Number(150))]);
        let text = all(&[0x12, 0x02, b'h', b'i', 0x1d, 0, 0, 0, 0, 0x21, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(text[0].1.text(), "hi");
        assert_eq!(text[0].1.message().offset, 102);
        assert_eq!((text[1], text[2].0), ((3, Value::Four), 4));
        let mut numbers = Vec::new();
        all(&[0x1a, 0x03, 0x05, 0x96, 0x01]).unwrap()[0].1.numbers(&mut numbers).unwrap();
        assert_eq!(numbers, [5, 150]);
        assert_eq!(all(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).unwrap()[0].1.signed(), -1);
    }

    #[test]
    fn faults_name_their_byte() {
        let offset = |bytes: &[u8]| match all(bytes) {
            Err(Fault::Damaged { offset, .. }) => offset,
            other => panic!("{other:?}"),
        };
        assert_eq!(offset(&[0x08]), 101);
        assert_eq!(offset(&[0x12, 0x05, b'x']), 102);
        assert!(all(&[0x0b]).is_err());
        assert!(all(&[0x00, 0x00]).is_err());
        assert!(all(&[0xff; 12]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut numbers = Vec::new();
            for (_, value) in (Message { bytes: &bytes, offset: 0 }).fields().flatten() {
                let _ = value.numbers(&mut numbers);
                let _ = value.text();
            }
        }
    }
}
