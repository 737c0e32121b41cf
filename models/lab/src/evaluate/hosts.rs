//! Steps of milabench from their shapes by the shipped models: batch 1, which waits for the host, larger batches, and
//! the memory that the driver reports.

use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::{Options, predict};
use habitat_tui::units::Range;

use super::tally::{Evaluation, Groups, Predicted};
use crate::models::ModelsByGpu;
use crate::published::{PublishedStep, read};

/// Batch size from which on GPUs are always busy.
const LARGE: u64 = 16;

/// Times and memory by GPU and precision; groups end in the network's benchmark.
pub(super) fn evaluate(file: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for step in &read(file, catalog)? {
        let PublishedStep { gpu, profile, source, time, memory, .. } = step;
        let name = &profile.workload.name;
        let options = Options {
            targets: vec![gpu.clone()],
            models: models.shipped.clone(),
            steps_only: true,
            ..Options::default()
        };
        let answer = predict(profile, catalog, &options).map_err(CliError::other)?;
        let Some(prediction) = answer.predictions.first() else { continue };
        let Range { low, mid, high } = prediction.step.as_estimate().range;
        let predicted = Predicted { mid: mid.as_millis(), range: Some([low.as_millis(), high.as_millis()]) };
        let label = || format!("{name} on {gpu}: {:.1} of {:.1} ms", predicted.mid, time.as_millis());
        let size = match profile.workload.batch_size.unwrap_or(1) {
            1 => "batch 1",
            ..LARGE => "batch below 16",
            _ => "batch 16 and more",
        };
        for group in [size.to_owned(), format!("{size} → {gpu}"), format!("{size} → {gpu}: {source}")] {
            groups.add(&group, "shapes alone", predicted, time.as_millis(), &label);
        }
        if let Some((needed, memory)) = prediction.memory.needed.zip(*memory) {
            let predicted = Predicted { mid: needed.get(), range: None };
            let label = || format!("{name} on {gpu}: {:.1} of {:.1} GB", needed.get() / 1e9, memory.get() / 1e9);
            for group in ["memory".to_owned(), format!("memory → {gpu}"), format!("memory → {gpu}: {source}")] {
                groups.add(&group, "shapes alone", predicted, memory.get(), &label);
            }
        }
    }
    let protocol = "absolute relative errors of milabench's steps and of the memory that the driver showed, by the shipped models from shapes alone; the assumed pace of the host and the memory beside tensors rest on these runs too, and the terms of AMD GPUs on those of the MI325X";
    Ok(groups.evaluation(protocol.to_owned(), vec![models.protocol()]))
}
