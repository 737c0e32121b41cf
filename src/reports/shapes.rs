//! Steps traced by their shapes, as tables by batch size and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::format;
use super::table::{Cell, Column, Table};
use super::words::Words;
use habitat_base::text;
use habitat_base::units::{Bytes, Flops};
use habitat_prediction::memory::MemoryLine;
use habitat_step::op::StepWork;
use habitat_step::profile::{Memory, Profile};

/// A traced step with its computed work.
#[derive(Debug)]
pub struct Traced<'a> {
    profile: &'a Profile,
    place: String,
    work: StepWork,
}

impl<'a> Traced<'a> {
    /// Computes the work of a profile that was written to `place`.
    pub fn of(profile: &'a Profile, place: String) -> Self {
        Self { profile, place, work: StepWork::of(profile) }
    }

    fn memory(&self) -> Option<&Memory> {
        self.profile.step.as_ref()?.memory.as_ref()
    }

    fn batch(&self) -> Option<u64> {
        self.profile.workload.batch_size
    }
}

/// Linear fit of memory to batch size, for two sizes or more.
fn line(traced: &[Traced<'_>]) -> Option<MemoryLine> {
    let sized: Vec<(u64, &Profile)> =
        traced.iter().filter_map(|traced| Some((traced.batch()?, traced.profile))).collect();
    if sized.len() < 2 { None } else { MemoryLine::of_profiles(&sized) }
}

/// Work of each step, a row for each batch size.
fn work_table(traced: &[Traced<'_>]) -> Table {
    let mut table = Table::new(&[
        Column::number("batch", "batch_size"),
        Column::number("calls", "calls"),
        Column::number("FLOPs", "flops"),
        Column::number("forward", "forward_flops"),
        Column::number("backward", "backward_flops"),
        Column::number("memory traffic", "bytes"),
    ]);
    for traced in traced {
        let work = &traced.work;
        let flops = |flops: Flops| Cell::new(format::short_count(flops.get()), flops.get());
        table.push(vec![
            batch(traced),
            Cell::new(format::grouped(work.calls as f64), work.calls),
            flops(work.flops()),
            flops(work.forward),
            flops(work.backward),
            bytes(work.bytes),
        ]);
    }
    table
}

/// Peak memory of each step, a row for each batch size.
fn memory_table(traced: &[Traced<'_>]) -> Table {
    let mut table = Table::new(&[
        Column::number("batch", "batch_size"),
        Column::number("peak memory", "peak_memory_bytes"),
        Column::number("parameters", "parameters_bytes"),
        Column::number("gradients", "gradients_bytes"),
        Column::number("optimizer state", "optimizer_state_bytes"),
        Column::number("activations", "activations_bytes"),
        Column::number("temporary", "temporary_bytes"),
    ]);
    for traced in traced {
        let Some(memory) = traced.memory() else { continue };
        let kinds = memory.kinds().map(|(_, kind)| bytes(kind));
        table.push([batch(traced), bytes(memory.total())].into_iter().chain(kinds).collect());
    }
    table
}

fn batch(traced: &Traced<'_>) -> Cell {
    Cell::maybe(traced.batch(), |batch| Cell::new(format::grouped(batch as f64), batch))
}

fn bytes(bytes: Bytes) -> Cell {
    Cell::new(bytes.to_string(), bytes.get())
}

/// Writes the tables and notes as text.
///
/// # Errors
/// Write errors of `out`.
pub fn write_text(traced: &[Traced<'_>], out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = traced.first() else { return Ok(()) };
    let workload = &first.profile.workload;
    let mut facts = vec![workload.mode.to_string()];
    facts.extend(workload.sequence_length.map(|length| format!("sequence {length}")));
    facts.extend(workload.precision.map(|precision| precision.to_string()));
    facts.extend(workload.parameter_count.map(|count| format!("{} parameters", format::short_count(count as f64))));
    writeln!(out, "{}: {}", text::clean(&workload.name, 80), facts.join(" · "))?;
    writeln!(out, "traced by shapes: the step was not run or measured\n")?;
    work_table(traced).write_text(out)?;
    writeln!(out)?;
    memory_table(traced).write_text(out)?;
    writeln!(out)?;
    writeln!(
        out,
        "FLOPs of matrix products and convolutions, a multiply-add counted as two; memory traffic: bytes that all calls read and write"
    )?;
    if let Some(line) = line(traced) {
        writeln!(out, "{}", line.note(false).words())?;
    }
    let unknown = first.work.unknown;
    if unknown > 0 {
        writeln!(out, "note: {unknown} calls are not counted: their work cannot be derived from their shapes")?;
    }
    for note in notes(traced) {
        writeln!(out, "note: {}", text::clean(note, 400))?;
    }
    let places: Vec<&str> = traced.iter().map(|traced| traced.place.as_str()).collect();
    writeln!(out, "\nwritten to {}", places.join(", "))?;
    let words: Vec<String> = places.iter().map(|place| text::shell_word(place)).collect();
    match words.as_slice() {
        [place] => writeln!(out, "next: habitat-tui predict {place}, or habitat-tui {place}"),
        _ => writeln!(out, "next: habitat-tui batches {} --to h100-sxm5-80gb", words.join(" ")),
    }
}

/// Notes of all traces without duplicates.
fn notes<'a>(traced: &'a [Traced<'a>]) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for note in traced.iter().filter_map(|traced| traced.profile.recording.as_ref()).flat_map(|r| &r.notes) {
        if !found.contains(&note.as_str()) {
            found.push(note);
        }
    }
    found
}

/// JSON form with all data (`habitat-shapes`, version 1). `plan`: flags of the layout that the training command has.
pub fn json(target: &str, traced: &[Traced<'_>], plan: &[(&str, String)]) -> Value {
    let steps: Vec<Value> = traced
        .iter()
        .map(|traced| {
            let work = &traced.work;
            json!({
                "profile": traced.place,
                "workload": traced.profile.workload,
                "operations": traced.profile.operations.len(),
                "calls": work.calls,
                "calls_not_counted": work.unknown,
                "flops": {
                    "forward": work.forward, "backward": work.backward, "other": work.other, "all": work.flops(),
                },
                "bytes": work.bytes,
                "peak_memory_bytes": traced.profile.step.as_ref().and_then(|step| step.peak_memory_bytes),
                "memory": traced.memory(),
            })
        })
        .collect();
    json!({
        "format": "habitat-shapes",
        "version": 1,
        "target": target,
        "steps": steps,
        "plan": plan.iter().flat_map(|(flag, value)| [*flag, value.as_str()]).collect::<Vec<_>>(),
        "memory_line": line(traced).map(|line| json!({
            "fixed_bytes": line.fixed, "per_sample_bytes": line.per_sample,
        })),
        "notes": notes(traced),
    })
}
