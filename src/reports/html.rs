//! Report to share: one HTML file that needs neither a network nor scripts.
//!
//! It arranges results of the other reports: the verdict, the recorded step with its idle time, cost against time, the
//! difference of two GPUs, the plan over time, and the assumptions.

mod chart;
mod markup;
mod recordings;

use std::fmt::Write;

pub use recordings::of_recordings;

use chart::{Chart, Point};
pub(crate) use markup::escaped;
use markup::{details, facts, list, paragraph, section, table};

use super::table::Table;
use super::words::assumed::assumed;
use super::words::{self, Words};
use super::{beside, difference, format, goal, memory, parts, predictions, summary, uses, verdict, waits};
use habitat_base::text::{capitalised, clean};
use habitat_base::units::{Hours, Micros, Range};
use habitat_planning::plan::value::{best_firm_value, best_value};
use habitat_planning::plan::{Confidence, FrontierPoint, Plan, PlanStatus, Total};
use habitat_planning::pricing::PriceBook;
use habitat_prediction::difference::Difference;
use habitat_prediction::{Fits, Prediction, Predictions};
use habitat_step::profile::Profile;
use habitat_step::profile::breakdown::{Breakdown, GroupBy, Segment};

const STYLE: &str = include_str!("html/style.css");
/// Rows of the GPU table that are shown unfolded.
const GPUS: usize = 15;
/// Points of a chart that are all shown.
const FEW: usize = 8;
/// Operators listed at most.
const OPERATORS: usize = 12;
/// Parts with a smaller share of the step are merged into one.
const SMALL: f64 = 0.01;

/// Contents of a report; everything but the predictions is optional.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The recorded step.
    pub profile: Option<&'a Profile>,
    /// Source of the recording, in words.
    pub label: &'a str,
    /// Predicted steps on the GPUs.
    pub predictions: &'a Predictions,
    /// The offers.
    pub prices: &'a PriceBook,
    /// The plan.
    pub plan: Option<&'a Plan>,
    /// The best trade-offs of time and cost.
    pub frontier: &'a [FrontierPoint],
    /// Comparison of two GPUs.
    pub difference: Option<&'a Difference<'a>>,
    /// The request as understood; without a plan, the first lines of the answer.
    pub lines: &'a [String],
    /// The command that made the report.
    pub command: &'a str,
    /// Time of creation.
    pub created: jiff::Timestamp,
}

