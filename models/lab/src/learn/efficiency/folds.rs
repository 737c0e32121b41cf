//! Steps by models that did not see them, and the errors of these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::learn::ranges::{COVERAGE, few_gpus, quantile, spread};
use habitat_tui::predict::decoded::Decoded;
use habitat_tui::predict::efficiency::{Efficiency, Iterations, StepRanges};
use habitat_tui::predict::learned::{Models, Spread, StepFacts, WIDE, is_by_efficiency};
use habitat_tui::predict::{MethodChoice, Options, PredictError, predict};
use habitat_tui::profile::{Mode, Phase, Precision};
use habitat_tui::units::GpuSlug;
use rayon::prelude::*;

use super::Design;
use crate::learn::residuals::shared_deviation;
use crate::published::{Extent, PublishedStep};

/// Steps of one mode and precision from which on they have separate ranges: nine in either tenth. TF32 has 99, FP32 and
/// BF16 fewer.
const ENOUGH: usize = 90;
/// Number of folds that families of networks are divided into. Operators that were measured alone are another one.
const FOLDS: u32 = 6;

/// The fold of a step.
fn fold(step: &PublishedStep) -> u32 {
    if matches!(step.extent, Extent::Operator | Extent::Collected) {
        return FOLDS;
    }
    // FNV-1a.
    step.family.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) % FOLDS
}

/// Models fitted without some of the steps.
#[derive(Debug)]
pub struct Folds {
    /// Fitted to everything.
    pub all: Efficiency,
    without_family: Vec<Efficiency>,
    without_gpu: BTreeMap<GpuSlug, Efficiency>,
    without_both: BTreeMap<(GpuSlug, u32), Efficiency>,
}

impl Folds {
    /// Fits all of them, and the ranges of the shipped one. `operators` returns the operator models that predict a step
    /// in FP32 together with these.
    ///
    /// # Errors
    /// [`PredictError`] if a step in FP32 cannot be predicted.
    pub fn new(
        steps: &[PublishedStep],
        catalog: &Catalog,
        operators: &dyn Fn(&PublishedStep) -> Models,
    ) -> Result<Self, PredictError> {
        let design = Design::new(steps, catalog);
        let folds: Vec<u32> = steps.iter().map(fold).collect();
        let gpus: BTreeSet<&GpuSlug> = steps.iter().map(|step| &step.gpu).collect();
        let both: BTreeSet<(&GpuSlug, u32)> = steps.iter().map(|step| &step.gpu).zip(folds.iter().copied()).collect();
        let all = design.values(&|_| true, None);
        let without = |gpu: Option<&GpuSlug>, family: Option<u32>| {
            let is_in = |step: usize| Some(&steps[step].gpu) != gpu && Some(folds[step]) != family;
            design.model(&design.values(&is_in, Some(&all)), &is_in)
        };
        let of_gpu = |gpu: &GpuSlug| (gpu.clone(), without(Some(gpu), None));
        let of_both = |(gpu, family): (&GpuSlug, u32)| ((gpu.clone(), family), without(Some(gpu), Some(family)));
        let mut found = Self {
            all: design.model(&all, &|_| true),
            without_family: (0..=FOLDS).into_par_iter().map(|family| without(None, Some(family))).collect(),
            without_gpu: gpus.into_par_iter().map(of_gpu).collect(),
            without_both: both.into_par_iter().map(of_both).collect(),
        };
        let whole = found.iterations(steps, catalog, operators)?;
        let alone = found.operators(steps, &design);
        let judged = found.judged(steps, &design);
        // Facts for a GPU that was left out must come from the others.
        let known = |out: Option<&GpuSlug>| -> Known {
            let judged: Vec<&Judged> = judged.iter().filter(|judged| Some(&steps[judged.at].gpu) != out).collect();
            Known { steps: facts(steps, &judged), ranges: ranges(steps, &judged) }
        };
        let finish = |model: &mut Efficiency, known: &Known| {
            model.steps = known.steps.clone();
            model.ranges.clone_from(&known.ranges);
            model.operators = alone;
        };
        let whole = |gpu: Option<&GpuSlug>, family: Option<u32>| {
            let is_in = |at: usize| Some(&steps[at].gpu) != gpu && Some(folds[at]) != family;
            iterations(steps, &whole.iter().copied().filter(|(at, _)| is_in(*at)).collect::<Vec<_>>())
        };
        let all = known(None);
        finish(&mut found.all, &all);
        found.all.iterations = whole(None, None);
        for (out, model) in (0..).zip(&mut found.without_family) {
            finish(model, &all);
            model.iterations = whole(None, Some(out));
        }
        for (gpu, model) in &mut found.without_gpu {
            let others = known(Some(gpu));
            finish(model, &others);
            model.iterations = whole(Some(gpu), None);
            for ((_, family), both) in found.without_both.iter_mut().filter(|((out, _), _)| out == gpu) {
                finish(both, &others);
                both.iterations = whole(Some(gpu), Some(*family));
            }
        }
        Ok(found)
    }

