//! How the state changes: one message in, effects out.

use crate::action::Action;
use crate::app::input::Input;
use crate::app::list::ListState;
use crate::app::modal::Modal;
use crate::app::msg::{Effect, Msg, Screen, Target};
use crate::app::screen::plan::{self as plan_screen, Lower, Pane};
use crate::app::screen::predict::{self as predict_screen, PredictState};
use crate::app::screen::profile as profile_screen;
use crate::app::slider::Knob;
use crate::app::{App, Tone};
use crate::plan::{Confidence, Objective};
use crate::pricing::Tier;
use crate::settings::keymap::Key;
use crate::units::GpuSlug;

/// File name offered for an export.
const EXPORT_PATH: &str = "plan.toml";
/// Most parts a plan may be asked to have.
const MOST_PARTS: u32 = 3;

impl App {
    /// Takes one message in.
    pub fn update(&mut self, msg: Msg) -> Vec<Effect> {
        let mut effects = Vec::new();
        match msg {
            Msg::Start => self.start_predict(&mut effects),
            Msg::Live(update) => self.news_of_job(update, &mut effects),
            Msg::Key(key) => self.key(key, &mut effects),
            Msg::Do(action) => self.act(action, &mut effects),
            Msg::Paste(text) => self.paste(&text),
            Msg::Click(target) => self.click(target, &mut effects),
            Msg::Wheel(rows) => self.wheel(rows),
            Msg::Resize(columns, rows) => self.size = (columns, rows),
            Msg::Predicted { generation, result } => {
                if self.predictions.finish(generation, result) {
                    if self.predictions.value().is_some() {
                        PredictState::rebuild(self);
                        if !self.predictions.is_stale() {
                            self.start_plan(&mut effects);
                        }
                    } else if self.modal.is_none() && self.screen != Screen::Job {
                        self.ask_origin();
                    }
                }
            }
            Msg::Compared { generation, result } => {
                self.comparison.finish(generation, result);
            }
            Msg::Swept { generation, result } => {
                self.sweep.finish(generation, result);
            }
            Msg::Planned { generation, result } => {
                let (plan, frontier) = match result {
                    Ok(solved) => (Ok(solved.plan), Some(solved.frontier)),
                    Err(why) => (Err(why), None),
                };
                if self.plan.finish(generation, plan) {
                    self.frontier = frontier.unwrap_or_else(|| self.frontier.clone());
                    let rows = self.table().map_or(0, |table| table.rows.len());
                    if self.screen == Screen::Plan {
                        self.planner.list.step(0, rows);
                    }
                }
            }
            Msg::Saved(outcome) => self.saved(outcome),
            Msg::Copied(Ok(what)) => self.message = Some((Tone::Good, format!("copied {what}"))),
            Msg::Copied(Err(why)) => self.message = Some((Tone::Bad, format!("not copied: {why}"))),
        }
        effects
    }

    pub(super) fn start_predict(&mut self, effects: &mut Vec<Effect>) {
        if self.is_awaiting() {
            return;
        }
        let generation = self.predictions.start();
        effects.push(Effect::Predict { generation, profile: self.setup.profile.clone(), method: self.method });
    }

    fn start_compare(&mut self, gpu: GpuSlug, effects: &mut Vec<Effect>) {
        let generation = self.comparison.start();
        self.modal = Some(Modal::Methods { gpu: gpu.clone(), selected: 0 });
        effects.push(Effect::Compare { generation, profile: self.setup.profile.clone(), gpu, method: self.method });
    }

    fn start_plan(&mut self, effects: &mut Vec<Effect>) {
        let Some(predictions) = self.predictions.shared() else { return };
        let generation = self.plan.start();
        effects.push(Effect::Solve { generation, predictions, goal: Box::new(self.setup.goal.clone()) });
    }

    fn key(&mut self, key: Key, effects: &mut Vec<Effect>) {
        self.message = None;
        if self.modal.is_some() {
            self.modal_key(key, effects);
        } else if let Some(action) = self.setup.keymap.action(key) {
            self.act(action, effects);
        } else {
            let help = self.setup.keymap.hint(Action::Help);
            self.message = Some((Tone::Hint, format!("{key} does nothing; {help} lists the keys")));
        }
    }

