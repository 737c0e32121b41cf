//! First screen.

use ratatui::layout::{Constraint, Layout, Rect};
use unicode_width::UnicodeWidthStr;

use super::{Density, warned};
use crate::app::Source;
use crate::app::screen::overview::{self, Answer};
use crate::app::screen::profile::{Row, is_unmeasured};
use crate::tui::paint::{Painter, fit, wrap};
use crate::tui::widget::bars;
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_reports::theme::Role;
use habitat_reports::{format, summary};

/// Width of the recording's labels in cells.
const LABEL: u16 = 9;

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    let density = Density::of(painter.buffer.area);
    if density == Density::Minimal {
        let used = recorded(painter, area, false);
        let left = Rect { y: area.y + used + 1, height: area.height.saturating_sub(used + 1), ..area };
        answers(painter, inset(left));
        return;
    }
    let source = match &painter.app.setup.source {
        Source::Given(place) => format!("from {}", clean(place, 60)),
        Source::Sample(_) => "embedded sample, not your own recording".to_owned(),
        Source::Awaited => String::new(),
    };
    // Memory by kind has its own line; without phases there is space for it.
    let more = painter.app.setup.profile.step.as_ref().is_some_and(|step| step.memory.is_some())
        && !painter.app.overview.breakdown.phases.is_empty();
    let notes = overview::notes(&painter.app.setup.profile).len().min(2) as u16;
    // Without phases, notes replace them.
    let without = if painter.app.overview.breakdown.phases.is_empty() { 2 - notes } else { 0 };
    let (words, _) = overview::verdict(painter.app, false);
    let verdict = wrap(&words, usize::from(area.width.saturating_sub(4))).len().min(VERDICT) as u16;
    let untimed = u16::from(painter.app.overview.breakdown.busy_idle.is_none());
    let layers = u16::from(overview::layers(painter.app, 0).is_some());
    let height = verdict + RECORDED + 2 + u16::from(more) + layers + untimed - without;
    let [top, rest] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(area);
    let title = match &painter.app.setup.profile.origin {
        Some(origin) => format!("recorded on {}", summary::recorded_on(origin)),
        None => "recorded: shapes only, no GPU timings".to_owned(),
    };
    let inside = painter.pane(top, &title, &source, false);
    recorded(painter, inside, true);
    if density == Density::Full {
        let widths = [Constraint::Length(rest.width * 9 / 20), Constraint::Fill(1)];
        let [left, right] = Layout::horizontal(widths).areas(rest);
        operations(painter, left, 1);
        let inside = painter.pane(right, "recommendation", "", false);
        let used = answers(painter, inside);
        next_steps(painter, Rect { y: inside.y + used + 1, height: inside.height.saturating_sub(used + 1), ..inside });
    } else {
        // The answers take the lines that they need, the operations get the rest. A pane with less than two rows would
        // be unreadable: for it, the answers leave out one line of details, but not more.
        let (needed, room) = (answer_lines(painter, rest.width - 4) + 2, rest.height.saturating_sub(4));
        let below = if needed > room + 1 { rest.height } else { needed.min(room) };
        let [above, below] = Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(rest);
        if above.height > 0 {
            operations(painter, above, 2);
        }
        let inside = painter.pane(below, "recommendation", "3: compare GPUs, 4: plan", false);
        answers(painter, inside);
    }
}

fn inset(area: Rect) -> Rect {
    Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area }
}

/// Lines of the recording in a pane, below the verdict: workload, step, phases and their legend.
const RECORDED: u16 = 4;
/// Maximum number of lines of the verdict.
const VERDICT: usize = 3;

