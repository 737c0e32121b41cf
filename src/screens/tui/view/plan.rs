//! Fourth screen.

use ratatui::layout::{Constraint, Layout, Rect};
use unicode_width::UnicodeWidthStr;

use super::{Density, filtered, labelled};
use crate::action::Action;
use crate::app::modal::Places;
use crate::app::screen::plan::{self, Lower, Pane};
use crate::app::slider::Knob;
use crate::app::{App, Target};
use crate::tui::paint::{Painter, fit, wrap};
use crate::tui::widget::chart::{self, Lines, Point};
use crate::tui::widget::{bars, table};
use habitat_base::text::clean;
use habitat_base::units::{Hours, Usd};
use habitat_planning::plan::{Confidence, Part, Plan, PlanStatus};
use habitat_reports::theme::Role;
use habitat_reports::words::price::region;
use habitat_reports::{beside, format, words};

pub(super) fn draw(painter: &mut Painter<'_>, area: Rect) {
    let density = Density::of(painter.buffer.area);
    let app = painter.app;
    let framed = density != Density::Minimal;
    let (frame, joined) = (if framed { 2 } else { 0 }, u16::from(density == Density::Compact));
    // On a small screen, panes share their border.
    let goal_height = Knob::ALL.len() as u16 + 1 + frame;
    let rest = area.height.saturating_sub(goal_height + frame).saturating_add(2 * joined);
    let has_plan = app.plan.value().is_some_and(|plan| plan.total.is_some());
    let least = if has_plan { (area.height / 4).max(ROWS) + 1 + frame } else { joined };
    let blocks = blocks(painter);
    let lines = shared(&blocks, area.width - 4, rest.saturating_sub(least).max(LINES));
    let height = (lines.iter().sum::<usize>() as u16 + frame).min((area.height + joined).saturating_sub(goal_height));
    let goal_area = Rect { height: goal_height, ..area };
    let answer_area = Rect { y: goal_area.bottom() - joined, height, ..area };
    let rest = Rect { y: answer_area.bottom() - joined, height: area.bottom() + joined - answer_area.bottom(), ..area };
    let focus = app.planner.pane == Pane::Goal;
    let inside = if framed { painter.pane(goal_area, "goal", &places(app), focus) } else { bare(goal_area) };
    goal(painter, inside, focus);

    let inside = if framed {
        let is_cut = blocks.iter().zip(&lines).any(|(block, lines)| block.lines(area.width - 4) > *lines);
        let (title, right) = answer_title(painter, is_cut);
        painter.pane(answer_area, &title, &right, false)
    } else {
        bare(answer_area)
    };
    answer(painter, inside, &blocks, &lines);

    if plan::chart_beside(app) && matches!(app.planner.lower, Lower::Alternatives | Lower::Chart) {
        let chart_width = (rest.width * 11 / 30).clamp(44, 70);
        let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(chart_width)]).areas(rest);
        lower(painter, left, app.planner.lower);
        let inside = painter.pane(right, Lower::Chart.name(), "", false);
        draw_chart(painter, inside);
    } else {
        lower(painter, rest, app.planner.lower);
    }
}

/// The providers and regions that the plan may use, with the keys that choose them.
fn places(app: &App) -> String {
    let words = [(Action::Providers, Places::Providers), (Action::Regions, Places::Regions)].map(|(action, places)| {
        let key = app.setup.keymap.hint(action);
        format!("{key} {}: {}", places.name(), clean(&places.words(&app.goal().limits), 30))
    });
    let own = match &app.setup.own.names[..] {
        [] => "none".to_owned(),
        names => clean(&names.join(", "), 30),
    };
    format!("{} · {} own: {own}", words.join(" · "), app.setup.keymap.hint(Action::Own))
}

fn bare(area: Rect) -> Rect {
    Rect { x: area.x + 1, width: area.width - 2, ..area }
}

/// Width of a slider's name and value in cells.
const NAME: u16 = 12;

