//! State changes: one message in, effects out.

use crate::action::{Action, Screen};
use crate::app::engine::Chosen;
use crate::app::input::Input;
use crate::app::modal::Modal;
use crate::app::msg::{Answer, Effect, Msg, Question, Target};
use crate::app::screen::{plan, predict, profile};
use crate::app::{App, Tone};
use crate::keymap::Key;

/// Maximum number of messages to keep.
const MOST_SAID: usize = 200;

impl App {
    /// Handles one message.
    pub fn update(&mut self, msg: Msg) -> Vec<Effect> {
        let mut effects = Vec::new();
        match msg {
            Msg::Start => {
                self.start_predict(&mut effects);
                self.start_jobs(&mut effects);
            }
            Msg::Live(update) => self.news_of_job(update, &mut effects),
            Msg::Key(key) => self.key(key, &mut effects),
            Msg::Do(action) => self.act(action, &mut effects),
            Msg::Paste(text) => self.paste(&text),
            Msg::Click(target) => self.click(target, &mut effects),
            Msg::Wheel(rows) => self.wheel(rows),
            Msg::Resize(columns, rows) => self.size = (columns, rows),
            Msg::Answered { generation, answer } => self.answered(generation, answer, &mut effects),
            Msg::Edited(ended) => {
                if let Err(why) = ended {
                    self.tell(Tone::Bad, why);
                }
                // The file may have changed even if the editor failed.
                self.start_jobs(&mut effects);
            }
            Msg::Saved(outcome) => self.saved(outcome),
            Msg::Copied(what) => self.tell(Tone::Good, format!("copied {what}")),
            Msg::NotCopied(why) => self.tell(Tone::Bad, format!("not copied: {why}")),
            Msg::MouseRefused(why) => self.tell(Tone::Bad, format!("mouse mode not changed: {why}")),
        }
        profile::arrange(self);
        plan::arrange(self);
        effects
    }

    fn answered(&mut self, generation: u64, answer: Answer, effects: &mut Vec<Effect>) {
        match answer {
            Answer::Predict(result) => {
                self.note_failure("the prediction", &result);
                if self.predictions.finish(generation, result) {
                    if self.predictions.value().is_some() {
                        predict::rebuild(self);
                        predict::start_details(self, effects);
                        if !self.predictions.is_stale() {
                            self.start_plan(effects);
                        }
                    } else if self.modal.is_none() && !matches!(self.screen, Screen::Job | Screen::Jobs) {
                        self.ask_origin();
                    }
                }
            }
            Answer::Unchanged(result) => _ = self.unchanged.finish(generation, result),
            Answer::Detail(result) => {
                self.note_failure("the prediction by operation", &result);
                self.details.finish(generation, result);
            }
            Answer::Compare(result) => {
                self.note_failure("the comparison of methods", &result);
                self.comparison.finish(generation, result);
            }
            Answer::Batches(result) => {
                self.note_failure("the prediction at other batch sizes", &result);
                self.sweep.finish(generation, result);
            }
            Answer::Change(result) => {
                self.note_failure("the what-if prediction", &result);
                self.what_if.finish(generation, result);
            }
            Answer::Plan(result) => {
                self.note_failure("the plan", &result);
                let (plan, frontier) = match result {
                    Ok(solved) => (Ok(solved.plan), Some(solved.frontier)),
                    Err(why) => (Err(why), None),
                };
                if self.plan.finish(generation, plan) {
                    self.frontier = frontier.unwrap_or_else(|| self.frontier.clone());
                    let rows = plan::lower_table(self).map_or(0, |table| table.len());
                    self.planner.list.step(0, rows);
                }
            }
            Answer::Jobs(result) => {
                self.note_failure("the plan of the jobs", &result);
                if self.jobs.plan.finish(generation, result) {
                    let rows = self.jobs.plan.value().map_or(0, |plan| plan.jobs.len());
                    self.jobs.list.step(0, rows);
                }
            }
        }
    }

