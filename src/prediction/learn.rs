//! Fits models to a user's own data, in seconds.
//!
//! Measured operators and steps become the models that [`crate`] uses. Callers read and write the files.
//! `models/lab` trains the shipped networks.

pub mod blackbox;
pub mod kernelwise;
pub mod ranges;