impl Report<'_> {
    /// The whole file.
    pub fn html(&self) -> String {
        let name = clean(&self.predictions.workload.name, 80);
        let title = match (self.plan, self.difference) {
            (Some(_), _) => format!("Training plan: {name}"),
            (None, Some(Difference { steps: [a, b], .. })) => format!("{name}: {} against {}", a.gpu.slug, b.gpu.slug),
            _ => format!("Step times: {name}"),
        };
        let facts = summary::workload_facts(&self.predictions.workload);
        let body = [
            format!("<h1>{}</h1>\n", escaped(&title)),
            format!("<p class=\"facts\">{} · {}</p>\n", escaped(&facts), escaped(self.label)),
            self.verdict(),
            self.goal(),
            section("Cost against time", &self.cost_against_time()),
            section("Alternatives", &self.alternatives()),
            section("The plan over time", &self.timeline()),
            section("Time of the recorded step", &self.profile.map(step_of).unwrap_or_default()),
            section("A against B", &self.compared()),
            section("Step time on each GPU", &self.gpus()),
            section("Notes", &self.notes()),
            section("Assumptions", &self.assumptions()),
            footer(self.command, self.created),
        ];
        page(&title, &body.concat())
    }

    /// Opening lines: what to rent or which GPUs to use, and what bounds the step.
    fn verdict(&self) -> String {
        let bound = self.profile.and_then(|profile| verdict::of_profile(profile, None).ok());
        let bound = bound.map(|bound| capitalised(&format!("{bound}.")));
        let mut lines = Vec::new();
        match (self.plan, self.difference) {
            (Some(plan), _) => lines.extend(plan_verdict(plan).into_iter().chain(bound)),
            (None, Some(compared)) => lines.extend([difference::headline(compared)].into_iter().chain(bound)),
            (None, None) => lines.extend(self.lines.iter().cloned()),
        }
        if lines.is_empty() {
            return String::new();
        }
        let lines: Vec<String> = lines.iter().map(|line| paragraph("", line)).collect();
        format!("<div class=\"verdict\">\n{}</div>\n", lines.concat())
    }

    fn goal(&self) -> String {
        let Some(plan) = self.plan else { return String::new() };
        let lines: String = self.lines.iter().map(|line| paragraph("muted", line)).collect();
        section("Goal", &(facts(&goal::facts(plan)) + &lines))
    }

    /// Chart of the Pareto front of plans, or without a plan of the GPUs by step time and cost.
    fn cost_against_time(&self) -> String {
        let chart = match self.plan {
            Some(plan) => of_plans(plan, self.frontier),
            None => self.of_gpus(),
        };
        let svg = chart.svg();
        if svg.is_empty() {
            return svg;
        }
        let caption = match self.plan {
            Some(_) => {
                "Best trade-offs of time and cost among the offers within the limits, ignoring deadline and budget. \
                 Green: the plan, if there is one. Hollow: cheaper or faster, but with something to accept."
            }
            None => {
                "One GPU each, at the cheapest firm on-demand price. Hollow: no firm price known, at the cheapest. \
                 Grey: the whole batch does not fit, micro-batches of the size after ≤ do. Not shown: GPUs \
                 without an offer, those on which no micro-batch fits, and grey ones slower than all others."
            }
        };
        let figure = format!("<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>\n", escaped(caption));
        if self.plan.is_none() || self.frontier.is_empty() {
            return figure;
        }
        figure + &details("Table of the trade-offs", &table(&super::frontier::table(self.frontier)))
    }

    /// Chart of the GPUs by step time and cost of a million samples.
    fn of_gpus(&self) -> Chart {
        let point = |one: &Prediction| {
            let firm = best_firm_value(one, self.prices);
            let is_firm = firm.is_some();
            let part = memory::micro_batch(&one.memory, &self.predictions.workload);
            let fits = one.memory.fits != Fits::No || part.is_some();
            let value = firm.or_else(|| best_value(one, self.prices)).filter(|_| fits)?;
            let cost = 1e6 / value.samples_per_usd?.mid;
            let (time, price) = (one.step.mid(), format::price(value.price_per_gpu));
            let part = part.map_or_else(String::new, |size| format!(" ≤ {size}"));
            let name = format!("{}{part}", one.gpu.slug);
            let title = format!(
                "{name}: {} per step, ${} per million samples, {price}: {}",
                format::time(time),
                format::number(cost),
                value.offer.id
            );
            let classes = if part.is_empty() { ["beside", "dot"] } else { ["split beside", "split"] };
            let class = classes[usize::from(is_firm)];
            Some(Point { x: time.as_millis(), y: cost, name, title, class, is_best: false })
        };
        let mut points: Vec<Point> = self.predictions.predictions.iter().filter_map(point).collect();
        // Many slow GPUs would push the others together.
        let slowest =
            points.iter().filter(|point| !point.class.contains("split")).map(|point| point.x).fold(0.0, f64::max);
        if points.len() > FEW {
            points.retain(|point| point.x <= slowest || slowest == 0.0);
        }
        Chart { points, axes: ["ms per step", "$ per million samples"], ..Chart::default() }
    }

    fn alternatives(&self) -> String {
        let Some(plan) = self.plan else { return String::new() };
        let mut html: String = beside::own(plan, self.prices).iter().map(|own| paragraph("", own.trim())).collect();
        if !plan.beside.is_empty() {
            html.push_str(&paragraph("", &format!("{}:", beside::heading(plan))));
            html.push_str(&list(plan.beside.iter().map(|one| {
                format!(
                    "{}; {} ({})",
                    beside::gain(one),
                    beside::risk(one.setback(), one.then.as_ref()),
                    beside::flag(one)
                )
            })));
        }
        html.extend(beside::concessions(plan).iter().map(|line| paragraph("", line)));
        if !plan.alternatives.is_empty() {
            html.push_str(&details("Next best offers", &table(&parts::table(&plan.alternatives))));
        }
        html
    }

    fn timeline(&self) -> String {
        let Some(plan) = self.plan.filter(|plan| plan.total.is_some()) else { return String::new() };
        let words = plan
            .parts
            .iter()
            .enumerate()
            .filter_map(|(at, part)| Some(format!("Part {}: {}", at + 1, parts::batch_words(part)?)));
        let marks = "Thin line: from the earliest to the latest end. Dashed: the deadline.";
        table(&parts::table(&plan.parts)) + &list(words) + &table(&uses::table(plan)) + &paragraph("muted", marks)
    }

    fn compared(&self) -> String {
        let Some(compared) = self.difference else { return String::new() };
        let parts = difference::table(compared);
        let parts = if parts.is_empty() { paragraph("", &parts.empty) } else { table(&parts) };
        paragraph("", &difference::headline(compared)) + &parts
    }

    fn gpus(&self) -> String {
        let all = predictions::table(self.predictions, self.prices);
        let first = Table { rows: all.rows.iter().take(GPUS).cloned().collect(), ..all.clone() };
        let rest = Table { rows: all.rows.iter().skip(GPUS).cloned().collect(), ..all };
        let folded = if rest.rows.is_empty() {
            String::new()
        } else {
            details(&format!("{} more GPUs", rest.rows.len()), &table(&rest))
        };
        let all = table(&first) + &folded;
        if self.plan.is_some() { details("All predicted GPUs", &all) } else { all }
    }

    fn notes(&self) -> String {
        // A plan repeats the warnings of its predictions.
        let warnings =
            self.plan.map_or_else(|| words::all(&self.predictions.warnings()), |plan| words::all(&plan.warnings));
        let warnings: String = warnings.iter().map(|warning| paragraph("warning", &capitalised(warning))).collect();
        let of_plan =
            self.plan.iter().flat_map(|plan| plan.notes.iter().chain(plan.parts.iter().flat_map(|part| &part.notes)));
        let of_plan = of_plan.map(|note| capitalised(&note.words()));
        let mut of_steps = words::all(&self.predictions.notes);
        of_steps.extend(memory::micro_batch_note(self.predictions));
        let mut advice = Vec::new();
        // Writing to memory cannot fail.
        let _ = memory::write_remedies(self.predictions, |_| self.plan.is_none(), &mut advice);
        let advice = String::from_utf8_lossy(&advice);
        let advice = advice.lines().filter(|line| !line.is_empty()).map(str::to_owned);
        warnings + &list(of_plan.chain(of_steps.into_iter().chain(advice).map(|note| capitalised(&note))))
    }

    fn assumptions(&self) -> String {
        let Some(plan) = self.plan else { return String::new() };
        let assumed = assumed(&plan.goal);
        let assumed: Vec<_> =
            assumed.into_iter().map(|one| (one.name.to_string(), format!("{} ({})", one.value, one.source))).collect();
        facts(&assumed)
    }
}

