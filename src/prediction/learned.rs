//! Learned operator models: time = launch + bound / (use · gpu). `bound` is the time at full rates, `use` the
//! prediction of an ensemble of small networks from scale-free features ([`super::features`]), and `gpu` a factor of
//! each measured GPU.
//!
//! `models/lab` trains them on measured operators; `models/README.md` describes the shipped ones.

mod corrections;
mod ensemble;
mod file;
mod models;
mod query;
mod step;

pub use crate::facts::{Facts, ModelFacts, StepFacts};
pub use crate::learned_time::{EFFICIENCY_WEIGHT, LearnedTime, Spread, WIDE, between};
pub use corrections::Counts;
pub(super) use corrections::{Correction, Corrections, arithmetic, coordinates, is_host_bound, prior};
pub use ensemble::Ensemble;
pub use models::{Models, Run};
pub use query::{ModelGpu, Query};
pub use step::{Answering, StepColumns, is_by_efficiency};
