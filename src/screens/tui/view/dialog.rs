//! Dialogs: help, palette, filter, value, methods, offer, origin, export.

use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Clear, Widget};
use unicode_width::UnicodeWidthStr;

use super::labelled;
use crate::action::{Action, Screen};
use crate::app::Target;
use crate::app::input::Input;
use crate::app::job::{Job, JobState};
use crate::app::live::Leaving;
use crate::app::modal::{Choice, ExportForm, HelpLine, LaunchKey, Modal, Places, help_lines, messages};
use crate::app::palette;
use crate::app::screen::plan::{self, offer};
use crate::app::screen::{job, jobs, predict};
use crate::app::slider::Knob;
use crate::tui::paint::{Painter, wrap};
use habitat_base::text::clean;
use habitat_base::units::{GIB, GpuSlug};
use habitat_recorder::live::State;
use habitat_reports::comparison::error_words;
use habitat_reports::format;
use habitat_reports::theme::Role;
use habitat_reports::words::Words;
use habitat_step::catalog::Candidates;

/// Width of the offer dialog in cells.
const OFFER: u16 = 92;

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    match &app.modal {
        None => {}
        Some(Modal::Help { input, scroll }) => help(painter, area, input, *scroll),
        Some(Modal::Palette { input, selected }) => palette(painter, area, input, *selected),
        Some(Modal::Filter { input, .. }) => {
            // One line at the bottom, so that the list stays visible.
            let line = Rect { x: area.x, y: area.bottom() - 1, width: area.width, height: 1 };
            clear(painter, line);
            let x = painter.text(line.x + 1, line.y, 9, "filter: ", Role::Key);
            field(painter, Rect { x, width: line.width - 10, ..line }, input);
            let keys = "Enter: keep, Esc: restore, ! inverts";
            let figures = format!("memory>=40, step<100, $<2, vendor=amd; {keys}");
            let compares = app.screen == Screen::Predict && !predict::is_inside(app);
            let room = usize::from(line.width).saturating_sub(input.text().width() + 14);
            if let Some(hint) = [&figures, keys].into_iter().skip(usize::from(!compares)).find(|hint| hint.len() < room)
            {
                painter.text_right(line.right() - 1, line.y, hint.len() as u16, hint, Role::Muted);
            }
        }
        Some(Modal::Value { knob, input, error }) => {
            let (title, hint) = match knob {
                Knob::Work => {
                    ("amount of work", "such as 100k steps, 1B tokens, or 90 epochs of 1.28M by Friday under $300")
                }
                Knob::Deadline => ("deadline", "such as 48h, 2d, Friday 18:00, 2026-12-04; empty = no limit"),
                Knob::Gpus => ("maximum GPUs", "such as 8; empty = no limit"),
                Knob::Budget => ("budget, US dollars", "such as 500 or 2.5k; empty = no limit"),
            };
            small(painter, area, title, input, error.as_deref().map(|error| (error, Role::Error)), hint);
        }
        Some(Modal::Own { input, error }) => {
            let hint = "such as 2x3090, rtx-4090 or 4x8xh100, several with commas; they cost electricity; empty = none";
            small(painter, area, "your own machines", input, error.as_deref().map(|error| (error, Role::Error)), hint);
        }
        Some(Modal::Places { places, choices, input, selected }) => {
            self::places(painter, area, (*places, choices), input, *selected);
        }
        Some(Modal::Leave { selected }) => leave(painter, area, *selected),
        Some(Modal::Methods { gpu, selected }) => methods(painter, area, gpu, *selected),
        Some(Modal::Messages { scroll }) => {
            facts(painter, area, "messages, newest first", &messages(app), *scroll);
        }
        Some(Modal::Offer { offer, scroll }) => {
            facts(painter, area, &clean(offer.as_str(), 80), &offer::lines(app, offer), *scroll);
        }
        Some(Modal::PlannedJob { job, scroll }) => {
            let name = app.jobs.plan.value().and_then(|plan| plan.jobs.get(*job)).map(|job| clean(&job.name, 80));
            facts(painter, area, &name.unwrap_or_default(), &jobs::details(app, *job), *scroll);
        }
        Some(Modal::Origin { candidates, selected }) => origin(painter, area, candidates, *selected),
        Some(Modal::Export { form, input, needs, at, exists, error, saving }) => {
            let note = match error {
                Some(error) => Some((error.as_str(), Role::Error)),
                None if *exists => Some(("The file exists: Enter to overwrite, Esc to cancel.", Role::Warning)),
                None if *saving => Some(("writing …", Role::Muted)),
                None => None,
            };
            let title = format!("export the plan ({}) to", form.title());
            let forms: Vec<&str> = form.all().into_iter().map(ExportForm::title).collect();
            let tab = if needs.is_empty() { "" } else { ", Tab: next line" };
            let hint = format!("Enter: write, Esc: close{tab}, ↑↓ format: {}", forms.join(", "));
            export(painter, area, &title, (input, needs, *at), note.unwrap_or((&hint, Role::Muted)));
        }
    }
}

