//! Text wrapped at words, for screens and the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Units that stay on the line of their number.
const UNITS: [&str; 9] = ["%", "s", "ms", "µs", "h", "min", "days", "MB", "GB"];

/// Words of a text, each number with its unit.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let unit = word.trim_end_matches([',', ';', ':', '.', ')']);
        match words.last_mut().filter(|last| last.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit)) {
            Some(number) => *number = format!("{number} {word}"),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// Wraps words to lines of at most `width` cells; breaks longer words.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = vec![String::new()];
    for mut word in words(text) {
        while let Some(line) = lines.last_mut() {
            let space = usize::from(!line.is_empty());
            if line.width() + space + word.width() <= width {
                if space == 1 {
                    line.push(' ');
                }
                line.push_str(&word);
                break;
            }
            if !line.is_empty() {
                lines.push(String::new());
                continue;
            }
            // The word is longer than a line.
            let mut taken = String::new();
            while taken.width() < width
                && let Some(c) = word.chars().next()
            {
                if !taken.is_empty() && taken.width() + c.width().unwrap_or(0) > width {
                    break;
                }
                taken.push(c);
                word.remove(0);
            }
            line.push_str(&taken);
            if word.is_empty() {
                break;
            }
            lines.push(String::new());
        }
    }
    lines
}

/// Wraps the sentences of a report to lines of at most `width` cells, indented under their first line. Leaves rows of
/// tables, whose cells are two spaces apart, and commands to copy as they are.
pub fn wrap_sentences(text: &str, width: usize) -> String {
    let mut wrapped = String::with_capacity(text.len() + text.len() / 16);
    for line in text.split_inclusive('\n') {
        let sentence = line.trim();
        let is_command = sentence.trim_start_matches("next: ").starts_with("habitat-tui ");
        if line.trim_end().width() <= width || sentence.contains("  ") || is_command {
            wrapped.push_str(line);
            continue;
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        let lines = wrap(sentence, width.saturating_sub(indent + 2).max(MIN_WIDTH));
        for (at, part) in lines.iter().enumerate() {
            let space = if at == 0 { indent } else { indent + 2 };
            let end = if at + 1 < lines.len() { "\n" } else { "" };
            wrapped.extend([" ".repeat(space).as_str(), part, end]);
        }
        wrapped.push_str(&line[line.trim_end().len()..]);
    }
    wrapped
}

/// Narrowest column of words, cells.
const MIN_WIDTH: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 5), ["abcde", "fgh", "ij"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("norms (43 %); more", 9), ["norms", "(43 %);", "more"]);
    }

    #[test]
    fn sentences_wrap_and_tables_do_not() {
        let text = "note: one two three four five six\n  a  b  a row of a table is never wrapped\nhabitat-tui plan a b c d e f g\nend";
        let wrapped = "note: one two three\n  four five six\n  a  b  a row of a table is never wrapped\nhabitat-tui plan a b c d e f g\nend";
        assert_eq!(wrap_sentences(text, 22), wrapped);
        assert_eq!(wrap_sentences(text, 80), text);
    }
}
