//! Text as YAML scalars.

use std::fmt::Write as _;

/// Text in double quotes. Escapes everything but plain ASCII, so that no parser reads a number, a YAML keyword or a new
/// line (YAML 1.1 and 1.2, double-quoted style).
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c if u32::from(c) <= 0xff => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c if u32::from(c) <= 0xffff => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => drop(write!(out, "\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

/// Lines of a literal block (`|`), indented. They hold no control characters.
pub(super) fn block(lines: &[String], indent: usize) -> String {
    lines.iter().map(|line| format!("{:indent$}{line}\n", "")).collect::<Vec<_>>().concat()
}

/// A mapping of text to text under a key; nothing if it is empty.
pub(super) fn mapping<'a>(key: &str, entries: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let entries = entries
        .into_iter()
        .map(|(name, value)| format!("  {}: {}\n", quoted(name), value.map_or_else(|| "null".to_owned(), quoted)))
        .collect::<Vec<_>>()
        .concat();
    if entries.is_empty() { entries } else { format!("{key}:\n{entries}") }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn nothing_leaves_the_quotes() {
        assert_eq!(quoted("aws/us-east-1"), r#""aws/us-east-1""#);
        assert_eq!(quoted("a\": b\n- c\\"), r#""a\": b\x0a- c\\""#);
        assert_eq!(quoted("é\u{2028}🚀"), r#""\xe9\u2028\U0001f680""#);
    }
}
