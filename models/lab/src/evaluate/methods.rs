//! Every method on the same whole steps: recorded steps and traces, predicted from shapes alone and from another GPU.
//! Source of the errors in [`habitat_tui::predict::compare`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::compare::{Known, StepKind};
use habitat_tui::predict::efficiency::Efficiency;
use habitat_tui::predict::{MethodChoice, Options, predict};
use habitat_tui::profile::Profile;
use habitat_tui::store::bundled;
use habitat_tui::units::GpuSlug;

use super::published;
use super::steps::{bare, read};
use super::tally::{Evaluation, Groups, Predicted};
use super::traces;
use crate::learn::efficiency::amd::fit;
use crate::learn::efficiency::folds::Folds;
use crate::models::ModelsByGpu;
use crate::published::{ON_AMD, read_on_amd};

/// Methods that need only shipped data.
const METHODS: [MethodChoice; 4] =
    [MethodChoice::Auto, MethodChoice::Learned, MethodChoice::WaveScaling, MethodChoice::Roofline];

/// A measured step, and one to predict it from.
struct Case<'a> {
    /// The known facts.
    group: String,
    from: &'a Profile,
    gpu: &'a GpuSlug,
    measured: &'a Profile,
    label: String,
    methods: &'a [MethodChoice],
}

/// The steps under `data/neusight/steps`, the traces under `data/traces/gpu`, published steps of a file, and recorded
/// steps of a folder.
pub(super) fn evaluate(
    (data, published, recorded): (&Path, Option<&Path>, Option<&Path>),
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    let steps = read(&data.join("neusight/steps"))?;
    let mut traces = traces::recorded(&data.join("traces/gpu"), catalog)?;
    traces.retain(|_, same| same.len() > 1);
    let recorders = traces.values().flatten().map(|trace| &trace.gpu);
    let gpus: BTreeSet<&GpuSlug> = steps.values().flat_map(BTreeMap::keys).chain(recorders).collect();
    let models = &match published {
        Some(file) => {
            with_efficiency(models, file, &gpus, &published::by_methods(&mut groups, file, catalog)?, catalog)?
        }
        None => models.clone(),
    };
    if let Some(folder) = recorded {
        between_recorded(&mut groups, folder, catalog)?;
    }
    for (name, by_gpu) in &steps {
        for (gpu, measured) in by_gpu {
            for (origin, from) in by_gpu {
                let (known, label) = if origin == gpu {
                    (Known::Shapes, format!("{} on {gpu}", bare(name)))
                } else {
                    (Known::Step, format!("{}, {origin} → {gpu}", bare(name)))
                };
                let Some(group) = group(measured, gpu, known, catalog) else { continue };
                if origin != gpu {
                    let bare = without_shapes(from);
                    let (group, label) = (format!("{group}, no shapes"), label.clone());
                    let case = Case { group, from: &bare, gpu, measured, label, methods: &METHODS[..1] };
                    add_case(&mut groups, &case, catalog, models);
                }
                add_case(&mut groups, &Case { group, from, gpu, measured, label, methods: &METHODS }, catalog, models);
            }
        }
    }
    for (workload, recorded) in &traces {
        for there in recorded {
            for here in recorded.iter().filter(|here| here.gpu != there.gpu) {
                let label = format!("{workload}, {} → {}", here.gpu, there.gpu);
                let (gpu, measured) = (&there.gpu, &there.profile);
                let Some(group) = group(measured, gpu, Known::Trace, catalog) else { continue };
                let bare = without_shapes(&here.profile);
                let (unshaped, same) = (format!("{group}, no shapes"), label.clone());
                let case = Case { group: unshaped, from: &bare, gpu, measured, label: same, methods: &METHODS[..1] };
                add_case(&mut groups, &case, catalog, models);
                let case = Case { group, from: &here.profile, gpu, measured, label, methods: &METHODS };
                add_case(&mut groups, &case, catalog, models);
            }
        }
    }
    let protocol = "absolute relative errors of whole steps by every method on the same steps; \"in range\" is the share of measured steps in the predicted range";
    Ok(groups.evaluation(protocol.to_owned(), vec![models.protocol()]))
}

