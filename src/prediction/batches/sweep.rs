//! Predicts a workload at several batch sizes on several GPUs: step, memory, and the largest batch that fits.
//!
//! With profiles at two or more batch sizes, a [`BatchCurve`] goes through the steps of each GPU: measured ones on the
//! recording GPU, predicted ones elsewhere. With one profile, its shapes are scaled ([`rebatch`]): each operation's
//! time at the recorded batch is multiplied by the ratio of the two predictions from shapes. The wait for launches
//! stays, loading takes as long for each sample.

use std::rc::Rc;

use super::curve::{BatchCurve, BatchPoint, Place};
use super::error::SweepError;
use super::rebatch::rebatch;
use super::scaled::{ScaledShapes, ShapesAlone, with_scaling_range};
use crate::choice::predict;
use crate::error::PredictError;
use crate::estimate::Estimate;
use crate::finding::{Finding, distinct};
use crate::gpu::GpuFacts;
use crate::host::Host;
use crate::memory::{MemoryFit, MemoryLine, MemoryNeed};
use crate::options::Options;
use crate::origin::origin;
use crate::precision::Change;
use crate::predictions::Prediction;
use crate::rate::Rates;
use crate::supply::Supply;
use habitat_base::regress::line::{Line, Point};
use habitat_base::units::{Micros, OpenRange, SamplesPerSecond, most};
use habitat_step::catalog::{Catalog, GpuSpec};
use habitat_step::op::{Family, family};
use habitat_step::profile::{Profile, Workload};

/// Source of a sweep's predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Profiles at several batch sizes.
    Lines,
    /// One profile with scaled shapes.
    Shapes,
}

/// A workload at several batch sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The workload of the first profile.
    pub workload: Workload,
    /// Whether steps include the wait for the host.
    pub host: Host,
    /// Source of the predictions.
    pub basis: Basis,
    /// The recorded batch sizes, ascending.
    pub recorded: Vec<u64>,
    /// Whether no step was measured on a GPU.
    pub shapes_only: bool,
    /// Results for each GPU.
    pub gpus: Vec<GpuSweep>,
    /// Memory by batch size, if known.
    pub memory: Option<MemoryLine>,
    /// Warnings that apply to all times.
    pub warnings: Vec<Finding>,
    /// Notes for the reader.
    pub notes: Vec<Finding>,
}

/// Results of a sweep on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSweep {
    /// The GPU.
    pub gpu: GpuFacts,
    /// Rows by batch size, ascending.
    pub rows: Vec<SweepRow>,
    /// Line beyond the largest recorded batch (µs, and µs per sample), with the share of that step that grows with the
    /// batch; `None` from one profile.
    pub line: Option<(Line, f64)>,
    /// Lines by family of operators; empty from one profile.
    pub families: Vec<FamilyLine>,
    /// Largest batch that fits, if the memory need is known.
    pub largest: Option<u64>,
    /// Warnings and fallbacks.
    pub notes: Vec<Finding>,
}

/// Result at one batch size on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRow {
    /// Samples in a step.
    pub batch: u64,
    /// Step time; its method shows whether it was recorded on this GPU.
    pub step: Estimate,
    /// Loading of its data, as in [`Prediction::data`]; `None` on a line through steps, which include their waits.
    pub data: Option<Supply>,
    /// The 90 % range.
    pub wide: [Micros; 2],
    /// Samples per second; `None` if the step takes no time.
    pub throughput: Option<OpenRange<SamplesPerSecond>>,
    /// Whether the step fits in memory.
    pub memory: MemoryFit,
}

/// Device time of an operator family as a function of the batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyLine {
    /// The family.
    pub family: Family,
    /// Line: µs, and µs per sample.
    pub line: Line,
    /// Coefficient of determination of the line.
    pub r_squared: f64,
    /// Device time at each recorded batch size.
    pub times: Vec<(u64, Micros)>,
}