fn goal(painter: &mut Painter<'_>, area: Rect, focus: bool) {
    let app = painter.app;
    let values: Vec<String> = Knob::ALL.iter().map(|knob| plan::knob_words(app, *knob)).collect();
    let wide = values.iter().map(|text| text.width()).max().unwrap_or(0) as u16;
    for (row, (knob, value)) in Knob::ALL.into_iter().zip(&values).enumerate() {
        let y = area.y + row as u16;
        let chosen = focus && app.planner.knob == knob;
        if chosen {
            painter.text(area.x, y, 1, painter.glyphs.marker, Role::Focus);
        }
        let name_role = if chosen { Role::Focus } else { Role::Muted };
        painter.text(area.x + 2, y, NAME - 2, knob.name(), name_role);
        painter.text(area.x + NAME, y, wide, value, if chosen { Role::Title } else { Role::Text });
        let x = area.x + NAME + wide + 2;
        let room = area.right().saturating_sub(x);
        if room >= 8 {
            let position = plan::value(app, knob).map(|value| plan::ladder(app, knob).position(value));
            let track = Rect::new(x, y, room, 1);
            bars::slider(painter, track, position, chosen);
            painter.hit(track, Target::Slider(knob, 0.0));
        }
    }
    let y = area.y + Knob::ALL.len() as u16;
    let mut x = area.x + 2;
    let narrow = area.width < 84;
    let tight = area.width < 60;
    for (action, name, value, on) in plan::toggles(app) {
        let key = app.setup.keymap.hint(action);
        let is_switch = matches!(action, Action::OnDemand | Action::Spot);
        let sign = painter.glyphs.switch[usize::from(on)];
        let shown = if is_switch { sign.to_owned() } else { value };
        // On a narrow screen, leave out words that are self-explanatory.
        let name = match action {
            Action::Objective | Action::Confidence if narrow => "",
            Action::Parts if tight => "",
            Action::OnDemand if tight => "demand",
            _ => name,
        };
        let shown = if tight { shown.trim_end_matches(" end").to_owned() } else { shown };
        let start = x;
        let role = if on { Role::Text } else { Role::Muted };
        let space = if name.is_empty() { "" } else { " " };
        let pieces =
            [(key.as_str(), Role::Key), (" ", Role::Muted), (name, Role::Muted), (space, Role::Muted), (&shown, role)];
        let room = area.right().saturating_sub(x);
        x = painter.pieces(x, y, room, &pieces);
        painter.hit(Rect::new(start, y, x.saturating_sub(start), 1), Target::Do(action));
        x += if tight { 1 } else { 2 + u16::from(!narrow) };
    }
}

/// Title of the answer, and its note: the key for its other lines, if some are cut, and which plan it is.
fn answer_title(painter: &Painter<'_>, is_cut: bool) -> (String, String) {
    let app = painter.app;
    let mut title = match app.plan.value() {
        Some(plan) if plan.status == PlanStatus::Infeasible => "no plan".to_owned(),
        _ => "recommended".to_owned(),
    };
    title.push_str(&plan::stale_words(app));
    // Without a plan, the title says so.
    let plan = app.plan.value().filter(|plan| plan.status != PlanStatus::Infeasible);
    let more = format!("{}: all of it", app.setup.keymap.hint(Action::Open));
    let more = Some(more).filter(|_| is_cut && app.unavailable(Action::Open).is_none());
    let right: Vec<String> = more.into_iter().chain(plan.map(beside::status_words)).collect();
    (title, right.join(" · "))
}

/// Least rows of offers below the answer, and least lines of the answer (choices).
const ROWS: u16 = 6;
const LINES: u16 = 3;
/// Maximum number of parts to show.
const PARTS: usize = 3;

/// A paragraph of the answer: its rank (those with the lowest get space first), and one line of pieces or a text.
struct Block {
    rank: u8,
    pieces: Vec<(String, Role)>,
}

impl Block {
    fn new(rank: u8, text: String, role: Role) -> Self {
        Self { rank, pieces: vec![(text, role)] }
    }
    fn lines(&self, width: u16) -> usize {
        if self.pieces.len() > 1 { 1 } else { wrap(&self.pieces[0].0, width.into()).len() }
    }
}

/// Lines of each block within `room`: by rank, the first two of each before the others.
fn shared(blocks: &[Block], width: u16, room: u16) -> Vec<usize> {
    let (mut lines, mut room) = (vec![0; blocks.len()], usize::from(room));
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|at| blocks[*at].rank);
    for most in [2, usize::MAX] {
        for at in order.iter().copied() {
            let more = (blocks[at].lines(width).min(most) - lines[at]).min(room);
            lines[at] += more;
            room -= more;
        }
    }
    lines
}

fn bullet(reason: &str) -> String {
    format!("• {}", clean(reason, 400))
}

