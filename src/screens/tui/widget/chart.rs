//! Chart of cost against time: offers as points, with a stair line through the Pareto front; or a curve of points.
//! ratatui's canvas draws the stair; its own chart has neither logarithmic axes nor a symbol per point.

use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::widgets::canvas::{Canvas, Line};
use ratatui::widgets::{Block, Borders, Widget};
use unicode_width::UnicodeWidthStr;

use crate::tui::paint::Painter;
use habitat_reports::theme::Role;

/// Lines that a chart needs.
pub(in crate::tui) const LEAST: u16 = 5;

/// A point of the chart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::tui) struct Point {
    /// Hours.
    pub(in crate::tui) x: f64,
    /// Dollars.
    pub(in crate::tui) y: f64,
    /// Whether it is the plan.
    pub(in crate::tui) plan: bool,
    /// Whether it is the selected row.
    pub(in crate::tui) selected: bool,
}

/// An axis from the smallest to the largest value; logarithmic if they differ by more than a factor of ten.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(0.0, f64::max);
        let log = low > 0.0 && high / low > 10.0;
        Self { low, high, log }
    }

    fn place(&self, value: f64) -> f64 {
        let part = if self.high <= self.low {
            // All values are equal.
            0.5
        } else if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        part.clamp(0.0, 1.0)
    }
}

/// Lines in addition to the points.
#[derive(Default)]
pub(in crate::tui) struct Lines<'a> {
    /// Corners of the stair, by x ascending.
    pub(in crate::tui) stair: &'a [(f64, f64)],
    /// A curve, by x ascending.
    pub(in crate::tui) curve: &'a [(f64, f64)],
    /// Deadline and budget, or others.
    pub(in crate::tui) limits: (Option<f64>, Option<f64>),
    /// Names of the limits.
    pub(in crate::tui) limit_names: [&'static str; 2],
    /// Vertical ranges: x, from and to.
    pub(in crate::tui) ranges: &'a [(f64, [f64; 2])],
    /// Label of the horizontal axis.
    pub(in crate::tui) x_name: &'static str,
    /// Whether the points are plans, whose symbols the legend explains.
    pub(in crate::tui) are_plans: bool,
}

/// Formats a value with its unit.
type Text<'a> = &'a dyn Fn(f64) -> String;

/// Draws the chart; `x_text` and `y_text` format values with units.
pub(in crate::tui) fn draw(
    painter: &mut Painter<'_>,
    area: Rect,
    points: &[Point],
    lines: &Lines<'_>,
    x_text: Text<'_>,
    y_text: Text<'_>,
) {
    if points.is_empty() && lines.stair.is_empty() {
        painter.wrapped(area, "Nothing to draw.", Role::Muted);
        return;
    }
    if area.height < LEAST || area.width < 24 {
        painter.wrapped(area, "The chart needs a larger window.", Role::Muted);
        return;
    }
    let (deadline, budget) = lines.limits;
    let ends = || lines.ranges.iter().flat_map(|(x, ends)| ends.map(|y| (*x, y)));
    let corners = || lines.stair.iter().chain(lines.curve).copied().chain(ends());
    let xs = Axis::new(points.iter().map(|point| point.x).chain(corners().map(|corner| corner.0)).chain(deadline));
    let ys = Axis::new(points.iter().map(|point| point.y).chain(corners().map(|corner| corner.1)).chain(budget));
    let labels = [y_text(ys.high), y_text(ys.low)];
    let margin = labels.iter().map(|label| label.width()).max().unwrap_or(0) as u16 + 1;
    let frame = Rect { x: area.x + margin, width: area.width - margin, height: area.height - 2, ..area };
    let axes = Block::new().borders(Borders::LEFT | Borders::BOTTOM).border_set(painter.glyphs.axis);
    let plot = axes.inner(frame);
    axes.border_style(painter.style(Role::Border)).render(frame, painter.buffer);
    for (value, label) in [(ys.high, &labels[0]), (ys.low, &labels[1])] {
        let (_, y) = cell_of(plot, &xs, &ys, xs.low, value);
        painter.text_right(plot.x - 1, y, margin, label, Role::Muted);
    }
    name_x_axis(painter, plot, lines, (&xs, &ys), x_text);
    stair(painter, plot, lines, &xs, &ys);
    let cells: Vec<(u16, u16)> = points.iter().map(|point| cell_of(plot, &xs, &ys, point.x, point.y)).collect();
    limits(painter, plot, lines, (&xs, &ys), &cells);
    symbols(painter, plot, (&xs, &ys), points, lines);
}

/// Labels both ends of the horizontal axis, and names it between them if there is space.
fn name_x_axis(painter: &mut Painter<'_>, plot: Rect, lines: &Lines<'_>, (xs, ys): (&Axis, &Axis), x_text: Text<'_>) {
    let ends = if xs.high > xs.low { [x_text(xs.low), x_text(xs.high)] } else { [String::new(), String::new()] };
    painter.text(plot.x, plot.bottom() + 1, plot.width, &ends[0], Role::Muted);
    painter.text_right(plot.right(), plot.bottom() + 1, plot.width, &ends[1], Role::Muted);
    let scale = match (xs.log, ys.log) {
        (true, true) => ", log scales",
        (true, false) => ", log",
        (false, true) if lines.are_plans => ", log cost",
        (false, true) => ", log upwards",
        (false, false) => "",
    };
    let name = if xs.high > xs.low { lines.x_name.to_owned() } else { format!("{} {}", lines.x_name, x_text(xs.low)) };
    let taken = ends.map(|end| end.width() as u16 + 1);
    let room = plot.width.saturating_sub(taken[0] + taken[1]);
    let names = [format!("{name}{scale}"), name];
    if let Some(name) = names.iter().find(|name| name.width() as u16 <= room) {
        let start = plot.x + taken[0] + (room - name.width() as u16) / 2;
        painter.text(start, plot.bottom() + 1, room, name, Role::Muted);
    }
}

