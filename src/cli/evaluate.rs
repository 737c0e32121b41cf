//! `habitat-tui models evaluate`: predictions against measurements.
//!
//! `ops`: the same operator configuration measured on several GPUs gives an origin and a
//! destination for every ordered pair. `steps`: the same for whole recorded steps.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{CliError, print_json};
use crate::catalog::{Catalog, GpuSpec};
use crate::predict::roofline::{attained_bandwidth, roofline, sustained_rate};
use crate::predict::wave::{WaveForm, gamma, scale_kernel};
use crate::predict::work::{Arithmetic, Work, work};
use crate::predict::{MethodChoice, Options, predict};
use crate::profile::{DType, Kernel, Operation, Profile};
use crate::report::table::{Cell, Column, Table};
use crate::settings::args::EvaluateOn;
use crate::store::operator_tables::{self, Row};
use crate::store::{self, Paths, StoreError};
use crate::units::GpuSlug;

/// Below this an operator's measured time is mostly launch.
const SHORTEST_ORIGIN_MS: f64 = 0.2;

pub(super) fn run(on: &EvaluateOn, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    match on {
        EvaluateOn::Ops { dir, json } => ops(dir, &catalog, *json, out),
        EvaluateOn::Steps { dir, json } => steps(dir, &catalog, *json, out),
    }
}

/// Relative errors of one method on one group.
#[derive(Debug, Default)]
struct Errors(Vec<f64>);

#[derive(Serialize)]
struct Line {
    group: String,
    method: &'static str,
    pairs: usize,
    mean_absolute_error: f64,
    median_absolute_error: f64,
    p90_absolute_error: f64,
}

impl Errors {
    fn add(&mut self, predicted: f64, measured: f64) {
        self.0.push((predicted / measured - 1.0).abs());
    }

    fn row(&self, group: &str, method: &'static str) -> Line {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        Line {
            group: group.to_owned(),
            method,
            pairs: sorted.len(),
            mean_absolute_error: sorted.iter().sum::<f64>() / sorted.len() as f64,
            median_absolute_error: at(0.5),
            p90_absolute_error: at(0.9),
        }
    }
}

type ByMethod = BTreeMap<&'static str, Errors>;

fn print(what: &str, groups: &BTreeMap<String, ByMethod>, json: bool, out: &mut dyn Write) -> Result<u8, CliError> {
    let rows: Vec<Line> = groups
        .iter()
        .flat_map(|(group, methods)| methods.iter().map(|(method, errors)| errors.row(group, method)))
        .collect();
    if json {
        print_json(
            &serde_json::json!({"format": "habitat-evaluation", "version": 1, "protocol": what, "rows": rows}),
            out,
        )?;
        return Ok(u8::from(rows.is_empty()));
    }
    writeln!(out, "{what}\n")?;
    let mut table = Table::new(&[
        Column::text("group", "group"),
        Column::text("method", "method"),
        Column::number("pairs", "pairs"),
        Column::number("mean", "mean_absolute_error"),
        Column::number("median", "median_absolute_error"),
        Column::number("90 %", "p90_absolute_error"),
    ]);
    for row in &rows {
        let percent = |share: f64| Cell::of(crate::report::format::percent(share), share);
        table.push(vec![
            Cell::same(&row.group),
            Cell::same(row.method),
            Cell::same(row.pairs),
            percent(row.mean_absolute_error),
            percent(row.median_absolute_error),
            percent(row.p90_absolute_error),
        ]);
    }
    table.write_text(out)?;
    Ok(u8::from(rows.is_empty()))
}

/// One configuration measured on one GPU.
struct Measured {
    milliseconds: f64,
    kernel: Kernel,
}

fn ops(dir: &Path, catalog: &Catalog, json: bool, out: &mut dyn Write) -> Result<u8, CliError> {
    let mut groups: BTreeMap<String, ByMethod> = BTreeMap::new();
    for family in ["elementwise", "softmax", "layernorm", "linear", "bmm", "conv2d"] {
        let Some(path) = operator_tables::find(dir, family) else {
            writeln!(out, "{family}: no table in {}, skipped", dir.display())?;
            continue;
        };
        let configurations = read_table(&path, family)?;
        for (operation, by_gpu) in configurations.values() {
            judge(family, operation, by_gpu, catalog, &mut groups)?;
        }
    }
    print(
        &format!(
            "absolute relative errors over every ordered pair of GPUs, rows over {SHORTEST_ORIGIN_MS} ms on the origin; memory-bound families together as \"memory-bound\""
        ),
        &groups,
        json,
        out,
    )
}

fn judge(
    family: &str,
    operation: &Operation,
    by_gpu: &BTreeMap<GpuSlug, Measured>,
    catalog: &Catalog,
    groups: &mut BTreeMap<String, ByMethod>,
) -> Result<(), CliError> {
    let Some(work) = work(operation, None) else { return Ok(()) };
    for (origin, here) in by_gpu.iter().filter(|(_, here)| here.milliseconds > SHORTEST_ORIGIN_MS) {
        let origin = catalog.find(origin.as_str()).map_err(CliError::of)?;
        for (destination, there) in by_gpu.iter().filter(|(slug, _)| **slug != origin.slug) {
            let destination = catalog.find(destination.as_str()).map_err(CliError::of)?;
            for (method, predicted) in by_every_method(&work, here, origin, destination) {
                let memory_bound = work.arithmetic == Arithmetic::Vector;
                for group in [Some(family), memory_bound.then_some("memory-bound")].into_iter().flatten() {
                    groups
                        .entry(group.to_owned())
                        .or_default()
                        .entry(method)
                        .or_default()
                        .add(predicted, there.milliseconds);
                }
            }
        }
    }
    Ok(())
}

