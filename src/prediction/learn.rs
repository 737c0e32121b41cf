//! Models that are fitted to a user's own data, in seconds.
//!
//! Values in, values out: measured operators and steps become the models that
//! [`crate`] uses. Files are the caller's. The networks that are shipped are trained
//! in the workshop (`models/lab`).

pub mod blackbox;
pub mod kernelwise;
pub mod ranges;
