//! Values that repeat, stored once and named by a number.

use std::collections::HashMap;
use std::fmt::Debug;

use super::arguments::{Scalars, Tensors};

/// No value: the empty one.
pub(crate) const NONE: u32 = 0;
/// Characters of a name that are kept: kernel names reach 100 kB of template arguments.
const NAME_WIDTH: usize = 512;
/// Bytes of a raw name that are looked at.
pub(super) const NAME_BYTES: usize = 4 * NAME_WIDTH;
/// All values of one table together; beyond this, new values are no longer told apart.
const TABLE_BYTES: usize = 48 << 20;

/// What a table can hold.
pub(crate) trait Internable: Default {
    /// Memory it takes, about.
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

/// A table of values by the bytes that they were read from; number 0 is the empty value.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    numbers: HashMap<Box<[u8]>, u32>,
    list: Vec<T>,
    bytes: usize,
    /// Values that were not stored because the table was full.
    pub(crate) overflowed: u64,
}

impl<T: Default> Default for Interned<T> {
    fn default() -> Self {
        Self { numbers: HashMap::from([(Box::default(), NONE)]), list: vec![T::default()], bytes: 0, overflowed: 0 }
    }
}

impl<T: Internable> Interned<T> {
    /// The number of the value that `read` makes of `key`, which it is asked for once.
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

    /// The value of a number that this table gave.
    pub(crate) fn get(&self, number: u32) -> &T {
        &self.list[number as usize]
    }
}

impl Interned<Box<str>> {
    /// The number of a name that `decode` makes of its bytes: control characters replaced, cut
    /// to a bounded length.
    pub(crate) fn name(&mut self, raw: &[u8], decode: impl FnOnce(&[u8]) -> String) -> u32 {
        let raw = &raw[..raw.len().min(NAME_BYTES)];
        self.number(raw, |raw| habitat_base::text::clean(&decode(raw), NAME_WIDTH).into_boxed_str())
    }

    /// The number of a name that stands as it is.
    pub(crate) fn plain(&mut self, raw: &str) -> u32 {
        self.name(raw.as_bytes(), |raw| String::from_utf8_lossy(raw).into_owned())
    }
}

impl<T: Internable + Debug> Interned<T> {
    /// The number of a value that is known without a text.
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
