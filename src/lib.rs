//! From one recorded training step to a costed plan.
//!
//! A [`profile::Profile`] holds the operations of one training step, recorded on one GPU.
//! [`predict`] turns it into step times on every GPU of a [`catalog::Catalog`], and
//! [`plan`] chooses among the offers of a [`pricing::PriceBook`] for a [`plan::Goal`].
//!
//! ```
//! use habitat_tui::{plan, plan::{Goal, Work}, predict, pricing::PriceBook, profile::Sample, store::bundled, units::Samples};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let profile = bundled::sample(Sample::default());
//! let catalog = habitat_tui::catalog::Catalog::new(bundled::gpus());
//! let predictions = predict::predict(&profile, &catalog, &predict::Options::default())?;
//! let goal = Goal::new(Work::Samples(Samples::new(1.28e6)?));
//! let plan = plan::plan(&predictions, &PriceBook::new(bundled::offers()), &goal)?;
//! println!("{:?}", plan.parts);
//! # Ok(())
//! # }
//! ```

pub mod catalog;
pub mod learn;
pub mod op;
pub mod plan;
pub mod predict;
pub mod pricing;
pub mod profile;
pub mod report;
pub mod store;
pub mod trace;
pub mod units;

// Parts of the program that its binary, its tests and the workshop use; not part of the library's interface.
#[doc(hidden)]
pub mod action;
#[doc(hidden)]
pub mod app;
#[cfg(unix)]
#[doc(hidden)]
pub mod capture;
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod live;
#[doc(hidden)]
pub mod regress;
#[doc(hidden)]
pub mod settings;
#[doc(hidden)]
pub mod terminal;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod tui;
