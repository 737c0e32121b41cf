//! The characters of drawings, in three sets.

use crate::settings::theme::GlyphSet;

/// One set.
#[derive(Debug)]
pub(in crate::tui) struct Glyphs {
    /// Horizontal, vertical, the four corners.
    pub(in crate::tui) frame: [&'static str; 6],
    /// A whole cell of a bar.
    pub(in crate::tui) full: &'static str,
    /// Parts of a cell, ascending; none where there are none.
    pub(in crate::tui) parts: &'static [&'static str],
    /// Empty cell of a stacked bar.
    pub(in crate::tui) empty: &'static str,
    /// Low end, line, middle, high end of a range.
    pub(in crate::tui) range: [&'static str; 4],
    /// Line of a slider before the knob, behind it, and the knob.
    pub(in crate::tui) slider: [&'static str; 3],
    /// Before the selected row.
    pub(in crate::tui) marker: &'static str,
    /// Order of a column: smallest first, largest first.
    pub(in crate::tui) order: [&'static str; 2],
    /// Switch off, on.
    pub(in crate::tui) switch: [&'static str; 2],
    /// Points of a chart: the plan, on the frontier, dominated, selected.
    pub(in crate::tui) points: [&'static str; 4],
    /// Whether lines of a chart may be drawn in braille.
    pub(in crate::tui) braille: bool,
    /// Axis of a chart: vertical, horizontal, corner.
    pub(in crate::tui) axis: [&'static str; 3],
    /// Limits of a chart: vertical, horizontal.
    pub(in crate::tui) limits: [&'static str; 2],
    /// Heights of a cell, ascending.
    pub(in crate::tui) spark: &'static [&'static str],
}

const BRAILLE: Glyphs = Glyphs {
    frame: ["─", "│", "╭", "╮", "╰", "╯"],
    full: "█",
    parts: &["▏", "▎", "▍", "▌", "▋", "▊", "▉"],
    empty: "░",
    range: ["├", "─", "●", "┤"],
    slider: ["━", "─", "●"],
    marker: "▸",
    order: ["▴", "▾"],
    switch: ["○", "●"],
    points: ["◆", "●", "·", "◎"],
    braille: true,
    axis: ["│", "─", "└"],
    limits: ["┊", "┈"],
    spark: &["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
};

const BLOCK: Glyphs = Glyphs {
    frame: ["─", "│", "┌", "┐", "└", "┘"],
    parts: &["▌"],
    marker: ">",
    order: ["^", "v"],
    slider: ["═", "─", "█"],
    range: ["├", "─", "█", "┤"],
    switch: ["-", "x"],
    points: ["#", "o", "·", "@"],
    braille: false,
    ..BRAILLE
};

const ASCII: Glyphs = Glyphs {
    frame: ["-", "|", "+", "+", "+", "+"],
    full: "#",
    parts: &[],
    empty: ".",
    range: ["[", "-", "o", "]"],
    slider: ["=", "-", "O"],
    marker: ">",
    order: ["^", "v"],
    switch: ["-", "x"],
    points: ["#", "o", ".", "@"],
    braille: false,
    axis: ["|", "-", "+"],
    limits: [":", "."],
    spark: &["_", ".", "-", "=", "+", "*", "#"],
};

impl Glyphs {
    /// The set.
    pub(in crate::tui) const fn of(set: GlyphSet) -> &'static Self {
        match set {
            GlyphSet::Braille => &BRAILLE,
            GlyphSet::Block => &BLOCK,
            GlyphSet::Ascii => &ASCII,
        }
    }
}