/// Draws the points, and a legend if they are plans.
fn symbols(painter: &mut Painter<'_>, plot: Rect, (xs, ys): (&Axis, &Axis), points: &[Point], lines: &Lines<'_>) {
    let [plan, best, dominated, chosen] = painter.glyphs.points;
    let mut order: Vec<&Point> = points.iter().collect();
    // More important points are drawn last.
    let beaten = |point: &Point, (x, y): (f64, f64)| {
        x <= point.x * 1.0001 && y <= point.y * 1.0001 && (x < point.x * 0.9999 || y < point.y * 0.9999)
    };
    let on_stairs = |point: &Point| !lines.stair.iter().any(|end| beaten(point, *end));
    order.sort_by_key(|point| (point.plan, point.selected, on_stairs(point)));
    for point in order {
        let (x, y) = cell_of(plot, xs, ys, point.x, point.y);
        let (glyph, role) = match point {
            Point { plan: true, .. } => (plan, Role::Good),
            Point { selected: true, .. } => (chosen, Role::Focus),
            point if on_stairs(point) => (best, Role::Text),
            _ => (dominated, Role::Muted),
        };
        painter.text(x, y, 1, glyph, role);
    }
    if !lines.are_plans {
        return;
    }
    let legend = [
        (plan, Role::Good),
        (" plan ", Role::Muted),
        (chosen, Role::Focus),
        (" selected ", Role::Muted),
        (best, Role::Text),
        (" best ", Role::Muted),
        (dominated, Role::Muted),
        (" other", Role::Muted),
    ];
    painter.pieces(plot.x, plot.bottom() + 2, plot.width, &legend);
}

/// The cell of a point.
fn cell_of(plot: Rect, xs: &Axis, ys: &Axis, x: f64, y: f64) -> (u16, u16) {
    let column = plot.x + (xs.place(x) * f64::from(plot.width - 1)).round() as u16;
    let row = plot.y + ((1.0 - ys.place(y)) * f64::from(plot.height - 1)).round() as u16;
    (column, row)
}

/// Deadline and budget as lines, if they are within the chart.
fn limits(painter: &mut Painter<'_>, plot: Rect, lines: &Lines<'_>, (xs, ys): (&Axis, &Axis), points: &[(u16, u16)]) {
    let (deadline, budget) = lines.limits;
    let [vertical, horizontal] = painter.glyphs.limits;
    if let Some(hours) = deadline.filter(|hours| (xs.low..=xs.high).contains(hours)) {
        let (x, _) = cell_of(plot, xs, ys, hours, ys.low);
        for y in plot.y..plot.bottom() {
            painter.text(x, y, 1, vertical, Role::Warning);
        }
        let (label, wide) = (lines.limit_names[0], lines.limit_names[0].len() as u16);
        let x = if x + 1 + wide <= plot.right() { x + 1 } else { x.saturating_sub(wide) };
        // In the first row without points.
        let is_free = |y: &u16| points.iter().all(|(at, row)| row != y || !(x..x + wide).contains(at));
        let y = (plot.y..plot.bottom()).find(is_free).unwrap_or(plot.y);
        painter.text(x, y, wide, label, Role::Warning);
    }
    if let Some(money) = budget.filter(|money| (ys.low..=ys.high).contains(money)) {
        let (_, y) = cell_of(plot, xs, ys, xs.low, money);
        painter.text(plot.x, y, plot.width, &horizontal.repeat(plot.width as usize), Role::Warning);
        let name = format!(" {}", lines.limit_names[1]);
        painter.text_right(plot.right(), y, plot.width, &name, Role::Warning);
    }
}

/// The stair of the frontier, and the curve.
fn stair(painter: &mut Painter<'_>, plot: Rect, lines: &Lines<'_>, xs: &Axis, ys: &Axis) {
    let style = painter.style(Role::Busy);
    let ground = painter.style(Role::Text).bg.unwrap_or(Color::Reset);
    let colour = style.fg.unwrap_or(Color::Reset);
    Canvas::default()
        .marker(painter.glyphs.line)
        .background_color(ground)
        .x_bounds([0.0, 1.0])
        .y_bounds([0.0, 1.0])
        .paint(|context| {
            let places = |pair: &[(f64, f64)]| [pair[0], pair[1]].map(|(x, y)| (xs.place(x), ys.place(y)));
            for (x, [from, to]) in lines.ranges {
                let x = xs.place(*x);
                context.draw(&Line::new(x, ys.place(*from), x, ys.place(*to), colour));
            }
            for [(x1, y1), (x2, y2)] in lines.curve.windows(2).map(places) {
                context.draw(&Line::new(x1, y1, x2, y2, colour));
            }
            for [(x1, y1), (x2, y2)] in lines.stair.windows(2).map(places) {
                context.draw(&Line::new(x1, y1, x2, y1, colour));
                context.draw(&Line::new(x2, y1, x2, y2, colour));
            }
        })
        .render(plot, painter.buffer);
}
