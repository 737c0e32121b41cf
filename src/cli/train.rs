//! `habitat-tui models train --habitat`: Habitat's networks from operator tables.
//!
//! A weights file and a card an operator. What is interrupted goes on from a checkpoint in
//! the folder it writes to; the checkpoint goes when the weights are there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::progress::{Progress, span};
use super::{CliError, gpu, settings};
use crate::catalog::Catalog;
use crate::learn::fit::{FitOptions, Fitted, fit};
use crate::learn::habitat::{GpuErrors, HabitatOptions, Part, Prepared, Sample, Split, judge, prepare, weights};
use crate::predict::bundle::Bundle;
use crate::predict::habitat::{HabitatMlp, Kind, Trained};
use crate::predict::head::Head;
use crate::report::format::percent;
use crate::report::table::{Cell, Column, Table};
use crate::settings::args::{KindArg, TrainArgs};
use crate::settings::file::SettingsFile;
use crate::store::operator_tables;
use crate::store::{self, Limit, Paths, StoreError};

/// A checkpoint is written when the last is older than this.
const CHECKPOINT_SECONDS: f64 = 20.0;

/// The folder of trained networks: as given, else as the settings say, else the user's.
pub(super) fn folder(given: Option<&Path>, settings: &SettingsFile, paths: &Paths) -> PathBuf {
    given.map(Path::to_owned).or_else(|| settings.models.clone()).unwrap_or_else(|| paths.models())
}

/// Habitat's networks in a folder.
pub(super) fn load_habitat(dir: &Path) -> Result<HabitatMlp, CliError> {
    let mut networks = Vec::new();
    for kind in Kind::ALL {
        let path = dir.join(kind.file());
        if !path.exists() {
            continue;
        }
        let bytes = store::read(&path, Limit::WEIGHTS)?;
        let trained = Bundle::from_bytes(&bytes)
            .and_then(|bundle| Trained::of(&bundle, kind))
            .map_err(|error| StoreError::content(&path, error))?;
        networks.push((kind, trained));
    }
    if networks.is_empty() {
        let files = Kind::ALL.map(Kind::file).join(", ");
        return Err(CliError(format!(
            "{}: no weights of Habitat's networks ({files}); they are not shipped: train them with `habitat-tui models train --habitat --data DIR`, or name their folder with --models DIR",
            dir.display()
        )));
    }
    Ok(HabitatMlp::new(networks))
}

pub(super) fn run(args: &TrainArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let dir = folder(args.out.as_deref(), &settings(&paths)?, &paths);
    std::fs::create_dir_all(&dir).map_err(|source| StoreError::Write { path: dir.clone(), source })?;
    if let Some(tables) = &args.black_box {
        return super::black_box::train(tables, &dir, args.force, &catalog, out);
    }
    let Some(data) = &args.data else {
        return Err(CliError("missing data: give --data DIR or --black-box DIR".to_owned()));
    };
    if !args.habitat {
        let weights = dir.join(store::WEIGHTS);
        if weights.exists() && !args.force {
            return Err(StoreError::Exists { path: weights }.into());
        }
        return super::operators::run((data, &args.collected), &dir, args.seed, &catalog, out);
    }
    let options = HabitatOptions {
        layers: args.layers as usize,
        width: args.width as usize,
        epochs: args.epochs,
        leave_out: gpu::all(&catalog, "--leave-out", &args.leave_out)?,
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
        one(&Job { kind, name, table: &table, path: &path, options: &options }, &catalog, out)?;
        trained += 1;
    }
    Ok(u8::from(trained == 0))
}

/// The table of an operator, under the name of either form.
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
        .map(|row| {
            let split = match row.split {
                operator_tables::Split::Train => Split::Train,
                operator_tables::Split::Test => Split::Test,
                operator_tables::Split::Other => Split::Other,
            };
            Sample { operation: row.operation, gpu: row.gpu, time: row.time, split }
        })
        .collect();
    let prepared = prepare(kind, &samples, catalog, options).map_err(|error| problem(table, &error))?;
    drop(samples);
    let started = Instant::now();
    let fitted = train(kind, &prepared, &options.fit(), &path.with_extension("checkpoint"))?;
    let seconds = started.elapsed().as_secs_f64();
    let errors = judge(&fitted.network, &prepared).map_err(CliError::of)?;
    let bytes = store::read_as_it_is(table, Limit::TABLE)?;
    let facts = BTreeMap::from([
        ("format".to_owned(), "habitat-mlp 1".to_owned()),
        ("data_sha256".to_owned(), sha256(&bytes)),
        ("command".to_owned(), command(job)),
    ]);
    let card = card(job, &prepared, &fitted, &errors, &facts)?;
    let bundle = weights(&fitted, &prepared, facts).to_bytes().map_err(CliError::of)?;
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

/// Trains, from the checkpoint where there is one.
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
                .map_err(CliError::of)
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
            crate::learn::fit::FitError::OtherTraining | crate::learn::fit::FitError::Model(_) if earlier.is_some() => {
                problem(checkpoint, &error)
            }
            other => CliError::of(other),
        }),
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The command that makes the same weights again.
fn command(job: &Job<'_>) -> String {
    let HabitatOptions { layers, width, epochs, leave_out, rows, seed } = job.options;
    let mut line = format!(
        "habitat-tui models train --habitat --data DIR --operators {} --layers {layers} --width {width} --epochs {epochs} --seed {seed}",
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
        let share = |value: f64| Cell::of(percent(value), value);
        table.push(vec![
            Cell::same(&row.gpu),
            Cell::same(if row.seen { "yes" } else { "no" }),
            Cell::same(if row.part == Part::Test { "test" } else { "held out" }),
            Cell::same(row.rows),
            share(row.mean),
            share(row.median),
            share(row.p90),
            share(row.negative),
        ]);
    }
    table
}

/// What a user of the weights should know.
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
    let list = |gpus: &BTreeMap<crate::units::GpuSlug, usize>| {
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
    String::from_utf8(text).map_err(CliError::of)
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
