//! The front end's state and how it changes: [`App::update`] takes a [`Msg`] and gives the
//! [`Effect`]s to carry out. No terminal, no async runtime, no input or output here.

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

pub use engine::{Chosen, Engine, SaveOutcome, Solved};
use job::Job;
use live::Live;
use modal::Modal;
pub use msg::{Effect, Msg, Target};
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
use habitat_prediction::origin::{Candidates, candidates};
use habitat_prediction::{Precision, Predictions};
use habitat_reports::theme::{ColourLevel, GlyphSet, Styles, Theme};
use habitat_step::catalog::Catalog;
use habitat_step::profile::Profile;

/// Smallest terminal in which every answer can be shown.
pub const SMALLEST: (u16, u16) = (50, 15);

/// Where the profile came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file or another place the user named.
    Given(String),
    /// A sample inside the program, by its description: never to be taken for the user's.
    Sample(String),
    /// None yet: the profile is empty until the job is recorded.
    Awaited,
}

impl Source {
    /// How it is named on screen.
    pub fn label(&self) -> String {
        match self {
            Self::Given(place) => place.clone(),
            Self::Sample(about) => format!("embedded sample: {about}"),
            Self::Awaited => "nothing recorded yet".to_owned(),
        }
    }
}

/// Everything the app starts from.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The profile.
    pub profile: Arc<Profile>,
    /// Where it came from.
    pub source: Source,
    /// The recording that it is compared with.
    pub against: Option<Against>,
    /// What was typed.
    pub typed: CommandLine,
    /// The job that was started with the screens.
    pub job: Option<habitat_recorder::live::Job>,
    /// The file of jobs that are planned together.
    pub jobs: Option<String>,
    /// The GPUs.
    pub catalog: Arc<Catalog>,
    /// The offers.
    pub prices: Arc<PriceBook>,
    /// The precision asked for at the start; `None` = as recorded.
    pub precision: Option<Precision>,
    /// The clock, for deadlines that are dates.
    pub now: fn() -> jiff::Zoned,
    /// What is to be planned.
    pub goal: Goal,
    /// Keys.
    pub keymap: Keymap,
    /// Themes to cycle through, at least one.
    pub themes: Vec<Theme>,
    /// The first theme, by position.
    pub theme: usize,
    /// Colours of the terminal.
    pub colours: ColourLevel,
    /// Characters of drawings.
    pub glyphs: GlyphSet,
    /// Whether the mouse is taken.
    pub mouse: bool,
    /// The first screen.
    pub screen: Screen,
    /// GPU selected on the predict screen at first.
    pub gpu: Option<GpuSlug>,
    /// Filter of the first screen's list.
    pub filter: Option<String>,
}

/// Whether a message is good news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Done.
    Good,
    /// Not possible here and now.
    Hint,
    /// Failed.
    Bad,
}

/// The state of the front end.
#[derive(Debug, Clone)]
pub struct App {
    /// What it started from; the goal in it is the one being edited.
    pub setup: Setup,
    /// The screen shown.
    pub screen: Screen,
    /// The dialog on top.
    pub modal: Option<Modal>,
    /// The last message.
    pub message: Option<(Tone, String)>,
    /// What was said before, the newest first.
    pub said: VecDeque<(Tone, String)>,
    /// The prediction.
    pub predictions: Job<Predictions>,
    /// The GPUs that are looked into, operation by operation.
    pub details: Job<Predictions>,
    /// What every method says of a GPU, for the dialog.
    pub comparison: Job<Comparison>,
    /// The step at other batch sizes on a GPU, for the dialog.
    pub sweep: Job<Sweep>,
    /// One GPU with other figures.
    pub what_if: Job<WhatIf>,
    /// The method and the host chosen on screen, in place of those asked for at the start.
    pub chosen: Chosen,
    /// The plan.
    pub plan: Job<Plan>,
    /// The plans there would be without deadline and budget, from the fastest to the cheapest.
    pub frontier: Arc<Vec<FrontierPoint>>,
    /// First screen.
    pub overview: OverviewState,
    /// Second screen.
    pub profile: ProfileState,
    /// Third screen.
    pub predict: PredictState,
    /// Fourth screen.
    pub planner: PlanState,
    /// The job, and fifth screen.
    pub live: Option<Live>,
    /// The jobs that are planned together, and sixth screen.
    pub jobs: JobsState,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// The theme in use, by position.
    pub theme: usize,
    /// Whether the mouse is taken.
    pub mouse: bool,
    styles: Styles,
}

impl App {
    /// The state before anything has run.
    pub fn new(setup: Setup) -> Self {
        let theme = setup.theme.min(setup.themes.len().saturating_sub(1));
        let themes = if setup.themes.is_empty() { Theme::shipped() } else { setup.themes.clone() };
        let mut app = Self {
            screen: setup.screen,
            modal: None,
            message: None,
            said: VecDeque::new(),
            predictions: Job::default(),
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

    /// The styles in use.
    pub const fn styles(&self) -> &Styles {
        &self.styles
    }

    /// The goal being edited.
    pub const fn goal(&self) -> &Goal {
        &self.setup.goal
    }

    /// The GPUs that the step may have been recorded on, where that is not known.
    fn origins(&self) -> Candidates {
        candidates(&self.setup.profile, &self.setup.catalog)
    }

    /// Rows of one page of a list.
    fn page(&self) -> isize {
        isize::try_from(self.size.1).unwrap_or(24).saturating_sub(12).max(3)
    }

    fn set_theme(&mut self, theme: usize) {
        self.theme = theme % self.setup.themes.len();
        self.styles = self.setup.themes[self.theme].styles(self.setup.colours);
    }
}
