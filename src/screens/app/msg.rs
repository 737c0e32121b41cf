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
use habitat_planning::pricing::PriceBook;
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
    /// The answer to a question.
    Answered {
        /// Generation of its inputs.
        generation: u64,
        /// The answer.
        answer: Answer,
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

/// A computation of the engine in the background. Predictions are of a step, with the choices on screen.
#[derive(Debug, Clone)]
pub enum Question {
    /// Every GPU.
    Predict(Arc<Profile>, Chosen),
    /// The same in the recorded precision.
    Unchanged(Arc<Profile>, Chosen),
    /// Some GPUs by operation.
    Detail(Arc<Profile>, Vec<GpuSlug>, Chosen),
    /// The methods on one GPU.
    Compare(Arc<Profile>, GpuSlug, Chosen),
    /// Other batch sizes on one GPU.
    Batches(Arc<Profile>, GpuSlug, Chosen),
    /// One GPU with changed specifications.
    Change(Arc<Profile>, Version, Chosen),
    /// The plan for a goal.
    Plan(Arc<Predictions>, Arc<PriceBook>, Box<Goal>),
    /// The plan of the jobs in their file.
    Jobs,
}

/// A result, or why there is none.
pub type Computed<T> = Result<Arc<T>, String>;

/// Result of the engine: an answer for each [`Question`].
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "as the questions")]
pub enum Answer {
    Predict(Computed<Predictions>),
    Unchanged(Computed<Predictions>),
    Detail(Computed<Predictions>),
    Compare(Computed<Comparison>),
    Batches(Computed<Sweep>),
    Change(Computed<WhatIf>),
    Plan(Result<Solved, String>),
    Jobs(Computed<JobsPlan>),
}

/// A request to the runner.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Compute, and answer with [`Msg::Answered`].
    Ask {
        /// Generation to answer with.
        generation: u64,
        /// The computation.
        question: Question,
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
    Job(live::JobRequest),
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
            Effect::Ask { generation, question } => {
                Msg::Answered { generation: *generation, answer: self.computed(question) }
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
    fn computed(&self, question: &Question) -> Answer {
        match question {
            Question::Predict(step, chosen) => Answer::Predict(shared(|| (self.predict)(step, *chosen))),
            Question::Unchanged(step, chosen) => Answer::Unchanged(shared(|| (self.predict)(step, *chosen))),
            Question::Detail(step, gpus, chosen) => Answer::Detail(shared(|| (self.detail)(step, gpus, *chosen))),
            Question::Compare(step, gpu, chosen) => Answer::Compare(shared(|| (self.compare)(step, gpu, *chosen))),
            Question::Batches(step, gpu, chosen) => Answer::Batches(shared(|| (self.batches)(step, gpu, *chosen))),
            Question::Change(step, version, chosen) => Answer::Change(shared(|| (self.change)(step, version, *chosen))),
            Question::Plan(predictions, prices, goal) => {
                Answer::Plan(guarded(|| (self.plan)(predictions, prices, goal)))
            }
            Question::Jobs => Answer::Jobs(shared(|| (self.jobs)())),
        }
    }

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

fn shared<T>(work: impl FnOnce() -> Result<T, String>) -> Computed<T> {
    guarded(work).map(Arc::new)
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
