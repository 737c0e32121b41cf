//! Key bindings: defaults from the action table, overridden by the user's `[keys]`.
//!
//! ```toml
//! [keys]
//! "list.sort" = ["s", "ctrl-s"]   # replaces the default keys of the action
//! "app.theme" = []                # palette only
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::action::{ACTIONS, Action};

/// A key without its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// A character, as typed (upper case with Shift).
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Up arrow.
    Up,
    /// Down arrow.
    Down,
    /// Left arrow.
    Left,
    /// Right arrow.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// A function key.
    F(u8),
}

/// Named keys, in the notation of the settings file.
const NAMED: &[(&str, Code)] = &[
    ("enter", Code::Enter),
    ("esc", Code::Esc),
    ("tab", Code::Tab),
    ("backspace", Code::Backspace),
    ("delete", Code::Delete),
    ("up", Code::Up),
    ("down", Code::Down),
    ("left", Code::Left),
    ("right", Code::Right),
    ("home", Code::Home),
    ("end", Code::End),
    ("pageup", Code::PageUp),
    ("pagedown", Code::PageDown),
    ("space", Code::Char(' ')),
    ("minus", Code::Char('-')),
];

/// A key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The key.
    pub code: Code,
    /// With Ctrl.
    pub ctrl: bool,
    /// With Alt.
    pub alt: bool,
    /// With Shift; never set for characters, which are upper case instead.
    pub shift: bool,
}

impl Key {
    /// The key without modifiers.
    pub const fn plain(code: Code) -> Self {
        Self { code, ctrl: false, alt: false, shift: false }
    }

    /// A character as typed.
    pub const fn char(c: char) -> Self {
        Self::plain(Code::Char(c))
    }
}

/// An invalid key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a key: expected a character, or enter, esc, tab, space, up, pagedown, f1 …, optionally after ctrl-, alt- or shift-"
)]
pub struct KeyError(pub String);

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut key = Self::plain(Code::Esc);
        let mut rest = text;
        // "-" alone is the minus key, not an empty modifier.
        while let Some((modifier, after)) = rest.split_once('-').filter(|(_, after)| !after.is_empty()) {
            match modifier {
                "ctrl" => key.ctrl = true,
                "alt" => key.alt = true,
                "shift" => key.shift = true,
                _ => return Err(KeyError(text.to_owned())),
            }
            rest = after;
        }
        let mut chars = rest.chars();
        key.code = match (chars.next(), chars.next()) {
            (Some(c), None) => Code::Char(c),
            _ => NAMED
                .iter()
                .find(|(name, _)| *name == rest)
                .map(|(_, code)| *code)
                .or_else(|| {
                    let number = rest.strip_prefix('f')?.parse().ok()?;
                    (1..=12).contains(&number).then_some(Code::F(number))
                })
                .ok_or_else(|| KeyError(text.to_owned()))?,
        };
        if key.shift
            && let Code::Char(c) = key.code
        {
            key.code = Code::Char(c.to_ascii_uppercase());
            key.shift = false;
        }
        Ok(key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (set, name) in [(self.ctrl, "ctrl-"), (self.alt, "alt-"), (self.shift, "shift-")] {
            if set {
                text.push_str(name);
            }
        }
        match self.code {
            Code::F(number) => {
                text.push('f');
                text.push_str(&number.to_string());
            }
            Code::Char(c) if c != ' ' => text.push(c),
            code => text.push_str(NAMED.iter().find(|(_, named)| *named == code).map_or("?", |(name, _)| name)),
        }
        f.pad(&text)
    }
}

/// Error in a `[keys]` table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeymapError {
    /// Unknown action.
    #[error("[keys] {name:?}: no such action{}", hint(.nearest))]
    UnknownAction {
        /// The unknown name.
        name: String,
        /// Similar names.
        nearest: Vec<String>,
    },
    /// Invalid key.
    #[error("[keys] {action:?}: {error}")]
    Key {
        /// The action.
        action: String,
        /// The problem.
        error: KeyError,
    },
    /// The same key for two actions.
    #[error("[keys] {key:?} is bound to both {first:?} and {second:?}; bind it to one action")]
    Duplicate {
        /// The key.
        key: String,
        /// The first action.
        first: &'static str,
        /// The second action.
        second: &'static str,
    },
    /// Quitting must remain possible.
    #[error("[keys] \"app.quit\" needs at least one key")]
    NoQuit,
}

fn hint(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!(" (did you mean {}?)", nearest.join(" or ")) }
}

/// The current bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keymap {
    /// Keys by action, in the order of the action table.
    bindings: Vec<(Action, Vec<Key>)>,
}

impl Default for Keymap {
    fn default() -> Self {
        let parse = |text: &&str| text.parse().expect("a test parses every default key");
        let bindings = ACTIONS.iter().map(|spec| (spec.action, spec.keys.iter().map(parse).collect())).collect();
        Self { bindings }
    }
}

