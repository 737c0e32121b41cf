//! Colours by role: a theme gives every [`Role`] a style from its palette, on top of a parent theme. The terminal's
//! colour level limits the result.
//!
//! ```toml
//! name = "mine"
//! parent = "dark"                     # source of missing roles
//! [palette]
//! sky = { rgb = "#56b4e9", ansi = "bright-cyan" }
//! [roles]
//! title = { fg = "sky", bold = true }
//! ```

mod colour;

use std::collections::BTreeMap;

use serde::Deserialize;

use self::colour::nearest_of_256;
pub use self::colour::{Colour, ColourChoice, ColourInputs, ColourLevel, GlyphSet};
use habitat_base::text;

/// Meaning of a colour on screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Ordinary text, and the background.
    Text,
    /// Secondary text: labels, units, sources.
    Muted,
    /// Titles of panes.
    Title,
    /// Frames.
    Border,
    /// The frame of the pane in focus.
    Focus,
    /// The top bar.
    Bar,
    /// The current screen in the top bar.
    Tab,
    /// Column headers.
    Header,
    /// The selected row; also reversed, so that it needs no colour.
    Selection,
    /// Keys in footer and help.
    Key,
    /// Measured values.
    Measured,
    /// Predicted values.
    Predicted,
    /// Recommended or good values.
    Good,
    /// Doubts, stale results.
    Warning,
    /// Failures, and steps that do not fit.
    Error,
    /// Empty part of a bar.
    Track,
    /// Busy device; bars of time.
    Busy,
    /// Forward pass.
    Forward,
    /// Backward pass.
    Backward,
    /// Gradient accumulation.
    Accumulation,
    /// Parameter update.
    Optimizer,
    /// Collectives.
    Communication,
    /// Copies.
    Copy,
    /// Everything else.
    Other,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 24] = [
        Self::Text,
        Self::Muted,
        Self::Title,
        Self::Border,
        Self::Focus,
        Self::Bar,
        Self::Tab,
        Self::Header,
        Self::Selection,
        Self::Key,
        Self::Measured,
        Self::Predicted,
        Self::Good,
        Self::Warning,
        Self::Error,
        Self::Track,
        Self::Busy,
        Self::Forward,
        Self::Backward,
        Self::Accumulation,
        Self::Optimizer,
        Self::Communication,
        Self::Copy,
        Self::Other,
    ];

    const fn index(self) -> usize {
        self as usize
    }
}

/// How text is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Foreground.
    pub fg: Option<Colour>,
    /// Background.
    pub bg: Option<Colour>,
    /// Bold.
    pub bold: bool,
    /// Dim.
    pub dim: bool,
    /// Underlined.
    pub underline: bool,
    /// Foreground and background swapped.
    pub reverse: bool,
}

/// Error in a theme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThemeError {
    /// Invalid TOML, or an unknown key or role.
    #[error("{file}: {problem}")]
    Form {
        /// The file.
        file: String,
        /// Line, key and problem.
        problem: String,
    },
    /// A colour that is not in the palette.
    #[error("theme {theme:?}: roles.{role}: {colour:?} is neither in the palette nor of the form \"#rrggbb\"")]
    Colour {
        /// The theme.
        theme: String,
        /// The role.
        role: String,
        /// The unknown colour.
        colour: String,
    },
    /// Unknown theme.
    #[error("unknown theme {name:?}; available: {known}")]
    Unknown {
        /// The unknown name.
        name: String,
        /// The available names.
        known: String,
    },
    /// A cycle of parents.
    #[error("theme {0:?} is its own ancestor")]
    Circle(String),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    palette: BTreeMap<String, PaletteEntry>,
    #[serde(default)]
    roles: BTreeMap<Role, WrittenStyle>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaletteEntry {
    rgb: String,
    ansi: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStyle {
    fg: Option<String>,
    bg: Option<String>,
    #[serde(default)]
    bold: bool,
    #[serde(default)]
    dim: bool,
    #[serde(default)]
    underline: bool,
    #[serde(default)]
    reverse: bool,
}

impl Written {
    fn parse(file: &str, text: &str) -> Result<Self, ThemeError> {
        let form = |problem: String| ThemeError::Form { file: file.to_owned(), problem };
        let theme: Self = toml::from_str(text).map_err(|error| form(error.to_string().trim_end().to_owned()))?;
        if text::is_unsafe(&theme.name) || theme.name.is_empty() {
            return Err(form("name: empty, or with control or invisible characters".to_owned()));
        }
        Ok(theme)
    }
}

/// Names of the terminal's 16 colours, by number.
const ANSI_NAMES: [&str; 16] = [
    "black",
    "red",
    "green",
    "yellow",
    "blue",
    "magenta",
    "cyan",
    "white",
    "bright-black",
    "bright-red",
    "bright-green",
    "bright-yellow",
    "bright-blue",
    "bright-magenta",
    "bright-cyan",
    "bright-white",
];

/// A palette colour, and its equivalent among 16 colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Paint {
    rgb: (u8, u8, u8),
    ansi: Option<u8>,
}

