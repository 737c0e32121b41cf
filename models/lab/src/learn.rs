//! Training of the networks that [`habitat_tui::predict`] uses, and of those they are
//! compared with.
//!
//! Values in, values out: rows of features with measured times become weights. Files, the
//! clock and the progress bar are the caller's.

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
