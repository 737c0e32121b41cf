//! Report for use without a terminal: the recorded step, step times on other GPUs, and the cost.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::table::hidden;
use super::words::assumed::assumed;
use super::words::{self, Words};
use super::{beside, format, layouts, memory, parts, predictions, uses, waits};
use habitat_base::text;
use habitat_base::units::GpuSlug;
use habitat_planning::plan::{Plan, Rejection, RejectionKind};
use habitat_planning::pricing::PriceBook;
use habitat_prediction::{Predictions, communicates};
use habitat_step::profile::breakdown::{Breakdown, Entry, GroupBy, PhaseTime, Segment};
use habitat_step::profile::{Origin, Profile, Workload, modules};

/// Operations listed at most.
const TOP: usize = 8;
/// Modules listed at most.
const MODULES: usize = 16;
/// Rejected offers listed, unless the user requests all.
const REJECTED: usize = 8;

/// Mode, batch size, sequence length, precision and parameters, if known.
pub fn workload_facts(workload: &Workload) -> String {
    let mut facts = vec![workload.mode.to_string()];
    facts.extend(workload.batch_size.map(|batch| format!("batch {batch}")));
    facts.extend(workload.sequence_length.map(|length| format!("sequence {length}")));
    facts.extend(workload.precision.map(|precision| precision.to_string()));
    facts.extend(workload.parameter_count.map(|count| format!("{} parameters", format::short_count(count as f64))));
    facts.join(" · ")
}

/// Number of steps behind a measured time.
pub fn steps_measured(steps: u32) -> String {
    if steps == 1 { "1 step".to_owned() } else { format!("median of {steps} steps") }
}

/// Writes the recorded step in two lines: workload and GPU, then the breakdown of its time.
///
/// # Errors
/// Write errors of `out`.
pub fn write_step(profile: &Profile, label: &str, out: &mut dyn Write) -> io::Result<()> {
    let (workload, breakdown) = (&profile.workload, Breakdown::of(profile));
    let name = text::clean(&workload.name, 80);
    writeln!(out, "{name} ({label}): {} · {}", workload_facts(workload), origin_words(profile))?;
    let mut facts: Vec<String> = Vec::new();
    let split = breakdown.busy_idle.as_ref().filter(|split| split.step.get() > 0.0);
    let scale = split.map_or(1.0, |split| split.busy / split.step);
    facts.extend(split.map(|split| {
        let samples = profile.step.as_ref().and_then(|step| step.samples);
        let over = samples.map_or_else(String::new, |samples| format!(", {}", steps_measured(samples)));
        let with = if communicates(profile) { ", including communication with other GPUs" } else { "" };
        format!("step {} measured{over}{with}: GPU idle {}", format::time(split.step), format::percent(1.0 - scale))
    }));
    facts.extend(phase_words(&breakdown, scale));
    facts.extend(memory::words(profile));
    writeln!(out, "  {}", if facts.is_empty() { "no GPU timings".to_owned() } else { facts.join(" · ") })
}

/// Phases with their shares times `scale`.
fn phase_words(breakdown: &Breakdown, scale: f64) -> impl Iterator<Item = String> {
    let words = move |phase: &PhaseTime| {
        format!("{} {}", phase.phase.name().replace('_', " "), format::percent(phase.share * scale))
    };
    breakdown.phases.iter().map(words)
}

fn origin_words(profile: &Profile) -> String {
    let Some(origin) = &profile.origin else {
        return "shapes only, no GPU timings".to_owned();
    };
    let name = match (&origin.gpu, origin.gpu_name.as_deref().map(|name| text::clean(name, 90))) {
        (Some(slug), Some(name)) => format!("{name} ({slug})"),
        (Some(slug), None) => slug.to_string(),
        (None, Some(name)) => format!("{name} (not in the catalog)"),
        (None, None) => "an unnamed GPU".to_owned(),
    };
    format!("recorded on {name}")
}