/// A theme merged with its parents: every role has a style.
#[derive(Debug, Clone, PartialEq)]
pub struct Theme {
    /// Its name.
    pub name: String,
    /// Colours and style flags by role.
    roles: Vec<(Option<Paint>, Option<Paint>, Style)>,
}

/// Styles of a theme at one colour level.
#[derive(Debug, Clone, PartialEq)]
pub struct Styles {
    styles: Vec<Style>,
}

impl Styles {
    /// The style of a role.
    pub fn get(&self, role: Role) -> Style {
        self.styles[role.index()]
    }
}

impl Theme {
    /// Shipped themes, followed by the user's own, each with file and text. An own theme replaces a shipped one of the
    /// same name.
    ///
    /// # Errors
    /// [`ThemeError`] of the first invalid theme.
    pub fn all(own: &[(String, String)]) -> Result<Vec<Self>, ThemeError> {
        let (themes, mut broken) = Self::usable(own);
        if broken.is_empty() { Ok(themes) } else { Err(broken.remove(0)) }
    }

    /// The same without invalid themes, whose errors are returned separately.
    pub fn usable(own: &[(String, String)]) -> (Vec<Self>, Vec<ThemeError>) {
        let mut written: Vec<(&str, Written)> = Vec::new();
        let mut broken = Vec::new();
        let own = own.iter().map(|(file, text)| (file.as_str(), text.as_str()));
        for (file, text) in habitat_themes::SHIPPED.iter().map(|text| ("shipped", *text)).chain(own) {
            match Written::parse(file, text) {
                Ok(theme) => {
                    written.retain(|(_, other)| other.name != theme.name);
                    written.push((file, theme));
                }
                Err(error) => broken.push(error),
            }
        }
        let all: Vec<&Written> = written.iter().map(|(_, theme)| theme).collect();
        let mut themes = Vec::new();
        for (file, theme) in &written {
            let form = |error: ThemeError| ThemeError::Form { file: (*file).to_owned(), problem: error.to_string() };
            match Self::fold(theme, &all).map_err(form) {
                Ok(theme) => themes.push(theme),
                Err(error) => broken.push(error),
            }
        }
        (themes, broken)
    }

    /// The shipped themes.
    /// Shipped themes.
    ///
    /// # Panics
    /// Never: a test parses them.
    pub fn shipped() -> Vec<Self> {
        Self::all(&[]).expect("a test reads the shipped themes")
    }

