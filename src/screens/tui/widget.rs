//! Widgets that several screens use.

pub(super) mod bars;
pub(super) mod chart;
pub(super) mod table;
