//! Command of this program, as words and as a shell line.

use std::fmt;

use super::{clean, shell_word};

/// Words after the program's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLine(Vec<String>);

impl<W: Into<String>> FromIterator<W> for CommandLine {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Self {
        Self(words.into_iter().map(Into::into).collect())
    }
}

impl CommandLine {
    /// Sets the value of a flag: replaces it, or appends `flag VALUE`.
    pub fn set(&mut self, flag: &str, value: &str) {
        let own = self.own();
        match self.place(flag) {
            Some(at) if self.0[at] == flag && at + 1 < own => value.clone_into(&mut self.0[at + 1]),
            Some(at) => self.0[at] = format!("{flag}={value}"),
            None => drop(self.0.splice(own..own, [flag.to_owned(), value.to_owned()])),
        }
    }

    /// Removes a flag and its value.
    pub fn remove(&mut self, flag: &str) {
        while let Some(at) = self.place(flag) {
            let words = if self.0[at] == flag && at + 1 < self.own() { 2 } else { 1 };
            self.0.drain(at..at + words);
        }
    }

    /// Number of words for this program; those after `--` are for another.
    fn own(&self) -> usize {
        self.0.iter().position(|word| word == "--").unwrap_or(self.0.len())
    }

    fn place(&self, flag: &str) -> Option<usize> {
        let has_value = |word: &String| word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='));
        self.0[..self.own()].iter().position(|word| word == flag || has_value(word))
    }
}

/// Formats with the program's name and words quoted for a shell; words with a leading dash are flags.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("habitat-tui")?;
        for word in &self.0 {
            let shown = match word.split_once('=') {
                _ if !word.starts_with('-') => shell_word(word),
                Some((name, value)) => format!("{}={}", clean(name, 100), shell_word(value)),
                None => clean(word, 100),
            };
            write!(f, " {shown}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> CommandLine {
        text.split(' ').collect()
    }

    #[test]
    fn a_command_is_typed_again_with_another_value() {
        let with_flag = |text: &str| {
            let mut line = line(text);
            line.set("--origin", "l4");
            line.to_string()
        };
        assert_eq!(with_flag("predict x.json --origin a100 --json"), "habitat-tui predict x.json --origin l4 --json");
        assert_eq!(with_flag("predict --origin=a100 x.json"), "habitat-tui predict --origin=l4 x.json");
        assert_eq!(with_flag("x --name=it's"), "habitat-tui x --name='it'\\''s' --origin l4");
        assert_eq!(with_flag("x \u{1b}y"), "habitat-tui x $'\\x1by' --origin l4");
        assert_eq!(with_flag("predict it's"), "habitat-tui predict 'it'\\''s' --origin l4");
        assert_eq!(with_flag("run -- python --origin a"), "habitat-tui run --origin l4 -- python --origin a");
    }

    #[test]
    fn a_flag_goes_with_its_value() {
        let without = |text: &str| {
            let mut line = line(text);
            line.remove("--deadline");
            line.to_string()
        };
        assert_eq!(without("x --deadline 4h --budget 3 --deadline=5h"), "habitat-tui x --budget 3");
        assert_eq!(without("x --deadline-x 4h"), "habitat-tui x --deadline-x 4h");
        assert_eq!(without("run -- y --deadline 4h"), "habitat-tui run -- y --deadline 4h");
    }
}
