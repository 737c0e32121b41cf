//! Compares methods: each prediction of a step, its requirements, its error on steps it was not fitted to, and the
//! method to use.
//!
//! The method with the smallest validated error wins. [`MethodChoice::Auto`] is replaced only if that error is from at
//! least [`ENOUGH`] steps and smaller by [`MARGIN`]; [`predict`](super::predict) then uses the same method. If the
//! ranges of the methods have no common value, the comparison reports the contradiction.

use std::fmt::Write;

pub use super::choice::{ENOUGH, Known, MARGIN, StepKind, Validated, validated};
use super::choice::{by_fitted_lines, gives_way, percent, validated_between, validated_lines};
use super::engine::Prepared;
use super::error::PredictError;
use super::estimate::{Estimate, StepTime};
use super::finding::Shared;
use super::gpu::GpuFacts;
use super::host::Host;
use super::method::{COVERED, MethodChoice};
use super::options::Options;
use super::origin::origin;
use super::predictions::Prediction;
use habitat_base::units::Micros;
use habitat_step::catalog::Catalog;
use habitat_step::profile::{Origin, Profile, Workload};

/// Prediction of one method for a step on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The step.
    pub step: Estimate,
    /// Validated error of the method, if known.
    pub validated: Option<Validated>,
}

/// All methods on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct OnGpu {
    /// The GPU.
    pub gpu: GpuFacts,
    /// Step if it was recorded on this GPU: measured, or derived from a measurement.
    pub recorded: Option<Estimate>,
    /// Predictions in the order of [`Comparison::methods`]; `None` if the method has none.
    pub answers: Vec<Option<Answer>>,
    /// Index of the method to use.
    pub taken: Option<usize>,
    /// Reason for the choice.
    pub why: String,
    /// Sentence that the methods' ranges have no common value, with groups that agree.
    pub disagreement: Option<String>,
}

/// Method, with the reason if it cannot predict at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// The method.
    pub method: MethodChoice,
    /// Requirement that it lacks here.
    pub missing: Option<String>,
}

/// Predictions of all methods for a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Workload of the profile.
    pub workload: Workload,
    /// GPU of the recording.
    pub origin: Option<Origin>,
    /// Whether steps include the wait for the host.
    pub host: Host,
    /// The methods.
    pub methods: Vec<Compared>,
    /// One entry per GPU, in the requested order.
    pub gpus: Vec<OnGpu>,
    /// Warnings that apply to all times.
    pub warnings: Vec<Shared>,
}

