//! What each screen shows, as text and meaning; drawing it is the terminal's business.

pub mod job;
pub mod overview;
pub mod plan;
pub mod predict;
pub mod profile;
