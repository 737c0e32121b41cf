//! Text is readable in every theme: WCAG's contrast ratio of each character against its background.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;

use crate::common::{compared, keys, launch};
use habitat_tui::report::theme::{Colour, ColourLevel, Role, Theme};
use habitat_tui::tui::render;
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

/// WCAG 2.2, success criterion 1.4.3 (level AA) for text of normal size.
const LEAST: f64 = 4.5;

/// Relative luminance, as WCAG defines it for sRGB.
fn luminance(channels: [u8; 3]) -> f64 {
    let linear = |channel: u8| {
        let share = f64::from(channel) / 255.0;
        if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    };
    let [red, green, blue] = channels.map(linear);
    0.2126f64.mul_add(red, 0.7152f64.mul_add(green, 0.0722 * blue))
}

fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Colour of the character and its background; `None` if the terminal's own colours show through.
fn colours(cell: &Cell) -> Option<[[u8; 3]; 2]> {
    let rgb = |colour: Color| match colour {
        Color::Rgb(red, green, blue) => Some([red, green, blue]),
        _ => None,
    };
    let pair = [rgb(cell.fg)?, rgb(cell.bg)?];
    Some(if cell.modifier.contains(Modifier::REVERSED) { [pair[1], pair[0]] } else { pair })
}

#[test]
fn the_ratio_is_that_of_wcag() {
    assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 1e-9);
    assert!((contrast([0x77; 3], [255; 3]) - 4.48).abs() < 0.005);
    assert!((contrast([0x76; 3], [255; 3]) - 4.54).abs() < 0.005);
}

/// Bars and their empty part, which is idle time, against the background (WCAG 2.2, criterion 1.4.11).
#[test]
fn bars_are_seen_in_every_theme() {
    let rgb = |colour| match colour {
        Some(Colour::Rgb(red, green, blue)) => Some([red, green, blue]),
        _ => None,
    };
    let mut seen = 0;
    for theme in Theme::shipped() {
        let styles = theme.styles(ColourLevel::True);
        let Some(ground) = rgb(styles.get(Role::Text).bg) else { continue };
        for role in [
            Role::Track,
            Role::Busy,
            Role::Forward,
            Role::Backward,
            Role::Accumulation,
            Role::Optimizer,
            Role::Communication,
            Role::Copy,
            Role::Other,
        ] {
            let ratio = contrast(rgb(styles.get(role).fg).unwrap(), ground);
            assert!(ratio >= 3.0, "{} {role:?}: {ratio:.2}", theme.name);
            seen += 1;
        }
    }
    assert_eq!(seen, 27);
}

#[test]
fn text_is_readable_in_every_theme() {
    let mut poor: BTreeMap<String, String> = BTreeMap::new();
    let mut seen = 0;
    for theme in 0..launch().setup.themes.len() {
        for pressed in [
            "1",
            "2",
            "2 b b",
            "2 R",
            "2 T",
            "2 enter",
            "3",
            "3 P W",
            "3 enter",
            "3 F l l",
            "3 B",
            "3 D",
            "3 w",
            "4",
            "4 v",
            "4 v v",
            "4 v v v",
            "4 e",
            "?",
            ":",
            "3 / h 1 0 0",
        ] {
            for size in [(50, 15), (80, 24), (120, 40)] {
                for mut launch in [launch(), compared()] {
                    (launch.setup.theme, launch.setup.colours) = (theme, ColourLevel::True);
                    let name = launch.setup.themes[theme].name.clone();
                    let buffer = render(&launch, &keys(pressed), size).1;
                    let letters = buffer.content.iter().filter(|cell| cell.symbol().chars().any(char::is_alphanumeric));
                    for (cell, [ink, ground]) in letters.filter_map(|cell| Some((cell, colours(cell)?))) {
                        seen += 1;
                        let ratio = contrast(ink, ground);
                        if ratio < LEAST {
                            let place = format!("{pressed} {size:?}, as {:?}", cell.symbol());
                            poor.entry(format!("{name}: {ratio:.2} {ink:02x?} on {ground:02x?}")).or_insert(place);
                        }
                    }
                }
            }
        }
    }
    assert!(seen > 100_000, "{seen} letters");
    assert!(poor.is_empty(), "{poor:#?}");
}
