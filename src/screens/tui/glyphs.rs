//! Characters for drawing, in three sets.

use ratatui::symbols::{Marker, bar, border};

use habitat_reports::theme::GlyphSet;

/// A set of characters.
#[derive(Debug)]
pub(in crate::tui) struct Glyphs {
    /// Frames of panes.
    pub(in crate::tui) frame: border::Set<'static>,
    /// A whole cell of a bar.
    pub(in crate::tui) full: &'static str,
    /// Parts of a cell, ascending; may be empty.
    pub(in crate::tui) parts: &'static [&'static str],
    /// Empty cell of a stacked bar.
    pub(in crate::tui) empty: &'static str,
    /// Low end, line, middle, high end of a range.
    pub(in crate::tui) range: [&'static str; 4],
    /// Line of a slider before and after the knob, and the knob.
    pub(in crate::tui) slider: [&'static str; 3],
    /// Marker of the selected row.
    pub(in crate::tui) marker: &'static str,
    /// Order of a column: smallest first, largest first.
    pub(in crate::tui) order: [&'static str; 2],
    /// Switch off, on.
    pub(in crate::tui) switch: [&'static str; 2],
    /// Points of a chart: the plan, on the frontier, dominated, selected.
    pub(in crate::tui) points: [&'static str; 4],
    /// Marker for lines of a chart.
    pub(in crate::tui) line: Marker,
    /// Axes of a chart.
    pub(in crate::tui) axis: border::Set<'static>,
    /// Limits of a chart: vertical, horizontal.
    pub(in crate::tui) limits: [&'static str; 2],
    /// Bar heights within a cell.
    pub(in crate::tui) spark: bar::Set<'static>,
}

const BRAILLE: Glyphs = Glyphs {
    frame: border::ROUNDED,
    full: "█",
    parts: &["▏", "▎", "▍", "▌", "▋", "▊", "▉"],
    empty: "░",
    range: ["├", "─", "●", "┤"],
    slider: ["━", "─", "●"],
    marker: "▸",
    order: ["▴", "▾"],
    switch: ["○", "●"],
    points: ["◆", "●", "·", "◎"],
    line: Marker::Braille,
    axis: border::PLAIN,
    limits: ["┊", "┈"],
    spark: bar::NINE_LEVELS,
};

const BLOCK: Glyphs = Glyphs {
    frame: border::PLAIN,
    parts: &["▌"],
    marker: ">",
    order: ["^", "v"],
    slider: ["═", "─", "█"],
    range: ["├", "─", "█", "┤"],
    switch: ["-", "x"],
    points: ["#", "o", "·", "@"],
    line: Marker::Custom('·'),
    ..BRAILLE
};

const ASCII_BORDER: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

const ASCII: Glyphs = Glyphs {
    frame: ASCII_BORDER,
    full: "#",
    parts: &[],
    empty: ".",
    range: ["[", "-", "o", "]"],
    slider: ["=", "-", "O"],
    marker: ">",
    order: ["^", "v"],
    switch: ["-", "x"],
    points: ["#", "o", ".", "@"],
    line: Marker::Custom('.'),
    axis: ASCII_BORDER,
    limits: [":", "."],
    spark: bar::Set {
        empty: " ",
        one_eighth: "_",
        one_quarter: ".",
        three_eighths: "-",
        half: "-",
        five_eighths: "=",
        three_quarters: "+",
        seven_eighths: "*",
        full: "#",
    },
};

impl Glyphs {
    /// Characters of a set.
    pub(in crate::tui) const fn of(set: GlyphSet) -> &'static Self {
        match set {
            GlyphSet::Braille => &BRAILLE,
            GlyphSet::Block => &BLOCK,
            GlyphSet::Ascii => &ASCII,
        }
    }
}
