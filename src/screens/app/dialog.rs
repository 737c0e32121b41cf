//! Input in dialogs: keys, typed lines, and Enter.

use std::sync::Arc;

use crate::action::Action;
use crate::app::engine::{Export, SaveOutcome};
use crate::app::input::Input;
use crate::app::live::Leaving;
use crate::app::modal::{self, ExportForm, LaunchKey, Modal};
use crate::app::msg::Effect;
use crate::app::palette;
use crate::app::screen::jobs;
use crate::app::screen::plan;
use crate::app::screen::plan::offer;
use crate::app::slider::{self, Knob};
use crate::app::{App, Tone};
use crate::keymap::{Code, Key};
use habitat_base::units::GpuSlug;
use habitat_prediction::compare::Compared;
use habitat_reports::launch::Launch;

/// Keeps what the export dialog shows, for the next one.
fn keep(launch: &mut Launch, needs: &[(LaunchKey, Input)]) {
    for (key, input) in needs {
        key.set(launch, &input.text());
    }
}

impl App {
    pub(super) fn paste(&mut self, text: &str) {
        let Some(modal) = &mut self.modal else { return };
        if let Some(input) = modal.input_mut() {
            input.insert(text);
            self.input_changed();
        }
    }

    /// Applies a change of the typed line.
    fn input_changed(&mut self) {
        match &mut self.modal {
            Some(Modal::Filter { input, .. }) => {
                let text = input.text();
                if let Some(list) = self.screen.behaviour().list_mut(self) {
                    list.set_filter(text);
                }
            }
            Some(Modal::Help { scroll, .. }) => *scroll = 0,
            Some(Modal::Palette { selected, .. } | Modal::Places { selected, .. }) => *selected = 0,
            Some(Modal::Value { error, .. } | Modal::Own { error, .. }) => *error = None,
            Some(Modal::Export { exists, error, .. }) => {
                *exists = false;
                *error = None;
            }
            Some(
                Modal::Methods { .. }
                | Modal::Offer { .. }
                | Modal::Messages { .. }
                | Modal::PlannedJob { .. }
                | Modal::Origin { .. }
                | Modal::Leave { .. },
            )
            | None => {}
        }
    }

    pub(super) fn modal_key(&mut self, key: Key, effects: &mut Vec<Effect>) {
        match self.setup.keymap.action(key) {
            // Quit, suspend and redraw work everywhere; a plain character is text.
            Some(action @ (Action::Quit | Action::Suspend | Action::Redraw)) if key.ctrl => {
                return self.act(action, effects);
            }
            _ => {}
        }
        let page = self.page();
        if let Some(Modal::Leave { .. }) = self.modal {
            return self.leaving_key(key, effects);
        }
        if matches!(
            self.modal,
            Some(
                Modal::Methods { .. }
                    | Modal::Messages { .. }
                    | Modal::Offer { .. }
                    | Modal::PlannedJob { .. }
                    | Modal::Origin { .. }
            )
        ) {
            // These dialogs have no text input: list keys move, and the key that opened the dialog closes it.
            match self.setup.keymap.action(key) {
                Some(Action::Up) => return self.modal_scroll(-1),
                Some(Action::Down) => return self.modal_scroll(1),
                Some(Action::Back | Action::Methods | Action::Messages | Action::Origin) => {
                    self.modal = None;
                    return;
                }
                _ => {}
            }
        }
        match key.code {
            Code::Esc => {
                if let Some(Modal::Filter { before, selected, .. }) = self.modal.take() {
                    self.filter_again(before, selected.as_deref());
                }
                return;
            }
            Code::Enter => return self.confirm(effects),
            Code::Tab => {
                if let Some(Modal::Export { needs, at, .. }) = &mut self.modal {
                    *at = (*at + if key.shift { needs.len() } else { 1 }) % (needs.len() + 1);
                    return;
                }
            }
            Code::Up | Code::Down | Code::PageUp | Code::PageDown => {
                let by = match key.code {
                    Code::Up => -1,
                    Code::Down => 1,
                    Code::PageUp => -page,
                    _ => page,
                };
                return self.modal_scroll(by);
            }
            _ => {}
        }
        if let Some(modal) = &mut self.modal {
            if matches!(modal, Modal::Help { input, .. } if input.text().is_empty())
                && matches!(key.code, Code::Char('q' | '?'))
            {
                // In the help, the key that opened it also closes it while nothing is typed.
                self.modal = None;
            } else if modal.input_mut().is_some_and(|input| input.key(key)) {
                self.input_changed();
            }
        }
    }

