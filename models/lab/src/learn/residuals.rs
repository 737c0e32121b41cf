//! Errors of the models on GPUs that they did not see, and the ranges from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::learn::ranges::{few_gpus, quantile, spread};
use habitat_tui::predict::features::OperatorModel;
use habitat_tui::predict::learned::{Ensemble, Models, StepFacts};
use habitat_tui::predict::mlp::ModelError;
use habitat_tui::predict::rate::Rates;
use habitat_tui::predict::{Options, PredictError, predict};
use habitat_tui::profile::Mode;

use super::data::{Dataset, Row, Session};
use super::operators::predict_rows;

/// Weight, in steps, of the typical factor relative to a GPU's own.
const TYPICAL_WEIGHT: f64 = 2.0;
/// Factor on the ranges of GPUs in the training data, relative to their residuals there.
pub(super) const SEEN_WIDENING: f64 = 1.25;

/// One operator's or step's error: ln(measured / predicted).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// ln(measured / predicted).
    pub log: f64,
    /// Index into the dataset's GPUs.
    pub gpu: usize,
    /// The work, equal on other GPUs.
    pub key: [u64; 7],
}

/// Errors of an ensemble on the evaluation rows of a GPU: those of the authors' test split, or all if there is none.
///
/// # Errors
/// [`ModelError`] if a network cannot be computed.
pub fn residuals(
    data: &Dataset,
    model: OperatorModel,
    ensemble: &Ensemble,
    gpu: usize,
) -> Result<Vec<Residual>, ModelError> {
    let rows = test_rows(data, model, gpu);
    let predicted = predict_rows(data, model, ensemble, &rows)?;
    Ok(rows
        .iter()
        .zip(predicted)
        .map(|(row, predicted)| Residual { log: (row.measured_us / predicted).ln(), gpu, key: row.key })
        .collect())
}

fn test_rows(data: &Dataset, model: OperatorModel, gpu: usize) -> Vec<&Row> {
    let all = data.rows.get(&model).map_or(&[][..], |rows| rows);
    let of = |session: &dyn Fn(Session) -> bool| -> Vec<&Row> {
        all.iter().filter(|row| row.gpu == gpu && session(row.session)).collect()
    };
    let test = of(&|session| session == Session::Test);
    if test.is_empty() { of(&|session| session != Session::Step) } else { test }
}

/// Share of an origin's deviation that a destination has, from pairs of the same work: the regression through 0 of one
/// on the other, within 0 and 1; and the residuals.
pub fn shared_deviation(pairs: &[(f64, usize, f64)]) -> (f64, Vec<(usize, f64)>) {
    let (mut both, mut origin) = (0.0, 0.0);
    for (here, _, there) in pairs {
        // Limit outliers.
        let (here, there) = (here.clamp(-0.7, 0.7), there.clamp(-0.7, 0.7));
        both += here * there;
        origin += here * here;
    }
    let share = if origin > 0.0 { (both / origin).clamp(0.0, 1.0) } else { 0.0 };
    (share, pairs.iter().map(|(here, gpu, there)| (*gpu, there - share * here)).collect())
}

/// ln(measured / sum of predicted operators) of every step, by models whose step is the plain sum. `None` for steps
/// without a prediction.
///
/// # Errors
/// [`PredictError`] if a network cannot be computed.
pub fn step_residuals(
    data: &Dataset,
    catalog: &Catalog,
    ensembles: &BTreeMap<OperatorModel, Ensemble>,
) -> Result<Vec<Option<f64>>, PredictError> {
    let models = Arc::new(Models::new(ensembles.clone(), StepFacts::default()));
    data.steps
        .iter()
        .map(|step| {
            let options = Options {
                targets: vec![data.gpus[step.gpu].slug.clone()],
                ignore_origin: true,
                models: Some(models.clone()),
                ..Options::default()
            };
            let answer = predict(&step.profile, catalog, &options)?;
            let predicted = answer.predictions.first().map_or(0.0, |prediction| prediction.step.mid().get());
            Ok((predicted > 0.0).then(|| (step.time.get() / predicted).ln()))
        })
        .collect()
}

