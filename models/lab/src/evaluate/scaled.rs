//! Other batch sizes from one profile (scaled shapes), against measured steps; and both ways on the embedded samples,
//! against the ordinary prediction at the held-out batch size.

use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::batches::{ScaledShapes, sweep, with_scaling_range};
use habitat_tui::predict::{Options, Prediction, predict};
use habitat_tui::profile::Profile;
use habitat_tui::units::{GpuSlug, Micros};

use super::tally::{Evaluation, Groups, Predicted};
use super::{cases, steps};
use crate::models::ModelsByGpu;

/// Target GPUs of the samples.
const GPUS: [&str; 6] = ["t4", "p100-pcie-16gb", "v100-sxm2-16gb", "rtx-2080-ti", "a100-sxm4-40gb", "h100-sxm5-80gb"];

/// Every ordered pair of batch sizes of one network on one GPU in a folder of profiles.
pub(super) fn evaluate(dir: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Evaluation, CliError> {
    let mut all: Vec<(GpuSlug, Profile)> = Vec::new();
    for (_, by_gpu) in steps::read(dir)? {
        all.extend(by_gpu);
    }
    let mut groups = Groups::default();
    let mut left_out = 0;
    for (gpu, from) in &all {
        for (_, to) in all.iter().filter(|(other, to)| other == gpu && is_same(from, to)) {
            let (Some(recorded), Some(batch), Some(measured)) =
                (from.workload.batch_size, to.workload.batch_size, to.measured_step())
            else {
                continue;
            };
            let options = Options { targets: vec![gpu.clone()], models: models.for_gpu(gpu), ..Options::default() };
            let known = predict(from, catalog, &options).map_err(CliError::other)?;
            let Some(known) = known.predictions.first().filter(|known| known.step.is_measured()) else { continue };
            let Ok(shapes) = ScaledShapes::of(from, batch, catalog, &options) else {
                left_out += 1;
                continue;
            };
            let (step, _) = shapes.step(0, known);
            let (ranged, wide) = with_scaling_range(&step, recorded, batch);
            let label = || format!("{} {}, {recorded} → {batch}, {gpu}", from.workload.name, from.workload.mode);
            let factor = batch as f64 / recorded as f64;
            let group = if factor > 1.0 { format!("{factor:.0} times") } else { format!("1/{:.0}", 1.0 / factor) };
            let mid = ranged.range.mid.get();
            for group in [group.as_str(), from_mode(from)] {
                let mut add = |method: &str, mid: f64, range: Option<[f64; 2]>| {
                    groups.add(group, method, Predicted { mid, range }, measured.get(), &label);
                };
                add("shapes scaled", mid, Some([ranged.range.low.get(), ranged.range.high.get()]));
                add("shapes scaled, 90 %", mid, Some(wide.map(Micros::get)));
                let known = known.step.mid().get();
                add("in proportion to the batch", known * factor, None);
            }
        }
    }
    let protocol = "absolute relative errors of measured steps from the same network's step measured on the same GPU at another batch size, its shapes scaled";
    let mut notes = vec![models.protocol()];
    if left_out > 0 {
        notes.push(format!("{left_out} recorded at batch size 1, where shapes do not show the batch, are left out"));
    }
    Ok(groups.evaluation(protocol.to_owned(), notes))
}

const fn from_mode(profile: &Profile) -> &'static str {
    match profile.workload.mode {
        habitat_tui::profile::Mode::Training => "training",
        habitat_tui::profile::Mode::Inference => "inference",
    }
}

fn is_same(a: &Profile, b: &Profile) -> bool {
    let of = |profile: &Profile| {
        let workload = &profile.workload;
        (workload.name.clone(), workload.mode, workload.precision, workload.sequence_length)
    };
    of(a) == of(b) && a.workload.batch_size != b.workload.batch_size
}

/// GNMT and DCGAN, embedded at three batch sizes each: the largest held out.
pub(super) fn samples(catalog: &Catalog, models: &ModelsByGpu) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for network in ["gnmt", "dcgan"] {
        let mut of: Vec<Profile> = cases::profiles()?
            .into_iter()
            .filter(|(name, _)| name.starts_with(network))
            .map(|(_, profile)| profile)
            .collect();
        of.sort_by_key(|profile| profile.workload.batch_size);
        let Some((held_out, known)) = of.split_last() else { continue };
        let batch = held_out.workload.batch_size.unwrap_or(0);
        let targets = GPUS.iter().map(|gpu| catalog.find(gpu).map(|gpu| gpu.slug.clone()).map_err(CliError::other));
        let targets = targets.collect::<Result<Vec<GpuSlug>, _>>()?;
        let options = Options { targets, models: models.shipped.clone(), ..Options::default() };
        let itself: Vec<Prediction> = predict(held_out, catalog, &options).map_err(CliError::other)?.predictions;
        let named = |profile: &Profile| (profile.workload.name.clone(), profile.clone());
        for (method, profiles) in [
            ("batch line", known.iter().map(named).collect::<Vec<_>>()),
            ("shapes scaled", known.iter().take(1).map(named).collect()),
        ] {
            let found = sweep(&profiles, catalog, &options, &[batch]).map_err(CliError::other)?;
            for (gpu, itself) in found.gpus.iter().zip(&itself) {
                let Some(row) = gpu.rows.iter().find(|row| row.batch == batch) else { continue };
                let predicted = Predicted {
                    mid: row.step.range.mid.get(),
                    range: Some([row.step.range.low.get(), row.step.range.high.get()]),
                };
                let label = || gpu.gpu.slug.to_string();
                groups.add(&format!("{network}, batch {batch}"), method, predicted, itself.step.mid().get(), &label);
            }
        }
    }
    let protocol = "the embedded samples: the largest batch size from the smaller ones (shapes scaled: from the smallest), against the ordinary prediction of the held-out profile itself; not against measurements";
    Ok(groups.evaluation(protocol.to_owned(), vec![models.protocol()]))
}