    pub(super) fn modal_scroll(&mut self, by: isize) {
        let query = self.modal.as_mut().and_then(Modal::input_mut).map(|input| input.text()).unwrap_or_default();
        let methods = self.comparison.value().map_or(0, |comparison| comparison.methods.len());
        let help = modal::help_lines(self, &query).len();
        let is_palette = matches!(self.modal, Some(Modal::Palette { .. }));
        let found = match &self.modal {
            _ if is_palette => palette::search(self, &query).len(),
            Some(Modal::Places { places, choices, .. }) => plan::search(self, *places, choices, &query).len(),
            _ => 0,
        };
        let facts = match &self.modal {
            Some(Modal::Offer { offer, .. }) => offer::lines(self, offer).len(),
            Some(Modal::Messages { .. }) => self.said.len(),
            Some(Modal::PlannedJob { job, .. }) => jobs::details(self, *job).len(),
            _ => 0,
        };
        let moved = |at: usize, len: usize| at.saturating_add_signed(by).min(len.saturating_sub(1));
        match &mut self.modal {
            Some(Modal::Help { scroll, .. }) => *scroll = moved(*scroll, help),
            Some(Modal::Offer { scroll, .. } | Modal::PlannedJob { scroll, .. } | Modal::Messages { scroll }) => {
                *scroll = moved(*scroll, facts);
            }
            Some(Modal::Palette { selected, .. } | Modal::Places { selected, .. }) => {
                *selected = moved(*selected, found);
            }
            Some(Modal::Methods { selected, .. }) => *selected = moved(*selected, methods),
            Some(Modal::Origin { candidates, selected }) => *selected = moved(*selected, candidates.gpus.len()),
            Some(Modal::Leave { selected }) => *selected = moved(*selected, Leaving::ALL.len()),
            Some(Modal::Export { form, input, needs, at, exists, error, .. }) => {
                keep(&mut self.setup.launch, needs);
                let all = form.all();
                let place = all.iter().position(|other| other == form).unwrap_or_default();
                let next = all[moved(place, all.len())];
                (*needs, *at) = (next.needs(&self.setup.launch), 0);
                // Keep a name that the user typed.
                if let Some(folder) = input.text().strip_suffix(form.file_name()) {
                    *input = Input::new(&format!("{folder}{}", next.file_name()));
                }
                (*form, *exists, *error) = (next, false, None);
            }
            _ => {}
        }
    }

    /// Handles Enter in a dialog.
    pub(super) fn confirm(&mut self, effects: &mut Vec<Effect>) {
        match self.modal.take() {
            Some(Modal::Palette { input, selected }) => {
                if let Some(found) = palette::search(self, &input.text()).into_iter().nth(selected) {
                    self.go_to(found, effects);
                }
            }
            Some(Modal::Places { places, choices, input, selected }) => {
                let chosen = plan::search(self, places, &choices, &input.text()).get(selected).copied().cloned();
                if let Some(choice) = chosen {
                    plan::toggle_place(self, places, &choice);
                    self.start_plan(effects);
                }
                self.modal = Some(Modal::Places { places, choices, input, selected });
            }
            Some(Modal::Value { knob, input, .. }) => self.confirm_value(knob, input, effects),
            Some(Modal::Own { input, .. }) => match (self.setup.own.add)(&input.text()) {
                Ok(added) => {
                    (self.setup.own.names, self.setup.own.is_changed) = (added.names, true);
                    self.setup.prices = added.prices;
                    let lines = added.lines.join(" · ");
                    self.tell(Tone::Good, if lines.is_empty() { "no machines of your own".to_owned() } else { lines });
                    self.start_plan(effects);
                }
                Err(why) => self.modal = Some(Modal::Own { input, error: Some(why) }),
            },
            Some(Modal::Export { form, input, needs, at, exists, .. }) => {
                keep(&mut self.setup.launch, &needs);
                let path = input.text().trim().to_owned();
                let error = path.is_empty().then(|| "enter a file path".to_owned());
                let effect = match form {
                    _ if error.is_some() => None,
                    ExportForm::Plan(form) => self.plan.shared().zip(self.predictions.shared()).map(|answer| {
                        let ((plan, predictions), profile) = (answer, self.setup.profile.clone());
                        let (frontier, chosen, launch) =
                            (self.frontier.clone(), self.chosen, self.setup.launch.clone());
                        let (prices, own) = (self.setup.prices.clone(), self.setup.own.names.clone());
                        let export = Export { plan, predictions, profile, frontier, prices, own, chosen, form, launch };
                        let export = Box::new(export);
                        Effect::Save { export, path, overwrite: exists }
                    }),
                    ExportForm::Jobs(form) => {
                        let plan = self.jobs.plan.shared();
                        plan.map(|plan| Effect::SaveJobs { plan, form, path, overwrite: exists })
                    }
                };
                let saving = effect.is_some();
                effects.extend(effect);
                self.modal = Some(Modal::Export { form, input, needs, at, exists: false, error, saving });
            }
            Some(Modal::Leave { selected }) => self.leave(selected, effects),
            Some(Modal::Methods { gpu, selected }) => self.choose_method(gpu, selected, effects),
            Some(Modal::Origin { candidates, selected }) => {
                if let Some(gpu) = candidates.gpus.into_iter().nth(selected) {
                    self.recorded_on(&gpu, effects);
                }
            }
            Some(
                Modal::Help { .. }
                | Modal::Messages { .. }
                | Modal::Filter { .. }
                | Modal::Offer { .. }
                | Modal::PlannedJob { .. },
            )
            | None => {}
        }
    }

