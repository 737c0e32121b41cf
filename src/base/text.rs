//! Makes text safe and short for display, and groups digits.

mod command_line;
mod secrets;

use std::fmt::Write as _;

pub use command_line::CommandLine;
pub use secrets::{MASK, shell_words, without_secrets};

/// Replaces control characters (such as terminal escape sequences) in `text`, and cuts it to `width` characters with an
/// ellipsis.
///
/// ```
/// assert_eq!(habitat_base::text::clean("\u{1b}[31mred", 20), "�[31mred");
/// assert_eq!(habitat_base::text::clean("abcdef", 4), "abc…");
/// ```
pub fn clean(text: &str, width: usize) -> String {
    // A name can be 100 kB long, so only the displayed part is read.
    let mut shown: Vec<char> =
        text.chars().take(width + 1).map(|c| if unsafe_to_show(c) { '\u{fffd}' } else { c }).collect();
    if shown.len() > width {
        shown.truncate(width.saturating_sub(1));
        shown.push('…');
    }
    shown.into_iter().collect()
}

/// Capitalises the first letter of a sentence.
pub fn capitalised(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// Whether `text` contains a character that must not reach a terminal.
pub fn is_unsafe(text: &str) -> bool {
    text.chars().any(unsafe_to_show)
}

/// Whether a character is a control character, a line end, or an invisible character that reorders, hides or changes
/// text.
pub fn unsafe_to_show(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Soft hyphen, grapheme joiner, Arabic letter mark.
            '\u{ad}' | '\u{34f}' | '\u{61c}'
            // Hangul, Khmer and Mongolian letters without a shape.
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{ffa0}'
            // Widths of nothing, directions, line and paragraph separators, deprecated formats.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            // Variation selectors, byte order mark, annotations.
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
            // Formats of shorthand and music, tags and more variation selectors.
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Maximum characters of a displayed message: the capacity of an 80 × 24 terminal.
const SCREEN: usize = 1800;
/// Maximum lines of a displayed message.
const LINES: usize = 20;
/// Characters and lines kept of the end, which contains the remedy.
const END: (usize, usize) = (400, 4);

/// Cuts a message to the size of a screen. It keeps the beginning, which names the file, the end, and the number of
/// characters left out between them.
///
/// ```
/// let message = format!("x.json: {} is not a number", "9".repeat(5000));
/// let shown = habitat_base::text::to_screen(&message);
/// assert!(shown.starts_with("x.json: 999") && shown.ends_with("999 is not a number"));
/// assert!(shown.contains("… 3224 characters left out …"), "{shown}");
/// ```
pub fn to_screen(message: &str) -> std::borrow::Cow<'_, str> {
    let length = message.chars().count();
    if length <= SCREEN && message.lines().count() <= LINES {
        return message.into();
    }
    let lines =
        |text: &str, lines: usize| text.char_indices().filter(|(_, c)| *c == '\n').nth(lines - 1).map(|(at, _)| at);
    let at = |number: usize| message.char_indices().nth(number).map_or(message.len(), |(at, _)| at);
    let first = at(SCREEN - END.0);
    let first = lines(&message[..first], LINES - END.1).unwrap_or(first);
    let last = at(length.saturating_sub(END.0)).max(first);
    let from_end = message[last..].rmatch_indices('\n').nth(END.1 - 1).map_or(0, |(at, _)| at + 1);
    let (begin, end) = (&message[..first], &message[last + from_end..]);
    let out = length - begin.chars().count() - end.chars().count();
    format!("{begin}\n… {out} characters left out …\n{end}").into()
}

/// Escapes characters in JSON that must not reach a terminal, without changing its meaning: outside of strings JSON
/// contains none of them except line ends.
///
/// ```
/// assert_eq!(habitat_base::text::json_escaped("[\n\"a\u{202e}\u{e0041}\"]"), "[\n\"a\\u202e\\udb40\\udc41\"]");
/// ```
pub fn json_escaped(json: &str) -> std::borrow::Cow<'_, str> {
    let is_unsafe = |c: char| !matches!(c, '\n' | '\t') && unsafe_to_show(c);
    if !json.contains(is_unsafe) {
        return json.into();
    }
    let mut text = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text.into()
}

/// Formats a number without decimals, with grouped thousands.
///
/// ```
/// assert_eq!(habitat_base::text::grouped(1_281_167.0), "1,281,167");
/// ```
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats hours for a sentence: minutes below one hour, days from two days on.
///
/// ```
/// use habitat_base::text::duration;
/// assert_eq!([0.409, 52.5, 544.4].map(duration), ["25 minutes", "52.5 h", "22.7 days"]);
/// ```
pub fn duration(hours: f64) -> String {
    let one_decimal = |value: f64| {
        let text = format!("{value:.1}");
        text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
    };
    match hours {
        h if h < 0.995 => match one_decimal(h * 60.0).as_str() {
            "1" => "1 minute".to_owned(),
            text if h < 9.95 / 60.0 => format!("{text} minutes"),
            _ => format!("{:.0} minutes", h * 60.0),
        },
        h if h < 71.95 => format!("{} h", one_decimal(h)),
        h if h < 2399.0 => format!("{} days", one_decimal(h / 24.0)),
        h => format!("{} days", grouped(h / 24.0)),
    }
}

