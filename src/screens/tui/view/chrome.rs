//! Elements around every screen: top bar, status line, keys.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use unicode_width::UnicodeWidthStr;

use crate::action::{Action, Screen};
use crate::app::available::Hint;
use crate::app::screen::{job, jobs, plan, predict};
use crate::app::{SMALLEST, Source, Target, Tone, modes};
use crate::tui::paint::{Painter, wrap};
use habitat_base::text::clean;
use habitat_reports::theme::Role;

/// Draws them and returns the area for the screen.
pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) -> Rect {
    let two = area.height >= 20;
    let width = usize::from(area.width.saturating_sub(2));
    let lines = rows(painter.app.footer(), width);
    // If the keys need both lines, the sample is named in the bar only.
    let news = news(painter, two, two && lines.len() > 1);
    // A message often ends with its remedy: it takes the lines that it needs.
    let told = news.as_ref().map_or(0, |(_, text)| wrap(text, width).len().min(MESSAGE_LINES)) as u16;
    let bottom = if two { (told + 1).max(2) } else { told.max(1) };
    let heights = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(bottom)];
    let [top, body, bottom] = Layout::vertical(heights).areas(area);
    bar(painter, top);
    if let Some((role, text)) = &news {
        let place = Rect { x: area.x + 1, y: bottom.y, width: width as u16, height: told };
        painter.wrapped(place, text, *role);
    }
    // With a single line, the message replaces the keys.
    let free = usize::from(bottom.height.saturating_sub(told));
    let shown = lines.len().min(free);
    let left: usize = lines[shown..].iter().map(Vec::len).sum();
    for (row, hints) in lines.into_iter().take(shown).enumerate() {
        let y = bottom.bottom() - (shown - row) as u16;
        footer(painter, Rect { y, height: 1, ..area }, hints, if row + 1 == shown { left } else { 0 });
    }
    body
}

/// Most lines of a message; the history of messages has all of it.
const MESSAGE_LINES: usize = 4;

/// Name of the program in the bar.
const PROGRAM: &str = "habitat-tui";

fn bar(painter: &mut Painter<'_>, area: Rect) {
    let style = painter.style(Role::Bar);
    painter.buffer.set_style(area, style);
    let app = painter.app;
    let modes = modes::modes(app).join(" · ");
    let tabs: Vec<(usize, Screen)> = (0..)
        .zip(Screen::ALL.iter().copied())
        .filter(|(_, screen)| app.unavailable(screen.action()).is_none())
        .collect();
    let tab = |index: usize, screen: Screen, is_short: bool| {
        let name = if is_short && screen != app.screen { "" } else { screen.name() };
        if name.is_empty() { format!(" {} ", index + 1) } else { format!(" {} {name} ", index + 1) }
    };
    // Assumptions matter more than the program's name and the names of the other screens.
    let needed = |is_short: bool| -> usize {
        tabs.iter().map(|(index, screen)| tab(*index, *screen, is_short).width()).sum::<usize>() + modes.width() + 3
    };
    let width = usize::from(area.width);
    let is_short = !modes.is_empty() && needed(false) > width;
    let mut x = area.x + 1;
    if area.width >= 70 && (modes.is_empty() || needed(is_short) + PROGRAM.len() + 2 <= width) {
        x = painter.text(x, area.y, 14, PROGRAM, Role::Bar) + 2;
    }
    for (index, screen) in tabs.iter().copied() {
        let text = tab(index, screen, is_short);
        let role = if screen == app.screen { Role::Tab } else { Role::Bar };
        let start = x;
        let room = area.right().saturating_sub(x);
        // Drop the blank after a name if there is no cell for it.
        let text = if text.width() > usize::from(room) { text.trim_end() } else { &text };
        x = painter.text(x, area.y, room, text, role);
        painter.hit(Rect::new(start, area.y, x - start, 1), Target::Tab(screen));
    }
    let name = clean(&painter.app.setup.profile.workload.name, 40);
    let sample = match &painter.app.setup.source {
        Source::Sample(_) => "sample: ",
        Source::Given(_) | Source::Awaited => "",
    };
    let name = format!("{sample}{name}");
    let mut right = area.right() - 1;
    let room = usize::from(right.saturating_sub(x + 1));
    // Assumptions of the predictions matter more than the name.
    if !name.is_empty() && name.width() + if modes.is_empty() { 0 } else { modes.width() + 3 } <= room {
        right = painter.text_right(right, area.y, room as u16, &name, Role::Bar).saturating_sub(3);
    }
    if !modes.is_empty() && right > x + 1 {
        // On the screen's background, a warning has enough contrast in every theme.
        let warning = painter.style(Role::Text).patch(painter.style(Role::Warning));
        let at = painter.text_right(right, area.y, right - x - 1, &modes, Role::Bar);
        painter.buffer.set_style(Rect::new(at, area.y, right - at, 1), warning.add_modifier(Modifier::BOLD));
    }
}