/// The whole file with its title.
fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escaped(title),
    )
}

fn footer(command: &str, created: jiff::Timestamp) -> String {
    format!(
        "<footer>\n<p>Made on {} UTC by habitat-tui {} with</p>\n<p><code>{}</code></p>\n</footer>\n",
        created.strftime("%A %-d %B %Y, %H:%M"),
        env!("CARGO_PKG_VERSION"),
        escaped(command)
    )
}

/// The plan in a sentence with its distance from the limits, or the reasons why none exists.
fn plan_verdict(plan: &Plan) -> Vec<String> {
    let summary = beside::summary(plan).filter(|_| plan.status != PlanStatus::Infeasible);
    let no_plan = || std::iter::once(beside::no_plan(plan)).chain(words::no_plan(&plan.reasons)).collect();
    summary.map_or_else(no_plan, |summary| vec![format!("{summary}.")])
}

/// Chart of the Pareto front with the plan and the offers that the user would have to accept.
fn of_plans(plan: &Plan, frontier: &[FrontierPoint]) -> Chart {
    // The end of the hours that has to meet the deadline.
    let end = |hours: &Range<Hours>| plan.goal.confidence.end(hours).get();
    // Compare hours too: the front has several points with the same offers.
    let chosen = |point: &FrontierPoint| {
        let own = plan.parts.iter().map(|part| &part.offer.id);
        let apart = |total: &Total| (point.hours.mid.get() / total.hours.mid.get() - 1.0).abs();
        plan.total.as_ref().is_some_and(|total| apart(total) < 1e-3)
            && point.parts.iter().map(|part| &part.offer).eq(own)
    };
    let of_point = |point: &FrontierPoint| {
        let machines = point.parts.iter().map(|part| parts::machine_words(part.machines, part.all_gpus, &part.gpu));
        let name = machines.collect::<Vec<_>>().join(" → ");
        let offers: Vec<&str> = point.parts.iter().map(|part| part.offer.as_str()).collect();
        let title = format!(
            "{name}: {} in {}: {}",
            format::usd_with_range(&point.cost),
            format::hours_with_range(&point.hours),
            offers.join(", then ")
        );
        let class = if chosen(point) { "chosen" } else { "dot" };
        Point { x: end(&point.hours), y: point.cost.mid.get(), name, title, class, is_best: true }
    };
    let mut points: Vec<Point> = frontier.iter().map(of_point).collect();
    if let Some(total) = plan.total.as_ref().filter(|_| points.iter().all(|point| point.class != "chosen")) {
        let name = plan.parts.iter().map(parts::gpu_words).collect::<Vec<_>>().join(" → ");
        let title = beside::verdict(plan).unwrap_or_default();
        points.push(Point {
            x: end(&total.hours),
            y: total.cost.mid.get(),
            name,
            title,
            class: "chosen",
            is_best: false,
        });
    }
    points.extend(plan.beside.iter().map(|one| Point {
        x: end(&one.part.hours),
        y: one.part.cost.mid.get(),
        name: format!(
            "{} ({})",
            parts::gpu_words(&one.part),
            one.accept().iter().map(|it| it.name()).collect::<Vec<_>>().join(", ")
        ),
        title: format!("{}; {}", beside::gain(one), beside::risk(one.setback(), one.then.as_ref())),
        class: "beside",
        is_best: false,
    }));
    Chart {
        points,
        axes: [
            match plan.goal.confidence {
                Confidence::Expected => "hours",
                Confidence::High => "hours, upper end of the range",
            },
            "cost, $",
        ],
        limits: [
            plan.goal.deadline.map(|deadline| (deadline.get(), "deadline")),
            plan.goal.budget.map(|budget| (budget.get(), "budget")),
        ],
    }
}

