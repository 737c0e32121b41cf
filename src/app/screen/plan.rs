//! Fourth screen: the goal to move about, the plan that answers it, and what else there is.

use crate::action::Action;
use crate::app::App;
use crate::app::job::JobState;
use crate::app::list::{Cell, Column, ListState, Table};
use crate::app::screen::predict;
use crate::app::slider::{Knob, Ladder};
use crate::plan::{Confidence, Objective, Part, PlanStatus, Range, Work};
use crate::pricing::Tier;
use crate::report::format;
use crate::settings::theme::Role;
use crate::text::clean;
use crate::units::{Hours, Samples, Usd};

/// Which pane the keys go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    /// The sliders.
    #[default]
    Goal,
    /// The lower pane.
    Lower,
}

/// What the lower pane shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lower {
    /// The best other offers.
    #[default]
    Alternatives,
    /// Cost against time.
    Chart,
    /// Offers that cannot be used, with the reason.
    Rejected,
    /// Parts, assumptions, solver.
    Notes,
}

impl Lower {
    /// All, in the order of `v`.
    pub const ALL: [Self; 4] = [Self::Alternatives, Self::Chart, Self::Rejected, Self::Notes];

    /// Its title.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alternatives => "alternatives",
            Self::Chart => "cost against time",
            Self::Rejected => "rejected",
            Self::Notes => "notes",
        }
    }
}

/// The state of the screen.
#[derive(Debug, Clone, Default)]
pub struct PlanState {
    /// The slider in focus.
    pub knob: Knob,
    /// The pane in focus.
    pub pane: Pane,
    /// What the lower pane shows.
    pub lower: Lower,
    /// Selection of the lower pane.
    pub list: ListState,
}

/// What the lower pane shows next; the chart has a place of its own where there is room.
pub fn next_lower(app: &App) -> Lower {
    let place = Lower::ALL.iter().position(|lower| *lower == app.planner.lower).unwrap_or(0);
    let next = Lower::ALL[(place + 1) % Lower::ALL.len()];
    if next == Lower::Chart && chart_beside(app) { Lower::Rejected } else { next }
}

/// Whether there is room for the chart beside the table.
pub const fn chart_beside(app: &App) -> bool {
    app.size.0 >= 110 && app.size.1 >= 28
}

/// What the job does, where it is not simply done.
pub fn state_line(app: &App) -> Option<String> {
    let rerun = app.setup.keymap.hint(Action::Rerun);
    match app.plan.state() {
        JobState::Running => Some("planning …".to_owned()),
        JobState::Failed(reason) => Some(format!("planning failed: {}", clean(reason, 300))),
        JobState::Cancelled => Some(format!("cancelled; {rerun} plans again")),
        JobState::Idle if app.plan.value().is_none() => {
            predict::state_line(app).or_else(|| Some("no plan yet".to_owned()))
        }
        JobState::Idle => None,
    }
}

/// Whether there is no plan because planning failed.
pub fn failed(app: &App) -> bool {
    app.plan.value().is_none() && matches!(app.plan.state(), JobState::Failed(_))
}

/// The same below the pane that says why there is no plan.
fn below(app: &App) -> Option<String> {
    match (predict::failed(app), failed(app)) {
        (true, _) => Some(predict::NEEDS_PREDICTION.to_owned()),
        (_, true) => Some("needs a plan".to_owned()),
        _ => state_line(app),
    }
}

/// The amount of work in words.
pub fn work_words(app: &App) -> String {
    match app.goal().work {
        Work::Samples(samples) => format!("{} samples", format::grouped(samples.get())),
        Work::Steps(steps) => format!("{} steps", format::grouped(steps as f64)),
        Work::Epochs { epochs, dataset } => {
            format!("{} epochs of {} samples", format::number(epochs), format::grouped(dataset.get()))
        }
        Work::Tokens(tokens) => format!("{} tokens", format::short_count(tokens)),
    }
}

