//! Chart of named points as SVG, such as cost against time.

use std::fmt::Write;

use super::super::format;
use super::markup::escaped;

/// Widths of the drawing in SVG units: on a page, and on the screen of a phone.
const WIDTH: f64 = 760.0;
const NARROW: f64 = 380.0;
const HEIGHT: f64 = 400.0;
/// Margins of the axes: left, right, top and bottom.
const MARGINS: [f64; 4] = [78.0, 24.0, 36.0, 48.0];
/// Width of a letter and height of a line, to keep labels from overlapping.
const LETTER: [f64; 2] = [7.8, 16.0];
/// Ratio of the largest to the smallest value above which an axis is logarithmic.
const LOGARITHMIC: f64 = 4.0;
/// Length of an axis below which it has fewer ticks.
const SHORT: f64 = 300.0;

/// A point of a chart.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Label next to the point.
    pub(super) name: String,
    /// Tooltip.
    pub(super) title: String,
    /// `dot`, `chosen`, or `beside` and `split` or both.
    pub(super) class: &'static str,
    /// Whether the point is on the Pareto front; a line connects these.
    pub(super) is_best: bool,
}

/// A chart of points with two axes.
#[derive(Debug, Clone, Default)]
pub(super) struct Chart {
    pub(super) points: Vec<Point>,
    /// Titles of the axes.
    pub(super) axes: [&'static str; 2],
    /// Limits on the axes with their names.
    pub(super) limits: [Option<(f64, &'static str)>; 2],
}

/// Scale of one axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    /// Positions of its low and high end in the drawing.
    ends: [f64; 2],
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, ends: [f64; 2]) -> Option<Self> {
        let (low, high) = values
            .filter(|value| value.is_finite() && *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        if high <= 0.0 {
            return None;
        }
        let is_log = high / low > LOGARITHMIC;
        let (low, high) = if is_log { (low / 1.25, high * 1.25) } else { (low * 0.9 - high * 0.02, high * 1.06) };
        Some(Self { low: if is_log { low } else { low.max(0.0) }, high, is_log, ends })
    }

    fn place(&self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let share = (of(value) - of(self.low)) / (of(self.high) - of(self.low));
        self.ends[0] + share.clamp(0.0, 1.0) * (self.ends[1] - self.ends[0])
    }

    /// Round values for the tick marks.
    fn ticks(&self) -> Vec<f64> {
        let is_short = (self.ends[1] - self.ends[0]).abs() < SHORT;
        if self.is_log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let steps: &[f64] =
                if self.high / self.low > if is_short { 20.0 } else { 200.0 } { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
            return all.filter(|value| (self.low..=self.high).contains(value)).collect();
        }
        let rough = (self.high - self.low) / if is_short { 4.0 } else { 6.0 };
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|step| step * decade).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..first + 8).map(|count| count as f64 * step).filter(|value| *value <= self.high).collect()
    }
}

impl Chart {
    /// The SVG drawings, of which the page shows the one that suits its width; empty without points.
    pub(super) fn svg(&self) -> String {
        [("wide", WIDTH), ("small", NARROW)].map(|(class, width)| self.drawn(class, width)).concat()
    }