/// GPU and software of the recording, in one line.
pub fn recorded_on(origin: &Origin) -> String {
    let mut parts: Vec<String> = Vec::new();
    let gpu = origin.gpu_name.clone().or_else(|| origin.gpu.as_ref().map(ToString::to_string));
    parts.push(gpu.map_or_else(|| "GPU unknown".to_owned(), |gpu| text::clean(&gpu, 40)));
    parts.extend(origin.framework.as_ref().map(|framework| text::clean(framework, 24)));
    parts.extend(origin.cuda.as_ref().map(|cuda| format!("CUDA {}", text::clean(cuda, 12))));
    parts.extend(origin.driver.as_ref().map(|driver| format!("driver {}", text::clean(driver, 16))));
    parts.join(" · ")
}

/// Writes the recording: workload, origin, step, phases and the longest operations.
///
/// # Errors
/// Write errors of `out`.
pub fn write_profile(profile: &Profile, label: &str, out: &mut dyn Write) -> io::Result<()> {
    let workload = &profile.workload;
    writeln!(out, "{} ({label})", text::clean(&workload.name, 80))?;
    writeln!(out, "  {}", workload_facts(workload))?;
    writeln!(out, "  {}", origin_words(profile))?;
    let breakdown = Breakdown::of(profile);
    if let Some(split) = &breakdown.busy_idle {
        let samples = profile.step.as_ref().and_then(|step| step.samples);
        let over = samples.map_or_else(String::new, |samples| format!(", {}", steps_measured(samples)));
        writeln!(
            out,
            "  step {} measured{}{over}{}; device busy {} ({})",
            format::time(split.step),
            if profile.step.as_ref().is_some_and(|step| step.profiled) { " under the profiler" } else { "" },
            if communicates(profile) { ", including communication with other GPUs" } else { "" },
            format::time(split.busy),
            format::percent(split.busy / split.step)
        )?;
    }
    if let Some(words) = memory::words(profile) {
        writeln!(out, "  {words}")?;
    }
    if breakdown.total.get() > 0.0 {
        writeln!(out, "  of GPU time: {}", phase_words(&breakdown, 1.0).collect::<Vec<_>>().join(" · "))?;
        let segments = Breakdown::segments(profile, |operation| habitat_step::op::family(operation).name());
        writeln!(out, "  {}", step_words(&segments))?;
        let entries =
            Breakdown::entries(profile, GroupBy::Name, None, |operation| habitat_step::op::family(operation).name());
        for entry in entries.iter().take(TOP) {
            let name = text::clean(&entry.label, 48);
            writeln!(
                out,
                "    {name:<48} {:>9}  {:>7}  ×{}",
                format::time(entry.time),
                format::percent(entry.share),
                entry.count
            )?;
        }
    }
    if let Some(waits) = waits::words(profile) {
        writeln!(out, "  {waits}")?;
    }
    write_modules(profile, out)?;
    if let Some(recording) = &profile.recording {
        for note in &recording.notes {
            writeln!(out, "  note: {}", text::clean(note, 400))?;
        }
    }
    Ok(())
}

/// Writes the tree of the modules with the most device time, of at least 2 %; writes nothing if no modules were
/// recorded.
fn write_modules(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    if profile.operations.iter().all(|operation| operation.module.is_none()) {
        return Ok(());
    }
    let entries =
        Breakdown::entries(profile, GroupBy::Module, None, |operation| habitat_step::op::family(operation).name());
    let paths: Vec<&str> = entries.iter().map(|entry| entry.label.as_str()).collect();
    let tree = modules::tree(&paths, |place| entries[place].time.get());
    let share = |node: &modules::Node| node.places.iter().map(|&place| entries[place].share).sum::<f64>();
    // A module has at least the share of each module in it, so the tree of the largest is whole.
    let mut shares: Vec<f64> = tree.iter().map(&share).collect();
    shares.sort_by(|a, b| b.total_cmp(a));
    let least = shares.get(MODULES).map_or(0.02, |next| next.max(0.02) + f64::EPSILON);
    let listed = tree.iter().filter(|node| share(node) >= least);
    for (index, node) in listed.enumerate() {
        if index == 0 {
            writeln!(out, "  by module:")?;
        }
        let name = "  ".repeat(node.depth.min(10)) + &text::clean(modules::name(&node.path), 48);
        let time = node.places.iter().map(|&place| entries[place].time).sum();
        writeln!(out, "    {name:<48} {:>9}  {:>7}", format::time(time), format::percent(share(node)))?;
    }
    Ok(())
}

