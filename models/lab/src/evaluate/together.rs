//! Training iterations in FP32 by the operator models and the efficiency model together: for which operators, and with
//! which weights.

use std::collections::BTreeMap;

use habitat_tui::cli::CliError;
use habitat_tui::op::Primitive;
use habitat_tui::predict::decoded::Decoded;
use habitat_tui::predict::learned::{EFFICIENCY_WEIGHT, LearnedTime};
use habitat_tui::predict::rate::Rates;

use super::judge::Judge;
use super::tally::{Evaluation, Groups, Predicted};
use crate::learn::efficiency::folds::{Folds, is_iteration, median_of_others};
use crate::learn::host::{LAUNCH_US, with_host};
use crate::published::PublishedStep;

/// Tried weights of the efficiency model, in equal steps from 0 to 1.
const WEIGHTS: u32 = 20;

/// Times of an operation by both models, all its occurrences together.
struct Both {
    operators_us: f64,
    efficiency_us: f64,
    convolves: bool,
}

/// A step's operations, and its host time.
struct Case {
    at: usize,
    operations: Vec<Both>,
    host_us: f64,
    measured_us: f64,
}

impl Case {
    /// ln(measured / predicted) with a weight for convolutions and one for all other operations: exponents of the
    /// efficiency model.
    fn log(&self, convolutions: f64, others: f64) -> f64 {
        let time = |both: &Both| {
            let weight = if both.convolves { convolutions } else { others };
            both.operators_us.powf(1.0 - weight) * both.efficiency_us.powf(weight)
        };
        let (step, _) = with_host(self.operations.iter().map(time).sum(), self.host_us);
        (self.measured_us / step).ln()
    }
}

/// Every iteration by either model and by means of both, without its GPU and its family of networks.
pub(super) fn evaluate(steps: &[PublishedStep], folds: &Folds, judge: &Judge<'_>) -> Result<Evaluation, CliError> {
    let mut cases = Vec::new();
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| is_iteration(step)) {
        cases.extend(case(at, step, folds, judge)?);
    }
    let ways = [
        ("operator models", 0.0, 0.0),
        ("efficiency model", 1.0, 1.0),
        ("mean", 0.5, 0.5),
        ("convolutions, as the program weighs them", EFFICIENCY_WEIGHT, 0.0),
        ("mean of all but convolutions", 0.0, 0.5),
        ("convolutions by the efficiency model", 1.0, 0.0),
    ];
    let mut groups = Groups::default();
    let mut add = |case: &Case, way: &str, log: f64| {
        let step = &steps[case.at];
        let predicted = Predicted { mid: case.measured_us / log.exp(), range: None };
        let label = || format!("{} on {}", step.profile.workload.name, step.gpu);
        for group in ["all".to_owned(), step.network.clone()] {
            groups.add(&group, way, predicted, case.measured_us, &label);
        }
    };
    for (way, convolutions, others) in ways {
        let logs = logs(&cases, convolutions, others);
        for (case, &(at, log)) in cases.iter().zip(&logs) {
            add(case, way, log - median_of_others(steps, &logs, at).unwrap_or(0.0));
        }
    }
    // The best weight of convolutions on other GPUs and families.
    let tried: Vec<(f64, Vec<(usize, f64)>)> = (0..=WEIGHTS)
        .map(|part| f64::from(part) / f64::from(WEIGHTS))
        .map(|weight| (weight, logs(&cases, weight, 0.0)))
        .collect();
    let mut chosen: BTreeMap<String, usize> = BTreeMap::new();
    for (place, case) in cases.iter().enumerate() {
        let own = &steps[case.at];
        let is_other = |at: usize| steps[at].gpu != own.gpu && steps[at].family != own.family;
        let error = |logs: &[(usize, f64)]| -> f64 {
            let middle = median_of_others(steps, logs, case.at).unwrap_or(0.0);
            let others = logs.iter().filter(|(at, _)| is_other(*at));
            others.map(|(_, log)| ((middle - log).exp() - 1.0).abs()).sum()
        };
        let best = tried.iter().min_by(|(_, a), (_, b)| error(a).total_cmp(&error(b)));
        let Some((weight, logs)) = best else { continue };
        *chosen.entry(format!("{weight:.2}")).or_default() += 1;
        let log = logs[place].1 - median_of_others(steps, logs, case.at).unwrap_or(0.0);
        add(case, "convolutions, weight chosen on the others", log);
    }
    let chosen: Vec<String> = chosen.iter().map(|(weight, count)| format!("{weight} for {count}")).collect();
    let note = format!("weights of the efficiency model that other GPUs and families choose: {}", chosen.join(", "));
    let protocol = "absolute relative errors of training iterations in FP32 by geometric means of the operator models and the efficiency model; efficiency models saw neither the GPU nor the family, and the step over the sum of operators is the median of other GPUs and families";
    Ok(groups.evaluation(protocol.to_owned(), vec![note]))
}

fn logs(cases: &[Case], convolutions: f64, others: f64) -> Vec<(usize, f64)> {
    cases.iter().map(|case| (case.at, case.log(convolutions, others))).collect()
}

fn case(at: usize, step: &PublishedStep, folds: &Folds, judge: &Judge<'_>) -> Result<Option<Case>, CliError> {
    let catalog = step.catalog(judge.catalog);
    let Some(gpu) = catalog.get(&step.gpu) else { return Ok(None) };
    let (rates, precision) = (Rates::new(gpu), step.profile.workload.precision);
    let decoded = Decoded::all(&step.profile);
    let operators = judge.operators(&step.gpu);
    let mut table = operators.columns(&decoded, precision, None).on(&[&rates], |_, _| true).map_err(CliError::other)?;
    let by_efficiency = folds.without_both(step).columns(&decoded).on(&rates);
    let Some(by_operators) = table.pop() else { return Ok(None) };
    let (mut operations, mut launches) = (Vec::new(), 0.0);
    for ((decoded, own), other) in decoded.iter().zip(by_operators).zip(by_efficiency) {
        let count = f64::from(decoded.operation.count);
        let us = |time: LearnedTime| time.time.get() * count;
        // If one model does not know an operator, the other answers.
        let Some((operators_us, efficiency_us)) =
            own.or(other).map(us).zip(other.or(own).map(us)).filter(|(own, other)| *own > 0.0 && *other > 0.0)
        else {
            continue;
        };
        launches += count;
        let convolves = decoded.parts.iter().any(|part| matches!(part.primitive, Primitive::Convolution { .. }));
        operations.push(Both { operators_us, efficiency_us, convolves });
    }
    let host_us = if step.is_compiled { 0.0 } else { launches * LAUNCH_US };
    Ok(Some(Case { at, operations, host_us, measured_us: step.time.get() }))
}
