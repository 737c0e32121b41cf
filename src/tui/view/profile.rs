//! Second screen.

use ratatui::layout::{Constraint, Layout, Rect};

use super::{Density, filtered, labelled, waterfall};
use crate::action::Action;
use crate::app::screen::profile;
use crate::app::screen::profile::roofline::{Roof, rate_words};
use crate::profile::breakdown::Segment;
use crate::report::format;
use crate::settings::theme::Role;
use crate::tui::paint::{Painter, fit};
use crate::tui::widget::chart::{self, Lines, Point};
use crate::tui::widget::{bars, table};

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let state = &app.profile;
    if let Some(shown) = &state.difference {
        let warnings: Vec<String> = profile::against::warning(app).into_iter().collect();
        waterfall(painter, area, &shown.headline, &warnings, &shown.shown());
        return;
    }
    if state.zoomed {
        detail(painter, area);
        return;
    }
    let density = Density::of(painter.buffer.area);
    let roof = profile::roofline::roof(app).filter(|_| state.with_roof);
    let below = match density {
        _ if roof.is_some() => area.height * 3 / 5,
        Density::Minimal => 0,
        Density::Compact => 8,
        Density::Full => (area.height * 2 / 5).max(12),
    };
    let [top, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(area);
    let phase = state.phase.map_or("all phases", profile::phase_word);
    let title = filtered(format!("by {} · {phase}", state.by.name()), &state.list);
    let shown = profile::table(app);
    let inside = painter.pane(top, &title, &profile::summary(app), !state.in_detail);
    let inside = match profile::without_times(app) {
        Some(why) if inside.height > 4 => {
            painter.text(inside.x, inside.y, inside.width, why, Role::Warning);
            Rect { y: inside.y + 1, height: inside.height - 1, ..inside }
        }
        _ => inside,
    };
    let inside = compared(painter, inside);
    let is_free = usize::from(inside.height) > state.entries.len() + 1;
    let inside = if density == Density::Full || is_free { step(painter, inside) } else { inside };
    table::draw(painter, inside, "profile", &shown, !state.in_detail);
    match roof {
        Some(roof) => roofline(painter, bottom, &roof),
        None if below > 0 => detail(painter, bottom),
        None => {}
    }
}

/// The other recording in a line or two at the top; what is left below.
fn compared(painter: &mut Painter<'_>, area: Rect) -> Rect {
    let Some(line) = profile::against::line(painter.app).filter(|_| area.height > 4) else { return area };
    painter.text(area.x, area.y, area.width, &fit(&line, area.width.into()), Role::Title);
    let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let warning = profile::against::warning(painter.app).filter(|_| below.height > 4);
    let used = warning.map_or(0, |warning| painter.wrapped(Rect { height: 1, ..below }, &warning, Role::Warning));
    Rect { y: below.y + used, height: below.height - used, ..below }
}

/// The step as a line at the top; what is left below.
fn step(painter: &mut Painter<'_>, area: Rect) -> Rect {
    let app = painter.app;
    let segments = profile::segments(app);
    if segments.is_empty() || area.height < 4 {
        return area;
    }
    let time = app.setup.profile.measured_step();
    let name = time.map_or_else(|| "device".to_owned(), |time| format!("step {}", format::time(time)));
    let x = painter.text(area.x, area.y, area.width, &name, Role::Muted) + 1;
    let parts: Vec<bars::Part<'_>> = segments
        .into_iter()
        .map(|(segment, marked)| bars::Part {
            name: segment.kind,
            share: segment.share,
            role: if segment.kind == Segment::IDLE { Role::Track } else { profile::phase_role(segment.phase) },
            empty: segment.kind == Segment::IDLE,
            marked,
        })
        .collect();
    bars::named(painter, x, area.y, area.right().saturating_sub(x), &parts);
    Rect { y: area.y + 1, height: area.height - 1, ..area }
}

/// The rows under the roof of their GPU.
fn roofline(painter: &mut Painter<'_>, area: Rect, roof: &Roof) {
    let app = painter.app;
    let title = format!(
        "roofline of the {}: {} GB/s, {}FLOP/s",
        roof.gpu,
        format::number(roof.bandwidth / 1e9),
        rate_words(roof.peak)
    );
    let inside = painter.pane(area, &title, &format!("{}: back", app.setup.keymap.hint(Action::Roofline)), false);
    let selected = profile::rows(app).get(app.profile.list.selected).copied();
    let words = selected.and_then(|row| profile::roofline::words(roof, row.counted, row.entry.time));
    let words = words.unwrap_or_else(|| "The selected row computes nothing that shapes tell of.".to_owned());
    let [top, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(inside);
    painter.text(bottom.x, bottom.y, bottom.width, &words, Role::Text);
    let points = profile::roofline::points(app);
    let points: Vec<Point> = points.into_iter().map(|(x, y, selected)| Point { x, y, plan: false, selected }).collect();
    let ends = points.iter().map(|point| point.x);
    let (least, most) = (ends.clone().fold(roof.ridge(), f64::min), ends.fold(roof.ridge() * 2.0, f64::max));
    let at = |x: f64| (x, roof.at(x));
    let curve = [at(least), at(roof.ridge()), at(most)];
    let lines = Lines { stair: &[], curve: &curve, limits: (None, None), x_name: "FLOP a byte", are_plans: false };
    let rate = |rate: f64| format!("{}FLOP/s", rate_words(rate));
    chart::draw(painter, top, &points, &lines, &format::number, &rate);
}

fn detail(painter: &mut Painter<'_>, area: Rect) {
    let state = &painter.app.profile;
    let lines = profile::detail(painter.app);
    let focus = state.in_detail || state.zoomed;
    let right = if state.zoomed { "Enter or q: back to the table" } else { "Enter: whole screen" };
    let inside = painter.pane(area, "selected", right, focus);
    if lines.is_empty() {
        painter.text(inside.x, inside.y, inside.width, "Nothing is selected.", Role::Muted);
        return;
    }
    labelled(painter, inside, &lines, state.scroll);
}