/// The operator models without each GPU beside an efficiency model that did not see it either; the terms of AMD GPUs are
/// fitted to the files beside `published`.
fn with_efficiency(
    models: &ModelsByGpu,
    published: &Path,
    gpus: &BTreeSet<&GpuSlug>,
    folds: &Folds,
    catalog: &Catalog,
) -> Result<ModelsByGpu, CliError> {
    let on_amd = read_on_amd(&ON_AMD.map(|name| published.with_file_name(name)), catalog)?;
    let whole = fit(&on_amd, catalog, &folds.all).terms;
    let without = |gpu: &&GpuSlug| {
        let others: Vec<_> = on_amd.iter().filter(|step| step.gpu != **gpu).cloned().collect();
        let is_seen = others.len() < on_amd.len();
        let amd = if is_seen { fit(&others, catalog, &folds.all).terms } else { whole.clone() };
        ((*gpu).clone(), Efficiency { amd: Some(amd), ..folds.without_gpu(gpu).clone() })
    };
    Ok(models.with_efficiency(gpus.iter().map(without).collect()))
}

/// Recorded steps from the same step on another GPU, by the shipped models, which know both GPUs. Only the default
/// method, which scales measured times; the others were fitted to these steps.
fn between_recorded(groups: &mut Groups, folder: &Path, catalog: &Catalog) -> Result<(), CliError> {
    let models = ModelsByGpu { shipped: Some(Arc::new(bundled::models())), ..ModelsByGpu::default() };
    for (name, by_gpu) in &read(folder)? {
        for (gpu, measured) in by_gpu {
            let Some(spec) = catalog.get(gpu) else { continue };
            for (origin, from) in by_gpu.iter().filter(|(origin, _)| *origin != gpu) {
                let group = StepKind::of(measured, spec).group_between(Known::Trace, [origin, gpu]);
                let label = format!("{}, {origin} → {gpu}", bare(name));
                let case = Case { group, from, gpu, measured, label, methods: &METHODS[..1] };
                add_case(groups, &case, catalog, &models);
            }
        }
    }
    Ok(())
}

/// The group of a step on a GPU, predicted from these facts.
fn group(measured: &Profile, gpu: &GpuSlug, known: Known, catalog: &Catalog) -> Option<String> {
    StepKind::of(measured, catalog.get(gpu)?).group(known)
}

/// The recording as a profiler without `record_shapes` makes it.
fn without_shapes(profile: &Profile) -> Profile {
    let mut bare = profile.clone();
    for operation in &mut bare.operations {
        operation.inputs.clear();
        operation.outputs.clear();
        operation.attributes.clear();
        operation.dtype = None;
    }
    bare
}

fn add_case(groups: &mut Groups, case: &Case<'_>, catalog: &Catalog, models: &ModelsByGpu) {
    let Some(time) = case.measured.measured_step() else { return };
    let alone = std::ptr::eq(case.from, case.measured);
    let origin = case.from.origin.as_ref().and_then(|origin| catalog.get(origin.gpu.as_ref()?));
    for &method in case.methods {
        let options = Options {
            targets: vec![case.gpu.clone()],
            ignore_origin: alone,
            method,
            models: models.for_gpu(case.gpu),
            ..Options::default()
        };
        if method.missing(Known::of(case.from, origin, &options), &options).is_some() {
            continue;
        }
        // A step without any operations cannot be predicted.
        let Ok(answer) = predict(case.from, catalog, &options) else { continue };
        let Some(prediction) = answer.predictions.first() else { continue };
        let step = prediction.step.as_estimate();
        let predicted =
            Predicted { mid: step.range.mid.get(), range: Some([step.range.low.get(), step.range.high.get()]) };
        groups.add(&case.group, method.name(), predicted, time.get(), &|| case.label.clone());
    }
}
