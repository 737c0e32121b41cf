//! The screens. What belongs to one is in one file here: its state, what its keys do, when they
//! work, and what it shows as text and meaning. The file of the same name in `tui/view` draws it.

mod behaviour;
pub mod job;
pub mod overview;
pub mod plan;
pub mod predict;
pub mod profile;

pub use behaviour::Behaviour;

use crate::app::msg::Screen;

impl Screen {
    /// All, in the order of their numbers.
    pub const ALL: &[Self] = &[Self::Overview, Self::Profile, Self::Predict, Self::Plan, Self::Job];

    /// What it is and does.
    pub const fn behaviour(self) -> &'static dyn Behaviour {
        match self {
            Self::Overview => &overview::OverviewScreen,
            Self::Profile => &profile::ProfileScreen,
            Self::Predict => &predict::PredictScreen,
            Self::Plan => &plan::PlanScreen,
            Self::Job => &job::JobScreen,
        }
    }

    /// Its name on screen and on the command line.
    pub fn name(self) -> &'static str {
        let name = self.behaviour().action().name();
        name.rsplit_once('.').map_or(name, |(_, name)| name)
    }

    /// The screen of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|screen| screen.name() == name)
    }
}