    fn drawn(&self, class: &str, width: f64) -> String {
        let [left, right, top, bottom] = MARGINS;
        let values = |at: usize| {
            let of = move |point: &Point| if at == 0 { point.x } else { point.y };
            // Ignore a distant limit, which would leave no room for the points.
            let most = self.points.iter().map(of).fold(0.0, f64::max);
            let limit = self.limits[at].map(|(limit, _)| limit).filter(|limit| *limit <= most * 3.0);
            self.points.iter().map(of).chain(limit)
        };
        let x = Axis::new(values(0), [left, width - right]);
        let y = Axis::new(values(1), [HEIGHT - bottom, top]);
        let (Some(x), Some(y)) = (x, y) else { return String::new() };
        let names: Vec<String> = self.points.iter().map(|point| point.name.clone()).collect();
        let mut svg = format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {HEIGHT}\" role=\"img\" aria-label=\"{} against {}: {}\">\n",
            escaped(self.axes[1]),
            escaped(self.axes[0]),
            escaped(&names.join(", "))
        );
        self.draw_axes(&mut svg, &x, &y);
        let mut front: Vec<[f64; 2]> = Vec::new();
        if self.points.iter().any(|point| point.is_best) {
            let mut dots: Vec<&Point> = self.points.iter().filter(|point| point.is_best).collect();
            dots.sort_by(|a, b| a.x.total_cmp(&b.x));
            front.extend(dots.iter().map(|point| [x.place(point.x), y.place(point.y)]));
            let line: Vec<String> = front.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(svg, "<polyline class=\"front\" points=\"{}\"/>", line.join(" "));
        }
        let places: Vec<[f64; 2]> = self.points.iter().map(|point| [x.place(point.x), y.place(point.y)]).collect();
        let mut taken: Vec<[f64; 4]> = places.iter().map(|[x, y]| [x - 7.0, y - 7.0, x + 7.0, y + 7.0]).collect();
        taken.extend(self.limit_names(&x, &y));
        taken.extend(front.windows(2).flat_map(|ends| along(ends[0], ends[1])));
        for (point, [x, y]) in self.points.iter().zip(&places) {
            let _ = writeln!(
                svg,
                "<circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5.5\"><title>{}</title></circle>",
                point.class,
                escaped(&point.title)
            );
        }
        // Place the label of the chosen point first, then those beside it, then the others in order.
        let mut order: Vec<usize> = (0..self.points.len()).collect();
        order.sort_by_key(|at| {
            ["chosen", "beside", "dot"].iter().position(|class| self.points[*at].class == *class).unwrap_or(3)
        });
        for at in order {
            if let Some((place, anchor)) = label(&self.points[at].name, places[at], width, &mut taken) {
                let [x, y] = place;
                let name = escaped(&self.points[at].name);
                let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{name}</text>");
            }
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_axes(&self, svg: &mut String, x: &Axis, y: &Axis) {
        let [left, _, top, bottom] = MARGINS;
        let (floor, end) = (HEIGHT - bottom, x.ends[1]);
        for value in x.ticks() {
            let at = x.place(value);
            let _ = writeln!(svg, "<line class=\"axis\" x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{floor}\"/>");
            let number = tick(value);
            let _ = writeln!(
                svg,
                "<text class=\"tick\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{number}</text>",
                floor + 18.0
            );
        }
        for value in y.ticks() {
            let at = y.place(value);
            let _ = writeln!(svg, "<line class=\"axis\" x1=\"{left}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\"/>");
            let number = tick(value);
            let _ = writeln!(
                svg,
                "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">${number}</text>",
                left - 8.0,
                at + 4.0
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{end}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            HEIGHT - 6.0,
            escaped(self.axes[0])
        );
        let _ = writeln!(svg, "<text class=\"tick\" x=\"4\" y=\"14\">{}</text>", escaped(self.axes[1]));
        if let Some((limit, name)) = self.limits[0].filter(|(limit, _)| *limit <= x.high) {
            let at = x.place(limit);
            let _ = writeln!(svg, "<line class=\"limit\" x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{floor}\"/>");
            let [x, y] = self.name_of_deadline(x, y, at);
            let _ =
                writeln!(svg, "<text class=\"limit-name\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"end\">{name}</text>");
        }
        if let Some((limit, name)) = self.limits[1].filter(|(limit, _)| *limit <= y.high) {
            let at = y.place(limit);
            let _ = writeln!(svg, "<line class=\"limit\" x1=\"{left}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\"/>");
            let (x, y) = (end - 4.0, at - 5.0);
            let _ =
                writeln!(svg, "<text class=\"limit-name\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{name}</text>");
        }
    }

    /// Right end of the deadline's name: at the bottom of its line, or at the top if a point is near.
    fn name_of_deadline(&self, x: &Axis, y: &Axis, at: f64) -> [f64; 2] {
        let [_, _, top, bottom] = MARGINS;
        let foot = HEIGHT - bottom - 6.0;
        let is_near = |point: &Point| {
            let (x, y) = (x.place(point.x), y.place(point.y));
            (at - 90.0..at + 8.0).contains(&x) && y > foot - 24.0
        };
        [at - 5.0, if self.points.iter().any(is_near) { top + 14.0 } else { foot }]
    }

    /// Areas of the names of the limits, which labels must not cover.
    fn limit_names(&self, x: &Axis, y: &Axis) -> Vec<[f64; 4]> {
        let bounds = |[x, y]: [f64; 2], name: &str| {
            [x - name.chars().count() as f64 * LETTER[0], y - LETTER[1] * 0.8, x, y + LETTER[1] * 0.2]
        };
        let in_time = self.limits[0].filter(|(limit, _)| *limit <= x.high);
        let in_money = self.limits[1].filter(|(limit, _)| *limit <= y.high);
        let in_time = in_time.map(|(limit, name)| bounds(self.name_of_deadline(x, y, x.place(limit)), name));
        let in_money = in_money.map(|(limit, name)| bounds([x.ends[1] - 4.0, y.place(limit) - 5.0], name));
        in_time.into_iter().chain(in_money).collect()
    }
}

/// A tick value without trailing zeros.
fn tick(value: f64) -> String {
    if value.fract() == 0.0 { format::grouped(value) } else { format!("{value:.6}").trim_end_matches('0').to_owned() }
}

/// Small areas along a line, which labels must not cover.
fn along([x, y]: [f64; 2], [to_x, to_y]: [f64; 2]) -> impl Iterator<Item = [f64; 4]> {
    let steps = ((to_x - x).hypot(to_y - y) / 6.0).ceil().max(1.0);
    (0..=steps as u32).map(move |step| {
        let share = f64::from(step) / steps;
        let (x, y) = (x + share * (to_x - x), y + share * (to_y - y));
        [x - 1.0, y - 1.0, x + 1.0, y + 1.0]
    })
}

/// A free position for a label next to its point, if there is one.
fn label(name: &str, [x, y]: [f64; 2], right: f64, taken: &mut Vec<[f64; 4]>) -> Option<([f64; 2], &'static str)> {
    let width = name.chars().count() as f64 * LETTER[0];
    let candidates = [
        ([x + 10.0, y - 6.0], "start"),
        ([x - 10.0, y - 6.0], "end"),
        ([x + 10.0, y + 14.0], "start"),
        ([x - 10.0, y + 14.0], "end"),
        ([x, y - 14.0], "middle"),
        ([x, y + 24.0], "middle"),
        ([x + 10.0, y + 5.0], "start"),
        ([x - 10.0, y + 5.0], "end"),
        ([x + 4.0, y - 22.0], "start"),
        ([x - 4.0, y + 32.0], "end"),
    ];
    let found = candidates.into_iter().find_map(|([x, y], anchor)| {
        let from = match anchor {
            "start" => x,
            "end" => x - width,
            _ => x - width / 2.0,
        };
        let bounds = [from, y - LETTER[1] * 0.8, from + width, y + LETTER[1] * 0.2];
        let is_inside =
            bounds[0] >= MARGINS[0] && bounds[2] <= right && bounds[1] >= 0.0 && bounds[3] <= HEIGHT - MARGINS[3];
        let is_free = taken
            .iter()
            .all(|other| bounds[2] < other[0] || bounds[0] > other[2] || bounds[3] < other[1] || bounds[1] > other[3]);
        (is_inside && is_free).then_some((bounds, [x, y], anchor))
    });
    let (bounds, place, anchor) = found?;
    taken.push(bounds);
    Some((place, anchor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64, &str)]) -> Chart {
        let point = |(x, y, name): &(f64, f64, &str)| Point {
            x: *x,
            y: *y,
            name: (*name).to_owned(),
            title: (*name).to_owned(),
            class: "dot",
            is_best: false,
        };
        Chart { points: points.iter().map(point).collect(), axes: ["hours", "cost, $"], ..Chart::default() }
    }

    #[test]
    fn points_lie_in_the_drawing_and_their_names_are_escaped() {
        let svg = chart(&[(1.0, 100.0, "8 × <h100>"), (10.0, 20.0, "t4"), (100.0, 1.0, "k80")]).svg();
        assert!(svg.contains("8 × &lt;h100&gt;</text>") && !svg.contains("<h100>"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2 * 3);
        for place in svg.split("cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap()) {
            assert!((MARGINS[0]..=WIDTH).contains(&place), "{place}");
        }
    }

    #[test]
    fn nothing_and_one_point_can_be_drawn() {
        assert_eq!(chart(&[]).svg(), "");
        assert_eq!(chart(&[(0.0, 0.0, "free")]).svg(), "");
        let one = chart(&[(5.0, 5.0, "one")]).svg();
        assert!(one.contains("one</text>") && !one.contains("NaN"), "{one}");
    }

    #[test]
    fn names_do_not_lie_on_each_other() {
        let close: Vec<(f64, f64, &str)> =
            (0..30).map(|at| (10.0 + f64::from(at) * 0.01, 10.0, "rtx-3090-ti")).collect();
        let svg = chart(&close).drawn("wide", WIDTH);
        let names = svg.matches("rtx-3090-ti</text>").count();
        assert!((1..8).contains(&names), "{names}");
    }

    #[test]
    fn a_drawing_for_phones_needs_no_smaller_letters() {
        let svg = chart(&[(1.0, 100.0, "8 × h100"), (100.0, 20.0, "a30 (doubted)"), (1000.0, 1.0, "k80")]).svg();
        let (wide, small) = svg.split_once("class=\"small\"").unwrap();
        assert!(wide.contains("viewBox=\"0 0 760 400\"") && small.contains("viewBox=\"0 0 380 400\""), "{svg}");
        let places = |at: &str| {
            let rest = small.split(at).skip(1).map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
            rest.collect::<Vec<f64>>()
        };
        let all = places(" x=\"").into_iter().chain(places("cx=\""));
        assert!(all.into_iter().all(|x| x <= NARROW), "{small}");
        assert_eq!(
            ["8 × h100</text>", "a30 (doubted)</text>", "k80</text>"].map(|name| small.contains(name)),
            [true; 3]
        );
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!([tick(0.5), tick(1500.0), tick(12.5), tick(0.001)], ["0.5", "1,500", "12.5", "0.001"]);
        let axis = |values: &[f64]| Axis::new(values.iter().copied(), [0.0, SHORT]).unwrap().ticks();
        assert_eq!(axis(&[10.0, 20.0]), [10.0, 12.5, 15.0, 17.5, 20.0]);
        assert_eq!(axis(&[1.0, 100.0]), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }
}
