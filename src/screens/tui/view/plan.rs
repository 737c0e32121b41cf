//! Fourth screen.

use ratatui::layout::{Constraint, Layout, Rect};
use unicode_width::UnicodeWidthStr;

use super::{Density, filtered, labelled, warned};
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
    let frame = if framed { 2 } else { 0 };
    let answer_height = (answer_height(painter, area.width - 4) + frame).min(area.height.saturating_sub(5 + frame));
    let heights = [
        Constraint::Length(Knob::ALL.len() as u16 + 1 + frame),
        Constraint::Length(answer_height),
        Constraint::Fill(1),
    ];
    let [goal_area, answer_area, rest] = Layout::vertical(heights).areas(area);
    let focus = app.planner.pane == Pane::Goal;
    let inside = if framed { painter.pane(goal_area, "goal", &places(app), focus) } else { bare(goal_area) };
    goal(painter, inside, focus);

    let inside = if framed {
        let (title, right) = answer_title(painter);
        painter.pane(answer_area, &title, &right, false)
    } else {
        bare(answer_area)
    };
    answer(painter, inside);

    if plan::chart_beside(app)
        && !matches!(app.planner.lower, Lower::Timeline | Lower::Beside | Lower::Rejected | Lower::Notes)
    {
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

fn answer_title(painter: &Painter<'_>) -> (String, String) {
    let app = painter.app;
    let mut title = match app.plan.value() {
        Some(plan) if plan.status == PlanStatus::Infeasible => "no plan".to_owned(),
        _ => "recommended".to_owned(),
    };
    if app.plan.is_stale() {
        title.push_str(" (stale)");
    }
    // Without a plan, the title says so.
    let plan = app.plan.value().filter(|plan| plan.status != PlanStatus::Infeasible);
    let right = plan.map_or_else(String::new, beside::status_words);
    (title, right)
}

/// Number of lines that the answer needs.
fn answer_height(painter: &Painter<'_>, width: u16) -> u16 {
    let warnings = plan::warnings(painter.app, true);
    let warned: usize = warnings.iter().map(|text| wrap(text, width as usize).len()).sum();
    let words = plan::beside_words(painter.app);
    let lines =
        words.iter().enumerate().map(|(at, text)| wrap(text, width as usize).len().min(most_lines(painter, at)));
    let beside: usize = lines.sum();
    let answer = match painter.app.plan.value() {
        Some(plan) if !plan.parts.is_empty() => 1 + plan.parts.iter().take(PARTS).map(part_height).sum::<u16>(),
        Some(plan) => {
            // Nothing is below that matters more.
            let lines: usize =
                words::of_all(&plan.reasons).map(|reason| wrap(&bullet(&reason), width as usize).len()).sum();
            lines.max(1) as u16
        }
        // The remedy of a failure is at its end.
        None => wrap(&plan::state_line(painter.app).unwrap_or_default(), width.into()).len().max(3) as u16,
    };
    answer + (warned + beside) as u16
}

/// Most lines of a sentence beside the plan: a small screen needs its rows for the alternatives, except for the first
/// sentence about a risk that the user took. Without a plan, these sentences are the way to one.
fn most_lines(painter: &Painter<'_>, at: usize) -> usize {
    let plan = painter.app.plan.value();
    let is_taken = at == 0 && plan.is_some_and(|plan| plan.fallback.is_some());
    match painter.app.size.1 {
        _ if plan.is_some_and(|plan| plan.total.is_none()) => usize::MAX,
        height if height < 24 && !is_taken => 1,
        _ => 2,
    }
}

/// Maximum number of parts to show.
const PARTS: usize = 3;

/// Number of lines of a part: offer, price and step, and doubts about the price.
fn part_height(part: &Part) -> u16 {
    2 + u16::from(!part.offer.trust.doubts.is_empty())
}

fn bullet(reason: &str) -> String {
    format!("• {}", clean(reason, 400))
}

fn answer(painter: &mut Painter<'_>, area: Rect) {
    let app = painter.app;
    let area = warned(painter, area, &plan::warnings(app, true));
    let Some(plan) = app.plan.value() else {
        painter.wrapped(area, &plan::state_line(app).unwrap_or_default(), Role::Muted);
        return;
    };
    let Some(total) = &plan.total else {
        let mut y = area.y;
        if plan.reasons.is_empty() {
            painter.text(area.x, y, area.width, "No plan meets the limits.", Role::Error);
        }
        y += beside(painter, Rect { y, height: area.bottom().saturating_sub(y), ..area });
        for reason in words::no_plan(&plan.reasons) {
            let left = Rect { y, height: area.bottom().saturating_sub(y), ..area };
            y += painter.wrapped(left, &bullet(&reason), Role::Warning);
        }
        return;
    };
    let cost = format::usd(total.cost.mid);
    let hours = format::hours(total.hours.mid);
    let ranges = format!("  ({}, {})", format::usd_range(&total.cost), format::hours_range(&total.hours));
    let headline = [
        (cost.as_str(), Role::Good),
        (" in ", Role::Muted),
        (hours.as_str(), Role::Good),
        (ranges.as_str(), Role::Text),
    ];
    painter.pieces(area.x, area.y, area.width, &headline);
    let below = |y: u16| Rect { y, height: area.bottom().saturating_sub(y), ..area };
    let y = parts(painter, below(area.y + 1), plan);
    beside(painter, below(y));
}

/// Offers that the user must accept first. Returns the number of lines used.
fn beside(painter: &mut Painter<'_>, area: Rect) -> u16 {
    let mut y = area.y;
    for (at, text) in plan::beside_words(painter.app).into_iter().enumerate() {
        let most = u16::try_from(most_lines(painter, at)).unwrap_or(u16::MAX);
        let height = area.bottom().saturating_sub(y).min(most);
        y += painter.wrapped(Rect { y, height, ..area }, &text, Role::Focus);
    }
    y - area.y
}

/// Draws the parts of the plan and returns the line below them.
fn parts(painter: &mut Painter<'_>, area: Rect, plan: &Plan) -> u16 {
    let mut y = area.y;
    for part in plan.parts.iter().take(PARTS) {
        if y >= area.bottom() {
            break;
        }
        let gpus = plan::gpus_words(part);
        let rest = format!(
            "  {} {} · {} · {}",
            clean(&part.offer.provider, 20),
            clean(region(&part.offer.region), 40),
            part.offer.tier,
            clean(&part.offer.instance_type, 40)
        );
        painter.pieces(area.x, y, area.width, &[(&gpus, Role::Title), (&rest, Role::Text)]);
        if y + 1 >= area.bottom() {
            break;
        }
        let date = plan::date_words(part);
        let share = if plan.parts.len() > 1 {
            format!("{} {} · ", format::hours(part.hours.mid), format::usd(part.cost.mid))
        } else {
            String::new()
        };
        let unit = |value: f64| format::time(habitat_base::units::Micros::known(value));
        let step = match part.accumulation {
            1 => "step".to_owned(),
            batches => format!("step of {} batches", format::grouped(batches as f64)),
        };
        let words = format!(
            "  {share}{} · {date} · {step} {} {}",
            format::price(part.price()),
            unit(part.step_time_us.mid),
            plan::method_of(painter.app, part)
        );
        painter.text(area.x, y + 1, area.width, &fit(&words, area.width as usize), Role::Muted);
        if part_height(part) > 2 && y + 2 < area.bottom() {
            let doubt = format!("  price in doubt: {}", words::price::doubts(&part.offer.trust.doubts));
            painter.text(area.x, y + 2, area.width, &fit(&doubt, area.width as usize), Role::Warning);
        }
        y += part_height(part);
    }
    y.min(area.bottom())
}

fn lower(painter: &mut Painter<'_>, area: Rect, what: Lower) {
    let app = painter.app;
    let focus = app.planner.pane == Pane::Lower;
    let key = app.setup.keymap.hint(Action::Lower);
    let next = plan::next_lower(app).name();
    let count = app.plan.value().map_or(0, |plan| match what {
        Lower::Rejected => plan.rejected.len(),
        Lower::Beside => plan.beside.len(),
        _ => plan.alternatives.len(),
    });
    let title = match what {
        Lower::Alternatives if app.plan.value().is_some_and(|plan| plan.total.is_none()) => "alternatives".to_owned(),
        Lower::Alternatives => format!("plan and {count} alternatives"),
        Lower::Beside => format!("{count} more, if you accept"),
        Lower::Rejected => format!("{count} rejected offers"),
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
        Lower::Beside | Lower::Rejected => {
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
