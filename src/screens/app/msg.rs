//! Messages to the app, effects that it requests, and how the engine answers them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::action::{Action, Screen};
use crate::app::engine::{Chosen, Engine, Export, SaveOutcome, Solved, Version};
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
use habitat_reports::plan_form::paths;
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

impl Engine {
    /// Runs an effect that computes or saves and returns the answering message; `None` for effects of the terminal. A
    /// panic counts as a failed computation.
    pub fn answer(&self, effect: &Effect) -> Option<Msg> {
        Some(match effect {
            Effect::Predict { generation, profile, chosen } => {
                let result = guarded(|| (self.predict)(profile, *chosen)).map(Arc::new);
                Msg::Predicted { generation: *generation, result }
            }
            Effect::Detail { generation, profile, gpus, chosen } => {
                let result = guarded(|| (self.detail)(profile, gpus, *chosen)).map(Arc::new);
                Msg::Detailed { generation: *generation, result }
            }
            Effect::Compare { generation, profile, gpu, chosen } => {
                let result = guarded(|| (self.compare)(profile, gpu, *chosen)).map(Arc::new);
                Msg::Compared { generation: *generation, result }
            }
            Effect::Batches { generation, profile, gpu, chosen } => {
                let result = guarded(|| (self.batches)(profile, gpu, *chosen)).map(Arc::new);
                Msg::Swept { generation: *generation, result }
            }
            Effect::Change { generation, profile, version, chosen } => {
                let result = guarded(|| (self.change)(profile, version, *chosen)).map(Arc::new);
                Msg::Changed { generation: *generation, result }
            }
            Effect::Solve { generation, predictions, goal } => {
                let result = guarded(|| (self.plan)(predictions, goal));
                Msg::Planned { generation: *generation, result }
            }
            Effect::PlanJobs { generation } => {
                let result = guarded(|| (self.jobs)()).map(Arc::new);
                Msg::JobsPlanned { generation: *generation, result }
            }
            Effect::SaveJobs { plan, form, path, overwrite } => {
                let text = guarded(|| form.text(plan).map_err(|error| error.to_string()));
                let saved = text.and_then(|text| guarded(|| Ok((self.save)(path, &text, *overwrite))));
                Msg::Saved(saved.unwrap_or_else(SaveOutcome::Failed))
            }
            Effect::Save { export, path, overwrite } => {
                let texts = guarded(|| (self.export)(export));
                let saved = texts.and_then(|texts| guarded(|| Ok(self.save_all(path, &texts, *overwrite))));
                Msg::Saved(saved.unwrap_or_else(SaveOutcome::Failed))
            }
            _ => return None,
        })
    }
}

impl Engine {
    /// Writes each text to its own file and stops at the first failure.
    fn save_all(&self, path: &str, texts: &[String], overwrite: bool) -> SaveOutcome {
        let mut written = Vec::new();
        for (path, text) in paths(path, texts.len()).iter().zip(texts) {
            match (self.save)(path, text, overwrite) {
                SaveOutcome::Saved(path) => written.push(path),
                other => return other,
            }
        }
        SaveOutcome::Saved(written.join(", "))
    }
}

fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(format!("internal error ({text}), please report it; your data is not affected"))
    })
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn a_panic_is_a_failed_computation() {
        assert_eq!(guarded(|| Ok(1)), Ok(1));
        let failed = guarded(|| -> Result<(), String> { panic!("no {}", "way") });
        assert!(failed.unwrap_err().contains("internal error (no way)"));
    }
}
