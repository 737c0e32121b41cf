//! The screens. What belongs to one is in one file here: its state, what its keys do, when they
//! work, and what it shows as text and meaning. The file of the same name in `tui/view` draws it.

mod behaviour;
pub mod job;
pub mod jobs;
pub mod overview;
pub mod plan;
pub mod predict;
pub mod profile;

pub use behaviour::Behaviour;

use crate::action::Screen;

impl Screen {
    /// What it is and does.
    pub const fn behaviour(self) -> &'static dyn Behaviour {
        match self {
            Self::Overview => &overview::OverviewScreen,
            Self::Profile => &profile::ProfileScreen,
            Self::Predict => &predict::PredictScreen,
            Self::Plan => &plan::PlanScreen,
            Self::Job => &job::JobScreen,
            Self::Jobs => &jobs::JobsScreen,
        }
    }
}