    /// The list in focus and its state.
    pub(super) fn list_mut(&mut self) -> Option<&mut ListState> {
        match self.screen {
            Screen::Overview | Screen::Job => None,
            Screen::Profile => Some(&mut self.profile.list),
            Screen::Predict if self.predict.opened.is_some() => Some(&mut self.predict.operations),
            Screen::Predict => Some(&mut self.predict.list),
            Screen::Plan => Some(&mut self.planner.list),
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm an action, most of one line")]
    pub(super) fn act(&mut self, action: Action, effects: &mut Vec<Effect>) {
        if let Some(why) = self.unavailable(action) {
            self.message = Some((Tone::Hint, format!("{}: {why}", action.spec().text)));
            return;
        }
        match action {
            Action::Quit => self.interrupt(effects),
            Action::Suspend => effects.push(Effect::Suspend),
            Action::Redraw => effects.push(Effect::Redraw),
            Action::Back => {
                if !self.close_one() {
                    self.quit(effects);
                }
            }
            Action::Close => {
                if !self.close_one()
                    && let Some(list) = self.list_mut()
                {
                    list.filter.clear();
                    list.selected = 0;
                }
            }
            Action::Help => self.modal = Some(Modal::help()),
            Action::Palette => self.modal = Some(Modal::Palette { input: Input::default(), selected: 0 }),
            Action::Theme => {
                self.set_theme(self.theme + 1);
                self.message = Some((Tone::Good, format!("theme {}", self.setup.themes[self.theme].name)));
            }
            Action::Mouse => {
                self.mouse = !self.mouse;
                effects.push(Effect::Mouse(self.mouse));
                let text = if self.mouse { "mouse on" } else { "mouse off: the terminal selects text again" };
                self.message = Some((Tone::Good, text.to_owned()));
            }
            Action::Overview => self.screen = Screen::Overview,
            Action::Profile => self.screen = Screen::Profile,
            Action::Predict => self.screen = Screen::Predict,
            Action::Plan => self.screen = Screen::Plan,
            Action::Job => self.screen = Screen::Job,
            Action::Up => self.step(-1),
            Action::Down => self.step(1),
            Action::PageUp => self.step(-self.page()),
            Action::PageDown => self.step(self.page()),
            Action::Top => self.step(isize::MIN / 2),
            Action::Bottom => self.step(isize::MAX / 2),
            Action::NextPane | Action::PreviousPane => self.next_pane(),
            Action::Open => self.open(),
            Action::Filter => {
                if let Some(list) = self.list_mut() {
                    let before = list.filter.clone();
                    self.modal = Some(Modal::Filter { input: Input::new(&before), before });
                }
            }
            Action::Sort => self.sort(None),
            Action::Reverse => {
                if let Some(list) = self.list_mut() {
                    list.reversed = !list.reversed;
                    list.selected = 0;
                }
            }
            Action::Phase => self.profile.next_phase(&self.setup.profile),
            Action::Group => self.profile.next_group(&self.setup.profile),
            Action::Methods => {
                if let Some(prediction) = predict_screen::selected_prediction(self) {
                    let gpu = prediction.gpu.slug.clone();
                    self.start_compare(gpu, effects);
                }
            }
            Action::Batches => {
                if let Some(prediction) = predict_screen::selected_prediction(self) {
                    let gpu = prediction.gpu.slug.clone();
                    self.modal = Some(Modal::Batches { gpu: gpu.clone() });
                    let (generation, profile) = (self.sweep.start(), self.setup.profile.clone());
                    effects.push(Effect::Batches { generation, profile, gpu, method: self.method });
                }
            }
            Action::Origin => self.ask_origin(),
            Action::Left | Action::Decrease => self.move_knob(false, false, effects),
            Action::Right | Action::Increase => self.move_knob(true, false, effects),
            Action::FarLeft => self.move_knob(false, true, effects),
            Action::FarRight => self.move_knob(true, true, effects),
            Action::NoLimit => self.set_knob(self.planner.knob, None, effects),
            Action::SetValue => {
                self.modal = Some(Modal::Value { knob: self.planner.knob, input: Input::default(), error: None });
            }
            Action::Objective | Action::OnDemand | Action::Spot | Action::Confidence | Action::Parts => {
                self.toggle(action);
                self.start_plan(effects);
            }
            Action::Lower => {
                self.planner.lower = plan_screen::next_lower(self);
                self.planner.list.selected = 0;
            }
            Action::Rerun => {
                if self.is_awaiting() {
                    self.message = Some((Tone::Hint, "nothing is recorded yet".to_owned()));
                } else if self.screen == Screen::Plan && self.predictions.value().is_some() {
                    self.start_plan(effects);
                } else {
                    self.start_predict(effects);
                }
            }
            Action::Cancel => self.cancel(),
            Action::CopyRow => {
                if let Some(text) = self.table().and_then(|table| table.row_tsv()) {
                    effects.push(Effect::Copy { text, what: "the row".to_owned() });
                }
            }
            Action::CopyTable => {
                if let Some(table) = self.table() {
                    let what = format!("the table, {} rows", table.rows.len());
                    effects.push(Effect::Copy { text: table.to_tsv(), what });
                }
            }
            Action::Export => {
                self.modal =
                    Some(Modal::Export { input: Input::new(EXPORT_PATH), exists: false, error: None, saving: false });
            }
        }
    }

    /// Closes the innermost thing open; `false` if there is none.
    fn close_one(&mut self) -> bool {
        if self.modal.take().is_some() {
            return true;
        }
        match self.screen {
            Screen::Predict if self.predict.opened.is_some() => {
                if self.predict.operations.filter.is_empty() {
                    self.predict.opened = None;
                } else {
                    self.predict.operations.filter.clear();
                }
                true
            }
            Screen::Profile if self.profile.zoomed => {
                self.profile.zoomed = false;
                self.profile.in_detail = false;
                true
            }
            _ => false,
        }
    }

    fn step(&mut self, by: isize) {
        match self.screen {
            Screen::Job => self.scroll_output(by),
            _ if self.is_awaiting() => self.message = Some((Tone::Hint, "nothing is recorded yet".to_owned())),
            Screen::Overview => {
                self.message = Some((Tone::Hint, "nothing to scroll here; 2, 3 and 4 show more".to_owned()));
            }
            Screen::Profile if self.profile.in_detail || self.profile.zoomed => {
                let lines = profile_screen::detail(self).len();
                self.profile.scroll = self.profile.scroll.saturating_add_signed(by).min(lines.saturating_sub(1));
            }
            Screen::Plan if self.planner.pane == Pane::Goal => {
                let place = Knob::ALL.iter().position(|knob| *knob == self.planner.knob).unwrap_or(0);
                match place.saturating_add_signed(by) {
                    next if by > 0 && next >= Knob::ALL.len() => self.planner.pane = Pane::Lower,
                    next => self.planner.knob = Knob::ALL[next.min(Knob::ALL.len() - 1)],
                }
            }
            Screen::Plan if by < 0 && self.planner.list.selected == 0 => {
                self.planner.pane = Pane::Goal;
                self.planner.knob = Knob::Budget;
            }
            _ => {
                let rows = match self.planner.lower {
                    Lower::Notes if self.screen == Screen::Plan => plan_screen::notes(self).len(),
                    _ => self.table().map_or(0, |table| table.rows.len()),
                };
                if let Some(list) = self.list_mut() {
                    list.step(by, rows);
                }
                self.profile.scroll = 0;
            }
        }
    }

    fn next_pane(&mut self) {
        match self.screen {
            Screen::Profile => self.profile.in_detail = !self.profile.in_detail,
            Screen::Plan => {
                self.planner.pane = if self.planner.pane == Pane::Goal { Pane::Lower } else { Pane::Goal };
            }
            _ => {}
        }
    }

    fn open(&mut self) {
        match self.screen {
            Screen::Profile => {
                self.profile.zoomed = !self.profile.zoomed;
                self.profile.in_detail = false;
                self.profile.scroll = 0;
            }
            Screen::Predict if self.predict.opened.is_none() => {
                self.predict.opened = predict_screen::selected(self).map(|row| row.slug.clone());
                self.predict.operations = ListState::default();
            }
            _ => {}
        }
    }

    /// Sorts by a column, or by the next one; the column in use is reversed.
    fn sort(&mut self, column: Option<usize>) {
        let columns = match self.screen {
            Screen::Profile => profile_screen::sorts(self),
            Screen::Predict if self.predict.opened.is_some() => predict_screen::OPERATION_SORTS.as_slice(),
            _ => predict_screen::SORTS.as_slice(),
        };
        if let Some(list) = self.list_mut() {
            match column {
                Some(column) if column == list.sort => list.reversed = !list.reversed,
                Some(column) => (list.sort, list.reversed) = (column, false),
                None => (list.sort, list.reversed) = ((list.sort + 1) % columns.len(), false),
            }
            list.selected = 0;
            let text = format!("sorted by {}", columns[list.sort]);
            self.message = Some((Tone::Good, text));
        }
    }

    fn move_knob(&mut self, up: bool, far: bool, effects: &mut Vec<Effect>) {
        let knob = self.planner.knob;
        if let Some(value) = plan_screen::moved(self, knob, up, far) {
            self.set_knob(knob, value, effects);
        }
    }

    pub(super) fn set_knob(&mut self, knob: Knob, value: Option<f64>, effects: &mut Vec<Effect>) {
        let before = self.setup.goal.clone();
        plan_screen::set_value(self, knob, value);
        if self.setup.goal != before {
            self.start_plan(effects);
        }
    }

    fn toggle(&mut self, action: Action) {
        let goal = &mut self.setup.goal;
        match action {
            Action::Objective => {
                goal.objective = match goal.objective {
                    Objective::Cost => Objective::Time,
                    Objective::Time | Objective::CostPlusTime(_) => Objective::Cost,
                };
            }
            Action::Confidence => {
                goal.confidence = match goal.confidence {
                    Confidence::Expected => Confidence::High,
                    Confidence::High => Confidence::Expected,
                };
            }
            Action::Parts => goal.max_parts = goal.max_parts % MOST_PARTS + 1,
            Action::OnDemand | Action::Spot => {
                let tier = if action == Action::Spot { Tier::Spot } else { Tier::OnDemand };
                if goal.limits.tiers.contains(&tier) {
                    goal.limits.tiers.retain(|other| *other != tier);
                } else {
                    goal.limits.tiers.push(tier);
                    goal.limits.tiers.sort();
                }
                PredictState::rebuild(self);
            }
            _ => {}
        }
    }

    fn click(&mut self, target: Target, effects: &mut Vec<Effect>) {
        self.message = None;
        if let Target::DialogRow(row) = target {
            if let Some(
                Modal::Palette { selected, .. }
                | Modal::Methods { selected, .. }
                | Modal::Origin { selected, .. }
                | Modal::Leave { selected },
            ) = &mut self.modal
            {
                *selected = row;
                self.confirm(effects);
            }
            return;
        }
        if self.modal.is_some() {
            return;
        }
        match target {
            Target::Tab(screen) => self.screen = screen,
            Target::Row(row) => {
                let again = self.list_mut().is_some_and(|list| list.selected == row);
                if self.screen == Screen::Plan {
                    self.planner.pane = Pane::Lower;
                }
                self.profile.in_detail = false;
                if again && self.unavailable(Action::Open).is_none() {
                    self.open();
                } else if let Some(list) = self.list_mut() {
                    list.selected = row;
                    self.profile.scroll = 0;
                }
            }
            Target::Header(column) => self.sort(Some(column)),
            Target::Slider(knob, position) => {
                self.planner.pane = Pane::Goal;
                self.planner.knob = knob;
                let value = plan_screen::ladder(self, knob).at_position(position);
                let open_end = position >= 0.995 && knob != Knob::Work;
                self.set_knob(knob, (!open_end).then_some(value), effects);
            }
            Target::Do(action) => self.act(action, effects),
            Target::DialogRow(_) => {}
        }
    }

    fn wheel(&mut self, rows: isize) {
        if self.modal.is_some() {
            self.modal_scroll(rows);
        } else if self.screen == Screen::Plan {
            let count = self.table().map_or(0, |table| table.rows.len());
            self.planner.list.step(rows, count);
        } else if self.screen != Screen::Overview {
            self.step(rows);
        }
    }
}