/// The last message, else the running computation.
fn news(painter: &Painter<'_>, own_line: bool, crowded: bool) -> Option<(Role, String)> {
    let app = painter.app;
    if let Some((tone, text)) = &app.message {
        let (role, sign) = match tone {
            Tone::Good => (Role::Good, "✓ "),
            Tone::Hint => (Role::Muted, ""),
            Tone::Bad => (Role::Error, "error: "),
        };
        return Some((role, format!("{sign}{text}")));
    }
    let stop = app.setup.keymap.hint(Action::Cancel);
    // The jobs screen has its own plan, so its status covers only that.
    if app.screen == Screen::Jobs {
        return jobs::news(app).map(|text| (Role::Muted, text));
    }
    if app.predictions.is_running() {
        return Some((Role::Muted, format!("{} ({stop} to cancel)", predict::state_line(app)?)));
    }
    if app.plan.is_running() {
        return Some((Role::Muted, format!("{} ({stop} to cancel)", plan::state_line(app)?)));
    }
    if app.is_awaiting() {
        // The screens show this themselves.
        return None;
    }
    // These screens do so, too; and measurements need no predictions.
    let by_plan = plan::failed(app) && matches!(app.screen, Screen::Overview | Screen::Plan);
    if by_plan || (predict::failed(app) && app.screen != Screen::Job) {
        return None;
    }
    match (predict::state_line(app), plan::state_line(app)) {
        (Some(text), _) | (None, Some(text)) => Some((Role::Warning, text)),
        (None, None) => match &app.setup.source {
            // With a single line, keys matter more; the overview names the sample.
            Source::Sample(_) if !own_line || crowded && app.screen != Screen::Overview => None,
            Source::Sample(label) => {
                let long = format!("{} – open your own: habitat-tui FILE", clean(label, 120));
                let room = usize::from(painter.buffer.area.width).saturating_sub(2);
                Some((Role::Warning, if long.width() <= room { long } else { clean(label, room) }))
            }
            Source::Given(_) | Source::Awaited => {
                let live = app.live.as_ref().filter(|_| own_line && app.screen != Screen::Job)?;
                Some((Role::Muted, job::line(live)))
            }
        },
    }
}

/// Width of a key and its word in the footer.
fn wide(hint: &Hint) -> usize {
    hint.key.width() + 1 + hint.word.width()
}

/// Splits hints into lines of at most `width` cells.
fn rows(hints: Vec<Hint>, width: usize) -> Vec<Vec<Hint>> {
    let (mut lines, mut used) = (vec![Vec::new()], 0);
    for hint in hints {
        let more = wide(&hint) + 2;
        if used + more > width + 2 && used > 0 {
            lines.push(Vec::new());
            used = 0;
        }
        used += more;
        if let Some(line) = lines.last_mut() {
            line.push(hint);
        }
    }
    lines
}

/// One line of keys. `left` counts hints without space, shown as "more" at the end of the line; the help lists them.
fn footer(painter: &mut Painter<'_>, area: Rect, mut hints: Vec<Hint>, mut left: usize) {
    let width = usize::from(area.width.saturating_sub(2));
    let used = |hints: &[Hint]| hints.iter().map(|hint| wide(hint) + 2).sum::<usize>();
    let help = painter.app.setup.keymap.hint(Action::Help);
    let words = |left: usize| format!("{help}: {left} more");
    while left > 0 && !hints.is_empty() && used(&hints) + words(left).width() > width {
        hints.pop();
        left += 1;
    }
    let mut x = area.x + 1;
    for hint in hints {
        let (start, wide) = (x, wide(&hint) as u16);
        let Hint { key, word, action } = hint;
        x = painter.pieces(x, area.y, wide, &[(&key, Role::Key), (" ", Role::Muted), (word, Role::Muted)]);
        if let Some(action) = action {
            painter.hit(Rect::new(start, area.y, wide, 1), Target::Do(action));
        }
        x += 2;
    }
    if left > 0 {
        let end = painter.text(x, area.y, area.right().saturating_sub(x), &words(left), Role::Muted);
        painter.hit(Rect::new(x, area.y, end - x, 1), Target::Do(Action::Help));
    }
}

/// Message about the minimum size.
pub(super) fn too_small(painter: &mut Painter<'_>, area: Rect) {
    let text = format!(
        "The terminal has {}×{} cells; habitat-tui needs {}×{} or more. Enlarge it, or run `habitat-tui FILE | cat`.",
        area.width, area.height, SMALLEST.0, SMALLEST.1
    );
    let lines = wrap(&text, area.width as usize).len() as u16;
    let top = area.y + area.height.saturating_sub(lines) / 2;
    painter.wrapped(Rect { y: top, height: area.bottom() - top, ..area }, &text, Role::Warning);
}
