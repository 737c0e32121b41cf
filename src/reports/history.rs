//! History of a job: parts of its steps over days, and findings.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::table::{Cell, Column, Table};
use super::verdict::{Verdict, beside};
use super::{aside, format, kept, ranks};
use habitat_base::units::{Bytes, Hours, Micros};
use habitat_recorder::live::history::{self, Digest, History, Kind, Parts, Step, Stretch};

/// Ratio of late steps to early ones from which the change stands out.
const SLOWER: f64 = 1.15;
/// Growth of the memory that stands out: by this factor and by this many MiB.
const GROWN: (f32, f32) = (1.2, 512.0);
/// Share of the time of training steps from which late ones are mentioned.
const LATE_TIME: f64 = 0.1;
/// Labels of the parts of a step, in the order of [`shares`].
const PARTS: [&str; 5] = ["input", "forward", "backward", "optimizer", "rest"];

/// Shares of a training step: input, forward, backward, optimizer, rest; `None` if unknown.
fn shares(stretch: &Stretch) -> [Option<f64>; 5] {
    let [input, forward, backward, optimizer, _] = stretch.parts.all();
    // Not all steps have parts, and those with parts may be the longer ones.
    let parts = [input, forward, backward, optimizer].into_iter().filter(|part| !part.is_nan()).sum();
    let of = stretch.total[1].max(parts);
    let known = |value: f32| (!value.is_nan()).then(|| f64::from(value / of).clamp(0.0, 1.0));
    let rest = stretch.parts.rest(stretch.total[1]).unwrap_or(f32::NAN);
    [input, forward, backward, optimizer, rest].map(known)
}

fn time(micros: f32) -> String {
    Micros::new(f64::from(micros)).map_or_else(|_| "–".to_owned(), format::time)
}

fn span(tenths: u32) -> String {
    format::hours(Hours::known(f64::from(tenths) / 36_000.0))
}

fn memory(mebibytes: f32) -> String {
    Bytes::new(f64::from(mebibytes) * f64::from(1 << 20)).map_or_else(|_| "–".to_owned(), |bytes| bytes.to_string())
}

