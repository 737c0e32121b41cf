//! A workload at several batch sizes on several GPUs: the step, the memory, and the largest
//! batch that fits.
//!
//! From profiles at two or more batch sizes: on the GPU they were recorded on a
//! [`BatchCurve`] through the measured steps, on every other one through the steps that the
//! ordinary predictor gives for each of them. From one profile: its shapes scaled
//! ([`rebatch`]); operation by operation the time at the recorded batch times the ratio of
//! the two predictions from shapes, what the device waits for the host taken over unchanged.

use super::curve::{BatchCurve, BatchPoint, Place};
use super::error::SweepError;
use super::rebatch::rebatch;
use super::scaled::{ScaledShapes, with_scaling_range};
use crate::catalog::{Catalog, GpuSpec};
use crate::op::{Family, family};
use crate::predict::choice::predict;
use crate::predict::error::PredictError;
use crate::predict::estimate::{Estimate, GpuFacts, MemoryFit, Prediction};
use crate::predict::host::Host;
use crate::predict::memory::{MemoryLine, MemoryNeed};
use crate::predict::options::Options;
use crate::predict::origin::origin;
use crate::predict::precision::Change;
use crate::predict::rate::Rates;
use crate::predict::warning::{Warning, distinct};
use crate::profile::{Profile, Workload};
use crate::regress::line::{Line, Point};
use crate::text;
use crate::units::{Micros, OpenRange, SamplesPerSecond, most};

/// What a sweep rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Profiles at several batch sizes.
    Lines,
    /// One profile, shapes scaled.
    Shapes,
}

/// A workload at several batch sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The workload of the first profile.
    pub workload: Workload,
    /// Whether the device waits for the host in the steps.
    pub host: Host,
    /// What it rests on.
    pub basis: Basis,
    /// The recorded batch sizes, ascending.
    pub recorded: Vec<u64>,
    /// Whether nothing of it was measured on a GPU.
    pub shapes_only: bool,
    /// GPU by GPU.
    pub gpus: Vec<GpuSweep>,
    /// Memory by batch size, where anything is known of it.
    pub memory: Option<MemoryLine>,
    /// What is to be shown with any of the times.
    pub warnings: Vec<Warning>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// One GPU of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSweep {
    /// The GPU.
    pub gpu: GpuFacts,
    /// By batch size, ascending.
    pub rows: Vec<SweepRow>,
    /// µs, and µs a sample, beyond the largest recorded batch, with the share of the step
    /// there that grows with the batch; `None` from one profile.
    pub line: Option<(Line, f64)>,
    /// Lines by family of operators; empty from one profile.
    pub families: Vec<FamilyLine>,
    /// The largest batch that fits, where the memory is known.
    pub largest: Option<u64>,
    /// Warnings and fall-backs.
    pub notes: Vec<String>,
}

/// One batch size on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRow {
    /// Samples in a step.
    pub batch: u64,
    /// The step; its method tells whether it was recorded here.
    pub step: Estimate,
    /// The 90 % range.
    pub wide: [Micros; 2],
    /// Samples a second; `None` where the step takes no time.
    pub throughput: Option<OpenRange<SamplesPerSecond>>,
    /// Whether it fits.
    pub memory: MemoryFit,
}

/// Device time of a family of operators over the batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyLine {
    /// The family.
    pub family: Family,
    /// µs, and µs a sample.
    pub line: Line,
    /// How well a line fits.
    pub r_squared: f64,
    /// At each recorded batch size.
    pub times: Vec<(u64, Micros)>,
}

/// The sweep of one workload at `batches` (and at the recorded ones) on the GPUs of `options`.
///
/// # Errors
/// Profiles that are not of one workload, of unknown batch size, or that cannot be predicted.
pub fn sweep(
    profiles: &[(String, Profile)],
    catalog: &Catalog,
    options: &Options,
    batches: &[u64],
) -> Result<Sweep, SweepError> {
    // What grows with the batch is found operation by operation.
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
    let warnings = shown.into_iter().map(|(warning, _)| warning.clone()).collect();
    let basis = if recorded.len() > 1 { Basis::Lines } else { Basis::Shapes };
    notes.extend(far_beyond(&recorded, &wanted));
    let mut by_size = Vec::new();
    if basis == Basis::Shapes {
        notes.push(format!(
            "one batch size recorded ({}): shapes scaled to the others; a second recording at another batch size would say how the step really grows",
            recorded[0]
        ));
        let (mut before, mut note) = (None, None);
        for &batch in &wanted {
            // One at a time: the times of all operations on all GPUs take much memory.
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
    if let Some(memory) = &memory {
        let recorded = if change.is_some() { "; in the numbers of the recording" } else { "" };
        notes.push(format!("{memory}{recorded}"));
    }
    let shapes_only = first.origin.is_none();
    let (workload, host) = (first.workload.clone(), options.host);
    Ok(Sweep { workload, host, basis, recorded, shapes_only, gpus, memory, warnings, notes })
}

/// Refuses what would take too long, or more memory than a laptop has.
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

/// Times the largest recorded batch from which on nothing seen says anything.
const FAR: u64 = 64;

/// What is to be said of batches that nobody trains with on one GPU.
fn far_beyond(recorded: &[u64], wanted: &[u64]) -> Option<String> {
    let largest = *recorded.iter().max()?;
    let far = *wanted.iter().max().filter(|batch| **batch / FAR > largest)?;
    Some(format!(
        "batch {} is {} times the largest recorded: time and memory there are extrapolated",
        text::grouped(far as f64),
        text::grouped(far as f64 / largest as f64)
    ))
}

/// Whether two profiles are of one workload, recorded alike.
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

/// That the profiles do not have the same operators, where they have not.
fn other_operations(profiles: &[(u64, &Profile)]) -> Option<String> {
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
    (differing > 0).then(|| {
        format!(
            "{differing} operators are called more or less often at batch {batch} than at {}: where it is not the same network, the line means nothing",
            first.0
        )
    })
}

fn busy(prediction: &Prediction, profile: &Profile) -> Option<Micros> {
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
            row(batch, at.time, at.wide, first)
        })
        .collect();
    let mut notes = curve.notes(wanted);
    if curve.has_busy() && wanted.iter().any(|&batch| matches!(curve.at(batch).place, Place::Beyond(_))) {
        notes.push("beyond the recorded batches the device's busy time has a line of its own".to_owned());
    }
    if predictions.iter().any(|(_, prediction)| !prediction.step.is_measured()) {
        notes.push("the line goes through predicted steps: their range is in its range".to_owned());
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

/// A line a family through its device time at each batch size.
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

fn row(batch: u64, step: Estimate, wide: [Micros; 2], prediction: &Prediction) -> SweepRow {
    SweepRow { batch, step, wide, throughput: step.throughput(batch), memory: prediction.memory.clone() }
}

/// The step at one batch size on each GPU; `shapes` is `None` at the recorded one.
fn rows_by_shapes(recorded: &[Prediction], shapes: Option<&ScaledShapes>, batch: u64, to: u64) -> Vec<SweepRow> {
    let rows = recorded.iter().enumerate().map(|(index, recorded)| {
        let (step, wide) = if let Some(shapes) = shapes {
            with_scaling_range(&shapes.step(index, recorded), batch, to)
        } else {
            let step = recorded.step.as_estimate();
            (step, [step.range.low, step.range.high])
        };
        row(to, step, wide, recorded)
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
        // What ran here says by itself what it needs, whatever a line says.
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

/// Memory over the batch size: through the peaks, from one peak, or from shapes.
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