/// Predicts a workload at `batches` and at the recorded sizes, on the GPUs of `options`.
///
/// # Errors
/// Fails if profiles are of different workloads, lack a batch size, or cannot be predicted.
pub fn sweep(
    profiles: &[(String, Profile)],
    catalog: &Catalog,
    options: &Options,
    batches: &[u64],
) -> Result<Sweep, SweepError> {
    // Scaling needs the time of each operation.
    let options = &Options { steps_only: false, ..options.clone() };
    check_size(profiles, catalog, options, batches)?;
    let mut sorted: Vec<(u64, &(String, Profile))> = Vec::new();
    for named in profiles {
        let batch = named.1.workload.batch_size.ok_or_else(|| SweepError::NoBatch(named.0.clone()))?;
        sorted.push((batch, named));
    }
    sorted.sort_by_key(|(batch, _)| *batch);
    let Some((_, (first_name, first))) = sorted.first() else { return Err(SweepError::Nothing) };
    for (_, (name, other)) in &sorted[1..] {
        same((first_name, first), (name, other))?;
    }
    let mut recorded: Vec<u64> = sorted.iter().map(|(batch, _)| *batch).collect();
    recorded.dedup();
    let mut wanted: Vec<u64> = recorded.iter().chain(batches).copied().filter(|&batch| batch > 0).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let own: Vec<(u64, &Profile)> = sorted.iter().map(|(batch, (_, profile))| (*batch, profile)).collect();
    let memory = memory_line(&own, origin(first, catalog, options)?);
    let change = Change::of_numbers(first, options.precision);
    let mut notes = Vec::new();
    let answers: Vec<Vec<Prediction>> = own
        .iter()
        .map(|(_, profile)| Ok(predict(profile, catalog, options)?.predictions))
        .collect::<Result<_, PredictError>>()?;
    let shown = distinct(answers.iter().flatten().map(|prediction| prediction.warnings.as_slice()));
    let warnings = shown.into_iter().map(|(warning, _)| warning).collect();
    let basis = if recorded.len() > 1 { Basis::Lines } else { Basis::Shapes };
    notes.extend(far_beyond(&recorded, &wanted));
    let mut by_size = Vec::new();
    if basis == Basis::Shapes {
        notes.push(Finding::OneBatch { batch: recorded[0] });
        let mut before = ShapesAlone::known(first, options, &answers[0]).map(Rc::new);
        let mut note = None;
        for &batch in &wanted {
            // One size at a time: times of all operations on all GPUs need much memory.
            let other = (batch != recorded[0])
                .then(|| ScaledShapes::beside(&mut before, first, batch, catalog, options))
                .transpose()?;
            if let (Some(shapes), None) = (&other, &note) {
                note = Some(shapes.note(first));
            }
            by_size.push(rows_by_shapes(&answers[0], other.as_ref(), recorded[0], batch));
        }
        notes.extend(note.flatten());
    } else {
        notes.extend(other_operations(&own));
    }
    let count = answers.first().map_or(0, Vec::len);
    let mut gpus = Vec::with_capacity(count);
    for index in 0..count {
        let of_gpu: Vec<(u64, &Prediction)> =
            own.iter().zip(&answers).map(|((batch, _), answers)| (*batch, &answers[index])).collect();
        let mut sweep = if basis == Basis::Lines {
            by_line(&of_gpu, &own, &wanted)?
        } else {
            by_shapes(of_gpu[0].1, by_size.iter().map(|rows| rows[index].clone()).collect())
        };
        finish(&mut sweep, memory.as_ref(), catalog, &own, change.as_ref());
        gpus.push(sweep);
    }
    notes.extend(memory.map(|memory| memory.note(change.is_some())));
    let shapes_only = first.origin.is_none();
    let (workload, host) = (first.workload.clone(), options.host);
    Ok(Sweep { workload, host, basis, recorded, shapes_only, gpus, memory, warnings, notes })
}

/// Rejects sweeps that would take too long or need more memory than a laptop has.
fn check_size(
    profiles: &[(String, Profile)],
    catalog: &Catalog,
    options: &Options,
    batches: &[u64],
) -> Result<(), SweepError> {
    let sizes = batches.len();
    if sizes > most::BATCH_SIZES {
        return Err(SweepError::Sizes(sizes));
    }
    let gpus = if options.targets.is_empty() { catalog.len() } else { options.targets.len() };
    let operations: usize = profiles.iter().map(|(_, profile)| profile.operations.len()).sum();
    let on_gpus = operations.saturating_mul(gpus);
    if on_gpus > most::PREDICTED_OPERATIONS || on_gpus.saturating_mul(sizes) > most::OPERATIONS_AT_SIZES {
        return Err(SweepError::Large { operations, gpus, sizes });
    }
    Ok(())
}

/// Multiple of the largest recorded batch beyond which a note warns of extrapolation.
const FAR: u64 = 64;

/// Note on batches far beyond the recorded ones.
fn far_beyond(recorded: &[u64], wanted: &[u64]) -> Option<Finding> {
    let largest = *recorded.iter().max()?;
    let batch = *wanted.iter().max().filter(|batch| **batch / FAR > largest)?;
    Some(Finding::FarBatch { batch, largest })
}

