//! Third screen.

use ratatui::layout::{Constraint, Layout, Rect};
use unicode_width::UnicodeWidthStr;

use super::{Density, filtered, labelled, warned, waterfall};
use crate::action::Action;
use crate::app::screen::predict::{self, what_if};
use crate::predict::MethodChoice;
use crate::report::format;
use crate::settings::theme::Role;
use crate::tui::paint::Painter;
use crate::tui::widget::chart::{self, Lines, Point};
use crate::tui::widget::{bars, table};
use crate::units::Micros;

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    if painter.app.predict.difference.is_some() {
        difference(painter, area);
        return;
    }
    if painter.app.predict.version.is_some() {
        version(painter, area);
        return;
    }
    if painter.app.predict.opened.is_some() {
        opened(painter, area);
        return;
    }
    let density = Density::of(painter.buffer.area);
    let below = match density {
        Density::Minimal => 0,
        Density::Compact => 6,
        Density::Full => 10,
    };
    let app = painter.app;
    let [top, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(area);
    let mut title = String::from("step on one GPU");
    if app.predictions.is_stale() {
        title.push_str(" (stale)");
    }
    if let Some(method) = app.chosen.method.filter(|method| *method != MethodChoice::Auto) {
        title = format!("{title}, by {}", method.name());
    }
    if let Some(precision) = predict::precision(app) {
        title = format!("{title}, in {precision}");
    }
    if painter.buffer.area.width >= 110 && predict::rows(app).iter().any(|row| row.doubtful) {
        title.push_str(" (? = catalog figures not confirmed)");
    }
    let title = filtered(title, &app.predict.list);
    let inside = painter.pane(top, &title, &predict::summary(app), true);
    let inside = warned(painter, inside, &predict::warnings(app, density < Density::Full));
    table::draw(painter, inside, "predict", &predict::table(app), true);
    if below > 0 {
        let name = predict::selected(app).map_or_else(|| "selected".to_owned(), |row| row.name.clone());
        let inside = painter.pane(bottom, &name, "Enter: operation by operation", false);
        labelled(painter, inside, &predict::facts(app), 0);
    }
}

/// What makes the difference between two GPUs.
fn difference(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let headline = predict::difference::headline(app).unwrap_or_default();
    let table = predict::difference::table(app).unwrap_or_default();
    waterfall(painter, area, &headline, &predict::warnings(app, true), &table);
}

/// A GPU with other figures.
fn version(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let Some(version) = &app.predict.version else { return };
    let sliders = what_if::sliders(app);
    let stale = if app.what_if.is_stale() { " (stale)" } else { "" };
    let title = format!("what if the {} had other figures{stale}", what_if::name(app));
    let right = format!("{}: what makes the difference", app.setup.keymap.hint(Action::Difference));
    let inside = painter.pane(area, &title, &right, true);
    let inside = warned(painter, inside, &predict::warnings(app, true));
    let answer = what_if::answer(app);
    let heights = [sliders.len() as u16 + 1, answer.len() as u16 + 1];
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(heights[0]), Constraint::Length(heights[1]), Constraint::Fill(1)])
            .areas(inside);
    let name = sliders.iter().map(|(figure, ..)| figure.words().width()).max().unwrap_or(0) as u16 + 4;
    let wide = sliders.iter().map(|(_, value, _)| value.width()).max().unwrap_or(0) as u16;
    for (row, (figure, value, place)) in sliders.iter().enumerate().take(usize::from(top.height)) {
        let y = top.y + row as u16;
        let chosen = version.along == *figure;
        if chosen {
            painter.text(top.x, y, 1, painter.glyphs.marker, Role::Focus);
        }
        painter.text(top.x + 2, y, name, figure.words(), if chosen { Role::Focus } else { Role::Muted });
        painter.text(top.x + name, y, wide, value, if chosen { Role::Title } else { Role::Text });
        let x = top.x + name + wide + 2;
        let room = top.right().saturating_sub(x);
        if room >= 8 {
            bars::slider(painter, Rect::new(x, y, room, 1), Some(*place), chosen);
        }
    }
    labelled(painter, middle, &answer, 0);
    let Some(found) = what_if::found(app).filter(|_| bottom.height >= 5) else { return };
    let now = version.changes.get(found.along);
    let at = |times: f64, time: Micros, plan: bool| Point { x: times, y: time.get(), plan, selected: false };
    let curve = found.curve.iter().map(|(times, time)| at(*times, *time, false));
    let points: Vec<Point> = curve.chain([at(now, found.changed.step.mid(), true)]).collect();
    let lines = Lines { stair: &[], curve: &[], limits: (None, None), x_name: found.along.words(), are_plans: false };
    let time = |us: f64| format::time(Micros::known(us));
    chart::draw(painter, bottom, &points, &lines, &|times| format!("{times} ×"), &time);
}

/// One GPU, operation by operation.
fn opened(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let Some(prediction) = predict::selected_prediction(app) else {
        painter.text(area.x + 2, area.y, area.width, "No prediction of this GPU; q goes back.", Role::Muted);
        return;
    };
    let name = crate::text::clean(&prediction.gpu.name, 60);
    let facts = predict::facts(app);
    let head = match Density::of(painter.buffer.area) {
        Density::Minimal => 0,
        Density::Compact => 6,
        Density::Full => 12,
    };
    let foot = if area.height > 16 { 4 } else { 0 };
    let heights = [Constraint::Length(head), Constraint::Fill(1), Constraint::Length(foot)];
    let [top, middle, bottom] = Layout::vertical(heights).areas(area);
    if head > 0 {
        let inside = painter.pane(top, &name, "q: back to all GPUs", false);
        labelled(painter, inside, &facts, 0);
    }
    let why = predict::why(app).unwrap_or_default();
    let mut title = String::from("operation by operation, all occurrences of the step");
    if head == 0 {
        title = format!("{name}: operations");
    }
    let title = filtered(title, &app.predict.operations);
    let mut inside = painter.pane(middle, &title, "", true);
    if head == 0 {
        inside = warned(painter, inside, &predict::words(&prediction.warnings, true));
    }
    table::draw(painter, inside, "operations", &predict::operations_table(app), true);
    if foot > 0 {
        let inside = painter.pane(bottom, "why this method", "", false);
        painter.wrapped(inside, &why, Role::Text);
    }
}
