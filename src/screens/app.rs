//! State of the front end and its changes: [`App::update`] takes a [`Msg`] and returns the [`Effect`]s to run. This
//! module uses no terminal, no async runtime, and no input or output.

mod adopt;
pub mod available;
mod command;
mod dialog;
pub mod engine;
pub mod input;
pub mod job;
pub mod list;
pub mod live;
pub mod modal;
pub mod modes;
pub mod msg;
pub mod palette;
pub mod screen;
pub mod slider;
mod update;

use std::collections::VecDeque;
use std::sync::Arc;

pub use engine::{Chosen, Engine, Own, SaveOutcome, Solved};
use job::Job;
use live::Live;
use modal::Modal;
pub use msg::{Answer, Effect, Msg, Question, Target};
use screen::jobs::JobsState;
use screen::overview::OverviewState;
use screen::plan::PlanState;
use screen::predict::PredictState;
use screen::profile::{Against, ProfileState};

use crate::action::Screen;
use crate::keymap::Keymap;
use habitat_base::text::CommandLine;
use habitat_base::units::GpuSlug;
use habitat_planning::plan::{FrontierPoint, Goal, Plan};
use habitat_planning::pricing::PriceBook;
use habitat_prediction::batches::Sweep;
use habitat_prediction::compare::Comparison;
use habitat_prediction::hypothetical::WhatIf;
use habitat_prediction::{Precision, Predictions};
use habitat_reports::launch::Launch;
use habitat_reports::theme::{ColourLevel, GlyphSet, Styles, Theme};
use habitat_step::catalog::Catalog;
use habitat_step::catalog::{Candidates, candidates};
use habitat_step::profile::Profile;

/// Smallest terminal, in columns and rows, that every answer fits on.
pub(crate) const SMALLEST: (u16, u16) = (50, 15);

/// Source of the profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file or another source that the user named.
    Given(String),
    /// An embedded sample with its label; must never look like the user's own recording.
    Sample(String),
    /// None yet: the profile is empty until the job is recorded.
    Awaited,
}

impl Source {
    /// Name on screen.
    pub fn label(&self) -> String {
        match self {
            Self::Given(label) | Self::Sample(label) => label.clone(),
            Self::Awaited => "nothing recorded yet".to_owned(),
        }
    }
}

/// Everything that the app starts with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The profile.
    pub profile: Arc<Profile>,
    /// Its source.
    pub source: Source,
    /// A recording to compare it with.
    pub against: Option<Against>,
    /// The command line.
    pub typed: CommandLine,
    /// The job that was started along with the screens.
    pub job: Option<habitat_recorder::live::Job>,
    /// The file of jobs to plan together.
    pub jobs: Option<String>,
    /// The GPUs.
    pub catalog: Arc<Catalog>,
    /// The offers.
    pub prices: Arc<PriceBook>,
    /// The user's own machines among them.
    pub own: Own,
    /// Precision requested at the start; `None` = as recorded.
    pub precision: Option<Precision>,
    /// The clock, for deadlines given as dates.
    pub now: fn() -> jiff::Zoned,
    /// The goal of the plan.
    pub goal: Goal,
    /// Key bindings.
    pub keymap: Keymap,
    /// Themes to cycle through, at least one.
    pub themes: Vec<Theme>,
    /// Index of the first theme.
    pub theme: usize,
    /// Colour support of the terminal.
    pub colours: ColourLevel,
    /// Characters for drawing.
    pub glyphs: GlyphSet,
    /// Whether to capture the mouse.
    pub mouse: bool,
    /// First screen to show.
    pub screen: Screen,
    /// GPU to select on the predict screen.
    pub gpu: Option<GpuSlug>,
    /// Filter for the list of the first screen.
    pub filter: Option<String>,
    /// How exported plans start.
    pub launch: Launch,
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Success.
    Good,
    /// Not possible here and now.
    Hint,
    /// Failed.
    Bad,
}

