//! Second screen.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use unicode_width::UnicodeWidthStr;

use super::{Density, filtered, labelled, waterfall};
use crate::action::Action;
use crate::app::screen::profile::roofline::{Roof, rate_words};
use crate::app::screen::profile::{self, Below, timeline};
use crate::tui::paint::{Painter, fit};
use crate::tui::widget::chart::{self, Lines, Point};
use crate::tui::widget::{bars, table};
use habitat_reports::format;
use habitat_reports::theme::Role;
use habitat_step::profile::breakdown::Segment;
use habitat_step::profile::timeline::{Lane, LaneKind};

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let state = &app.profile;
    if let Some(shown) = &state.difference {
        let warnings: Vec<String> = profile::against::warning(app).into_iter().collect();
        waterfall(painter, area, &shown.headline, &warnings, &shown.shown());
        return;
    }
    if state.zoomed {
        if state.below == Below::Timeline {
            step_timeline(painter, area);
        } else {
            detail(painter, area);
        }
        return;
    }
    let density = Density::of(painter.buffer.area);
    let roof = if state.below == Below::Roof { profile::roofline::roof(app) } else { None };
    let below = match density {
        _ if roof.is_some() || state.below == Below::Timeline => area.height * 3 / 5,
        Density::Minimal => 0,
        Density::Compact => 8,
        Density::Full => (area.height * 2 / 5).max(12),
    };
    let [top, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(area);
    let phase = state.phase.map_or("all phases", profile::phase_word);
    let title = filtered(format!("by {} · {phase}", state.by.name()), &state.list);
    let shown = profile::table_on_screen(app);
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
        None if state.below == Below::Timeline => step_timeline(painter, bottom),
        None if below > 0 => detail(painter, bottom),
        None => {}
    }
}

/// Summary of the other recording in one or two lines at the top; returns the area below.
fn compared(painter: &mut Painter<'_>, area: Rect) -> Rect {
    let Some(line) = profile::against::line(painter.app).filter(|_| area.height > 4) else { return area };
    painter.text(area.x, area.y, area.width, &fit(&line, area.width.into()), Role::Title);
    let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let warning = profile::against::warning(painter.app).filter(|_| below.height > 4);
    let used = warning.map_or(0, |warning| painter.wrapped(Rect { height: 1, ..below }, &warning, Role::Warning));
    Rect { y: below.y + used, height: below.height - used, ..below }
}

/// The step as a bar at the top; returns the area below.
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

/// Roofline plot of the rows.
fn roofline(painter: &mut Painter<'_>, area: Rect, roof: &Roof) {
    let app = painter.app;
    let title = format!(
        "roofline of the {}: {} GB/s, {}FLOP/s",
        roof.gpu,
        format::number(roof.bandwidth / 1e9),
        rate_words(roof.peak)
    );
    let inside = painter.pane(area, &title, &format!("{}: back", app.setup.keymap.hint(Action::Roofline)), false);
    let selected = profile::selected(app);
    let words = selected.and_then(|row| profile::roofline::words(roof, row.counted, row.entry.time));
    let words = words.unwrap_or_else(|| "No FLOPs known from shapes for the selected row.".to_owned());
    let [top, bottom] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(inside);
    painter.text(bottom.x, bottom.y, bottom.width, &words, Role::Text);
    let points = profile::roofline::points(app);
    let points: Vec<Point> = points.into_iter().map(|(x, y, selected)| Point { x, y, plan: false, selected }).collect();
    let ends = points.iter().map(|point| point.x);
    let (least, most) = (ends.clone().fold(roof.ridge(), f64::min), ends.fold(roof.ridge() * 2.0, f64::max));
    let at = |x: f64| (x, roof.at(x));
    let curve = [at(least), at(roof.ridge()), at(most)];
    let lines = Lines { curve: &curve, x_name: "FLOP per byte", ..Lines::default() };
    let rate = |rate: f64| format!("{}FLOP/s", rate_words(rate));
    chart::draw(painter, top, &points, &lines, &format::number, &rate);
}