/// The value of a slider in words.
pub fn knob_words(app: &App, knob: Knob) -> String {
    let goal = app.goal();
    match knob {
        Knob::Work => work_words(app),
        Knob::Deadline => goal.deadline.map_or_else(|| "no limit".to_owned(), format::hours),
        Knob::Budget => goal.budget.map_or_else(|| "no limit".to_owned(), format::usd),
    }
}

/// What a slider moves over.
pub fn ladder(app: &App, knob: Knob) -> Ladder {
    match knob {
        Knob::Work => match app.goal().work {
            Work::Samples(_) => Ladder::Powers { from: 3, to: 12 },
            Work::Steps(_) => Ladder::Powers { from: 2, to: 9 },
            Work::Epochs { .. } => Ladder::Powers { from: 0, to: 4 },
            Work::Tokens(_) => Ladder::Powers { from: 6, to: 14 },
        },
        Knob::Deadline => Ladder::Hours,
        Knob::Budget => Ladder::Powers { from: 0, to: 7 },
    }
}

/// The value of a slider; `None` = no limit.
pub fn value(app: &App, knob: Knob) -> Option<f64> {
    let goal = app.goal();
    match knob {
        Knob::Work => Some(match goal.work {
            Work::Samples(samples) => samples.get(),
            Work::Steps(steps) => steps as f64,
            Work::Epochs { epochs, .. } => epochs,
            Work::Tokens(tokens) => tokens,
        }),
        Knob::Deadline => goal.deadline.map(Hours::get),
        Knob::Budget => goal.budget.map(Usd::get),
    }
}

/// Sets a slider; `None` = no limit (the amount of work stays as it is).
pub fn set_value(app: &mut App, knob: Knob, value: Option<f64>) {
    let goal = &mut app.setup.goal;
    match (knob, value) {
        (Knob::Deadline, value) => goal.deadline = value.and_then(|hours| Hours::new(hours).ok()),
        (Knob::Budget, value) => goal.budget = value.and_then(|money| Usd::new(money).ok()),
        (Knob::Work, None) => {}
        (Knob::Work, Some(value)) => match &mut goal.work {
            Work::Samples(samples) => *samples = Samples::new(value.round()).unwrap_or(*samples),
            Work::Steps(steps) => *steps = value.round().clamp(1.0, 9e15) as u64,
            Work::Epochs { epochs, .. } => *epochs = value,
            Work::Tokens(tokens) => *tokens = value,
        },
    }
}

/// The next value of a slider one step or a large step on; outer `None` = no change.
pub fn moved(app: &App, knob: Knob, up: bool, far: bool) -> Option<Option<f64>> {
    let ladder = ladder(app, knob);
    let Some(now) = value(app, knob) else {
        if up {
            return None;
        }
        // From "no limit" down: the first limit that the present plan still meets.
        let total = app.plan.value().and_then(|plan| plan.total);
        let start = total.map(|total| match knob {
            Knob::Deadline => total.hours.high.get(),
            _ => total.cost.high.get(),
        });
        return Some(Some(start.map_or_else(|| ladder.at_or_above(f64::MAX), |start| ladder.at_or_above(start))));
    };
    match (ladder.step(now, up, far), knob) {
        (None, Knob::Work) => None,
        (next, _) => Some(next),
    }
}

/// Objective, tiers, confidence and parts, each with the action that changes it.
pub fn toggles(app: &App) -> Vec<(Action, &'static str, String, bool)> {
    let goal = app.goal();
    let objective = match goal.objective {
        Objective::Cost => "cheapest".to_owned(),
        Objective::Time => "fastest".to_owned(),
        Objective::CostPlusTime(price) => format!("cost + {} of waiting", format::price(price)),
    };
    let tier = |tier| goal.limits.tiers.contains(&tier);
    let confidence = match goal.confidence {
        Confidence::Expected => "expected time",
        Confidence::High => "high end",
    };
    let on_off = |on: bool| if on { "yes" } else { "no" }.to_owned();
    vec![
        (Action::Objective, "objective", objective, true),
        (Action::OnDemand, "on-demand", on_off(tier(Tier::OnDemand)), tier(Tier::OnDemand)),
        (Action::Spot, "spot", on_off(tier(Tier::Spot)), tier(Tier::Spot)),
        (Action::Confidence, "deadline at", confidence.to_owned(), true),
        (Action::Parts, "parts", format!("≤ {}", goal.max_parts), true),
    ]
}