/// Checks that two profiles are of one workload, recorded on the same GPU.
fn same((first, a): (&str, &Profile), (other, b): (&str, &Profile)) -> Result<(), SweepError> {
    let differ = |what, of_first: String, of_other: String| {
        if of_first == of_other {
            return Ok(());
        }
        Err(SweepError::Differ { first: first.to_owned(), other: other.to_owned(), what, of_first, of_other })
    };
    differ("mode", a.workload.mode.to_string(), b.workload.mode.to_string())?;
    let precision = |profile: &Profile| profile.workload.precision.map_or("unknown".to_owned(), |it| it.to_string());
    differ("precision", precision(a), precision(b))?;
    let gpu = |profile: &Profile| {
        let origin = profile.origin.as_ref();
        let name =
            origin.and_then(|origin| origin.gpu.as_ref().map(ToString::to_string).or_else(|| origin.gpu_name.clone()));
        name.unwrap_or_else(|| "none".to_owned())
    };
    differ("the GPU they were recorded on", gpu(a), gpu(b))?;
    let text = |value: Option<u64>| value.map_or("unknown".to_owned(), |value| value.to_string());
    if let (Some(_), Some(_)) = (a.workload.sequence_length, b.workload.sequence_length) {
        differ("sequence length", text(a.workload.sequence_length), text(b.workload.sequence_length))?;
    }
    if let (Some(_), Some(_)) = (a.workload.parameter_count, b.workload.parameter_count) {
        differ("parameters", text(a.workload.parameter_count), text(b.workload.parameter_count))?;
    }
    Ok(())
}

/// Note if the profiles differ in their operators.
fn other_operations(profiles: &[(u64, &Profile)]) -> Option<Finding> {
    let calls = |profile: &Profile| {
        let mut calls = std::collections::BTreeMap::<&str, u64>::new();
        for operation in &profile.operations {
            *calls.entry(operation.name.as_str()).or_default() += u64::from(operation.count);
        }
        calls.into_iter().map(|(name, count)| (name.to_owned(), count)).collect::<Vec<_>>()
    };
    let (first, rest) = profiles.split_first()?;
    let own = calls(first.1);
    let (batch, differing) = rest
        .iter()
        .map(|(batch, profile)| {
            let other = calls(profile);
            let missing = own.iter().filter(|call| !other.contains(call)).count();
            (*batch, missing.max(other.iter().filter(|call| !own.contains(call)).count()))
        })
        .max_by_key(|(_, differing)| *differing)?;
    (differing > 0).then_some(Finding::UnlikeOperators { operators: differing, batches: [batch, first.0] })
}

/// Device time within a step; `None` if unknown, or if the step waits for data, which take longer for more samples.
fn busy(prediction: &Prediction, profile: &Profile) -> Option<Micros> {
    if prediction.data_wait().get() > 0.0 {
        return None;
    }
    if prediction.step.is_measured() {
        return profile.step.as_ref().and_then(|step| step.device_busy);
    }
    let busy = prediction.step.mid().checked_sub(prediction.host_idle);
    busy.filter(|_| prediction.host_idle.get() > 0.0)
}

fn by_line(
    predictions: &[(u64, &Prediction)],
    profiles: &[(u64, &Profile)],
    wanted: &[u64],
) -> Result<GpuSweep, SweepError> {
    let points: Vec<BatchPoint> = predictions
        .iter()
        .zip(profiles)
        .map(|((batch, prediction), (_, profile))| BatchPoint {
            batch: *batch,
            time: prediction.step.as_estimate(),
            busy: busy(prediction, profile),
        })
        .collect();
    let first = predictions[0].1;
    let curve = BatchCurve::fit(&points).map_err(|error| SweepError::Curve(first.gpu.slug.to_string(), error))?;
    let rows = wanted
        .iter()
        .map(|&batch| {
            let at = curve.at(batch);
            row(batch, (at.time, None), at.wide, first)
        })
        .collect();
    let mut notes = curve.notes(wanted);
    if curve.has_busy() && wanted.iter().any(|&batch| matches!(curve.at(batch).place, Place::Beyond(_))) {
        notes.push(Finding::BusyExtrapolated);
    }
    if predictions.iter().any(|(_, prediction)| !prediction.step.is_measured()) {
        notes.push(Finding::LineOfPredictions);
    }
    Ok(GpuSweep {
        gpu: first.gpu.clone(),
        rows,
        line: Some((curve.line(), curve.share())),
        families: families(predictions, profiles),
        largest: None,
        notes,
    })
}

