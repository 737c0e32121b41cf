//! First screen: the recording, where its time goes, and the recommendation.

use crate::app::screen::behaviour::Behaviour;
use crate::app::screen::profile::{self, Row};
use crate::app::screen::{job, plan, predict};
use crate::app::{App, Tone};
use habitat_base::text::{capitalised, clean};
use habitat_base::units::{Bytes, GpuSlug, Micros};
use habitat_planning::plan::Plan;
use habitat_prediction::{Fits, Sharding, communicates};
use habitat_recorder::live::Snapshot;
use habitat_reports::theme::Role;
use habitat_reports::verdict::{self, Verdict};
use habitat_reports::words::{Words, price::marks};
use habitat_reports::{answer, beside, format, memory, run, summary};
use habitat_step::catalog::Catalog;
use habitat_step::profile::Profile;
use habitat_step::profile::breakdown::{Breakdown, GroupBy, PhaseTime};

/// Values that are computed once.
#[derive(Debug, Clone)]
pub struct OverviewState {
    /// Phases, busy and idle.
    pub breakdown: Breakdown,
    /// By operator name, in order of device time, or of FLOPs without times.
    pub top: Vec<Row>,
    /// The modules with the most device time of their own, and the share of each.
    layers: Vec<(String, f64)>,
    /// The bottleneck of the step, or why it is unknown.
    verdict: Result<Verdict, String>,
    /// Whether the step communicates with other GPUs.
    communicates: bool,
}

impl OverviewState {
    /// Derives the state from a profile.
    pub fn new(profile: &Profile, catalog: &Catalog) -> Self {
        let memory = run::memory(&Snapshot::default(), Some(profile), catalog);
        Self {
            verdict: verdict::of_profile(profile, memory),
            breakdown: Breakdown::of(profile),
            layers: summary::slowest_layers(profile, 5).into_iter().map(|one| (one.label, one.share)).collect(),
            top: profile::grouped(profile, GroupBy::Name, None),
            communicates: communicates(profile),
        }
    }
}

/// The screen.
pub struct OverviewScreen;

impl Behaviour for OverviewScreen {
    fn awaits(&self) -> Option<&'static str> {
        Some("the recording, where its time goes and the recommendation")
    }

    fn step(&self, app: &mut App, _by: isize) {
        app.tell(Tone::Hint, "nothing to scroll here; press 2, 3 or 4 for more");
    }

    fn wheel(&self, _app: &mut App, _by: isize) {}
}

/// The bottleneck of the step, with the remedy unless `brief`. For a running job, the same as on its screen.
pub fn verdict(app: &App, brief: bool) -> (String, Role) {
    if let Some(of_job) = app.live.as_ref().and_then(|live| job::held_back(app, live)) {
        return of_job;
    }
    match &app.overview.verdict {
        Ok(verdict) if brief => (verdict.because.clone(), Role::Title),
        Ok(verdict) => (capitalised(&verdict.to_string()), Role::Title),
        Err(why) => (format!("The bound of the step is {why}"), Role::Muted),
    }
}

/// Parts of the step in order, with shares and times: phases, other device work, and idle time. Without a step time,
/// shares are of the device time.
pub fn parts(breakdown: &Breakdown) -> Vec<(&'static str, f64, Micros, Role)> {
    let busy = breakdown.busy_idle.as_ref().filter(|split| split.step.get() > 0.0);
    let scale = busy.map_or(1.0, |split| split.busy / split.step);
    let of = |phase: &PhaseTime| {
        let role = profile::phase_role(Some(phase.phase));
        (profile::phase_word(phase.phase), phase.share * scale, phase.time, role)
    };
    let idle = busy.map(|split| ("idle", 1.0 - scale, split.idle, Role::Track));
    breakdown.phases.iter().map(of).chain(idle).collect()
}

/// The workload in one line.
pub fn workload(profile: &Profile) -> String {
    format!("{} · {}", clean(&profile.workload.name, 40), summary::workload_facts(&profile.workload))
}

/// The measured step in words: time, range, number of steps, throughput, memory.
pub fn step(app: &App) -> Option<(String, String)> {
    let profile = &app.setup.profile;
    let step = profile.step.as_ref()?;
    let duration = step.duration?;
    let mut rest = Vec::new();
    if let Some([low, high]) = step.duration_range {
        rest.push(format::time_range(low, high));
    }
    if let Some(samples) = step.samples {
        rest.push(summary::steps_measured(samples));
    }
    if let Some(batch) = profile.workload.batch_size.filter(|_| duration.get() > 0.0) {
        rest.push(format!("{} samples/s", format::number(batch as f64 / duration.as_secs())));
    }
    if app.overview.communicates {
        rest.push("with communication".to_owned());
    }
    rest.extend(peak(profile));
    Some((format::time(duration), rest.join(" · ")))
}

