//! Fourth screen: sliders for the goal, the plan, and its alternatives.

mod beside;
mod frontier;
mod goal;
mod lists;
pub mod offer;
mod places;

pub use beside::{beside_table, beside_words};
use frontier::planned_point;
pub use frontier::{cursor_words, frontier_point, frontier_table};
pub use goal::{knob_words, ladder, set_knob, set_work, slide, toggles, value, work_words};
use lists::{ALTERNATIVES_BY, REJECTED_BY};
pub use lists::{arrange, candidates, rejected};
pub(in crate::app) use places::toggle as toggle_place;
pub use places::{is_allowed, search};

use crate::action::{Action, Needs};
use crate::app::App;
use crate::app::input::Input;
use crate::app::job::JobState;
use crate::app::list::ListState;
use crate::app::modal::{Modal, Places};
use crate::app::msg::Effect;
use crate::app::screen::behaviour::Behaviour;
use crate::app::screen::predict;
use crate::app::slider::Knob;
use habitat_base::text::clean;
use habitat_planning::plan::{Confidence, Goal, Part};
use habitat_planning::pricing::Tier;
use habitat_reports::table::{Cell, Column, Table};
use habitat_reports::theme::{GlyphSet, Role};
use habitat_reports::words::{self, Words};
use habitat_reports::{format, parts, uses};

/// The pane in focus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    /// The sliders.
    #[default]
    Goal,
    /// The lower pane.
    Lower,
}

/// Content of the lower pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lower {
    /// The best other offers.
    #[default]
    Alternatives,
    /// Offers that the user must accept first.
    Beside,
    /// The plan over time, and its cost by item.
    Timeline,
    /// Cost against time: table and chart of the best trade-offs.
    Chart,
    /// Rejected offers, with the reason.
    Rejected,
    /// Parts, assumptions, solver.
    Notes,
}

impl Lower {
    /// All views, in the order of the `v` key.
    pub const ALL: [Self; 6] =
        [Self::Alternatives, Self::Timeline, Self::Chart, Self::Beside, Self::Rejected, Self::Notes];

    /// Its title.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alternatives => "alternatives",
            Self::Beside => "if you accept",
            Self::Timeline => "timeline",
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
    /// Content of the lower pane.
    pub lower: Lower,
    /// Selection of the lower pane.
    pub list: ListState,
    /// The last goal that was planned for.
    pub planned: Option<Goal>,
    /// Earlier goals, latest last.
    pub earlier: Vec<Goal>,
    /// The rejected offers as filtered and sorted.
    arranged: Option<lists::Arranged>,
}

/// The screen.
pub struct PlanScreen;

