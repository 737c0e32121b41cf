//! Third screen: the step on every GPU, its value for money, and the method.

pub mod batches;
pub mod difference;
mod facts;
mod gpus;
mod operations;
mod rows;
pub mod what_if;

use difference::Compared;
pub use facts::{deciding, facts};
pub use gpus::table;
pub use operations::{table as operations_table, why};
pub(in crate::app) use rows::rebuild;
pub use rows::{Row, RowValue, rows, selected};

use crate::action::{Action, Needs};
use crate::app::engine::Version;
use crate::app::job::JobState;
use crate::app::list::ListState;
use crate::app::modal::Modal;
use crate::app::msg::{Effect, Question};
use crate::app::screen::behaviour::Behaviour;
use crate::app::{App, Tone};
use habitat_base::regress::quantile::median;
use habitat_base::text::clean;
use habitat_base::units::GpuSlug;
use habitat_prediction::finding::distinct;
use habitat_prediction::hypothetical::WhatIf;
use habitat_prediction::{Estimate, Finding, Host, Method, Precision, Prediction};
use habitat_reports::Table;
use habitat_reports::answer::Picks;
pub use habitat_reports::answer::method_words;
use habitat_reports::format;
use habitat_reports::words::Words;

/// Sort orders of the list, in the order of the `s` key.
const SORTS: [&str; 7] =
    ["step time", "samples per dollar", "memory", "name", "price", "high end of the range", "speed-up"];

/// The state of the screen.
#[derive(Debug, Clone, Default)]
pub struct PredictState {
    /// Selection, filter, order of the GPUs.
    pub list: ListState,
    /// All rows, without filter and order.
    pub rows: Vec<Row>,
    /// GPUs that the first screen's answer names.
    pub picks: Picks,
    /// The GPU whose operations are shown.
    pub opened: Option<GpuSlug>,
    /// Selection, filter, order of those operations.
    pub operations: ListState,
    /// The GPU to compare others with, if one is marked.
    pub marked: Option<GpuSlug>,
    /// The two GPUs to compare.
    pub difference: Option<Compared>,
    /// The GPU with changed specifications.
    pub version: Option<Version>,
    /// The GPU with other batch sizes.
    pub sizes: Option<batches::Sizes>,
    /// The GPU to select once there are rows.
    pub wanted: Option<GpuSlug>,
}

/// The screen.
pub struct PredictScreen;

