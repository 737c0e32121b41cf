//! Colours by meaning: a theme gives every [`Role`] a style, from a palette, on top of a
//! parent theme; the colour level of the terminal decides what is left of it.
//!
//! ```toml
//! name = "mine"
//! parent = "dark"                     # roles left out come from here
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

/// What a colour means on screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Ordinary text, and the ground of the screen.
    Text,
    /// What matters less: labels, units, sources.
    Muted,
    /// Titles of panes.
    Title,
    /// Frames.
    Border,
    /// The frame of the pane in focus.
    Focus,
    /// The bar at the top.
    Bar,
    /// The screen in use, in the bar at the top.
    Tab,
    /// Headings of columns.
    Header,
    /// The selected row; reversed as well, so that it needs no colour.
    Selection,
    /// Keys in footer and help.
    Key,
    /// What was measured.
    Measured,
    /// What was predicted.
    Predicted,
    /// The recommended, the good.
    Good,
    /// Doubts, stale results.
    Warning,
    /// Failures, what does not fit.
    Error,
    /// Empty part of a bar.
    Track,
    /// Device busy; bars of time.
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

/// How something is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Letters.
    pub fg: Option<Colour>,
    /// Ground.
    pub bg: Option<Colour>,
    /// Bold.
    pub bold: bool,
    /// Dim.
    pub dim: bool,
    /// Underlined.
    pub underline: bool,
    /// Letters and ground exchanged.
    pub reverse: bool,
}

/// Why a theme cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThemeError {
    /// Not TOML, or an unknown key or role.
    #[error("{file}: {problem}")]
    Form {
        /// Where it is.
        file: String,
        /// Line, key and what is wrong.
        problem: String,
    },
    /// A colour the palette does not have.
    #[error("theme {theme:?}: roles.{role}: {colour:?} is neither in the palette nor a colour of the form \"#rrggbb\"")]
    Colour {
        /// The theme.
        theme: String,
        /// The role.
        role: String,
        /// The colour refused.
        colour: String,
    },
    /// No theme of that name.
    #[error("no theme {name:?}; there are {known}")]
    Unknown {
        /// The name refused.
        name: String,
        /// The names there are.
        known: String,
    },
    /// Parents in a circle.
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

/// The names of the terminal's 16 colours, by number.
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

/// A palette colour with its fall-back for 16 colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Paint {
    rgb: (u8, u8, u8),
    ansi: Option<u8>,
}

/// A theme with its parents folded in: every role has its style.
#[derive(Debug, Clone, PartialEq)]
pub struct Theme {
    /// Its name.
    pub name: String,
    /// Styles with paints, by role.
    roles: Vec<(Option<Paint>, Option<Paint>, Style)>,
}

/// The styles of a theme at one colour level.
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
    /// The shipped themes, and the user's own after them (a name of a shipped one
    /// replaces it), each by the file where it is and its text.
    ///
    /// # Errors
    /// [`ThemeError`] of the first text that is no theme.
    pub fn all(own: &[(String, String)]) -> Result<Vec<Self>, ThemeError> {
        let (themes, mut broken) = Self::usable(own);
        if broken.is_empty() { Ok(themes) } else { Err(broken.remove(0)) }
    }

    /// The same without those that are broken, and what is wrong with each of these.
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
    ///
    /// # Panics
    /// Never: a test reads them.
    pub fn shipped() -> Vec<Self> {
        Self::all(&[]).expect("a test reads the shipped themes")
    }

    /// The position of the theme of that name.
    ///
    /// # Errors
    /// [`ThemeError::Unknown`] with the names there are.
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

    /// The styles at a colour level.
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
            // What a theme tells apart by colours, such as the pane in focus, the theme without any
            // tells apart by other means.
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