/// Predicts the step of `profile` with every method. A method other than `Auto` in `options.method` is the user's
/// choice and is used wherever it has a prediction.
///
/// # Errors
/// Errors of [`predict`](super::predict) that affect every method: an unknown origin or target, or no operation with
/// usable data.
pub fn compare(profile: &Profile, catalog: &Catalog, options: &Options) -> Result<Comparison, PredictError> {
    let origin = origin(profile, catalog, options)?;
    let stripped = options.ignore_origin.then(|| profile.without_origin());
    let prepared = Prepared::new(profile, stripped.as_ref());
    let known = Known::of(profile, origin, options);
    // Errors measured in one precision do not apply to a conversion.
    let is_recorded = options.precision.is_none_or(|precision| profile.workload.precision == Some(precision));
    let auto = prepared.predict(catalog, &Options { method: MethodChoice::Auto, ..options.clone() })?;
    let mut gpus: Vec<OnGpu> = auto
        .predictions
        .iter()
        .map(|prediction| OnGpu {
            gpu: prediction.gpu.clone(),
            recorded: Some(prediction.step.as_estimate()).filter(|_| prediction.step.is_of_origin()),
            answers: Vec::new(),
            taken: None,
            why: String::new(),
            disagreement: None,
        })
        .collect();
    let mut methods = Vec::new();
    for method in MethodChoice::ALL {
        let mut lacking = method.missing(known, options).map(str::to_owned);
        let answers = match (method, &lacking) {
            (_, Some(_)) => None,
            (MethodChoice::Auto, _) => Some(auto.predictions.clone()),
            _ => match prepared.predict(catalog, &method_options(method, options)) {
                Ok(answers) => Some(answers.predictions),
                Err(error) => {
                    lacking = Some(error.to_string());
                    None
                }
            },
        };
        let mut answers = answers.unwrap_or_default();
        // Identical times under another name are not a second opinion.
        let is_same = |one: &Prediction| {
            auto.predictions.iter().any(|other| other.gpu.slug == one.gpu.slug && other.step == one.step)
        };
        let asked = [MethodChoice::Auto, options.method].contains(&method);
        if !asked && answers.iter().any(|one| !one.step.is_of_origin()) && answers.iter().all(is_same) {
            lacking = Some("same as auto here".to_owned());
            answers.clear();
        }
        let most_left_out = answers.iter().map(|answer| answer.left_out).fold(0.0, f64::max);
        if most_left_out > 1.0 - COVERED {
            lacking = Some(format!("operations with {} of the measured time have no shapes", percent(most_left_out)));
            answers.clear();
        }
        for on in &mut gpus {
            let found = answers.iter().find(|prediction| prediction.gpu.slug == on.gpu.slug);
            let kind = catalog.get(&on.gpu.slug).filter(|_| is_recorded).map(|gpu| StepKind::of(profile, gpu));
            let validated = kind.and_then(|kind| match &options.kernel_wise {
                Some(lines) if method.is_fitted() => validated_lines(method, lines, &on.gpu.slug, kind),
                _ => validated_between(method, known, kind, origin.map(|origin| [&origin.slug, &on.gpu.slug])),
            });
            let covered = |prediction: &&Prediction| !method.is_fitted() || by_fitted_lines(prediction) >= COVERED;
            on.answers.push(found.filter(covered).and_then(|prediction| answer(prediction, validated)));
        }
        let answered = gpus.iter().any(|on| on.recorded.is_some() || on.answers.last().is_some_and(Option::is_some));
        if method.is_fitted() && lacking.is_none() && !answered {
            lacking = Some(
                "the linear models cover too little of this step; fit them to similar steps with `fit kernelwise`"
                    .to_owned(),
            );
        }
        methods.push(Compared { method, missing: lacking });
    }
    for on in &mut gpus {
        (on.taken, on.why) = choose(&methods, on, options.method);
        on.disagreement = disagreement(&methods, on);
    }
    let warnings = auto.warnings();
    Ok(Comparison { workload: auto.workload, origin: auto.origin, host: auto.host, methods, gpus, warnings })
}

/// Options of a method. A model of whole steps knows few GPUs and rejects others, so it predicts all of its own.
fn method_options(method: MethodChoice, options: &Options) -> Options {
    let targets = if method.is_of_steps() { Vec::new() } else { options.targets.clone() };
    Options { targets, method, ..options.clone() }
}

fn answer(prediction: &Prediction, validated: Option<Validated>) -> Option<Answer> {
    let StepTime::Predicted(step) = &prediction.step else { return None };
    (step.range.mid.get() > 0.0 && !prediction.step.is_of_origin()).then_some(Answer { step: *step, validated })
}

