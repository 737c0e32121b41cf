//! Predicts a step on a GPU with changed figures: the step on the real GPU without its data, scaled by the models' ratio
//! of the changed GPU to the unchanged one; its data take as long as recorded. Corrections measured on that GPU affect
//! both alike and cancel.

use super::choice::predict;
use super::{Estimate, Finding, OperationPrediction, Options, PredictError, Prediction, StepTime, Supply};
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::hypothetical::{Changes, Figure};
use habitat_step::catalog::{Catalog, GpuSpec};
use habitat_step::profile::Profile;

/// Points of the curve, as multiples of the real figure (a choice).
const POINTS: [f64; 9] = [0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0];

/// Prefix of the changed GPU's slug, followed by the real GPU's.
const SLUG: &str = "what-if";
/// Maximum length of a slug.
const LONGEST_SLUG: usize = 64;

/// Predictions on a real GPU and on a changed version of it.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// Step on the real GPU.
    pub real: Prediction,
    /// Step on the changed GPU.
    pub changed: Prediction,
    /// Figure that the curve varies.
    pub along: Figure,
    /// Step by that figure (as a multiple of the real one), with other figures as changed.
    pub curve: Vec<(f64, Micros)>,
}

/// Predicts the step on `gpu` with changed figures, and a curve along one of them.
///
/// # Errors
/// Errors of [`predict`].
pub fn what_if(
    profile: &Profile,
    catalog: &Catalog,
    options: &Options,
    gpu: &GpuSlug,
    changes: &Changes,
    figure: Figure,
) -> Result<WhatIf, PredictError> {
    let target = |slug: &GpuSlug| Options { targets: vec![slug.clone()], ..options.clone() };
    let real = first(predict(profile, catalog, &target(gpu))?.predictions, profile)?;
    let spec = catalog.find(gpu.as_str())?;
    let curve = POINTS.map(|times| changes.with(figure, times));
    let versions: Vec<GpuSpec> = [Changes::default(), *changes]
        .iter()
        .chain(&curve)
        .enumerate()
        .filter_map(|(number, changes)| {
            let mut slug = if number == 1 { format!("{SLUG}-{gpu}") } else { format!("{SLUG}-{number}") };
            slug.truncate(LONGEST_SLUG);
            Some(spec.hypothetical(GpuSlug::new(slug).ok()?, changes))
        })
        .collect();
    let slugs: Vec<GpuSlug> = versions.iter().map(|version| version.slug.clone()).collect();
    // The recording is of a real GPU, whatever the slugs of the versions.
    let origin = profile.origin.as_ref().and_then(|origin| catalog.recorded_on(origin)).map(|gpu| gpu.slug.clone());
    let asked = Options { origin: options.origin.clone().or(origin), ..options.clone() };
    let all = Catalog::new(catalog.iter().cloned().chain(versions));
    let on = |slugs: &[GpuSlug], steps_only: bool| {
        let asked = Options { targets: slugs.to_vec(), steps_only, ..asked.clone() };
        Ok::<_, PredictError>(predict(profile, &all, &asked)?.predictions)
    };
    let Some((compared, along)) = slugs.split_at_checked(2) else { return Err(nothing(profile)) };
    let answers = on(compared, options.steps_only)?;
    let [unchanged, version] = &answers[..] else { return Err(nothing(profile)) };
    let (before, there) = (alone(unchanged).range.mid, alone(&real).range.mid);
    let times = if before.get() > 0.0 { there / before } else { 1.0 };
    let curve = POINTS.into_iter().zip(on(along, true)?).map(|(point, at)| (point, scaled(&at, times).0.range.mid));
    let mut version = on_real(&real, unchanged, version.clone(), times);
    version.throughput = profile.workload.batch_size.and_then(|batch| version.step.as_estimate().throughput(batch));
    Ok(WhatIf { along: figure, curve: curve.collect(), changed: version, real })
}

fn first(predictions: Vec<Prediction>, profile: &Profile) -> Result<Prediction, PredictError> {
    predictions.into_iter().next().ok_or_else(|| nothing(profile))
}

fn nothing(profile: &Profile) -> PredictError {
    PredictError::NothingKnown { workload: habitat_base::text::clean(&profile.workload.name, 60) }
}

/// The step without its wait for data.
fn alone(prediction: &Prediction) -> Estimate {
    prediction.data.map_or_else(|| prediction.step.as_estimate(), |data| data.alone)
}

/// A predicted step that takes `times` as long without its data, which load as fast as recorded.
fn scaled(prediction: &Prediction, times: f64) -> (Estimate, Option<Supply>) {
    let alone = alone(prediction);
    let alone = Estimate { range: alone.range.map(|end| end * times), ..alone };
    let data = prediction.data.map(|data| data.at(alone, 1.0, times));
    (data.map_or(alone, |data| data.step()), data)
}

/// The prediction for the changed GPU, `times` as long: the ratio of the real step to the unchanged prediction.
fn on_real(real: &Prediction, unchanged: &Prediction, mut changed: Prediction, times: f64) -> Prediction {
    let (step, data) = scaled(&changed, times);
    let waits = changed.host_idle.checked_sub(changed.data_wait()).unwrap_or_default() * times;
    (changed.step, changed.data) = (StepTime::Predicted(step), data);
    changed.host_idle = waits + changed.data_wait();
    changed.device = changed.device * times;
    for share in &mut changed.shares {
        share.device_time = share.device_time * times;
    }
    let middle = |operation: &OperationPrediction| operation.time.as_ref().map(|time| time.range.mid);
    for ((operation, unchanged), real) in changed.operations.iter_mut().zip(&unchanged.operations).zip(&real.operations)
    {
        let (Some(before), Some(there)) = (middle(unchanged).filter(|time| time.get() > 0.0), middle(real)) else {
            continue;
        };
        if let Some(time) = &mut operation.time {
            time.range = time.range.map(|end| end * (there / before));
        }
    }
    changed.notes.insert(0, Finding::HypotheticalStep);
    changed
}
