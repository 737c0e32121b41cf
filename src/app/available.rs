//! What works here and now: the rules of the action table evaluated on the state.

use crate::action::{ACTIONS, Action, Needs, Spec};
use crate::app::screen::plan::Pane;
use crate::app::slider::Knob;
use crate::app::{App, Screen};

/// A key of the footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The key.
    pub key: String,
    /// What it does.
    pub word: &'static str,
    /// The action that a click on it runs.
    pub action: Option<Action>,
}

impl App {
    /// Why the action does nothing here and now; `None` if it works.
    pub fn unavailable(&self, action: Action) -> Option<&'static str> {
        let on = |screen| self.screen == screen;
        let slider = on(Screen::Plan) && self.planner.pane == Pane::Goal;
        let moves = matches!(action, Action::Top | Action::Bottom | Action::PageUp | Action::PageDown);
        match action.spec().needs {
            Needs::Job if self.live.is_none() => {
                Some("no job was started here; `habitat-tui run -- python train.py` does")
            }
            Needs::Closable if !self.closable() => Some("nothing to close or clear"),
            Needs::Nothing | Needs::Job | Needs::Closable => None,
            Needs::Table if moves && on(Screen::Job) => None,
            Needs::RunningJob if self.job_runs() => None,
            _ if self.is_awaiting() => Some("nothing is recorded yet"),
            Needs::Table if on(Screen::Overview) || on(Screen::Job) => Some("there is no table on this screen"),
            Needs::SortableTable if !on(Screen::Profile) && !on(Screen::Predict) => {
                Some("works on the tables of profile and predict")
            }
            Needs::Detail if !on(Screen::Profile) && !on(Screen::Predict) => Some("nothing to open here"),
            Needs::Panes if !on(Screen::Profile) && !on(Screen::Plan) => Some("this screen has one pane"),
            Needs::ProfileScreen if !on(Screen::Profile) => Some("works on the profile screen"),
            Needs::Prediction if !on(Screen::Predict) => Some("works on the predict screen"),
            Needs::Prediction if self.predictions.value().is_none() => Some("there is no prediction yet"),
            Needs::PlanScreen if !on(Screen::Plan) => Some("works on the plan screen"),
            Needs::Slider if !slider => Some("works on the sliders of the plan screen"),
            Needs::Limit if !slider || self.planner.knob == Knob::Work => {
                Some("works on the deadline and budget of the plan screen")
            }
            Needs::Plan if self.plan.value().is_none() => Some("there is no plan yet"),
            Needs::Plan if self.plan.value().is_some_and(|plan| plan.parts.is_empty()) => {
                Some("no plan meets the limits, so there is nothing to write")
            }
            Needs::UnknownOrigin if self.origins().gpus.is_empty() => {
                Some("the GPU is known, or nothing tells which it may have been")
            }
            Needs::RunningJob if !self.plan.is_running() && !self.predictions.is_running() => {
                Some("nothing is being computed")
            }
            _ => None,
        }
    }

    fn closable(&self) -> bool {
        self.modal.is_some()
            || self.has_open()
            || match self.screen {
                Screen::Profile => !self.profile.list.filter.is_empty(),
                Screen::Predict => self.predict.opened.is_some() || !self.predict.list.filter.is_empty(),
                Screen::Overview | Screen::Plan | Screen::Job => false,
            }
    }

    /// Whether something is open on the screen that Esc closes before it clears a filter.
    fn has_open(&self) -> bool {
        match self.screen {
            Screen::Profile => self.profile.zoomed,
            Screen::Predict => self.predict.opened.is_some() && self.predict.operations.filter.is_empty(),
            Screen::Overview | Screen::Plan | Screen::Job => false,
        }
    }

    /// The keys for the footer: those of the dialog, else of the screen.
    pub fn footer(&self) -> Vec<Hint> {
        if let Some(modal) = &self.modal {
            return modal
                .keys()
                .iter()
                .map(|(key, word)| Hint { key: (*key).to_owned(), word, action: None })
                .collect();
        }
        let hint = |spec: &Spec| Hint {
            key: self.setup.keymap.hint(spec.action),
            word: if spec.action == Action::Close && self.has_open() { "close" } else { spec.short },
            action: Some(spec.action),
        };
        self.actions().into_iter().map(hint).collect()
    }

    /// The actions for the footer: what works here and has a word and a key, the more
    /// particular to the screen first, the ever-present last.
    fn actions(&self) -> Vec<&'static Spec> {
        let mut shown: Vec<&Spec> = ACTIONS
            .iter()
            .filter(|spec| {
                !spec.short.is_empty()
                    && self.unavailable(spec.action).is_none()
                    && !self.setup.keymap.keys(spec.action).is_empty()
            })
            .collect();
        // The way to more first, so that a narrow footer still has it.
        let place = |spec: &Spec| match spec.action {
            Action::Help => 0,
            Action::Palette | Action::Back => 3,
            Action::Open | Action::Left | Action::Right | Action::SetValue | Action::NoLimit => 1,
            _ => 2,
        };
        shown.sort_by_key(|spec| place(spec));
        shown
    }
}