impl Behaviour for PredictScreen {
    fn awaits(&self) -> Option<&'static str> {
        Some("the step on every GPU of the catalog")
    }

    fn gives(&self, app: &App, needs: Needs) -> bool {
        match needs {
            Needs::Slider => is_on_sliders(app),
            Needs::Limit if app.predict.sizes.is_some() => batches::is_changed(app),
            Needs::Limit => is_on_sliders(app) && what_if::is_changed(app),
            Needs::Rows | Needs::Table => !is_on_sliders(app),
            Needs::Detail => app.predict.sizes.is_some() || !is_inside(app),
            Needs::SortableTable | Needs::Prediction => app.predict.difference.is_none() && !is_on_sliders(app),
            Needs::Comparable => app.predict.difference.is_none() && app.predict.sizes.is_none(),
            _ => false,
        }
    }

    fn act(&self, app: &mut App, action: Action, effects: &mut Vec<Effect>) -> bool {
        if app.predict.sizes.is_some() {
            return batches::act(app, action, effects);
        }
        if is_on_sliders(app) {
            return what_if::act(app, action, effects);
        }
        let gpu = selected_prediction(app).map(|prediction| prediction.gpu.slug.clone());
        let (profile, chosen) = (app.setup.profile.clone(), app.chosen);
        match (action, gpu) {
            (Action::Open, _) => {
                app.predict.opened = selected(app).map(|row| row.slug.clone());
                app.predict.operations = ListState::default();
                start_details(app, effects);
            }
            (Action::Methods, Some(gpu)) => {
                app.modal = Some(Modal::Methods { gpu: gpu.clone(), selected: 0 });
                let question = Question::Compare(profile, gpu, chosen);
                effects.push(Effect::Ask { generation: app.comparison.start(), question });
            }
            (Action::Host, _) => choose_host(app, effects),
            (Action::Precision, _) => choose_precision(app, effects),
            (Action::Mark, Some(gpu)) => {
                app.predict.marked = Some(gpu).filter(|gpu| app.predict.marked.as_ref() != Some(gpu));
            }
            (Action::Difference, Some(gpu)) => {
                if let Some(from) = difference::other(app, &gpu) {
                    app.predict.difference = Some(Compared::new(Some([from, gpu])));
                    start_details(app, effects);
                } else {
                    let key = app.setup.keymap.hint(Action::Mark);
                    app.tell(Tone::Hint, format!("{key} marks this GPU; then compare another one with it"));
                }
            }
            (Action::WhatIf, Some(gpu)) => what_if::open(app, gpu, effects),
            (Action::Batches, Some(gpu)) => batches::open(app, gpu, effects),
            _ => return false,
        }
        true
    }

    fn table(&self, app: &App) -> Option<Table> {
        if app.predict.difference.is_some() {
            return difference::table(app);
        }
        let table = if app.predict.opened.is_some() { operations_table(app) } else { table(app) };
        Some(table).filter(|_| !is_on_sliders(app))
    }

    fn list<'a>(&self, app: &'a App) -> Option<&'a ListState> {
        let state = &app.predict;
        if is_on_sliders(app) {
            return None;
        }
        Some(match (&state.difference, &state.opened) {
            (Some(compared), _) => &compared.list,
            (None, Some(_)) => &state.operations,
            (None, None) => &state.list,
        })
    }

    fn list_mut<'a>(&self, app: &'a mut App) -> Option<&'a mut ListState> {
        if is_on_sliders(app) {
            return None;
        }
        let state = &mut app.predict;
        Some(match (&mut state.difference, &state.opened) {
            (Some(compared), _) => &mut compared.list,
            (None, Some(_)) => &mut state.operations,
            (None, None) => &mut state.list,
        })
    }

    fn selected_key(&self, app: &App) -> Option<String> {
        match &app.predict.opened {
            Some(_) => operations::selected_key(app),
            None => selected(app).map(|row| row.slug.to_string()),
        }
    }

    fn place_of(&self, app: &App, key: &str) -> Option<usize> {
        match &app.predict.opened {
            Some(_) => operations::place_of(app, key),
            None => rows(app).iter().position(|row| row.slug.as_str() == key),
        }
    }

    fn sorts(&self, app: &App) -> &'static [&'static str] {
        let is_in_another_precision = app.predict.rows.iter().any(|row| speed_up(app, row).is_some());
        match (app.predict.opened.is_some(), is_in_another_precision) {
            (true, _) => &operations::SORTS,
            (false, true) => &SORTS,
            (false, false) => &SORTS[..SORTS.len() - 1],
        }
    }

    fn is_open(&self, app: &App) -> bool {
        let state = &app.predict;
        state.difference.is_some()
            || state.version.is_some()
            || state.sizes.is_some()
            || state.opened.is_some() && state.operations.filter.is_empty()
    }

    fn close(&self, app: &mut App) -> bool {
        let state = &mut app.predict;
        if state.difference.take().is_some() || state.version.take().is_some() || state.sizes.take().is_some() {
            return true;
        }
        let was_open = app.predict.opened.is_some();
        if self.is_open(app) {
            app.predict.opened = None;
        } else if was_open {
            let selected = self.selected_key(app);
            app.filter_again(String::new(), selected.as_deref());
        }
        was_open
    }
}

/// Whether a view inside the screen is open instead of the table of GPUs.
pub const fn is_inside(app: &App) -> bool {
    let state = &app.predict;
    state.opened.is_some() || state.difference.is_some() || state.version.is_some() || state.sizes.is_some()
}

/// Whether the keys move specifications of a GPU, or a batch size.
const fn is_on_sliders(app: &App) -> bool {
    (app.predict.version.is_some() || app.predict.sizes.is_some()) && app.predict.difference.is_none()
}

