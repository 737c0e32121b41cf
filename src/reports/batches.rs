//! Tables and JSON of a workload at several batch sizes.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::format;
use super::predictions::write_warnings;
use super::table::{Cell, Column, Table};
use super::words::{self, Note, Words, joined};
use habitat_base::text;
use habitat_base::units::Micros;
use habitat_prediction::batches::{Basis, GpuSweep, Sweep, SweepRow};
use habitat_prediction::{Finding, Fits};

/// A row for each GPU and batch size.
pub fn table(sweep: &Sweep) -> Table {
    let mut table = Table::new(&[
        Column::text("GPU", "gpu"),
        Column::number("batch", "batch_size"),
        Column::number("step", "step_us"),
        Column::number("80 % range", ""),
        Column::number("", "low_us"),
        Column::number("", "high_us"),
        Column::number("", "low_90_us"),
        Column::number("", "high_90_us"),
        Column::number("samples/s", "samples_per_s"),
        Column::number("memory", "memory_bytes"),
        Column::text("fits", "fits"),
        Column::text("method", "method").dropped(1),
        Column::text("", "memory_reason"),
        Column::text("", "warnings"),
    ]);
    for gpu in &sweep.gpus {
        for row in &gpu.rows {
            table.push(cells(sweep, gpu, row));
        }
    }
    table
}

fn cells(sweep: &Sweep, gpu: &GpuSweep, row: &SweepRow) -> Vec<Cell> {
    let SweepRow { batch, step, wide, throughput, memory, .. } = row;
    let needed = memory.needed.or(memory.at_most);
    let at_most = memory.needed.is_none() || sweep.memory.is_some_and(|line| line.is_upper_bound());
    vec![
        Cell::text(&gpu.gpu.slug),
        Cell::new(format::grouped(*batch as f64), batch),
        Cell::new(format::time(step.range.mid), step.range.mid.get()),
        if step.range.low == step.range.high {
            Cell::unknown()
        } else {
            Cell::text(format::time_range(step.range.low, step.range.high))
        },
        Cell::text(step.range.low.get()),
        Cell::text(step.range.high.get()),
        Cell::text(wide[0].get()),
        Cell::text(wide[1].get()),
        Cell::maybe(throughput.as_ref(), |rate| Cell::new(format::number(rate.mid.get()), rate.mid.get())),
        Cell::maybe(needed, |needed| {
            Cell::new(format!("{}{}", if at_most { "≤ " } else { "" }, format::memory(needed)), needed.get())
        }),
        Cell::text(memory.fits),
        Cell::new(
            if is_shapes(sweep, *batch) { format!("{}, shapes scaled", step.method) } else { step.method.to_string() },
            step.method,
        ),
        Cell::text(memory.basis.words()),
        Cell::text(joined(&sweep.warnings, "; ")),
    ]
}

fn is_shapes(sweep: &Sweep, batch: u64) -> bool {
    sweep.basis == Basis::Shapes && !sweep.recorded.contains(&batch)
}

/// For each GPU, the linear fit of step time to batch size, and the largest batch that fits.
pub fn lines(sweep: &Sweep) -> Table {
    let mut table = Table::new(&[
        Column::text("GPU", "gpu"),
        Column::number("fixed", "fixed_us"),
        Column::number("per sample", "per_sample_us"),
        Column::number("grows with the batch", "share"),
        Column::number("largest batch", "largest_batch"),
    ]);
    let at_least = sweep.memory.is_some_and(|line| line.is_upper_bound());
    for gpu in &sweep.gpus {
        let micros = |value: f64| Cell::new(format::time(Micros::known(value)), value);
        table.push(vec![
            Cell::text(&gpu.gpu.slug),
            Cell::maybe(gpu.line, |(line, _)| micros(line.intercept)),
            Cell::maybe(gpu.line, |(line, _)| micros(line.slope)),
            Cell::maybe(gpu.line, |(_, share)| Cell::new(format::percent(share), share)),
            Cell::maybe(gpu.largest, |largest| {
                Cell::new(
                    format!("{}{}", if at_least { "at least " } else { "" }, format::grouped(largest as f64)),
                    largest,
                )
            }),
        ]);
    }
    table
}

