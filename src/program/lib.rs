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

pub use habitat_base::{random, regress, text, units};
pub use habitat_planning::{Coded, deadline, plan, pricing, values};
pub use habitat_prediction as predict;
pub use habitat_prediction::learn;
#[cfg(unix)]
pub use habitat_recorder::capture;
pub use habitat_recorder::live;
pub use habitat_reports as report;
pub use habitat_screens::{action, app, keymap, tui};
pub use habitat_step::{catalog, decoder, op, op_list, profile};
pub use habitat_traces as trace;

pub mod store;

// Parts of the program that its binary, its tests and the workshop use; not part of the library's interface.
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod launch;
#[doc(hidden)]
pub mod settings;
#[doc(hidden)]
pub mod terminal;