    /// The model that saw no network of the step's family.
    pub fn without_family(&self, step: &PublishedStep) -> &Efficiency {
        &self.without_family[fold(step) as usize]
    }

    /// The model that saw nothing on a GPU.
    pub fn without_gpu(&self, gpu: &GpuSlug) -> &Efficiency {
        self.without_gpu.get(gpu).unwrap_or(&self.all)
    }

    /// The model that saw neither.
    pub fn without_both(&self, step: &PublishedStep) -> &Efficiency {
        &self.without_both[&(step.gpu.clone(), fold(step))]
    }

    /// ln(measured / sum of operators) of whole training iterations in FP32, each by models that saw neither its GPU
    /// nor its family of networks.
    fn iterations(
        &self,
        steps: &[PublishedStep],
        catalog: &Catalog,
        operators: &dyn Fn(&PublishedStep) -> Models,
    ) -> Result<Vec<(usize, f64)>, PredictError> {
        let plain = Some(Iterations { factor: 1.0, unseen: WIDE });
        let mut found = Vec::new();
        for (at, step) in steps.iter().enumerate().filter(|(_, step)| is_iteration(step)) {
            let efficiency = Efficiency { iterations: plain, ..self.without_both(step).clone() };
            let options = Options {
                targets: vec![step.gpu.clone()],
                method: MethodChoice::Learned,
                models: Some(Arc::new(operators(step).with_efficiency(efficiency))),
                ..Options::default()
            };
            let answer = predict(&step.profile, &step.catalog(catalog), &options)?;
            let predicted = answer.predictions.first().map(|prediction| prediction.step.mid().get());
            found.extend(predicted.map(|predicted| (at, (step.time.get() / predicted).ln())));
        }
        Ok(found)
    }

    /// Spread of operators that were measured alone, by models that saw no operator of the kind.
    fn operators(&self, steps: &[PublishedStep], design: &Design) -> Option<Spread> {
        let gpus: Vec<&GpuSlug> = self.without_gpu.keys().collect();
        let operators = steps.iter().enumerate().filter(|(_, step)| !step.is_step());
        let many = many(steps);
        let logs: Vec<(usize, f64)> = operators
            .map(|(at, step)| {
                let place = gpus.binary_search(&&step.gpu).unwrap_or(0);
                let model = self.without_family(step);
                let share = if many.contains(&step.gpu) { 0.0 } else { model.roofline };
                (place, -design.residual(at, model, share))
            })
            .collect();
        spread(&logs)
    }

    /// Errors of the steps that the efficiency model predicts.
    fn judged(&self, steps: &[PublishedStep], design: &Design) -> Vec<Judged> {
        let gpus: Vec<&GpuSlug> = self.without_gpu.keys().collect();
        // Other models predict the others.
        let is_answered =
            |step: &PublishedStep| is_by_efficiency(&Decoded::all(&step.profile), step.profile.workload.precision);
        let known = steps.iter().enumerate().filter(|(_, step)| step.extent == Extent::Step && is_answered(step));
        let many = many(steps);
        known
            .map(|(at, step)| {
                let (family_out, both_out) = (self.without_family(step), self.without_both(step));
                let share = if many.contains(&step.gpu) { 0.0 } else { family_out.roofline };
                let logs =
                    |seen, unseen| [-design.residual(at, family_out, seen), -design.residual(at, both_out, unseen)];
                let [seen, unseen] = logs(share, both_out.roofline);
                let gpu = gpus.binary_search(&&step.gpu).unwrap_or(0);
                Judged { at, gpu, seen, unseen, without_roofline: logs(0.0, 0.0) }
            })
            .collect()
    }
}