/// Method to use, and the reason.
fn choose(methods: &[Compared], on: &OnGpu, asked: MethodChoice) -> (Option<usize>, String) {
    if let Some(recorded) = &on.recorded {
        return (None, format!("{} on this GPU", recorded.method));
    }
    let answers = || on.answers.iter().enumerate().filter_map(|(index, answer)| Some((index, answer.as_ref()?)));
    if asked != MethodChoice::Auto
        && let Some((index, _)) = answers().find(|(index, _)| methods[*index].method == asked)
    {
        return (Some(index), "requested".to_owned());
    }
    let default = answers()
        .find(|(index, _)| methods[*index].method == MethodChoice::Auto)
        .and_then(|(_, answer)| answer.validated.clone());
    let may_win = |index: usize, answer: &Answer| {
        let is_default = methods[index].method == MethodChoice::Auto;
        answer.validated.as_ref().filter(|it| is_default || gives_way(default.as_ref(), it)).cloned()
    };
    // Among equal errors the first wins; the default is listed first.
    let best = answers()
        .filter_map(|(index, answer)| Some((index, may_win(index, answer)?)))
        .min_by(|a, b| a.1.error.total_cmp(&b.1.error));
    match best {
        Some((index, by)) => {
            let mut why = format!("{:.1} % error on {} {}", by.error * 100.0, by.steps, by.on);
            let next = answers()
                .filter(|(other, answer)| {
                    *other != index && answer.validated.as_ref().is_some_and(|it| it.error > by.error)
                })
                .filter_map(|(other, answer)| Some((other, answer.validated.as_ref()?)))
                .min_by(|a, b| a.1.error.total_cmp(&b.1.error));
            if let Some((other, behind)) = next {
                let _ = write!(why, "; {} {:.1} %", methods[other].method.name(), behind.error * 100.0);
            }
            for (other, near) in answers().filter_map(|(other, answer)| Some((other, answer.validated.as_ref()?))) {
                if near.error < by.error {
                    let name = methods[other].method.name();
                    let short = if near.steps < ENOUGH {
                        "too few steps to prefer it"
                    } else {
                        "not enough better to prefer it"
                    };
                    let _ = write!(why, "; {name} {} on {}: {short}", percent(near.error), near.steps);
                }
            }
            (Some(index), why)
        }
        None => match answers().next() {
            Some((index, _)) => (Some(index), "the default; no method was evaluated on such steps".to_owned()),
            None => (None, "no method has a prediction".to_owned()),
        },
    }
}

/// Sentence if the methods' ranges exclude each other: groups of methods with common values, and these values.
fn disagreement(methods: &[Compared], on: &OnGpu) -> Option<String> {
    let answers: Vec<(usize, &Estimate)> =
        on.answers.iter().enumerate().filter_map(|(index, answer)| Some((index, &answer.as_ref()?.step))).collect();
    let longest = answers.iter().map(|(_, step)| step.range.high.as_millis()).fold(0.0, f64::max);
    let common = |low: Micros, high: Micros| {
        if longest < 1.0 {
            format!("{:.1}–{:.1} µs", low.get(), high.get())
        } else {
            format!("{:.2}–{:.2} ms", low.as_millis(), high.as_millis())
        }
    };
    let groups: Vec<String> = groups(answers)
        .into_iter()
        .map(|group| {
            let names: Vec<&str> = group.iter().map(|(index, _)| methods[*index].method.name()).collect();
            let low = group.iter().map(|(_, step)| step.range.low).max_by(Micros::total_cmp).unwrap_or_default();
            let high = group.iter().map(|(_, step)| step.range.high).min_by(Micros::total_cmp).unwrap_or_default();
            let agree = if names.len() > 1 { " agree on" } else { "" };
            format!("{}{agree} {}", names.join(", "), common(low, high))
        })
        .collect();
    // Ranges that overlap pairwise have a common value (Helly's theorem in one dimension).
    (groups.len() > 1).then(|| format!("the ranges of the methods do not overlap: {}", groups.join("; ")))
}