    /// Index of a theme by name.
    ///
    /// # Errors
    /// [`ThemeError::Unknown`] with the available names.
    pub fn find(themes: &[Self], name: &str) -> Result<usize, ThemeError> {
        themes.iter().position(|theme| theme.name == name).ok_or_else(|| ThemeError::Unknown {
            name: name.to_owned(),
            known: themes.iter().map(|theme| theme.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    fn fold(theme: &Written, all: &[&Written]) -> Result<Self, ThemeError> {
        let mut roles = vec![(None, None, Style::default()); Role::ALL.len()];
        let mut line = vec![theme];
        while let Some(parent) = line.last().and_then(|last| last.parent.as_deref()) {
            if line.iter().any(|ancestor| ancestor.name == parent) {
                return Err(ThemeError::Circle(parent.to_owned()));
            }
            let found = all.iter().find(|other| other.name == parent).ok_or_else(|| ThemeError::Unknown {
                name: parent.to_owned(),
                known: all.iter().map(|other| other.name.as_str()).collect::<Vec<_>>().join(", "),
            })?;
            line.push(found);
        }
        for theme in line.into_iter().rev() {
            for (role, style) in &theme.roles {
                let paint = |name: &Option<String>| match name {
                    None => Ok(None),
                    Some(name) => paint(name, &theme.palette).map(Some).ok_or_else(|| ThemeError::Colour {
                        theme: theme.name.clone(),
                        role: format!("{role:?}").to_lowercase(),
                        colour: name.clone(),
                    }),
                };
                let flags = Style {
                    fg: None,
                    bg: None,
                    bold: style.bold,
                    dim: style.dim,
                    underline: style.underline,
                    reverse: style.reverse,
                };
                roles[role.index()] = (paint(&style.fg)?, paint(&style.bg)?, flags);
            }
        }
        Ok(Self { name: theme.name.clone(), roles })
    }

    /// Styles at a colour level.
    pub fn styles(&self, level: ColourLevel) -> Styles {
        let colour = |paint: Option<Paint>| {
            let paint = paint?;
            match level {
                ColourLevel::None => None,
                ColourLevel::Ansi16 => paint.ansi.map(Colour::Ansi),
                ColourLevel::Ansi256 => Some(Colour::Indexed(nearest_of_256(paint.rgb))),
                ColourLevel::True => Some(Colour::Rgb(paint.rgb.0, paint.rgb.1, paint.rgb.2)),
            }
        };
        let mut styles: Vec<Style> =
            self.roles.iter().map(|(fg, bg, flags)| Style { fg: colour(*fg), bg: colour(*bg), ..*flags }).collect();
        if level == ColourLevel::None {
            // Without colours, the theme `none` marks the pane in focus and other distinctions by other means.
            let plain: Vec<Self> = Self::shipped().into_iter().filter(|theme| theme.name == "none").collect();
            for (style, (.., flags)) in styles.iter_mut().zip(plain.iter().flat_map(|plain| &plain.roles)) {
                style.bold |= flags.bold;
                style.dim |= flags.dim;
                style.underline |= flags.underline;
                style.reverse |= flags.reverse;
            }
        }
        Styles { styles }
    }
}

fn paint(name: &str, palette: &BTreeMap<String, PaletteEntry>) -> Option<Paint> {
    match palette.get(name) {
        Some(entry) => {
            let ansi = match entry.ansi.as_str() {
                "default" => None,
                named => Some(ANSI_NAMES.iter().position(|known| *known == named)? as u8),
            };
            Some(Paint { rgb: rgb(&entry.rgb)?, ansi })
        }
        None => Some(Paint { rgb: rgb(name)?, ansi: None }),
    }
}

fn rgb(text: &str) -> Option<(u8, u8, u8)> {
    let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6 && digits.is_ascii())?;
    let part = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    Some((part(0)?, part(2)?, part(4)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_themes_give_every_role_a_style_of_its_own_file_or_its_parent() {
        let themes = Theme::shipped();
        assert_eq!(
            themes.iter().map(|theme| theme.name.as_str()).collect::<Vec<_>>(),
            ["dark", "light", "high-contrast", "none"]
        );
        for (index, role) in Role::ALL.iter().enumerate() {
            assert_eq!(role.index(), index);
        }
        for theme in &themes {
            let selection = theme.styles(ColourLevel::None).get(Role::Selection);
            assert!(selection.reverse, "{}: selection must show without colour", theme.name);
            assert_eq!((selection.fg, selection.bg), (None, None));
        }
        let none = themes.last().unwrap().styles(ColourLevel::True);
        assert!(Role::ALL.iter().all(|role| none.get(*role).fg.is_none() && none.get(*role).bg.is_none()));
    }

    fn with(own: &str) -> Result<Vec<Theme>, ThemeError> {
        Theme::all(&[("mine.toml".to_owned(), own.to_owned())])
    }

    #[test]
    fn a_theme_patches_its_parent() {
        let own = "name = \"mine\"\nparent = \"dark\"\n[roles]\ntitle = { fg = \"#010203\" }\n";
        let themes = with(own).unwrap();
        let (mine, dark) = (themes.last().unwrap(), &themes[0]);
        let (mine, dark) = (mine.styles(ColourLevel::True), dark.styles(ColourLevel::True));
        assert_eq!(mine.get(Role::Title).fg, Some(Colour::Rgb(1, 2, 3)));
        assert_eq!(mine.get(Role::Error), dark.get(Role::Error));
    }

    #[test]
    fn mistakes_are_refused() {
        let unknown = with("name = \"a\"\n[roles]\nfoo = { fg = \"#010203\" }").unwrap_err().to_string();
        assert!(unknown.starts_with("mine.toml: ") && unknown.contains("foo"), "{unknown}");
        let colour = with("name = \"a\"\n[roles]\ntitle = { fg = \"sky\" }").unwrap_err().to_string();
        assert!(colour.contains("\"sky\""), "{colour}");
        let circle = with("name = \"a\"\nparent = \"a\"").unwrap_err().to_string();
        assert!(circle.starts_with("mine.toml: ") && circle.ends_with(&ThemeError::Circle("a".to_owned()).to_string()));
    }
}