/// Lines of label and text, in a frame of matching height.
fn facts(painter: &mut Painter<'_>, area: Rect, title: &str, lines: &[(String, String)], scroll: usize) {
    // Measures the height of the wrapped lines without drawing.
    let nowhere = Rect { width: OFFER.min(area.width).saturating_sub(4), height: 0, ..area };
    let rows = labelled(painter, nowhere, lines, 0);
    let inside = frame(painter, area, OFFER, rows as u16 + 2, title, "Esc: close");
    labelled(painter, inside, lines, scroll);
}

fn clear(painter: &mut Painter<'_>, area: Rect) {
    Clear.render(area, painter.buffer);
    let ground = painter.style(Role::Text);
    painter.buffer.set_style(area, ground);
}

/// Draws a frame in the middle and returns the area inside.
fn frame(painter: &mut Painter<'_>, area: Rect, width: u16, height: u16, title: &str, right: &str) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let place = Rect::new(area.x + (area.width - width) / 2, area.y + (area.height - height) / 3, width, height);
    clear(painter, place);
    painter.pane(place, title, right, true)
}

/// A line of text input with cursor; if it is too long, its end is shown.
fn field(painter: &mut Painter<'_>, area: Rect, input: &Input) {
    let (before, behind) = input.split();
    let room = area.width.saturating_sub(1) as usize;
    let mut start: String = before;
    while start.width() > room {
        start.remove(0);
    }
    let x = painter.text(area.x, area.y, area.width, &start, Role::Text);
    painter.cursor = Some(Position::new(x, area.y));
    painter.text(x, area.y, area.right().saturating_sub(x), &behind, Role::Text);
}

/// A clickable choice, marked if selected. Returns the style of its text.
fn choice(painter: &mut Painter<'_>, line: Rect, index: usize, selected: usize, role: Role) -> Style {
    painter.hit(line, Target::DialogRow(index));
    let style = painter.style(role);
    if index != selected {
        return style;
    }
    let style = style.patch(painter.style(Role::Selection));
    painter.buffer.set_style(line, style);
    painter.styled(line.x, line.y, 1, painter.glyphs.marker, style);
    style
}

fn small(painter: &mut Painter<'_>, area: Rect, title: &str, input: &Input, note: Option<(&str, Role)>, hint: &str) {
    let (text, role) = note.unwrap_or((hint, Role::Muted));
    let text = clean(text, 300);
    let (width, lines) =
        (64.min(area.width), |width: u16| wrap(&text, usize::from(width.saturating_sub(4))).len() as u16);
    let inside = frame(painter, area, width, (lines(width) + 3).max(6), title, "");
    field(painter, Rect { height: 1, ..inside }, input);
    let below = Rect { y: inside.y + 1, height: inside.height.saturating_sub(1), ..inside };
    painter.wrapped(below, &text, role);
}

/// The path of an export, a line for each value that its tool needs, and a note or hint.
fn export(
    painter: &mut Painter<'_>,
    area: Rect,
    title: &str,
    (path, needs, at): (&Input, &[(LaunchKey, Input)], usize),
    (text, role): (&str, Role),
) {
    let rows = needs.len() as u16;
    let (width, height) = if rows == 0 { (64, 6) } else { (72, rows + 7) };
    let inside = frame(painter, area, width, height, title, "");
    let labels = std::iter::once(("to", path)).chain(needs.iter().map(|(key, input)| (key.label(), input)));
    for (row, (label, input)) in labels.enumerate() {
        let line = Rect { y: inside.y + row as u16, height: 1, ..inside };
        if needs.is_empty() {
            field(painter, line, input);
            continue;
        }
        painter.text(line.x, line.y, 15, label, Role::Key);
        let line = Rect { x: line.x + 16, width: line.width.saturating_sub(16), ..line };
        let cursor = painter.cursor;
        field(painter, line, input);
        if row != at {
            painter.cursor = cursor;
        }
    }
    let below = Rect { y: inside.y + rows + 1, height: inside.height.saturating_sub(rows + 1), ..inside };
    painter.wrapped(below, &clean(text, 300), role);
}