    /// Sets a slider to the typed value, or keeps the dialog open with the reason.
    fn confirm_value(&mut self, knob: Knob, input: Input, effects: &mut Vec<Effect>) {
        let text = input.text();
        let value = slider::parse(&text, knob == Knob::Deadline);
        let hint = match knob {
            _ if value.is_some() || (text.trim().is_empty() && knob != Knob::Work) => {
                plan::set_knob(self, knob, value, effects);
                return;
            }
            Knob::Deadline | Knob::Work => {
                let by = if knob == Knob::Deadline { "by " } else { "" };
                match plan::set_work(self, &format!("{by}{text}"), effects) {
                    Ok(()) => return,
                    Err(why) => why,
                }
            }
            Knob::Budget => "enter US dollars above 0, such as 500 or 2.5k".to_owned(),
            Knob::Gpus => "enter a number of GPUs, such as 8".to_owned(),
        };
        self.modal = Some(Modal::Value { knob, input, error: Some(hint) });
    }

    /// Asks for the recording GPU if there are candidates.
    pub(super) fn ask_origin(&mut self) {
        let candidates = self.origins();
        if !candidates.gpus.is_empty() {
            self.modal = Some(Modal::Origin { candidates, selected: 0 });
        }
    }

    /// Sets the recording GPU to the user's choice.
    fn recorded_on(&mut self, gpu: &GpuSlug, effects: &mut Vec<Effect>) {
        if let Some(origin) = &mut Arc::make_mut(&mut self.setup.profile).origin {
            origin.gpu = Some(gpu.clone());
            self.setup.typed.set("--origin", gpu.as_str());
            self.tell(Tone::Good, format!("recording GPU set to {gpu} (--origin {gpu})"));
        }
        self.start_predict(effects);
    }

    /// Whether the method at this position has an answer on the compared GPU, or is not needed because the step was
    /// recorded there.
    fn answers(&self, selected: usize) -> bool {
        let on = self.comparison.value().and_then(|comparison| comparison.gpus.first());
        on.is_some_and(|on| on.recorded.is_some() || on.answers.get(selected).is_some_and(Option::is_some))
    }

    /// Predicts every GPU with the selected method, unless it has no answer.
    fn choose_method(&mut self, gpu: GpuSlug, selected: usize, effects: &mut Vec<Effect>) {
        let chosen = self.comparison.value().and_then(|comparison| comparison.methods.get(selected)).cloned();
        match chosen {
            Some(Compared { method, missing: None }) if !self.answers(selected) => {
                self.tell(Tone::Hint, format!("{} has no prediction for {gpu}", method.name()));
                self.modal = Some(Modal::Methods { gpu, selected });
            }
            Some(Compared { method, missing: None }) => {
                self.chosen.method = Some(method);
                self.tell(Tone::Good, format!("using method {} for all GPUs", method.name()));
                self.start_predict(effects);
            }
            Some(Compared { method, missing: Some(why) }) => {
                self.tell(Tone::Hint, format!("{}: {}", method.name(), habitat_base::text::clean(&why, 200)));
                self.modal = Some(Modal::Methods { gpu, selected });
            }
            // Still being computed.
            None => self.modal = Some(Modal::Methods { gpu, selected }),
        }
    }

    pub(super) fn saved(&mut self, outcome: SaveOutcome) {
        match (outcome, &mut self.modal) {
            (SaveOutcome::Saved(path), modal) => {
                if matches!(modal, Some(Modal::Export { .. })) {
                    *modal = None;
                }
                self.tell(Tone::Good, format!("wrote {}", habitat_base::text::clean(&path, 200)));
            }
            (SaveOutcome::Exists, Some(Modal::Export { exists, saving, .. })) => {
                *exists = true;
                *saving = false;
            }
            (SaveOutcome::Failed(why), Some(Modal::Export { error, saving, .. })) => {
                *error = Some(habitat_base::text::clean(&why, 300));
                *saving = false;
            }
            (SaveOutcome::Failed(why), _) => {
                self.tell(Tone::Bad, format!("not written: {}", habitat_base::text::clean(&why, 300)));
            }
            (SaveOutcome::Exists, _) => {
                self.tell(Tone::Bad, "not written: the file exists".to_owned());
            }
        }
    }
}
