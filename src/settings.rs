//! What the user can set: arguments, the settings file, keys and themes as data.

pub mod args;
mod choices;
pub mod file;
pub mod jobs;
pub mod keymap;
pub mod theme;
pub mod values;
pub mod wish;