    pub(super) fn start_predict(&mut self, effects: &mut Vec<Effect>) {
        if self.is_awaiting() {
            return;
        }
        let question = Question::Predict(self.setup.profile.clone(), self.chosen);
        effects.push(Effect::Ask { generation: self.predictions.start(), question });
        // The same in the recorded precision, to compare with.
        if predict::precision(self).is_some() {
            let recorded = Chosen { precision: Some(None), batch: Some(None), ..self.chosen };
            let question = Question::Unchanged(self.setup.profile.clone(), recorded);
            effects.push(Effect::Ask { generation: self.unchanged.start(), question });
        }
    }

    pub(super) fn start_jobs(&mut self, effects: &mut Vec<Effect>) {
        if self.setup.jobs.is_some() {
            effects.push(Effect::Ask { generation: self.jobs.plan.start(), question: Question::Jobs });
        }
    }

    pub(super) fn start_plan(&mut self, effects: &mut Vec<Effect>) {
        let goal = &self.setup.goal;
        if let Some(before) = self.planner.planned.replace(goal.clone()).filter(|before| before != goal) {
            self.planner.earlier.push(before);
        }
        let Some(predictions) = self.predictions.shared() else { return };
        let question = Question::Plan(predictions, self.setup.prices.clone(), Box::new(self.setup.goal.clone()));
        effects.push(Effect::Ask { generation: self.plan.start(), question });
    }

    fn key(&mut self, key: Key, effects: &mut Vec<Effect>) {
        self.message = None;
        if self.modal.is_some() {
            self.modal_key(key, effects);
        } else if let Some(action) = self.setup.keymap.action(key) {
            self.act(action, effects);
        } else {
            let help = self.setup.keymap.hint(Action::Help);
            self.tell(Tone::Hint, format!("{key} does nothing; press {help} for the keys"));
        }
    }

    /// Shows a message in the status line.
    pub(super) fn tell(&mut self, tone: Tone, text: impl Into<String>) {
        let message = (tone, text.into());
        self.note(message.clone());
        self.message = Some(message);
    }

    /// Adds a message to the history; a repeated one moves to the top.
    fn note(&mut self, message: (Tone, String)) {
        self.said.retain(|said| *said != message);
        self.said.push_front(message);
        self.said.truncate(MOST_SAID);
    }

    /// Adds a failed computation to the history. The pane that requested it shows it, too.
    fn note_failure<T>(&mut self, what: &str, result: &Result<T, String>) {
        if let Err(why) = result {
            self.note((Tone::Bad, format!("{what} failed: {why}")));
        }
    }

    pub(super) fn act(&mut self, action: Action, effects: &mut Vec<Effect>) {
        if let Some(why) = self.unavailable(action) {
            return self.tell(Tone::Hint, format!("{}: {why}", action.spec().text));
        }
        let screen = self.screen.behaviour();
        if screen.act(self, action, effects) {
            return;
        }
        if let Some(there) = Screen::ALL.iter().find(|screen| screen.action() == action) {
            self.screen = *there;
            return;
        }
        match action {
            Action::Quit => self.interrupt(effects),
            Action::Suspend => effects.push(Effect::Suspend),
            Action::Redraw => effects.push(Effect::Redraw),
            Action::Back => {
                let closed = screen.close(self);
                if !closed {
                    self.quit(effects);
                }
            }
            Action::Close => {
                let closed = screen.close(self);
                if !closed {
                    let selected = screen.selected_key(self);
                    self.filter_again(String::new(), selected.as_deref());
                }
            }
            Action::Help => self.modal = Some(Modal::help()),
            Action::Palette => self.modal = Some(Modal::Palette { input: Input::default(), selected: 0 }),
            Action::Messages => self.modal = Some(Modal::Messages { scroll: 0 }),
            Action::Theme => {
                self.set_theme(self.theme + 1);
                self.tell(Tone::Good, format!("theme {}", self.setup.themes[self.theme].name));
            }
            Action::Mouse => {
                self.mouse = !self.mouse;
                effects.push(Effect::Mouse(self.mouse));
                self.tell(Tone::Good, if self.mouse { "mouse on" } else { "mouse off: select text with the terminal" });
            }
            Action::Up => self.step(-1),
            Action::Down => self.step(1),
            Action::PageUp => self.step(-self.page()),
            Action::PageDown => self.step(self.page()),
            Action::Top => self.step(isize::MIN / 2),
            Action::Bottom => self.step(isize::MAX / 2),
            Action::Filter => {
                if let Some(list) = screen.list(self) {
                    let (before, selected) = (list.filter.clone(), screen.selected_key(self));
                    self.modal = Some(Modal::Filter { input: Input::new(&before), before, selected });
                }
            }
            Action::Sort => self.sort(None),
            Action::Reverse => {
                if let Some(list) = screen.list_mut(self) {
                    (list.reversed, list.selected) = (!list.reversed, 0);
                }
            }
            Action::Origin => self.ask_origin(),
            Action::Rerun if self.is_awaiting() => self.tell(Tone::Hint, "nothing recorded yet"),
            Action::Rerun => self.start_predict(effects),
            Action::Cancel => self.cancel(),
            Action::CopyRow | Action::CopyTable | Action::CopyCommand => effects.extend(self.copied(action)),
            Action::Rest => self.plan_rest(effects),
            Action::Export => {
                self.modal = Some(Modal::export(self.screen == Screen::Jobs));
            }
            // The others belong to single screens.
            _ => {}
        }
    }

