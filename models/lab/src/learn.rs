//! Training of the networks in [`habitat_tui::predict`], and of those they are compared with.
//!
//! Turns rows of features with measured times into weights. The caller handles files, the clock and the progress bar.

pub mod black_box;
pub mod data;
pub mod efficiency;
pub mod fit;
pub mod habitat;
pub mod host;
pub mod operators;
pub mod options;
pub mod published;
pub mod residuals;
pub mod train;
