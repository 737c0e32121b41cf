//! Fifth screen: the job. Also draws the other screens before there is a recording.

use ratatui::layout::Rect;
use ratatui::widgets::{Sparkline, Widget};
use unicode_width::UnicodeWidthStr;

use super::Density;
use crate::app::live::Live;
use crate::app::screen::job;
use crate::tui::paint::{Painter, fit, wrap};
use habitat_recorder::live::RecordingWindows;
use habitat_reports::theme::Role;

/// Width of labels in cells.
const LABEL: u16 = 9;
/// Minimum number of output lines.
const LEAST: u16 = 5;

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let Some(live) = &app.live else { return };
    let density = Density::of(painter.buffer.area);
    let framed = density > Density::Minimal;
    let margin = if framed { 4 } else { 2 };
    let room = area.height.saturating_sub(LEAST + if framed { 4 } else { 1 });
    let facts = facts(painter, live, density, area.width.saturating_sub(margin), room);
    let height: u16 = facts.iter().map(Fact::height).sum();
    let (inside, rest) = if framed {
        let top = Rect { height: height + 2, ..area };
        let inside = painter.pane(top, &live.job.command, &format!("process {}", live.job.pid), false);
        (inside, Rect { y: top.bottom(), height: area.height.saturating_sub(top.height), ..area })
    } else {
        let inside = Rect { x: area.x + 1, width: area.width.saturating_sub(2), height, ..area };
        (inside, Rect { y: area.y + height, height: area.height.saturating_sub(height), ..area })
    };
    let mut y = inside.y;
    for fact in &facts {
        fact.draw(painter, Rect { y, height: fact.height(), ..inside });
        y += fact.height();
    }
    output(painter, rest, live, framed);
}

/// Content after a label.
enum Shown {
    /// Lines in one role.
    Lines(Vec<String>, Role),
    /// A figure and details.
    Figure(String, String),
    /// Step times in eighths of a cell, and a legend.
    Spark(Vec<u64>, String),
}

struct Fact {
    label: &'static str,
    shown: Shown,
}

impl Fact {
    fn height(&self) -> u16 {
        match &self.shown {
            Shown::Lines(lines, _) => lines.len() as u16,
            Shown::Figure(..) | Shown::Spark(..) => 1,
        }
    }

    fn draw(&self, painter: &mut Painter<'_>, area: Rect) {
        painter.text(area.x, area.y, LABEL, self.label, Role::Muted);
        let (x, width) = (area.x + LABEL, area.width.saturating_sub(LABEL));
        match &self.shown {
            Shown::Lines(lines, role) => {
                for (row, line) in lines.iter().enumerate() {
                    painter.text(x, area.y + row as u16, width, line, *role);
                }
            }
            Shown::Figure(figure, rest) => {
                let end = painter.text(x, area.y, width, figure, Role::Measured);
                let room = area.right().saturating_sub(end);
                painter.text(end, area.y, room, &fit(rest, room as usize), Role::Muted);
            }
            Shown::Spark(heights, words) => {
                let room = usize::from(width.saturating_sub(words.width() as u16 + 2));
                let shown = &heights[heights.len().saturating_sub(room)..];
                let drawn = Rect { x, width: shown.len() as u16, ..area };
                Sparkline::default()
                    .data(shown)
                    .max(8)
                    .bar_set(painter.glyphs.spark.clone())
                    .style(painter.style(Role::Measured))
                    .render(drawn, painter.buffer);
                painter.text(drawn.right() + 2, area.y, width, words, Role::Muted);
            }
        }
    }
}