    fn copied(&self, action: Action) -> Option<Effect> {
        let table = self.screen.behaviour().table(self);
        let (text, what) = match action {
            Action::CopyRow => (table?.row_tsv()?, "the row".to_owned()),
            Action::CopyTable => table.map(|table| (table.to_tsv(), format!("the table, {} rows", table.len())))?,
            _ => (self.command(), self.command()),
        };
        Some(Effect::Copy { text, what })
    }

    fn step(&mut self, by: isize) {
        let screen = self.screen.behaviour();
        if self.is_awaiting() && screen.awaits().is_some() {
            self.tell(Tone::Hint, "nothing recorded yet");
        } else {
            screen.step(self, by);
        }
    }

    /// Filters the list in focus anew, with the row of this key selected as before if it is shown.
    pub(super) fn filter_again(&mut self, filter: String, selected: Option<&str>) {
        let screen = self.screen.behaviour();
        let Some(list) = screen.list_mut(self) else { return };
        list.set_filter(filter);
        if let Some(place) = selected.and_then(|key| screen.place_of(self, key))
            && let Some(list) = screen.list_mut(self)
        {
            list.selected = place;
        }
    }

    /// Sorts by a column, or by the next one; the column in use is reversed. The list shows its first rows.
    fn sort(&mut self, column: Option<usize>) {
        let screen = self.screen.behaviour();
        let columns = screen.sorts(self);
        if let Some(list) = screen.list_mut(self)
            && !columns.is_empty()
        {
            match column {
                Some(column) if column == list.sort => list.reversed = !list.reversed,
                Some(column) => (list.sort, list.reversed) = (column, false),
                None => (list.sort, list.reversed) = ((list.sort + 1) % columns.len(), false),
            }
            list.selected = 0;
            let text = format!("sorted by {}", columns[list.sort]);
            self.tell(Tone::Good, text);
        }
    }

    fn click(&mut self, target: Target, effects: &mut Vec<Effect>) {
        self.message = None;
        if let Target::DialogRow(row) = target {
            if let Some(selected) = self.modal.as_mut().and_then(Modal::selected_mut) {
                *selected = row;
                self.confirm(effects);
            }
            return;
        }
        if self.modal.is_some() {
            return;
        }
        let screen = self.screen.behaviour();
        match target {
            Target::Tab(screen) => self.screen = screen,
            Target::Row(row) => {
                let again = screen.list(self).is_some_and(|list| list.selected == row);
                screen.focus_list(self);
                if again && self.unavailable(Action::Open).is_none() {
                    screen.act(self, Action::Open, effects);
                } else if let Some(list) = screen.list_mut(self) {
                    list.selected = row;
                }
            }
            Target::Header(column) => self.sort(Some(column)),
            Target::Slider(knob, position) => plan::slide(self, knob, position, effects),
            Target::Do(action) => self.act(action, effects),
            Target::DialogRow(_) => {}
        }
    }

    fn wheel(&mut self, rows: isize) {
        if self.modal.is_some() {
            self.modal_scroll(rows);
        } else {
            self.screen.behaviour().wheel(self, rows);
        }
    }
}
