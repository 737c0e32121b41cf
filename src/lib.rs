//! From one recorded training step to a costed plan.
//!
//! A [`profile::Profile`] holds the operations of one training step, recorded on one GPU.
//! [`predict`] turns it into step times on every GPU of a [`catalog::Catalog`], and
//! [`plan`] chooses among the offers of a [`pricing::PriceBook`] for a [`plan::Goal`].
//!
//! ```
//! use habitat_tui::{plan, plan::{Goal, Work}, predict, pricing::PriceBook, profile::Profile, store::bundled, units::Samples};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let profile: Profile = bundled::sample();
//! let catalog = habitat_tui::catalog::Catalog::new(bundled::gpus());
//! let predictions = predict::predict(&profile, &catalog, &predict::Options::default())?;
//! let goal = Goal::new(Work::Samples(Samples::new(1.28e6)?));
//! let plan = plan::plan(&predictions, &PriceBook::new(bundled::offers()), &goal)?;
//! println!("{:?}", plan.parts);
//! # Ok(())
//! # }
//! ```

pub mod action;
pub mod app;
#[cfg(unix)]
pub mod capture;
pub mod catalog;
pub mod cli;
pub mod learn;
pub mod live;
pub mod op;
pub mod plan;
pub mod predict;
pub mod pricing;
pub mod profile;
pub mod regress;
pub mod report;
pub mod settings;
pub mod store;
pub mod terminal;
pub mod text;
pub mod trace;
pub mod tui;
pub mod units;
