//! `habitat-lab train --habitat`: Habitat's networks from operator tables.
//!
//! Writes a weights file and a card per operator. An interrupted training continues from a checkpoint in the output
//! folder; the checkpoint is deleted once the weights are written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::{self, CliError, Progress, span};
use habitat_tui::predict::habitat::Kind;
use habitat_tui::predict::head::Head;
use habitat_tui::report::format::percent;
use habitat_tui::report::table::{Cell, Column, Table};
use habitat_tui::store::operator_tables;
use habitat_tui::store::{self, Limit, StoreError};

use crate::args::{KindArg, TrainArgs};
use crate::hash::sha256;
use crate::learn::fit::{FitError, FitOptions, Fitted, fit};
use crate::learn::habitat::{GpuErrors, HabitatOptions, Part, Prepared, Sample, evaluate, prepare, weights};

/// Seconds between checkpoints.
const CHECKPOINT_SECONDS: f64 = 20.0;

/// Trains one network per operator with a table in `data`; returns 1 if there is none.
pub(super) fn run(
    args: &TrainArgs,
    data: &Path,
    dir: &Path,
    catalog: &Catalog,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let options = HabitatOptions {
        layers: args.layers as usize,
        width: args.width as usize,
        epochs: args.epochs,
        leave_out: cli::all_gpus(catalog, "--leave-out", &args.leave_out)?,
        rows: args.rows.map(|rows| rows as usize),
        seed: args.seed,
    };
    let kinds: Vec<Kind> = args.operators.iter().map(|&kind| kind.into()).collect();
    let kinds = if kinds.is_empty() { Kind::ALL.to_vec() } else { kinds };
    let mut trained = 0;
    for kind in kinds {
        let Some((name, table)) = table_of(data, kind) else {
            writeln!(out, "{}: no table in {}, skipped", kind.name(), data.display())?;
            continue;
        };
        let path = dir.join(kind.file());
        if path.exists() && !args.force {
            return Err(StoreError::Exists { path }.into());
        }
        one(&Job { kind, name, table: &table, path: &path, options: &options }, catalog, out)?;
        trained += 1;
    }
    Ok(u8::from(trained == 0))
}

/// The table of an operator, under either name.
fn table_of(data: &Path, kind: Kind) -> Option<(&'static str, PathBuf)> {
    let names: &[&'static str] = match kind {
        Kind::Linear => &["linear", "dense"],
        Kind::Bmm => &["bmm"],
        Kind::Conv2d => &["conv2d", "conv"],
    };
    names.iter().find_map(|&name| Some((name, operator_tables::find(data, name)?)))
}

struct Job<'a> {
    kind: Kind,
    name: &'static str,
    table: &'a Path,
    path: &'a Path,
    options: &'a HabitatOptions,
}