impl Behaviour for PlanScreen {
    fn awaits(&self) -> Option<&'static str> {
        Some("the best offers for the work")
    }

    fn gives(&self, app: &App, needs: Needs) -> bool {
        let on_sliders = app.planner.pane == Pane::Goal;
        match needs {
            Needs::Slider | Needs::Value => on_sliders,
            Needs::Limit => on_sliders && app.planner.knob != Knob::Work,
            Needs::Changed => !app.planner.earlier.is_empty(),
            Needs::SortableTable => !self.sorts(app).is_empty(),
            Needs::Detail => offer::selected(app).is_some() || frontier_point(app).is_some(),
            needs => matches!(needs, Needs::Rows | Needs::Table | Needs::Panes | Needs::PlanScreen),
        }
    }

    fn act(&self, app: &mut App, action: Action, effects: &mut Vec<Effect>) -> bool {
        match action {
            Action::Left | Action::Decrease => goal::move_knob(app, false, false, effects),
            Action::Right | Action::Increase => goal::move_knob(app, true, false, effects),
            Action::FarLeft => goal::move_knob(app, false, true, effects),
            Action::FarRight => goal::move_knob(app, true, true, effects),
            Action::Open if frontier_point(app).is_some() => {
                goal::take(app);
                app.start_plan(effects);
            }
            Action::Open => {
                app.modal = offer::selected(app).cloned().map(|offer| Modal::Offer { offer, scroll: 0 });
            }
            Action::NoLimit => set_knob(app, app.planner.knob, None, effects),
            Action::SetValue => {
                app.modal = Some(Modal::Value { knob: app.planner.knob, input: Input::default(), error: None });
            }
            Action::Own => {
                let input = Input::new(&app.setup.own.names.join(", "));
                app.modal = Some(Modal::Own { input, error: None });
            }
            Action::Objective
            | Action::OnDemand
            | Action::Spot
            | Action::Marketplace
            | Action::Doubted
            | Action::Platform
            | Action::GlobalBatch
            | Action::Confidence
            | Action::Parts => {
                goal::toggle(app, action);
                app.start_plan(effects);
            }
            Action::Providers | Action::Regions => {
                let places = if action == Action::Providers { Places::Providers } else { Places::Regions };
                let choices = places::choices(app, places);
                app.modal = Some(Modal::Places { places, choices, input: Input::default(), selected: 0 });
            }
            Action::Undo => {
                if let Some(goal) = app.planner.earlier.pop() {
                    app.planner.planned = Some(goal.clone());
                    app.setup.goal = goal;
                    app.start_plan(effects);
                }
            }
            Action::NextPane | Action::PreviousPane => {
                app.planner.pane = if app.planner.pane == Pane::Goal { Pane::Lower } else { Pane::Goal };
            }
            Action::Lower => {
                app.planner.lower = next_lower(app);
                app.planner.list = ListState::default();
                app.planner.list.selected = match app.planner.lower {
                    Lower::Chart => planned_point(app).unwrap_or(0),
                    _ => 0,
                };
            }
            Action::Rerun if app.predictions.value().is_some() => app.start_plan(effects),
            _ => return false,
        }
        true
    }

    fn table(&self, app: &App) -> Option<Table> {
        lower_table(app)
    }

    fn list<'a>(&self, app: &'a App) -> Option<&'a ListState> {
        Some(&app.planner.list)
    }

    fn list_mut<'a>(&self, app: &'a mut App) -> Option<&'a mut ListState> {
        Some(&mut app.planner.list)
    }

    fn focus_list(&self, app: &mut App) {
        app.planner.pane = Pane::Lower;
    }

    fn selected_key(&self, app: &App) -> Option<String> {
        lists::offers(app).get(app.planner.list.selected).map(ToString::to_string)
    }

    fn place_of(&self, app: &App, key: &str) -> Option<usize> {
        lists::offers(app).iter().position(|offer| offer.as_str() == key)
    }

    fn sorts(&self, app: &App) -> &'static [&'static str] {
        match app.planner.lower {
            Lower::Alternatives => &ALTERNATIVES_BY,
            Lower::Rejected => &REJECTED_BY,
            Lower::Beside | Lower::Timeline | Lower::Chart | Lower::Notes => &[],
        }
    }

    /// Up and Down move from the sliders into the lower pane and back.
    fn step(&self, app: &mut App, by: isize) {
        let state = &mut app.planner;
        let knob = Knob::ALL.iter().position(|knob| *knob == state.knob).unwrap_or(0);
        let last = Knob::ALL.len() - 1;
        if state.pane == Pane::Goal {
            match knob.saturating_add_signed(by) {
                next if next > last => state.pane = Pane::Lower,
                next => state.knob = Knob::ALL[next],
            }
        } else if by < 0 && state.list.selected == 0 {
            (state.pane, state.knob) = (Pane::Goal, Knob::ALL[last]);
        } else if state.lower == Lower::Notes {
            let lines = notes(app).len();
            app.planner.list.step(by, lines);
        } else {
            self.move_selection(app, by);
        }
    }

    fn wheel(&self, app: &mut App, by: isize) {
        self.move_selection(app, by);
    }
}

/// The next view of the lower pane.
pub(crate) fn next_lower(app: &App) -> Lower {
    let place = Lower::ALL.iter().position(|lower| *lower == app.planner.lower).unwrap_or(0);
    Lower::ALL[(place + 1) % Lower::ALL.len()]
}

/// Whether the chart fits beside the table.
pub(crate) const fn chart_beside(app: &App) -> bool {
    app.size.0 >= 110 && app.size.1 >= 28
}

/// Words for a plan of earlier limits or predictions; empty if it is up to date.
pub(crate) fn stale_words(app: &App) -> String {
    let is_of_goal = app.plan.value().is_some_and(|plan| plan.goal == *app.goal());
    app.plan.stale_words(if is_of_goal { "predictions" } else { "limits" })
}

/// State of planning, unless it is done.
pub(crate) fn state_line(app: &App) -> Option<String> {
    let rerun = app.setup.keymap.hint(Action::Rerun);
    match app.plan.state() {
        JobState::Running => Some("planning …".to_owned()),
        JobState::Failed(reason) => Some(format!("planning failed: {}", clean(reason, 300))),
        JobState::Cancelled => Some(format!("cancelled; {rerun} to plan again")),
        JobState::Idle if app.plan.value().is_none() => {
            predict::state_line(app).or_else(|| Some("no plan yet".to_owned()))
        }
        JobState::Idle => None,
    }
}

/// Whether planning failed without an earlier plan.
pub fn failed(app: &App) -> bool {
    app.plan.value().is_none() && matches!(app.plan.state(), JobState::Failed(_))
}

/// The same for the pane below the one with the reason.
fn below(app: &App) -> Option<String> {
    match (predict::failed(app), failed(app)) {
        (true, _) => Some(predict::NEEDS_PREDICTION.to_owned()),
        (_, true) => Some("needs a plan".to_owned()),
        _ => state_line(app),
    }
}

