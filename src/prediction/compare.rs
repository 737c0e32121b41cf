//! Methods side by side: what each says of a step, what it needs, how far it was off on
//! steps it was not fitted to, and which to take.
//!
//! The one with the smallest validated error is taken, but [`MethodChoice::Auto`] gives way
//! only to an error that rests on [`ENOUGH`] steps or more and is smaller by [`MARGIN`], and
//! then [`predict`](super::predict) takes that one too. Methods whose ranges have no
//! value in common contradict each other, and that is said.

use std::fmt::Write;

pub use super::choice::{ENOUGH, Known, MARGIN, StepKind, Validated, validated};
use super::choice::{gives_way, percent, validated_lines};
use super::engine::Prepared;
use super::error::PredictError;
use super::estimate::{Estimate, GpuFacts, Prediction, StepTime};
use super::host::Host;
use super::method::{COVERED, MethodChoice};
use super::options::Options;
use super::origin::origin;
use super::warning::Warning;
use habitat_base::units::Micros;
use habitat_step::catalog::Catalog;
use habitat_step::profile::{Origin, Profile, Workload};

/// Why a method cannot answer for a profile; `None` where it can.
pub fn missing(method: MethodChoice, known: Known, options: &Options) -> Option<&'static str> {
    match method {
        MethodChoice::WaveScaling if known == Known::Shapes => Some("nothing was measured: it would be the roofline"),
        MethodChoice::WaveScaling if known == Known::Step => {
            Some("no launches were recorded: it would be a ratio of rooflines")
        }
        MethodChoice::Learned if options.models.is_none() => Some("no learned models were given"),
        MethodChoice::HabitatMlp if options.habitat.is_none() => {
            Some("no networks were given; `habitat-lab train --habitat` trains them")
        }
        MethodChoice::BlackBox if known == Known::Shapes => Some("nothing was measured"),
        MethodChoice::BlackBox if options.black_box.is_none() => {
            Some("no black-box model was given; `fit black-box` makes one")
        }
        _ if method.is_fitted() && options.kernel_wise.is_none() => {
            Some("no linear models were given; `fit kernelwise` fits them")
        }
        _ => None,
    }
}

/// What one method says of a step on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The step.
    pub step: Estimate,
    /// What it was found to err by.
    pub validated: Option<Validated>,
}

/// One GPU, method by method.
#[derive(Debug, Clone, PartialEq)]
pub struct OnGpu {
    /// The GPU.
    pub gpu: GpuFacts,
    /// The step where it was recorded on this GPU: measured, or derived from a measurement.
    pub recorded: Option<Estimate>,
    /// In the order of [`Comparison::methods`]; `None` where the method has no answer.
    pub answers: Vec<Option<Answer>>,
    /// The method to take, by position.
    pub taken: Option<usize>,
    /// Why.
    pub why: String,
    /// That the methods' ranges have no value in common, and which of them agree.
    pub disagreement: Option<String>,
}

/// A method and why it has no answer, where it has none at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// The method.
    pub method: MethodChoice,
    /// What it lacks here.
    pub missing: Option<String>,
}

/// What all methods say of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What is run.
    pub workload: Workload,
    /// Where it was recorded.
    pub origin: Option<Origin>,
    /// Whether the device waits for the host in the steps.
    pub host: Host,
    /// The methods.
    pub methods: Vec<Compared>,
    /// One a GPU, in the order asked for.
    pub gpus: Vec<OnGpu>,
    /// What is to be shown with any of the times.
    pub warnings: Vec<Warning>,
}

/// The step of `profile` by every method. `options.method` other than `Auto` is the user's
/// choice, and is taken wherever it has an answer.
///
/// # Errors
/// Those of [`predict`](super::predict) that no method gets around: an unknown origin or target, or nothing
/// known of any operation.
pub fn compare(profile: &Profile, catalog: &Catalog, options: &Options) -> Result<Comparison, PredictError> {
    let origin = origin(profile, catalog, options)?;
    let stripped = options.ignore_origin.then(|| profile.without_origin());
    let prepared = Prepared::new(profile, stripped.as_ref());
    let known = Known::of(profile, origin, options);
    // Errors of steps in one precision do not hold for a conversion to another.
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
        let mut lacking = missing(method, known, options).map(str::to_owned);
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
        // The same times under another name are no second opinion.
        let is_same = |one: &Prediction| {
            auto.predictions.iter().any(|other| other.gpu.slug == one.gpu.slug && other.step == one.step)
        };
        let asked = [MethodChoice::Auto, options.method].contains(&method);
        if !asked && answers.iter().any(|one| !one.step.is_of_origin()) && answers.iter().all(is_same) {
            lacking = Some("the same as auto here".to_owned());
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
                _ => validated(method, known, kind),
            });
            let covered = |prediction: &&Prediction| !method.is_fitted() || prediction.by_fitted_lines() >= COVERED;
            on.answers.push(found.filter(covered).and_then(|prediction| answer(prediction, validated)));
        }
        let answered = gpus.iter().any(|on| on.recorded.is_some() || on.answers.last().is_some_and(Option::is_some));
        if method.is_fitted() && lacking.is_none() && !answered {
            lacking = Some(
                "the linear models know too little of this step; fit them to steps like it with `fit kernelwise`"
                    .to_owned(),
            );
        }
        methods.push(Compared { method, missing: lacking });
    }
    for on in &mut gpus {
        (on.taken, on.why) = taken(&methods, on, options.method);
        on.disagreement = disagreement(&methods, on);
    }
    let warnings = auto.warnings();
    Ok(Comparison { workload: auto.workload, origin: auto.origin, host: auto.host, methods, gpus, warnings })
}

