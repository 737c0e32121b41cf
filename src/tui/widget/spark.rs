//! A series of values in one line of cells, from zero.

use crate::settings::theme::Role;
use crate::tui::paint::Canvas;

/// Draws the last values that fit, `top` being a full cell; higher ones are cut there.
pub(in crate::tui) fn line(canvas: &mut Canvas<'_>, x: u16, y: u16, width: u16, values: &[f64], top: f64, role: Role) {
    let shown = &values[values.len().saturating_sub(width as usize)..];
    let text = cells(canvas.glyphs.spark, shown, top);
    canvas.text(x, y, width, &text, role);
}

fn cells(glyphs: &[&str], values: &[f64], top: f64) -> String {
    let last = glyphs.len().saturating_sub(1);
    let cell = |value: &f64| {
        let part = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
        glyphs[((part * glyphs.len() as f64).ceil() as usize).saturating_sub(1).min(last)]
    };
    values.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_as_high_as_their_values() {
        let glyphs = ["1", "2", "3", "4"];
        assert_eq!(cells(&glyphs, &[0.0, 2.5, 2.6, 5.0, 10.0, 99.0], 10.0), "112244");
        assert_eq!(cells(&glyphs, &[0.0, 0.0], 0.0), "11");
        assert_eq!(cells(&glyphs, &[], 1.0), "");
    }
}
