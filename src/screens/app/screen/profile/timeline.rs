//! One recorded step as lanes over time, with a cursor that shows details.

use super::{Line, phase_word, selected};
use crate::action::Action;
use crate::app::App;
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_reports::{format, waits};
use habitat_step::profile::timeline::{Gap, Interval, Lane, LaneKind, Part, Timeline};
use habitat_step::profile::{Phase, Profile};

/// Cursor steps across the visible part, and number of steps in a large one.
const STEPS: f64 = 64.0;
const FAR: f64 = 8.0;
/// Shortest visible part, microseconds.
const LEAST: f64 = 8.0;

/// Visible part of the step, in microseconds from its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// Start.
    pub from: f64,
    /// Length.
    pub span: f64,
    /// Time at the cursor.
    pub cursor: f64,
}

impl View {
    /// The whole step, with the cursor in the longest GPU idle time, if there is any.
    pub(super) fn new(profile: &Profile) -> Option<Self> {
        let timeline = profile.timeline.as_ref()?;
        let middle = |gap: &Gap| gap.start.get() + gap.duration.get() / 2.0;
        let cursor = timeline.gaps(1).first().map_or(0.0, middle);
        Some(Self { from: 0.0, span: timeline.duration.get(), cursor })
    }

    /// Zooms in or out around the cursor.
    fn zoom(self, times: f64, whole: f64) -> Self {
        let span = (self.span * times).max(LEAST).min(whole);
        let part = if self.span > 0.0 { (self.cursor - self.from) / self.span } else { 0.0 };
        Self { from: (self.cursor - part * span).clamp(0.0, whole - span), span, ..self }
    }

    /// Moves the cursor, and the visible part with it.
    fn step(self, by: f64, whole: f64) -> Self {
        let cursor = (self.cursor + by * self.span / STEPS).clamp(0.0, whole);
        let from = self.from.clamp((cursor - self.span).max(0.0), cursor.min(whole - self.span));
        Self { from, cursor, ..self }
    }
}

/// Handles a key of the timeline; `false` for other keys.
pub(super) fn act(app: &mut App, action: Action) -> bool {
    let (Some(timeline), Some(view)) = (&app.setup.profile.timeline, &mut app.profile.view) else { return false };
    let whole = timeline.duration.get();
    *view = match action {
        Action::Left => view.step(-1.0, whole),
        Action::Right => view.step(1.0, whole),
        Action::FarLeft => view.step(-FAR, whole),
        Action::FarRight => view.step(FAR, whole),
        Action::Increase => view.zoom(0.5, whole),
        Action::Decrease => view.zoom(2.0, whole),
        _ => return false,
    };
    true
}

/// The timeline and its visible part; `None` if the recording has none.
pub fn shown(app: &App) -> Option<(&Timeline, View)> {
    app.setup.profile.timeline.as_ref().zip(app.profile.view)
}

/// Message for a profile without a timeline.
pub const fn none(profile: &Profile) -> &'static str {
    if profile.origin.is_some() {
        "This recording has no timeline: it was not made from a GPU trace, or an older version of this program wrote \
         its file. `habitat-tui import TRACE -o FILE` and `habitat-tui run` write profiles with a timeline; \
         `habitat-tui --sample resnet50-h200` shows one."
    } else {
        "Timelines need a recording on a GPU: this step was recorded on a CPU, or its shapes were traced."
    }
}

/// Part of a lane that one character shows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cell {
    /// Share of its time in which the lane is busy.
    pub busy: f64,
    /// Phase of most of that time; `None` = no operation.
    pub phase: Option<Phase>,
    /// Whether it contains the selected row.
    pub marked: bool,
}

/// A lane in `columns` characters.
pub fn cells(app: &App, timeline: &Timeline, lane: &Lane, view: View, columns: usize) -> Vec<Cell> {
    let selected = selected(app).map(|row| &row.entry.operations[..]).unwrap_or_default();
    let operations = &app.setup.profile.operations;
    let mut times = vec![[0.0_f64; Phase::ALL.len() + 1]; columns];
    let mut cells = vec![Cell::default(); columns];
    let width = view.span / columns as f64;
    for Interval { start, end, part } in lane.intervals() {
        if end < view.from || start > view.from + view.span || width <= 0.0 {
            continue;
        }
        let operation = match timeline.parts.get(part) {
            Some(Part::Operation(operation)) => operations.get(*operation as usize).map(|it| (*operation, it.phase)),
            _ => None,
        };
        let phase = operation.and_then(|(_, phase)| Phase::ALL.iter().position(|other| *other == phase));
        let marked = operation.is_some_and(|(place, _)| selected.binary_search(&(place as usize)).is_ok());
        let column = |time: f64| (((time - view.from) / width).max(0.0) as usize).min(columns - 1);
        for at in column(start)..=column(end) {
            let left = view.from + at as f64 * width;
            let inside = (end.min(left + width) - start.max(left)).max(0.0);
            times[at][phase.unwrap_or(Phase::ALL.len())] += inside;
            cells[at].marked |= marked && inside > 0.0;
        }
    }
    for (cell, times) in cells.iter_mut().zip(times) {
        cell.busy = (times.iter().sum::<f64>() / width).min(1.0);
        let most = (0..times.len()).max_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
        cell.phase = Phase::ALL.get(most).copied();
    }
    cells
}