/// Milliseconds on the destination by each method.
fn by_every_method(work: &Work, here: &Measured, origin: &GpuSpec, destination: &GpuSpec) -> Vec<(&'static str, f64)> {
    let float32 = Some(&DType::Float32);
    let rooflines = |gpu: &GpuSpec| roofline(gpu, work, float32, None).0;
    let (rate, _) = sustained_rate(destination, work.arithmetic, float32, None);
    let ridge = rate.get() / attained_bandwidth(destination).get();
    let gamma = work.intensity().map_or(1.0, |intensity| gamma(intensity, ridge));
    let mut predicted = vec![
        ("bandwidth, nominal", here.milliseconds * (origin.memory_bandwidth / destination.memory_bandwidth)),
        ("bandwidth, reached", here.milliseconds * (attained_bandwidth(origin) / attained_bandwidth(destination))),
        ("roofline ratio", here.milliseconds * (rooflines(destination) / rooflines(origin))),
        ("roofline, no origin", rooflines(destination).as_millis()),
    ];
    for (name, form) in
        [("wave scaling, equation 1", WaveForm::WholeWaves), ("wave scaling, equation 2", WaveForm::ManyWaves)]
    {
        predicted.extend(
            scale_kernel(&here.kernel, origin, destination, gamma, form).map(|scaled| (name, scaled.time.as_millis())),
        );
    }
    predicted
}

/// An operation, and what it took on each GPU.
type Configuration = (Operation, BTreeMap<GpuSlug, Measured>);

/// Rows of a table by configuration; the first row of a GPU counts.
fn read_table(path: &Path, family: &str) -> Result<BTreeMap<String, Configuration>, CliError> {
    let mut configurations = BTreeMap::new();
    for Row { operation, gpu, time, kernel, .. } in operator_tables::read(path, family)? {
        let key = format!("{} {:?} {:?}", operation.name, operation.inputs, operation.outputs);
        let (_, by_gpu) = configurations.entry(key).or_insert_with(|| (operation, BTreeMap::new()));
        by_gpu.entry(gpu).or_insert(Measured { milliseconds: time.as_millis(), kernel });
    }
    Ok(configurations)
}

fn steps(dir: &Path, catalog: &Catalog, json: bool, out: &mut dyn Write) -> Result<u8, CliError> {
    let mut by_step: BTreeMap<String, BTreeMap<GpuSlug, Profile>> = BTreeMap::new();
    for path in profiles(dir)? {
        let mut text = Vec::new();
        store::open(&path)
            .and_then(|mut reader| reader.read_to_end(&mut text))
            .map_err(|error| StoreError::read(&path, error))?;
        let (profile, _) =
            Profile::from_json(&text).map_err(|source| StoreError::Profile { path: path.clone(), source })?;
        let gpu = profile.origin.as_ref().and_then(|origin| origin.gpu.clone());
        if let (Some(gpu), Some(_), Some(name)) = (gpu, profile.measured_step(), path.file_name()) {
            by_step.entry(name.to_string_lossy().into_owned()).or_default().insert(gpu, profile);
        }
    }
    let mut groups: BTreeMap<String, ByMethod> = BTreeMap::new();
    for by_gpu in by_step.values() {
        for (gpu, profile) in by_gpu {
            let Some(measured) = profile.measured_step() else { continue };
            let mut add = |method: &'static str, source: &Profile, options: Options| -> Result<(), CliError> {
                let options = Options { targets: vec![gpu.clone()], ..options };
                // A step of which nothing is known by operation cannot be predicted.
                let Ok(answer) = predict(source, catalog, &options) else { return Ok(()) };
                let predicted = answer.predictions.first().map_or(0.0, |prediction| prediction.step.mid().get());
                for group in [profile.workload.mode.to_string(), format!("{} → {gpu}", profile.workload.mode)] {
                    groups.entry(group).or_default().entry(method).or_default().add(predicted, measured.get());
                }
                Ok(())
            };
            add(
                "shapes alone",
                profile,
                Options { ignore_origin: true, method: MethodChoice::Roofline, ..Options::default() },
            )?;
            for (_, origin) in by_gpu.iter().filter(|(other, _)| *other != gpu) {
                add("from another GPU", origin, Options::default())?;
            }
        }
    }
    print(
        "absolute relative errors of whole steps: from shapes alone, and from the same step measured on every other GPU",
        &groups,
        json,
        out,
    )
}

/// Profiles in a folder and the folders in it.
fn profiles(dir: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(dir).map_err(|error| StoreError::read(dir, error))?;
    for entry in entries {
        let path = entry.map_err(|error| StoreError::read(dir, error))?.path();
        if path.is_dir() {
            found.extend(profiles(&path)?);
        } else if path.file_name().is_some_and(|name| name.to_string_lossy().contains(".habitat.json")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
