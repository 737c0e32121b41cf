//! From one recorded training step to a costed plan.
pub mod action;
pub mod app;
pub mod catalog;
pub mod plan;
pub mod predict;
pub mod pricing;
pub mod profile;
pub mod settings;
pub mod text;
pub mod tui;
pub mod units;
