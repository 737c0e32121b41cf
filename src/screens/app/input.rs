//! A line of text input.

use crate::keymap::{Code, Key};

/// Longest text, in characters, so that an accidental paste cannot use up memory.
const LONGEST: usize = 1024;

/// The text and the cursor's position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    chars: Vec<char>,
    cursor: usize,
}

impl Input {
    /// Starts with a text and the cursor at its end.
    pub fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().take(LONGEST).collect();
        Self { cursor: chars.len(), chars }
    }

    /// The text.
    pub fn text(&self) -> String {
        self.chars.iter().collect()
    }

    /// The text before and after the cursor.
    pub fn split(&self) -> (String, String) {
        (self.chars[..self.cursor].iter().collect(), self.chars[self.cursor..].iter().collect())
    }

    /// Inserts text at the cursor, without control characters.
    pub fn insert(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()) {
            if self.chars.len() < LONGEST {
                self.chars.insert(self.cursor, c);
                self.cursor += 1;
            }
        }
    }

    /// Handles an editing key; `false` for other keys.
    pub fn key(&mut self, key: Key) -> bool {
        match (key.code, key.ctrl) {
            (Code::Char('u'), true) => {
                self.chars.drain(..self.cursor);
                self.cursor = 0;
            }
            (Code::Char('w'), true) => {
                let spaces = self.chars[..self.cursor].iter().rev().take_while(|c| c.is_whitespace()).count();
                let end = self.cursor - spaces;
                let word = self.chars[..end].iter().rev().take_while(|c| !c.is_whitespace()).count();
                self.chars.drain(end - word..self.cursor);
                self.cursor = end - word;
            }
            (Code::Char('a'), true) | (Code::Home, _) => self.cursor = 0,
            (Code::Char('e'), true) | (Code::End, _) => self.cursor = self.chars.len(),
            (Code::Char(c), false) if !key.alt => self.insert(c.encode_utf8(&mut [0; 4])),
            (Code::Backspace, _) if self.cursor > 0 => {
                self.cursor -= 1;
                self.chars.remove(self.cursor);
            }
            (Code::Delete, _) if self.cursor < self.chars.len() => {
                self.chars.remove(self.cursor);
            }
            (Code::Left, _) => self.cursor = self.cursor.saturating_sub(1),
            (Code::Right, _) => self.cursor = (self.cursor + 1).min(self.chars.len()),
            (Code::Backspace | Code::Delete, _) => {}
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editing() {
        let mut input = Input::new("plan one");
        let press = |input: &mut Input, text: &str| {
            assert!(input.key(text.parse().unwrap()), "{text}");
        };
        press(&mut input, "ctrl-w");
        assert_eq!(input.text(), "plan ");
        press(&mut input, "x");
        press(&mut input, "home");
        press(&mut input, "delete");
        assert_eq!(input.text(), "lan x");
        press(&mut input, "end");
        press(&mut input, "ctrl-u");
        assert_eq!(input.text(), "");
        input.insert("a\u{1b}[2Jb");
        assert_eq!(input.text(), "a[2Jb");
    }
}