/// Draws the recording and returns the number of lines used.
fn recorded(painter: &mut Painter<'_>, area: Rect, phases: bool) -> u16 {
    let area = if phases { area } else { inset(area) };
    let app = painter.app;
    let profile = &app.setup.profile;
    let width = area.width;
    let (verdict, role) = overview::verdict(app, !phases);
    let lines = Rect { height: area.height.min(if phases { VERDICT as u16 } else { 2 }), ..area };
    let mut y = area.y + painter.wrapped(lines, &verdict, role);
    let sample = !phases && matches!(app.setup.source, Source::Sample(_));
    let words = format!("{}{}", if sample { "embedded sample: " } else { "" }, overview::workload(profile));
    painter.text(area.x, y, width, &fit(&words, width as usize), if sample { Role::Warning } else { Role::Text });
    y += 1;
    painter.text(area.x, y, LABEL, "step", Role::Muted);
    if let Some((time, rest)) = overview::step(app) {
        let x = painter.text(area.x + LABEL, y, width - LABEL, &time, Role::Measured);
        let rest = if rest.is_empty() { " measured".to_owned() } else { format!(" measured · {rest}") };
        let room = area.right().saturating_sub(x);
        painter.text(x, y, room, &fit(&rest, room as usize), Role::Muted);
    } else {
        let mut words = "no GPU timings".to_owned();
        words.extend(overview::peak(profile).map(|peak| format!(" · {peak}")));
        painter.text(area.x + LABEL, y, width - LABEL, &words, Role::Muted);
    }
    y += 1;
    let breakdown = &app.overview.breakdown;
    if breakdown.busy_idle.is_none() {
        let words = if breakdown.total.get() > 0.0 {
            format!("{} of device time in operations", format::time(breakdown.total))
        } else {
            "no GPU timings: all times here are predicted from shapes".to_owned()
        };
        painter.text(area.x, y, LABEL, "device", Role::Muted);
        painter.text(area.x + LABEL, y, width - LABEL, &words, Role::Muted);
        y += 1;
    }
    if !phases {
        return y - area.y;
    }
    let room = usize::from(width - LABEL);
    let memory = overview::memory_by_kind(profile, room).map(|kinds| ("memory", kinds));
    let layers = overview::layers(app, room).map(|layers| ("slowest", layers));
    for (label, words) in memory.into_iter().chain(layers) {
        painter.text(area.x, y, LABEL, label, Role::Muted);
        painter.text(area.x + LABEL, y, width - LABEL, &fit(&words, room), Role::Text);
        y += 1;
    }
    if breakdown.phases.is_empty() {
        let notes = overview::notes(profile);
        for (index, note) in notes.iter().take(usize::from(area.bottom() - y).min(2)).enumerate() {
            painter.text(area.x, y, LABEL, if index == 0 { "noted" } else { "" }, Role::Muted);
            painter.text(area.x + LABEL, y, width - LABEL, &fit(note, usize::from(width - LABEL)), Role::Muted);
            y += 1;
        }
        return y - area.y;
    }
    painter.text(area.x, y, LABEL, "phases", Role::Muted);
    let parts = overview::parts(breakdown);
    let bar: Vec<(f64, Role)> = parts.iter().map(|(_, share, _, role)| (*share, *role)).collect();
    let busy = bar.iter().filter(|(_, role)| *role != Role::Track).count();
    bars::stacked(painter, area.x + LABEL, y, width - LABEL, &bar[..busy]);
    y += 1;
    legend(painter, Rect::new(area.x + LABEL, y, width - LABEL, 1), &parts);
    y + 1 - area.y
}

/// Legend of the step's parts, with times if all fit. Otherwise without times, and the largest parts take precedence;
/// shown in the step's order.
fn legend(painter: &mut Painter<'_>, area: Rect, parts: &[(&'static str, f64, Micros, Role)]) {
    let words = |with_time: bool| -> Vec<String> {
        let text = |(name, share, time, _): &(&str, f64, Micros, Role)| {
            let whole = if *share < 0.01 { format::percent(*share) } else { format!("{:.0} %", share * 100.0) };
            let time = if with_time { format!(" {}", format::time(*time)) } else { String::new() };
            format!("{name} {whole}{time}")
        };
        parts.iter().map(text).collect()
    };
    let wide = |text: &String| text.width() as u16 + 4;
    let mut texts = words(true);
    if texts.iter().map(wide).sum::<u16>() > area.width + 2 {
        texts = words(false);
    }
    let mut order: Vec<usize> = (0..parts.len()).collect();
    // Always name idle time, even if short.
    order.sort_by(|a, b| parts[*b].1.total_cmp(&parts[*a].1));
    order.sort_by_key(|index| parts[*index].3 != Role::Track);
    let mut used = 0;
    let kept: Vec<usize> = order
        .into_iter()
        .filter(|index| {
            let fits = used + wide(&texts[*index]) <= area.width + 2;
            used += if fits { wide(&texts[*index]) } else { 0 };
            fits
        })
        .collect();
    let mut x = area.x;
    for index in (0..parts.len()).filter(|index| kept.contains(index)) {
        let role = parts[index].3;
        let sign = if role == Role::Track { painter.glyphs.empty } else { painter.glyphs.full };
        x = painter.text(x, area.y, 1, sign, role) + 1;
        x = painter.text(x, area.y, area.right().saturating_sub(x), &texts[index], Role::Text) + 2;
    }
}