/// Notes of the recording, most informative first.
pub fn notes(profile: &Profile) -> Vec<String> {
    let notes = profile.recording.as_ref().map(|recording| &recording.notes[..]).unwrap_or_default();
    let mut notes: Vec<String> = notes.iter().map(|note| clean(note, 300)).collect();
    // Notes with a time come first: they may contain the only time that is known.
    notes.sort_by_key(|note| !note.contains(" ms on "));
    notes
}

/// Peak memory in words, and whether it was computed instead of measured.
pub fn peak(profile: &Profile) -> Option<String> {
    let peak = profile.step.as_ref()?.peak_memory_bytes?;
    let computed = if memory::is_computed(profile) { ", computed" } else { "" };
    Some(format!("peak memory {peak}{computed}"))
}

/// Memory by kind at the peak, in at most `width` characters.
pub(crate) fn memory_by_kind(profile: &Profile, width: usize) -> Option<String> {
    Some(memory::kinds_within(profile.step.as_ref()?.memory.as_ref()?, width))
}

/// The slowest layers with their shares of device time, as many as fit in `width` characters: the last two names of each
/// path are enough.
pub(crate) fn layers(app: &App, width: usize) -> Option<String> {
    let words = |(path, share): &(String, f64)| {
        let path = clean(path, 80);
        let is_number = |c: char| c == '*' || c.is_ascii_digit();
        let mut names = path.rmatch_indices('.').filter(|(at, _)| !path[at + 1..].starts_with(is_number));
        let name = names.nth(1).map_or(&*path, |(at, _)| &path[at + 1..]);
        format!("{name} {}", format::percent(*share))
    };
    let mut shown: Vec<String> = app.overview.layers.iter().map(words).collect();
    while shown.len() > 1 && shown.join(" · ").chars().count() > width {
        shown.pop();
    }
    (!shown.is_empty()).then(|| shown.join(" · "))
}

/// Warnings about the GPUs that the answers name, in a few words; those about any GPU if they name none.
pub fn warnings(app: &App) -> Vec<String> {
    let picks = &app.predict.picks;
    let named = [&picks.fastest, &picks.unoffered, &picks.best_value, &picks.doubted, &picks.whole_batch];
    let rented = app.plan.value().into_iter().flat_map(|plan| &plan.parts).map(|part| part.gpu.clone());
    let all = app.predictions.value().map_or(&[][..], |all| &all.predictions[..]);
    let named = named.into_iter().flatten().filter_map(|pick| all.get(pick.index)).map(|one| one.gpu.slug.clone());
    let named: Vec<GpuSlug> = named.chain(rented).collect();
    if named.is_empty() { predict::warnings(app, true) } else { predict::warnings_on(app, &named) }
}

/// One answer: heading, value, range and method, and circumstances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The question.
    pub question: &'static str,
    /// The answer; `None` if there is none yet.
    pub answer: Option<String>,
    /// Range, method and circumstances, or the reason for a missing answer.
    pub detail: Vec<String>,
    /// Words if it belongs to earlier inputs; else empty.
    pub stale: String,
}

/// The three answers: what to rent, then the GPUs.
pub fn answers(app: &App) -> Vec<Answer> {
    vec![recommended(app), fastest(app), best_value(app)]
}

/// The message if the step does not fit on any GPU: the memory that it needs, and how to divide it.
fn no_room(app: &App) -> Option<String> {
    let rows = &app.predict.rows;
    if rows.is_empty() || rows.iter().any(|row| row.fits != Fits::No) {
        return None;
    }
    let all = app.predictions.value()?;
    let predictions = &all.predictions;
    let needed = predictions.iter().filter_map(|prediction| prediction.memory.needed).min_by(Bytes::total_cmp);
    let needs = needed.map_or_else(String::new, |needed| format!(" (needs {needed})"));
    let smaller = predictions.iter().filter_map(|one| memory::micro_batch(&one.memory, &all.workload)).max();
    if let Some(smaller) = smaller {
        return Some(format!("the step fits on no GPU{needs}, but micro-batches of up to {smaller} do"));
    }
    Some(format!("the step fits on no GPU{needs}; --sharding zero3 or --tensor-parallel N divides it"))
}

/// Reason for a missing figure of work per dollar, with the remedy.
fn no_value(app: &App) -> &'static str {
    if no_room(app).is_some() {
        "the step does not fit on any GPU"
    } else if app.predict.rows.iter().any(|row| row.value.is_some()) {
        "unknown batch size: pass --batch-size N"
    } else {
        "no usable on-demand offer"
    }
}