/// Predicts every GPU with the other assumption about the host.
fn choose_host(app: &mut App, effects: &mut Vec<Effect>) {
    let now = app.chosen.host.or_else(|| app.predictions.value().map(|all| all.host)).unwrap_or_default();
    let host = now.other();
    app.chosen.host = Some(host);
    app.tell(
        Tone::Good,
        match host {
            Host::AsRecorded => "GPU waits for the CPU as recorded",
            Host::KeepsUp => "assuming the CPU keeps up: GPU time only",
        },
    );
    app.start_predict(effects);
}

/// Precisions to cycle through, after the recorded one.
const PRECISIONS: [Precision; 6] =
    [Precision::Fp32, Precision::Tf32, Precision::AmpFp16, Precision::AmpBf16, Precision::Fp8, Precision::Fp32Strict];

/// Predicts every GPU in the next precision.
fn choose_precision(app: &mut App, effects: &mut Vec<Effect>) {
    let recorded = app.setup.profile.workload.precision;
    let others: Vec<Precision> = PRECISIONS.into_iter().filter(|other| Some(*other) != recorded).collect();
    let now = precision(app).and_then(|now| others.iter().position(|other| *other == now));
    let next = others.get(now.map_or(0, |place| place + 1)).copied();
    app.chosen.precision = Some(next);
    let text = next.map_or_else(|| "precision as recorded".to_owned(), |next| format!("as if run in {next}"));
    app.tell(Tone::Good, text);
    app.start_predict(effects);
}

/// Precision of the predictions; `None` = as recorded.
pub fn precision(app: &App) -> Option<Precision> {
    app.chosen.precision.unwrap_or(app.setup.precision)
}

/// Speed-up of the step in the chosen precision over the recorded one, with all other choices the same. `None` in the
/// recorded one.
pub fn speed_up(app: &App, row: &Row) -> Option<f64> {
    precision(app)?;
    let unchanged = app.unchanged.value().filter(|_| !app.unchanged.is_stale() && !app.predictions.is_stale())?;
    let before = unchanged.predictions.get(row.index).filter(|one| one.gpu.slug == row.slug)?;
    let (before, now) = (before.step.as_estimate().range.mid, row.step.range.mid);
    (now.get() > 0.0 && before.get() > 0.0).then(|| before / now)
}

/// Speed-up of the chosen precision in words: on the recording GPU, else the median of all GPUs.
pub(crate) fn speed_up_words(app: &App) -> Option<String> {
    let of = app.setup.profile.workload.precision?;
    let times = |times: f64| format!("{} as in {of}", format::speed(times));
    let recorded = app.setup.profile.origin.as_ref().and_then(|origin| origin.gpu.as_ref());
    let row = app.predict.rows.iter().find(|row| Some(&row.slug) == recorded);
    if let Some((row, speed_up)) = row.and_then(|row| Some((row, speed_up(app, row)?))) {
        return Some(format!("recording GPU, {}: {}", row.name, times(speed_up)));
    }
    let mut all: Vec<f64> = app.predict.rows.iter().filter_map(|row| speed_up(app, row)).collect();
    median(&mut all).map(|median| format!("median of the GPUs: {}", times(median)))
}

/// The prediction of the selected row, or of the opened GPU.
pub(crate) fn selected_prediction(app: &App) -> Option<&Prediction> {
    let predictions = app.predictions.value()?;
    match &app.predict.opened {
        Some(slug) => predictions.predictions.iter().find(|prediction| prediction.gpu.slug == *slug),
        None => predictions.predictions.get(selected(app)?.index),
    }
}

/// Predicts the opened or compared GPUs by operation.
pub(in crate::app) fn start_details(app: &mut App, effects: &mut Vec<Effect>) {
    let compared = app.predict.difference.iter().filter_map(|compared| compared.gpus.clone()).flatten();
    let mut gpus: Vec<GpuSlug> = compared.chain(app.predict.opened.clone()).collect();
    gpus.sort_unstable();
    gpus.dedup();
    if !gpus.is_empty() {
        let question = Question::Detail(app.setup.profile.clone(), gpus, app.chosen);
        effects.push(Effect::Ask { generation: app.details.start(), question });
    }
}

