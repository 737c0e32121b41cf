//! The screens. Each file here holds everything about one screen: state, keys, availability, and content as text with
//! roles. The file of the same name in `tui/view` draws it.

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
    /// Behaviour of the screen.
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
