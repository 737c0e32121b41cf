//! Published steps from their shapes, by models that did not see their GPU, their family of networks, or either, beside
//! simple rules of thumb.

use std::collections::BTreeMap;
use std::path::Path;

use habitat_tui::catalog::{Catalog, GpuSpec};
use habitat_tui::cli::CliError;
use habitat_tui::predict::MethodChoice;
use habitat_tui::predict::compare::{Known, StepKind};
use habitat_tui::predict::efficiency::Efficiency;
use habitat_tui::profile::{Precision, PrecisionClass};
use habitat_tui::units::Micros;

use super::judge::Judge;
use super::tally::{Evaluation, Groups, Predicted};
use super::together;
use crate::learn::efficiency::folds::Folds;
use crate::models::ModelsByGpu;
use crate::published::{Extent, PublishedStep, read, read_all};

/// Method of steps whose network was left out.
pub(super) const NETWORK: &str = "learned, network left out";
/// Method of steps whose network and GPU were left out.
pub(super) const BOTH: &str = "learned, both left out";
/// Least relative difference of two GPUs' times to name a faster one.
const FASTER: f64 = 0.10;

pub(super) fn evaluate(
    file: &Path,
    recorded: Option<&Path>,
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Result<Vec<Evaluation>, CliError> {
    let steps = read_all(file, recorded, catalog)?;
    let judge = Judge::new(models, catalog);
    let folds = judge.folds(&steps)?;
    let (parts, steps): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.extent == Extent::Part);
    let mut found = evaluations(&steps, &folds, &judge)?;
    if !parts.is_empty() {
        found.push(by_kind(&parts, &folds, &judge)?);
    }
    Ok(found)
}

/// Steps of each mode and precision, with their network left out, and with their GPU left out as well.
pub(super) fn left_out(
    file: &Path,
    recorded: &Path,
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Result<Evaluation, CliError> {
    let steps = read_all(file, Some(recorded), catalog)?;
    let judge = Judge::new(models, catalog);
    let folds = judge.folds(&steps)?;
    let mut groups = Groups::default();
    for step in steps.iter().filter(|step| step.extent == Extent::Step) {
        for (method, efficiency) in [(NETWORK, folds.without_family(step)), (BOTH, folds.without_both(step))] {
            let predicted = judge.predict(step, efficiency, MethodChoice::Learned)?;
            let label = || format!("{} on {}", step.profile.workload.name, step.gpu);
            groups.add(&kind(step), method, predicted, step.time.as_millis(), &label);
        }
    }
    Ok(groups.evaluation("published steps".to_owned(), Vec::new()))
}

/// Operations of recorded steps, grouped by kind within a step.
fn by_kind(parts: &[PublishedStep], folds: &Folds, judge: &Judge<'_>) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for part in parts {
        let efficiencies = [(NETWORK, folds.without_family(part)), ("learned, all seen", &folds.all)];
        let precision = part.profile.workload.precision.map_or("", precision_name);
        for (method, efficiency) in efficiencies {
            let predicted = judge.predict(part, efficiency, MethodChoice::Learned)?;
            let measured = part.time.as_millis();
            let label =
                || format!("{} on {}: {:.3} of {measured:.3} ms", part.profile.workload.name, part.gpu, predicted.mid);
            for group in [precision.to_owned(), format!("{}, {precision}", part.what())] {
                groups.add(&group, method, predicted, measured, &label);
            }
        }
    }
    let protocol = "absolute relative errors of all operations of a kind in a recorded step, their kernels alone; with the worst predictions";
    Ok(groups.evaluation(protocol.to_owned(), Vec::new()))
}