/// The modules with the most device time of their own, without that of their submodules, at most `count`; empty if no
/// modules or times were recorded.
pub fn slowest_layers(profile: &Profile, count: usize) -> Vec<Entry> {
    let entries =
        Breakdown::entries(profile, GroupBy::Module, None, |operation| habitat_step::op::family(operation).name());
    let is_layer = |entry: &Entry| entry.operations.iter().any(|&place| profile.operations[place].module.is_some());
    entries.into_iter().filter(|entry| is_layer(entry) && entry.time.get() > 0.0).take(count).collect()
}

/// Breakdown of the step in one line: parts of at least 1 %, and the sum of the others.
fn step_words(segments: &[Segment]) -> String {
    let (listed, others): (Vec<&Segment>, Vec<&Segment>) = segments.iter().partition(|segment| segment.share >= 0.01);
    let words = |segment: &Segment| {
        let phase = segment.phase.map_or_else(String::new, |phase| format!("{phase} "));
        format!("{phase}{} {}", segment.kind, format::percent(segment.share))
    };
    let mut parts: Vec<String> = listed.into_iter().map(words).collect();
    if !others.is_empty() {
        parts.push(format!("others {}", format::percent(others.iter().map(|segment| segment.share).sum())));
    }
    format!("of the step: {}", parts.join(" · "))
}

/// Writes the table of predictions, in at most `width` cells if there is a limit, and the notes on all predictions.
///
/// # Errors
/// Write errors of `out`.
pub fn write_predictions(
    predictions: &Predictions,
    prices: &PriceBook,
    width: Option<u16>,
    out: &mut dyn Write,
) -> io::Result<()> {
    predictions::write_warnings(&predictions.warnings(), out)?;
    let table = predictions::table(predictions, prices);
    let dropped = table.write_fitted(width, out)?;
    if !dropped.is_empty() || !predictions.notes.is_empty() {
        writeln!(out)?;
    }
    if !dropped.is_empty() {
        writeln!(out, "{}", hidden(&dropped))?;
    }
    for note in words::all(&predictions.notes) {
        writeln!(out, "note: {note}")?;
    }
    if let Some(words) = memory::micro_batch_note(predictions) {
        writeln!(out, "note: {words}")?;
    }
    if predictions.workload.batch_size.is_none_or(|batch| batch == 0) {
        writeln!(out, "note: samples/s and samples/$ need the batch size: pass --batch-size N")?;
    }
    Ok(())
}

/// Writes the plan in short, the offers to accept, and their risks.
fn write_answer(plan: &Plan, prices: &PriceBook, out: &mut dyn Write) -> io::Result<()> {
    if let Some(verdict) = beside::verdict(plan) {
        let room = beside::room(plan).into_iter().map(|room| format!("; {room}"));
        writeln!(out, "{verdict}\n  {}{}", beside::status_words(plan), room.collect::<String>())?;
        for line in beside::caveats(plan) {
            writeln!(out, "  {line}")?;
        }
    } else {
        writeln!(out, "{}", beside::no_plan(plan))?;
        for reason in words::no_plan(&plan.reasons) {
            writeln!(out, "  {reason}")?;
        }
    }
    for line in beside::own(plan, prices) {
        writeln!(out, "{line}")?;
    }
    if !plan.beside.is_empty() {
        writeln!(out, "{}:", beside::heading(plan))?;
    }
    for [gain, risk] in plan.beside.iter().map(beside::lines) {
        writeln!(out, "  {gain}\n    {risk}")?;
    }
    for concession in beside::concessions(plan) {
        writeln!(out, "{concession}")?;
    }
    writeln!(out)
}