fn help(painter: &mut Painter<'_>, area: Rect, input: &Input, scroll: usize) {
    let lines = help_lines(painter.app, &input.text());
    let inside =
        frame(painter, area, 92, area.height.saturating_sub(2), "keys", "type to search · ↑↓ scroll · Esc: close");
    let x = painter.text(inside.x, inside.y, 8, "search: ", Role::Key);
    field(painter, Rect { x, width: inside.width - 8, height: 1, ..inside }, input);
    let list = Rect { y: inside.y + 2, height: inside.height.saturating_sub(2), ..inside };
    if lines.is_empty() {
        painter.text(list.x, list.y, list.width, "No matching action.", Role::Muted);
    }
    // The text of an action may wrap to several rows.
    let width = usize::from(list.width.saturating_sub(19));
    let mut rows: Vec<(&HelpLine, Option<String>, bool)> = Vec::new();
    let mut first = 0;
    for (index, line) in lines.iter().enumerate() {
        if index == scroll {
            first = rows.len();
        }
        match line {
            HelpLine::Entry(spec) => {
                let texts = wrap(spec.text, width).into_iter().enumerate();
                rows.extend(texts.map(|(row, text)| (line, Some(text), row == 0)));
            }
            _ => rows.push((line, None, true)),
        }
    }
    let first = first.min(rows.len().saturating_sub(usize::from(list.height)));
    for (row, (line, text, is_first)) in rows.iter().skip(first).take(usize::from(list.height)).enumerate() {
        let y = list.y + row as u16;
        match line {
            HelpLine::Space => {}
            HelpLine::Heading(group) => {
                painter.text(list.x, y, list.width, group.title(), Role::Title);
            }
            HelpLine::Entry(spec) => {
                if *is_first {
                    let keys: Vec<String> =
                        painter.app.setup.keymap.keys(spec.action).iter().map(ToString::to_string).collect();
                    let keys = if keys.is_empty() { "–".to_owned() } else { keys.join(" ") };
                    painter.text(list.x + 2, y, 16, &keys, Role::Key);
                }
                let role = if painter.app.unavailable(spec.action).is_none() { Role::Text } else { Role::Muted };
                let text = text.as_deref().unwrap_or_default();
                painter.text(list.x + 19, y, list.width.saturating_sub(19), text, role);
            }
        }
    }
}

fn palette(painter: &mut Painter<'_>, area: Rect, input: &Input, selected: usize) {
    let found = palette::search(painter.app, &input.text());
    let height = (found.len() as u16 + 4).clamp(6, area.height.saturating_sub(4).min(18));
    let inside = frame(painter, area, 84, height, "actions, GPUs, operations, offers", "Enter: go · Esc: close");
    let x = painter.text(inside.x, inside.y, 2, ": ", Role::Key);
    field(painter, Rect { x, width: inside.width - 2, height: 1, ..inside }, input);
    let list = Rect { y: inside.y + 1, height: inside.height.saturating_sub(1), ..inside };
    if found.is_empty() {
        painter.text(list.x, list.y, list.width, "No matches.", Role::Muted);
        return;
    }
    let offset = painter.memory.offset("palette", selected, found.len(), usize::from(list.height));
    for (row, (index, found)) in found.iter().enumerate().skip(offset).take(usize::from(list.height)).enumerate() {
        let line = Rect { y: list.y + row as u16, height: 1, ..list };
        let (text, key, why) = palette::words(painter.app, found);
        let style = choice(painter, line, index, selected, if why.is_none() { Role::Text } else { Role::Muted });
        let text = why.map_or_else(|| text.clone(), |why| format!("{text} – {why}"));
        painter.styled(line.x + 2, line.y, line.width.saturating_sub(14), &text, style);
        let key_x = line.right().saturating_sub(key.width() as u16);
        painter.styled(key_x, line.y, 12, &key, style);
    }
}