/// Steps by the shipped models, whether or not these were trained on them: each, and all of a source.
pub(super) fn as_shipped(file: &Path, catalog: &Catalog) -> Result<Evaluation, CliError> {
    let steps = read(file, catalog)?;
    let models = ModelsByGpu::default();
    let judge = Judge::new(&models, catalog);
    let efficiency = judge.shipped.efficiency().ok_or_else(|| CliError::other("no efficiency model is shipped"))?;
    let mut groups = Groups::default();
    for step in &steps {
        let (name, what) = (&step.profile.workload.name, kind(step));
        let groups_of = [
            format!("{what}, {}", step.source),
            format!("{what}: {}", step.family),
            format!("{what} → {}", step.gpu),
            format!("{what} → {}: {}", step.gpu, step.network),
            format!("{name} on {}", step.gpu),
        ];
        for (method, choice) in [("learned", MethodChoice::Learned), ("roofline", MethodChoice::Roofline)] {
            let predicted = judge.predict(step, efficiency, choice)?;
            let label = || format!("{name}: {:.3} of {:.3} ms", predicted.mid, step.time.as_millis());
            for group in &groups_of {
                groups.add(group, method, predicted, step.time.as_millis(), &label);
            }
        }
    }
    let protocol = "absolute relative errors of published steps by the shipped models from their shapes; with the worst predictions";
    Ok(groups.evaluation(protocol.to_owned(), Vec::new()))
}

/// Steps in mixed and reduced precision by the methods that need only shapes, each without its GPU and its family of
/// networks. Returns the models without a GPU.
pub(super) fn by_methods(groups: &mut Groups, file: &Path, catalog: &Catalog) -> Result<Folds, CliError> {
    let steps = read(file, catalog)?;
    let models = ModelsByGpu::default();
    let judge = Judge::new(&models, catalog);
    let folds = judge.folds(&steps)?;
    for step in steps.iter().filter(|step| step.extent == Extent::Step) {
        let workload = &step.profile.workload;
        // FP32 is evaluated on NeuSight's steps.
        let kind = catalog.get(&step.gpu).map(|gpu| StepKind::of(&step.profile, gpu));
        let kind = kind.filter(|_| workload.precision.is_some_and(|it| it.class() != PrecisionClass::Fp32));
        let Some(group) = kind.and_then(|kind| kind.group(Known::Shapes)) else { continue };
        for method in [MethodChoice::Auto, MethodChoice::Learned, MethodChoice::Roofline] {
            let predicted = judge.predict(step, folds.without_both(step), method)?;
            let label = || format!("{} on {}", workload.name, step.gpu);
            groups.add(&group, method.name(), predicted, step.time.as_millis(), &label);
        }
    }
    Ok(folds)
}

/// All predictions of a step; milliseconds.
struct Judged {
    network_out: Predicted,
    gpu_out: Predicted,
    both_out: Predicted,
    roofline: Predicted,
}

/// The tables: whole steps, and ratios of two GPUs.
pub(crate) fn evaluations(
    steps: &[PublishedStep],
    folds: &Folds,
    judge: &Judge<'_>,
) -> Result<Vec<Evaluation>, CliError> {
    let mut judged = Vec::new();
    for step in steps {
        let learned = |efficiency: &Efficiency| judge.predict(step, efficiency, MethodChoice::Learned);
        judged.push(Judged {
            network_out: learned(folds.without_family(step))?,
            gpu_out: learned(folds.without_gpu(&step.gpu))?,
            both_out: learned(folds.without_both(step))?,
            roofline: judge.predict(step, &folds.all, MethodChoice::Roofline)?,
        });
    }
    let mut groups = Groups::default();
    // One factor per mode and precision: the best in hindsight.
    let mut factors: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (step, judged) in steps.iter().zip(&judged) {
        factors.entry(kind(step)).or_default().push(step.time.as_millis() / judged.roofline.mid);
    }
    for factors in factors.values_mut() {
        factors.sort_by(f64::total_cmp);
    }
    for (step, judged) in steps.iter().zip(&judged) {
        let measured = step.time.as_millis();
        let all = &factors[&kind(step)];
        let constant = all[all.len() / 2];
        let with_constant = Predicted { mid: judged.roofline.mid * constant, range: None };
        let label = || format!("{} on {}", step.profile.workload.name, step.gpu);
        let what = kind(step);
        let release = format!("{what}, by {}", step.software);
        let is_named = step.is_step() && !step.software.is_empty();
        for group in [
            what.clone(),
            format!("{what}: {}", step.family),
            format!("{what} → {}", step.gpu),
            format!("{what}, {}", step.source),
        ]
        .into_iter()
        .chain(is_named.then_some(release))
        {
            groups.add(&group, NETWORK, judged.network_out, measured, &label);
            groups.add(&group, "learned, GPU left out", judged.gpu_out, measured, &label);
            groups.add(&group, BOTH, judged.both_out, measured, &label);
            groups.add(&group, "roofline", judged.roofline, measured, &label);
            groups.add(&group, "roofline times one constant", with_constant, measured, &label);
        }
    }
    let protocol = "absolute relative errors of whole published steps from their shapes; networks are left out by families, in six parts, and operators that were measured alone in one more; \"one constant\" is the median of measured over roofline of the same mode and precision, all steps seen; FP32 is answered by the operator models, its convolutions by a mean of both";
    let whole = groups.evaluation(protocol.to_owned(), vec![judge.protocol().to_owned()]);
    Ok(vec![
        whole,
        together::evaluate(steps, folds, judge)?,
        ratios(steps, &judged, (folds, judge))?,
        in_16_bits(steps, (folds, judge))?,
        elsewhere_in_16_bits(steps, (folds, judge))?,
    ])
}

