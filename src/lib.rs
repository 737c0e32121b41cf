//! From one recorded training step to a costed plan.
pub mod profile;
pub mod text;
pub mod units;