/// State of the front end.
#[derive(Debug, Clone)]
pub struct App {
    /// Data and settings at the start; its goal is the one being edited.
    pub setup: Setup,
    /// The screen shown.
    pub screen: Screen,
    /// The dialog on top.
    pub modal: Option<Modal>,
    /// The last message.
    pub message: Option<(Tone, String)>,
    /// Earlier messages, newest first.
    pub said: VecDeque<(Tone, String)>,
    /// The prediction.
    pub predictions: Job<Predictions>,
    /// The same in the recorded precision, if another one is chosen.
    pub unchanged: Job<Predictions>,
    /// Predictions of selected GPUs by operation.
    pub details: Job<Predictions>,
    /// All methods on one GPU, for the dialog.
    pub comparison: Job<Comparison>,
    /// The step at other batch sizes on a GPU, for the dialog.
    pub sweep: Job<Sweep>,
    /// One GPU with changed specifications.
    pub what_if: Job<WhatIf>,
    /// Choices on screen that override those at the start.
    pub chosen: Chosen,
    /// The plan.
    pub plan: Job<Plan>,
    /// Best trade-offs without deadline and budget, from the fastest to the cheapest.
    pub frontier: Arc<Vec<FrontierPoint>>,
    /// First screen.
    pub overview: OverviewState,
    /// Second screen.
    pub profile: ProfileState,
    /// Third screen.
    pub predict: PredictState,
    /// Fourth screen.
    pub planner: PlanState,
    /// The job, on the fifth screen.
    pub live: Option<Live>,
    /// Jobs planned together, on the sixth screen.
    pub jobs: JobsState,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Index of the current theme.
    pub theme: usize,
    /// Whether the mouse is captured.
    pub mouse: bool,
    styles: Styles,
}

impl App {
    /// The state before any computation.
    pub fn new(setup: Setup) -> Self {
        let theme = setup.theme.min(setup.themes.len().saturating_sub(1));
        let themes = if setup.themes.is_empty() { Theme::shipped() } else { setup.themes.clone() };
        let mut app = Self {
            screen: setup.screen,
            modal: None,
            message: None,
            said: VecDeque::new(),
            predictions: Job::default(),
            unchanged: Job::default(),
            details: Job::default(),
            comparison: Job::default(),
            sweep: Job::default(),
            what_if: Job::default(),
            chosen: Chosen::default(),
            plan: Job::default(),
            frontier: Arc::default(),
            overview: OverviewState::new(&setup.profile, &setup.catalog),
            profile: ProfileState::new(&setup.profile, setup.against.clone()),
            predict: PredictState { wanted: setup.gpu.clone(), ..PredictState::default() },
            planner: PlanState::default(),
            live: setup.job.clone().map(Live::new),
            jobs: JobsState::default(),
            size: (80, 24),
            theme,
            mouse: setup.mouse,
            styles: themes[theme].styles(setup.colours),
            setup: Setup { themes, ..setup },
        };
        if let Some(filter) = app.setup.filter.clone() {
            let sorts = !app.screen.behaviour().sorts(&app).is_empty();
            let screen = if sorts { app.screen } else { Screen::Predict };
            if let Some(list) = screen.behaviour().list_mut(&mut app) {
                list.set_filter(filter);
            }
        }
        app
    }

    /// Current styles.
    pub const fn styles(&self) -> &Styles {
        &self.styles
    }

    /// The goal being edited.
    pub const fn goal(&self) -> &Goal {
        &self.setup.goal
    }

    /// GPUs that the step may have been recorded on, if that is unknown.
    fn origins(&self) -> Candidates {
        candidates(&self.setup.profile, &self.setup.catalog)
    }

    /// Number of rows to move per page.
    fn page(&self) -> isize {
        isize::try_from(self.size.1).unwrap_or(24).saturating_sub(12).max(3)
    }

    fn set_theme(&mut self, theme: usize) {
        self.theme = theme % self.setup.themes.len();
        self.styles = self.setup.themes[self.theme].styles(self.setup.colours);
    }
}
