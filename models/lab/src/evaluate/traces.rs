//! Profiler traces of one workload on several GPUs, each predicted from the others: the step, and the device time by
//! kind of operator.
//!
//! Files are named `<gpu>_<workload>.json…`; files with the same workload belong together.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::{CliError, resolve, workload_name};
use habitat_tui::op::family;
use habitat_tui::predict::{Options, Precision, Prediction, predict};
use habitat_tui::profile::{DeviceInfo, Profile};
use habitat_tui::report::format;
use habitat_tui::report::table::{Cell, Column, Table};
use habitat_tui::store::{self, StoreError};
use habitat_tui::trace::import::ImportOptions;
use habitat_tui::units::{GpuSlug, Micros};
use serde::Serialize;

use super::tally::{Evaluation, micros, percent};
use crate::models::ModelsByGpu;

/// A recording to predict on another GPU in another precision, without a measurement there.
const UNMEASURED: (&str, &str, Precision) = ("v100_resnet50_b32_2021", "a100-sxm4-40gb", Precision::Tf32);

#[derive(Serialize)]
struct Row {
    /// Workload, and the kind of operator after a colon.
    group: String,
    /// Origin of the prediction.
    method: String,
    gpu: String,
    predicted_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    low_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    absolute_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_range: Option<bool>,
}

/// A trace that was recorded on a GPU of the catalog.
pub(super) struct Recorded {
    stem: String,
    pub(super) gpu: GpuSlug,
    pub(super) profile: Profile,
}

/// The traces of a folder by workload.
pub(super) fn recorded(dir: &Path, catalog: &Catalog) -> Result<BTreeMap<String, Vec<Recorded>>, CliError> {
    let mut by_workload: BTreeMap<String, Vec<Recorded>> = BTreeMap::new();
    for path in traces(dir)? {
        let stem = workload_name(&path);
        let Some((_, workload)) = stem.split_once('_') else { continue };
        let workload = workload.to_owned();
        // Needs kernels and a known GPU.
        let Some(profile) = import(&path, catalog) else { continue };
        if let Some(gpu) = profile.origin.as_ref().and_then(|origin| origin.gpu.clone()) {
            by_workload.entry(workload).or_default().push(Recorded { stem, gpu, profile });
        }
    }
    Ok(by_workload)
}

