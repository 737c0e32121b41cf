//! Availability of actions: checks the needs of an action against the state.

use crate::action::{ACTIONS, Action, Needs, Screen, Spec};
use crate::app::App;

/// A key in the footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The key.
    pub key: String,
    /// Its word in the footer.
    pub word: &'static str,
    /// The action to run on a click.
    pub action: Option<Action>,
}

impl App {
    /// Why the action is not available; `None` if it is.
    pub fn unavailable(&self, action: Action) -> Option<&'static str> {
        let needs = action.spec().needs;
        let screen = self.screen.behaviour();
        // Needs that do not depend on a recording.
        let is_there = match needs {
            Needs::Nothing => true,
            Needs::Job => self.live.is_some(),
            Needs::Planned => !self.is_awaiting() && self.live.as_ref().is_some_and(|live| live.job.aim.plan.is_some()),
            Needs::Jobs => self.setup.jobs.is_some(),
            Needs::Closable => {
                let filtered = screen.list(self).is_some_and(|list| !list.filter.is_empty());
                self.modal.is_some() || screen.is_open(self) || filtered
            }
            Needs::Running if self.job_runs() => true,
            _ if screen.awaits().is_none() && screen.gives(self, needs) => true,
            _ if self.is_awaiting() => return Some("nothing recorded yet"),
            Needs::Running => self.plan.is_running() || self.predictions.is_running() || self.jobs.plan.is_running(),
            // On this screen it means the plan of all jobs.
            Needs::Plan if self.screen == Screen::Jobs => return Some("no plan of the jobs yet"),
            Needs::UnknownOrigin => !self.origins().gpus.is_empty(),
            Needs::Plan if self.plan.value().is_some_and(|plan| plan.parts.is_empty()) => {
                return Some("no plan meets the limits, so there is nothing to export");
            }
            Needs::Plan => self.plan.value().is_some(),
            Needs::Prediction | Needs::Comparable
                if self.screen == Screen::Predict
                    && screen.gives(self, needs)
                    && self.predictions.value().is_none() =>
            {
                return Some("no prediction yet");
            }
            _ => screen.gives(self, needs),
        };
        (!is_there).then_some(needs.missing())
    }

    /// Another screen on which an action is available that is not available on this one.
    pub(crate) fn elsewhere(&self, action: Action) -> Option<Screen> {
        let needs = action.spec().needs;
        let screen = needs.screen().filter(|screen| *screen != self.screen)?;
        let is_there = self.unavailable(screen.action()).is_none() && screen.behaviour().gives(self, needs);
        let has_prediction = screen != Screen::Predict || self.predictions.value().is_some();
        (self.unavailable(action).is_some() && !self.is_awaiting() && is_there && has_prediction).then_some(screen)
    }

    /// Keys for the footer: those of the dialog if one is open, else of the screen.
    pub fn footer(&self) -> Vec<Hint> {
        if let Some(modal) = &self.modal {
            let hint = |(key, word): &(&str, &'static str)| Hint { key: (*key).to_owned(), word, action: None };
            return modal.keys().iter().map(hint).collect();
        }
        let is_open = self.screen.behaviour().is_open(self);
        let hint = |spec: &Spec| Hint {
            key: self.setup.keymap.hint(spec.action),
            word: if spec.action == Action::Close && is_open { "close" } else { spec.short },
            action: Some(spec.action),
        };
        self.actions().into_iter().map(hint).collect()
    }

    /// Actions for the footer: available ones with a short name and a key. The most specific ones to the screen come
    /// first, the global ones last.
    fn actions(&self) -> Vec<&'static Spec> {
        let shown = |spec: &&Spec| {
            !spec.short.is_empty()
                && self.unavailable(spec.action).is_none()
                && !self.setup.keymap.keys(spec.action).is_empty()
        };
        let mut shown: Vec<&Spec> = ACTIONS.iter().filter(shown).collect();
        // Help first, so that it fits even on a narrow footer.
        shown.sort_by_key(|spec| match spec.action {
            Action::Help => 0,
            Action::Palette | Action::Back => 3,
            Action::Open | Action::Left | Action::Right | Action::SetValue | Action::NoLimit => 1,
            _ => 2,
        });
        shown
    }
}