/// The end of the range at which the plan is compared and drawn.
pub fn confidence(app: &App) -> Confidence {
    app.plan.value().map_or(app.goal().confidence, |plan| plan.goal.confidence)
}

/// Heading of times at this end of the range.
const fn time_heading(confidence: Confidence) -> &'static str {
    if matches!(confidence, Confidence::High) { "time (high)" } else { "time (mid)" }
}

/// Words in the column of dates for a price without one. The electricity of an own machine needs no date.
fn undated(part: &Part) -> &'static str {
    if part.offer.tier == Tier::Owned { "own" } else { "no date" }
}

/// Date of a part's price, and its age.
pub(crate) fn date_words(part: &Part) -> String {
    if part.offer.tier == Tier::Owned && part.offer.as_of.is_none() {
        return "your own machine".to_owned();
    }
    let date = part.offer.as_of.map_or_else(|| "undated price".to_owned(), |date| format!("price of {date}"));
    part.offer.trust.age_days.map_or_else(|| date.clone(), |days| format!("{date}, {days} days old"))
}

/// An offer in words: machines, GPUs, provider, region, tier.
pub fn offer_words(part: &Part) -> String {
    format!(
        "{} {} · {} {}",
        gpus_words(part),
        clean(&part.offer.provider, 16),
        clean(words::price::region(&part.offer.region), 40),
        part.offer.tier
    )
}

/// Least width of GPUs in a table: their names are whole, except on a very narrow screen.
const fn gpus_width(app: &App) -> u16 {
    if app.size.0 < 76 { 18 } else { 40 }
}

/// GPUs in words.
pub(crate) fn gpus_words(part: &Part) -> String {
    parts::gpu_words(part)
}

/// Method of the step time behind a part.
pub(crate) fn method_of(app: &App, part: &Part) -> String {
    let row = app.predict.rows.iter().find(|row| row.slug == part.gpu);
    row.map_or_else(|| "predicted".to_owned(), |row| crate::app::screen::predict::method_words(&row.step))
}

/// Warnings about the plan's times and costs.
pub fn warnings(app: &App, brief: bool) -> Vec<String> {
    app.plan.value().map_or_else(Vec::new, |plan| predict::words(&plan.warnings, brief))
}

/// The table of the lower pane; `None` if it shows none.
pub(crate) fn lower_table(app: &App) -> Option<Table> {
    match app.planner.lower {
        Lower::Alternatives => Some(alternatives_table(app)),
        Lower::Beside => Some(beside_table(app)),
        Lower::Timeline => Some(timeline_table(app)),
        Lower::Chart => Some(frontier_table(app)),
        Lower::Rejected => Some(rejected_table(app, 0..usize::MAX)),
        Lower::Notes => None,
    }
}

/// The same without rows far from the selected one.
pub(crate) fn lower_on_screen(app: &App) -> Option<Table> {
    match app.planner.lower {
        Lower::Rejected => Some(rejected_table(app, app.planner.list.near(app.size.1))),
        _ => lower_table(app),
    }
}

/// A table of the lower pane, with a text for when it is empty.
fn lower(app: &App, columns: Vec<Column>, rows: Vec<Vec<Cell>>, empty: &str) -> Table {
    let empty = below(app).unwrap_or_else(|| empty.to_owned());
    let list = &app.planner.list;
    let empty = if list.is_filtered() { no_match(app) } else { empty };
    let sorted = Some((list.sort, list.reversed)).filter(|(column, _)| *column > 0);
    Table { columns, rows, selected: list.selected, sorted, empty, ..Table::default() }
}

/// Words for a filter without a match: it looks at the rows of one view only.
fn no_match(app: &App) -> String {
    let clear = "No row matches the filter; press Esc to clear it.";
    let rejected =
        app.plan.value().filter(|_| app.planner.lower != Lower::Rejected).map_or(0, |plan| {
            plan.rejected.iter().filter(|one| lists::passes_rejected(&app.planner.list, one)).count()
        });
    if rejected == 0 {
        return clear.to_owned();
    }
    let (key, rejected) = (app.setup.keymap.hint(Action::Lower), format::grouped(rejected as f64));
    format!("{clear} Matches among the rejected offers: {rejected} ({key}: other views).")
}

