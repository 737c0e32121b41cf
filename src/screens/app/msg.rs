//! Messages to the app and effects that it requests.

use std::sync::Arc;

use crate::action::{Action, Screen};
use crate::app::engine::{Chosen, Export, SaveOutcome, Solved, Version};
use crate::app::slider::Knob;
use crate::keymap::Key;
use habitat_base::units::GpuSlug;
use habitat_planning::plan::Goal;
use habitat_planning::plan::jobs::JobsPlan;
use habitat_prediction::Predictions;
use habitat_prediction::batches::Sweep;
use habitat_prediction::compare::Comparison;
use habitat_prediction::hypothetical::WhatIf;
use habitat_recorder::live;
use habitat_reports::jobs::JobsForm;
use habitat_step::profile::Profile;

/// Something that can be under the mouse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// The name of a screen.
    Tab(Screen),
    /// A row of the screen's list, by index among the rows shown.
    Row(usize),
    /// The heading of a sortable column.
    Header(usize),
    /// A slider, at a position from 0 to 1.
    Slider(Knob, f64),
    /// An element that runs an action.
    Do(Action),
    /// A row of the open dialog's list.
    DialogRow(usize),
}

/// A message to the app.
#[derive(Debug, Clone)]
pub enum Msg {
    /// The front end has started.
    Start,
    /// A key was pressed.
    Key(Key),
    /// Runs an action.
    Do(Action),
    /// Text was pasted.
    Paste(String),
    /// A click.
    Click(Target),
    /// The wheel turned, by a number of rows downwards.
    Wheel(isize),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// Result of a prediction.
    Predicted {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<Predictions>, String>,
    },
    /// Result of a prediction by operation.
    Detailed {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<Predictions>, String>,
    },
    /// Result of a comparison of methods.
    Compared {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<Comparison>, String>,
    },
    /// Result of a prediction at other batch sizes.
    Swept {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<Sweep>, String>,
    },
    /// Result of a prediction on a hypothetical GPU.
    Changed {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<WhatIf>, String>,
    },
    /// Result of a plan.
    Planned {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Solved, String>,
    },
    /// Result of planning jobs together.
    JobsPlanned {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<JobsPlan>, String>,
    },
    /// An update about the job.
    Live(live::Update),
    /// The editor was closed, with an error if it failed.
    Edited(Result<(), String>),
    /// Result of saving a file.
    Saved(SaveOutcome),
    /// Something was copied; its description.
    Copied(String),
    /// The clipboard refused; the reason.
    NotCopied(String),
    /// The terminal could not switch its mouse mode; the reason.
    MouseRefused(String),
}

/// A request to the runner.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Predict, and answer with [`Msg::Predicted`].
    Predict {
        /// Generation to answer with.
        generation: u64,
        /// The profile.
        profile: Arc<Profile>,
        /// Choices on screen.
        chosen: Chosen,
    },
    /// Predict some GPUs by operation, and answer with [`Msg::Detailed`].
    Detail {
        /// Generation to answer with.
        generation: u64,
        /// The profile.
        profile: Arc<Profile>,
        /// The GPUs.
        gpus: Vec<GpuSlug>,
        /// Choices on screen.
        chosen: Chosen,
    },
    /// Compare the methods on one GPU, and answer with [`Msg::Compared`].
    Compare {
        /// Generation to answer with.
        generation: u64,
        /// The profile.
        profile: Arc<Profile>,
        /// The GPU.
        gpu: GpuSlug,
        /// Choices on screen.
        chosen: Chosen,
    },
    /// Predict other batch sizes on one GPU, and answer with [`Msg::Swept`].
    Batches {
        /// Generation to answer with.
        generation: u64,
        /// The profile.
        profile: Arc<Profile>,
        /// The GPU.
        gpu: GpuSlug,
        /// Choices on screen.
        chosen: Chosen,
    },
    /// Predict one GPU with changed specifications, and answer with [`Msg::Changed`].
    Change {
        /// Generation to answer with.
        generation: u64,
        /// The profile.
        profile: Arc<Profile>,
        /// The GPU and its specifications.
        version: Version,
        /// Choices on screen.
        chosen: Chosen,
    },
    /// Plan, and answer with [`Msg::Planned`].
    Solve {
        /// Generation to answer with.
        generation: u64,
        /// The predictions.
        predictions: Arc<Predictions>,
        /// The goal.
        goal: Box<Goal>,
    },
    /// Read the file of jobs, plan the jobs together, and answer with [`Msg::JobsPlanned`].
    PlanJobs {
        /// Generation to answer with.
        generation: u64,
    },
    /// Write the plan of several jobs, and answer with [`Msg::Saved`].
    SaveJobs {
        /// The plan.
        plan: Arc<JobsPlan>,
        /// Its format.
        form: JobsForm,
        /// Target file.
        path: String,
        /// Whether to overwrite an existing file.
        overwrite: bool,
    },
    /// Write the plan, and answer with [`Msg::Saved`].
    Save {
        /// The plan and its format.
        export: Box<Export>,
        /// Target file.
        path: String,
        /// Whether to overwrite an existing file.
        overwrite: bool,
    },
    /// Copy text to the clipboard, and answer with [`Msg::Copied`] or [`Msg::NotCopied`].
    Copy {
        /// The text.
        text: String,
        /// Its description.
        what: String,
    },
    /// Pass a request on to the job.
    Job(live::Wish),
    /// Switch mouse capture; answer with [`Msg::MouseRefused`] if that fails.
    Mouse(bool),
    /// Redraw the whole screen.
    Redraw,
    /// Open the user's editor on this file, and answer with [`Msg::Edited`].
    Edit(String),
    /// Suspend the process until it is continued.
    Suspend,
    /// Quit.
    Quit,
}