/// The black-box model knows a few GPUs only, and refuses others: it is asked for all of its
/// own.
fn method_options(method: MethodChoice, options: &Options) -> Options {
    let targets = if method == MethodChoice::BlackBox { Vec::new() } else { options.targets.clone() };
    Options { targets, method, ..options.clone() }
}

fn answer(prediction: &Prediction, validated: Option<Validated>) -> Option<Answer> {
    let StepTime::Predicted(step) = &prediction.step else { return None };
    (step.range.mid.get() > 0.0 && !prediction.step.is_of_origin()).then_some(Answer { step: *step, validated })
}

/// Which answer to take, and why.
fn taken(methods: &[Compared], on: &OnGpu, asked: MethodChoice) -> (Option<usize>, String) {
    if let Some(recorded) = &on.recorded {
        return (None, format!("{} on this GPU", recorded.method));
    }
    let answers = || on.answers.iter().enumerate().filter_map(|(index, answer)| Some((index, answer.as_ref()?)));
    if asked != MethodChoice::Auto
        && let Some((index, _)) = answers().find(|(index, _)| methods[*index].method == asked)
    {
        return (Some(index), "asked for".to_owned());
    }
    let default = answers()
        .find(|(index, _)| methods[*index].method == MethodChoice::Auto)
        .and_then(|(_, answer)| answer.validated.clone());
    let may_win = |index: usize, answer: &Answer| {
        let is_default = methods[index].method == MethodChoice::Auto;
        answer.validated.as_ref().filter(|it| is_default || gives_way(default.as_ref(), it)).cloned()
    };
    // The first of equals: methods are listed with the default at the head.
    let best = answers()
        .filter_map(|(index, answer)| Some((index, may_win(index, answer)?)))
        .min_by(|a, b| a.1.error.total_cmp(&b.1.error));
    match best {
        Some((index, by)) => {
            let mut why = format!("{:.1} % off on {} {}", by.error * 100.0, by.steps, by.on);
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
                        "too little better to prefer it"
                    };
                    let _ = write!(why, "; {name} {} on {}: {short}", percent(near.error), near.steps);
                }
            }
            (Some(index), why)
        }
        None => match answers().next() {
            Some((index, _)) => (Some(index), "no method was judged on steps like this".to_owned()),
            None => (None, "no method has an answer".to_owned()),
        },
    }
}

/// Whether the methods' ranges exclude each other, in one sentence: groups of methods that
/// have values in common, with these values.
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
            format!("{} {}", names.join(", "), common(low, high))
        })
        .collect();
    // Ranges that overlap in pairs have a value in common (Helly's theorem on the line).
    (groups.len() > 1).then(|| format!("no step time is in the ranges of all methods: {}", groups.join("; ")))
}

/// Methods that have a value in common, from the shortest step to the longest.
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
        let (index, why) = taken(&methods, &few, MethodChoice::Auto);
        assert_eq!(
            (index, why.as_str()),
            (Some(0), "8.0 % off on 50 steps; wave-scaling 5.0 % on 19: too few steps to prefer it")
        );
        let (methods, enough) = on(vec![Some((10.0, 0.08, 50)), None, Some((11.0, 0.05, ENOUGH))]);
        let (index, why) = taken(&methods, &enough, MethodChoice::Auto);
        assert_eq!((index, why.as_str()), (Some(2), "5.0 % off on 20 steps; auto 8.0 %"));
        let (methods, near) = on(vec![Some((10.0, 0.08, 50)), None, Some((11.0, 0.07, 50))]);
        assert_eq!(taken(&methods, &near, MethodChoice::Auto).0, Some(0), "chance");
        assert_eq!(taken(&methods, &enough, MethodChoice::Roofline).0, Some(2), "roofline has no answer");
        assert_eq!(taken(&methods, &few, MethodChoice::WaveScaling), (Some(2), "asked for".to_owned()));
    }

    #[test]
    fn ranges_apart_are_a_disagreement() {
        let (methods, near) = on(vec![Some((10.0, 0.1, 9)), Some((12.0, 0.1, 9))]);
        assert_eq!(disagreement(&methods, &near), None);
        let (methods, far) = on(vec![Some((10.0, 0.1, 9)), Some((13.0, 0.1, 9)), None]);
        let said = |(methods, on): &(Vec<Compared>, OnGpu)| {
            let said = disagreement(methods, on).unwrap();
            said.strip_prefix("no step time is in the ranges of all methods: ").unwrap().to_owned()
        };
        assert_eq!(said(&(methods, far)), "auto 9.00–11.00 ms; learned 11.70–14.30 ms");
        let odd = on(vec![Some((10.0, 0.1, 9)), Some((30.0, 0.1, 9)), Some((10.5, 0.1, 9))]);
        assert_eq!(said(&odd), "auto, wave-scaling 9.45–11.00 ms; learned 27.00–33.00 ms");
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
            // No such step ran on an AMD GPU.
            assert_eq!(
                validated(MethodChoice::Auto, Known::Shapes, kind(Vendor::Amd, mode, PrecisionClass::Half)),
                None
            );
        }
    }
}