/// The plan and the best single offers.
pub(crate) fn alternatives_table(app: &App) -> Table {
    let confidence = confidence(app);
    let columns = vec![
        Column::words("", 1, 0),
        Column::words("GPUs", gpus_width(app), 0).sorts(4),
        Column::figures(time_heading(confidence), 0).sorts(2),
        Column::figures("low–high", 5),
        Column::figures("cost (mid)", 0).sorts(1),
        Column::figures("low–high, $", 4),
        Column::figures("$/h", 6).sorts(3),
        Column::words("tier", 9, 2),
        Column::words("in doubt", 12, 3),
        Column::words("provider", 11, 1),
        Column::words("region", 10, 7),
        Column::words("machine", 12, 9),
        Column::figures("price date", 8),
    ];
    let rows = candidates(app)
        .into_iter()
        .map(|(part, own)| {
            let role = if own { Role::Good } else { Role::Text };
            // Without space for the reason, the mark remains.
            let doubtful = if part.offer.trust.doubts.is_empty() { " " } else { "?" };
            vec![
                Cell::styled(Role::Good, if own { "✓" } else { "" }),
                Cell::styled(role, gpus_words(part)),
                Cell::styled(role, format::hours(confidence.end(&part.hours))),
                Cell::styled(Role::Muted, format::hours_range(&part.hours)),
                Cell::styled(role, format!("{}{doubtful}", format::usd(part.cost.mid))),
                Cell::styled(Role::Muted, format::usd_range(&part.cost).replace('$', "")),
                Cell::text(format!("{:.2}", part.price().get())),
                Cell::text(part.offer.tier.to_string()),
                Cell::styled(Role::Warning, words::price::marks(&part.offer.trust.doubts)),
                Cell::text(clean(&part.offer.provider, 24)),
                Cell::styled(Role::Muted, clean(words::price::region(&part.offer.region), 40)),
                Cell::styled(Role::Muted, machine_words(part)),
                Cell::styled(
                    Role::Muted,
                    part.offer.as_of.map_or_else(|| undated(part).to_owned(), |date| date.to_string()),
                ),
            ]
        })
        .collect();
    lower(app, columns, rows, "No offer meets the limits; see the reasons above, or relax the limits.")
}

/// The plan over time, and its cost by item.
pub(crate) fn timeline_table(app: &App) -> Table {
    let table = app.plan.value().map_or_else(Table::default, uses::table);
    lower(app, table.columns, table.rows, "No plan meets the limits; see the reasons above, or relax the limits.")
}

/// Legend of its bars.
pub fn legend(app: &App) -> String {
    let ascii = app.setup.glyphs == GlyphSet::Ascii;
    app.plan.value().map_or_else(String::new, |plan| uses::legend(plan, ascii))
}

fn machine_words(part: &Part) -> String {
    let name = clean(&part.offer.instance_type, 60);
    if part.machines > 1 { format!("{} × {name}", part.machines) } else { name }
}

fn rejected_table(app: &App, made: std::ops::Range<usize>) -> Table {
    let all = rejected(app);
    let made = made.start.min(all.len())..made.end.min(all.len());
    let left_out = [made.start, all.len() - made.end];
    let rows = all[made]
        .iter()
        .map(|rejection| {
            vec![
                Cell::text(clean(rejection.offer.as_str(), 100)),
                Cell::styled(Role::Warning, clean(&rejection.reason.words(), 300)),
            ]
        })
        .collect();
    let columns = // The reason matters most; Enter shows the full offer.
        vec![Column::words("offer", 24, 1).sorts(1), Column::words("reason", 20, 0).sorts(2)];
    Table { left_out, ..lower(app, columns, rows, "No rejected offers.") }
}

/// Assumptions of the plan, as label and text per line.
pub fn notes(app: &App) -> Vec<(String, String)> {
    let Some(plan) = app.plan.value() else {
        return vec![(String::new(), below(app).unwrap_or_default())];
    };
    let why = words::of_all(&plan.reasons).map(|reason| ("no plan".to_owned(), clean(&reason, 400)));
    let mut lines: Vec<(String, String)> = why.collect();
    for (index, part) in plan.parts.iter().enumerate() {
        let label = if plan.parts.len() > 1 { format!("part {}", index + 1) } else { "offer".to_owned() };
        lines.push((label, format!("{} ({})", clean(part.offer.id.as_str(), 120), machine_words(part))));
        lines.extend(parts::batch_words(part).map(|words| ("batch".to_owned(), words)));
        lines.extend(words::of_all(&part.notes).map(|note| (String::new(), clean(&note, 400))));
    }
    lines.extend(warnings(app, false).into_iter().map(|warning| ("warning".to_owned(), warning)));
    lines.extend(words::of_all(&plan.notes).map(|note| ("note".to_owned(), clean(&note, 400))));
    let gap = plan.solver.gap.map_or_else(String::new, |gap| format!(", gap {}", format::percent(gap)));
    let (solver, tried) = (clean(&plan.solver.name, 60), format::grouped(plan.solver.configurations as f64));
    lines.push(("solver".to_owned(), format!("{solver}, {tried} configurations{gap}")));
    lines
}
