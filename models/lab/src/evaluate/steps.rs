//! Whole recorded steps: from shapes alone, and from the same step on another GPU.

use std::collections::BTreeMap;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::op::family;
use habitat_tui::predict::{Options, Prediction, predict};
use habitat_tui::profile::Profile;
use habitat_tui::store;
use habitat_tui::units::GpuSlug;

use super::tally::{Evaluation, Groups, Predicted};
use crate::models::ModelsByGpu;

/// Measured steps by file name, then by GPU.
pub(super) type Steps = BTreeMap<String, BTreeMap<GpuSlug, Profile>>;

/// Prediction of a step from its shapes alone.
pub(super) const ALONE: &str = "shapes alone";
/// Prediction of a step from the same step on another GPU.
pub(super) const ELSEWHERE: &str = "from another GPU";
pub(super) const BOTH: [&str; 2] = [ALONE, ELSEWHERE];

/// Every step of `dir`, predicted from its shapes, from every other GPU with a measurement, or both.
pub(super) fn evaluate(
    dir: &Path,
    methods: &[&'static str],
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for (name, by_gpu) in &read(dir)? {
        for (gpu, profile) in by_gpu {
            let mut add = |method: &'static str, source: &Profile, origin: Option<&GpuSlug>| {
                let options = Options { ignore_origin: origin.is_none(), ..Options::default() };
                let prediction = methods.contains(&method).then(|| to(gpu, source, options, catalog, models)).flatten();
                if let Some(prediction) = prediction {
                    add_step(&mut groups, method, &prediction, profile, gpu, name, origin);
                }
            };
            add(ALONE, profile, None);
            for (origin, source) in by_gpu.iter().filter(|(other, _)| *other != gpu) {
                add(ELSEWHERE, source, Some(origin));
            }
        }
    }
    let protocol = "absolute relative errors of whole steps: from shapes alone, and from the same step measured on every other GPU; \"in range\" is the share of measured steps in the predicted range";
    Ok(groups.evaluation(protocol.to_owned(), vec![models.protocol()]))
}

/// Every step of `dir` from the step of the same file name in `origins`, and its operations by family.
pub(super) fn from_origins(
    dir: &Path,
    origins: &Path,
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Result<Evaluation, CliError> {
    let (steps, origins) = (read(dir)?, read(origins)?);
    let mut groups = Groups::default();
    let mut lone = 0;
    for (name, by_gpu) in &steps {
        for (gpu, profile) in by_gpu {
            let sources = origins.get(name).into_iter().flatten().filter(|(origin, _)| *origin != gpu);
            let mut found = false;
            for (origin, source) in sources {
                let Some(prediction) = to(gpu, source, Options::default(), catalog, models) else { continue };
                found = true;
                add_step(&mut groups, "from the origin", &prediction, profile, gpu, name, Some(origin));
                add_operations(&mut groups, &prediction, source, profile, &format!("{}, {origin} → {gpu}", bare(name)));
            }
            lone += usize::from(!found);
        }
    }
    let protocol = "absolute relative errors of whole steps predicted from the same step measured on another GPU (every ordered pair), and of their operations by family; \"in range\" is the share of measured times in the predicted range";
    let notes = if lone == 0 { Vec::new() } else { vec![format!("{lone} steps have no origin and are left out")] };
    let notes = notes.into_iter().chain([models.protocol()]).collect();
    Ok(groups.evaluation(protocol.to_owned(), notes))
}

pub(super) fn to(
    gpu: &GpuSlug,
    source: &Profile,
    options: Options,
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Option<Prediction> {
    let options = Options { targets: vec![gpu.clone()], models: models.for_gpu(gpu), ..options };
    // A step without any operations cannot be predicted.
    predict(source, catalog, &options).ok()?.predictions.pop()
}

fn add_step(
    groups: &mut Groups,
    method: &'static str,
    prediction: &Prediction,
    measured: &Profile,
    gpu: &GpuSlug,
    name: &str,
    origin: Option<&GpuSlug>,
) {
    let Some(time) = measured.measured_step() else { return };
    let step = prediction.step.as_estimate();
    let predicted = Predicted { mid: step.range.mid.get(), range: Some([step.range.low.get(), step.range.high.get()]) };
    let mode = measured.workload.mode;
    let name = bare(name);
    let label = || origin.map_or_else(|| format!("{name} on {gpu}"), |origin| format!("{name}, {origin} → {gpu}"));
    for group in [mode.to_string(), format!("{mode} → {gpu}")] {
        groups.add(&group, method, predicted, time.get(), &label);
    }
}

/// A file name without its extensions.
pub(super) fn bare(name: &str) -> &str {
    name.split(".habitat").next().unwrap_or(name)
}

/// Operations at the same position in both profiles, by family.
fn add_operations(groups: &mut Groups, prediction: &Prediction, source: &Profile, measured: &Profile, label: &str) {
    for (operation, there) in prediction.operations.iter().zip(&measured.operations) {
        let here = &source.operations[operation.index];
        let same = here.name == there.name && here.inputs == there.inputs && here.phase == there.phase;
        let (Some(time), Some(measured)) = (&operation.time, there.device_time) else { continue };
        if !same || measured.get() <= 0.0 {
            continue;
        }
        let predicted =
            Predicted { mid: time.range.mid.get(), range: Some([time.range.low.get(), time.range.high.get()]) };
        let group = format!("operations: {}", family(there).name());
        groups.add(&group, "from the origin", predicted, measured.get(), &|| format!("{} in {label}", there.name));
    }
}

pub(super) fn read(dir: &Path) -> Result<Steps, CliError> {
    let mut steps = Steps::new();
    for path in store::profiles(dir)? {
        let (profile, _) = store::read_profile(&path)?;
        let gpu = profile.origin.as_ref().and_then(|origin| origin.gpu.clone());
        if let (Some(gpu), Some(_), Some(name)) = (gpu, profile.measured_step(), path.file_name()) {
            steps.entry(name.to_string_lossy().into_owned()).or_default().insert(gpu, profile);
        }
    }
    Ok(steps)
}