/// Steps of the same network, batch and size, whose names differ in the precision alone; on the same GPU if `alike`.
fn by_case(steps: &[PublishedStep], alike: bool) -> BTreeMap<String, Vec<(Precision, &PublishedStep)>> {
    let mut cases: BTreeMap<String, Vec<(Precision, &PublishedStep)>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.extent == Extent::Step) {
        let Some(precision) = step.profile.workload.precision else { continue };
        let name = &*step.profile.workload.name;
        let end =
            ["-fp32", "-amp-fp16", "-fp16-pure", "-bf16-pure", "-bf16"].iter().find_map(|end| name.strip_suffix(end));
        let gpu = if alike { step.gpu.as_str() } else { "" };
        cases.entry(format!("{} {gpu} {}", end.unwrap_or(name), step.source)).or_default().push((precision, step));
    }
    cases
}

/// Pairs of a step in FP32 or TF32 and one in 16 bits.
fn pairs<'a>(
    same: &'a [(Precision, &'a PublishedStep)],
) -> impl Iterator<Item = (Precision, &'a PublishedStep, Precision, &'a PublishedStep)> {
    let wide = same.iter().filter(|(precision, _)| precision.is_32_bits());
    wide.flat_map(move |(from, wide)| {
        let narrow = same.iter().filter(|(precision, _)| !precision.is_32_bits());
        narrow.map(move |(to, narrow)| (*from, *wide, *to, *narrow))
    })
}

/// The same step on the same GPU in FP32 or TF32 and in 16 bits: by how much it is faster.
fn in_16_bits(steps: &[PublishedStep], (folds, judge): (&Folds, &Judge<'_>)) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for same in by_case(steps, true).values() {
        for (from, wide, to, narrow) in pairs(same) {
            let label = || format!("{} on {}", wide.profile.workload.name, wide.gpu);
            for (name, method) in [(NETWORK, MethodChoice::Learned), ("roofline", MethodChoice::Roofline)] {
                let efficiency = folds.without_family(wide);
                let recorded = judge.predict(wide, efficiency, method)?;
                let changed = judge.predict_in(wide, Some(to), efficiency, method)?;
                let predicted = Predicted { mid: recorded.mid / changed.mid, range: None };
                groups.add(&format!("{from} to {to}"), name, predicted, wide.time / narrow.time, &label);
            }
        }
    }
    let protocol = "relative errors of how much faster the same step is in 16 bits on the same GPU, from the operators of the step in 32";
    Ok(groups.evaluation(protocol.to_owned(), Vec::new()))
}

/// A step in FP32 or TF32 on a GPU, and the same step in 16 bits on another, predicted from it: at once, and first in
/// its own precision there. The measured step is shared among its operations as predicted.
fn elsewhere_in_16_bits(steps: &[PublishedStep], (folds, judge): (&Folds, &Judge<'_>)) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for same in by_case(steps, false).values() {
        for (from, wide, to, narrow) in pairs(same).filter(|(_, wide, _, narrow)| wide.gpu != narrow.gpu) {
            let software = if wide.ran_alike(narrow) { "" } else { ", other software" };
            let on = |step: &PublishedStep, precision| {
                judge.predict_from(step, (&narrow.gpu, precision), folds.without_both(narrow))
            };
            let time = Micros::from_millis(on(wide, from)?.mid).map_err(CliError::other)?;
            let first = PublishedStep { gpu: narrow.gpu.clone(), locked: narrow.locked, time, ..wide.clone() };
            let label = || format!("{} on {} → {}", wide.profile.workload.name, wide.gpu, narrow.gpu);
            for (method, predicted) in [("at once", on(wide, to)?), ("in two steps", on(&first, to)?)] {
                let groups_of = ["all".to_owned(), format!("{from} to {to}{software}")];
                for group in groups_of {
                    groups.add(&group, method, predicted, narrow.time.as_millis(), &label);
                }
            }
        }
    }
    let protocol = "absolute relative errors of a step in 16 bits on a GPU, predicted from the step in FP32 or TF32 on another; the second GPU and the network left out";
    Ok(groups.evaluation(protocol.to_owned(), Vec::new()))
}