/// The providers or regions that the plan may use, with their offers.
fn places(
    painter: &mut Painter<'_>,
    area: Rect,
    (places, choices): (Places, &[Choice]),
    input: &Input,
    selected: usize,
) {
    let found = plan::search(painter.app, places, choices, &input.text());
    let height = (found.len() as u16 + 3).clamp(6, area.height.saturating_sub(4).clamp(6, 18));
    let title = format!("{} that the plan may use", places.name());
    let inside = frame(painter, area, 64, height, &title, "Enter: toggle · Esc: close");
    let x = painter.text(inside.x, inside.y, 2, "/ ", Role::Key);
    field(painter, Rect { x, width: inside.width - 2, height: 1, ..inside }, input);
    let list = Rect { y: inside.y + 1, height: inside.height.saturating_sub(1), ..inside };
    if found.is_empty() {
        painter.text(list.x, list.y, list.width, "None has these words.", Role::Muted);
        return;
    }
    let offset = painter.memory.offset("places", selected, found.len(), usize::from(list.height));
    for (row, (index, one)) in found.iter().enumerate().skip(offset).take(usize::from(list.height)).enumerate() {
        let line = Rect { y: list.y + row as u16, height: 1, ..list };
        let is_on = plan::is_allowed(painter.app, places, one);
        let style = choice(painter, line, index, selected, if is_on { Role::Text } else { Role::Muted });
        let sign = painter.glyphs.switch[usize::from(is_on)];
        let name = if one.name.is_empty() { format!("all {}", places.name()) } else { clean(&one.name, 60) };
        let plural = if one.offers == 1 { "" } else { "s" };
        let offers = format!("{} offer{plural}", format::grouped(one.offers as f64));
        let x = line.right().saturating_sub(offers.width() as u16);
        painter.styled(line.x + 2, line.y, x.saturating_sub(line.x + 3), &format!("{sign} {name}"), style);
        painter.styled(x, line.y, offers.width() as u16, &offers, style);
    }
}

/// Which GPU the step was recorded on.
fn origin(painter: &mut Painter<'_>, area: Rect, candidates: &Candidates, selected: usize) {
    let app = painter.app;
    let rows = candidates.gpus.len() as u16;
    let title = "recording GPU";
    let inside = frame(painter, area, 76, rows + 7, title, "Enter: select");
    for (row, slug) in candidates.gpus.iter().enumerate() {
        let line = Rect { y: inside.y + row as u16, height: 1, ..inside };
        let style = choice(painter, line, row, selected, Role::Text);
        let gpu = app.setup.catalog.get(slug);
        let about = gpu.map_or_else(String::new, |gpu| {
            let name = clean(&gpu.name, 40);
            format!("{name}, {:.0} GB, {} multiprocessors", gpu.memory.get() / GIB, gpu.sm_count)
        });
        painter.styled(line.x + 2, line.y, 22, slug.as_str(), style);
        painter.styled(line.x + 25, line.y, line.width.saturating_sub(25), &about, style);
    }
    let name = app.setup.profile.origin.as_ref().and_then(|origin| origin.gpu_name.as_deref());
    let named = name.map_or_else(
        || "The recording does not name its GPU".to_owned(),
        |name| format!("The recording names {:?}, which matches several GPUs", clean(name, 60)),
    );
    let why = candidates.why.as_ref().map_or_else(String::new, |why| format!(": {}", clean(why, 120)));
    let about = format!("{named}{why}. Predictions use the measurements on it.");
    let below = Rect { y: inside.y + rows + 1, height: inside.height.saturating_sub(rows + 1), ..inside };
    painter.wrapped(below, &about, Role::Muted);
}

/// Choices for a running job on quitting.
fn leave(painter: &mut Painter<'_>, area: Rect, selected: usize) {
    let Some(followed) = &painter.app.live else { return };
    let inside = frame(painter, area, 72, 9, "the job is still running", "Enter: confirm");
    let interrupt = painter.app.setup.keymap.hint(Action::Quit);
    for (row, leaving) in Leaving::ALL.into_iter().enumerate() {
        let line = Rect { y: inside.y + row as u16, height: 1, ..inside };
        let style = choice(painter, line, row, selected, Role::Text);
        let (key, words) = leaving.words();
        let words = match leaving {
            Leaving::Stop if !interrupt.is_empty() && !followed.leaving => {
                format!("{words} (or press {interrupt} again)")
            }
            _ => words.to_owned(),
        };
        painter.styled(line.x + 2, line.y, 5, key, style);
        painter.styled(line.x + 7, line.y, line.width.saturating_sub(7), &words, style);
    }
    let about = match Leaving::ALL.get(selected) {
        Some(Leaving::Leave) => {
            format!(
                "It keeps running and being recorded. `habitat-tui join {}` shows it again, from any terminal.",
                followed.job.id
            )
        }
        Some(Leaving::Stop) => {
            let (sent, already) = match followed.seen.state {
                State::Stopping(sent) => (Some(sent), "It was already asked to stop; now its"),
                _ => (None, "Its"),
            };
            let signals = job::stop_signals(sent);
            format!("{already} process group receives {signals}. The screens close when it has ended.")
        }
        _ => "The job and the screens stay open.".to_owned(),
    };
    let below = Rect { y: inside.y + 4, height: inside.height.saturating_sub(4), ..inside };
    painter.wrapped(below, &about, Role::Muted);
}

