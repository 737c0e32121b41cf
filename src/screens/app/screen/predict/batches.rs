//! The step at other batch sizes on one GPU: a slider with times and memory, and a way to let plans use a size.

use crate::action::Action;
use crate::app::job::JobState;
use crate::app::msg::{Effect, Question};
use crate::app::{App, Tone};
use habitat_base::text::clean;
use habitat_base::units::{Bytes, GpuSlug};
use habitat_planning::plan::Accept;
use habitat_prediction::batches::{GpuSweep, Sweep, SweepRow};
use habitat_prediction::{Fits, Method};
use habitat_reports::words::Words;
use habitat_reports::{batches as report, format};

/// Rungs of a large step.
const FAR: isize = 3;

/// The GPU, and the batch on the slider (`None` = the recorded one).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// The GPU.
    pub gpu: GpuSlug,
    /// Samples per step.
    pub batch: Option<u64>,
}

pub(super) fn open(app: &mut App, gpu: GpuSlug, effects: &mut Vec<Effect>) {
    app.predict.sizes = Some(Sizes { gpu, batch: app.chosen.batch.flatten() });
    start(app, effects);
}

fn start(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(gpu) = app.predict.sizes.as_ref().map(|sizes| sizes.gpu.clone()) else { return };
    let question = Question::Batches(app.setup.profile.clone(), gpu, app.chosen);
    effects.push(Effect::Ask { generation: app.sweep.start(), question });
}

/// Latest results for this GPU; `None` until there are any.
pub fn sweep_shown(app: &App) -> Option<(&Sweep, &GpuSweep)> {
    let sizes = app.predict.sizes.as_ref()?;
    let sweep = app.sweep.value()?;
    sweep.gpus.first().filter(|on| on.gpu.slug == sizes.gpu).map(|on| (sweep, on))
}

/// Results for the batch on the slider.
pub fn row(app: &App) -> Option<&SweepRow> {
    let (sweep, on) = sweep_shown(app)?;
    let wanted = app.predict.sizes.as_ref()?.batch.or_else(|| sweep.recorded.first().copied())?;
    on.rows.iter().min_by_key(|row| row.batch.abs_diff(wanted))
}

/// Whether the slider is on another batch than the recorded one.
pub(super) fn is_changed(app: &App) -> bool {
    row(app).zip(sweep_shown(app)).is_some_and(|(row, (sweep, _))| !sweep.recorded.contains(&row.batch))
}

pub(super) fn act(app: &mut App, action: Action, effects: &mut Vec<Effect>) -> bool {
    let Some(by) = action.steps(FAR) else {
        match action {
            Action::Open => take(app, effects),
            Action::Rerun => start(app, effects),
            _ => return false,
        }
        return true;
    };
    let now = row(app).map(|row| row.batch);
    let next = sweep_shown(app).and_then(|(_, on)| {
        let place = on.rows.iter().position(|row| Some(row.batch) == now)?;
        on.rows.get(place.saturating_add_signed(by).min(on.rows.len() - 1)).map(|row| row.batch)
    });
    if let Some(sizes) = &mut app.predict.sizes {
        sizes.batch = if by == 0 { None } else { next.or(sizes.batch) };
    }
    true
}

/// Lets plans use the batch on the slider in addition to the recorded one; on the recorded one, reverts to that only.
fn take(app: &mut App, effects: &mut Vec<Effect>) {
    let (Some(row), Some((sweep, _))) = (row(app), sweep_shown(app)) else { return };
    let batch = Some(row.batch).filter(|batch| !sweep.recorded.contains(batch));
    let words = match batch {
        _ if row.memory.fits == Fits::No => {
            let batch = format::grouped(row.batch as f64);
            app.tell(
                Tone::Hint,
                format!("a batch of {batch} does not fit on this GPU; plans can use it on larger ones"),
            );
            None
        }
        Some(batch) => {
            let batch = format::grouped(batch as f64);
            Some(format!("plans can now also use a batch of {batch} per GPU"))
        }
        None => Some("plans use the recorded batch only".to_owned()),
    };
    if let Some(words) = words {
        app.tell(Tone::Good, words);
    }
    let accept = &mut app.setup.goal.limits.accept;
    accept.retain(|one| *one != Accept::Batch);
    accept.extend(batch.map(|_| Accept::Batch));
    app.chosen.batch = Some(batch);
    app.start_predict(effects);
}

