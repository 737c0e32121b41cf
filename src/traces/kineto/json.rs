//! Walks the JSON of a trace without building a tree.

use crate::Fault;

/// Reason why a walk stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The text ends within a token; more of it may follow.
    End,
    /// Unexpected text.
    Bad,
}

/// Maximum length of numbers and words in bytes.
const LONGEST_WORD: usize = 4096;

/// Class of a byte outside of strings, as bits that a search can combine.
const SPACE: u8 = 1;
const QUOTE: u8 = 1 << 1;
const OPEN: u8 = 1 << 2;
const CLOSE: u8 = 1 << 3;
/// A comma or a colon.
const BETWEEN: u8 = 1 << 4;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c => SPACE,
            b'"' => QUOTE,
            b'{' | b'[' => OPEN,
            b'}' | b']' => CLOSE,
            b',' | b':' => BETWEEN,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

const fn class(byte: u8) -> u8 {
    CLASSES[byte as usize]
}

/// Position in a text. A method that fails leaves it somewhere within the text it read, unless documented otherwise.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn here(&self) -> Result<u8, Stop> {
        self.text.get(self.at).copied().ok_or(Stop::End)
    }

    /// The rest of the text.
    fn rest(&self) -> &'a [u8] {
        &self.text[self.at.min(self.text.len())..]
    }

    /// Moves to the next byte of one of these classes.
    fn find(&mut self, classes: u8) -> Result<u8, Stop> {
        let rest = self.rest();
        let found = rest.iter().position(|byte| class(*byte) & classes != 0).ok_or(Stop::End)?;
        self.at += found;
        Ok(class(rest[found]))
    }

    /// Moves to the next byte that is not white space and returns it.
    pub(super) fn next(&mut self) -> Result<u8, Stop> {
        loop {
            let byte = self.here()?;
            if class(byte) != SPACE {
                return Ok(byte);
            }
            self.at += 1;
        }
    }

    /// Reads a string from its opening quote; returns the text between the quotes, still escaped.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Stop> {
        let start = self.at + 1;
        self.at = start;
        loop {
            self.at += quote_or_escape(self.rest());
            if self.here()? == b'"' {
                self.at += 1;
                return Ok(&self.text[start..self.at - 1]);
            }
            self.at += 2;
        }
    }

    /// Reads an object or array from its opening bracket, whatever it contains; returns its text.
    pub(super) fn balanced(&mut self) -> Result<&'a [u8], Stop> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.find(QUOTE | OPEN | CLOSE)? {
                QUOTE => {
                    self.string()?;
                    continue;
                }
                OPEN => depth += 1,
                _ => depth = depth.saturating_sub(1),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(&self.text[start..self.at]);
            }
        }
    }

    /// Reads a value; returns its text, including the quotes of a string. Does not move if there is no value.
    pub(super) fn value(&mut self) -> Result<&'a [u8], Stop> {
        let start = self.at;
        match class(self.here()?) {
            QUOTE => {
                self.string()?;
            }
            OPEN => return self.balanced(),
            _ => {
                let found = self.find(SPACE | QUOTE | OPEN | CLOSE | BETWEEN);
                let is_word = (1..=LONGEST_WORD).contains(&(self.at - start));
                match found {
                    Ok(SPACE | CLOSE | BETWEEN) if is_word => {}
                    Err(stop) if self.rest().len() <= LONGEST_WORD => return Err(stop),
                    _ => {
                        self.at = start;
                        return Err(Stop::Bad);
                    }
                }
            }
        }
        Ok(&self.text[start..self.at])
    }

    /// Reads an object from its opening brace; calls `field` with each key, which must consume the value.
    pub(super) fn fields(
        &mut self,
        mut field: impl FnMut(&'a [u8], &mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.at += 1;
        loop {
            match self.next()? {
                b'"' => {
                    let key = self.string()?;
                    if self.next()? != b':' {
                        return Err(Stop::Bad);
                    }
                    self.at += 1;
                    self.next()?;
                    field(key, self)?;
                }
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(Stop::Bad),
            }
        }
    }

    /// Error for the unexpected text at this position, `passed` bytes after the beginning of the file.
    pub(super) fn unexpected(&self, passed: u64) -> Fault {
        let rest = &self.text[self.at..self.text.len().min(self.at + 16)];
        let found = habitat_base::text::clean(&String::from_utf8_lossy(rest), 12);
        Fault::NotJson { offset: passed + self.at as u64, found }
    }
}