fn one(job: &Job<'_>, catalog: &Catalog, out: &mut dyn Write) -> Result<(), CliError> {
    let Job { kind, name, table, path, options } = *job;
    let samples: Vec<Sample> = operator_tables::read(table, name)?
        .into_iter()
        .map(|row| Sample { operation: row.operation, gpu: row.gpu, time: row.time, split: row.split })
        .collect();
    let prepared = prepare(kind, &samples, catalog, options).map_err(|error| problem(table, &error))?;
    drop(samples);
    let started = Instant::now();
    let fitted = train(kind, &prepared, &options.fit(), &path.with_extension("checkpoint"))?;
    let seconds = started.elapsed().as_secs_f64();
    let errors = evaluate(&fitted.network, &prepared).map_err(CliError::other)?;
    let bytes = store::read_as_it_is(table, Limit::TABLE)?;
    let facts = BTreeMap::from([
        ("format".to_owned(), "habitat-mlp 1".to_owned()),
        ("data_sha256".to_owned(), sha256(&bytes)),
        ("command".to_owned(), command(job)),
    ]);
    let card = card(job, &prepared, &fitted, &errors, &facts)?;
    let bundle = weights(&fitted, &prepared, facts).to_bytes().map_err(CliError::other)?;
    store::save_atomically(path, &bundle, true)?;
    store::save_atomically(&path.with_extension("md"), card.as_bytes(), true)?;
    let checkpoint = path.with_extension("checkpoint");
    if checkpoint.exists() {
        std::fs::remove_file(&checkpoint).map_err(|source| StoreError::Write { path: checkpoint, source })?;
    }
    writeln!(
        out,
        "{}: {} rows, {} epochs in {}, loss {}; {}\n",
        kind.name(),
        prepared.rows.len(),
        fitted.epochs,
        span(seconds),
        percent(fitted.loss),
        path.display()
    )?;
    error_table(&errors).write_text(out)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

fn problem(path: &Path, error: &impl std::fmt::Display) -> CliError {
    StoreError::content(path, error).into()
}

/// Trains, from the checkpoint if there is one.
fn train(kind: Kind, prepared: &Prepared, options: &FitOptions, checkpoint: &Path) -> Result<Fitted, CliError> {
    let earlier = store::there(store::read(checkpoint, Limit::WEIGHTS))?;
    let mut progress = Progress::new(kind.name());
    let (mut saved, mut first, mut failure) = (Instant::now(), true, None);
    let fitted = fit(&prepared.rows, Head::Direct, options, earlier.as_deref(), &mut |now| {
        if std::mem::take(&mut first) {
            progress.resume(now.epoch - 1);
        }
        progress.show(now.epoch, now.epochs, &format!("loss {:.1} %", now.loss * 100.0));
        if now.epoch < now.epochs && saved.elapsed().as_secs_f64() > CHECKPOINT_SECONDS {
            saved = Instant::now();
            let written = now
                .checkpoint()
                .map_err(CliError::other)
                .and_then(|bytes| store::save_atomically(checkpoint, &bytes, true).map_err(CliError::from));
            if let Err(error) = written {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    progress.end();
    match failure {
        Some(error) => Err(error),
        None => fitted.map_err(|error| match error {
            FitError::OtherTraining | FitError::Model(_) if earlier.is_some() => problem(checkpoint, &error),
            other => CliError::other(other),
        }),
    }
}

/// The command that reproduces these weights.
fn command(job: &Job<'_>) -> String {
    let HabitatOptions { layers, width, epochs, leave_out, rows, seed } = job.options;
    let mut line = format!(
        "habitat-lab train --habitat --data DIR --operators {} --layers {layers} --width {width} --epochs {epochs} --seed {seed}",
        job.kind.name()
    );
    for gpu in leave_out {
        let _ = write!(line, " --leave-out {gpu}");
    }
    if let Some(rows) = rows {
        let _ = write!(line, " --rows {rows}");
    }
    line
}

fn error_table(errors: &[GpuErrors]) -> Table {
    let mut table = Table::new(&[
        Column::text("GPU", "gpu"),
        Column::text("trained on", "seen"),
        Column::text("rows", "part"),
        Column::number("count", "rows"),
        Column::number("mean", "mean_absolute_error"),
        Column::number("median", "median_absolute_error"),
        Column::number("90 %", "p90_absolute_error"),
        Column::number("negative", "negative_share"),
    ]);
    for row in errors {
        let share = |value: f64| Cell::new(percent(value), value);
        table.push(vec![
            Cell::text(&row.gpu),
            Cell::text(if row.seen { "yes" } else { "no" }),
            Cell::text(if row.part == Part::Test { "test" } else { "held out" }),
            Cell::text(row.rows),
            share(row.mean),
            share(row.median),
            share(row.p90),
            share(row.negative),
        ]);
    }
    table
}

/// Text of the network's card.
fn card(
    job: &Job<'_>,
    prepared: &Prepared,
    fitted: &Fitted,
    errors: &[GpuErrors],
    facts: &BTreeMap<String, String>,
) -> Result<String, CliError> {
    let mut text = Vec::new();
    let HabitatOptions { layers, width, .. } = job.options;
    let fact = |key: &str| facts.get(key).map_or("", String::as_str);
    let list = |gpus: &BTreeMap<habitat_tui::units::GpuSlug, usize>| {
        gpus.iter().map(|(gpu, rows)| format!("{gpu} ({rows})")).collect::<Vec<_>>().join(", ")
    };
    let file = job.table.file_name().unwrap_or_default().to_string_lossy();
    writeln!(
        text,
        "# Habitat's network for {}\n\n\
         {layers} × {width}, ReLU, {} weights. Inputs: {}. Output: forward time in milliseconds, FP32.\n\
         Method: Geoffrey et al., \"Habitat\", USENIX ATC 2021, section 3.4.\n\n\
         ## Data\n\n- `{file}`, SHA-256 `{}`\n- trained on (rows): {}\n- rows used: {}",
        job.kind.name(),
        fitted.network.architecture().parameter_count(),
        job.kind.inputs().join(", "),
        fact("data_sha256"),
        list(&prepared.trained_on),
        prepared.rows.len(),
    )?;
    if !prepared.unknown.is_empty() {
        writeln!(text, "- not in the catalog, passed over: {}", list(&prepared.unknown))?;
    }
    writeln!(
        text,
        "\n## Protocol\n\n\
         Adam with an L2 penalty of 1e-4, rate 5e-4 for the first half of {} epochs and 1e-4 for the second, batches of\n\
         512, mean absolute percentage error (at the end, in training: {}). Made with\n\n    {}\n\n\
         ## Errors\n\n\
         |predicted / measured − 1| of rows that took no part. \"Held out\": configurations like those of training;\n\
         \"test\": the authors' test rows, larger ones.\n",
        job.options.epochs,
        percent(fitted.loss),
        fact("command"),
    )?;
    error_table(errors).write_markdown(&mut text)?;
    writeln!(
        text,
        "\n## Limits\n\n\
         A network of this kind knows nothing of GPUs and sizes unlike those it saw: look at the rows of GPUs it was not\n\
         trained on before relying on it. Times include what a launch costs where the table was measured. FP32 only."
    )?;
    String::from_utf8(text).map_err(CliError::other)
}

impl From<KindArg> for Kind {
    fn from(arg: KindArg) -> Self {
        match arg {
            KindArg::Linear => Self::Linear,
            KindArg::Bmm => Self::Bmm,
            KindArg::Conv2d => Self::Conv2d,
        }
    }
}