/// The plan, or why there is none, and what else is possible.
fn blocks(painter: &Painter<'_>) -> Vec<Block> {
    let app = painter.app;
    let warnings = plan::warnings(app, true).into_iter().map(|text| Block::new(3, text, Role::Warning));
    let mut blocks: Vec<Block> = warnings.collect();
    let Some(plan) = app.plan.value() else {
        blocks.push(Block::new(0, plan::state_line(app).unwrap_or_default(), Role::Muted));
        return blocks;
    };
    if let Some(total) = &plan.total {
        let pieces = vec![
            (format::usd(total.cost.mid), Role::Good),
            (" in ".to_owned(), Role::Muted),
            (format::hours_mid(&total.hours), Role::Good),
            (format!("  ({}, {})", format::usd_range(&total.cost), format::hours_range(&total.hours)), Role::Text),
            (beside::price_age(plan).map_or_else(String::new, |age| format!("  {age}")), Role::Muted),
        ];
        blocks.push(Block { rank: 0, pieces });
    } else if plan.reasons.is_empty() {
        blocks.push(Block::new(0, "No plan meets the limits.".to_owned(), Role::Error));
    }
    for part in plan.parts.iter().take(PARTS) {
        blocks.extend(of_part(painter, plan, part));
    }
    blocks.extend(plan::beside_words(app).into_iter().map(|(rank, text)| Block::new(rank, text, Role::Focus)));
    let reasons = words::no_plan(&plan.reasons).into_iter();
    blocks.extend(reasons.map(|reason| Block::new(4, bullet(&reason), Role::Warning)));
    blocks
}

/// A part of the plan: offer, price and step, and doubts about the price.
fn of_part(painter: &Painter<'_>, plan: &Plan, part: &Part) -> Vec<Block> {
    let rest = format!(
        "  {} {} · {} · {}",
        clean(&part.offer.provider, 20),
        clean(region(&part.offer.region), 40),
        part.offer.tier,
        clean(&part.offer.instance_type, 40)
    );
    let pieces = vec![(plan::gpus_words(part), Role::Title), (rest, Role::Text)];
    let share = || format!("{} {} · ", format::hours_mid(&part.hours), format::usd(part.cost.mid));
    let share = if plan.parts.len() > 1 { share() } else { String::new() };
    let batches = format!(" of {} batches", format::grouped(part.accumulation as f64));
    let batches = if part.accumulation > 1 { &batches } else { "" };
    let words = format!(
        "{share}{} · {} · step{batches} {} {}",
        format::price(part.price()),
        plan::date_words(part),
        format::time(habitat_base::units::Micros::known(part.step_time_us.mid)),
        plan::method_of(painter.app, part)
    );
    let line = |text: String, role: Role| vec![("  ".to_owned(), role), (text, role)];
    let mut blocks = vec![Block { rank: 1, pieces }];
    let layout = beside::layout_words(part);
    if let Some(layout) = layout.strip_prefix(", ") {
        let key = painter.app.setup.keymap.hint(Action::Layouts);
        let others = format!(" ({key}: other layouts)");
        let others = if plan.layouts.is_empty() { "" } else { &others };
        blocks.push(Block { rank: 5, pieces: line(format!("{layout}{others}"), Role::Text) });
    }
    blocks.push(Block { rank: 7, pieces: line(words, Role::Muted) });
    if !part.offer.trust.doubts.is_empty() {
        let doubt = format!("price in doubt: {}", words::price::doubts(&part.offer.trust.doubts));
        blocks.push(Block { rank: 5, pieces: line(doubt, Role::Warning) });
    }
    blocks
}

fn answer(painter: &mut Painter<'_>, area: Rect, blocks: &[Block], lines: &[usize]) {
    let mut y = area.y;
    for (block, lines) in blocks.iter().zip(lines).filter(|(_, lines)| **lines > 0) {
        let left = Rect { y, height: area.bottom().saturating_sub(y).min(*lines as u16), ..area };
        match &block.pieces[..] {
            _ if left.height == 0 => {}
            [(text, role)] => _ = painter.wrapped(left, text, *role),
            pieces => {
                let mut x = area.x;
                for (text, role) in pieces {
                    let room = area.right().saturating_sub(x);
                    x = painter.text(x, y, room, &fit(text, room.into()), *role);
                }
            }
        }
        y += *lines as u16;
    }
}

