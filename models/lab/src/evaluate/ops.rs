//! Operators: the same configuration measured on several GPUs gives an origin and a
//! destination for every ordered pair.

use std::collections::BTreeMap;
use std::path::Path;

use habitat_tui::catalog::{Catalog, GpuSpec};
use habitat_tui::cli::CliError;
use habitat_tui::op::{Arithmetic, Work, work};
use habitat_tui::predict::decoded::Decoded;
use habitat_tui::predict::learned::between;
use habitat_tui::predict::learned::{EFFICIENCY_WEIGHT, Run};
use habitat_tui::predict::rate::Rates;
use habitat_tui::predict::roofline::roofline;
use habitat_tui::predict::wave::{WaveForm, gamma, scale_kernel};
use habitat_tui::profile::{DType, Kernel, Operation};
use habitat_tui::store::operator_tables::{self, Row};
use habitat_tui::store::{bundled, collected};
use habitat_tui::units::GpuSlug;

use super::few::{self, run, test_rows};
use super::tally::{Evaluation, Groups, Predicted};
use crate::models::ModelsByGpu;

/// Below this an operator's measured time is mostly its launch.
const SHORTEST_ORIGIN_MS: f64 = 0.2;

/// One configuration measured on one GPU.
struct Measured {
    milliseconds: f64,
    kernel: Kernel,
}

/// Every table of `dir`.
pub(super) fn evaluate(
    dir: &Path,
    few: &[u32],
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    let mut notes = Vec::new();
    let collected = if dir.is_file() { Some(collected::read(dir, catalog)?) } else { None };
    for family in ["elementwise", "softmax", "layernorm", "linear", "bmm", "conv2d"] {
        let rows = if let Some(collected) = &collected {
            collected.rows.iter().filter(|(table, _)| *table == family).map(|(_, row)| row.clone()).collect()
        } else {
            let Some(path) = operator_tables::find(dir, family) else {
                notes.push(format!("{family}: no table in {}, skipped", dir.display()));
                continue;
            };
            operator_tables::read(&path, family)?
        };
        for (operation, by_gpu) in by_configuration(&rows).values() {
            add_formulas(family, operation, by_gpu, catalog, &mut groups)?;
        }
        add_learned(family, &rows, catalog, models, &mut groups)?;
        for &count in few {
            few::evaluate(family, &rows, count as usize, catalog, models, &mut groups)?;
        }
    }
    for (why, count) in collected.iter().flat_map(|collected| &collected.passed_over) {
        notes.push(format!("passed over: {count} {why}"));
    }
    if !few.is_empty() {
        notes.push(few::NOTE.to_owned());
    }
    let protocol = format!(
        "operators, absolute relative errors; learned models (and \"roofline, shapes alone\"): rows of the tables' test split, all if there is none; the rest: every ordered pair of GPUs, rows over {SHORTEST_ORIGIN_MS} ms on the origin, memory-bound families together as \"memory-bound\""
    );
    notes.push(models.protocol());
    Ok(groups.evaluation(protocol, notes))
}

fn add_formulas(
    family: &str,
    operation: &Operation,
    by_gpu: &BTreeMap<GpuSlug, Measured>,
    catalog: &Catalog,
    groups: &mut Groups,
) -> Result<(), CliError> {
    let Some(work) = work(operation, None) else { return Ok(()) };
    let memory_bound = work.arithmetic == Arithmetic::Vector;
    let mut add = |method: &'static str, predicted: Predicted, measured: f64, label: &dyn Fn() -> String| {
        for group in [Some(family), memory_bound.then_some("memory-bound")].into_iter().flatten() {
            groups.add(group, method, predicted, measured, label);
        }
    };
    let shapes = || operation.inputs.iter().map(|shape| format!("{shape:?}")).collect::<Vec<_>>().join(" × ");
    for (origin, here) in by_gpu.iter().filter(|(_, here)| here.milliseconds > SHORTEST_ORIGIN_MS) {
        let origin = catalog.find(origin.as_str()).map_err(CliError::other)?;
        let others = || by_gpu.keys().filter(|slug| **slug != origin.slug);
        let label = |destination: &GpuSlug| format!("{} {}, {} → {destination}", operation.name, shapes(), origin.slug);
        for destination in others() {
            let measured = by_gpu[destination].milliseconds;
            let spec = catalog.find(destination.as_str()).map_err(CliError::other)?;
            for (method, predicted) in by_every_method(&work, here, origin, spec) {
                add(method, Predicted { mid: predicted, range: None }, measured, &|| label(destination));
            }
        }
    }
    Ok(())
}

/// Milliseconds on the destination, by each method.
fn by_every_method(work: &Work, here: &Measured, origin: &GpuSpec, destination: &GpuSpec) -> Vec<(&'static str, f64)> {
    let float32 = Some(&DType::Float32);
    let (from, to) = (Rates::new(origin), Rates::new(destination));
    let rooflines = |rates: &Rates<'_>| roofline(rates, work, float32, None);
    let rate = to.arithmetic(work.arithmetic, float32, None);
    let ridge = rate.get() / to.bandwidth.value.get();
    let gamma = work.intensity().map_or(1.0, |intensity| gamma(intensity, ridge));
    let mut predicted = vec![
        ("bandwidth, nominal", here.milliseconds * (origin.memory_bandwidth / destination.memory_bandwidth)),
        ("bandwidth, reached", here.milliseconds * (from.bandwidth.value / to.bandwidth.value)),
        ("roofline ratio", here.milliseconds * (rooflines(&to) / rooflines(&from))),
        ("roofline, no origin", rooflines(&to).as_millis()),
    ];
    for (name, form) in
        [("wave scaling, equation 1", WaveForm::WholeWaves), ("wave scaling, equation 2", WaveForm::ManyWaves)]
    {
        predicted
            .extend(scale_kernel(&here.kernel, &from, &to, gamma, form).map(|scaled| (name, scaled.time.as_millis())));
    }
    predicted
}