/// Number of bytes before the first quote or backslash, or the length of the text.
fn quote_or_escape(text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = equal(word, b'"') | equal(word, b'\\');
        if found != 0 {
            return 8 * number + found.trailing_zeros() as usize / 8;
        }
    }
    let found = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    text.len() - rest.len() + found.unwrap_or(rest.len())
}

/// Sets the highest bit of each byte equal to `byte`; bits above the lowest match may be wrong.
const fn equal(word: u64, byte: u8) -> u64 {
    const LOW: u64 = u64::from_le_bytes([1; 8]);
    let differs = word ^ (LOW * byte as u64);
    differs.wrapping_sub(LOW) & !differs & (LOW << 7)
}

/// Content of a string, or the text itself if it is not a string.
pub(super) fn unquote(value: &[u8]) -> &[u8] {
    match value {
        [b'"', content @ .., b'"'] => content,
        _ => value,
    }
}

/// Parses digits with at most one point: the number without the point, and the count of digits after it. `None` for
/// other notations, or if an `f64` cannot hold the number without the point exactly.
fn decimal(value: &[u8]) -> Option<(u64, usize)> {
    if !(1..=17).contains(&value.len()) || value[0] == b'.' || value[value.len() - 1] == b'.' {
        return None;
    }
    let (mut number, mut point) = (0_u64, None);
    for (at, byte) in value.iter().enumerate() {
        match byte {
            b'0'..=b'9' => number = 10 * number + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(at),
            _ => return None,
        }
    }
    (number <= EXACT).then(|| (number, point.map_or(0, |at| value.len() - 1 - at)))
}

/// Largest whole number up to which all are exact as `f64`.
const EXACT: u64 = 1 << 53;

/// Powers of ten that an `f64` holds exactly.
const TENS: [f64; 17] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16];

/// Parses a number, also inside a string; accepts NaN and infinities.
pub(super) fn number(value: &[u8]) -> Option<f64> {
    let value = unquote(value);
    // The quotient of two exact numbers is rounded once, like the decimal number itself.
    if let Some((number, decimals)) = decimal(value) {
        return Some(number as f64 / TENS[decimals]);
    }
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// Ticks per microsecond: profilers write nanoseconds.
pub(super) const TICKS: f64 = 1000.0;

/// Ticks of a time in microseconds, if exact: at most 2^53 in magnitude, so that ticks divided by [`TICKS`] round like
/// the decimal number.
pub(super) fn ticks(value: &[u8]) -> Option<i64> {
    let digits = value.strip_prefix(b"-");
    let (number, decimals) = decimal(digits.unwrap_or(value))?;
    let ticks = number.checked_mul(10_u64.pow(3_u32.checked_sub(decimals as u32)?))?;
    let ticks = i64::try_from(ticks).ok().filter(|_| ticks <= EXACT)?;
    Some(if digits.is_some() { -ticks } else { ticks })
}

/// Parses a whole number from 0, also in floating-point notation.
pub(super) fn whole(value: &[u8]) -> Option<u64> {
    let value = unquote(value);
    if let Some((number, 0)) = decimal(value) {
        return Some(number);
    }
    let text = std::str::from_utf8(value).ok()?.trim();
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && (0.0..1e18).contains(&number)).then_some(number as u64)
    })
}

/// Parses three extents, such as `[64, 1, 1]`.
pub(super) fn extents(value: &[u8]) -> Option<[u32; 3]> {
    let text = std::str::from_utf8(value).ok()?.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut parts = text.split(',').map(|part| part.trim().parse().ok());
    let extents = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(extents)
}