impl Keymap {
    /// The defaults with the keys of the listed actions replaced. A default key that the patch binds to another action
    /// is removed from its default action.
    ///
    /// # Errors
    /// [`KeymapError`] for an unknown action or key, or a key that the patch binds twice.
    pub fn patched(patch: &BTreeMap<String, Vec<String>>) -> Result<Self, KeymapError> {
        let mut map = Self::default();
        let mut given: BTreeMap<Key, Action> = BTreeMap::new();
        for (name, keys) in patch {
            let action = Action::by_name(name).ok_or_else(|| KeymapError::UnknownAction {
                name: habitat_base::text::clean(name, 60),
                nearest: habitat_base::text::nearest(name, ACTIONS.iter().map(|spec| spec.name), 2)
                    .into_iter()
                    .map(|near| format!("{near:?}"))
                    .collect(),
            })?;
            let mut parsed = Vec::new();
            for text in keys {
                let key: Key = text.parse().map_err(|error| KeymapError::Key { action: name.clone(), error })?;
                if let Some(first) = given.insert(key, action).filter(|first| *first != action) {
                    return Err(KeymapError::Duplicate {
                        key: key.to_string(),
                        first: first.name(),
                        second: action.name(),
                    });
                }
                parsed.push(key);
            }
            if let Some(binding) = map.bindings.iter_mut().find(|binding| binding.0 == action) {
                binding.1 = parsed;
            }
        }
        for (action, keys) in &mut map.bindings {
            keys.retain(|key| given.get(key).is_none_or(|owner| owner == action));
        }
        if map.keys(Action::Quit).is_empty() {
            return Err(KeymapError::NoQuit);
        }
        Ok(map)
    }

    /// The action of a key.
    pub fn action(&self, key: Key) -> Option<Action> {
        self.bindings.iter().find(|(_, keys)| keys.contains(&key)).map(|(action, _)| *action)
    }

    /// The keys of an action.
    pub fn keys(&self, action: Action) -> &[Key] {
        self.bindings.iter().find(|binding| binding.0 == action).map_or(&[], |binding| &binding.1)
    }

    /// The first key of an action as text; empty if there is none.
    pub fn hint(&self, action: Action) -> String {
        self.keys(action).first().map(Key::to_string).unwrap_or_default()
    }

    /// The bindings as a `[keys]` table of the settings file.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("[keys]\n");
        for (action, keys) in &self.bindings {
            let keys: Vec<String> = keys.iter().map(|key| toml::Value::from(key.to_string()).to_string()).collect();
            text = format!("{text}\"{}\" = [{}]\n", action.name(), keys.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(entries: &[(&str, &[&str])]) -> Result<Keymap, KeymapError> {
        let table = entries
            .iter()
            .map(|(name, keys)| ((*name).to_owned(), keys.iter().map(|key| (*key).to_owned()).collect()))
            .collect();
        Keymap::patched(&table)
    }

    #[test]
    fn defaults_have_one_action_a_key_and_round_trip() {
        let map = Keymap::default();
        for spec in ACTIONS {
            for text in spec.keys {
                let key: Key = text.parse().unwrap();
                assert_eq!(map.action(key), Some(spec.action), "{text}");
                assert_eq!(key.to_string().parse(), Ok(key));
            }
        }
        let table: toml::Table = map.to_toml().parse().unwrap();
        let keys: BTreeMap<String, Vec<String>> = table["keys"].clone().try_into().unwrap();
        assert_eq!(Keymap::patched(&keys).unwrap(), map);
    }

    #[test]
    fn a_patch_replaces_and_takes_over() {
        let map = patch(&[("list.sort", &["t", "ctrl-s"])]).unwrap();
        assert_eq!(map.action(Key::char('t')), Some(Action::Sort));
        assert_eq!(map.action(Key::char('s')), None);
        assert!(map.keys(Action::Theme).is_empty());
    }

    #[test]
    fn mistakes_name_what_is_wrong() {
        let twice = patch(&[("list.sort", &["a"]), ("app.theme", &["a"])]).unwrap_err().to_string();
        assert!(twice.contains("\"app.theme\" and \"list.sort\""), "{twice}");
        let unknown = patch(&[("list.sorting", &["a"])]).unwrap_err().to_string();
        assert!(unknown.contains("did you mean \"list.sort\""), "{unknown}");
        let key = patch(&[("list.sort", &["hyper-a"])]).unwrap_err().to_string();
        assert!(key.contains("is not a key"), "{key}");
        assert_eq!(patch(&[("app.quit", &[])]), Err(KeymapError::NoQuit));
    }

    #[test]
    fn notation() {
        assert_eq!("-".parse(), Ok(Key::char('-')));
        assert_eq!("shift-g".parse(), Ok(Key::char('G')));
        assert_eq!("ctrl--".parse::<Key>().map(|key| (key.code, key.ctrl)), Ok((Code::Char('-'), true)));
        assert_eq!("shift-tab".parse::<Key>().map(|key| (key.code, key.shift)), Ok((Code::Tab, true)));
    }
}
