//! A job that runs while the screens are open: its updates, and leaving the screens while it runs.

use std::sync::Arc;

use crate::action::Action;
use crate::action::Screen;
use crate::app::modal::Modal;
use crate::app::msg::Effect;
use crate::app::{App, Source, Tone};
use crate::keymap::{Code, Key};
use habitat_base::units::{Hours, Usd};
use habitat_planning::plan::Work;
use habitat_recorder::live::history::Digest;
use habitat_recorder::live::{Job, JobRequest, Snapshot, Update};
use habitat_reports::run;

/// The job and everything known about it.
#[derive(Debug, Clone)]
pub struct Live {
    /// Facts that do not change.
    pub job: Job,
    /// The latest snapshot.
    pub seen: Snapshot,
    /// The last lines of its output.
    pub output: Arc<Vec<String>>,
    /// Its history.
    pub history: Digest,
    /// Lines of output below the visible ones; 0 follows the end.
    pub above: usize,
    /// Whether to quit as soon as the job has ended.
    pub leaving: bool,
    /// Why the profile is missing or not up to date.
    pub problem: Option<String>,
    /// The work of the whole job, once its rest is planned.
    pub whole: Option<Work>,
}

impl Live {
    /// A job without any updates yet.
    pub fn new(job: Job) -> Self {
        let (seen, output) = (Snapshot::default(), Arc::default());
        Self { job, seen, output, history: Digest::default(), above: 0, leaving: false, problem: None, whole: None }
    }
}

/// Choices when the user quits while the job is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Keep it running.
    Leave,
    /// Stop it.
    Stop,
    /// Stay on the screens.
    Stay,
}

impl Leaving {
    /// All choices, in the order of the dialog.
    pub const ALL: [Self; 3] = [Self::Leave, Self::Stop, Self::Stay];

    /// The key and the label.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Leave => ("l", "leave it running"),
            Self::Stop => ("s", "stop it"),
            Self::Stay => ("esc", "stay here"),
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Leave => 0,
            Self::Stop => 1,
            Self::Stay => 2,
        }
    }
}

impl App {
    /// Whether the profile is still to come.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.setup.source == Source::Awaited
    }

    /// Whether the job is running, so that quitting offers to stop it.
    pub(super) fn job_runs(&self) -> bool {
        self.live.as_ref().is_some_and(|live| !live.seen.is_over())
    }

    pub(super) fn news_of_job(&mut self, update: Update, effects: &mut Vec<Effect>) {
        let Some(live) = &mut self.live else { return };
        match update {
            Update::Snapshot(seen) => {
                live.seen = *seen;
                if live.seen.is_over() {
                    if matches!(self.modal, Some(Modal::Leave { .. })) {
                        self.modal = None;
                    }
                    if live.leaving {
                        effects.push(Effect::Quit);
                    }
                }
            }
            Update::Output(lines) => {
                if live.above > 0 {
                    // Keep the visible lines in place.
                    live.above += lines.len().saturating_sub(live.output.len());
                }
                live.above = live.above.min(lines.len().saturating_sub(1));
                live.output = lines;
            }
            Update::History(digest) => live.history = *digest,
            Update::Recorded(profile) => {
                live.problem = None;
                self.adopt(*profile, effects);
            }
            Update::NotWritten(why) => live.problem = Some(why),
        }
    }

    /// Plans what is left of the job with the time and the money that are left, on the plan screen.
    pub(super) fn plan_rest(&mut self, effects: &mut Vec<Effect>) {
        let Some(live) = &mut self.live else { return };
        let whole = *live.whole.get_or_insert(self.setup.goal.work);
        let (aim, seen) = (&live.job.aim, &live.seen);
        let (Some(plan), Some(total)) = (&aim.plan, aim.steps) else { return };
        let elapsed = seen.hours();
        let price = run::price(aim, Some(&*self.setup.profile), &self.setup.prices);
        let spent = price.map_or(Usd::ZERO, |price| price.per_hour * elapsed);
        let left = 1.0 - seen.steps as f64 / total.max(1) as f64;
        if left <= 0.0 {
            return self.tell(Tone::Hint, "all steps are done: nothing is left to plan".to_owned());
        }
        // Limits already passed become the smallest possible; the plan then has no solution and lists changes that
        // help.
        let least = 0.01;
        let goal = &mut self.setup.goal;
        goal.work = whole.scaled(left);
        goal.deadline = plan.deadline.map(|deadline| Hours::known((deadline.get() - elapsed.get()).max(least)));
        goal.budget = plan.budget.map(|budget| Usd::known((budget.get() - spent.get()).max(least)));
        self.screen = Screen::Plan;
        self.start_plan(effects);
        self.tell(Tone::Good, format!("planning the rest: {:.0} % of the work", left * 100.0));
    }

    /// Cancels running computations, else asks whether to stop the job.
    pub(super) fn cancel(&mut self) {
        if self.predictions.is_running() || self.plan.is_running() || self.jobs.plan.is_running() {
            self.jobs.plan.cancel();
            self.predictions.cancel();
            self.plan.cancel();
        } else if self.job_runs() {
            self.modal = Some(Modal::Leave { selected: Leaving::Stop.place() });
        }
    }

    /// Quits, or asks about the job first if it is running.
    pub(super) fn quit(&mut self, effects: &mut Vec<Effect>) {
        if self.job_runs() {
            self.modal = Some(Modal::Leave { selected: Leaving::Leave.place() });
        } else {
            effects.push(Effect::Quit);
        }
    }

    /// Handles Ctrl-C: the first asks, the second stops the job, as in a terminal without screens. Holding the key down
    /// does no more than that.
    pub(super) fn interrupt(&mut self, effects: &mut Vec<Effect>) {
        let is_asked = self.live.as_ref().is_some_and(|live| live.leaving);
        if !self.job_runs() {
            effects.push(Effect::Quit);
        } else if !matches!(self.modal, Some(Modal::Leave { .. })) {
            self.modal = Some(Modal::Leave { selected: Leaving::Stop.place() });
        } else if !is_asked {
            self.leave(Leaving::Stop.place(), effects);
        }
    }

    pub(super) fn leaving_key(&mut self, key: Key, effects: &mut Vec<Effect>) {
        match (key.code, self.setup.keymap.action(key)) {
            (Code::Enter, _) => self.confirm(effects),
            (Code::Char('l'), _) => self.leave(Leaving::Leave.place(), effects),
            (Code::Char('s'), _) => self.leave(Leaving::Stop.place(), effects),
            (Code::Up, _) | (_, Some(Action::Up)) => self.modal_scroll(-1),
            (Code::Down, _) | (_, Some(Action::Down)) => self.modal_scroll(1),
            (Code::Esc, _) | (_, Some(Action::Back)) => self.modal = None,
            _ => {}
        }
    }

    /// Applies the choice in the dialog.
    pub(super) fn leave(&mut self, selected: usize, effects: &mut Vec<Effect>) {
        self.modal = None;
        match Leaving::ALL.get(selected) {
            Some(Leaving::Leave) => effects.push(Effect::Quit),
            Some(Leaving::Stop) => {
                if let Some(live) = &mut self.live {
                    live.leaving = true;
                }
                self.screen = Screen::Job;
                effects.push(Effect::Job(JobRequest::Stop));
            }
            Some(Leaving::Stay) | None => {}
        }
    }
}