/// Position of a batch on the slider, from 0 to 1.
pub fn place(app: &App) -> Option<f64> {
    let ((_, on), row) = (sweep_shown(app)?, row(app)?);
    let [first, last] = [on.rows.first()?, on.rows.last()?].map(|row| (row.batch as f64).ln());
    Some(if last > first { ((row.batch as f64).ln() - first) / (last - first) } else { 0.5 })
}

/// Memory that a step needs and memory that is usable, in bytes; and whether the need is an upper bound.
pub fn memory(sweep: &Sweep, row: &SweepRow) -> Option<([Bytes; 2], bool)> {
    let fit = &row.memory;
    let exact = fit.needed.filter(|_| fit.narrowest.is_none());
    let needed = exact.or(fit.at_most)?;
    Some(([needed, fit.usable], is_upper_bound(sweep, row)))
}

/// Whether the memory shown is an upper bound.
fn is_upper_bound(sweep: &Sweep, row: &SweepRow) -> bool {
    row.memory.narrowest.is_some() || sweep.memory.is_some_and(|line| line.is_upper_bound())
}

/// The largest batch that fits, in words.
pub(crate) fn largest_words(sweep: &Sweep, on: &GpuSweep) -> Option<String> {
    let batch = match on.largest? {
        0 => return Some("not even a batch of 1 fits".to_owned()),
        batch => format::grouped(batch as f64),
    };
    Some(if on.rows.iter().any(|row| is_upper_bound(sweep, row)) {
        format!("a batch of {batch} fits; larger untested")
    } else {
        format!("largest batch that fits: {batch}")
    })
}

/// Label of the first note.
pub const NOTES: &str = "notes";

/// Results for the batch on the slider, as label and text per line; notes last.
pub fn answer(app: &App) -> Vec<(String, String)> {
    let line = |label: &str, text: String| (label.to_owned(), text);
    let (sweep, on, row) = match (app.sweep.state(), sweep_shown(app).zip(row(app))) {
        (JobState::Failed(reason), _) => return vec![line("", clean(reason, 300))],
        (JobState::Cancelled, _) => {
            return vec![line("", format!("cancelled; {} to run it again", app.setup.keymap.hint(Action::Rerun)))];
        }
        (_, None) => return vec![line("", "scaling the step …".to_owned())],
        (_, Some(((sweep, on), row))) => (sweep, on, row),
    };
    let mut lines = vec![line(
        "step",
        match row.step.method {
            Method::Measured => format!("{} (measured)", format::time(row.step.range.mid)),
            _ => format!("{} ({})", format::time(row.step.range.mid), super::range_and_method(&row.step)),
        },
    )];
    let rate = |row: &SweepRow| row.throughput.map(|rate| rate.mid.get());
    if let Some(now) = rate(row) {
        let recorded = on.rows.iter().find(|other| sweep.recorded.first() == Some(&other.batch)).and_then(rate);
        let times =
            recorded.filter(|recorded| *recorded > 0.0 && is_changed(app)).map_or_else(String::new, |recorded| {
                format!(", {} times that of the recorded batch", format::number(now / recorded))
            });
        lines.push(line("throughput", format!("{} samples/s{times}", format::number(now))));
    }
    lines.extend(report::pays(sweep, on).map(|pays| line("verdict", pays)));
    let fits = match row.memory.fits {
        Fits::Yes => "fits".to_owned(),
        Fits::No => "does not fit".to_owned(),
        Fits::Unknown => "fit unknown".to_owned(),
    };
    let mut words = memory(sweep, row).map_or_else(Vec::new, |([needed, usable], at_most)| {
        let least = if at_most { "at most " } else { "" };
        vec![format!("{least}{} of {} usable", format::memory(needed), format::memory(usable))]
    });
    words.push(fits);
    words.extend(largest_words(sweep, on));
    lines.push(line("memory", words.join(" · ")));
    if let Some((fitted, share)) = &on.line {
        let words = format!(
            "{} + {} per sample; {} of the step grows with the batch",
            format::time(habitat_base::units::Micros::known(fitted.intercept)),
            format::time(habitat_base::units::Micros::known(fitted.slope)),
            format::percent(*share)
        );
        lines.push(line("line", words));
    }
    let notes: Vec<String> = sweep.notes.iter().chain(&on.notes).map(|note| clean(&note.words(), 300)).collect();
    lines.extend(notes.into_iter().enumerate().map(|(at, note)| line(if at == 0 { NOTES } else { "" }, note)));
    lines
}