/// Decodes the content of a JSON string; invalid parts become U+FFFD.
pub(super) fn unescape(content: &[u8]) -> String {
    let text = String::from_utf8_lossy(content);
    if !text.contains('\\') {
        return text.into_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match rest.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('u') => out.push(unicode(&mut rest)),
            Some(plain) => out.push(plain),
            None => out.push('\u{fffd}'),
        }
    }
    out
}

/// Decodes the rest of `\uXXXX` after its first two characters.
fn unicode(rest: &mut std::str::Chars<'_>) -> char {
    let code = |chars: &mut std::str::Chars<'_>| -> Option<u32> {
        let digits = chars.as_str().get(..4)?;
        let code = u32::from_str_radix(digits, 16).ok()?;
        chars.nth(3);
        Some(code)
    };
    let Some(high) = code(rest) else { return '\u{fffd}' };
    if (0xd800..0xdc00).contains(&high) && rest.as_str().starts_with("\\u") {
        let mut ahead = rest.clone();
        ahead.nth(1);
        if let Some(low @ 0xdc00..0xe000) = code(&mut ahead) {
            *rest = ahead;
            return char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)).unwrap_or('\u{fffd}');
        }
    }
    char::from_u32(high).unwrap_or('\u{fffd}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_decode() {
        assert_eq!(unescape(br#"a\"\\\/\n\u00e9\ud83d\ude00\ud83dx\u12"#), "a\"\\/\né😀\u{fffd}x\u{fffd}12");
    }

    #[test]
    fn numbers_are_read_as_far_as_they_are_numbers() {
        assert_eq!(whole(b"\"12\""), Some(12));
        assert_eq!(whole(b"1e3"), Some(1000));
        assert_eq!(whole(b"-1"), None);
        assert_eq!(whole(b"18446744073709551615"), Some(u64::MAX));
        assert!(number(b"NaN").unwrap().is_nan());
        assert_eq!(extents(b"[1, 2]"), None);
        assert_eq!(extents(b"[-1, 2, 3]"), None);
        for bad in [&b""[..], b".", b"1.2.3", b"1-2", b"\"", b"1_0"] {
            assert_eq!(number(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn values_end_where_they_end() {
        let value = |text: &'static str| Cursor::new(text.as_bytes()).value().map(<[u8]>::len);
        for (text, length) in [
            ("12,", 2),
            ("-1.5e3 ", 6),
            ("null}", 4),
            (r#""a\"b\\""#, 8),
            (r#"{"a": [1, {"b": "]}"}]} "#, 23),
            (r#""0123456789abcdef\"0123456789abcdef""#, 36),
        ] {
            assert_eq!(value(text), Ok(length), "{text}");
        }
        for cut in ["", "12", "\"abc", "\"abc\\", "[1, 2", "{\"a\": \"]}", "\"0123456\\\""] {
            assert_eq!(value(cut), Err(Stop::End), "{cut}");
        }
        for bad in [",", ":", "}", "1{", "a\"", "1[2]"] {
            assert_eq!(value(bad), Err(Stop::Bad), "{bad}");
        }
        let long = vec![b'1'; LONGEST_WORD + 1];
        assert_eq!(Cursor::new(&long).value(), Err(Stop::Bad));
    }

    proptest::proptest! {
        /// The fast path gives the same number and the same ticks.
        #[test]
        fn decimal_numbers_are_those_of_the_standard_library(text in r"-?[0-9]{1,16}(\.[0-9]{1,9})?") {
            let expected: f64 = text.parse().unwrap();
            proptest::prop_assert_eq!(number(text.as_bytes()).map(f64::to_bits), Some(expected.to_bits()));
            if let Some(ticks) = ticks(text.as_bytes()) {
                proptest::prop_assert_eq!(ticks as f64 / TICKS, expected);
            }
        }
    }
}
