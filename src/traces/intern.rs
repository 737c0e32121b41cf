//! Interned values: each repeated value is stored once, under a number.

use std::collections::HashMap;
use std::fmt::Debug;

use super::arguments::{Scalars, Tensors};

/// Number of the empty value.
pub(crate) const NONE: u32 = 0;
/// Maximum characters of a name: kernel names reach 100 kB of template arguments.
const NAME_WIDTH: usize = 512;
/// Maximum bytes of a raw name that are read.
pub(super) const NAME_BYTES: usize = 4 * NAME_WIDTH;
/// Maximum size of a table in bytes; beyond it, new values get the number [`NONE`].
const TABLE_BYTES: usize = 48 << 20;

/// A value that a table can hold.
pub(crate) trait Internable: Default {
    /// Approximate memory in bytes.
    fn bytes(&self) -> usize;
}

impl Internable for Box<str> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Internable for Tensors {
    fn bytes(&self) -> usize {
        self.shapes.iter().map(|shape| 48 + 8 * shape.len()).sum()
    }
}

impl Internable for Scalars {
    fn bytes(&self) -> usize {
        32 * self.len()
    }
}

/// Table of values, keyed by the bytes they were parsed from; number 0 is the empty value.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    numbers: HashMap<Box<[u8]>, u32>,
    list: Vec<T>,
    bytes: usize,
    /// Values not stored because the table was full.
    pub(crate) overflowed: u64,
}

impl<T: Default> Default for Interned<T> {
    fn default() -> Self {
        Self { numbers: HashMap::from([(Box::default(), NONE)]), list: vec![T::default()], bytes: 0, overflowed: 0 }
    }
}

impl<T: Internable> Interned<T> {
    /// Number of the value for `key`; calls `read` to parse it on first use.
    pub(crate) fn number(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> u32 {
        if let Some(&number) = self.numbers.get(key) {
            return number;
        }
        if self.bytes > TABLE_BYTES {
            self.overflowed += 1;
            return NONE;
        }
        let number = self.list.len() as u32;
        let value = read(key);
        self.bytes += key.len() + value.bytes() + 96;
        self.list.push(value);
        self.numbers.insert(key.into(), number);
        number
    }

    /// Value of a number from this table.
    pub(crate) fn get(&self, number: u32) -> &T {
        &self.list[number as usize]
    }
}

impl Interned<Box<str>> {
    /// Number of a name that `decode` makes of its bytes, with control characters replaced and its length limited.
    pub(crate) fn name(&mut self, raw: &[u8], decode: impl FnOnce(&[u8]) -> String) -> u32 {
        let raw = &raw[..raw.len().min(NAME_BYTES)];
        self.number(raw, |raw| habitat_base::text::clean(&decode(raw), NAME_WIDTH).into_boxed_str())
    }

    /// Number of a name that needs no decoding.
    pub(crate) fn plain(&mut self, raw: &str) -> u32 {
        self.name(raw.as_bytes(), |raw| String::from_utf8_lossy(raw).into_owned())
    }
}

impl<T: Internable + Debug> Interned<T> {
    /// Number of a value without source text.
    pub(crate) fn value(&mut self, value: T) -> u32 {
        self.number(format!("{value:?}").as_bytes(), |_| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_safe_to_show() {
        let mut names = Interned::default();
        let long = names.plain(&"k".repeat(100_000));
        assert_eq!(names.get(long).chars().count(), NAME_WIDTH);
        let escape = names.plain("red\u{1b}[31m");
        assert_eq!(&**names.get(escape), "red\u{fffd}[31m");
        assert_eq!(names.plain("red\u{1b}[31m"), escape);
        assert_eq!(names.plain(""), NONE);
    }
}