/// GPUs with their own ranges: those with [`ENOUGH`] steps of a mode and precision.
fn many(steps: &[PublishedStep]) -> BTreeSet<GpuSlug> {
    let mut counts: BTreeMap<(&GpuSlug, &str, Option<&str>), usize> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.extent == Extent::Step) {
        let workload = &step.profile.workload;
        *counts.entry((&step.gpu, workload.mode.name(), workload.precision.map(Precision::name))).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count >= ENOUGH).map(|((gpu, ..), _)| gpu.clone()).collect()
}

/// Facts from the errors of steps.
struct Known {
    steps: StepFacts,
    ranges: Vec<StepRanges>,
}

/// ln(measured / predicted) of a step by models that did not see it.
struct Judged {
    /// Index of the step.
    at: usize,
    /// Number of its GPU.
    gpu: usize,
    /// Without the family of its network.
    seen: f64,
    /// Without its GPU too.
    unseen: f64,
    /// Both without the roofline's share, as if the step was recorded on another GPU.
    without_roofline: [f64; 2],
}

/// Deviation of steps from the sum of their operators.
fn facts(steps: &[PublishedStep], judged: &[&Judged]) -> StepFacts {
    let mut alike: BTreeMap<String, Vec<&Judged>> = BTreeMap::new();
    for judged in judged {
        let workload = &steps[judged.at].profile.workload;
        alike.entry(format!("{} {:?}", workload.name, workload.precision)).or_default().push(judged);
    }
    // The origin is a known GPU, the destination is not.
    let mut pairs = Vec::new();
    for same in alike.values() {
        for here in same {
            let others = same.iter().filter(|there| there.gpu != here.gpu);
            let alone =
                |here: &Judged, there: &Judged| (here.without_roofline[0], there.gpu, there.without_roofline[1]);
            pairs.extend(others.map(|there| alone(here, there)));
        }
    }
    let (shared_deviation, left) = shared_deviation(&pairs);
    let logs = |log: &dyn Fn(&Judged) -> f64| judged.iter().map(|one| (one.gpu, log(one))).collect::<Vec<_>>();
    StepFacts {
        typical: 1.0,
        training: 1.0,
        boards: judged.iter().map(|judged| (steps[judged.at].gpu.to_string(), 1.0)).collect(),
        makers: BTreeMap::new(),
        seen: spread(&logs(&|judged| judged.seen)),
        unseen: either_way(&logs(&|judged| judged.unseen)),
        shared_deviation,
        with_origin: spread(&left).map(|spread| spread.widened(few_gpus(&left))),
    }
}

/// Ranges by mode and precision, if there are enough steps. Every family of networks on a GPU has the same weight: its
/// steps err together, and most steps are from a few GPUs.
fn ranges(steps: &[PublishedStep], judged: &[&Judged]) -> Vec<StepRanges> {
    let mut kinds: Vec<(Mode, Precision)> = Vec::new();
    for judged in judged {
        let workload = &steps[judged.at].profile.workload;
        let kind = workload.precision.map(|precision| (workload.mode, precision));
        kinds.extend(kind.filter(|kind| !kinds.contains(kind)));
    }
    kinds.sort_by_key(|(mode, precision)| (mode.name(), precision.name()));
    let between = between_gpus(judged);
    let of = |(mode, precision)| -> Option<StepRanges> {
        let is_alike = |judged: &&&Judged| {
            let workload = &steps[judged.at].profile.workload;
            (workload.mode, workload.precision) == (mode, Some(precision))
        };
        let own: Vec<&Judged> = judged.iter().filter(is_alike).copied().collect();
        let gpus: BTreeSet<usize> = own.iter().map(|judged| judged.gpu).collect();
        let unseen = either_way(&of_families(steps, &own, &|judged| judged.unseen)?)?;
        let unseen = for_another(unseen, between, gpus.len());
        let board = |gpu: usize| {
            let there: Vec<&Judged> = own.iter().filter(|judged| judged.gpu == gpu).copied().collect();
            Some((steps[there[0].at].gpu.to_string(), spread(&of_families(steps, &there, &|judged| judged.seen)?)?))
        };
        Some(StepRanges { mode, precision, boards: gpus.into_iter().filter_map(board).collect(), unseen })
    };
    kinds.into_iter().filter_map(of).collect()
}

