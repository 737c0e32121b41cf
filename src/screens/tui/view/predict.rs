//! Third screen.

use ratatui::layout::{Constraint, Layout, Rect};
use unicode_width::UnicodeWidthStr;

use super::{Density, filtered, labelled, warned, waterfall};
use crate::action::Action;
use crate::app::screen::predict::{self, batches, what_if};
use crate::tui::paint::Painter;
use crate::tui::widget::chart::{self, Lines, Point};
use crate::tui::widget::{bars, table};
use habitat_base::units::Micros;
use habitat_prediction::batches::SweepRow;
use habitat_prediction::{Fits, Method, MethodChoice};
use habitat_reports::format;
use habitat_reports::theme::Role;

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    if painter.app.predict.difference.is_some() {
        difference(painter, area);
        return;
    }
    if painter.app.predict.version.is_some() {
        version(painter, area);
        return;
    }
    if painter.app.predict.sizes.is_some() {
        sizes(painter, area);
        return;
    }
    if painter.app.predict.opened.is_some() {
        opened(painter, area);
        return;
    }
    let density = Density::of(painter.buffer.area);
    let app = painter.app;
    let shown = predict::table(app);
    let below = match density {
        Density::Minimal => 0,
        Density::Compact => 6,
        Density::Full => 10,
    };
    // Space below a short table is used for details of the selected row.
    let table_needs = shown.len().max(1) + 3 + predict::warnings(app, density < Density::Full).len();
    let free = usize::from(area.height).saturating_sub(table_needs) as u16;
    let nowhere = Rect { width: area.width.saturating_sub(4), height: 0, ..area };
    let facts = predict::facts(app);
    let needed = labelled(painter, nowhere, &facts[..predict::deciding(&facts)], 0) as u16 + 2;
    let below = if below > 0 { below.max(free).max(needed.min(area.height / 2)) } else { 0 };
    let [top, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(area);
    let mut title = format!("step on one GPU{}", app.predictions.stale_words("settings"));
    if let Some(method) = app.chosen.method.filter(|method| *method != MethodChoice::Auto) {
        title = format!("{title}, by {}", method.name());
    }
    if let Some(precision) = predict::precision(app) {
        title = format!("{title}, in {precision}");
        if let Some(words) = predict::speed_up_words(app).filter(|_| painter.buffer.area.width >= 110) {
            title = format!("{title} ({words})");
        }
    }
    if painter.buffer.area.width >= 110 && predict::rows(app).iter().any(|row| row.doubtful) {
        title.push_str(" (GPU ?: unverified, price ?: in doubt)");
    }
    let title = filtered(title, &app.predict.list);
    let inside = painter.pane(top, &title, &predict::summary(app), true);
    let inside = warned(painter, inside, &predict::warnings(app, density < Density::Full));
    table::draw(painter, inside, "predict", &shown, true);
    if below > 0 {
        let name = predict::selected(app).map_or_else(|| "selected".to_owned(), |row| row.name.clone());
        let inside = painter.pane(bottom, &name, "Enter: by operation", false);
        labelled(painter, inside, &facts, 0);
    }
}

/// Comparison of two GPUs.
fn difference(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let headline = predict::difference::headline(app).unwrap_or_default();
    let table = predict::difference::table(app).unwrap_or_default();
    waterfall(painter, area, &headline, &predict::warnings_of_shown(app), &table);
}

/// A GPU with changed specifications.
fn version(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let Some(version) = &app.predict.version else { return };
    let sliders = what_if::sliders(app);
    let stale = app.what_if.stale_words("specifications");
    let title = format!("what if: {} with changed specifications{stale}", what_if::name(app));
    let right = format!("{}: explain the difference", app.setup.keymap.hint(Action::Difference));
    let inside = painter.pane(area, &title, &right, true);
    let inside = warned(painter, inside, &predict::warnings_of_shown(app));
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
    let Some(found) = predict::changed(app).filter(|_| bottom.height >= 5) else { return };
    let now = version.changes.get(found.along);
    let at = |times: f64, time: Micros, plan: bool| Point { x: times, y: time.get(), plan, selected: false };
    let curve = found.curve.iter().map(|(times, time)| at(*times, *time, false));
    let points: Vec<Point> = curve.chain([at(now, found.changed.step.mid(), true)]).collect();
    let lines = Lines { x_name: found.along.words(), ..Lines::default() };
    let time = |us: f64| format::time(Micros::known(us));
    chart::draw(painter, bottom, &points, &lines, &|times| format!("{times} ×"), &time);
}

/// Lines of the smallest chart over batch sizes, with its legend.
const CHART: u16 = 7;

