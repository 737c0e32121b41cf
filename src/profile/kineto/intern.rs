//! Texts that repeat, stored once and named by a number.

use std::collections::HashMap;

use super::demangle;
use super::event::unescape;

/// No text.
pub(super) const NONE: u32 = 0;
/// Characters of a name that are kept: kernel names reach 100 kB of template arguments.
const NAME_WIDTH: usize = 512;
/// Bytes of a raw name that are looked at.
const NAME_BYTES: usize = 4 * NAME_WIDTH;
/// All texts of one pool together; beyond this, new texts are no longer told apart.
const POOL_BYTES: usize = 48 << 20;

/// A pool of texts; number 0 is the empty one.
#[derive(Debug)]
pub(super) struct Pool {
    numbers: HashMap<Box<[u8]>, u32>,
    texts: Vec<Box<str>>,
    bytes: usize,
    /// Texts that were not stored because the pool was full.
    pub(super) overflowed: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Self { numbers: HashMap::from([(Box::default(), NONE)]), texts: vec![Box::default()], bytes: 0, overflowed: 0 }
    }
}

impl Pool {
    /// The number of a name: control characters replaced, cut to a bounded length.
    pub(super) fn name(&mut self, raw: &[u8]) -> u32 {
        let raw = &raw[..raw.len().min(NAME_BYTES)];
        self.number(raw, |raw| crate::text::clean(&unescape(raw), NAME_WIDTH))
    }

    /// The number of a name that is not escaped, made fit as [`Self::name`] does.
    pub(super) fn plain(&mut self, raw: &str) -> u32 {
        let bytes = &raw.as_bytes()[..raw.len().min(NAME_BYTES)];
        self.number(bytes, |raw| crate::text::clean(&String::from_utf8_lossy(raw), NAME_WIDTH))
    }

    /// The number of a kernel's name: as in C++ where the trace has the linker's.
    pub(super) fn kernel(&mut self, raw: &[u8]) -> u32 {
        if !raw.starts_with(b"_Z") || raw.len() > NAME_BYTES {
            return self.name(raw);
        }
        self.number(raw, |raw| crate::text::clean(&demangle::kernel(&unescape(raw)), NAME_WIDTH))
    }

    /// The number of a text that is kept as it is.
    pub(super) fn raw(&mut self, raw: &[u8]) -> u32 {
        self.number(raw, |raw| String::from_utf8_lossy(raw).into_owned())
    }

    fn number(&mut self, raw: &[u8], text: impl FnOnce(&[u8]) -> String) -> u32 {
        if let Some(&number) = self.numbers.get(raw) {
            return number;
        }
        if self.bytes > POOL_BYTES {
            self.overflowed += 1;
            return NONE;
        }
        let number = self.texts.len() as u32;
        let text = text(raw).into_boxed_str();
        self.bytes += raw.len() + text.len() + 96;
        self.texts.push(text);
        self.numbers.insert(raw.into(), number);
        number
    }

    /// The text of a number that this pool gave.
    pub(super) fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_safe_to_show() {
        let mut pool = Pool::default();
        let long = pool.name(&vec![b'k'; 100_000]);
        assert_eq!(pool.text(long).chars().count(), NAME_WIDTH);
        let escape = pool.name(br"red\u001b[31m");
        assert_eq!(pool.text(escape), "red\u{fffd}[31m");
        assert_eq!(pool.name(br"red\u001b[31m"), escape);
        assert_eq!(pool.name(b""), NONE);
    }
}
