//! What the user can set: keys and themes as data.

pub mod keymap;
pub mod theme;