/// Slider over batch sizes, time and memory at each, and curves.
fn sizes(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let Some(shown) = &app.predict.sizes else { return };
    let found = batches::sweep_shown(app);
    let name = found.map_or_else(|| shown.gpu.to_string(), |(_, on)| habitat_base::text::clean(&on.gpu.name, 60));
    let stale = app.sweep.stale_words("settings");
    let inside = painter.pane(area, &format!("batch size on {name}{stale}"), "Enter: use in plans · q: back", true);
    let warnings = found.map_or_else(Vec::new, |(sweep, _)| predict::words(&sweep.warnings, true));
    let inside = warned(painter, inside, &warnings);
    let answer = batches::answer(app);
    let (Some((sweep, on)), Some(row)) = (found, batches::row(app)) else {
        labelled(painter, inside, &answer, 0);
        return;
    };
    let batch = format::grouped(row.batch as f64);
    let memory = batches::memory(sweep, row);
    let needed = memory.map_or_else(|| "unknown".to_owned(), |([needed, _], _)| format::memory(needed));
    let wide = batch.width().max(needed.width()) as u16;
    let x = inside.x + 8 + wide + 2;
    for (y, (label, value, role)) in
        (inside.y..inside.bottom()).zip([("batch", &batch, Role::Focus), ("memory", &needed, Role::Muted)])
    {
        painter.text(inside.x, y, 8, label, role);
        painter.text(inside.x + 8, y, wide, value, Role::Title);
    }
    let room = inside.right().saturating_sub(x);
    if room >= 8 && inside.height >= 2 {
        bars::slider(painter, Rect::new(x, inside.y, room, 1), batches::place(app), true);
        if let Some(([needed, usable], _)) = memory {
            let part = (needed / usable).min(1.0);
            let role = if row.memory.fits == Fits::No { Role::Error } else { Role::Good };
            bars::stacked(painter, x, inside.y + 1, room, &[(part, role)]);
        }
    }
    let rest = Rect { y: inside.y + 2, height: inside.height.saturating_sub(2), ..inside };
    // All but the notes is always whole; a small chart goes before the notes.
    let mut lines = |lines: &[(String, String)]| labelled(painter, Rect { height: 0, ..rest }, lines, 0) as u16;
    let notes = answer.iter().position(|(label, _)| label == batches::NOTES).unwrap_or(answer.len());
    let (needed, all) = (lines(&answer[..notes]), lines(&answer));
    let chart = rest.height.saturating_sub(all).clamp(CHART, (rest.height * 2 / 3).max(CHART));
    let chart = if needed + chart <= rest.height { chart } else { 0 };
    let [top, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(chart)]).areas(rest);
    labelled(painter, top, &answer, 0);
    if chart == 0 {
        return;
    }
    let is_measured = |row: &SweepRow| row.step.method == Method::Measured;
    let [glyph_measured, glyph_predicted, _, glyph_here] = painter.glyphs.points;
    let measured =
        if on.rows.iter().any(is_measured) { format!("{glyph_measured} measured · ") } else { String::new() };
    let legend = format!("{measured}{glyph_predicted} predicted with range · {glyph_here} on the slider");
    let (legend_y, height) = (bottom.bottom() - 1, bottom.height - 1);
    painter.text(bottom.x, legend_y, bottom.width, &legend, Role::Muted);
    let both = if bottom.width >= 100 { 2 } else { 1 };
    let parts = Layout::horizontal([Constraint::Fill(1)].repeat(both)).spacing(2).split(Rect { height, ..bottom });
    let is_sure = !sweep.memory.is_some_and(|line| line.is_upper_bound());
    let last = on.rows.last().map_or(0.0, |row| row.batch as f64);
    let largest = on.largest.filter(|batch| *batch > 0).map(|batch| batch as f64).filter(|batch| *batch <= 2.0 * last);
    let fitted: Vec<(f64, f64)> = on.line.as_ref().map_or_else(Vec::new, |(line, _)| {
        let from = sweep.recorded.last().map_or(0.0, |batch| *batch as f64);
        [from, last].map(|batch| (batch, line.at(batch))).to_vec()
    });
    for (place, area) in parts.iter().enumerate() {
        let value = |row: &SweepRow| -> [f64; 3] {
            let time = row.step.range;
            let times = [time.low, time.mid, time.high].map(Micros::get);
            if place == 0 { times } else { times.map(|time| row.batch as f64 / time.max(1e-9) * 1e6) }
        };
        let point = |of: &SweepRow| Point {
            x: of.batch as f64,
            y: value(of)[1],
            plan: is_measured(of),
            selected: of.batch == row.batch,
        };
        let points: Vec<Point> = on.rows.iter().map(point).collect();
        let ranges: Vec<(f64, [f64; 2])> =
            on.rows.iter().map(|row| (row.batch as f64, [value(row)[0], value(row)[2]])).collect();
        let lines = Lines {
            curve: if place == 0 { &fitted } else { &[] },
            ranges: &ranges,
            limits: (largest, None),
            limit_names: [if is_sure { "largest that fits" } else { "known to fit" }, ""],
            x_name: if place == 0 { "batch (step time)" } else { "batch (samples/s)" },
            ..Lines::default()
        };
        let time = |us: f64| format::time(Micros::known(us));
        let rate = |rate: f64| format!("{}/s", format::number(rate));
        let y_text: &dyn Fn(f64) -> String = if place == 0 { &time } else { &rate };
        chart::draw(painter, *area, &points, &lines, &|batch| format::grouped(batch.round()), y_text);
    }
}

/// One GPU by operation.
fn opened(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let Some(prediction) = predict::selected_prediction(app) else {
        painter.text(area.x + 2, area.y, area.width, "No prediction for this GPU; press q to go back.", Role::Muted);
        return;
    };
    let name = habitat_base::text::clean(&prediction.gpu.name, 60);
    let facts = predict::facts(app);
    // A step that does not fit has its remedy whole.
    let nowhere = Rect { width: area.width.saturating_sub(4), height: 0, ..area };
    let needed = labelled(painter, nowhere, &facts[..predict::deciding(&facts)], 0) as u16 + 2;
    let head = match Density::of(painter.buffer.area) {
        Density::Minimal => 0,
        Density::Compact => needed.clamp(9, area.height * 2 / 3),
        Density::Full => needed.max(12),
    };
    let foot = if area.height > 16 { 4 } else { 0 };
    let heights = [Constraint::Length(head), Constraint::Fill(1), Constraint::Length(foot)];
    let [top, middle, bottom] = Layout::vertical(heights).areas(area);
    if head > 0 {
        let inside = painter.pane(top, &name, "q: back to all GPUs", false);
        labelled(painter, inside, &facts, 0);
    }
    let why = predict::why(app).unwrap_or_default();
    let mut title = String::from("by operation, all occurrences in the step");
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