fn lower(painter: &mut Painter<'_>, area: Rect, what: Lower) {
    let app = painter.app;
    let focus = app.planner.pane == Pane::Lower;
    let key = app.setup.keymap.hint(Action::Lower);
    let next = plan::next_lower(app).name();
    let count = app.plan.value().map_or(0, |plan| match what {
        Lower::Rejected => plan.rejected.len(),
        Lower::Beside => plan.beside.len(),
        Lower::Layouts => plan.layouts.len(),
        _ => plan.alternatives.len(),
    });
    let title = match what {
        Lower::Alternatives if app.plan.value().is_some_and(|plan| plan.total.is_none()) => "alternatives".to_owned(),
        Lower::Alternatives => format!("plan and {count} alternatives"),
        Lower::Beside => format!("{count} more, if you accept"),
        Lower::Rejected => format!("{count} rejected offers"),
        Lower::Layouts => format!("{count} layouts of the plan's machines, fastest first"),
        Lower::Timeline => "plan over time, and its cost".to_owned(),
        Lower::Chart if app.frontier.len() == 1 => "best trade-off (Pareto front): 1 plan".to_owned(),
        Lower::Chart => format!("best trade-offs (Pareto front): {} plans", app.frontier.len()),
        Lower::Notes => what.name().to_owned(),
    };
    let title = filtered(title, &app.planner.list);
    let inside = painter.pane(area, &title, &format!("{key}: {next}"), focus);
    match what {
        Lower::Chart if plan::chart_beside(app) => {
            table::draw(painter, inside, "frontier", &plan::frontier_table(app), focus);
        }
        Lower::Chart => {
            // Without the height for a chart, its points as a table.
            if inside.height <= chart::LEAST {
                table::draw(painter, inside, "frontier", &plan::frontier_table(app), focus);
                return;
            }
            // Details of the point under the cursor, below the chart.
            let [above, below] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(inside);
            draw_chart(painter, above);
            if let Some(words) = plan::cursor_words(app) {
                let role = if focus { Role::Focus } else { Role::Muted };
                painter.text(below.x, below.y, 1, painter.glyphs.marker, role);
                painter.text(below.x + 2, below.y, below.width.saturating_sub(2), &words, Role::Text);
            }
        }
        Lower::Notes => {
            let lines = plan::notes(app);
            labelled(painter, inside, &lines, app.planner.list.selected);
        }
        Lower::Alternatives => {
            table::draw(painter, inside, "alternatives", &plan::alternatives_table(app), focus);
        }
        Lower::Timeline => {
            // Legend below the bars, if there is a line for it.
            let legend = plan::legend(app);
            let line = u16::from(!legend.is_empty() && inside.height > 4);
            let [above, below] = Layout::vertical([Constraint::Fill(1), Constraint::Length(line)]).areas(inside);
            table::draw(painter, above, "timeline", &plan::timeline_table(app), focus);
            if line > 0 {
                let room = below.width.saturating_sub(2);
                painter.text(below.x + 2, below.y, room, &fit(&legend, room.into()), Role::Muted);
            }
        }
        Lower::Beside | Lower::Layouts | Lower::Rejected => {
            if let Some(shown) = plan::lower_on_screen(app) {
                table::draw(painter, inside, what.name(), &shown, focus);
            }
        }
    }
}

fn draw_chart(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let selected = app.planner.list.selected;
    // The plan is a single point, regardless of its number of parts, at the end of the range where it is compared.
    let confidence = plan::confidence(app);
    let whole = app.plan.value().and_then(|plan| plan.total).map(|total| Point {
        x: confidence.end(&total.hours).get(),
        y: total.cost.mid.get(),
        plan: true,
        selected: false,
    });
    let others = plan::candidates(app).into_iter().enumerate().filter(|(_, (_, own))| !own);
    let on_frontier = app.planner.lower == Lower::Chart;
    let others = others.map(|(index, (part, _))| Point {
        x: confidence.end(&part.hours).get(),
        y: part.cost.mid.get(),
        plan: false,
        selected: index == selected && !on_frontier,
    });
    let cursor = app.frontier.get(selected).filter(|_| on_frontier).map(|point| Point {
        x: confidence.end(&point.hours).get(),
        y: point.cost.mid.get(),
        plan: false,
        selected: true,
    });
    let points: Vec<Point> = whole.into_iter().chain(others).chain(cursor).collect();
    let hours = |value: f64| format::hours(Hours::known(value));
    let money = |value: f64| format::usd(Usd::known(value));
    let stair: Vec<(f64, f64)> =
        app.frontier.iter().map(|point| (confidence.end(&point.hours).get(), point.cost.mid.get())).collect();
    let lines = Lines {
        limit_names: ["deadline", "budget"],
        ranges: &[],
        stair: &stair,
        curve: &[],
        limits: (plan::value(app, Knob::Deadline), plan::value(app, Knob::Budget)),
        x_name: if confidence == Confidence::High { "time at the high end" } else { "expected time" },
        are_plans: true,
    };
    chart::draw(painter, area, &points, &lines, &hours, &money);
}
