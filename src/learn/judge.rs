//! What the models get wrong on GPUs they did not see, and the ranges that follow from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::predict::features::OperatorModel;
use crate::predict::learned::{Ensemble, Models, Spread, StepFacts};
use crate::predict::mlp::ModelError;
use crate::predict::rate::fp32_product_rate;
use crate::predict::{Options, PredictError, predict};

use crate::profile::Mode;

use super::data::{Dataset, Row, Session};
use super::operators::predict_rows;

/// The share of cases that a range is to hold.
pub const COVERAGE: f64 = 0.80;
/// Weight, in steps, of the typical factor against a board's own.
const TYPICAL_WEIGHT: f64 = 2.0;
/// Ranges of boards in the training data are wider than their residuals there.
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

/// The weighted quantile of values; `None` where there are none.
pub fn quantile(mut values: Vec<(f64, f64)>, share: f64) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    for &(value, weight) in &values {
        below += weight;
        if below >= share * total {
            return Some(value);
        }
    }
    values.last().map(|&(value, _)| value)
}

/// The 80 % range of logs, every GPU counting alike, with the finite-sample correction of
/// conformal prediction (Lei et al. 2018, section 2): of n cases the ⌈(n + 1) · share⌉-th.
pub fn spread(residuals: &[(usize, f64)]) -> Option<Spread> {
    let mut counts: BTreeMap<usize, f64> = BTreeMap::new();
    for (gpu, _) in residuals {
        *counts.entry(*gpu).or_default() += 1.0;
    }
    let weighted = || -> Vec<(f64, f64)> { residuals.iter().map(|(gpu, log)| (*log, 1.0 / counts[gpu])).collect() };
    let cases = residuals.len();
    let tail = (1.0 - COVERAGE) / 2.0;
    let outward = (1.0 - tail) * (cases + 1) as f64 / cases.max(1) as f64;
    Some(Spread {
        low: quantile(weighted(), 1.0 - outward.min(1.0))?.exp(),
        high: quantile(weighted(), outward.min(1.0))?.exp(),
        cases,
    })
}

/// By how much (in logarithms) a range from few boards must be wider to hold for another one:
/// boards deviate each in its own way, and of `boards` deviations Student's t with one degree
/// of freedom less tells the next. t₉₀ / z₉₀ ≈ 1 + (z² + 1) / 4ν (Cornish and Fisher 1938),
/// times √(1 + 1 / boards) for the mean that is not known.
pub(super) fn few_boards(residuals: &[(usize, f64)]) -> f64 {
    let mut boards: Vec<usize> = residuals.iter().map(|(gpu, _)| *gpu).collect();
    boards.sort_unstable();
    boards.dedup();
    let boards = boards.len() as f64;
    if boards < 2.0 { 2.0 } else { (1.0 + 0.66 / (boards - 1.0)) * (1.0 + 1.0 / boards).sqrt() }
}

/// Errors of an ensemble on the rows of a GPU that are judged: those of the authors' test
/// split, all where there is none.
///
/// # Errors
/// [`ModelError`] where a network cannot be computed.
pub fn residuals(
    data: &Dataset,
    model: OperatorModel,
    ensemble: &Ensemble,
    gpu: usize,
) -> Result<Vec<Residual>, ModelError> {
    let rows = judged_rows(data, model, gpu);
    let predicted = predict_rows(data, model, ensemble, &rows)?;
    Ok(rows
        .iter()
        .zip(predicted)
        .map(|(row, predicted)| Residual { log: (row.measured_us / predicted).ln(), gpu, key: row.key })
        .collect())
}

fn judged_rows(data: &Dataset, model: OperatorModel, gpu: usize) -> Vec<&Row> {
    let all = data.rows.get(&model).map_or(&[][..], |rows| rows);
    let of = |session: &dyn Fn(Session) -> bool| -> Vec<&Row> {
        all.iter().filter(|row| row.gpu == gpu && session(row.session)).collect()
    };
    let test = of(&|session| session == Session::Test);
    if test.is_empty() { of(&|session| session != Session::Step) } else { test }
}