/// The end of the range at which the plan is compared and drawn: that of its goal.
pub fn confidence(app: &App) -> Confidence {
    app.plan.value().map_or(app.goal().confidence, |plan| plan.goal.confidence)
}

/// Hours at that end, in words.
pub fn finish_words(app: &App, range: &Range<Hours>) -> String {
    let confidence = confidence(app);
    let most = if confidence == Confidence::High { "≤ " } else { "" };
    format!("{most}{}", format::hours(confidence.end(range)))
}

/// The date of a part's price with its age.
pub fn date_words(part: &Part) -> String {
    let date = part.price_as_of.map_or_else(|| "no date on the price".to_owned(), |date| format!("price of {date}"));
    part.trust.age_days.map_or_else(|| date.clone(), |days| format!("{date}, {days} d old"))
}

/// An offer in words: machines, GPUs, provider, region, tier.
pub fn offer_words(part: &Part) -> String {
    format!("{} {} · {} {}", gpus_words(part), clean(&part.provider, 16), clean(&part.region, 24), part.tier)
}

/// GPUs in words.
pub fn gpus_words(part: &Part) -> String {
    format!("{} × {}", part.gpu_count, part.gpu)
}

/// The method of the step time behind a part.
pub fn method_of(app: &App, part: &Part) -> String {
    let row = app.predict.rows.iter().find(|row| row.slug == part.gpu);
    row.map_or_else(|| "predicted".to_owned(), |row| crate::app::screen::predict::method_words(&row.step))
}

/// What is to be said with the plan's times and costs.
pub fn warnings(app: &App, brief: bool) -> Vec<String> {
    app.plan.value().map_or_else(Vec::new, |plan| predict::words(&plan.warnings, brief))
}

/// The status in words.
pub const fn status_words(status: PlanStatus) -> &'static str {
    match status {
        PlanStatus::Optimal => "optimal",
        PlanStatus::GapLimit => "within the gap of the best",
        PlanStatus::TimeLimit => "best found in time",
        PlanStatus::Infeasible => "no plan meets the limits",
    }
}

/// The plan's own parts and the alternatives, in that order.
pub fn candidates(app: &App) -> Vec<(&Part, bool)> {
    let Some(plan) = app.plan.value() else { return Vec::new() };
    let own = plan.parts.iter().map(|part| (part, true));
    own.chain(plan.alternatives.iter().map(|part| (part, false))).collect()
}

/// The table of the lower pane; `None` where it shows no table.
pub fn lower_table(app: &App) -> Option<Table> {
    match app.planner.lower {
        Lower::Alternatives | Lower::Chart => Some(alternatives_table(app)),
        Lower::Rejected => Some(rejected_table(app)),
        Lower::Notes => None,
    }
}