/// The precision in the names of groups: where TF32 was off and where the GPU has none, it is FP32 alike.
fn precision_name(precision: Precision) -> &'static str {
    if precision == Precision::Fp32Strict { Precision::Fp32.name() } else { precision.name() }
}

fn kind(step: &PublishedStep) -> String {
    let workload = &step.profile.workload;
    let precision = workload.precision.map_or_else(String::new, |precision| format!(", {}", precision_name(precision)));
    match step.extent {
        Extent::Step => format!("{}{precision}", workload.mode),
        Extent::Elsewhere => format!("{}{precision}, another framework", workload.mode),
        Extent::Collected => format!("collected operators{precision}"),
        Extent::Part | Extent::Operator => format!("operators{precision}"),
    }
}

/// Speedup of the second GPU over the first for the same step.
fn ratios(
    steps: &[PublishedStep],
    judged: &[Judged],
    (folds, judge): (&Folds, &Judge<'_>),
) -> Result<Evaluation, CliError> {
    let catalog = judge.catalog;
    let mut groups = Groups::default();
    let mut by_case: BTreeMap<(String, &str, &str), Vec<usize>> = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        by_case.entry((kind(step), &step.profile.workload.name, &step.source)).or_default().push(at);
    }
    // For steps, and for operators that were measured alone.
    let (mut named, mut told) = ([0_usize; 2], [0_usize; 2]);
    for ((kind, name, _), places) in by_case {
        for (number, &here) in places.iter().enumerate() {
            for &there in &places[number + 1..] {
                let (a, b) = (&steps[here], &steps[there]);
                let [of_a, of_b] = [a, b].map(|step| step.catalog(catalog));
                let (Some(first), Some(second)) = (of_a.get(&a.gpu), of_b.get(&b.gpu)) else { continue };
                if a.gpu == b.gpu {
                    continue;
                }
                let measured = a.time / b.time;
                let kind = if a.ran_alike(b) { kind.clone() } else { format!("{kind}, other software") };
                let label = || format!("{name}, {} → {}", a.gpu, b.gpu);
                let mut add = |method: &str, mid: f64| {
                    for group in [kind.clone(), format!("{kind}: {} and {}", a.gpu, b.gpu)] {
                        groups.add(&group, method, Predicted { mid, range: None }, measured, &label);
                    }
                };
                // The first GPU is known; the second and the network are not.
                let from = judge.predict(a, folds.without_both(b), MethodChoice::Learned)?;
                let ours = from.mid / judged[there].both_out.mid;
                let bandwidths = second.memory_bandwidth / first.memory_bandwidth;
                let peaks = peak(second) / peak(first);
                add("learned, second GPU and network left out", ours);
                add("roofline", judged[here].roofline.mid / judged[there].roofline.mid);
                add("ratio of bandwidths", bandwidths);
                add("ratio of peaks", peaks);
                add("√(bandwidths × peaks)", (bandwidths * peaks).sqrt());
                if measured.max(1.0 / measured) >= 1.0 + FASTER {
                    let of = usize::from(!a.is_step());
                    told[of] += 1;
                    named[of] += usize::from((ours > 1.0) == (measured > 1.0));
                }
            }
        }
    }
    let note = format!(
        "the GPU that is faster by {:.0} % or more is named right in {} of {} pairs of steps and {} of {} of operators",
        FASTER * 100.0,
        named[0],
        told[0],
        named[1],
        told[1]
    );
    Ok(groups.evaluation("relative errors of the ratio of the same step's times on two GPUs".to_owned(), vec![note]))
}

/// Dense FP16 peak on matrix units, else that of FP32, in FLOP/s.
fn peak(gpu: &GpuSpec) -> f64 {
    gpu.peak.fp16_tensor.unwrap_or(gpu.peak.fp32).get()
}
