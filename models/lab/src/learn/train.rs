//! Trains the shipped models, and for every GPU the models as they would be without its measurements. All reported
//! errors come from the latter, and so do the ranges of the former.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use habitat_tui::catalog::{Catalog, GpuSpec};
use habitat_tui::learn::ranges::{few_gpus, spread};
use habitat_tui::predict::PredictError;
use habitat_tui::predict::features::OperatorModel;
use habitat_tui::predict::learned::{Ensemble, Models, StepFacts};
use habitat_tui::predict::mlp::ModelError;

use super::data::Dataset;
use super::operators::ensemble;
use super::options::FitError;
use super::residuals::{Residual, residuals, shared_deviation, step_facts, step_residuals};

/// Progress of the training, for a progress bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Ensembles trained.
    pub ensembles: usize,
    /// Ensembles in all.
    pub of: usize,
    /// The current ensemble.
    pub model: OperatorModel,
    /// The GPU left out of it.
    pub left_out: Option<usize>,
}

/// Ensembles by model.
pub type Ensembles = BTreeMap<OperatorModel, Ensemble>;

/// Models with and without every GPU.
#[derive(Debug)]
pub struct Trained {
    /// Trained on everything.
    pub all: Models,
    /// By GPU (as in the dataset): trained and calibrated without it; `None` for GPUs without evaluation data.
    pub without: Vec<Option<Models>>,
}

/// Why training ended without models.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The caller stopped it.
    #[error("stopped")]
    Stopped,
    /// Unusable rows or options.
    #[error("{model}: {source}")]
    Fit {
        /// Which model.
        model: &'static str,
        /// Why.
        source: FitError,
    },
    /// A network could not be computed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A step could not be predicted.
    #[error(transparent)]
    Predict(#[from] PredictError),
}

/// The ensembles of all models without a GPU (index into the dataset's), or with all.
///
/// `known` returns ensembles that were trained before; `progress` is called after every epoch and may stop the
/// training.
///
/// # Errors
/// [`TrainError`] if it was stopped or there is too little data.
pub fn ensembles(
    data: &Dataset,
    left_out: Option<usize>,
    seed: u64,
    progress: &mut dyn FnMut(OperatorModel) -> ControlFlow<()>,
) -> Result<Ensembles, TrainError> {
    let mut found = BTreeMap::new();
    for model in OperatorModel::ALL {
        let rows = data
            .rows
            .get(&model)
            .map_or(0, |rows| rows.iter().filter(|row| Some(row.gpu) != left_out && !row.is_host_bound).count());
        if rows < 50 {
            continue;
        }
        let mut stopped = false;
        let trained = ensemble(data, model, left_out, seed, &mut || {
            let flow = progress(model);
            stopped |= flow.is_break();
            flow
        });
        if stopped {
            return Err(TrainError::Stopped);
        }
        found.insert(model, trained.map_err(|source| TrainError::Fit { model: model.name(), source })?);
    }
    Ok(found)
}

/// Calibrates ensembles trained with all GPUs (`all`) and without each (`without`, by GPU).
///
/// # Errors
/// [`TrainError`] if a network or a step cannot be computed.
pub fn calibrate(
    data: &Dataset,
    catalog: &Catalog,
    all: Ensembles,
    without: Vec<Option<Ensembles>>,
) -> Result<Trained, TrainError> {
    let mut by_fold = Vec::new();
    for ensembles in &without {
        by_fold.push(match ensembles {
            Some(ensembles) => step_residuals(data, catalog, ensembles)?,
            None => vec![None; data.steps.len()],
        });
    }
    let full = step_residuals(data, catalog, &all)?;
    let mut operators = BTreeMap::new();
    for model in all.keys() {
        operators.insert(*model, OperatorResiduals::of(data, *model, &all, &without)?);
    }
    let finish = |mut ensembles: Ensembles, steps: StepFacts, left_out: Option<usize>| {
        for (model, ensemble) in &mut ensembles {
            if let Some(residuals) = operators.get(model) {
                residuals.calibrate(ensemble, left_out);
            }
        }
        Models::new(ensembles, steps)
    };
    let mut folds = Vec::new();
    for (gpu, ensembles) in without.into_iter().enumerate() {
        folds.push(ensembles.map(|ensembles| {
            let steps = step_facts(data, &by_fold, &by_fold[gpu], Some(gpu));
            finish(ensembles, steps, Some(gpu))
        }));
    }
    let steps = step_facts(data, &by_fold, &full, None);
    Ok(Trained { all: finish(all, steps, None), without: folds })
}

/// Errors of one model.
struct OperatorResiduals {
    /// By the ensemble trained with all, on every GPU.
    seen: Vec<Residual>,
    /// On every GPU by the ensemble trained without it.
    unseen: Vec<Residual>,
    /// Pairs of the same work: deviation on an origin, destination, deviation there, by the ensemble trained without
    /// the destination; and the origin.
    pairs: Vec<(usize, (f64, usize, f64))>,
}

impl OperatorResiduals {
    fn of(
        data: &Dataset,
        model: OperatorModel,
        all: &Ensembles,
        without: &[Option<Ensembles>],
    ) -> Result<Self, ModelError> {
        let gpus = 0..data.gpus.len();
        let mut found = Self { seen: Vec::new(), unseen: Vec::new(), pairs: Vec::new() };
        for gpu in gpus.clone() {
            if let Some(ensemble) = all.get(&model).filter(|_| data.is_evaluated(gpu)) {
                found.seen.extend(residuals(data, model, ensemble, gpu)?);
            }
            let fold = without.get(gpu).and_then(Option::as_ref);
            let Some(ensemble) = fold.and_then(|fold| fold.get(&model)) else { continue };
            let there = residuals(data, model, ensemble, gpu)?;
            let by_key: BTreeMap<[u64; 7], f64> = there.iter().map(|residual| (residual.key, residual.log)).collect();
            for origin in gpus.clone().filter(|&origin| origin != gpu) {
                for here in residuals(data, model, ensemble, origin)? {
                    if let Some(&there) = by_key.get(&here.key) {
                        found.pairs.push((origin, (here.log, gpu, there)));
                    }
                }
            }
            found.unseen.extend(there);
        }
        Ok(found)
    }

    fn calibrate(&self, ensemble: &mut Ensemble, left_out: Option<usize>) {
        let logs = |residuals: &[Residual]| -> Vec<(usize, f64)> {
            residuals
                .iter()
                .filter(|residual| Some(residual.gpu) != left_out)
                .map(|residual| (residual.gpu, residual.log))
                .collect()
        };
        let facts = &mut ensemble.facts;
        facts.seen = spread(&logs(&self.seen)).map(|spread| spread.widened(super::residuals::SEEN_WIDENING));
        let unseen = logs(&self.unseen);
        facts.unseen = spread(&unseen).map(|spread| spread.widened(few_gpus(&unseen)));
        let pairs: Vec<(f64, usize, f64)> = self
            .pairs
            .iter()
            .filter(|(origin, (_, gpu, _))| Some(*origin) != left_out && Some(*gpu) != left_out)
            .map(|(_, pair)| *pair)
            .collect();
        let (shared, left) = shared_deviation(&pairs);
        facts.shared_deviation = shared;
        facts.with_origin = spread(&left).map(|spread| spread.widened(few_gpus(&left)));
    }
}

/// The name of the GPU left out, for progress and file names.
pub fn fold_name(gpus: &[GpuSpec], left_out: Option<usize>) -> &str {
    left_out.and_then(|index| gpus.get(index)).map_or("all", |gpu| gpu.slug.as_str())
}