/// Fits a line through the device time of each family at each batch size.
fn families(predictions: &[(u64, &Prediction)], profiles: &[(u64, &Profile)]) -> Vec<FamilyLine> {
    let mut found: Vec<(Family, Vec<(u64, f64)>)> = Vec::new();
    for ((batch, prediction), (_, profile)) in predictions.iter().zip(profiles) {
        for of in &prediction.operations {
            let (Some(time), Some(operation)) = (&of.time, profile.operations.get(of.index)) else { continue };
            let kind = family(operation);
            let total = time.range.mid.get() * f64::from(of.count);
            let index = found.iter().position(|(other, _)| *other == kind).unwrap_or_else(|| {
                found.push((kind, Vec::new()));
                found.len() - 1
            });
            let sums = &mut found[index].1;
            match sums.iter_mut().find(|(other, _)| other == batch) {
                Some((_, sum)) => *sum += total,
                None => sums.push((*batch, total)),
            }
        }
    }
    let mut lines: Vec<FamilyLine> = found
        .into_iter()
        .filter(|(_, sums)| sums.iter().any(|(_, sum)| *sum > 0.0))
        .filter_map(|(family, sums)| {
            let points: Vec<Point> =
                sums.iter().map(|&(batch, sum)| Point { x: batch as f64, y: sum, weight: batch as f64 }).collect();
            let line = Line::non_negative(&points).ok()?;
            let times = sums.iter().map(|&(batch, sum)| (batch, Micros::known(sum))).collect();
            Some(FamilyLine { family, line, r_squared: line.r_squared(&points), times })
        })
        .collect();
    let last = |line: &FamilyLine| line.times.last().map_or(0.0, |(_, time)| time.get());
    lines.sort_by(|a, b| last(b).total_cmp(&last(a)));
    lines
}

fn row(batch: u64, (step, data): (Estimate, Option<Supply>), wide: [Micros; 2], prediction: &Prediction) -> SweepRow {
    SweepRow { batch, step, data, wide, throughput: step.throughput(batch), memory: prediction.memory.clone() }
}

/// Steps at one batch size on each GPU; `shapes` is `None` at the recorded size.
fn rows_by_shapes(recorded: &[Prediction], shapes: Option<&ScaledShapes>, batch: u64, to: u64) -> Vec<SweepRow> {
    let rows = recorded.iter().enumerate().map(|(index, recorded)| {
        let Some(shapes) = shapes else {
            let step = recorded.step.as_estimate();
            return row(to, (step, recorded.data), [step.range.low, step.range.high], recorded);
        };
        let (step, data) = shapes.step(index, recorded);
        let (step, wide) = with_scaling_range(&step, batch, to);
        let data = data.map(|data| Supply { alone: with_scaling_range(&data.alone, batch, to).0, ..data });
        let step = data.map_or(step, |data| data.step());
        let wide = [wide[0].min(step.range.low), wide[1].max(step.range.high)];
        row(to, (step, data), wide, recorded)
    });
    rows.collect()
}

fn by_shapes(recorded: &Prediction, rows: Vec<SweepRow>) -> GpuSweep {
    GpuSweep {
        gpu: recorded.gpu.clone(),
        rows,
        line: None,
        families: Vec::new(),
        largest: None,
        notes: recorded.notes.clone(),
    }
}

/// Fills in the memory of every row and the largest batch.
fn finish(
    sweep: &mut GpuSweep,
    memory: Option<&MemoryLine>,
    catalog: &Catalog,
    profiles: &[(u64, &Profile)],
    change: Option<&Change>,
) {
    let Some(gpu) = catalog.get(&sweep.gpu.slug) else { return };
    let rates = Rates::new(gpu);
    let change = change.filter(|change| change.refused_by(gpu).is_none());
    let workload = &profiles[0].1.workload;
    for row in &mut sweep.rows {
        // A recording at this batch shows its memory need; only the others need the line.
        let ran = profiles.iter().find(|(batch, _)| row.step.method.is_of_origin() && *batch == row.batch);
        let need = match (ran, memory) {
            (Some((_, profile)), _) => MemoryNeed::of(profile, Some(gpu)),
            (None, Some(memory)) => memory.need(row.batch),
            (None, None) => MemoryNeed::unseen(None, None),
        };
        row.memory = need.changed(change, workload).fit(&rates);
    }
    sweep.largest = memory.and_then(|memory| memory.changed(change, workload).largest(&rates));
}

/// Memory as a function of the batch size: from several peaks, one peak, or shapes.
fn memory_line(profiles: &[(u64, &Profile)], origin: Option<&GpuSpec>) -> Option<MemoryLine> {
    let (batch, first) = *profiles.first()?;
    MemoryLine::of_profiles(profiles).or_else(|| {
        let most = |profile: &Profile| MemoryNeed::of(profile, origin).most();
        let (other, of_other) = match profiles.iter().find(|(other, _)| *other != batch) {
            Some((other, profile)) => (*other, most(profile)),
            None => (batch * 2, rebatch(first, batch * 2).ok().and_then(|twice| most(&twice.profile))),
        };
        MemoryLine::at_most([(batch, most(first)?), (other, of_other?)])
    })
}