/// Letter of a phase, and its meaning.
pub const fn letter(phase: Option<Phase>) -> (char, &'static str) {
    match phase {
        Some(Phase::Forward) => ('F', "forward"),
        Some(Phase::Backward) => ('B', "backward"),
        Some(Phase::GradientAccumulation) => ('A', "accumulation"),
        Some(Phase::Optimizer) => ('O', "optimizer"),
        Some(Phase::Communication) => ('C', "communication"),
        Some(Phase::Copy) => ('M', "copy"),
        Some(Phase::Other) | None => ('X', "other"),
    }
}

/// Formats a time in the step, always in ms: `12.301 ms`.
pub fn moment(time: f64) -> String {
    format!("{:.3} ms", time / 1e3)
}

/// Content under the cursor: of the device, and of the host.
pub fn under(app: &App) -> Vec<Line> {
    let Some((shown, View { cursor, .. })) = shown(app) else { return Vec::new() };
    let profile = &app.setup.profile;
    let at = |is_host: bool| -> Vec<String> {
        let lanes = shown.lanes.iter().filter(|lane| (lane.kind == LaneKind::Host) == is_host);
        lanes.filter_map(|lane| Some(words(profile, shown, lane, lane.at(cursor)?))).collect()
    };
    let mut device = at(false);
    if let Some(gap) = shown.gap_at(cursor).filter(|_| device.is_empty()) {
        let host = waits::host_words(profile, shown, &gap);
        let host = if host.is_empty() { host } else { format!("; {host}") };
        device.push(format!("idle for {}, {}{host}", format::time(gap.duration), from_to(gap.start, gap.duration)));
    }
    let mut lines = vec![("device".to_owned(), device.join(" · "))];
    if shown.lanes.iter().any(|lane| lane.kind == LaneKind::Host) {
        let host = at(true);
        let host = if host.is_empty() { "outside recorded operators".to_owned() } else { host.join(" · ") };
        lines.push(("host".to_owned(), host));
    }
    if let Some(resolution) = shown.resolution {
        lines.push(("shown".to_owned(), format!("single events of {} or longer", format::time(resolution))));
    }
    lines
}

/// Text such as `aten::mm, backward, stream 7, 12.301–12.345 ms (44 µs)`.
fn words(profile: &Profile, shown: &Timeline, lane: &Lane, interval: Interval) -> String {
    let Some(part) = shown.parts.get(interval.part) else { return String::new() };
    let mut name = waits::name(profile, shown, part);
    if let Part::Operation(place) = part
        && let Some(operation) = profile.operations.get(*place as usize)
    {
        name = format!("{name}, {}", phase_word(operation.phase));
    }
    let (start, duration) = (Micros::known(interval.start), Micros::known((interval.end - interval.start).max(0.0)));
    let lane = clean(&shown.label(lane), 24);
    format!("{name}, {lane}, {} ({})", from_to(start, duration), format::time(duration))
}

fn from_to(start: Micros, duration: Micros) -> String {
    format!("{:.3}–{}", start.as_millis(), moment(start.get() + duration.get()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "halves and sums of small whole numbers are exact")]

    use super::*;

    #[test]
    fn the_cursor_stays_in_what_is_shown_and_that_within_the_step() {
        let whole = View { from: 0.0, span: 1024.0, cursor: 256.0 };
        let half = whole.zoom(0.5, 1024.0);
        assert_eq!(half, View { from: 128.0, span: 512.0, cursor: 256.0 });
        assert_eq!(half.zoom(2.0, 1024.0), whole);
        let left = (0..100).fold(half, |view, _| view.step(-1.0, 1024.0));
        assert_eq!((left.from, left.cursor), (0.0, 0.0));
        let right = (0..100).fold(half, |view, _| view.step(FAR, 1024.0));
        assert_eq!((right.from, right.cursor), (512.0, 1024.0));
        let closest = (0..100).fold(half, |view, _| view.zoom(0.5, 1024.0));
        assert_eq!(closest.span, LEAST);
    }

    #[test]
    fn a_step_shorter_than_what_is_shown_at_least_is_shown_whole() {
        let short = View { from: 0.0, span: 3.0, cursor: 3.0 };
        assert_eq!(short.zoom(0.5, 3.0), short);
    }
}
