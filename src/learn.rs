//! Training of the networks that [`crate::predict`] uses.
//!
//! Values in, values out: rows of features with measured times become weights. Files, the
//! clock and the progress bar are the caller's.

pub mod blackbox;
pub mod data;
pub mod fit;
pub mod habitat;
pub mod judge;
pub mod operators;
pub mod options;
pub mod train;
