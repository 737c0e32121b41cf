//! Fits the linear models of [`crate::kernelwise`] (Li, Sun and Jog, MICRO 2023).
//!
//! Measured operators become rows: a layer's sizes and the time of each of its kernels. On each GPU, rows of recorded
//! steps have priority, and operator tables add kinds of layers that no step has: kernels in a step run warm, at the
//! clocks of a step. Ranges are the errors on left-out networks, and on left-out GPUs.

mod across;
mod evaluate;
mod group;

use std::collections::{BTreeMap, BTreeSet};

use crate::decoded::{Decoded, step_operations};
use crate::kernelwise::{Driver, GpuLines, KernelWise, Layer, Level};
use crate::layer::STREAMING;
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::{Catalog, GpuSpec, UnknownGpu};
use habitat_step::profile::{Operation, Precision, Profile};

pub use evaluate::{CrossValidation, HeldOut, LeftOut, held_out};

/// Origin of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Within a step.
    Step,
    /// Measured separately.
    Table,
}

/// Single occurrence of an operator, measured on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// GPU that it ran on.
    pub gpu: GpuSlug,
    /// Network that it belongs to; empty for tables.
    pub network: String,
    /// Origin of the row.
    pub source: Source,
    /// Layer that ran.
    pub layer: Layer,
    /// Kernels with their time in one occurrence, in microseconds.
    pub kernels: Vec<(String, f64)>,
}

impl Row {
    /// Total time of all kernels, in microseconds.
    pub(crate) fn time(&self) -> f64 {
        self.kernels.iter().map(|(_, time)| time).sum()
    }
}

/// Variant of the fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// As in the paper: three drivers, ordinary least squares, no factor from layers to steps.
    pub published: bool,
}

/// Data to fit.
#[derive(Debug, Clone, Default)]
pub struct Data {
    /// Measured operators.
    pub rows: Vec<Row>,
    /// Measured steps, with their GPU.
    pub steps: Vec<(GpuSlug, Profile)>,
}

/// Reason that a fit failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// Measured operators are missing.
    #[error(
        "nothing to fit: no profile has a known GPU and operators with measured times and shapes (record with record_shapes=True), and operator tables are missing (--tables DIR)"
    )]
    Nothing,
    /// A GPU is not in the catalog.
    #[error(transparent)]
    UnknownGpu(#[from] UnknownGpu),
}

impl Data {
    /// Adds a profile's operators and step, and returns the number of rows. 0 for a profile without a known GPU.
    pub fn add_profile(&mut self, profile: Profile) -> usize {
        let Some(gpu) = profile.origin.as_ref().and_then(|origin| origin.gpu.clone()) else { return 0 };
        let before = self.rows.len();
        for operation in &profile.operations {
            self.rows.extend(row_of(&gpu, &profile.workload.name, operation, profile.workload.precision));
        }
        let found = self.rows.len() - before;
        // Without operator times, a step does not show its ratio to the sum of its layers.
        if found > 0 && profile.measured_step().is_some() {
            self.steps.push((gpu, profile));
        }
        found
    }

    /// Adds a separately measured operator; returns whether its shapes determine its work.
    pub fn add_measured(
        &mut self,
        gpu: &GpuSlug,
        operation: &Operation,
        precision: Option<Precision>,
        kernel: &str,
        time: Micros,
    ) -> bool {
        let layer = Layer::of(operation, precision).filter(|_| time.get() > 0.0);
        let Some(layer) = layer else { return false };
        // Without a kernel name, the kind keeps operators apart that would otherwise merge.
        let name = if kernel.is_empty() { layer.kind.clone() } else { kernel.to_owned() };
        let kernels = vec![(name, time.get())];
        self.rows.push(Row { gpu: gpu.clone(), network: String::new(), source: Source::Table, layer, kernels });
        true
    }

    /// Measured GPUs.
    pub fn gpus(&self) -> BTreeSet<&GpuSlug> {
        self.rows.iter().map(|row| &row.gpu).chain(self.steps.iter().map(|(gpu, _)| gpu)).collect()
    }
}

/// Row of an operation measured within a step; without kernels, the operator counts as its only kernel.
fn row_of(gpu: &GpuSlug, network: &str, operation: &Operation, precision: Option<Precision>) -> Option<Row> {
    let time = operation.device_time.filter(|time| time.get() > 0.0)?.get();
    let layer = Layer::of(operation, precision)?;
    let mut kernels: Vec<(String, f64)> = Vec::new();
    for kernel in &operation.kernels {
        let time = kernel.duration.get() * f64::from(kernel.count);
        match kernels.iter_mut().find(|(name, _)| *name == kernel.name) {
            Some((_, sum)) => *sum += time,
            None => kernels.push((kernel.name.clone(), time)),
        }
    }
    let sum: f64 = kernels.iter().map(|(_, time)| time).sum();
    if sum > 0.0 {
        // Kernels and operator may be averaged differently.
        for (_, of) in &mut kernels {
            *of *= time / sum;
        }
        kernels.retain(|(_, time)| *time > 0.0);
    } else {
        kernels = vec![(layer.kind.clone(), time)];
    }
    Some(Row { gpu: gpu.clone(), network: network.to_owned(), source: Source::Step, layer, kernels })
}