/// The recorded step as a bar with its idle time, and the operators that take most of it.
fn step_of(profile: &Profile) -> String {
    let family = |operation: &_| habitat_step::op::family(operation).name();
    let segments = Breakdown::segments(profile, family);
    if segments.is_empty() {
        return String::new();
    }
    let whole = Breakdown::of(profile);
    let step = whole.busy_idle.map_or(whole.total, |split| split.step);
    let mut html = String::new();
    if let Some(split) = whole.busy_idle {
        let idle = format::percent(split.idle / split.step);
        html.push_str(&paragraph(
            "",
            &format!(
                "Step {}: GPU busy {}, idle {} ({idle}).",
                format::time(split.step),
                format::time(split.busy),
                format::time(split.idle)
            ),
        ));
    }
    html.push_str(&stack(&segments, step));
    html.extend(waits::words(profile).map(|words| paragraph("", &capitalised(&format!("{words}.")))));
    let entries = Breakdown::entries(profile, GroupBy::Name, None, family);
    html.push_str(&details("Operators by device time", &operators(&entries)));
    html
}

/// A step as one bar, and its parts as a table.
fn stack(segments: &[Segment], step: Micros) -> String {
    let (large, small): (Vec<&Segment>, Vec<&Segment>) = segments.iter().partition(|segment| segment.share >= SMALL);
    let class = |segment: &Segment| match segment.phase {
        Some(phase) => phase.name(),
        None if segment.kind == Segment::IDLE => "idle",
        None => "other",
    };
    let name = |segment: &Segment| match segment.phase {
        Some(phase) => format!("{} {}", phase.name().replace('_', " "), segment.kind),
        None => segment.kind.to_owned(),
    };
    let mut parts: Vec<(&str, String, f64)> =
        large.iter().map(|segment| (class(segment), name(segment), segment.share)).collect();
    let others: f64 = small.iter().map(|segment| segment.share).sum();
    if others > 0.0 {
        let at = parts.iter().position(|(class, ..)| *class == "idle").unwrap_or(parts.len());
        parts.insert(at, ("other", format!("{} smaller parts", small.len()), others));
    }
    let bar = |(class, name, share): &(&str, String, f64)| {
        let title = escaped(&format!("{name}: {}", format::percent(*share)));
        format!("<i class=\"{class}\" style=\"flex:{share:.5} 0 0\" title=\"{title}\"></i>")
    };
    let mut html = format!("<div class=\"stack\">{}</div>\n", parts.iter().map(bar).collect::<String>());
    parts.sort_by(|a, b| b.2.total_cmp(&a.2));
    html.push_str("<div class=\"scroll\"><table>\n<tr><th>part of the step</th><th class=\"number\">time</th><th class=\"number\">share of the step</th></tr>\n");
    for (class, name, share) in &parts {
        let _ = writeln!(
            html,
            "<tr><td><span><span class=\"swatch {class}\"></span>{}</span></td><td class=\"number\" data-of=\"time\">{}</td><td class=\"number\" data-of=\"share of the step\">{}</td></tr>",
            escaped(name),
            format::time(step * *share),
            format::percent(*share)
        );
    }
    html + "</table></div>\n"
}

fn operators(entries: &[habitat_step::profile::breakdown::Entry]) -> String {
    use super::table::{Cell, Column};
    let mut operators = Table::new(&[
        Column::text("operator", ""),
        Column::number("device time", ""),
        Column::number("share of device time", ""),
        Column::number("calls", ""),
    ]);
    for entry in entries.iter().take(OPERATORS) {
        operators.push(vec![
            Cell::text(clean(&entry.label, 80)),
            Cell::text(format::time(entry.time)),
            Cell::text(format::percent(entry.share)),
            Cell::text(entry.count),
        ]);
    }
    table(&operators)
}