/// Groups methods that have a common value, from the shortest step to the longest.
fn groups(mut all: Vec<(usize, &Estimate)>) -> Vec<Vec<(usize, &Estimate)>> {
    all.sort_by(|a, b| a.1.range.low.total_cmp(&b.1.range.low));
    let mut groups: Vec<Vec<(usize, &Estimate)>> = Vec::new();
    for one in all {
        match groups.last_mut() {
            Some(group) if group.iter().all(|(_, step)| step.range.high.get() >= one.1.range.low.get()) => {
                group.push(one);
            }
            _ => groups.push(vec![one]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::FIGURES;
    use crate::method::Method;
    use habitat_step::catalog::{GpuSpec, Layer, Vendor};
    use habitat_step::profile::{Mode, PrecisionClass};

    fn on(answers: Vec<Option<(f64, f64, u32)>>) -> (Vec<Compared>, OnGpu) {
        let path = format!("{}/../../catalog/t4.toml", env!("CARGO_MANIFEST_DIR"));
        let spec = GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap();
        let gpu = GpuFacts::new(&crate::rate::Rates::new(&spec));
        let methods = MethodChoice::ALL.map(|method| Compared { method, missing: None }).to_vec();
        let answers = answers
            .into_iter()
            .map(|it| {
                it.map(|(millis, error, steps)| Answer {
                    step: Estimate::with_band(Micros::known(millis * 1000.0), 0.1, Method::Learned),
                    validated: Some(Validated { error, steps, on: "steps".to_owned(), is_own: false }),
                })
            })
            .collect();
        let on = OnGpu { gpu, recorded: None, answers, taken: None, why: String::new(), disagreement: None };
        (methods, on)
    }

    #[test]
    fn the_smallest_error_is_taken_if_it_rests_on_enough_steps() {
        let (methods, few) = on(vec![Some((10.0, 0.08, 50)), None, Some((11.0, 0.05, ENOUGH - 1))]);
        let (index, why) = choose(&methods, &few, MethodChoice::Auto);
        assert_eq!(
            (index, why.as_str()),
            (Some(0), "8.0 % error on 50 steps; wave-scaling 5.0 % on 19: too few steps to prefer it")
        );
        let (methods, enough) = on(vec![Some((10.0, 0.08, 50)), None, Some((11.0, 0.05, ENOUGH))]);
        let (index, why) = choose(&methods, &enough, MethodChoice::Auto);
        assert_eq!((index, why.as_str()), (Some(2), "5.0 % error on 20 steps; auto 8.0 %"));
        let (methods, near) = on(vec![Some((10.0, 0.08, 50)), None, Some((11.0, 0.07, 50))]);
        assert_eq!(choose(&methods, &near, MethodChoice::Auto).0, Some(0), "chance");
        assert_eq!(choose(&methods, &enough, MethodChoice::Roofline).0, Some(2), "roofline has no answer");
        assert_eq!(choose(&methods, &few, MethodChoice::WaveScaling), (Some(2), "requested".to_owned()));
    }

    #[test]
    fn ranges_apart_are_a_disagreement() {
        let (methods, near) = on(vec![Some((10.0, 0.1, 9)), Some((12.0, 0.1, 9))]);
        assert_eq!(disagreement(&methods, &near), None);
        let (methods, far) = on(vec![Some((10.0, 0.1, 9)), Some((13.0, 0.1, 9)), None]);
        let said = |(methods, on): &(Vec<Compared>, OnGpu)| {
            let said = disagreement(methods, on).unwrap();
            said.strip_prefix("the ranges of the methods do not overlap: ").unwrap().to_owned()
        };
        assert_eq!(said(&(methods, far)), "auto 9.00–11.00 ms; learned 11.70–14.30 ms");
        let odd = on(vec![Some((10.0, 0.1, 9)), Some((30.0, 0.1, 9)), Some((10.5, 0.1, 9))]);
        assert_eq!(said(&odd), "auto, wave-scaling agree on 9.45–11.00 ms; learned 27.00–33.00 ms");
        let tiny = on(vec![Some((0.1, 0.1, 9)), Some((0.3, 0.1, 9))]);
        assert_eq!(said(&tiny), "auto 90.0–110.0 µs; learned 270.0–330.0 µs");
    }

    #[test]
    fn every_method_has_one_figure_a_group() {
        for (index, a) in FIGURES.iter().enumerate() {
            assert!(FIGURES[index + 1..].iter().all(|b| (&a.group, &a.method) != (&b.group, &b.method)));
        }
        let kind = |vendor, mode, precision| StepKind { vendor, mode, precision };
        for mode in Mode::ALL {
            for (known, precision) in [
                (Known::Shapes, PrecisionClass::Fp32),
                (Known::Step, PrecisionClass::Fp32),
                (Known::Shapes, PrecisionClass::Half),
            ] {
                let found = validated(MethodChoice::Auto, known, kind(Vendor::Nvidia, mode, precision));
                assert!(found.is_some(), "{known:?}, {mode}, {precision}");
            }
            // No such step was measured on an AMD GPU.
            assert_eq!(
                validated(MethodChoice::Auto, Known::Shapes, kind(Vendor::Amd, mode, PrecisionClass::Half)),
                None
            );
        }
    }
}