/// In whole percent, with a digit more below 1 %.
fn whole(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Mean times of training steps in eighths of the highest, at least one, for each slice that has some; and the highest,
/// in microseconds.
pub fn heights(digest: &Digest) -> Option<(Vec<u64>, f32)> {
    let means = || digest.slices.iter().map(|slice| slice.total[1]).filter(|mean| !mean.is_nan());
    let top = means().fold(0.0_f32, f32::max);
    let eighths = |mean: f32| ((mean / top * 8.0).ceil() as u64).clamp(1, 8);
    (top > 0.0).then(|| (means().map(eighths).collect(), top))
}

/// The same as a line of text.
fn spark(heights: &[u64]) -> String {
    let bars: Vec<char> = " ▁▂▃▄▅▆▇█".chars().collect();
    heights.iter().filter_map(|height| bars.get(*height as usize)).collect()
}

/// Time that is covered.
pub fn covered(digest: &Digest) -> Option<String> {
    digest.total.map(|total| span(total.to.saturating_sub(total.from)))
}

/// Labels and texts: steps, their spread and parts, what ran beside the training, memory, what changed, and the
/// bottleneck, as the screens show it.
fn lines(digest: &Digest, verdict: &Result<Verdict, String>, at_least: bool) -> Vec<(&'static str, String)> {
    let Some(total) = digest.total else { return Vec::new() };
    let mut lines = Vec::new();
    if total.steps > 0 {
        let [low, mean, high] = total.total.map(time);
        let count = kept::at_least(u64::from(total.steps), at_least);
        lines.push((
            "steps",
            format!(
                "{count} training steps of {mean} ({low} to {high}) in {}",
                span(total.to.saturating_sub(total.from))
            ),
        ));
    }
    lines.extend(spread(digest).map(|words| ("spread", words)));
    lines.extend(parts(&total).map(|words| ("parts", words)));
    lines.extend(aside(digest).map(|words| ("beside", words)));
    lines.extend(memory_words(digest, &total).map(|words| ("memory", words)));
    if !total.busy.is_nan() {
        lines.push(("GPUs", format!("{} busy on average", whole(f64::from(total.busy)))));
    }
    let verdict = verdict.as_ref().map_or_else(Clone::clone, Verdict::to_string);
    lines.extend(stands_out(digest).into_iter().filter(|words| *words != verdict).map(|words| ("finding", words)));
    lines.push(("verdict", verdict));
    lines
}

/// Median and deviation of the last training steps, and how many were late.
fn spread(digest: &Digest) -> Option<String> {
    let spread = digest.spread?;
    let late = if spread.late_time >= LATE_TIME {
        let (chance, cause) =
            if spread.by_chance { (" by chance", ", as when other programs use the processors") } else { ("", "") };
        format!("; {} are late{chance} and take {} of the time{cause}", whole(spread.late), whole(spread.late_time))
    } else {
        String::new()
    };
    let count = format::grouped(spread.steps as f64);
    Some(format!("median {} ± {} of the last {count}{late}", time(spread.median), time(spread.deviation)))
}

/// Parts of a training step; `None` if they are unknown.
fn parts(stretch: &Stretch) -> Option<String> {
    let words: Vec<String> = PARTS
        .iter()
        .zip(shares(stretch))
        .filter_map(|(name, share)| share.map(|share| format!("{name} {}", whole(share))))
        .collect();
    (!words.is_empty()).then(|| words.join(" · "))
}

/// Validations, checkpoints and other long steps.
pub fn aside(digest: &Digest) -> Option<String> {
    let [validations, checkpoints, long, first] = aside::beside(digest);
    // The first steps may take as long as all others.
    let first = first.filter(|work| work.each.get() > 0.0);
    let first_name = if long.is_some() { "other first or long steps" } else { "first or long steps" };
    let kinds = [("validation", validations), ("checkpoint", checkpoints), ("long steps", long), (first_name, first)];
    let words = kinds.into_iter().filter_map(|(name, work)| {
        let aside::Beside { count, each, share, period } = work?;
        let often = period.map(|steps| format!(" (every {} steps)", format::grouped(steps as f64))).unwrap_or_default();
        let share = if share > 0.0 { format!(", {} of the time", whole(share)) } else { String::new() };
        let (number, each) = (format::grouped(f64::from(count)), format::time(each));
        Some(match (name.strip_suffix(" steps"), count) {
            (Some(name), 1) => format!("{number} {name} step, {each} longer{share}"),
            (Some(_), _) => format!("{number} {name}{often}, {each} longer each{share}"),
            (None, 1) => format!("{number} {name} of {each}{share}"),
            (None, _) => format!("{number} {name}s{often} of {each}{share}"),
        })
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(" · "))
}

fn memory_words(digest: &Digest, total: &Stretch) -> Option<String> {
    let first = digest.slices.iter().map(|slice| slice.resident).find(|resident| !resident.is_nan())?;
    let peak = if total.peak.is_nan() {
        String::new()
    } else {
        format!(" · peak {} of tensors on the GPU", memory(total.peak))
    };
    let from = if first == total.resident { String::new() } else { format!(", {} at first", memory(first)) };
    Some(format!("{} resident{from}{peak}", memory(total.resident)))
}

/// Findings of the whole history: a slow rank, checkpoints, validations and other work that take long, the one that takes
/// most first; then steps that became slower, memory that grew.
pub fn stands_out(digest: &Digest) -> Vec<String> {
    let late = ranks::late_ever(digest).map(|late| (late.waited * aside::trained(digest), late.words));
    let beside = beside(digest).into_iter().map(|(share, verdict)| (share, verdict.to_string()));
    let mut long: Vec<(f64, String)> = late.into_iter().chain(beside).collect();
    long.sort_by(|a, b| b.0.total_cmp(&a.0));
    long.into_iter().map(|(_, words)| words).chain(slower(digest)).chain(grown(digest)).collect()
}

/// Steps that became slower: the last quarter of the time against the first.
fn slower(digest: &Digest) -> Option<String> {
    let slices: Vec<Stretch> = digest.slices.iter().filter(|slice| slice.steps > 0).copied().collect();
    if slices.len() < 8 {
        return None;
    }
    let quarter = slices.len() / 4;
    let of = |slices: &[Stretch]| history::total(slices.iter().copied());
    let (early, late) = (of(&slices[..quarter])?, of(&slices[slices.len() - quarter..])?);
    if f64::from(late.total[1] / early.total[1]) < SLOWER {
        return None;
    }
    let micros = |stretch: &Stretch| {
        let mut all = [0.0; 5];
        for (value, share) in all.iter_mut().zip(shares(stretch)) {
            *value = share.unwrap_or(f64::NAN) * f64::from(stretch.total[1]);
        }
        all
    };
    let (before, after) = (micros(&early), micros(&late));
    let grew = PARTS.iter().zip(before.iter().zip(after)).map(|(name, (before, after))| (name, before, after));
    let grew = grew.filter(|(_, before, after)| after > before).max_by(|a, b| (a.2 - a.1).total_cmp(&(b.2 - b.1)));
    let part = grew.map(|(name, before, after)| {
        format!(", most of it {name}: {} to {}", time(*before as f32), time(after as f32))
    });
    let [early, late] = [early, late].map(|stretch| time(stretch.total[1]));
    Some(format!("steps became slower: {early} to {late}{}", part.unwrap_or_default()))
}

/// Memory that grew.
fn grown(digest: &Digest) -> Option<String> {
    let known: Vec<f32> = digest.slices.iter().map(|slice| slice.resident).filter(|value| !value.is_nan()).collect();
    // Caches fill in the first slices.
    let (first, last) = (*known.get(known.len() / 8)?, *known.last()?);
    let is_grown = known.len() >= 8 && last >= first * GROWN.0 && last - first >= GROWN.1;
    is_grown.then(|| format!("memory grows: {} to {} resident", memory(first), memory(last)))
}

/// Writes the history as text, with a line over time. The number of steps may be a lower bound.
///
/// # Errors
/// Write errors of `out`.
pub fn write_text(
    digest: &Digest,
    verdict: &Result<Verdict, String>,
    (title, at_least): (&str, bool),
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{title}")?;
    if digest.total.is_none() {
        return writeln!(out, "  no steps timed yet");
    }
    if let Some((heights, top)) = heights(digest) {
        writeln!(out, "  over time  {}  mean step, bars from 0 to {}", spark(&heights), time(top))?;
    }
    for (label, words) in lines(digest, verdict, at_least) {
        writeln!(out, "  {label:<9}  {words}")?;
    }
    Ok(())
}

/// A cell with a number; unknown if it is NaN.
fn float(value: f32) -> Cell {
    if value.is_nan() { Cell::unknown() } else { Cell::text(value) }
}

/// A table of numbers with these names, apart by spaces.
fn numbers(names: &'static str) -> Table {
    Table::new(&names.split(' ').map(|name| Column::number(name, name)).collect::<Vec<_>>())
}

/// A row for each stretch of each rank, in order.
pub fn table(history: &History) -> Table {
    let names = "rank from_s to_s first_step training_steps min_us mean_us max_us input_us forward_us backward_us \
         optimizer_us rest_us rank_wait_us validations validation_s checkpoints checkpoint_s others other_s \
         resident_mib gpu_peak_mib gpu_busy";
    let mut table = numbers(names);
    for stretch in rows(history) {
        let mut row = vec![
            stretch.rank.map_or_else(Cell::unknown, Cell::text),
            Cell::text(f64::from(stretch.from) / 10.0),
            Cell::text(f64::from(stretch.to) / 10.0),
            Cell::text(stretch.first),
            Cell::text(stretch.steps),
        ];
        let [input, forward, backward, optimizer, idle] = stretch.parts.all();
        let rest = stretch.parts.rest(stretch.total[1]).unwrap_or(f32::NAN);
        row.extend(stretch.total.map(float));
        row.extend([input, forward, backward, optimizer, rest, idle].map(float));
        row.extend(stretch.aside.iter().flat_map(|(count, seconds)| [Cell::text(count), Cell::text(seconds)]));
        row.extend([stretch.resident, stretch.peak, stretch.busy].map(float));
        table.push(row);
    }
    table
}

fn rows(history: &History) -> Vec<Stretch> {
    match history.ranks()[..] {
        [] => history.stretches(),
        ref ranks => ranks.iter().flat_map(|rank| history.of_rank(Some(*rank))).collect(),
    }
}

/// A row for each of the last steps.
pub fn steps_table(history: &History) -> Table {
    let names = "step at_s kind time_us input_us forward_us backward_us optimizer_us rest_us rank_wait_us";
    let mut table = numbers(names);
    for step in &history.steps {
        let [input, forward, backward, optimizer, idle] = step.parts.all();
        let rest = step.parts.rest(step.total).unwrap_or(f32::NAN);
        let mut row = vec![Cell::text(step.step), Cell::text(f64::from(step.at) / 10.0), Cell::text(step.kind.name())];
        row.extend([step.total, input, forward, backward, optimizer, rest, idle].map(float));
        table.push(row);
    }
    table
}

/// A number; null if it is NaN.
fn known(value: f32) -> Option<f32> {
    (!value.is_nan()).then_some(value)
}

/// Parts of a step's time as JSON.
fn parts_json(parts: &Parts, total: f32) -> Value {
    let [input, forward, backward, optimizer, idle] = parts.all().map(known);
    json!({
        "input": input, "forward": forward, "backward": backward, "optimizer": optimizer,
        "rest": parts.rest(total), "rank_wait": idle,
    })
}

/// A step as JSON.
pub fn step_json(step: &Step) -> Value {
    json!({
        "step": step.step,
        "at_s": f64::from(step.at) / 10.0,
        "kind": step.kind.name(),
        "step_us": step.total,
        "parts_us": parts_json(&step.parts, step.total),
    })
}

/// A stretch as JSON.
pub fn stretch_json(stretch: &Stretch) -> Value {
    let [min, mean, max] = stretch.total.map(known);
    let aside: serde_json::Map<String, Value> = Kind::ASIDE
        .iter()
        .zip(stretch.aside)
        .map(|(kind, (count, seconds))| (kind.name().to_owned(), json!({"steps": count, "seconds": seconds})))
        .collect();
    json!({
        "rank": stretch.rank,
        "from_s": f64::from(stretch.from) / 10.0,
        "to_s": f64::from(stretch.to) / 10.0,
        "first_step": stretch.first,
        "training_steps": stretch.steps,
        "step_us": {"min": min, "mean": mean, "max": max},
        "parts_us": parts_json(&stretch.parts, stretch.total[1]),
        "beside": aside,
        "resident_mib": known(stretch.resident),
        "gpu_peak_mib": known(stretch.peak),
        "gpu_busy": known(stretch.busy),
    })
}

/// The history as JSON: the whole, its parts over time, what stands out, and the bottleneck.
pub fn json(digest: &Digest, history: &History, verdict: Option<&Verdict>) -> Value {
    json!({
        "total": digest.total.as_ref().map(stretch_json),
        "validation_every_steps": digest.period[0],
        "checkpoint_every_steps": digest.period[1],
        "other_every_steps": digest.period[2],
        "spread": digest.spread.map(|spread| json!({
            "steps": spread.steps, "median_us": spread.median, "deviation_us": spread.deviation,
            "late_share": spread.late, "late_time_share": spread.late_time,
        })),
        "findings": stands_out(digest),
        "verdict": verdict,
        "stretches": rows(history).iter().map(stretch_json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