/// By how much a destination's deviation follows an origin's, from pairs of the same work:
/// the regression through 0 of one on the other, within 0 and 1; and the residuals left.
pub fn shared_deviation(pairs: &[(f64, usize, f64)]) -> (f64, Vec<(usize, f64)>) {
    let (mut both, mut origin) = (0.0, 0.0);
    for (here, _, there) in pairs {
        // A few outliers must not decide.
        let (here, there) = (here.clamp(-0.7, 0.7), there.clamp(-0.7, 0.7));
        both += here * there;
        origin += here * here;
    }
    let share = if origin > 0.0 { (both / origin).clamp(0.0, 1.0) } else { 0.0 };
    (share, pairs.iter().map(|(here, gpu, there)| (*gpu, there - share * here)).collect())
}

/// ln(measured / sum of predicted operators) of every step, by `models` whose steps are
/// taken for the sum itself. Steps of which nothing can be said are `None`.
///
/// # Errors
/// [`PredictError`] where a network cannot be computed.
pub fn step_residuals(
    data: &Dataset,
    catalog: &Catalog,
    ensembles: &BTreeMap<OperatorModel, Ensemble>,
) -> Result<Vec<Option<f64>>, PredictError> {
    let plain = StepFacts { typical: 1.0, training: 1.0, ..StepFacts::default() };
    let models = Arc::new(Models::new(ensembles.clone(), plain));
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

/// What is learned of steps. `by_fold[g]` has the residuals of every step by the ensembles
/// that did not see GPU `g`, `full` by those that saw all but `left_out`, whose steps count
/// for nothing here.
pub fn step_facts(
    data: &Dataset,
    by_fold: &[Vec<Option<f64>>],
    full: &[Option<f64>],
    left_out: Option<usize>,
) -> StepFacts {
    let known: Vec<usize> = (0..data.steps.len()).filter(|&step| Some(data.steps[step].gpu) != left_out).collect();
    // Training steps by themselves: by how much more they deviate than inference on the same
    // board, which has nothing to do with the board.
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
    // From here on training steps are taken back to what inference would be.
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
    // A board's own factor, drawn to the usual one; `but` leaves out a workload by name.
    let board = |residuals: &[Option<f64>], gpu: usize, but: Option<&str>| -> Option<f64> {
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
        if let Some(factor) = board(full, index, None) {
            facts.boards.insert(gpu.slug.to_string(), factor.exp());
            if gpu.vendor == crate::catalog::Vendor::Amd {
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
            let factor = board(full, of.gpu, Some(&of.profile.workload.name)).unwrap_or(usual);
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
            let limited = fp32_product_rate(&data.gpus[origin.gpu]).is_power_limited();
            let factor = board(fold, origin.gpu, None).unwrap_or(usual);
            let own = at_destination - typical(Some(destination.gpu));
            pairs.push((if limited { 0.0 } else { at_origin - factor }, destination.gpu, own));
        }
    }
    let (shared, left) = shared_deviation(&pairs);
    facts.shared_deviation = shared;
    facts.with_origin = spread(&left).map(|spread| spread.widened(few_boards(&left)));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_weight() {
        let values = |weight: f64| vec![(3.0, 1.0), (1.0, weight), (2.0, 1.0)];
        assert_eq!(quantile(values(1.0), 0.5), Some(2.0));
        assert_eq!(quantile(values(8.0), 0.5), Some(1.0));
        assert_eq!(quantile(Vec::new(), 0.5), None);
    }

    /// Of logs −1, −0.9 … 1 the range that holds 80 % ends at ∓0.8 or beyond.
    #[test]
    fn ranges_hold_their_share() {
        let logs: Vec<(usize, f64)> = (0..=20).map(|n| (0, f64::from(n) / 10.0 - 1.0)).collect();
        let spread = spread(&logs).unwrap();
        let inside =
            logs.iter().filter(|(_, log)| (spread.low - 1e-9..=spread.high + 1e-9).contains(&log.exp())).count();
        assert!(inside as f64 / 21.0 >= 0.8 && spread.low < 0.46 && spread.high > 2.2, "{spread:?} {inside}");
    }

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