/// Latest results for the GPU with changed specifications; `None` until there are any.
pub fn changed(app: &App) -> Option<&WhatIf> {
    let version = app.predict.version.as_ref()?;
    app.what_if.value().filter(|found| found.real.gpu.slug == version.gpu)
}

/// Prediction by operation of an opened or compared GPU; `None` until it is there.
fn detailed<'a>(app: &'a App, gpu: &GpuSlug) -> Option<&'a Prediction> {
    app.details.value()?.predictions.iter().find(|prediction| prediction.gpu.slug == *gpu)
}

/// State of the prediction, unless it is done.
pub(crate) fn state_line(app: &App) -> Option<String> {
    match app.predictions.state() {
        JobState::Running => Some(format!("predicting the step on {} GPUs …", app.setup.catalog.len())),
        JobState::Failed(reason) => {
            let key = app.setup.keymap.hint(Action::Origin);
            let choose = if app.unavailable(Action::Origin).is_none() {
                format!(" · {key} to choose it")
            } else {
                String::new()
            };
            Some(format!("prediction failed: {}{choose}", clean(reason, 500)))
        }
        JobState::Cancelled => Some(format!("cancelled; {} to run it again", app.setup.keymap.hint(Action::Rerun))),
        JobState::Idle => None,
    }
}

/// Whether the prediction failed without an earlier result.
pub fn failed(app: &App) -> bool {
    app.predictions.value().is_none() && matches!(app.predictions.state(), JobState::Failed(_))
}

/// Text for content that waits for failed predictions; the reason is shown elsewhere.
pub(crate) const NEEDS_PREDICTION: &str = "needs the prediction";

/// Range and method of a step.
pub(crate) fn range_and_method(step: &Estimate) -> String {
    format!("{} · {}", format::time_range(step.range.low, step.range.high), method_words(step))
}

/// Warnings about any of the times: whole sentences, or a few words if `brief`.
pub fn warnings(app: &App, brief: bool) -> Vec<String> {
    let Some(all) = app.predictions.value() else { return Vec::new() };
    words(&all.warnings(), brief)
}

/// Warnings about the GPUs of a comparison or a what-if GPU, in a few words.
pub(crate) fn warnings_of_shown(app: &App) -> Vec<String> {
    let compared = app.predict.difference.as_ref().and_then(|compared| compared.gpus.clone());
    let shown = compared.map_or_else(
        || selected_prediction(app).map(|prediction| prediction.gpu.slug.clone()).into_iter().collect(),
        |gpus| gpus.to_vec(),
    );
    warnings_on(app, &shown)
}

/// Warnings about some GPUs, in a few words.
pub(crate) fn warnings_on(app: &App, shown: &[GpuSlug]) -> Vec<String> {
    let Some(all) = app.predictions.value() else { return Vec::new() };
    let shown = all.predictions.iter().filter(|it| shown.contains(&it.gpu.slug));
    let mut found: Vec<Finding> = distinct(shown.map(|it| &it.warnings[..])).into_iter().map(|(one, _)| one).collect();
    found.dedup_by_key(|one| one.brief());
    words(&found, true)
}

/// Warnings as whole sentences, or as a few words on one line.
pub fn words(warnings: &[impl Words], brief: bool) -> Vec<String> {
    if !brief {
        return habitat_reports::words::all(warnings);
    }
    let briefs: Vec<String> = warnings.iter().map(Words::brief).collect();
    if briefs.is_empty() { Vec::new() } else { vec![briefs.join(" · ")] }
}

/// Numbers of predicted, derived and measured rows, for the line above the table.
pub fn summary(app: &App) -> String {
    if app.predict.rows.is_empty() {
        return String::new();
    }
    let shown = rows(app);
    let of = |row: &&&Row| match row.step.method {
        Method::Measured => "measured",
        Method::Derived => "derived",
        _ => "predicted",
    };
    let count = |kind: &'static str| (kind, shown.iter().filter(|row| of(row) == kind).count());
    let words = ["predicted", "derived", "measured"].map(count).into_iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> = words.map(|(name, count)| format!("{count} {name}")).collect();
    let all = format!("{} of {} GPUs", shown.len(), app.predict.rows.len());
    if words.is_empty() { all } else { format!("{all} · {}", words.join(", ")) }
}
