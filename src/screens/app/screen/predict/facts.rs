//! Details of the selected GPU, below the table.

use super::{range_and_method, selected_prediction};
use crate::app::App;
use habitat_base::text::clean;
use habitat_prediction::finding::{Finding, WaitCounts};
use habitat_reports::words::{self, Words};
use habitat_reports::{format, memory};

/// Number of lines that decide whether the GPU can be used: up to its memory, and the remedy if the step does not fit.
pub fn deciding(facts: &[(String, String)]) -> usize {
    facts.iter().rposition(|(label, _)| ["memory", TOO_LARGE].contains(&&**label)).map_or(0, |at| at + 1)
}

/// Label of the remedy.
const TOO_LARGE: &str = "too large";

/// Details and doubts about the selected GPU, as label and text per line.
pub fn facts(app: &App) -> Vec<(String, String)> {
    let Some(prediction) = selected_prediction(app) else { return Vec::new() };
    let mut lines: Vec<(String, String)> = Vec::new();
    let step = prediction.step.as_estimate();
    let mut line = |label: &str, text: String| lines.push((label.to_owned(), text));
    let mut words = format!("{} ({})", format::time(step.range.mid), range_and_method(&step));
    if let Some(rate) = &prediction.throughput {
        let [low, mid] = [rate.low, rate.mid].map(|rate| format::number(rate.get()));
        let range =
            rate.high.map_or_else(|| format!("from {low}"), |high| format::low_high(&low, format::number(high.get())));
        words = format!("{words} · {mid} samples/s ({range})");
    }
    line("step", words);
    let row = app.predict.rows.iter().find(|row| row.slug == prediction.gpu.slug);
    let speed_up = row.and_then(|row| super::speed_up(app, row)).zip(super::precision(app));
    if let Some(((times, now), before)) = speed_up.zip(app.setup.profile.workload.precision) {
        line("precision", format!("{now}: {} as in {before}", format::speed(times)));
    }
    // Memory and warnings first: a small screen shows only a few lines.
    line("memory", clean(&prediction.memory.basis.words(), 300));
    let workload = app.predictions.value().map(|predictions| &predictions.workload);
    if let Some(remedies) = workload.and_then(|workload| memory::remedies(prediction, workload)) {
        line(TOO_LARGE, remedies);
    }
    for brief in super::words(&prediction.warnings, true) {
        line("warning", brief);
    }
    if let Some(value) = row.and_then(|row| row.value.as_ref()) {
        let amount = value.per_usd.map_or_else(
            || "samples/$ unknown: pass --batch-size N".to_owned(),
            |it| format!("{} samples/$ ({})", format::short_count(it.mid), format::short_range(it.low, it.high)),
        );
        let doubt = if value.marks.is_empty() { String::new() } else { format!(" in doubt ({})", value.marks) };
        line("value", format!("{} per GPU{doubt} · {amount} · {}", format::price(value.price), value.offer));
        if !value.doubts.is_empty() {
            line("price", format!("in doubt: {}", value.doubts));
        }
    } else if row.is_some_and(|row| row.on_spot) {
        line("value", "no usable on-demand offer; see the plan screen for spot offers".to_owned());
    } else {
        line("value", "no usable offer".to_owned());
    }
    if prediction.shares.len() > 1 {
        let shares: Vec<String> = prediction
            .shares
            .iter()
            .map(|share| format!("{} {}", share.method, format::percent(share.share)))
            .collect();
        line("methods", format!("{} of device time", shares.join(" · ")));
    }
    let data = prediction.data_wait();
    let cpu = prediction.host_idle.checked_sub(data).unwrap_or_default();
    let waits =
        [(cpu, "waiting for the CPU"), (data, "waiting for data")].into_iter().filter(|(time, _)| time.get() > 0.0);
    let waits: Vec<String> = waits.map(|(time, what)| format!("{} {what}", format::time(time))).collect();
    if !waits.is_empty() {
        line("host", format!("GPU idle {} per step", waits.join(" and ")));
    }
    for text in super::words(&prediction.warnings, false) {
        line("warning", text);
    }
    for note in words::all(&prediction.notes) {
        line("note", clean(&note, 400));
    }
    if let Some(predictions) = app.predictions.value() {
        // The line of the host has the wait.
        let is_above = |note: &&Finding| matches!(note, Finding::CpuWait { counts: WaitCounts::Kept, .. });
        for note in predictions.notes.iter().filter(|note| !is_above(note)) {
            line("note", clean(&note.words(), 400));
        }
    }
    lines
}