/// Fits all models, with ranges from left-out networks and GPUs.
///
/// # Errors
/// [`FitError`] if there is nothing to fit, or a GPU is not in the catalog.
pub fn fit(data: &Data, catalog: &Catalog, recipe: Recipe) -> Result<(KernelWise, CrossValidation), FitError> {
    let held = evaluate::held_out(data, catalog, recipe)?;
    let mut model = lines(data, catalog, recipe, &|_| true)?;
    (model.seen, model.unseen) = held.ranges();
    model.errors = held.errors();
    Ok((model, held))
}

/// Fits the networks that `keep` selects (and all tables), without ranges.
///
/// # Errors
/// As [`fit`].
pub fn lines(
    data: &Data,
    catalog: &Catalog,
    recipe: Recipe,
    keep: &dyn Fn(&str) -> bool,
) -> Result<KernelWise, FitError> {
    let mut model = KernelWise::default();
    for slug in data.gpus() {
        let gpu = catalog.find(slug.as_str())?;
        let lines = gpu_lines(data, gpu, recipe, keep);
        if !lines.kinds.is_empty() {
            model.gpus.insert(slug.clone(), lines);
        }
    }
    if model.gpus.is_empty() {
        return Err(FitError::Nothing);
    }
    let measured = across::Measured::new(data, catalog, recipe, keep)?;
    across::fill(&mut model, &measured, None);
    Ok(model)
}

/// Fits all lines of one GPU.
pub(crate) fn gpu_lines(data: &Data, gpu: &GpuSpec, recipe: Recipe, keep: &dyn Fn(&str) -> bool) -> GpuLines {
    let rows = chosen(data, &gpu.slug, keep);
    let mut by_kind: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        by_kind.entry(&row.layer.kind).or_default().push(row);
    }
    let mut lines = GpuLines { step_factor: 1.0, ..GpuLines::default() };
    for (kind, rows) in &by_kind {
        if let Some(fitted) = group::kind(rows, recipe) {
            lines.kinds.insert((*kind).to_owned(), fitted);
        }
    }
    let streams: Vec<(f64, f64)> =
        rows.iter().filter(|row| is_stream(row)).map(|row| (row.layer.bytes, row.time())).collect();
    if let Some(layers) = group::of_points(Driver::Bytes, &streams, recipe, true) {
        let streaming =
            crate::kernelwise::Kind { layers: Some(layers.clone()), groups: vec![layers], ..Default::default() };
        lines.kinds.insert(STREAMING.to_owned(), streaming);
    }
    let steps: Vec<&Profile> = steps_of(data, &gpu.slug, keep).collect();
    let points: Vec<(f64, f64)> = steps
        .iter()
        .filter_map(|profile| Some((step_operations(&Decoded::all(profile)).get(), profile.measured_step()?.get())))
        .collect();
    lines.end_to_end = group::of_steps(&points, recipe);
    if !recipe.published {
        lines.step_factor = step_factor(&lines, gpu, &steps);
        lines.steps = steps.len();
    }
    lines
}

/// Rows to use on a GPU: those of steps, and of tables the kinds that no step has.
fn chosen<'a>(data: &'a Data, gpu: &GpuSlug, keep: &dyn Fn(&str) -> bool) -> Vec<&'a Row> {
    let own = |source: Source| data.rows.iter().filter(move |row| row.gpu == *gpu && row.source == source);
    let steps: Vec<&Row> = own(Source::Step).filter(|row| keep(&row.network)).collect();
    let known: BTreeSet<&str> = steps.iter().map(|row| row.layer.kind.as_str()).collect();
    let tables = own(Source::Table).filter(|row| !known.contains(row.layer.kind.as_str()));
    steps.iter().copied().chain(tables).collect()
}

/// Whether a row shows the speed of streams: forward layers that compute. Recorded copies are often views.
fn is_stream(row: &Row) -> bool {
    let kind = row.layer.kind.as_str();
    row.layer.is_streaming && !["copy", "backward", "accumulation"].iter().any(|word| kind.contains(word))
}

fn steps_of<'a>(data: &'a Data, gpu: &GpuSlug, keep: &'a dyn Fn(&str) -> bool) -> impl Iterator<Item = &'a Profile> {
    let gpu = gpu.clone();
    data.steps
        .iter()
        .filter(move |(of, profile)| *of == gpu && keep(&profile.workload.name))
        .map(|(_, profile)| profile)
}

/// Ratio of steps to the sum of their layers: the geometric mean, regularised towards 1 with the weight of one step.
fn step_factor(lines: &GpuLines, gpu: &GpuSpec, steps: &[&Profile]) -> f64 {
    let alone = KernelWise { gpus: BTreeMap::from([(gpu.slug.clone(), lines.clone())]), ..KernelWise::default() };
    let logs: Vec<f64> = steps
        .iter()
        .filter_map(|profile| {
            let layers = alone.on(gpu).step(profile, Level::Kernels);
            // Excludes the wait for the host if recorded, because it depends on the program.
            let busy = profile.step.as_ref().and_then(|step| step.device_busy);
            let ratio = busy.map_or(profile.measured_step(), Some)? / layers;
            (ratio.is_finite() && ratio > 0.0).then(|| ratio.ln())
        })
        .collect();
    (logs.iter().sum::<f64>() / (logs.len() as f64 + 1.0)).exp()
}