/// Deviation of GPUs as a whole, in logarithms: the half-width of their 80 % range about the middle.
fn between_gpus(judged: &[&Judged]) -> f64 {
    let mut gpus: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
    for judged in judged {
        gpus.entry(judged.gpu).or_default().push((judged.unseen, 1.0));
    }
    let middles: Vec<f64> = gpus.into_values().filter_map(|logs| quantile(logs, 0.5)).collect();
    let middle = quantile(middles.iter().map(|&log| (log, 1.0)).collect(), 0.5).unwrap_or(0.0);
    quantile(middles.iter().map(|log| ((log - middle).abs(), 1.0)).collect(), COVERAGE).unwrap_or(0.0)
}

/// A range from steps on this many GPUs, widened for another GPU, which may deviate more than the few have shown.
/// Deviations of GPUs in any mode and precision count.
fn for_another(spread: Spread, between: f64, gpus: usize) -> Spread {
    let end = |factor: f64| factor.ln().hypot(between / (gpus as f64).sqrt());
    Spread { low: (-end(spread.low.min(1.0))).exp(), high: end(spread.high.max(1.0)).exp(), ..spread }
}

/// Whether a step is a training iteration in FP32 with its optimizer.
pub(crate) fn is_iteration(step: &PublishedStep) -> bool {
    let workload = &step.profile.workload;
    let updates = || step.profile.operations.iter().any(|operation| operation.phase == Phase::Optimizer);
    step.extent == Extent::Step
        && workload.mode == Mode::Training
        && matches!(workload.precision, Some(Precision::Fp32 | Precision::Fp32Strict))
        && updates()
}

/// Median of the logarithms of steps on other GPUs of other families.
pub(crate) fn median_of_others(steps: &[PublishedStep], logs: &[(usize, f64)], at: usize) -> Option<f64> {
    let is_other = |other: usize| steps[other].gpu != steps[at].gpu && steps[other].family != steps[at].family;
    quantile(logs.iter().filter(|(other, _)| is_other(*other)).map(|&(_, log)| (log, 1.0)).collect(), 0.5)
}

/// The factor of whole training iterations, and the residual of each by the factor of the others; every network has the
/// same weight.
fn iterations(steps: &[PublishedStep], logs: &[(usize, f64)]) -> Option<Iterations> {
    let factor = quantile(logs.iter().map(|&(_, log)| (log, 1.0)).collect(), 0.5)?;
    let mut networks: BTreeMap<&str, usize> = BTreeMap::new();
    let left: Vec<(usize, f64)> = logs
        .iter()
        .filter_map(|&(at, log)| {
            let next = networks.len();
            let network = *networks.entry(&steps[at].network).or_insert(next);
            Some((network, log - median_of_others(steps, logs, at)?))
        })
        .collect();
    Some(Iterations { factor: factor.exp(), unseen: spread(&left)? })
}

/// The 80 % range of logarithms for another GPU, symmetric: the others do not show in which direction it deviates.
pub(super) fn either_way(logs: &[(usize, f64)]) -> Option<Spread> {
    let both: Vec<(usize, f64)> = logs.iter().flat_map(|&(number, log)| [(number, log), (number, -log)]).collect();
    spread(&both).map(|spread| Spread { cases: logs.len(), ..spread })
}

