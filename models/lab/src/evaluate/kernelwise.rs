//! Linear models of kernels, layers and steps (Li et al., MICRO 2023) against measurements:
//! operators within a GPU, networks left out, GPUs left out, and two of the paper's case
//! studies: the faster of two GPUs, and a queue of networks on two GPUs.

mod studies;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::{CliError, add_tables};
use habitat_tui::learn::kernelwise::{CrossValidation, Data, HeldOut, LeftOut, Recipe, held_out, lines};
use habitat_tui::predict::kernelwise::Level;
use habitat_tui::predict::{Method, Options};
use habitat_tui::profile::Profile;
use habitat_tui::store;
use habitat_tui::store::operator_tables::{self, Row, Split, TABLES};
use habitat_tui::units::{GpuSlug, Micros};

use super::steps;
use super::tally::{Evaluation, Groups, Predicted, micros};
use crate::models::ModelsByGpu;

const OURS: Recipe = Recipe { published: false };
const PUBLISHED: Recipe = Recipe { published: true };
/// Of tables without a test split every so many rows is evaluated on.
const EVERY: usize = 5;

/// A step, and what is said of it by each method.
pub(super) struct Evaluated {
    pub(super) gpu: GpuSlug,
    /// Equal for the same step on another GPU.
    pub(super) name: String,
    pub(super) measured: Micros,
    /// By method.
    pub(super) predicted: BTreeMap<&'static str, Micros>,
}