/// Operators with the most time, in one or two columns.
fn operations(painter: &mut Painter<'_>, area: Rect, columns: u16) {
    let unmeasured = painter.app.overview.breakdown.unmeasured;
    let by_shapes = is_unmeasured(&painter.app.setup.profile);
    let (title, right) = match (by_shapes, unmeasured) {
        (true, _) => ("FLOPs of the step, from shapes", "2: show all".to_owned()),
        (false, 0) => ("time by operator", "2: show all".to_owned()),
        (false, 1) => ("time by operator", "1 operation not measured".to_owned()),
        (false, count) => ("time by operator", format!("{count} operations not measured")),
    };
    let inside = painter.pane(area, title, &right, false);
    let top = &painter.app.overview.top;
    let split = painter.app.overview.breakdown.busy_idle.as_ref().filter(|split| split.step.get() > 0.0 && !by_shapes);
    let scale = split.map_or(1.0, |split| split.busy / split.step);
    let whole: f64 = top.iter().map(|row| row.counted.flops).sum();
    let share = |row: &Row| match (by_shapes, whole > 0.0) {
        (false, _) => row.entry.share * scale,
        (true, true) => row.counted.flops / whole,
        (true, false) => 0.0,
    };
    if top.iter().all(|row| share(row) == 0.0) {
        painter.wrapped(inside, "The shapes do not show what the step computes.", Role::Muted);
        return;
    }
    let gap = 3;
    let wide = (inside.width - gap * (columns - 1)) / columns;
    let amount =
        |row: &Row| if by_shapes { format::short_count(row.counted.flops) } else { format::time(row.entry.time) };
    let name = |row: &Row| habitat_step::op::name::short(&clean(&row.entry.label, 80)).to_owned();
    let mut listed: Vec<(String, String, f64)> = top.iter().map(|row| (name(row), amount(row), share(row))).collect();
    // Idle time is listed as part of the step.
    if let Some(split) = split.filter(|split| split.idle.get() > 0.0) {
        let place = listed.partition_point(|(_, _, share)| *share >= 1.0 - scale);
        listed.insert(place, ("(GPU idle)".to_owned(), format::time(split.idle), 1.0 - scale));
    }
    let most = listed.first().map_or(0.0, |(_, _, share)| *share);
    let rows = usize::from(inside.height);
    for (index, (label, amount, share)) in listed.iter().take(rows * usize::from(columns)).enumerate() {
        let x = inside.x + (index / rows) as u16 * (wide + gap);
        let y = inside.y + (index % rows) as u16;
        let numbers = format!("{amount:>9}  {:>6}", format::percent(*share));
        let bar = if wide >= 50 { wide - 46 } else { 0 };
        let name = wide.saturating_sub(bar + 18 + 2);
        painter.text(x, y, name, label, Role::Text);
        // Numbers take precedence over bars.
        let drawn = bars::bar(painter.glyphs, bar, if most > 0.0 { share / most } else { 0.0 });
        painter.text(x + name + 1, y, bar, &drawn, Role::Busy);
        painter.text_right(x + wide, y, 18, &numbers, Role::Text);
    }
}

/// Width of the questions in cells.
const QUESTION: u16 = 18;

fn answer_lines(painter: &Painter<'_>, width: u16) -> u16 {
    let lines = |answer: &Answer| wrap(&flowing(answer), usize::from(width.saturating_sub(QUESTION))).len();
    let warnings = overview::warnings(painter.app);
    let warned: usize = warnings.iter().map(|text| wrap(text, width as usize).len()).sum();
    (overview::answers(painter.app).iter().map(lines).sum::<usize>() + warned) as u16
}

/// Draws warnings and answers, and returns the number of lines used.
fn answers(painter: &mut Painter<'_>, area: Rect) -> u16 {
    let warnings = overview::warnings(painter.app);
    let left = warned(painter, area, &warnings);
    let used = area.height - left.height;
    used + answered(painter, left)
}

/// An answer followed by its details.
fn flowing(answer: &Answer) -> String {
    answer.answer.iter().chain(&answer.detail).cloned().collect::<Vec<_>>().join(" · ")
}

