//! Sixth screen: several jobs planned together, over time.

use crate::action::{Action, Needs};
use crate::app::App;
use crate::app::job::{Job, JobState};
use crate::app::list::ListState;
use crate::app::modal::Modal;
use crate::app::msg::Effect;
use crate::app::screen::behaviour::Behaviour;
use habitat_base::text::clean;
use habitat_planning::plan::jobs::JobsPlan;
use habitat_reports::table::Table;
use habitat_reports::theme::{GlyphSet, Role};
use habitat_reports::{format, jobs, words};

/// The state of the screen.
#[derive(Debug, Clone, Default)]
pub struct JobsState {
    /// The plan of all jobs.
    pub plan: Job<JobsPlan>,
    /// Selection of the table.
    pub list: ListState,
}

/// The screen.
pub struct JobsScreen;

impl Behaviour for JobsScreen {
    fn awaits(&self) -> Option<&'static str> {
        None
    }

    fn gives(&self, app: &App, needs: Needs) -> bool {
        match needs {
            Needs::Plan => app.jobs.plan.value().is_some(),
            Needs::Detail => selected(app).is_some(),
            needs => matches!(needs, Needs::Rows | Needs::Table | Needs::File),
        }
    }

    fn act(&self, app: &mut App, action: Action, effects: &mut Vec<Effect>) -> bool {
        match action {
            Action::Open => app.modal = selected(app).map(|job| Modal::PlannedJob { job, scroll: 0 }),
            Action::Rerun => app.start_jobs(effects),
            Action::Edit => effects.extend(app.setup.jobs.clone().map(Effect::Edit)),
            _ => return false,
        }
        true
    }

    fn table(&self, app: &App) -> Option<Table> {
        Some(table(app))
    }

    fn list<'a>(&self, app: &'a App) -> Option<&'a ListState> {
        Some(&app.jobs.list)
    }

    fn list_mut<'a>(&self, app: &'a mut App) -> Option<&'a mut ListState> {
        Some(&mut app.jobs.list)
    }
}

/// Index in the plan of the job under the cursor, or of the first of several copies.
fn selected(app: &App) -> Option<usize> {
    jobs::groups(app.jobs.plan.value()?).get(app.jobs.list.selected)?.first().copied()
}

/// All jobs over time.
pub fn table(app: &App) -> Table {
    let table = app.jobs.plan.value().map_or_else(Table::default, jobs::gantt);
    // A failure is shown above the table.
    let empty = state_line(app).filter(|_| !matches!(app.jobs.plan.state(), JobState::Failed(_)));
    let empty = empty.unwrap_or_else(|| "No plan to show.".to_owned());
    Table { selected: app.jobs.list.selected, empty, ..table }
}

/// Running computation, or the reason for a missing result.
pub(crate) fn state_line(app: &App) -> Option<String> {
    let rerun = app.setup.keymap.hint(Action::Rerun);
    match app.jobs.plan.state() {
        JobState::Running => Some("planning the jobs …".to_owned()),
        JobState::Failed(reason) => Some(format!("planning failed: {}", clean(reason, 600))),
        JobState::Cancelled => Some(format!("cancelled; {rerun} to plan again")),
        JobState::Idle if app.jobs.plan.value().is_none() => Some("no plan yet".to_owned()),
        JobState::Idle => None,
    }
}

/// Status line while planning.
pub fn news(app: &App) -> Option<String> {
    let stop = app.setup.keymap.hint(Action::Cancel);
    app.jobs.plan.is_running().then(|| format!("planning the jobs … ({stop} cancels)"))
}

/// Facts about all jobs, one per line: result, shared limits, and notes.
pub fn lines(app: &App) -> Vec<(Role, String)> {
    let mut lines = Vec::new();
    if let JobState::Failed(_) | JobState::Cancelled = app.jobs.plan.state()
        && let Some(words) = state_line(app)
    {
        lines.push((Role::Error, words));
    }
    let Some(plan) = app.jobs.plan.value() else { return lines };
    lines.extend(words::all(&plan.warnings).into_iter().map(|text| (Role::Warning, clean(&text, 400))));
    if let Some(total) = &plan.total {
        lines.push((Role::Good, jobs::headline(plan, total)));
    } else {
        lines.push((Role::Error, jobs::NO_PLAN.to_owned()));
        lines.extend(words::of_all(&plan.reasons).map(|reason| (Role::Warning, format!("• {}", clean(&reason, 400)))));
    }
    let shared = &plan.shared;
    let limits = [
        shared.deadline.map(|deadline| jobs::deadline_words(deadline, shared.late_price)),
        shared.hour_value.map(|value| format!("{} until all have ended", format::price(value))),
        shared.budget.map(|budget| format!("budget {}", format::usd(budget))),
        shared.max_price.map(|most| format!("at most {} at once", format::price(most))),
    ];
    let quotas = shared.quotas.iter().map(|quota| format!("GPUs at once: {quota}"));
    let limits: Vec<String> = limits.into_iter().flatten().chain(quotas).collect();
    if !limits.is_empty() {
        lines.push((Role::Muted, format!("all jobs: {}", limits.join(" · "))));
    }
    lines.extend(words::of_all(&plan.notes).map(|note| (Role::Muted, format!("note: {}", clean(&note, 400)))));
    lines
}

/// Legend of the bars.
pub fn legend(app: &App) -> String {
    let ascii = app.setup.glyphs == GlyphSet::Ascii;
    app.jobs.plan.value().map_or_else(String::new, |plan| jobs::legend(plan, ascii))
}

/// Details of a job, as label and text per line.
pub fn details(app: &App, job: usize) -> Vec<(String, String)> {
    let plan = app.jobs.plan.value();
    plan.and_then(|plan| Some(jobs::details(plan, plan.jobs.get(job)?))).unwrap_or_default()
}
