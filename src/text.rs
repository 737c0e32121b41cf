//! Text made fit to show: names from files made safe and short, digits grouped.

/// `text` without control characters (terminal escape sequences among them), cut to at
/// most `width` characters with an ellipsis.
///
/// ```
/// assert_eq!(habitat_tui::text::clean("\u{1b}[31mred", 20), "�[31mred");
/// assert_eq!(habitat_tui::text::clean("abcdef", 4), "abc…");
/// ```
pub fn clean(text: &str, width: usize) -> String {
    // A name can be 100 kB long: look no further than what can be shown.
    let mut shown: Vec<char> =
        text.chars().take(width + 1).map(|c| if unsafe_to_show(c) { '\u{fffd}' } else { c }).collect();
    if shown.len() > width {
        shown.truncate(width.saturating_sub(1));
        shown.push('…');
    }
    shown.into_iter().collect()
}

/// Whether `text` has a character that must not reach a terminal.
pub fn is_unsafe(text: &str) -> bool {
    text.chars().any(unsafe_to_show)
}

/// Control characters, and the invisible ones that reorder or hide text.
fn unsafe_to_show(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A number without decimals, digits grouped by thousands.
///
/// ```
/// assert_eq!(habitat_tui::text::grouped(1_281_167.0), "1,281,167");
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

/// The members of `known` nearest to `name`, best first, at most `count` of them: for
/// "did you mean" in errors.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, count: usize) -> Vec<&'a str> {
    let name = name.to_lowercase();
    // Model names, such as the "a100" of "NVIDIA A100-PG509-200", tell more than spelling.
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

/// A path or another argument as a shell takes it for one word.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    // What begins with a dash would be taken for a flag.
    let text = if text.starts_with('-') { format!("./{text}") } else { text.to_owned() };
    if text.chars().all(is_plain) && !text.is_empty() {
        text
    } else if cfg!(windows) {
        format!("\"{text}\"")
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
    }
}
