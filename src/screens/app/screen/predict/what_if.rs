//! A GPU with changed specifications: sliders, the step time, and its curve over the selected specification.

use super::difference::Compared;
use crate::action::Action;
use crate::app::App;
use crate::app::engine::Version;
use crate::app::job::JobState;
use crate::app::msg::{Effect, Question};
use habitat_base::text::clean;
use habitat_base::units::GpuSlug;
use habitat_prediction::Fits;
use habitat_reports::format;
use habitat_step::catalog::GpuSpec;
use habitat_step::catalog::hypothetical::{Changes, Figure};

/// Slider values: multiples of the real specification.
const RUNGS: [f64; 17] = [0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0, 2.4, 2.8, 3.4, 4.0];
/// Rungs of a large step: a factor of two.
const FAR: isize = 4;

pub(super) fn open(app: &mut App, gpu: GpuSlug, effects: &mut Vec<Effect>) {
    app.predict.version = Some(Version { gpu, changes: Changes::default(), along: Figure::Bandwidth });
    start(app, effects);
}

fn start(app: &mut App, effects: &mut Vec<Effect>) {
    let Some(version) = app.predict.version.clone() else { return };
    let question = Question::Change(app.setup.profile.clone(), version, app.chosen);
    effects.push(Effect::Ask { generation: app.what_if.start(), question });
}

/// Whether the selected specification is changed.
pub(crate) fn is_changed(app: &App) -> bool {
    app.predict.version.as_ref().is_some_and(|version| version.changes.get(version.along) != 1.0)
}

pub(super) fn act(app: &mut App, action: Action, effects: &mut Vec<Effect>) -> bool {
    let is_found = super::changed(app).is_some();
    let Some(version) = &mut app.predict.version else { return false };
    let Some(rungs) = action.steps(FAR) else {
        match action {
            Action::Difference if !is_found => {}
            Action::Difference => app.predict.difference = Some(Compared::new(None)),
            Action::Up | Action::Down => {
                let by = if action == Action::Up { -1 } else { 1 };
                let place = (version.along as usize).saturating_add_signed(by).min(Figure::ALL.len() - 1);
                version.along = Figure::ALL[place];
                start(app, effects);
            }
            Action::Rerun => start(app, effects),
            _ => return false,
        }
        return true;
    };
    let now = version.changes.get(version.along);
    let place = RUNGS.iter().position(|rung| *rung >= now * (1.0 - 1e-9)).unwrap_or(RUNGS.len() - 1);
    let times = if rungs == 0 { 1.0 } else { RUNGS[place.saturating_add_signed(rungs).min(RUNGS.len() - 1)] };
    version.changes = version.changes.with(version.along, times);
    start(app, effects);
    true
}

/// Sliders: specification, value in words, and position from 0 to 1.
pub(crate) fn sliders(app: &App) -> Vec<(Figure, String, f64)> {
    let Some(version) = &app.predict.version else { return Vec::new() };
    let gpu = app.setup.catalog.get(&version.gpu);
    Figure::ALL
        .into_iter()
        .map(|figure| {
            let times = version.changes.get(figure);
            let value = gpu.map_or_else(String::new, |gpu| figure_words(gpu, figure, times));
            let place = (times / RUNGS[0]).ln() / (RUNGS[RUNGS.len() - 1] / RUNGS[0]).ln();
            (figure, format!("{times} ×  {value}"), place)
        })
        .collect()
}

fn figure_words(gpu: &GpuSpec, figure: Figure, times: f64) -> String {
    let grouped = |value: f64| format::number(value * times);
    match figure {
        Figure::Bandwidth => format!("{} GB/s", grouped(gpu.memory_bandwidth.get() / 1e9)),
        Figure::Multiprocessors => format!("{}", (f64::from(gpu.sm_count) * times).round()),
        Figure::Clock => format!("{} MHz", grouped(gpu.boost_clock.get())),
        Figure::Tensor => {
            let rate = gpu.peak.bf16_tensor.or(gpu.peak.fp16_tensor);
            let words =
                |rate: habitat_base::units::FlopsPerSecond| format!("{} TFLOP/s (16-bit)", grouped(rate.get() / 1e12));
            rate.map_or_else(|| "none".to_owned(), words)
        }
        Figure::Memory => format!("{} GB", grouped(gpu.memory_gib())),
    }
}

/// The GPU's name.
pub fn name(app: &App) -> String {
    let gpu = app.predict.version.as_ref().and_then(|version| app.setup.catalog.get(&version.gpu));
    gpu.map_or_else(String::new, |gpu| clean(&gpu.name, 60))
}

/// Results, as label and text per line.
pub fn answer(app: &App) -> Vec<(String, String)> {
    let line = |label: &str, text: String| (label.to_owned(), text);
    match (app.what_if.state(), super::changed(app)) {
        (JobState::Failed(reason), _) => vec![(String::new(), clean(reason, 300))],
        (JobState::Cancelled, _) => {
            vec![line("", format!("cancelled; {} to run it again", app.setup.keymap.hint(Action::Rerun)))]
        }
        (_, None) => vec![line("", "predicting …".to_owned())],
        (_, Some(found)) => {
            let [real, changed] = [&found.real, &found.changed].map(|prediction| prediction.step.as_estimate());
            let ratio = if changed.range.mid.get() > 0.0 { real.range.mid / changed.range.mid } else { 1.0 };
            let fits = match found.changed.memory.fits {
                Fits::Yes => "the step fits",
                Fits::No => "the step does not fit",
                Fits::Unknown => "memory fit unknown",
            };
            vec![
                line("real", format!("{} ({})", format::time(real.range.mid), super::range_and_method(&real))),
                line(
                    "changed",
                    format!(
                        "{} ({}), {}",
                        format::time(changed.range.mid),
                        format::time_range(changed.range.low, changed.range.high),
                        format::speed(ratio)
                    ),
                ),
                line("memory", fits.to_owned()),
            ]
        }
    }
}
