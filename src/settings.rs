//! What the user can set: arguments, the settings file, keys and themes as data.

pub mod args;
pub mod file;
pub mod keymap;
pub mod theme;
pub mod values;