/// The answers; the longest ones lose their last details until all fit.
fn fitting(painter: &Painter<'_>, area: Rect) -> Vec<Answer> {
    let lines = |answer: &Answer| wrap(&flowing(answer), usize::from(area.width.saturating_sub(QUESTION))).len();
    let mut answers = overview::answers(painter.app);
    while answers.iter().map(lines).sum::<usize>() > usize::from(area.height) {
        let detailed = answers.iter_mut().filter(|answer| answer.detail.len() > 1);
        let Some(longest) = detailed.max_by_key(|answer| lines(answer)) else { break };
        longest.detail.pop();
    }
    answers
}

fn answered(painter: &mut Painter<'_>, area: Rect) -> u16 {
    let roomy = area.height >= 16;
    let stacked = roomy && area.width < 76;
    let narrow = area.width < 60 && !stacked;
    let left = match (narrow, stacked) {
        (true, _) => 0,
        (_, true) => 2,
        _ => QUESTION,
    };
    let mut y = area.y;
    let answers = if narrow || roomy { overview::answers(painter.app) } else { fitting(painter, area) };
    for answer in answers {
        if y >= area.bottom() {
            break;
        }
        let x = painter.text(area.x, y, area.width, answer.question, Role::Muted);
        if stacked {
            y += 1;
        }
        let indent = area.x + left;
        let room = area.width.saturating_sub(left);
        if !narrow && !roomy {
            let lines = Rect::new(indent, y, room, area.bottom() - y);
            let is_known = answer.answer.is_some();
            y += painter.wrapped(lines, &flowing(&answer), if is_known { Role::Text } else { Role::Muted });
            let text = answer.answer.as_deref().unwrap_or_default();
            let stale = answer.stale.trim_start_matches(" – ");
            painter.text(indent, lines.y, room, text, if stale.is_empty() { Role::Good } else { Role::Warning });
            painter.text(area.x, lines.y + 1, left, &fit(stale, usize::from(left.saturating_sub(1))), Role::Warning);
            continue;
        }
        if let Some(text) = &answer.answer {
            // With little space the number comes first, as a name may be cut.
            let text = if narrow { number_first(text) } else { text.clone() };
            let at = if narrow { x + 1 } else { indent };
            let end = painter.text(at, y, area.right().saturating_sub(at), &text, Role::Good);
            painter.text(end, y, area.right().saturating_sub(end), &answer.stale, Role::Warning);
            y += 1;
        } else if narrow {
            y += 1;
        }
        for (index, text) in answer.detail.iter().enumerate() {
            // With little space, only range and method remain.
            if narrow && index > 0 && answer.answer.is_some() {
                continue;
            }
            if y >= area.bottom() {
                break;
            }
            let lines = Rect::new(indent, y, room, area.bottom() - y);
            let role = if answer.answer.is_some() { Role::Text } else { Role::Muted };
            y += if narrow && answer.answer.is_some() {
                painter.text(lines.x, y, room, &fit(text, room as usize), role);
                1
            } else {
                painter.wrapped(lines, text, role)
            };
        }
        if roomy {
            y += 1;
        }
    }
    y - area.y
}

/// Swaps `name  number` to `number  name`, or drops the amount of work.
fn number_first(text: &str) -> String {
    match text.split_once("  ") {
        Some((name, number)) => format!("{number}  {name}"),
        None => text.split(" for ").next().unwrap_or(text).to_owned(),
    }
}

/// Suggested next steps, if there is space.
fn next_steps(painter: &mut Painter<'_>, area: Rect) {
    if area.height < 6 {
        return;
    }
    let two = if is_unmeasured(&painter.app.setup.profile) {
        "see FLOPs and bytes of every operation"
    } else {
        "see which operations and kernels take the time"
    };
    let steps: [(&str, &str); 4] = [
        ("2", two),
        ("3", "compare all GPUs: time, samples per dollar, memory"),
        ("4", "set work, deadline and budget to find an offer"),
        ("?", "all keys"),
    ];
    painter.text(area.x, area.y, area.width, "Next", Role::Muted);
    for (row, (key, text)) in steps.iter().enumerate() {
        let y = area.y + row as u16;
        painter.pieces(
            area.x + 2,
            y + 1,
            area.width.saturating_sub(2),
            &[(key, Role::Key), ("  ", Role::Muted), (text, Role::Muted)],
        );
    }
}