/// An operation, and its time on each GPU.
type Configuration = (Operation, BTreeMap<GpuSlug, Measured>);

/// Rows of a table by configuration; only the first row of a GPU counts.
fn by_configuration(rows: &[Row]) -> BTreeMap<String, Configuration> {
    let mut configurations: BTreeMap<String, Configuration> = BTreeMap::new();
    for Row { operation, gpu, time, kernel, .. } in rows {
        let key = key(operation);
        let (_, by_gpu) = configurations.entry(key).or_insert_with(|| (operation.clone(), BTreeMap::new()));
        by_gpu
            .entry(gpu.clone())
            .or_insert_with(|| Measured { milliseconds: time.as_millis(), kernel: kernel.clone() });
    }
    configurations
}

fn key(operation: &Operation) -> String {
    format!("{} {:?} {:?}", operation.name, operation.inputs, operation.outputs)
}

/// The learned models on the evaluated rows: the authors' test split, if a table has one. From shapes alone, by GPU;
/// and with the time on every other GPU as the origin's.
fn add_learned(
    family: &str,
    rows: &[Row],
    catalog: &Catalog,
    models: &ModelsByGpu,
    groups: &mut Groups,
) -> Result<(), CliError> {
    let chosen = test_rows(rows);
    let mut slugs: Vec<&GpuSlug> = chosen.iter().map(|row| &row.gpu).collect();
    slugs.sort();
    slugs.dedup();
    let shipped = bundled::models();
    let mut by_work: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in &chosen {
        by_work.entry(key(&row.operation)).or_default().push(row);
    }
    for slug in slugs {
        let Some(models) = models.for_gpu(slug) else { continue };
        let gpu = catalog.find(slug.as_str()).map_err(CliError::other)?;
        let own: Vec<&Row> = chosen.iter().filter(|row| row.gpu == *slug).copied().collect();
        let runs: Vec<Run<'_>> = own.iter().map(|row| run(row, gpu)).collect();
        let alone = models.runs(&runs).map_err(CliError::other)?;
        // The same configuration on other GPUs, by the same models.
        let mut others: Vec<(usize, &Row)> = Vec::new();
        for (index, row) in own.iter().enumerate() {
            let elsewhere = by_work.get(&key(&row.operation)).into_iter().flatten();
            others.extend(elsewhere.filter(|other| other.gpu != *slug).map(|other| (index, *other)));
        }
        let specs: Vec<&GpuSpec> = others
            .iter()
            .map(|(_, row)| catalog.find(row.gpu.as_str()).map_err(CliError::other))
            .collect::<Result<_, _>>()?;
        let origins: Vec<Run<'_>> = others.iter().zip(&specs).map(|((_, row), gpu)| run(row, gpu)).collect();
        let origins = models.runs(&origins).map_err(CliError::other)?;
        let shapes = |row: &Row| row.operation.inputs.iter().map(|shape| format!("{shape:?}")).collect::<Vec<_>>();
        // Convolutions as in a step: the efficiency model was fitted to none of these.
        let decoded: Vec<Decoded<'_>> = own.iter().map(|row| Decoded::new(0, &row.operation, row.precision)).collect();
        let by_efficiency = shipped.efficiency().map(|model| model.convolutions(&decoded).on(&gpu.into()));
        for (place, (row, time)) in own.iter().zip(&alone).enumerate() {
            let other = by_efficiency.as_ref().and_then(|times| times[place]);
            if let Some((time, other)) = time.zip(other) {
                let label = || format!("{} {} on {slug}", row.operation.name, shapes(row).join(" × "));
                let mean = between(time.time, other.time, EFFICIENCY_WEIGHT).as_millis();
                for (method, mid) in
                    [("efficiency model", other.time.as_millis()), ("mean with the efficiency model", mean)]
                {
                    let predicted = Predicted { mid, range: None };
                    groups.add(family, method, predicted, row.time.as_millis(), &label);
                    groups.add(&format!("{family} on {slug}"), method, predicted, row.time.as_millis(), &label);
                }
            }
            let label = || format!("{} {} on {slug}", row.operation.name, shapes(row).join(" × "));
            let measured = row.time.as_millis();
            if let Some(time) = time {
                let predicted = Predicted::in_range(time.time, time.spread);
                groups.add(family, "learned, shapes alone", predicted, measured, &label);
                groups.add(&format!("{family} on {slug}"), "learned, shapes alone", predicted, measured, &label);
            }
            if let Some(work) = work(&row.operation, row.precision) {
                let dtype = row.operation.dtype.clone().unwrap_or(DType::Float32);
                let time = roofline(&gpu.into(), &work, Some(&dtype), row.precision);
                let predicted = Predicted { mid: time.as_millis(), range: None };
                groups.add(&format!("{family} on {slug}"), "roofline, shapes alone", predicted, measured, &label);
            }
        }
        for ((index, other), here) in others.iter().zip(&origins) {
            let (Some(there), Some(here)) = (&alone[*index], here) else { continue };
            let row = own[*index];
            let time = there.time * (other.time / here.time).powf(there.shared_deviation);
            let label = || format!("{} {}, {} → {slug}", row.operation.name, shapes(row).join(" × "), other.gpu);
            let predicted = Predicted::in_range(time, there.with_origin);
            groups.add(family, "learned, with the origin", predicted, row.time.as_millis(), &label);
        }
    }
    Ok(())
}