/// Writes the plan, its alternatives and the reasons of rejected offers, with tables in at most `width` cells if there is
/// a limit.
///
/// # Errors
/// Write errors of `out`.
pub fn write_plan(
    plan: &Plan,
    (predictions, prices): (&Predictions, &PriceBook),
    all_rejected: bool,
    width: Option<u16>,
    out: &mut dyn Write,
) -> io::Result<()> {
    write_answer(plan, prices, out)?;
    predictions::write_warnings(&plan.warnings, out)?;
    match &plan.total {
        None => {
            let is_small = |rejected: &&Rejection| rejected.reason.kind() == RejectionKind::Memory;
            let small = plan.rejected.iter().filter(is_small).filter_map(|rejected| prices.get(&rejected.offer));
            let small: BTreeSet<&GpuSlug> = small.filter_map(|offer| offer.gpu.as_ref()).collect();
            memory::write_remedies(predictions, |one| small.contains(&one.gpu.slug), out)?;
        }
        Some(total) => {
            let work = format::grouped(plan.work.get());
            let footprint = parts::footprint_words(&total.footprint);
            writeln!(out, "work: {work} {}; energy: {footprint}", plan.work.unit())?;
            parts::table(&plan.parts).write_lines(width, out)?;
            for part in &plan.parts {
                if let Some(batch) = parts::batch_words(part) {
                    writeln!(out, "  batch: {batch}")?;
                }
                for note in words::of_all(&part.notes) {
                    writeln!(out, "  {note}")?;
                }
            }
        }
    }
    for note in plan.notes.iter().filter(|note| !beside::is_caveat(note)).map(Words::words) {
        writeln!(out, "note: {note}")?;
    }
    if !plan.layouts.is_empty() {
        writeln!(out, "\nLayouts of these machines:")?;
        layouts::table(plan).write_fitted(width, out)?;
    }
    if plan.total.is_some() {
        writeln!(out, "\nTime and cost of the plan:")?;
        uses::table(plan).write_fitted(width, out)?;
        let legend = uses::legend(plan, false);
        if !legend.is_empty() {
            writeln!(out, "  {legend}")?;
        }
    }
    if !plan.alternatives.is_empty() {
        writeln!(out, "\nNext best:")?;
        parts::table(&plan.alternatives).write_fitted(width, out)?;
    }
    if !plan.rejected.is_empty() {
        let shown = if all_rejected { plan.rejected.len() } else { REJECTED };
        let rejected: Vec<&Rejection> = plan.closest_rejected().into_iter().map(|at| &plan.rejected[at]).collect();
        let counts = rejected.chunk_by(|a, b| a.reason.kind() == b.reason.kind());
        let counts = counts.map(|of| format!("{} {}", of.len(), words::plan::kind(of[0].reason.kind())));
        let counts: Vec<String> = counts.collect();
        writeln!(out, "\nRejected ({} offers: {}):", rejected.len(), counts.join(", "))?;
        for rejected in rejected.iter().take(shown) {
            writeln!(out, "  {}: {}", rejected.offer, rejected.reason.words())?;
        }
        if rejected.len() > shown {
            writeln!(out, "  … {} more with --rejected", rejected.len() - shown)?;
        }
    }
    writeln!(out, "\nAssumptions:")?;
    for assumed in assumed(&plan.goal) {
        writeln!(out, "  {}: {} ({})", assumed.name, assumed.value, assumed.source)?;
    }
    Ok(())
}