/// Logarithms for a range, with the same weight for every family of networks on a GPU; `None` if there are too few.
fn of_families(steps: &[PublishedStep], judged: &[&Judged], log: &dyn Fn(&Judged) -> f64) -> Option<Vec<(usize, f64)>> {
    let mut families: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    let logs: Vec<(usize, f64)> = judged
        .iter()
        .map(|judged| {
            let next = families.len();
            (*families.entry((judged.gpu, &steps[judged.at].family)).or_insert(next), log(judged))
        })
        .collect();
    Some(logs).filter(|logs| logs.len() >= ENOUGH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::efficiency::tests::step;

    /// One GPU with a hundred steps of a well predicted family, ten with one each of a badly predicted family: the
    /// latter keep their weight, and have no separate range.
    #[test]
    fn families_on_a_gpu_count_alike() {
        let [many, other] = ["rtx-3090", "t4"].map(|slug| step(slug, 64, 0.0, 0.0));
        let mut steps = vec![many; 100];
        for family in 0..10 {
            steps.push(PublishedStep { family: family.to_string(), ..other.clone() });
        }
        let error = |at: usize| if at < 100 { 0.01 } else { (at as f64 - 104.5) / 10.0 };
        let errors: Vec<Judged> = (0..steps.len())
            .map(|at| Judged {
                at,
                gpu: usize::from(at >= 100),
                seen: error(at),
                unseen: 2.0 * error(at),
                without_roofline: [0.0; 2],
            })
            .collect();
        let judged: Vec<&Judged> = errors.iter().collect();
        let [found] = &ranges(&steps, &judged)[..] else { panic!("one mode and precision") };
        assert_eq!((found.mode, found.precision), (Mode::Training, Precision::AmpFp16));
        assert_eq!(found.boards.keys().collect::<Vec<_>>(), ["rtx-3090"]);
        assert!((found.boards["rtx-3090"].high.ln() - 0.01).abs() < 1e-9);
        // Their medians are 0.12 apart.
        let end = 0.7_f64.hypot(0.12 / 2_f64.sqrt());
        assert!((found.unseen.low.ln() + end).abs() < 1e-9 && (found.unseen.high.ln() - end).abs() < 1e-9, "{found:?}");
        assert!(ranges(&steps, &judged[21..]).is_empty(), "too few");
        // All on one side: a symmetric range.
        let one_sided: Vec<Judged> =
            errors.iter().map(|one| Judged { unseen: one.unseen.abs(), without_roofline: [0.0; 2], ..*one }).collect();
        let judged: Vec<&Judged> = one_sided.iter().collect();
        let [found] = &ranges(&steps, &judged)[..] else { panic!("one mode and precision") };
        let steps_of_others = facts(&steps, &judged).unseen.unwrap();
        for range in [found.unseen, steps_of_others] {
            assert!(range.high > 1.1 && (range.low * range.high - 1.0).abs() < 1e-9, "{range:?}");
        }
    }

    /// Ten that are all predicted too fast, by up to 1.0 in logarithms: 80 % are within 0.9.
    #[test]
    fn another_gpu_may_deviate_the_other_way() {
        let logs: Vec<(usize, f64)> = (1..=10).map(|tenths| (0, f64::from(tenths) / 10.0)).collect();
        let found = either_way(&logs).unwrap();
        assert!((found.high.ln() - 0.9).abs() < 1e-9 && (found.low.ln() + 0.9).abs() < 1e-9, "{found:?}");
        assert_eq!(found.cases, 10);
    }

    /// GPUs that are off by 0, 0.1 and 0.2 deviate by 0.1 from their middle. A range from four of them widens by half
    /// of that in quadrature, from one by all; an end on the wrong side of 1 becomes that deviation alone.
    #[test]
    fn ranges_from_few_gpus_are_wider_for_another() {
        let errors: Vec<Judged> = (0..9)
            .map(|at| {
                let gpu = at % 3;
                Judged { at, gpu, seen: 0.0, unseen: gpu as f64 / 10.0, without_roofline: [0.0; 2] }
            })
            .collect();
        let between = between_gpus(&errors.iter().collect::<Vec<_>>());
        assert!((between - 0.1).abs() < 1e-9, "{between}");
        let spread = Spread { low: 1.02, high: 0.12_f64.exp(), cases: 9 };
        let [four, one] = [4, 1].map(|gpus| for_another(spread, between, gpus));
        assert!((four.high.ln() - 0.13).abs() < 1e-9 && (four.low.ln() + 0.05).abs() < 1e-9, "{four:?}");
        assert!((one.high.ln() - 0.12_f64.hypot(0.1)).abs() < 1e-9, "{one:?}");
    }
}