/// Draws why there is no answer (yet); `false` if there is one.
fn waiting<T>(painter: &mut Painter<'_>, inside: Rect, job: &Job<T>, doing: &str) -> bool {
    match job.state() {
        JobState::Failed(why) => {
            painter.wrapped(inside, &clean(why, 400), Role::Error);
        }
        JobState::Idle if job.value().is_some() => return false,
        _ => {
            painter.text(inside.x, inside.y, inside.width, doing, Role::Muted);
        }
    }
    true
}

/// All methods on a GPU, one per row, and requirements of the selected one.
fn methods(painter: &mut Painter<'_>, area: Rect, gpu: &GpuSlug, selected: usize) {
    let app = painter.app;
    let lines = app.comparison.value().map_or(1, |comparison| comparison.methods.len()) as u16;
    let title = format!("{gpu}: all methods");
    let inside = frame(painter, area, 92, lines + 14, &title, "Enter: use for all GPUs · Esc: close");
    if waiting(painter, inside, &app.comparison, "comparing the methods …") {
        return;
    }
    let Some(comparison) = app.comparison.value() else { return };
    let Some(on) = comparison.gpus.first() else { return };
    let columns: [(&str, u16); 5] = [("", 2), ("method", 14), ("step", 11), ("low–high", 21), ("mean error", 20)];
    let place = |column: usize| inside.x + columns[..column].iter().map(|(_, width)| width).sum::<u16>();
    for (column, (name, width)) in columns.iter().enumerate() {
        painter.text(place(column), inside.y, *width, name, Role::Title);
    }
    for (row, compared) in comparison.methods.iter().enumerate() {
        let line = Rect { y: inside.y + 1 + row as u16, height: 1, ..inside };
        let answer = on.answers.get(row).and_then(Option::as_ref);
        let style = choice(painter, line, row, selected, if answer.is_some() { Role::Text } else { Role::Muted });
        let mut cells = vec![compared.method.name().to_owned()];
        match answer {
            Some(answer) => cells.extend([
                format::time(answer.step.range.mid),
                format::time_range(answer.step.range.low, answer.step.range.high),
                error_words(answer.validated.as_ref()),
                if on.taken == Some(row) { "used".to_owned() } else { String::new() },
            ]),
            None if compared.missing.is_none()
                && let Some(step) = &on.recorded =>
            {
                cells.push(format!("{} here", step.method));
            }
            None => cells.push("no prediction".to_owned()),
        }
        for (column, cell) in cells.iter().enumerate() {
            painter.styled(place(column + 1), line.y, line.right().saturating_sub(place(column + 1)), cell, style);
        }
    }
    let mut y = inside.y + 2 + lines;
    let mut say = |label: &str, text: &str, role: Role| {
        if y < inside.bottom() {
            let room = Rect { y, height: inside.bottom() - y, ..inside };
            y += painter.wrapped(room, &clean(&format!("{label}: {text}"), 300), role);
        }
    };
    for warning in &comparison.warnings {
        say("warning", &warning.finding.brief(), Role::Warning);
    }
    if let Some(compared) = comparison.methods.get(selected) {
        let name = compared.method.name();
        say(&format!("{name} needs"), compared.method.needs(), Role::Text);
        let answers = on.recorded.is_some() || on.answers.get(selected).is_some_and(Option::is_some);
        match &compared.missing {
            Some(missing) => say("here", missing, Role::Warning),
            None if !answers => say("here", "does not know this GPU", Role::Warning),
            None => {}
        }
    }
    if on.taken.is_some() {
        say("used because", &on.why, Role::Muted);
    }
    if let Some(disagreement) = &on.disagreement {
        say("warning", disagreement, Role::Warning);
    }
}