/// The linear fits for each operator family.
pub fn families(sweep: &Sweep) -> Table {
    let mut table = Table::new(&[
        Column::text("GPU", "gpu"),
        Column::text("family", "family"),
        Column::number("fixed", "fixed_us"),
        Column::number("per sample", "per_sample_us"),
        Column::number("R²", "r_squared"),
        Column::text("device time by batch", ""),
    ]);
    for gpu in &sweep.gpus {
        for of in &gpu.families {
            let micros = |value: f64| Cell::new(format::time(Micros::known(value)), value);
            let times: Vec<String> =
                of.times.iter().map(|(batch, time)| format!("{batch}: {}", format::time(*time))).collect();
            table.push(vec![
                Cell::text(&gpu.gpu.slug),
                Cell::text(of.family.name()),
                micros(of.line.intercept),
                micros(of.line.slope),
                Cell::new(format!("{:.4}", of.r_squared), of.r_squared),
                Cell::text(times.join(", ")),
            ]);
        }
    }
    table
}

/// Writes all tables, notes and warnings as text.
///
/// # Errors
/// Write errors of `out`.
pub fn write_text(sweep: &Sweep, with_families: bool, width: Option<u16>, out: &mut dyn Write) -> io::Result<()> {
    let recorded: Vec<String> = sweep.recorded.iter().map(u64::to_string).collect();
    let how = if sweep.shapes_only { "traced" } else { "recorded" };
    writeln!(out, "{}, {how} at batch {}", text::clean(&sweep.workload.name, 80), recorded.join(", "))?;
    for gpu in &sweep.gpus {
        if let Some(pays) = pays(sweep, gpu) {
            writeln!(out, "{}: {pays}", gpu.gpu.slug)?;
        }
    }
    writeln!(out)?;
    write_warnings(&sweep.warnings, out)?;
    table(sweep).write_lines(width, out)?;
    writeln!(out)?;
    // One recorded size gives no lines.
    if sweep.basis == Basis::Lines {
        lines(sweep).write_lines(width, out)?;
    } else {
        for (gpu, largest) in sweep.gpus.iter().filter_map(|gpu| Some((gpu, gpu.largest?))) {
            writeln!(out, "{}: the largest batch that fits is {}", gpu.gpu.slug, format::grouped(largest as f64))?;
        }
    }
    if with_families && sweep.basis == Basis::Lines {
        writeln!(out)?;
        families(sweep).write_lines(width, out)?;
    }
    for gpu in &sweep.gpus {
        for note in words::all(&gpu.notes) {
            writeln!(out, "note: {}: {note}", gpu.gpu.slug)?;
        }
    }
    for note in words::all(&sweep.notes) {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

/// Smallest gain in throughput at which a larger batch is worthwhile.
const PAYS: f64 = 1.1;

/// Whether a batch larger than the largest recorded one is worthwhile on a GPU, by throughput of the batches that fit;
/// `None` if no larger batch was predicted.
pub fn pays(sweep: &Sweep, gpu: &GpuSweep) -> Option<String> {
    let recorded = *sweep.recorded.iter().max()?;
    let of_recorded = gpu.rows.iter().find(|row| row.batch == recorded);
    if of_recorded.is_some_and(|row| row.memory.fits == Fits::No) {
        let smaller = match gpu.largest.map(|batch| batch.min(recorded)) {
            Some(0) => ", and neither does a batch of 1".to_owned(),
            Some(largest) => format!("; the largest that fits is {}", format::grouped(largest as f64)),
            None => String::new(),
        };
        return Some(format!("the recorded batch of {} does not fit{smaller}", format::grouped(recorded as f64)));
    }
    let rate = |row: &SweepRow| row.throughput.map_or(0.0, |rate| rate.mid.get());
    let now = of_recorded.map(rate).filter(|rate| *rate > 0.0)?;
    let larger = || gpu.rows.iter().filter(|row| row.batch > recorded);
    let smallest = larger().next()?;
    let Some(best) = larger().filter(|row| row.memory.fits != Fits::No).max_by(|a, b| rate(a).total_cmp(&rate(b)))
    else {
        let batch = format::grouped(smallest.batch as f64);
        return Some(format!("a larger batch does not fit (tried {batch})"));
    };
    let gain = rate(best) / now;
    // Predicted steps wait for the CPU as long as the recorded one, whatever the batch.
    let because = by_data(best);
    if because.is_none() && sweep.warnings.iter().any(Finding::is_of_host) {
        return Some(
            "unknown whether a larger batch pays off: the step waits for the CPU, and a larger batch may wait longer; --host keeps-up compares GPU time only"
                .to_owned(),
        );
    }
    let verdict = if gain >= PAYS { "a larger batch pays off" } else { "a larger batch hardly pays off" };
    let unsure = if best.memory.fits == Fits::Unknown { "; unknown whether it fits" } else { "" };
    let because = because.unwrap_or_default();
    let [best, recorded] = [best.batch, recorded].map(|batch| format::grouped(batch as f64));
    Some(format!(
        "{verdict}: {} times the samples/s at batch {best} compared with {recorded}{unsure}{because}",
        format::number(gain)
    ))
}

/// Share of a step from which its wait for data explains what a batch brings (a choice).
const BY_DATA: f64 = 0.05;

/// Explanation of a step that waits for its data; `None` if it hardly does.
fn by_data(row: &SweepRow) -> Option<String> {
    let data = row.data.filter(|data| data.wait().get() > BY_DATA * row.step.range.mid.get())?;
    let (batch, wait) = (format::grouped(row.batch as f64), format::time(data.wait()));
    let wait = format!("batch {batch} waits {wait} ({})", format::percent(data.wait() / row.step.range.mid));
    // Workers deliver what the table shows; the training process loads between its steps.
    let words = match data.hidden {
        None => {
            let rate = format::number(row.batch as f64 / data.load.as_secs());
            format!("the workers deliver {rate} samples/s, so {wait}")
        }
        Some(_) => format!("{wait} while the training process loads"),
    };
    Some(format!(". Data limits it: {words}; make loading faster first"))
}

/// JSON form with all data (`habitat-batches`, version 2).
pub fn json(sweep: &Sweep) -> Value {
    let gpus: Vec<Value> = sweep.gpus.iter().map(|gpu| gpu_json(sweep, gpu)).collect();
    json!({
        "format": "habitat-batches",
        "version": 2,
        "workload": sweep.workload,
        "host": sweep.host.name(),
        "basis": sweep.basis,
        "recorded_batch_sizes": sweep.recorded,
        "memory": sweep.memory.map(|line| json!({
            "fixed_bytes": line.fixed, "per_sample_bytes": line.per_sample, "upper_bound": line.is_upper_bound(),
            "computed": line.is_computed(),
        })),
        "gpus": gpus,
        "warnings": Note::all(&sweep.warnings),
        "notes": Note::all(&sweep.notes),
    })
}

fn gpu_json(sweep: &Sweep, gpu: &GpuSweep) -> Value {
    let rows: Vec<Value> = gpu
        .rows
        .iter()
        .map(|row| {
            json!({
                "batch_size": row.batch,
                "step_us": {"low": row.step.range.low, "mid": row.step.range.mid, "high": row.step.range.high},
                "step_90_us": {"low": row.wide[0], "high": row.wide[1]},
                "data_wait_us": row.data.map(|data| data.wait()),
                "method": row.step.method.name(),
                "shapes_scaled": is_shapes(sweep, row.batch),
                "samples_per_s": row.throughput,
                "memory_bytes": row.memory.needed.or(row.memory.at_most),
                "fits": row.memory.fits,
                "memory_reason": row.memory.basis.words(),
            })
        })
        .collect();
    let families: Vec<Value> = gpu
        .families
        .iter()
        .map(|of| {
            json!({
                "family": of.family.name(), "fixed_us": of.line.intercept, "per_sample_us": of.line.slope,
                "r_squared": of.r_squared,
                "times_us": of.times.iter().map(|(batch, time)| json!([batch, time])).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "gpu": gpu.gpu.slug,
        "line": gpu.line.map(|(line, share)| json!({
            "fixed_us": line.intercept, "per_sample_us": line.slope, "share_that_grows": share,
        })),
        "largest_batch": gpu.largest,
        "rows": rows,
        "families": families,
        "notes": Note::all(&gpu.notes),
    })
}
