//! The learned operator models: time = launch + bound / (use · gpu), with `bound` the time
//! at full rates, `use` from an ensemble of small networks over scale-free features
//! ([`super::features`]), and `gpu` what is peculiar to a GPU that was measured.
//!
//! Trained by `models/lab` on measured operators; `models/README.md` describes the shipped ones.

mod corrections;
mod ensemble;
mod facts;
mod file;
mod models;
mod query;
mod time;

pub use corrections::Counts;
pub(super) use corrections::{Correction, Corrections, arithmetic, coordinates, is_host_bound, prior};
pub use ensemble::Ensemble;
pub use facts::{Facts, ModelFacts, StepFacts};
pub use models::{Answering, Models, Run, StepColumns, is_by_efficiency};
pub use query::{ModelGpu, Query};
pub use time::{EFFICIENCY_WEIGHT, LearnedTime, Spread, WIDE};
