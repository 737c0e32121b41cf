//! What reaches the app and what it asks to be done.

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

/// What can be under the mouse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// The name of a screen.
    Tab(Screen),
    /// A row of the screen's list, by position among the rows shown.
    Row(usize),
    /// The heading of a sortable column.
    Header(usize),
    /// A slider, at a position from 0 to 1.
    Slider(Knob, f64),
    /// Something that does what a key does.
    Do(Action),
    /// A row of the open dialog's list.
    DialogRow(usize),
}

/// A message to the app.
#[derive(Debug, Clone)]
pub enum Msg {
    /// The front end is up.
    Start,
    /// A key was pressed.
    Key(Key),
    /// An action, whatever key it is on.
    Do(Action),
    /// Text was pasted.
    Paste(String),
    /// A click.
    Click(Target),
    /// The wheel turned, so many rows down.
    Wheel(isize),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// The prediction is done.
    Predicted {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<Predictions>, String>,
    },
    /// Some GPUs are predicted operation by operation.
    Detailed {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<Predictions>, String>,
    },
    /// The methods are compared.
    Compared {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<Comparison>, String>,
    },
    /// The step at other batch sizes is known.
    Swept {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<Sweep>, String>,
    },
    /// The step on a hypothetical GPU is known.
    Changed {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<WhatIf>, String>,
    },
    /// The plan is done.
    Planned {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Solved, String>,
    },
    /// The jobs are planned together.
    JobsPlanned {
        /// Generation of its inputs.
        generation: u64,
        /// The result.
        result: Result<Arc<JobsPlan>, String>,
    },
    /// News of the job.
    Live(live::Update),
    /// The editor was closed; the reason where it failed.
    Edited(Result<(), String>),
    /// A file was written, or not.
    Saved(SaveOutcome),
    /// Something was copied: what.
    Copied(String),
    /// The clipboard was refused, and why.
    NotCopied(String),
    /// The terminal did not switch its mouse, and why.
    MouseRefused(String),
}

/// Something the runner is asked to do.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Predict, and answer with [`Msg::Predicted`].
    Predict {
        /// Generation to answer with.
        generation: u64,
        /// The profile.
        profile: Arc<Profile>,
        /// What was chosen on screen.
        chosen: Chosen,
    },
    /// Predict some GPUs operation by operation, and answer with [`Msg::Detailed`].
    Detail {
        /// Generation to answer with.
        generation: u64,
        /// The profile.
        profile: Arc<Profile>,
        /// The GPUs.
        gpus: Vec<GpuSlug>,
        /// What was chosen on screen.
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
        /// What was chosen on screen.
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
        /// What was chosen on screen.
        chosen: Chosen,
    },
    /// Predict one GPU with other figures, and answer with [`Msg::Changed`].
    Change {
        /// Generation to answer with.
        generation: u64,
        /// The profile.
        profile: Arc<Profile>,
        /// The GPU and its figures.
        version: Version,
        /// What was chosen on screen.
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
    /// Read the file of jobs, plan them together, and answer with [`Msg::JobsPlanned`].
    PlanJobs {
        /// Generation to answer with.
        generation: u64,
    },
    /// Write the plan of several jobs, and answer with [`Msg::Saved`].
    SaveJobs {
        /// The plan.
        plan: Arc<JobsPlan>,
        /// Its form.
        form: JobsForm,
        /// Where to.
        path: String,
        /// Whether an existing file may be replaced.
        overwrite: bool,
    },
    /// Write the plan, and answer with [`Msg::Saved`].
    Save {
        /// What of it.
        export: Box<Export>,
        /// Where to.
        path: String,
        /// Whether an existing file may be replaced.
        overwrite: bool,
    },
    /// Put text on the clipboard, and answer with [`Msg::Copied`] or [`Msg::NotCopied`].
    Copy {
        /// The text.
        text: String,
        /// What it is, in words.
        what: String,
    },
    /// Pass a wish on to the job.
    Job(live::Wish),
    /// Switch the mouse; answer with [`Msg::MouseRefused`] where that fails.
    Mouse(bool),
    /// Draw everything anew.
    Redraw,
    /// Give the terminal to the user's editor on this file, and answer with [`Msg::Edited`].
    Edit(String),
    /// Stop until continued.
    Suspend,
    /// Leave.
    Quit,
}