/// The plan and the best single offers beside it.
pub fn alternatives_table(app: &App) -> Table {
    let confidence = confidence(app);
    let columns = vec![
        Column::words("", 1, 0),
        Column::words("GPUs", 18, 0),
        Column::number(if confidence == Confidence::High { "time ≤" } else { "time" }, 0),
        Column::number("low–high", 5),
        Column::number("cost", 0),
        Column::number("low–high, $", 4),
        Column::number("$/h", 6),
        Column::words("tier", 9, 1),
        Column::words("in doubt", 12, 2),
        Column::words("provider", 11, 3),
        Column::words("region", 10, 7),
        Column::words("machine", 12, 9),
        Column::number("price of", 8),
    ];
    let rows = candidates(app)
        .into_iter()
        .map(|(part, own)| {
            let role = if own { Role::Good } else { Role::Text };
            // Where there is no room for the reason, the mark stays.
            let doubtful = if part.trust.doubts.is_empty() { " " } else { "?" };
            vec![
                Cell::of(Role::Good, if own { "✓" } else { "" }),
                Cell::of(role, gpus_words(part)),
                Cell::of(role, format::hours(confidence.end(&part.hours))),
                Cell::of(Role::Muted, format::hours_range(&part.hours)),
                Cell::of(role, format!("{}{doubtful}", format::usd(part.cost.mid))),
                Cell::of(Role::Muted, format::usd_range(&part.cost).replace('$', "")),
                Cell::text(format!("{:.2}", part.price.get())),
                Cell::text(part.tier.to_string()),
                Cell::of(Role::Warning, part.trust.marks()),
                Cell::text(clean(&part.provider, 24)),
                Cell::of(Role::Muted, clean(&part.region, 40)),
                Cell::of(Role::Muted, machine_words(part)),
                Cell::of(Role::Muted, part.price_as_of.map_or_else(|| "no date".to_owned(), |date| date.to_string())),
            ]
        })
        .collect();
    Table {
        columns,
        rows,
        selected: app.planner.list.selected,
        sorted: None,
        empty: below(app)
            .unwrap_or_else(|| "No offer meets the limits; see the reasons above, or move them.".to_owned()),
    }
}

fn machine_words(part: &Part) -> String {
    let name = clean(&part.instance_type, 60);
    if part.nodes > 1 { format!("{} × {name}", part.nodes) } else { name }
}

fn rejected_table(app: &App) -> Table {
    let rejected = app.plan.value().map(|plan| plan.rejected.as_slice()).unwrap_or_default();
    let rows = rejected
        .iter()
        .map(|rejection| {
            vec![
                Cell::text(clean(rejection.offer.as_str(), 100)),
                Cell::of(Role::Warning, clean(&rejection.reason, 300)),
            ]
        })
        .collect();
    Table {
        columns: vec![Column::words("offer", 24, 0), Column::words("why not", 20, 0)],
        rows,
        selected: app.planner.list.selected,
        sorted: None,
        empty: below(app).unwrap_or_else(|| "No offer was rejected.".to_owned()),
    }
}

/// What the plan rests on: a label and a text a line.
pub fn notes(app: &App) -> Vec<(String, String)> {
    let Some(plan) = app.plan.value() else {
        return vec![(String::new(), below(app).unwrap_or_default())];
    };
    let mut lines: Vec<(String, String)> = Vec::new();
    for (index, part) in plan.parts.iter().enumerate() {
        let label = if plan.parts.len() > 1 { format!("part {}", index + 1) } else { "offer".to_owned() };
        lines.push((label, format!("{} ({})", clean(part.offer.as_str(), 120), machine_words(part))));
        if let (Some(own), Some(all)) = (part.batch_size, part.global_batch_size) {
            let [own, all] = [own, all].map(|batch| format::grouped(batch as f64));
            lines.push(("batch".to_owned(), format!("{own} a GPU, {all} in all")));
        }
        lines.extend(part.notes.iter().map(|note| (String::new(), clean(note, 400))));
    }
    lines.extend(warnings(app, false).into_iter().map(|warning| ("warning".to_owned(), warning)));
    lines.extend(plan.notes.iter().map(|note| ("note".to_owned(), clean(note, 400))));
    let gap = plan.solver.gap.map_or_else(String::new, |gap| format!(", gap {}", format::percent(gap)));
    lines.push((
        "solver".to_owned(),
        format!("{}, {} configurations{gap}", clean(&plan.solver.name, 60), plan.solver.configurations),
    ));
    lines
}
