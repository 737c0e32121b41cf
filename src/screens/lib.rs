//! The screens: their state, their keys, and how they are drawn.
//!
//! - [`action`] and [`keymap`]: all actions with their keys, as data.
//! - [`app::App`]: the state; one message in, effects out; without a terminal.
//! - [`tui`]: draws the state with ratatui, reads keys with crossterm, runs the effects.
//!
//! It must not know: the command line, files, the network.

pub mod action;
pub mod app;
pub mod keymap;
pub mod tui;