/// Every workload on two or more GPUs, in every direction and from shapes alone.
pub(super) fn evaluate(dir: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Vec<Evaluation>, CliError> {
    let by_workload = recorded(dir, catalog)?;
    let mut rows = Vec::new();
    let with = |gpu: &GpuSlug| Options { models: models.for_gpu(gpu), ..Options::default() };
    for (workload, recorded) in &by_workload {
        let gpus = recorded.iter().filter(|other| other.gpu != recorded[0].gpu).count();
        if gpus == 0 {
            continue;
        }
        for there in recorded {
            for here in recorded.iter().filter(|here| here.gpu != there.gpu) {
                let method = format!("from {}", here.gpu);
                add(&mut rows, workload, &method, &here.profile, there, with(&there.gpu), catalog);
            }
            let alone = Options { ignore_origin: true, ..with(&there.gpu) };
            add(&mut rows, workload, "shapes alone", &there.profile, there, alone, catalog);
        }
    }
    let protocol = "traces of one workload on several GPUs: the step and the device time by kind of operator, predicted and measured";
    let mut evaluations = vec![evaluation(protocol.to_owned(), Vec::new(), &rows)];
    let (stem, gpu, precision) = UNMEASURED;
    let known = by_workload.values().flatten().find(|recorded| recorded.stem == stem);
    if let (Some(recorded), Ok(gpu)) = (known, catalog.find(gpu)) {
        evaluations.push(unmeasured(recorded, &gpu.slug, precision, catalog, models));
    }
    Ok(evaluations)
}

fn unmeasured(
    recorded: &Recorded,
    gpu: &GpuSlug,
    precision: Precision,
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Evaluation {
    let mut rows = Vec::new();
    for precision in [None, Some(precision)] {
        let options =
            Options { targets: vec![gpu.clone()], precision, models: models.for_gpu(gpu), ..Options::default() };
        let Ok(answer) = predict(&recorded.profile, catalog, &options) else { continue };
        let Some(prediction) = answer.predictions.first() else { continue };
        let running = precision.or(recorded.profile.workload.precision);
        let running = running.map_or_else(String::new, |precision| format!(" in {precision}"));
        let method = format!("from {}{running}", recorded.gpu);
        rows.extend(step_and_families(&recorded.stem, &method, &recorded.profile, prediction, None));
    }
    evaluation(
        format!("{} on {gpu}: predictions only, no measurement of it there is known", recorded.stem),
        Vec::new(),
        &rows,
    )
}

fn add(
    rows: &mut Vec<Row>,
    workload: &str,
    method: &str,
    source: &Profile,
    there: &Recorded,
    options: Options,
    catalog: &Catalog,
) {
    let options = Options { targets: vec![there.gpu.clone()], ..options };
    let Ok(answer) = predict(source, catalog, &options) else { return };
    let Some(prediction) = answer.predictions.first() else { return };
    rows.extend(step_and_families(workload, method, source, prediction, Some(&there.profile)));
}

/// The step, the total device time, and that of every kind of operator.
fn step_and_families(
    workload: &str,
    method: &str,
    source: &Profile,
    prediction: &Prediction,
    measured: Option<&Profile>,
) -> Vec<Row> {
    let step = prediction.step.as_estimate();
    let mut families: BTreeMap<&'static str, (Micros, Option<Micros>)> = BTreeMap::new();
    for (operation, time) in prediction.operations.iter().filter_map(|it| Some((it, it.time.as_ref()?))) {
        let kind = family(&source.operations[operation.index]).name();
        families.entry(kind).or_default().0 += time.range.mid * f64::from(operation.count);
    }
    let recorded = measured.iter().flat_map(|profile| &profile.operations);
    for (operation, time) in recorded.filter_map(|it| Some((it, it.total_device_time()?))) {
        *families.entry(family(operation).name()).or_default().1.get_or_insert(Micros::ZERO) += time;
    }
    let all = families.values().fold((Micros::ZERO, None), |(predicted, measured), family| {
        (predicted + family.0, family.1.map_or(measured, |time| Some(measured.unwrap_or(Micros::ZERO) + time)))
    });
    let row = |what: &str, predicted: Micros, range: Option<(Micros, Micros)>, measured: Option<Micros>| Row {
        group: format!("{workload}: {what}"),
        method: method.to_owned(),
        gpu: prediction.gpu.slug.to_string(),
        predicted_us: predicted.get(),
        low_us: range.map(|(low, _)| low.get()),
        high_us: range.map(|(_, high)| high.get()),
        measured_us: measured.map(Micros::get),
        absolute_error: measured.filter(|time| time.get() > 0.0).map(|time| (predicted / time - 1.0).abs()),
        in_range: measured.zip(range).map(|(time, (low, high))| low.get() <= time.get() && time.get() <= high.get()),
    };
    let measured_step = measured.and_then(Profile::measured_step);
    let mut rows = vec![
        row("step", step.range.mid, Some((step.range.low, step.range.high)), measured_step),
        row("device time", all.0, None, all.1),
    ];
    let mut families: Vec<_> = families
        .into_iter()
        .filter(|(_, (predicted, measured))| predicted.get() > 0.0 || measured.is_some_and(|time| time.get() > 0.0))
        .collect();
    families.sort_by(|a, b| b.1.1.unwrap_or(b.1.0).total_cmp(&a.1.1.unwrap_or(a.1.0)));
    rows.extend(families.into_iter().map(|(kind, (predicted, measured))| row(kind, predicted, None, measured)));
    rows
}

fn evaluation(protocol: String, notes: Vec<String>, rows: &[Row]) -> Evaluation {
    let mut table = Table::new(&[
        Column::text("workload", "group"),
        Column::text("GPU", "gpu"),
        Column::text("method", "method"),
        Column::number("predicted", "predicted_us"),
        Column::number("low–high", "range"),
        Column::number("measured", "measured_us"),
        Column::number("error", "absolute_error"),
        Column::text("in range", "in_range"),
    ]);
    let time = |value: f64| Cell::new(format::time(micros(value)), value);
    for row in rows {
        let range =
            row.low_us.zip(row.high_us).map(|(low, high)| Cell::text(format::time_range(micros(low), micros(high))));
        table.push(vec![
            Cell::text(&row.group),
            Cell::text(&row.gpu),
            Cell::text(&row.method),
            time(row.predicted_us),
            range.unwrap_or_else(Cell::unknown),
            Cell::maybe(row.measured_us, time),
            Cell::maybe(row.absolute_error, percent),
            Cell::maybe(row.in_range, |inside| Cell::text(if inside { "yes" } else { "no" })),
        ]);
    }
    Evaluation::new(protocol, notes, table, &rows)
}

fn import(path: &Path, catalog: &Catalog) -> Option<Profile> {
    let find = |device: &DeviceInfo| resolve(device, catalog);
    let options = ImportOptions { workload: workload_name(path), resolve_gpu: Some(&find), ..ImportOptions::default() };
    let import = store::traces::import(&[path.to_owned()], &options, &mut |_| ControlFlow::Continue(())).ok()?;
    Some(import.profile)
}

/// Traces in a folder, by name.
fn traces(dir: &Path) -> Result<Vec<PathBuf>, CliError> {
    let entries = std::fs::read_dir(dir).map_err(|error| StoreError::read(dir, error))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| StoreError::read(dir, error))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_trace = [".json", ".json.gz", ".json.zst"].iter().any(|ending| name.ends_with(ending));
        if is_trace && !name.contains(".habitat.json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
