//! Units, text, regression and random numbers: used by all other crates.
//!
//! - [`units`]: quantities with units ([`units::Micros`], [`units::Bytes`], [`units::Usd`] …),
//!   checked where they are made, and [`units::Range`], a low, a middle and a high.
//! - [`text`]: text from files made safe to show, similar names, secrets removed.
//! - [`regress`]: lines, quantiles, least squares and Gaussian processes.
//! - [`random`]: seeded random numbers, equal on every machine.
//!
//! It must not know: steps, GPUs, prices, files, terminals.

pub mod random;
pub mod regress;
pub mod text;
pub mod units;