/// Formats US dollars, with cents below a thousand.
pub fn dollars(value: f64) -> String {
    if value < 1000.0 { format!("${value:.2}") } else { format!("${}", grouped(value)) }
}

/// Longest text, in bytes, to compare with known names; the cost is the product of the lengths.
const LONGEST_NAME: usize = 300;

/// Finds at most `count` members of `known` nearest to `name`, best first, for "did you mean" in errors.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, count: usize) -> Vec<&'a str> {
    if name.len() > LONGEST_NAME {
        return Vec::new();
    }
    let name = name.to_lowercase();
    // Model names, such as the "a100" of "NVIDIA A100-PG509-200", weigh more than spelling.
    let has = |word: &&str, kind: fn(&char) -> bool| word.chars().any(|c| kind(&c));
    let models: Vec<&str> = name
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| has(word, char::is_ascii_digit) && has(word, char::is_ascii_alphabetic))
        .collect();
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|candidate| {
            let lower = candidate.to_lowercase();
            let contains = lower.contains(&name) || models.iter().any(|model| lower.contains(model));
            (strsim::jaro_winkler(&name, &lower) + f64::from(u8::from(contains)), candidate)
        })
        .filter(|(score, _)| *score > 0.6)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(count).map(|(_, candidate)| candidate).collect()
}

/// Finds the word of `known` that `word` most likely misspells, if any is close enough.
pub fn misspelt<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const NEAR: f64 = 0.85;
    if word.len() > LONGEST_NAME {
        return None;
    }
    let word = word.to_lowercase();
    let scored = known.into_iter().map(|candidate| (strsim::jaro_winkler(&word, candidate), candidate));
    scored.filter(|(score, _)| *score >= NEAR).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

/// Quotes a path or another argument as one shell word. Characters that must not reach a terminal use the escapes of
/// bash, zsh and ksh (`$'\x1b'`).
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    // A leading dash would look like a flag.
    let text = if text.starts_with('-') { format!("./{text}") } else { text.to_owned() };
    if text.chars().all(is_plain) && !text.is_empty() {
        text
    } else if cfg!(windows) {
        format!("\"{text}\"")
    } else if is_unsafe(&text) {
        let mut word = String::from("$'");
        for c in text.chars() {
            match c {
                '\'' | '\\' => word.extend(['\\', c]),
                c if unsafe_to_show(c) => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        let _ = write!(word, "\\x{byte:02x}");
                    }
                }
                c => word.push(c),
            }
        }
        word + "'"
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(windows))]
    #[test]
    fn paths_are_one_word_of_a_shell() {
        assert_eq!(shell_word("a/b-1.habitat.json.zst"), "a/b-1.habitat.json.zst");
        assert_eq!(shell_word("my step.json"), "'my step.json'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!((shell_word("-x"), shell_word("")), ("./-x".to_owned(), "''".to_owned()));
        assert_eq!(shell_word("a\u{1b}[2J'b\u{202e}"), r"$'a\x1b[2J\'b\xe2\x80\xae'");
    }

    #[test]
    fn what_cannot_be_seen_is_not_shown() {
        for c in "\u{1b}\u{7f}\u{9b}\u{ad}\u{34f}\u{61c}\u{115f}\u{1160}\u{180e}\u{200b}\u{2028}\u{2029}\u{202e}\u{2066}\u{3164}\u{fe0f}\u{ffa0}\u{e0041}\u{e007f}\u{e0100}".chars() {
            assert_eq!(clean(&format!("a{c}b"), 9), "a\u{fffd}b", "U+{:04X}", c as u32);
        }
        // Characters that the program itself prints.
        assert!(!is_unsafe("–—×·…≤→µ§°✓–█▏░⣿│日本語é"));
    }

    #[test]
    fn a_message_is_cut_to_a_screen() {
        assert_eq!(to_screen("x.json: short\nnext"), "x.json: short\nnext");
        let long = format!("x.json: {}end", "line\n".repeat(1000));
        let shown = to_screen(&long);
        assert!(
            shown.starts_with("x.json: line\n") && shown.ends_with("\nend") && shown.contains("left out"),
            "{shown}"
        );
        assert!(shown.lines().count() <= LINES + 2, "{shown}");
        let wide = format!("x.json: {}end", "é".repeat(100_000));
        assert!(to_screen(&wide).chars().count() < SCREEN + 60);
    }
}