/// Facts learned from steps. `by_fold[g]` has the residuals of every step by the ensembles that did not see GPU `g`,
/// `full` by those that saw all but `left_out`, whose steps do not count here.
pub fn step_facts(
    data: &Dataset,
    by_fold: &[Vec<Option<f64>>],
    full: &[Option<f64>],
    left_out: Option<usize>,
) -> StepFacts {
    let known: Vec<usize> = (0..data.steps.len()).filter(|&step| Some(data.steps[step].gpu) != left_out).collect();
    // Training steps: how much more they deviate than inference on the same GPU, whatever the GPU.
    let training = |without: Option<usize>| -> f64 {
        let mut differences = Vec::new();
        for gpu in (0..data.gpus.len()).filter(|&gpu| Some(gpu) != without) {
            let of = |mode: Mode| -> Vec<(f64, f64)> {
                let own = known.iter().filter(|&&step| data.steps[step].gpu == gpu);
                own.filter(|&&step| data.steps[step].profile.workload.mode == mode)
                    .filter_map(|&step| Some((by_fold[gpu][step]?, 1.0)))
                    .collect()
            };
            if let Some(inference) = quantile(of(Mode::Inference), 0.5) {
                differences.extend(of(Mode::Training).into_iter().map(|(log, weight)| (log - inference, weight)));
            }
        }
        quantile(differences, 0.5).unwrap_or(0.0)
    };
    // From here on training steps are converted to the deviation of inference.
    let adjusted = |residuals: &[Option<f64>], step: usize, without: Option<usize>| -> Option<f64> {
        let trains = data.steps[step].profile.workload.mode == Mode::Training;
        Some(residuals[step]? - if trains { training(without) } else { 0.0 })
    };
    let unseen = |step: usize| adjusted(&by_fold[data.steps[step].gpu], step, Some(data.steps[step].gpu));
    let typical = |without: Option<usize>| -> f64 {
        let logs = known.iter().filter(|&&step| Some(data.steps[step].gpu) != without);
        quantile(logs.filter_map(|&step| Some((unseen(step)?, 1.0))).collect(), 0.5).unwrap_or(0.0)
    };
    let usual = typical(None);
    // A GPU's own factor, shrunk to the typical one; `but` leaves out a workload by name.
    let factor_of = |residuals: &[Option<f64>], gpu: usize, but: Option<&str>| -> Option<f64> {
        let own: Vec<f64> = known
            .iter()
            .filter(|&&step| {
                data.steps[step].gpu == gpu && Some(data.steps[step].profile.workload.name.as_str()) != but
            })
            .filter_map(|&step| adjusted(residuals, step, None))
            .collect();
        (!own.is_empty())
            .then(|| (own.iter().sum::<f64>() + TYPICAL_WEIGHT * usual) / (own.len() as f64 + TYPICAL_WEIGHT))
    };
    let mut facts = StepFacts { typical: usual.exp(), training: training(None).exp(), ..StepFacts::default() };
    let mut amd = Vec::new();
    for (index, gpu) in data.gpus.iter().enumerate().filter(|(index, _)| Some(*index) != left_out) {
        if let Some(factor) = factor_of(full, index, None) {
            facts.boards.insert(gpu.slug.to_string(), factor.exp());
            if gpu.vendor == habitat_tui::catalog::Vendor::Amd {
                amd.push(factor);
            }
        }
    }
    if !amd.is_empty() {
        facts.makers.insert("amd".to_owned(), (amd.iter().sum::<f64>() / amd.len() as f64).exp());
    }
    let seen: Vec<(usize, f64)> = known
        .iter()
        .filter_map(|&step| {
            let of = &data.steps[step];
            let factor = factor_of(full, of.gpu, Some(&of.profile.workload.name)).unwrap_or(usual);
            Some((of.gpu, adjusted(full, step, None)? - factor))
        })
        .collect();
    facts.seen = spread(&seen).map(|spread| spread.widened(SEEN_WIDENING));
    let fresh: Vec<(usize, f64)> = known
        .iter()
        .filter_map(|&step| Some((data.steps[step].gpu, unseen(step)? - typical(Some(data.steps[step].gpu)))))
        .collect();
    facts.unseen = spread(&fresh);
    let mut pairs = Vec::new();
    for &there in &known {
        for &here in &known {
            let (origin, destination) = (&data.steps[here], &data.steps[there]);
            if origin.gpu == destination.gpu || origin.name != destination.name {
                continue;
            }
            let fold = &by_fold[destination.gpu];
            let without = Some(destination.gpu);
            let adjusted = |step| adjusted(fold, step, without);
            let (Some(at_origin), Some(at_destination)) = (adjusted(here), adjusted(there)) else { continue };
            let limited = Rates::new(&data.gpus[origin.gpu]).trained_fp32.is_power_limited();
            let factor = factor_of(fold, origin.gpu, None).unwrap_or(usual);
            let own = at_destination - typical(Some(destination.gpu));
            pairs.push((if limited { 0.0 } else { at_origin - factor }, destination.gpu, own));
        }
    }
    let (shared, left) = shared_deviation(&pairs);
    facts.shared_deviation = shared;
    facts.with_origin = spread(&left).map(|spread| spread.widened(few_gpus(&left)));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_that_are_shared_are_found() {
        let pairs: Vec<(f64, usize, f64)> =
            (0..10).map(|n| (f64::from(n) / 20.0, 0, f64::from(n) / 40.0 + 0.001)).collect();
        let (share, left) = shared_deviation(&pairs);
        assert!((share - 0.5).abs() < 0.01, "{share}");
        assert!(left.iter().all(|(_, log)| log.abs() < 0.01));
        assert_eq!(shared_deviation(&[]).0, 0.0);
    }
}