/// One step as lanes over time. Each cell shows the letter of its phase, in lower case if the lane is busy for less
/// than half of the cell; the selected row has its own symbol.
fn step_timeline(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let key = app.setup.keymap.hint(Action::Timeline);
    let whole = if app.profile.zoomed { "Enter or q: back to the table" } else { "Enter: whole screen" };
    let right = format!("{key}: back · {whole}");
    let Some((shown, view)) = timeline::shown(app) else {
        let inside = painter.pane(area, "timeline", &right, app.profile.zoomed);
        painter.wrapped(inside, timeline::none(&painter.app.setup.profile), Role::Muted);
        return;
    };
    let title = format!("timeline of one step of {}", format::time(shown.duration));
    let inside = painter.pane(area, &title, &right, app.profile.zoomed);
    if inside.height < 3 || inside.width < 16 {
        labelled(painter, inside, &timeline::under(app), 0);
        return;
    }
    let lanes = most_telling(&shown.lanes, usize::from(inside.height - 1).saturating_sub(2).max(1));
    let labels: Vec<String> = lanes.iter().map(|lane| shown.label(lane)).collect();
    let left = labels.iter().map(|label| label.width()).max().unwrap_or(0) as u16 + 1;
    let (x, columns) = (inside.x + left, inside.width.saturating_sub(left));
    let column = |time: f64| {
        let part = if view.span > 0.0 { (time - view.from) / view.span } else { 0.0 };
        x + ((part * f64::from(columns)) as u16).min(columns - 1)
    };
    let cursor = column(view.cursor);
    let mut letters = Vec::new();
    let mut y = inside.y;
    for (lane, label) in lanes.iter().zip(&labels) {
        painter.text(inside.x, y, left, label, Role::Muted);
        for (at, cell) in (x..).zip(timeline::cells(app, shown, lane, view, columns.into())) {
            let (letter, meaning) = timeline::letter(cell.phase);
            let small = letter.to_ascii_lowercase();
            let (sign, role) = match cell {
                timeline::Cell { marked: true, .. } => ('*', Role::Focus),
                timeline::Cell { busy, .. } if busy <= 0.0 => (' ', Role::Track),
                timeline::Cell { busy, phase, .. } => {
                    if !letters.contains(&(letter, meaning, phase)) {
                        letters.push((letter, meaning, phase));
                    }
                    (if busy < 0.5 { small } else { letter }, profile::phase_role(phase))
                }
            };
            let sign = if sign == ' ' { painter.glyphs.empty.to_owned() } else { sign.to_string() };
            let style = painter.style(role);
            let is_full = cell.busy >= 0.5 && !cell.marked;
            let style = if is_full { style.add_modifier(Modifier::REVERSED) } else { style };
            let style = if cell.marked { style.add_modifier(Modifier::BOLD) } else { style };
            let style = if at == cursor { style.add_modifier(Modifier::UNDERLINED) } else { style };
            painter.styled(at, y, 1, &sign, style);
        }
        y += 1;
    }
    axis(painter, Rect { x, y, width: columns, height: 1 }, view, cursor);
    let below = Rect { y: y + 1, height: inside.bottom().saturating_sub(y + 1), ..inside };
    let used = labelled(painter, below, &timeline::under(app), 0) as u16;
    letters.sort_by_key(|(_, _, phase)| phase.map_or(usize::MAX, |phase| phase as usize));
    let mut legend = vec!["* selected".to_owned()];
    legend.extend(letters.iter().map(|(letter, meaning, _)| format!("{letter} {meaning}")));
    legend.push("lower case: busy less than half".to_owned());
    if used < below.height {
        painter.text(
            below.x,
            below.bottom() - 1,
            below.width,
            &fit(&legend.join(" · "), below.width.into()),
            Role::Muted,
        );
    }
}

/// The most informative lanes that fit, in their order.
fn most_telling(lanes: &[Lane], count: usize) -> Vec<&Lane> {
    let rank = |lane: &Lane| match lane.kind {
        LaneKind::Compute => 0,
        LaneKind::Host => 1,
        LaneKind::Communication => 2,
        LaneKind::Copies => 3,
    };
    let first = |at: usize| lanes.iter().position(|other| other.kind == lanes[at].kind) == Some(at);
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    order.sort_by_key(|at| (!first(*at), rank(&lanes[*at]), *at));
    order.truncate(count);
    order.sort_unstable();
    order.into_iter().map(|at| &lanes[at]).collect()
}

/// Time axis: both ends of the visible part, and the cursor with its time.
fn axis(painter: &mut Painter<'_>, area: Rect, view: timeline::View, cursor: u16) {
    let [from, to, now] = [view.from, view.from + view.span, view.cursor].map(timeline::moment);
    painter.styled(cursor, area.y, 1, "^", painter.style(Role::Focus));
    let (wide, right) = (now.width() as u16, area.right());
    let at = if cursor + 2 + wide <= right { cursor + 2 } else { cursor.saturating_sub(wide + 1) };
    let at = at.max(area.x);
    if at > cursor || at + wide <= cursor {
        painter.text(at, area.y, right.saturating_sub(at), &now, Role::Text);
    }
    let taken = [at.min(cursor), (at + wide).max(cursor + 1)];
    if area.x + (from.width() as u16) < taken[0] {
        painter.text(area.x, area.y, area.width, &from, Role::Muted);
    }
    if taken[1] + (to.width() as u16) < right {
        painter.text_right(right, area.y, area.width, &to, Role::Muted);
    }
}

fn detail(painter: &mut Painter<'_>, area: Rect) {
    let state = &painter.app.profile;
    let lines = profile::detail(painter.app);
    let focus = state.in_detail || state.zoomed;
    let right = if state.zoomed { "Enter or q: back to the table" } else { "Enter: whole screen" };
    let inside = painter.pane(area, "selected", right, focus);
    if lines.is_empty() {
        painter.text(inside.x, inside.y, inside.width, "Nothing selected.", Role::Muted);
        return;
    }
    labelled(painter, inside, &lines, state.scroll);
}