fn waiting(app: &App) -> Vec<String> {
    let why = predict::state_line(app).or_else(|| no_room(app));
    vec![why.unwrap_or_else(|| "no prediction yet".to_owned())]
}

fn fastest(app: &App) -> Answer {
    let found = app.predictions.value().and_then(|all| answer::fastest(all, &app.predict.picks));
    of_predictions(app, "Fastest GPU", found).unwrap_or_else(|| Answer {
        question: "Fastest GPU",
        answer: None,
        detail: waiting(app),
        stale: app.predictions.stale_words("settings"),
    })
}

fn best_value(app: &App) -> Answer {
    let question = "Best value";
    let found = app.predictions.value().and_then(|all| answer::best_value(all, &app.predict.picks));
    of_predictions(app, question, found).unwrap_or_else(|| {
        let detail = if app.predictions.value().is_some() {
            vec![no_value(app).to_owned()]
        } else if predict::failed(app) {
            vec![predict::NEEDS_PREDICTION.to_owned()]
        } else {
            waiting(app)
        };
        Answer { question, answer: None, detail, stale: app.predictions.stale_words("settings") }
    })
}

/// Converts an answer about predictions to that of the screen.
fn of_predictions(app: &App, question: &'static str, found: Option<answer::Answer>) -> Option<Answer> {
    let answer::Answer { answer, detail, .. } = found?;
    Some(Answer { question, answer: Some(answer), detail, stale: app.predictions.stale_words("settings") })
}

/// Doubts about a price, in parentheses.
fn doubt(marks: &str) -> String {
    if marks.is_empty() { String::new() } else { format!(" (in doubt: {marks})") }
}

/// The best offer with something to accept, with what the work costs if that offer fails.
fn alternative(plan: &Plan) -> Option<String> {
    let best = plan.beside.first()?;
    let (cost, hours) = (format::usd(best.part.cost.mid), format::hours_mid(&best.part.hours));
    let fails = beside::risk(best.setback(), best.then.as_ref());
    Some(format!("{}: {}, {cost} in {hours}; {fails}", beside::heading(plan), beside::what(best)))
}

fn recommended(app: &App) -> Answer {
    let question = "Recommended offer";
    let stale = plan::stale_words(app);
    let found = app.plan.value().and_then(|plan: &Plan| Some((plan, plan.parts.first()?, plan.total.as_ref()?)));
    let Some((plan, first, total)) = found else {
        let detail = match app.plan.value() {
            Some(plan) if !plan.beside.is_empty() => {
                vec![format!("no firm offer meets the limits; with {}", beside::gain(&plan.beside[0]))]
            }
            Some(plan) => plan.reasons.first().map_or_else(
                || vec!["no plan meets the limits".to_owned()],
                |reason| vec![clean(&reason.words(), 200)],
            ),
            None if predict::failed(app) => vec![predict::NEEDS_PREDICTION.to_owned()],
            None => vec![plan::state_line(app).unwrap_or_else(|| "waiting for the prediction".to_owned())],
        };
        return Answer { question, answer: None, detail, stale };
    };
    // A GPU with too little memory for the batch takes it in pieces.
    let is_whole = first.parallel.is_none() && first.sharding == Sharding::None;
    let is_small = is_whole && app.predict.rows.iter().any(|row| row.slug == first.gpu && row.fits == Fits::No);
    let batches = match (first.accumulation, first.batch_size) {
        (1, Some(batch)) if is_small => format!(" · fits only with a batch of {batch}"),
        (1, _) | (_, None) => String::new(),
        (times, Some(batch)) if is_small => format!(" · fits only in {times} micro-batches of {batch}"),
        (times, Some(batch)) => format!(" · {times} micro-batches of {batch} a step"),
    };
    let more = if plan.parts.len() > 1 { format!(" and {} more", plan.parts.len() - 1) } else { String::new() };
    Answer {
        question,
        answer: Some(format!(
            "{} in {} for {}",
            format::usd(total.cost.mid),
            format::hours_mid(&total.hours),
            plan::work_words(app)
        )),
        detail: vec![
            format!(
                "{}{}{}{more}{batches}",
                plan::offer_words(first),
                beside::layout_words(first),
                doubt(&marks(&first.offer.trust.doubts))
            ),
            format!(
                "{} · {} · {}",
                format::usd_range(&total.cost),
                format::hours_range(&total.hours),
                plan::method_of(app, first),
            ),
        ]
        .into_iter()
        .chain(first.offer.trust.age_days.map(|days| format!("price {days} days old")))
        .chain(beside::bargain(plan))
        .chain(alternative(plan))
        .collect(),
        stale,
    }
}
