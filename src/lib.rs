//! From one recorded training step to a costed plan.
pub mod catalog;
pub mod plan;
pub mod predict;
pub mod pricing;
pub mod profile;
pub mod report;
pub mod settings;
pub mod text;
pub mod units;
