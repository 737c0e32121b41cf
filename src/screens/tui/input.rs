//! Conversion of terminal events to the app's keys and messages.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use crate::app::{Msg, Target};
use crate::keymap::{Code, Key};
use crate::tui::paint::Hits;

/// Rows per notch of the wheel.
const WHEEL_ROWS: isize = 3;

/// The message for an event; `None` if it has no meaning here.
pub(super) fn message(event: Event, hits: &Hits) -> Option<Msg> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key_of(key).map(Msg::Key),
        Event::Paste(text) => Some(Msg::Paste(text)),
        Event::Resize(columns, rows) => {
            let size = super::terminal::drawable(columns, rows);
            Some(Msg::Resize(size.width, size.height))
        }
        Event::Mouse(mouse) => mouse_message(mouse, hits),
        _ => None,
    }
}

fn mouse_message(mouse: MouseEvent, hits: &Hits) -> Option<Msg> {
    let at = Position::new(mouse.column, mouse.row);
    match mouse.kind {
        MouseEventKind::Down(MouseButton::Left) => hits.at(at).map(Msg::Click),
        // Sliders follow the pointer.
        MouseEventKind::Drag(MouseButton::Left) => {
            hits.at(at).filter(|target| matches!(target, Target::Slider(..))).map(Msg::Click)
        }
        MouseEventKind::ScrollDown => Some(Msg::Wheel(WHEEL_ROWS)),
        MouseEventKind::ScrollUp => Some(Msg::Wheel(-WHEEL_ROWS)),
        _ => None,
    }
}

fn key_of(event: KeyEvent) -> Option<Key> {
    let has = |modifier| event.modifiers.contains(modifier);
    let (ctrl, alt, shift) = (has(KeyModifiers::CONTROL), has(KeyModifiers::ALT), has(KeyModifiers::SHIFT));
    let code = match event.code {
        KeyCode::Char(c) => {
            // With Ctrl, terminals differ in the case that they report.
            let c = if ctrl { c.to_ascii_lowercase() } else { c };
            return Some(Key { code: Code::Char(c), ctrl, alt, shift: false });
        }
        KeyCode::BackTab => return Some(Key { code: Code::Tab, ctrl, alt, shift: true }),
        KeyCode::Enter => Code::Enter,
        KeyCode::Esc => Code::Esc,
        KeyCode::Tab => Code::Tab,
        KeyCode::Backspace => Code::Backspace,
        KeyCode::Delete => Code::Delete,
        KeyCode::Up => Code::Up,
        KeyCode::Down => Code::Down,
        KeyCode::Left => Code::Left,
        KeyCode::Right => Code::Right,
        KeyCode::Home => Code::Home,
        KeyCode::End => Code::End,
        KeyCode::PageUp => Code::PageUp,
        KeyCode::PageDown => Code::PageDown,
        KeyCode::F(number) => Code::F(number),
        _ => return None,
    };
    Some(Key { code, ctrl, alt, shift })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_arrive_as_they_are_written() {
        for (code, modifiers, text) in [
            (KeyCode::Char('G'), KeyModifiers::SHIFT, "G"),
            (KeyCode::Char('C'), KeyModifiers::CONTROL, "ctrl-c"),
            (KeyCode::BackTab, KeyModifiers::SHIFT, "shift-tab"),
            (KeyCode::Left, KeyModifiers::SHIFT, "shift-left"),
            (KeyCode::Char('?'), KeyModifiers::SHIFT, "?"),
        ] {
            assert_eq!(key_of(KeyEvent::new(code, modifiers)), text.parse().ok(), "{text}");
        }
    }
}
