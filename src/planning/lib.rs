//! Offers and prices, and the plan that fits a goal.
//!
//! - [`pricing::PriceBook`]: dated offers ([`pricing::Offer`]), each with its doubts.
//! - [`plan::plan`]: offers × predictions × a [`plan::Goal`] → a [`plan::Plan`], found by an
//!   integer program and checked again by [`plan::check`].
//! - [`deadline`]: dates and durations as people write them.
//!
//! It must not know: recordings, files, the clock, the network, terminals.

pub mod deadline;
pub mod plan;
pub mod pricing;
pub mod values;

/// Something with a stable name for programs, the tag of its JSON.
pub trait Coded: strum::VariantNames {
    /// All names.
    const CODES: &[&str] = Self::VARIANTS;

    /// Its name.
    fn code<'a>(&'a self) -> &'static str
    where
        &'a Self: Into<&'static str>,
    {
        self.into()
    }
}

impl<T: strum::VariantNames> Coded for T {}