/// Facts in at most `room` lines; drops the least important ones.
fn facts(painter: &Painter<'_>, live: &Live, density: Density, width: u16, room: u16) -> Vec<Fact> {
    let app = painter.app;
    let wide = usize::from(width.saturating_sub(LABEL));
    let short = |label, (text, role): (String, Role)| Fact { label, shown: Shown::Lines(vec![fit(&text, wide)], role) };
    let lines = |label, (text, role): (String, Role), most: usize| {
        let mut lines = wrap(&text, wide);
        if lines.len() > most {
            lines.truncate(most);
            if let Some(last) = lines.last_mut() {
                last.push_str(" …");
            }
        }
        Fact { label, shown: Shown::Lines(lines, role) }
    };
    // Each with its importance.
    let mut facts =
        vec![(9, lines("state", job::state(live), 3)), (3, short("process", (job::processes(live), Role::Text)))];
    match job::times(app, &live.seen) {
        Some((now, rest)) => {
            facts.push((8, Fact { label: "step", shown: Shown::Figure(now, format!(" · {rest}")) }));
        }
        // A recording by time has no steps until a profile is made from it.
        None if matches!(live.job.wanted, RecordingWindows::Kernels { .. }) => {}
        None if live.seen.is_over() => facts.push((4, short("step", ("no steps timed".to_owned(), Role::Muted)))),
        None => facts.push((4, short("step", ("no steps timed yet".to_owned(), Role::Muted)))),
    }
    if let Some((heights, words)) = job::bars(&live.seen).filter(|_| density > Density::Minimal) {
        facts.push((2, Fact { label: "", shown: Shown::Spark(heights, words) }));
    }
    let known = |(_, role): &(String, Role), weight| if *role == Role::Muted { 0 } else { weight };
    let mut label = "history";
    if let Some((heights, legend)) = job::over_time(live).filter(|_| density > Density::Minimal) {
        facts.push((5, Fact { label, shown: Shown::Spark(stretched(&heights, wide), legend) }));
        label = "";
    }
    for words in job::history(painter.app, live) {
        facts.push((5, lines(label, words, 2)));
        label = "";
    }
    facts.extend(job::ranks(live).map(|ranks| (6, lines("ranks", ranks, 2))));
    facts.extend(job::trainings(&live.seen).map(|words| (6, lines("trainings", words, 2))));
    facts.extend(job::data(&live.seen).map(|data| (known(&data, 6), short("data", data))));
    facts.extend(job::held_back(app, live).map(|verdict| (8, lines("verdict", verdict, 3))));
    for (label, words) in job::economy(app, live) {
        // Limits of a plan that will be missed, and the key that plans the rest.
        let is_missed = matches!(words.1, Role::Warning | Role::Key);
        let weight = if is_missed { 8 } else { known(&words, if label.is_empty() { 2 } else { 5 }) };
        facts.push((weight, lines(label, words, 3)));
    }
    for (index, board) in job::boards(&live.seen).into_iter().take(3).enumerate() {
        facts.push((if index == 0 { 4 } else { 6 }, short(if index == 0 { "GPU" } else { "" }, board)));
    }
    facts.extend(job::device(app).map(|device| (2, short("runs on", device))));
    facts.push((7, short("windows", (job::windows(live), Role::Text))));
    for (index, note) in job::notes(&live.seen).into_iter().take(3).enumerate() {
        facts.push((5, lines(if index == 0 { "note" } else { "" }, (note.to_owned(), Role::Warning), 2)));
    }
    facts.push((if live.problem.is_some() { 8 } else { 4 }, lines("profile", job::profile(app, live), 3)));
    facts.push((if live.seen.remedy.is_some() { 8 } else { 1 }, lines("next", job::next(app, live), 6)));
    while facts.iter().map(|(_, fact)| fact.height()).sum::<u16>() > room && facts.len() > 1 {
        let least = facts.iter().map(|(weight, _)| *weight).min().unwrap_or(0);
        facts.remove(facts.iter().rposition(|(weight, _)| *weight == least).unwrap_or(0));
    }
    facts.into_iter().map(|(_, fact)| fact).collect()
}

/// Slices of a history, as many as fit: a mean of several would hide the highest, so each cell shows that.
fn stretched(heights: &[u64], room: usize) -> Vec<u64> {
    let each = heights.len().div_ceil((room / 2).max(1)).max(1);
    heights.chunks(each).filter_map(|chunk| chunk.iter().max().copied()).collect()
}

/// The end of the output, or the part scrolled to.
fn output(painter: &mut Painter<'_>, area: Rect, live: &Live, framed: bool) {
    let right = if live.above > 0 { format!("{} lines below", live.above) } else { String::new() };
    let inside = if framed {
        painter.pane(area, &format!("output, in {}", live.job.log), &right, false)
    } else {
        let title = format!("output, in {}", live.job.log);
        painter.text(area.x + 1, area.y, area.width.saturating_sub(2), &title, Role::Title);
        let height = area.height.saturating_sub(1);
        Rect { x: area.x + 1, y: area.y + 1, width: area.width.saturating_sub(2), height }
    };
    if live.output.is_empty() {
        let words = if live.seen.is_over() { "No output." } else { "No output yet." };
        painter.text(inside.x, inside.y, inside.width, words, Role::Muted);
        return;
    }
    let end = live.output.len().saturating_sub(live.above);
    let start = end.saturating_sub(usize::from(inside.height));
    for (row, line) in live.output[start..end].iter().enumerate() {
        painter.text(inside.x, inside.y + row as u16, inside.width, line, Role::Text);
    }
}

/// Content of a screen that has no profile to show yet.
pub(super) fn awaited(painter: &mut Painter<'_>, area: Rect) {
    let framed = Density::of(painter.buffer.area) > Density::Minimal;
    let inside = if framed {
        painter.pane(area, painter.app.screen.name(), "", false)
    } else {
        Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area }
    };
    let mut y = inside.y + u16::from(framed);
    for (text, role) in job::awaited(painter.app) {
        if y >= inside.bottom() {
            return;
        }
        y += painter.wrapped(Rect { y, height: inside.bottom() - y, ..inside }, &text, role) + u16::from(framed);
    }
}