/// Every table that the folder has the data for.
pub(super) fn evaluate(dir: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Vec<Evaluation>, CliError> {
    let folder = |name: &str| {
        let inside = dir.join(name);
        if inside.is_dir() { inside } else { dir.to_owned() }
    };
    let (tables, recorded) = (folder("ops"), folder("steps"));
    let mut evaluations = Vec::new();
    if TABLES.iter().any(|name| operator_tables::find(&tables, name).is_some()) {
        evaluations.push(rows(&tables, catalog, models)?);
    }
    let paths = store::profiles(&recorded)?;
    if !paths.is_empty() {
        let tables = (tables != recorded).then_some(tables.as_path());
        evaluations.extend(whole_steps(&paths, tables, catalog, models)?);
    }
    Ok(evaluations)
}

/// Rows of operator tables: fitted to the train split of a GPU, evaluated on its test split.
fn rows(dir: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for name in TABLES {
        let Some(path) = operator_tables::find(dir, name) else { continue };
        let rows = operator_tables::read(&path, name)?;
        let has_test = rows.iter().any(|row| row.split == Split::Test);
        let is_held_back =
            |index: usize, row: &Row| if has_test { row.split == Split::Test } else { index.is_multiple_of(EVERY) };
        let mut data = Data::default();
        for (_, row) in rows.iter().enumerate().filter(|(index, row)| !is_held_back(*index, row)) {
            data.add_measured(&row.gpu, &row.operation, row.precision, &row.kernel.name, row.time);
        }
        if data.rows.is_empty() {
            continue;
        }
        let held_back: Vec<&Row> =
            rows.iter().enumerate().filter(|(index, row)| is_held_back(*index, row)).map(|(_, row)| row).collect();
        for (what, recipe) in [("", OURS), (", as published", PUBLISHED)] {
            let model = lines(&data, catalog, recipe, &|_| true).map_err(CliError::other)?;
            for row in held_back.iter().filter(|row| model.gpus.contains_key(&row.gpu)) {
                let gpu = catalog.find(row.gpu.as_str()).map_err(CliError::other)?;
                let on = model.on(gpu);
                for (method, level) in [("kernel-wise", Level::Kernels), ("layer-wise", Level::Layers)] {
                    let Ok(answer) = on.time(&row.operation, row.precision, level) else { continue };
                    let predicted = Predicted { mid: answer.time.as_millis(), range: None };
                    add_row(&mut groups, name, &format!("{method}{what}"), predicted, row);
                }
            }
        }
        let known: BTreeSet<&GpuSlug> = data.gpus();
        for slug in known {
            let Some(models) = models.for_gpu(slug) else { continue };
            let gpu = catalog.find(slug.as_str()).map_err(CliError::other)?;
            let own: Vec<&Row> = held_back.iter().filter(|row| row.gpu == *slug).copied().collect();
            let pairs: Vec<_> = own.iter().map(|row| (&row.operation, gpu)).collect();
            for (row, time) in own.iter().zip(models.alone(&pairs).map_err(CliError::other)?) {
                let Some(time) = time else { continue };
                add_row(&mut groups, name, "learned, shapes alone", Predicted::in_range(time.time, time.spread), row);
            }
        }
    }
    let protocol = "operators within a GPU, absolute relative errors: linear models fitted to the train split of a GPU's table and evaluated on its test split (conv2d, which has none: on every fifth row); beside them the learned operator models";
    Ok(groups.evaluation(protocol.to_owned(), vec![models.protocol()]))
}

fn add_row(groups: &mut Groups, table: &str, method: &str, predicted: Predicted, row: &Row) {
    let shapes: Vec<String> = row.operation.inputs.iter().map(|shape| format!("{shape:?}")).collect();
    let label = || format!("{} {} on {}", row.operation.name, shapes.join(" × "), row.gpu);
    for group in [table, &format!("{table} on {}", row.gpu)] {
        groups.add(group, method, predicted, row.time.as_millis(), &label);
    }
}

/// The tables of recorded steps.
fn whole_steps(
    paths: &[PathBuf],
    tables: Option<&Path>,
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Result<Vec<Evaluation>, CliError> {
    let mut data = Data::default();
    if let Some(dir) = tables {
        add_tables(dir, &mut data)?;
    }
    let filled = if tables.is_some() { ", and to operator tables for kinds of layers that those lack" } else { "" };
    let mut names = Vec::new();
    for path in paths {
        let (profile, _) = store::read_profile(path)?;
        let has_step = profile.measured_step().is_some() && profile.origin.as_ref().is_some_and(|it| it.gpu.is_some());
        // A step without operator times cannot be learned from, nor evaluated alike.
        let has_times = profile.operations.iter().any(|operation| operation.device_time.is_some());
        if has_step && has_times {
            let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            names.push(steps::bare(&file).to_owned());
            data.add_profile(profile);
        }
    }
    let ours = held_out(&data, catalog, OURS).map_err(CliError::other)?;
    let published = held_out(&data, catalog, PUBLISHED).map_err(CliError::other)?;
    let learned: Vec<Option<Predicted>> = data
        .steps
        .iter()
        .map(|(gpu, profile)| {
            let alone = Options { ignore_origin: true, ..Options::default() };
            let step = steps::to(gpu, profile, alone, catalog, models)?.step.as_estimate();
            Some(Predicted { mid: step.range.mid.get(), range: Some([step.range.low.get(), step.range.high.get()]) })
        })
        .collect();
    let within = table(
        &data,
        &names,
        &learned,
        (LeftOut::Network, [&ours, &published]),
        &format!(
            "steps within a GPU, absolute relative errors: linear models fitted to the GPU's other networks{filled}; \"in range\": the 80 % range is that of the other networks' errors, on every GPU"
        ),
        models,
    );
    let elsewhere = table(
        &data,
        &names,
        &learned,
        (LeftOut::Gpu, [&ours, &published]),
        "steps on a GPU left out, absolute relative errors: linear models carried over from the other GPUs; \"in range\": the 80 % range is that of the other GPUs' errors",
        models,
    );
    let by_step = |ours: &[HeldOut], published: &[HeldOut]| -> Vec<Evaluated> {
        data.steps
            .iter()
            .enumerate()
            .filter_map(|(index, (gpu, profile))| {
                let mut predicted = BTreeMap::new();
                for (held, [kernels, layers, step]) in [
                    (ours, ["kernel-wise", "layer-wise", "end-to-end"]),
                    (published, ["kernel-wise, as published", "layer-wise, as published", "end-to-end, as published"]),
                ] {
                    for of in held.iter().filter(|of| of.step == index) {
                        let name = match of.method {
                            Method::KernelWise => kernels,
                            Method::LayerWise => layers,
                            _ => step,
                        };
                        predicted.insert(name, of.predicted);
                    }
                }
                if predicted.is_empty() {
                    return None;
                }
                predicted.extend(learned[index].map(|of| ("learned, shapes alone", micros(of.mid))));
                let measured = profile.measured_step()?;
                Some(Evaluated { gpu: gpu.clone(), name: names[index].clone(), measured, predicted })
            })
            .collect()
    };
    let networks = by_step(&ours.networks, &published.networks);
    let gpus = by_step(&ours.gpus, &published.gpus);
    Ok(vec![
        within,
        elsewhere,
        studies::faster(&networks, "networks left out"),
        studies::faster(&gpus, "GPUs left out"),
        studies::queue(&networks, "networks left out"),
        studies::queue(&gpus, "GPUs left out"),
    ])
}

fn table(
    data: &Data,
    names: &[String],
    learned: &[Option<Predicted>],
    (left_out, held): (LeftOut, [&CrossValidation; 2]),
    protocol: &str,
    models: &ModelsByGpu,
) -> Evaluation {
    let mut groups = Groups::default();
    let mut done: BTreeSet<usize> = BTreeSet::new();
    let mut add = |step: usize, method: &str, predicted: Predicted| {
        let (gpu, profile): &(GpuSlug, Profile) = &data.steps[step];
        let Some(measured) = profile.measured_step() else { return };
        let mode = profile.workload.mode;
        for group in ["all".to_owned(), mode.to_string(), format!("{mode} on {gpu}")] {
            groups.add(&group, method, predicted, measured.get(), &|| format!("{} on {gpu}", names[step]));
        }
    };
    for (held, what) in held.into_iter().zip(["", ", as published"]) {
        for of in held.steps(left_out) {
            let range = (what.is_empty()).then(|| held.range_without(left_out, of, data)).flatten();
            let mid = of.predicted.get();
            let predicted = Predicted { mid, range: range.map(|range| [mid * range.low, mid * range.high]) };
            add(of.step, &format!("{}{what}", of.method), predicted);
            done.insert(of.step);
        }
    }
    for step in done {
        if let Some(predicted) = learned[step] {
            add(step, "learned, shapes alone", predicted);
        }
    }
    groups.evaluation(protocol.to_owned(), vec![models.protocol()])
}
