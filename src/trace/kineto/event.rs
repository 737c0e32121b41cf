//! One event of a trace, read from its text without building a tree.
//!
//! Values that are not needed are passed over, and those that repeat (names, shapes) stay
//! byte slices until they have been interned, so most of a trace is never copied.

/// Passes the value that starts at `at`; the position after it.
fn skip(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at + 1),
        b'{' | b'[' => {
            let mut depth = 0_usize;
            let mut at = at;
            loop {
                match text.get(at)? {
                    b'"' => {
                        at = string_end(text, at + 1)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                }
                at += 1;
            }
        }
        _ => {
            let length = text[at..].iter().position(|b| matches!(b, b',' | b'}' | b']') || b.is_ascii_whitespace())?;
            (length > 0).then_some(at + length)
        }
    }
}

/// The position after the closing quote of a string whose content starts at `at`.
fn string_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn skip_space(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Calls `field` with each key and the text of its value; `None` if the text is not an
/// object.
pub(super) fn fields<'a>(text: &'a [u8], mut field: impl FnMut(&'a [u8], &'a [u8])) -> Option<()> {
    if text.first() != Some(&b'{') {
        return None;
    }
    let mut at = 1;
    loop {
        at = skip_space(text, at);
        match text.get(at)? {
            b'}' => return Some(()),
            b',' => at += 1,
            b'"' => {
                let end = string_end(text, at + 1)?;
                let key = text.get(at + 1..end - 1)?;
                at = skip_space(text, end);
                if text.get(at)? != &b':' {
                    return None;
                }
                at = skip_space(text, at + 1);
                let end = skip(text, at)?;
                field(key, &text[at..end]);
                at = end;
            }
            _ => return None,
        }
    }
}

/// An event as it stands in the file; texts are without their quotes, not yet unescaped.
#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    /// `X` for an event with a duration, `i` for a moment.
    pub(super) ph: u8,
    pub(super) category: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) pid: &'a [u8],
    pub(super) tid: &'a [u8],
    pub(super) ts: &'a [u8],
    pub(super) dur: &'a [u8],
    pub(super) args: &'a [u8],
}

impl<'a> Event<'a> {
    /// Reads the text of one event; `None` if it is malformed.
    pub(super) fn read(text: &'a [u8]) -> Option<Self> {
        let mut event = Self::default();
        fields(text, |key, value| match key {
            b"ph" => event.ph = unquote(value).first().copied().unwrap_or(0),
            b"cat" => event.category = unquote(value),
            b"name" => event.name = unquote(value),
            b"pid" => event.pid = unquote(value),
            b"tid" => event.tid = unquote(value),
            b"ts" => event.ts = value,
            b"dur" => event.dur = value,
            b"args" => event.args = value,
            _ => {}
        })?;
        Some(event)
    }
}

/// The content of a string, or the text itself where it is not one.
pub(super) fn unquote(value: &[u8]) -> &[u8] {
    match value {
        [b'"', content @ .., b'"'] => content,
        _ => value,
    }
}

/// A number, also where it is written as a string; NaN and infinities pass.
pub(super) fn number(value: &[u8]) -> Option<f64> {
    std::str::from_utf8(unquote(value)).ok()?.trim().parse().ok()
}

/// A whole number from 0 (floating-point notation included).
pub(super) fn whole(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(unquote(value)).ok()?.trim();
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && (0.0..1e18).contains(&number)).then_some(number as u64)
    })
}

/// Three extents, as in `[64, 1, 1]`.
pub(super) fn extents(value: &[u8]) -> Option<[u32; 3]> {
    let text = std::str::from_utf8(value).ok()?.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut parts = text.split(',').map(|part| part.trim().parse().ok());
    let extents = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(extents)
}

/// The text of a JSON string's content; what cannot be decoded becomes U+FFFD.
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

/// The character of `\uXXXX`, whose first two characters were just passed.
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
    fn an_event_reads_in_any_order_and_spacing() {
        let event = Event::read(
            br#"{ "args" : {"grid": [1, 2, 3], "blocks per SM": "inf"},"ts":1.5, "name":"a \"b\"" ,"ph" : "X","cat":"kernel"}"#,
        )
        .unwrap();
        assert_eq!((event.ph, event.category, event.name), (b'X', &b"kernel"[..], &br#"a \"b\""#[..]));
        assert_eq!(number(event.ts), Some(1.5));
        let mut grid = None;
        fields(event.args, |key, value| {
            if key == b"grid" {
                grid = extents(value);
            }
        });
        assert_eq!(grid, Some([1, 2, 3]));
    }

    #[test]
    fn malformed_events_are_refused() {
        for bad in ["", "{", "[]", r#"{"a"}"#, r#"{"a": }"#, r#"{"a": "b}"#, "{a: 1}", r#"{"a": [}"#] {
            assert!(Event::read(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn escapes_decode() {
        assert_eq!(unescape(br#"a\"\\\/\n\u00e9\ud83d\ude00\ud83dx\u12"#), "a\"\\/\né😀\u{fffd}x\u{fffd}12");
    }

    #[test]
    fn numbers_are_read_as_far_as_they_are_numbers() {
        assert_eq!(whole(b"\"12\""), Some(12));
        assert_eq!(whole(b"1e3"), Some(1000));
        assert_eq!(whole(b"-1"), None);
        assert!(number(b"NaN").unwrap().is_nan());
        assert_eq!(extents(b"[1, 2]"), None);
        assert_eq!(extents(b"[-1, 2, 3]"), None);
    }
}
