//! Widgets that several screens use.

pub(super) mod bars;
pub(super) mod chart;
pub(super) mod glyphs;
pub(super) mod table;
