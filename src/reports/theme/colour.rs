//! Colours and characters that a terminal can show.

/// Number of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColourLevel {
    /// No colours; bold, reverse and similar remain.
    None,
    /// The terminal's 16 colours.
    Ansi16,
    /// 256.
    Ansi256,
    /// 24 bits.
    True,
}

/// Inputs for the choice of colour level.
#[derive(Debug, Clone, Copy, Default)]
pub struct ColourInputs<'a> {
    /// The command line flag.
    pub flag: Option<ColourLevel>,
    /// Value of `NO_COLOR`, if set.
    pub no_color: Option<&'a str>,
    /// The settings file.
    pub config: Option<ColourLevel>,
    /// Value of `COLORTERM`.
    pub colorterm: Option<&'a str>,
    /// Value of `TERM`.
    pub term: Option<&'a str>,
}

/// A level, or `None` to detect it from the terminal.
pub type ColourChoice = Option<ColourLevel>;

impl ColourLevel {
    /// Parses a level as on the command line and in the settings file.
    ///
    /// # Errors
    /// The valid values.
    pub fn parse(text: &str) -> Result<ColourChoice, String> {
        match text {
            "none" => Ok(Some(Self::None)),
            "16" => Ok(Some(Self::Ansi16)),
            "256" => Ok(Some(Self::Ansi256)),
            "true" => Ok(Some(Self::True)),
            "auto" => Ok(None),
            _ => Err("expected none, 16, 256, true or auto".to_owned()),
        }
    }

    /// Chooses the level: flag, then `NO_COLOR` (if not empty), then settings file, then terminal.
    pub fn resolve(inputs: &ColourInputs<'_>) -> Self {
        if let Some(level) = inputs.flag {
            return level;
        }
        if inputs.no_color.is_some_and(|value| !value.is_empty()) {
            return Self::None;
        }
        if let Some(level) = inputs.config {
            return level;
        }
        let term = inputs.term.unwrap_or_default();
        match inputs.colorterm.unwrap_or_default() {
            "truecolor" | "24bit" => Self::True,
            _ if term.ends_with("-direct") => Self::True,
            _ if term.contains("256color") => Self::Ansi256,
            _ if term == "dumb" => Self::None,
            _ => Self::Ansi16,
        }
    }
}

/// Characters for drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GlyphSet {
    /// Braille dots for charts, eighth blocks for bars.
    #[default]
    Braille,
    /// Blocks only, for fonts without braille.
    Block,
    /// ASCII only.
    Ascii,
}

impl GlyphSet {
    /// The requested set, else ASCII if the locale is not UTF-8 or the terminal is dumb.
    ///
    /// `locale` is the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set and not empty.
    pub fn resolve(asked: Option<Self>, locale: Option<&str>, term: Option<&str>) -> Self {
        if let Some(set) = asked {
            return set;
        }
        let utf8 = locale.is_none_or(|locale| {
            let locale = locale.to_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        match term {
            Some("dumb") => Self::Ascii,
            // The font of the Linux console has blocks but no braille.
            Some("linux") if utf8 => Self::Block,
            _ if utf8 => Self::Braille,
            _ => Self::Ascii,
        }
    }
}

/// A colour as sent to the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// One of the terminal's 16 colours.
    Ansi(u8),
    /// One of 256 colours.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

/// Nearest of xterm's 256 colours, from its 6×6×6 cube and 24 greys.
pub(super) fn nearest_of_256((r, g, b): (u8, u8, u8)) -> u8 {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let distance = |x: (u8, u8, u8)| {
        let square = |a: u8, b: u8| (i32::from(a) - i32::from(b)).pow(2);
        square(x.0, r) + square(x.1, g) + square(x.2, b)
    };
    let step = |value: u8| (0..6).min_by_key(|i| (i32::from(STEPS[*i]) - i32::from(value)).abs()).unwrap_or(0);
    let [red, green, blue] = [r, g, b].map(step);
    let grey = ((u32::from(r) + u32::from(g) + u32::from(b)) / 3).saturating_sub(3) / 10;
    let grey = grey.min(23) as u8;
    let level = 8 + 10 * grey;
    if distance((level, level, level)) < distance((STEPS[red], STEPS[green], STEPS[blue])) {
        232 + grey
    } else {
        (16 + 36 * red + 6 * green + blue) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colour_level_is_resolved_in_order() {
        let terminal =
            ColourInputs { colorterm: Some("truecolor"), term: Some("xterm-256color"), ..Default::default() };
        assert_eq!(ColourLevel::resolve(&terminal), ColourLevel::True);
        let config = ColourInputs { config: Some(ColourLevel::Ansi16), ..terminal };
        assert_eq!(ColourLevel::resolve(&config), ColourLevel::Ansi16);
        let no_color = ColourInputs { no_color: Some("1"), ..config };
        assert_eq!(ColourLevel::resolve(&no_color), ColourLevel::None);
        let empty = ColourInputs { no_color: Some(""), ..config };
        assert_eq!(ColourLevel::resolve(&empty), ColourLevel::Ansi16);
        let flag = ColourInputs { flag: Some(ColourLevel::Ansi256), ..no_color };
        assert_eq!(ColourLevel::resolve(&flag), ColourLevel::Ansi256);
        let screen = ColourInputs { term: Some("screen-256color"), ..Default::default() };
        assert_eq!(ColourLevel::resolve(&screen), ColourLevel::Ansi256);
        let dumb = ColourInputs { term: Some("dumb"), ..Default::default() };
        assert_eq!(ColourLevel::resolve(&dumb), ColourLevel::None);
    }

    #[test]
    fn colours_fall_back_to_256() {
        assert_eq!(nearest_of_256((255, 0, 0)), 196);
        assert_eq!(nearest_of_256((0, 0, 0)), 16);
        assert_eq!(nearest_of_256((128, 128, 128)), 244);
    }
}
